package dynamo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// ClientOperations are the IAM actions that a Client needs on its table and,
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

// ClientAPI is what a Client needs of the service's client.
type ClientAPI interface {
	API
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
	DeleteItem(context.Context, *dynamodb.DeleteItemInput, ...func(*dynamodb.Options)) (*dynamodb.DeleteItemOutput, error)
	Query(context.Context, *dynamodb.QueryInput, ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error)
}

// Client is the table to a program that takes tokens.
type Client struct {
	*Store
	client ClientAPI
	shapes takeShapes
}

var _ table.Client = (*Client)(nil)

// NewClient returns the table of that name (or ARN).
func NewClient(client ClientAPI, tableName string, options ...Option) *Client {
	return &Client{New(client, tableName, options...), client, newTakeShapes()}
}

// charge makes an update that must not land twice, and returns the item as it
// is after it.
func (c *Client) charge(ctx context.Context, operation string, key table.Key, e *expression) (table.WriteResult, error) {
	if err := e.fits(); err != nil {
		return table.WriteResult{}, fmt.Errorf("%s: %w", operation, err)
	}
	item, refused, err := c.update(ctx, operation, bucketKey(key), e, types.ReturnValueAllNew, once)
	if err != nil {
		return table.WriteResult{}, err
	}
	return table.WriteResult{Applied: !refused, Item: item}, nil
}

// charge adds to the total consumed and to the balance of a limit.
func (e *expression) charge(limit string, consumed, balance int64) {
	e.addNumber(table.Attr(limit, table.FieldConsumed), consumed)
	if balance != 0 {
		e.addNumber(table.Attr(limit, table.FieldBalance), balance)
	}
}

// Use implements table.Client.
func (c *Client) Use(ctx context.Context, bucket *table.Bucket, use *quota.Use, expires int64) (table.WriteResult, error) {
	return c.charge(ctx, "use", bucket.Key, useExpression(bucket, use, expires))
}

// useExpression is a pass and the takes in one. An update can add to an
// attribute only once, so that what is taken off a balance that the pass changes
// goes with the change.
func useExpression(bucket *table.Bucket, use *quota.Use, expires int64) *expression {
	debits := map[string]int64{}
	for _, take := range use.Charges {
		debits[take.Limit] = take.Debit
	}
	e := passExpression(bucket, use.Pass, debits)
	for _, change := range use.Changes {
		delete(debits, change.Limit)
	}
	for _, take := range use.Charges {
		e.charge(take.Limit, take.Consumed, -debits[take.Limit])
		if take.Least != nil {
			e.require(e.atLeast(table.Attr(take.Limit, table.FieldBalance), *take.Least))
		}
	}
	if expires != 0 && bucket.Item[table.AttrTTL] != nil {
		e.require(e.exists(table.AttrTTL))
		e.setNumber(table.AttrTTL, expires)
	}
	return e
}

// UseAll implements table.Client. The SDK gives each call a token of its own: one
// made of what is written would take another client's equal use for this one.
func (c *Client) UseAll(ctx context.Context, uses []table.PlannedUse) (bool, error) {
	const operation = "use several"
	var items []types.TransactWriteItem
	var hidden secrets
	for _, use := range uses {
		e := useExpression(use.Bucket, use.Use, use.Expires)
		if err := e.fits(); err != nil {
			return false, fmt.Errorf("%s: %w", operation, err)
		}
		items = append(items, types.TransactWriteItem{Update: c.debit(use.Bucket.Key, e)})
		hidden = hidden.of(bucketKey(use.Bucket.Key))
	}
	output, err := c.client.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{
		TransactItems: items, ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal,
	}, intact)
	if othersWrote(err) {
		c.meter.refused("TransactWriteItems")
		return false, nil
	}
	if err != nil {
		return false, failure(operation, err, hidden)
	}
	for i := range output.ConsumedCapacity {
		c.meter.write("TransactWriteItems", &output.ConsumedCapacity[i])
	}
	return true, nil
}

// othersWrote reports whether a transaction was cancelled because others write to
// its items, or have.
func othersWrote(err error) bool {
	var cancelled *types.TransactionCanceledException
	return errors.As(err, &cancelled) && !slices.ContainsFunc(reasonCodes(cancelled), func(code string) bool {
		return !slices.Contains([]string{"", "None", conditionCode, "TransactionConflict"}, code)
	})
}

// Reconcile implements table.Client.
func (c *Client) Reconcile(ctx context.Context, bucket *table.Bucket, corrections []quota.Adjustment) (table.WriteResult, error) {
	return c.charge(ctx, "settle", bucket.Key, settleExpression(bucket, corrections))
}

