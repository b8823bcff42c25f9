package dynamo_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/shardquota/shardquota/internal/dynoxide"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/dynamo"
)

const (
	entity = "sk-live-4242"
	parent = "sk-live-parent"
	now    = int64(1796086800000)
)

var group = table.Group{Namespace: "n5", Entity: entity, Resource: "gpt-4"}

// fake is a client made of functions; one that is not set must not be called.
type fake struct {
	getItem    func(*dynamodb.GetItemInput) (*dynamodb.GetItemOutput, error)
	updateItem func(context.Context, *dynamodb.UpdateItemInput) (*dynamodb.UpdateItemOutput, error)
	batchGet   func(*dynamodb.BatchGetItemInput) (*dynamodb.BatchGetItemOutput, error)
	transact   func(*dynamodb.TransactWriteItemsInput) (*dynamodb.TransactWriteItemsOutput, error)
	putItem    func(*dynamodb.PutItemInput) (*dynamodb.PutItemOutput, error)
	deleteItem func(*dynamodb.DeleteItemInput) (*dynamodb.DeleteItemOutput, error)
	query      func(*dynamodb.QueryInput) (*dynamodb.QueryOutput, error)
}

func (f fake) GetItem(_ context.Context, input *dynamodb.GetItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	return f.getItem(input)
}

func (f fake) UpdateItem(ctx context.Context, input *dynamodb.UpdateItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	return f.updateItem(ctx, input)
}

func (f fake) BatchGetItem(_ context.Context, input *dynamodb.BatchGetItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.BatchGetItemOutput, error) {
	return f.batchGet(input)
}

func (f fake) TransactWriteItems(_ context.Context, input *dynamodb.TransactWriteItemsInput, _ ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error) {
	return f.transact(input)
}

func (f fake) PutItem(_ context.Context, input *dynamodb.PutItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	return f.putItem(input)
}

func (f fake) DeleteItem(_ context.Context, input *dynamodb.DeleteItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.DeleteItemOutput, error) {
	return f.deleteItem(input)
}

func (f fake) Query(_ context.Context, input *dynamodb.QueryInput, _ ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error) {
	return f.query(input)
}

// roundTrip is an HTTP client made of a function.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) Do(request *http.Request) (*http.Response, error) { return f(request) }

// over is a real client over an HTTP client, which makes so many attempts
// without waiting.
func over(endpoint string, attempts int, client dynamodb.HTTPClient) *dynamodb.Client {
	return dynamodb.New(dynamodb.Options{
		BaseEndpoint: &endpoint,
		Region:       dynoxide.Region,
		Credentials:  dynoxide.Credentials(),
		HTTPClient:   client,
		Retryer: retry.NewStandard(func(o *retry.StandardOptions) {
			o.MaxAttempts = attempts
			o.Backoff = retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) { return 0, nil })
		}),
	})
}

// answering is a client to whom the service always gives one answer.
func answering(status int, body string) *dynamodb.Client {
	return over("http://dynamodb.test", 1, roundTrip(func(request *http.Request) (*http.Response, error) {
		return &http.Response{
			StatusCode: status,
			Header:     http.Header{"Content-Type": {"application/x-amz-json-1.0"}},
			Body:       io.NopCloser(strings.NewReader(body)),
			Request:    request,
		}, nil
	}))
}

// service is the body of an error of the service's.
func service(code, message string) string {
	return `{"__type":"com.amazonaws.dynamodb.v20120810#` + code + `","message":"` + message + `"}`
}

