// Package dynamo sends a table's requests to DynamoDB. It renders each write as
// one request, and knows nothing of what an item means.
//
// A condition that fails returns the item as it is, which is the answer: nothing
// is read a second time.
package dynamo

import (
	"context"
	"errors"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	smithy "github.com/aws/smithy-go/middleware"

	"github.com/shardquota/shardquota/table"
)

// Operations are the IAM actions that a table.Store needs on its table. The checks
// inside a transaction need an action of their own.
var Operations = []string{
	"dynamodb:BatchGetItem",
	"dynamodb:ConditionCheckItem",
	"dynamodb:GetItem",
	"dynamodb:PutItem",
	"dynamodb:UpdateItem",
}

// ClientOperations are the IAM actions that a table.Client needs on its table and,
// for the query, on its indexes.
var ClientOperations = []string{
	"dynamodb:BatchGetItem",
	"dynamodb:ConditionCheckItem",
	"dynamodb:DeleteItem",
	"dynamodb:GetItem",
	"dynamodb:PutItem",
	"dynamodb:Query",
	"dynamodb:UpdateItem",
}

// API is what a Store needs of the service's client.
type API interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	BatchGetItem(context.Context, *dynamodb.BatchGetItemInput, ...func(*dynamodb.Options)) (*dynamodb.BatchGetItemOutput, error)
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
	UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error)
	DeleteItem(context.Context, *dynamodb.DeleteItemInput, ...func(*dynamodb.Options)) (*dynamodb.DeleteItemOutput, error)
	TransactWriteItems(context.Context, *dynamodb.TransactWriteItemsInput, ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error)
	Query(context.Context, *dynamodb.QueryInput, ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error)
}

// Store is a table on DynamoDB, safe for concurrent use: a table.DB, and the
// table.Table over it. How often a request is sent again, and for how long, is up
// to the client that it was given.
type Store struct {
	table.Table
	client      API
	name        string
	expressions expressions
	meter       meter
}

var (
	_ table.DB     = (*Store)(nil)
	_ table.Client = (*Store)(nil)
)

// An Option changes how a Store works.
type Option func(*Store)

// Concurrency bounds how many shards of one group are raised at once; 8 unless
// told. It panics below 1.
func Concurrency(n int) Option {
	if n < 1 {
		panic("dynamo: concurrency below 1")
	}
	return func(s *Store) { s.Raises = n }
}

// Backoff is how a batch read that the service answered in part goes on: after
// attempt 1, 2, … attempts it waits as long as wait says, and then asks for the
// rest. Where none of attempts brought everything, the read fails with
// table.ErrRetry. Unless told it makes 6 attempts within about 1.5 s.
func Backoff(attempts int, wait func(attempt int) time.Duration) Option {
	return func(s *Store) { s.Reads, s.Table.Backoff = attempts, wait }
}

// New returns the table of that name (or ARN).
func New(client API, tableName string, options ...Option) *Store {
	s := &Store{client: client, name: tableName, expressions: newExpressions()}
	s.Table = table.Table{DB: table.Strict(s), Raises: 8, Reads: 6, Backoff: exponential}
	for _, option := range options {
		option(s)
	}
	return s
}

// exponential waits 50 ms, 100 ms, 200 ms, …
func exponential(attempt int) time.Duration { return 50 * time.Millisecond << (attempt - 1) }

const (
	allOld = types.ReturnValuesOnConditionCheckFailureAllOld
	total  = types.ReturnConsumedCapacityTotal
)

// Do implements table.DB.
func (s *Store) Do(ctx context.Context, w *table.Write) (table.WriteResult, error) {
	e := s.expressions.of(w)
	var result table.WriteResult
	var err error
	switch {
	case w.Put != nil:
		result, err = s.put(ctx, w, e)
	case w.Delete:
		result, err = s.delete(ctx, w, e)
	default:
		result, err = s.update(ctx, w, e)
	}
	var failed *types.ConditionalCheckFailedException
	switch {
	case errors.As(err, &failed):
		s.meter.refused(requestOf(w))
		return table.WriteResult{Item: itemOrNil(failed.Item), Time: failedAt(err)}, nil
	case err != nil:
		return table.WriteResult{}, failure(w.Operation, err, secrets{}.of(w.Key.Item()).of(w.Put).of(e.values))
	}
	result.Applied = true
	return result, nil
}

// requestOf is what the service calls the request of a write.
func requestOf(w *table.Write) string {
	switch {
	case w.Put != nil:
		return "PutItem"
	case w.Delete:
		return "DeleteItem"
	}
	return "UpdateItem"
}

func (s *Store) put(ctx context.Context, w *table.Write, e expression) (result table.WriteResult, err error) {
	output, err := s.client.PutItem(ctx, &dynamodb.PutItemInput{
		TableName: &s.name, Item: w.Put, ConditionExpression: e.condition,
		ExpressionAttributeNames: e.names, ExpressionAttributeValues: e.values,
		ReturnValuesOnConditionCheckFailure: allOld, ReturnConsumedCapacity: total,
	}, options(w)...)
	if err != nil {
		return result, err
	}
	s.meter.write("PutItem", output.ConsumedCapacity)
	return table.WriteResult{Time: at(output.ResultMetadata)}, nil
}