func settleExpression(bucket *table.Bucket, corrections []quota.Adjustment) *expression {
	e := newExpression()
	e.require(e.exists(table.AttrPK))
	if table.Lifts(corrections) {
		e.require(e.reads(table.AttrRefilledAt, bucket.RefilledAt))
		e.require(e.isOrAbsent(table.AttrValidUntil, bucket.ValidUntil))
		e.require(e.countIs(bucket.ShardCount))
		if table.ConfigChanged(bucket) {
			e.terms(bucket.PassConfigAttrs())
		}
	}
	for _, correction := range corrections {
		e.charge(correction.Limit, correction.Consumed, correction.Balance)
		if correction.Max != nil {
			e.require(e.atMost(table.Attr(correction.Limit, table.FieldBalance), *correction.Max))
		}
	}
	return e
}

// PropagateWindow implements table.Client.
func (c *Client) PropagateWindow(ctx context.Context, key table.Key, window table.OpenedWindow) (bool, error) {
	at := func(field table.Field) string { return table.Attr(window.Limit, field) }
	e := newExpression()
	start := at(table.FieldStart)
	e.require(e.exists(table.AttrPK))
	e.require(either(e.absent(start), e.atMost(start, window.Start-window.Length)))
	e.require(either(e.exists(at(table.FieldApplied)), e.name(table.AttrRefilledAt)+" < "+e.number(window.Start)))
	e.sets = append(e.sets, e.name(at(table.FieldConsumedAtOpen))+" = if_not_exists("+e.name(at(table.FieldConsumed))+", "+e.number(0)+")")
	e.setNumber(start, window.Start)
	e.setNumber(at(table.FieldLength), window.Length/1000)
	e.setNumber(table.AttrValidUntil, 0)
	_, refused, err := c.update(ctx, "tell of a window", bucketKey(key), e, types.ReturnValueNone)
	return err == nil && !refused, err
}

// Insert implements table.Client.
func (c *Client) Insert(ctx context.Context, item table.Item) (bool, error) {
	e := newExpression()
	e.require(e.absent(table.AttrPK))
	output, err := c.client.PutItem(ctx, &dynamodb.PutItemInput{
		TableName: &c.table, Item: item,
		ConditionExpression: e.condition(), ExpressionAttributeNames: e.names,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		ReturnConsumedCapacity:              types.ReturnConsumedCapacityTotal,
	}, intact)
	if stored, refused := conditionFailed(err); refused {
		c.meter.refused("PutItem")
		return table.Equal(stored, item), nil
	}
	if err != nil {
		return false, failure("insert", err, secrets{}.of(item))
	}
	c.meter.write("PutItem", output.ConsumedCapacity)
	return true, nil
}

// Amend implements table.Client.
func (c *Client) Amend(ctx context.Context, pk, sk string, amendment table.Amendment) (table.WriteResult, error) {
	e := newExpression()
	e.require(e.exists(table.AttrPK))
	e.terms(amendment.Expect)
	for _, name := range slices.Sorted(maps.Keys(amendment.Set)) {
		e.set(name, amendment.Set[name])
	}
	for _, name := range amendment.Remove {
		e.remove(name)
	}
	item, refused, err := c.update(ctx, "amend", itemKey(pk, sk), e, types.ReturnValueAllNew)
	if err != nil {
		return table.WriteResult{}, err
	}
	return table.WriteResult{Applied: !refused, Item: item}, nil
}

// Replace implements table.Client.
func (c *Client) Replace(ctx context.Context, item table.Item) error {
	output, err := c.client.PutItem(ctx, &dynamodb.PutItemInput{
		TableName: &c.table, Item: item, ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal,
	}, intact)
	if err != nil {
		return failure("replace", err, secrets{}.of(item))
	}
	c.meter.write("PutItem", output.ConsumedCapacity)
	return nil
}

// Remove implements table.Client.
func (c *Client) Remove(ctx context.Context, pk, sk string, expect ...table.NamedValue) (bool, error) {
	e := newExpression()
	e.require(e.exists(table.AttrPK))
	e.terms(expect)
	key := itemKey(pk, sk)
	output, err := c.client.DeleteItem(ctx, &dynamodb.DeleteItemInput{
		TableName: &c.table, Key: key,
		ConditionExpression: e.condition(), ExpressionAttributeNames: e.names, ExpressionAttributeValues: e.values,
		ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal,
	}, intact)
	if _, refused := conditionFailed(err); refused {
		c.meter.refused("DeleteItem")
		return false, nil
	}
	if err != nil {
		return false, failure("remove", err, secrets{}.of(key))
	}
	c.meter.write("DeleteItem", output.ConsumedCapacity)
	return true, nil
}