// bucket is a bucket item with a quota of 8000 that was granted at 1.
func bucket(shard, count int, balance string) table.Item {
	b := table.Bucket{Key: group.At(shard), Item: table.Item{
		"entity_id": table.S(entity), "parent_id": table.S(parent), "resource": table.S("gpt-4"),
		"b_calls_tk": table.N(balance), "b_calls_cp": table.N("8000"), "b_calls_ra": table.N("0"),
		"b_calls_rp": table.N("1000"), "b_calls_tc": table.N("0"), "b_calls_rsa": table.N("7200"),
		"b_calls_ws": table.N("1796086700000"), "b_calls_wa": table.N("1796086700000"),
		"b_wcu_tk": table.N("1000000"), "b_wcu_tc": table.N("0"), "b_wcu_cp": table.N("1000000"),
		"b_wcu_ra": table.N("1000000"), "b_wcu_rp": table.N("1000"),
	}, Bucket: quota.Bucket{Shard: shard, ShardCount: count, RefilledAt: now - 1000}}
	b.Fill()
	return b.Item
}

func decode(item table.Item) *table.Bucket {
	b, err := table.DecodeBucket(item)
	if err != nil {
		panic(err)
	}
	return b
}

// call is one operation of a Client, over the table that seed makes.
type call struct {
	name      string
	operation string // the service's name for the request
	do        func(context.Context, *dynamo.Store) (any, error)
}

// source is one run of shard 0's records.
func source(first, last table.Bound) table.Source {
	return table.Source{Shard: 0, Next: table.SeenRecords{{First: first, Last: last}}}
}

func usage() table.Usage {
	return table.Usage{
		Key:      table.UsageKey{Group: group, Window: "hourly", Start: "2026-12-01T01:00:00Z"},
		Counters: map[string]int64{"tokens.in": 1500, "calls-day": 2},
		Events:   2,
		Sources:  []table.Source{source(table.Bound{Position: "10", Total: "a"}, table.Bound{Position: "12", Total: "b"})},
		Expires:  1800000000,
	}
}

// seed is the table that calls are made over: a quota granted whole to shard
// 0, a legacy shard 1 at a lower count.
func seed() []table.Item {
	zero := bucket(0, 4, "8000")
	zero["b_calls_gc"], zero["ttl"] = table.N("1"), table.N("1900000000")
	return []table.Item{zero, bucket(1, 2, "100")}
}

func drip() (*table.Bucket, *quota.Pass) {
	b := decode(seed()[0])
	return b, &quota.Pass{
		Changes:    []quota.Change{{Limit: "calls", Read: 8000, Delta: -50, Restore: true, Max: new(int64(8000))}},
		RefilledAt: now, ShardCount: 4, ExpectRefilledAt: now - 1000, ValidUntil: new(now + 5),
	}
}

func creation() table.Creation {
	item := bucket(2, 4, "2000")
	item["b_calls_gc"] = table.N("4")
	return table.Creation{Bucket: decode(item), Moves: []quota.Funding{{
		Limit: "calls", Source: quota.Move, Amount: 2000, Donor: 0,
		Guard: quota.Guard{Grant: 1, ShardCount: 4, SessionOnly: true, Applied: new(int64(1796086700000))},
	}}}
}

var calls = slices.Concat(storeCalls, clientCalls)

var storeCalls = []call{
	{"read bucket", "GetItem", func(ctx context.Context, s *dynamo.Store) (any, error) { return s.Read(ctx, group.At(0)) }},
	{"add usage", "UpdateItem", func(ctx context.Context, s *dynamo.Store) (any, error) { return s.AddUsage(ctx, usage()) }},
	{"write pass", "UpdateItem", func(ctx context.Context, s *dynamo.Store) (any, error) {
		b, pass := drip()
		return s.Pass(ctx, b, pass)
	}},
	{"double", "UpdateItem", func(ctx context.Context, s *dynamo.Store) (any, error) { return s.Double(ctx, group, 4) }},
	{"read siblings", "BatchGetItem", func(ctx context.Context, s *dynamo.Store) (any, error) {
		return s.RaiseAndRead(ctx, group, 4, now)
	}},
	{"create shard 2", "TransactWriteItems", func(ctx context.Context, s *dynamo.Store) (any, error) {
		return s.Create(ctx, creation())
	}},
	{"freeze shard 0", "UpdateItem", func(ctx context.Context, s *dynamo.Store) (any, error) {
		return nil, s.Freeze(ctx, group.At(0), []quota.Freeze{{Limit: "calls", Grant: 2}})
	}},
}