func (s *Store) delete(ctx context.Context, w *table.Write, e expression) (result table.WriteResult, err error) {
	output, err := s.client.DeleteItem(ctx, &dynamodb.DeleteItemInput{
		TableName: &s.name, Key: w.Key.Item(), ConditionExpression: e.condition,
		ExpressionAttributeNames: e.names, ExpressionAttributeValues: e.values,
		ReturnValuesOnConditionCheckFailure: allOld, ReturnConsumedCapacity: total,
	}, options(w)...)
	if err != nil {
		return result, err
	}
	s.meter.write("DeleteItem", output.ConsumedCapacity)
	return table.WriteResult{Time: at(output.ResultMetadata)}, nil
}

func (s *Store) update(ctx context.Context, w *table.Write, e expression) (result table.WriteResult, err error) {
	input := &dynamodb.UpdateItemInput{
		TableName: &s.name, Key: w.Key.Item(), UpdateExpression: e.update, ConditionExpression: e.condition,
		ExpressionAttributeNames: e.names, ExpressionAttributeValues: e.values,
		ReturnValues: types.ReturnValueNone, ReturnValuesOnConditionCheckFailure: allOld, ReturnConsumedCapacity: total,
	}
	if w.Return {
		input.ReturnValues = types.ReturnValueAllNew
	}
	output, err := s.client.UpdateItem(ctx, input, options(w)...)
	if err != nil {
		return result, err
	}
	s.meter.write("UpdateItem", output.ConsumedCapacity)
	return table.WriteResult{Item: itemOrNil(output.Attributes), Time: at(output.ResultMetadata)}, nil
}

// itemOrNil is an item of an answer, nil where the answer holds none.
func itemOrNil(item table.Item) table.Item {
	if len(item) == 0 {
		return nil
	}
	return item
}

// at is when the service answered, epoch ms, 0 where it does not say.
func at(metadata smithy.Metadata) int64 {
	if answered, ok := middleware.GetServerTime(metadata); ok {
		return answered.UnixMilli()
	}
	return 0
}

// Transact implements table.DB. A repeatable transaction is recognised by a token
// that is made of its contents. The SDK makes a new token for any other, which it
// keeps as it sends the transaction again.
func (s *Store) Transact(ctx context.Context, t *table.Transaction) (table.TransactResult, error) {
	input := &dynamodb.TransactWriteItemsInput{ReturnConsumedCapacity: total}
	for _, w := range t.Writes {
		input.TransactItems = append(input.TransactItems, s.item(w))
	}
	if t.Repeatable {
		token, err := tokenOf(input.TransactItems)
		if err != nil {
			return table.TransactResult{}, err
		}
		input.ClientRequestToken = &token
	}
	output, err := s.client.TransactWriteItems(ctx, input, intact)
	var cancelled *types.TransactionCanceledException
	if errors.As(err, &cancelled) {
		s.meter.refused("TransactWriteItems")
		if refused := refusals(cancelled); len(refused) > 0 {
			return table.TransactResult{Refused: refused, Time: failedAt(err)}, nil
		}
	}
	if err != nil {
		hidden := secrets{}
		for _, w := range t.Writes {
			hidden = hidden.of(w.Key.Item()).of(w.Put)
		}
		return table.TransactResult{}, failure(t.Operation, err, hidden)
	}
	for i := range output.ConsumedCapacity {
		s.meter.write("TransactWriteItems", &output.ConsumedCapacity[i])
	}
	return table.TransactResult{Time: at(output.ResultMetadata)}, nil
}

// item is one write as part of a transaction.
func (s *Store) item(w *table.Write) types.TransactWriteItem {
	e := s.expressions.of(w)
	switch {
	case w.Put != nil:
		return types.TransactWriteItem{Put: &types.Put{
			TableName: &s.name, Item: w.Put, ConditionExpression: e.condition,
			ExpressionAttributeNames: e.names, ExpressionAttributeValues: e.values, ReturnValuesOnConditionCheckFailure: allOld,
		}}
	case w.Delete:
		return types.TransactWriteItem{Delete: &types.Delete{
			TableName: &s.name, Key: w.Key.Item(), ConditionExpression: e.condition,
			ExpressionAttributeNames: e.names, ExpressionAttributeValues: e.values, ReturnValuesOnConditionCheckFailure: allOld,
		}}
	case !w.Changes():
		return types.TransactWriteItem{ConditionCheck: &types.ConditionCheck{
			TableName: &s.name, Key: w.Key.Item(), ConditionExpression: e.condition,
			ExpressionAttributeNames: e.names, ExpressionAttributeValues: e.values, ReturnValuesOnConditionCheckFailure: allOld,
		}}
	}
	return types.TransactWriteItem{Update: &types.Update{
		TableName: &s.name, Key: w.Key.Item(), UpdateExpression: e.update, ConditionExpression: e.condition,
		ExpressionAttributeNames: e.names, ExpressionAttributeValues: e.values, ReturnValuesOnConditionCheckFailure: allOld,
	}}
}