// maxBatch is how many keys one batch read takes, none of them twice.
const maxBatch = 100

// Items implements table.Client.
func (c *Client) Items(ctx context.Context, keys []table.ItemKey) ([]table.Item, error) {
	found, asked := make(map[table.ItemKey]table.Item, len(keys)), []table.ItemKey{}
	for _, key := range keys {
		if _, twice := found[key]; !twice {
			found[key] = nil
			asked = append(asked, key)
		}
	}
	for batch := range slices.Chunk(asked, maxBatch) {
		if err := c.readItems(ctx, batch, found); err != nil {
			return nil, err
		}
	}
	items := make([]table.Item, len(keys))
	for i, key := range keys {
		items[i] = found[key].Clone()
	}
	return items, nil
}

// readItems puts the items at the keys of one batch to what is found.
func (c *Client) readItems(ctx context.Context, batch []table.ItemKey, found map[table.ItemKey]table.Item) error {
	var left []map[string]types.AttributeValue
	for _, key := range batch {
		left = append(left, itemKey(key.PK, key.SK))
	}
	for attempt := 1; len(left) > 0; attempt++ {
		items, rest, err := c.readBatch(ctx, left)
		if err != nil {
			return failure("read items", err, secretsOf(left))
		}
		for _, item := range items {
			pk, sk := item.Key()
			found[table.ItemKey{PK: pk, SK: sk}] = item
		}
		left = rest
		if err := c.pause(ctx, "read items", attempt, len(left)); err != nil {
			return err
		}
	}
	return nil
}

func secretsOf(keys []map[string]types.AttributeValue) secrets {
	hidden := secrets{}
	for _, key := range keys {
		hidden = hidden.of(key)
	}
	return hidden
}

// Find implements table.Client. An entity's buckets are found by GSI3, a
// resource's by GSI2, a namespace's by GSI4.
func (c *Client) Find(ctx context.Context, scope table.Scope) ([]table.Key, error) {
	input, hidden := c.query(scope)
	var keys []table.Key
	err := c.pages(ctx, "find buckets", input, hidden, func(pk, sk string) {
		if key, err := table.ParseKey(pk); sk == table.StateSK && err == nil && scope.Holds(key) {
			keys = append(keys, key)
		}
	})
	return keys, err
}

func (c *Client) query(scope table.Scope) (*dynamodb.QueryInput, secrets) {
	index, pk, sk := "GSI4", scope.Namespace, "BUCKET#"
	switch {
	case scope.Entity != "":
		index, pk = "GSI3", scope.Namespace+"/ENTITY#"+scope.Entity
		if scope.Resource != "" {
			sk += scope.Resource + "#"
		}
	case scope.Resource != "":
		index, pk = "GSI2", scope.Namespace+"/RESOURCE#"+scope.Resource
	}
	return &dynamodb.QueryInput{
		TableName: &c.table, IndexName: &index,
		KeyConditionExpression:    aws.String("#0 = :0 AND begins_with(#1, :1)"),
		ProjectionExpression:      aws.String("#2, #3"),
		ExpressionAttributeNames:  map[string]string{"#0": index + "PK", "#1": index + "SK", "#2": table.AttrPK, "#3": table.AttrSK},
		ExpressionAttributeValues: table.Item{":0": table.S(pk), ":1": table.S(sk)},
		ReturnConsumedCapacity:    types.ReturnConsumedCapacityTotal,
	}, secrets{scope.Entity, pk}
}

// once has a write tried again only where the try before cannot have landed.
func once(o *dynamodb.Options) { o.Retryer = certain{o.Retryer} }

// certain is a retryer that is sure.
type certain struct{ aws.Retryer }

// IsErrorRetryable reports whether the service, or the way to it, refused the
// request before anything was done.
func (certain) IsErrorRetryable(err error) bool {
	var dial *net.OpError
	return throttles.IsErrorThrottle(err) == aws.TrueTernary || errors.As(err, &dial) && dial.Op == "dial"
}

var throttles = retry.ThrottleErrorCode{Codes: throttleCodes()}

// throttleCodes are the names under which the service refuses a request for
// now. A transaction that holds the item is one for a single write.
func throttleCodes() map[string]struct{} {
	codes := maps.Clone(retry.DefaultThrottleErrorCodes)
	codes["TransactionConflictException"] = struct{}{}
	return codes
}
