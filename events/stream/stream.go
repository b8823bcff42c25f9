// Package stream reads the stream of a live table: which stream that is, the
// shards it has and which follows which, and their records, page by page.
//
// A Tail reads; what takes the records decides what is read next: a Merge, which
// puts the records of all shards into one order, or a mapping of package mapping,
// which makes batches of them. Nothing here has a clock: now is epoch ms.
//
// A shard's position is the last record that was done with, so that what is
// started again at its positions misses nothing and may repeat what was read
// after them.
package stream

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"

	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/internal/mapping"
)

// Options alter how a client makes a request.
type Options = func(*dynamodbstreams.Options)

// Client is what it takes to read a stream. A *dynamodbstreams.Client is one.
type Client interface {
	DescribeStream(context.Context, *dynamodbstreams.DescribeStreamInput, ...Options) (*dynamodbstreams.DescribeStreamOutput, error)
	GetShardIterator(context.Context, *dynamodbstreams.GetShardIteratorInput, ...Options) (*dynamodbstreams.GetShardIteratorOutput, error)
	GetRecords(context.Context, *dynamodbstreams.GetRecordsInput, ...Options) (*dynamodbstreams.GetRecordsOutput, error)
}

// Tables is what it takes to find a table's stream. A *dynamodb.Client is one.
type Tables interface {
	DescribeTable(context.Context, *dynamodb.DescribeTableInput, ...func(*dynamodb.Options)) (*dynamodb.DescribeTableOutput, error)
}

// Consumer takes the records of a stream. A mapping.Mapping is one, and a Merge.
type Consumer interface {
	// Open tells of a shard, and how far it was done with before.
	Open(mapping.Shard, mapping.Position)
	// Wants are the shards to be read on. A shard is not among them before its
	// parent is done with.
	Wants() []string
	// Read takes what was read of a shard next, and whether that was its end.
	Read(id string, records []events.Record, ended bool, now int64)
	// Forget drops shards that are done with and that keep does not know.
	Forget(keep func(id string) bool)
}

// The ways in which a stream is not there, or not whole. None of their texts
// names anything of the data.
var (
	// ErrNoStream is of a table that has no stream, or none any more.
	ErrNoStream = errors.New("the table has no stream: enable one with new and old images")
	// ErrImages is of a stream that does not say what the writes were.
	ErrImages = errors.New("the stream does not carry new and old images")
	// ErrGone is of a stream that the service no longer knows.
	ErrGone = errors.New("the stream is gone: the table was deleted, or the stream disabled more than 24 hours ago")
	// ErrLost is of records that left the stream before they were read.
	ErrLost = errors.New("records are lost: the stream keeps them for 24 hours")
)

// Find returns the ARN of a table's latest stream, which may be disabled: it is
// there to be read for 24 hours more. The error wraps ErrNoStream where there
// is none.
func Find(ctx context.Context, tables Tables, name string) (arn string, err error) {
	found, err := tables.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &name})
	if err != nil {
		return "", failure("describe table "+name, err)
	}
	if found.Table == nil {
		return "", failure("describe table "+name, errHollow)
	}
	if found.Table.LatestStreamArn == nil {
		return "", fmt.Errorf("table %s: %w", name, ErrNoStream)
	}
	return *found.Table.LatestStreamArn, nil
}
