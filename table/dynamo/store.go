// Package dynamo keeps the table on DynamoDB: one request for each operation of
// table.Store, conditioned so that it holds whoever else writes.
//
// Limit names hold dots and dashes, so no expression ever names an attribute;
// all of them are positional aliases. A condition that fails returns the item
// as it is, which is the answer: nothing is read a second time.
package dynamo

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/table"
)

// Operations are the IAM actions that a Store needs on its table. The checks
// inside a transaction need an action of their own.
var Operations = []string{
	"dynamodb:BatchGetItem",
	"dynamodb:ConditionCheckItem",
	"dynamodb:GetItem",
	"dynamodb:PutItem",
	"dynamodb:UpdateItem",
}

// API is what a Store needs of the service's client.
type API interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error)
	BatchGetItem(context.Context, *dynamodb.BatchGetItemInput, ...func(*dynamodb.Options)) (*dynamodb.BatchGetItemOutput, error)
	TransactWriteItems(context.Context, *dynamodb.TransactWriteItemsInput, ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error)
}

// Store is a table on DynamoDB, safe for concurrent use. How often a request
// is retried, and for how long, is up to the client it was given.
type Store struct {
	client  API
	table   string
	raises  int
	waits   int
	backoff func(attempt int) time.Duration
	meter   meter
}

var _ table.Store = (*Store)(nil)

// An Option changes how a Store works.
type Option func(*Store)

// Concurrency bounds how many shards of one group are raised at once; 8 unless
// told. It panics below 1.
func Concurrency(n int) Option {
	if n < 1 {
		panic("dynamo: concurrency below 1")
	}
	return func(s *Store) { s.raises = n }
}

// Backoff is how a batch read that the service answered in part goes on: after
// attempt 1, 2, … attempts it waits as long as wait says, and then asks for the
// rest. Where none of attempts brought everything, the read fails with
// table.ErrRetry. Unless told it makes 6 attempts within about 1.5 s.
func Backoff(attempts int, wait func(attempt int) time.Duration) Option {
	return func(s *Store) { s.waits, s.backoff = attempts, wait }
}

// New returns the table of that name (or ARN).
func New(client API, tableName string, options ...Option) *Store {
	s := &Store{client: client, table: tableName, raises: 8, waits: 6, backoff: exponential}
	for _, option := range options {
		option(s)
	}
	return s
}

// exponential waits 50 ms, 100 ms, 200 ms, …
func exponential(attempt int) time.Duration { return 50 * time.Millisecond << (attempt - 1) }

// Read implements table.Store.
func (s *Store) Read(ctx context.Context, key table.Key) (*table.Bucket, error) {
	item, err := s.get(ctx, "read bucket", bucketKey(key))
	if err != nil || item == nil {
		return nil, err
	}
	b, err := table.DecodeBucket(item)
	if err != nil {
		return nil, fmt.Errorf("read bucket: %w", err)
	}
	return b, nil
}

// Get returns any item, nil where there is none. It reflects every write that
// was acknowledged before the call.
func (s *Store) Get(ctx context.Context, pk, sk string) (table.Item, error) {
	return s.get(ctx, "read item", itemKey(pk, sk))
}

func (s *Store) get(ctx context.Context, operation string, key table.Item) (table.Item, error) {
	output, err := s.client.GetItem(ctx, &dynamodb.GetItemInput{
		TableName:              &s.table,
		Key:                    key,
		ConsistentRead:         new(true),
		ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal,
	}, intact)
	if err != nil {
		return nil, failure(operation, err, secrets{}.of(key))
	}
	s.meter.read("GetItem", output.ConsumedCapacity)
	return output.Item, nil
}

func bucketKey(key table.Key) table.Item { return itemKey(key.PK(), table.StateSK) }

func itemKey(pk, sk string) table.Item {
	return table.Item{table.AttrPK: table.S(pk), table.AttrSK: table.S(sk)}
}

// update makes one conditional update. refused is true where the condition did
// not hold, and then item is the item as it is; else it is the item as it was
// left, if the update asks for that. item is nil where there is none.
func (s *Store) update(ctx context.Context, operation string, key table.Item, e *expression, want types.ReturnValue, options ...func(*dynamodb.Options)) (item table.Item, refused bool, err error) {
	says := e.render()
	output, err := s.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName:                           &s.table,
		Key:                                 key,
		UpdateExpression:                    says.update,
		ConditionExpression:                 says.condition,
		ExpressionAttributeNames:            e.names,
		ExpressionAttributeValues:           e.values,
		ReturnValues:                        want,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		ReturnConsumedCapacity:              types.ReturnConsumedCapacityTotal,
	}, append(options, intact)...)
	if image, ok := conditionFailed(err); ok {
		s.meter.refused("UpdateItem")
		return image, true, nil
	}
	if err != nil {
		return nil, false, failure(operation, err, secrets{}.of(key).of(e.values))
	}
	s.meter.write("UpdateItem", output.ConsumedCapacity)
	return output.Attributes, false, nil
}