// conditionCode is how a cancellation says that an item's condition failed.
const conditionCode = "ConditionalCheckFailed"

// refusals are the items of the writes that a transaction was cancelled for, by
// place.
func refusals(cancelled *types.TransactionCanceledException) map[int]table.Item {
	refused := map[int]table.Item{}
	for i, reason := range cancelled.CancellationReasons {
		if deref(reason.Code) == conditionCode {
			refused[i] = itemOrNil(reason.Item)
		}
	}
	return refused
}

func deref(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

// Load implements table.DB.
func (s *Store) Load(ctx context.Context, lookup *table.Lookup) (table.LoadResult, error) {
	if !lookup.Batch {
		return s.get(ctx, lookup)
	}
	keys, places := make([]map[string]types.AttributeValue, len(lookup.Keys)), make(map[table.ItemKey]int, len(lookup.Keys))
	for i, key := range lookup.Keys {
		keys[i], places[key] = key.Item(), i
	}
	output, err := s.client.BatchGetItem(ctx, &dynamodb.BatchGetItemInput{
		RequestItems:           map[string]types.KeysAndAttributes{s.name: {Keys: keys, ConsistentRead: new(true)}},
		ReturnConsumedCapacity: total,
	}, intact)
	if err != nil {
		return table.LoadResult{}, failedRead(lookup, err)
	}
	for i := range output.ConsumedCapacity {
		s.meter.read("BatchGetItem", &output.ConsumedCapacity[i])
	}
	result := table.LoadResult{Items: make([]table.Item, len(keys)), Time: at(output.ResultMetadata)}
	for _, found := range output.Responses {
		for _, item := range found {
			result.Items[places[keyOf(item)]] = item
		}
	}
	for _, left := range output.UnprocessedKeys {
		for _, key := range left.Keys {
			result.Unread = append(result.Unread, keyOf(key))
		}
	}
	return result, nil
}

// get reads one item.
func (s *Store) get(ctx context.Context, lookup *table.Lookup) (table.LoadResult, error) {
	output, err := s.client.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &s.name, Key: lookup.Keys[0].Item(), ConsistentRead: new(true), ReturnConsumedCapacity: total,
	}, intact)
	if err != nil {
		return table.LoadResult{}, failedRead(lookup, err)
	}
	s.meter.read("GetItem", output.ConsumedCapacity)
	return table.LoadResult{Items: []table.Item{output.Item}, Time: at(output.ResultMetadata)}, nil
}

func failedRead(lookup *table.Lookup, err error) error {
	hidden := secrets{}
	for _, key := range lookup.Keys {
		hidden = hidden.of(key.Item())
	}
	return failure(lookup.Operation, err, hidden)
}

func keyOf(item table.Item) table.ItemKey {
	pk, sk := item.Key()
	return table.ItemKey{PK: pk, SK: sk}
}

// Query implements table.DB.
func (s *Store) Query(ctx context.Context, q *table.Query) (result table.QueryResult, err error) {
	pk, sk := table.IndexKeys(q.Index)
	input := &dynamodb.QueryInput{
		TableName: &s.name, IndexName: &q.Index,
		KeyConditionExpression:    new("#0 = :0 AND begins_with(#1, :1)"),
		ProjectionExpression:      new("#2, #3"),
		ExpressionAttributeNames:  map[string]string{"#0": pk, "#1": sk, "#2": table.AttrPK, "#3": table.AttrSK},
		ExpressionAttributeValues: table.Item{":0": table.S(q.PK), ":1": table.S(q.Prefix)},
		ReturnConsumedCapacity:    total,
	}
	hidden := secrets{q.Prefix}.of(table.Item{table.AttrPK: table.S(q.PK)})
	for pages := dynamodb.NewQueryPaginator(s.client, input); pages.HasMorePages(); {
		page, err := pages.NextPage(ctx, intact)
		if err != nil {
			return result, failure(q.Operation, err, hidden)
		}
		hidden = hidden.of(page.LastEvaluatedKey) // by which the next page is asked for
		s.meter.read("Query", page.ConsumedCapacity)
		for _, item := range page.Items {
			result.Keys = append(result.Keys, keyOf(item))
		}
		result.Time = at(page.ResultMetadata)
	}
	return result, nil
}

// Get returns any item, nil where there is none. It reflects every write that was
// acknowledged before the call.
func (s *Store) Get(ctx context.Context, pk, sk string) (table.Item, error) {
	result, err := s.Load(ctx, &table.Lookup{Operation: "read item", Keys: []table.ItemKey{{PK: pk, SK: sk}}})
	if err != nil {
		return nil, err
	}
	return result.Items[0], nil
}
