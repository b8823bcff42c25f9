// Package stream reads the stream of a live table: it finds the stream, follows
// its shards from parent to child, and reads their records page by page.
//
// A Tail reads. Its consumer decides which shards to read next. Either a Merge,
// which puts the records of all shards into one order, or a delivery.Mapping,
// which makes batches. Nothing here has a clock: now is epoch ms.
//
// A program that starts again at its consumer's checkpoints misses no record. It
// may read records again that came after them.
package stream

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"

	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/events/delivery"
)

// Options change how a client makes a request.
type Options = func(*dynamodbstreams.Options)

// Client reads a stream. A *dynamodbstreams.Client is one.
type Client interface {
	DescribeStream(context.Context, *dynamodbstreams.DescribeStreamInput, ...Options) (*dynamodbstreams.DescribeStreamOutput, error)
	GetShardIterator(context.Context, *dynamodbstreams.GetShardIteratorInput, ...Options) (*dynamodbstreams.GetShardIteratorOutput, error)
	GetRecords(context.Context, *dynamodbstreams.GetRecordsInput, ...Options) (*dynamodbstreams.GetRecordsOutput, error)
}

// Tables describes a table. A *dynamodb.Client is one.
type Tables interface {
	DescribeTable(context.Context, *dynamodb.DescribeTableInput, ...func(*dynamodb.Options)) (*dynamodb.DescribeTableOutput, error)
}

// Consumer takes the records of a stream. A delivery.Mapping is one, and a Merge.
type Consumer interface {
	// Open adds a shard, with how far it was done before.
	Open(delivery.Shard, delivery.Checkpoint)
	// Wants returns the shards to read on. A shard MUST NOT be among them before
	// its parent is done.
	Wants() []string
	// Read takes the next records of a shard, and whether they are its last.
	Read(id string, records []events.Record, ended bool, now int64)
	// Forget drops every shard that is done, unless keep names it.
	Forget(keep func(id string) bool)
}

// Errors of a stream that does not exist or is not complete. Their texts name
// nothing of the data.
var (
	// ErrNoStream: the table has no stream, or no longer has one.
	ErrNoStream = errors.New("the table has no stream: enable one with new and old images")
	// ErrImages: the stream does not carry what was written.
	ErrImages = errors.New("the stream does not carry new and old images")
	// ErrGone: the service no longer knows the stream.
	ErrGone = errors.New("the stream is gone: the table was deleted, or the stream disabled more than 24 hours ago")
	// ErrLost: records left the stream before they were read.
	ErrLost = errors.New("records are lost: the stream keeps them for 24 hours")
)

// Find returns the ARN of a table's latest stream. The stream may be disabled: it
// can still be read for 24 hours. The error wraps ErrNoStream where there is none.
func Find(ctx context.Context, tables Tables, name string) (arn string, err error) {
	found, err := tables.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &name})
	if err != nil {
		return "", failure("describe table "+name, err)
	}
	if found.Table == nil {
		return "", failure("describe table "+name, errEmptyAnswer)
	}
	if found.Table.LatestStreamArn == nil {
		return "", fmt.Errorf("table %s: %w", name, ErrNoStream)
	}
	return *found.Table.LatestStreamArn, nil
}
