package interop

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/internal/dynoxide"
	"github.com/shardquota/shardquota/limiter"
	"github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/dynamo"
)

// namespace is the name of the one that both clients work in.
const namespace = "shared"

const resource = "gpt-4"

// world is a table that both clients use, and the aggregator on its stream.
type world struct {
	testing.TB
	client     *dynamodb.Client
	table      string
	store      *dynamo.Store
	ours       *ours
	theirs     *zae
	id         string // of the namespace
	streams    *dynamodbstreams.Client
	stream     string  // its label
	iterator   *string // of its one shard
	aggregator *aggregator.Aggregator
	delivered  []events.Record
	created    int // shards, by the aggregator
	doubled    int
}

// newWorld makes a table and lets a client of either kind at it; the namespace
// is registered by theirs, or else by ours.
func newWorld(t testing.TB, theirsFirst bool) *world {
	t.Helper()
	python(t)
	client := dynoxide.Client(t)
	w := &world{TB: t, client: client, table: dynoxide.NewTable(t, client)}
	w.store = dynamo.New(client, w.table)
	if theirsFirst {
		w.theirs = startZae(t, w.table, namespace, 0)
		w.theirs.do("deployed", nil)
	}
	w.ours = w.another()
	if !theirsFirst {
		w.theirs = startZae(t, w.table, namespace, 0)
		w.theirs.do("deployed", nil)
	}
	w.id = ask[struct{ Namespace string }](w.theirs, "hello", nil).Namespace
	w.aggregator = &aggregator.Aggregator{
		Store: dynamo.New(client, w.table), Retention: 90 * 24 * time.Hour,
		Windows: []events.Window{events.Hourly, events.Daily, events.Monthly},
	}
	w.open()
	return w
}

// another is a further client of ours.
func (w *world) another(options ...limiter.Option) *ours {
	w.Helper()
	l, err := newOurs(w.Context(), dynamo.New(w.client, w.table), namespace, options...)
	if err != nil {
		w.Fatal(err)
	}
	return l
}

// ours is a client of ours: what it takes, and what it takes it by.
type ours struct {
	*limiter.Limiter
	*limits.Store
}

func newOurs(ctx context.Context, t table.Client, namespace string, options ...limiter.Option) (*ours, error) {
	store, err := limits.Open(ctx, t, limits.Namespace(namespace), limits.CacheFor(time.Second))
	if err != nil {
		return nil, err
	}
	return &ours{limiter.New(store, options...), store}, nil
}

// drawing is a client of ours that draws one shard of an entity. That there are
// others it learns from shard 0, which refuses it more calls than there can be.
func (w *world) drawing(entity string, shard int) *ours {
	w.Helper()
	l := w.another(limiter.Deterministic(func(n int) int { return min(shard, n-1) }))
	var rejection *limiter.Rejection
	if _, err := l.Acquire(w.Context(), entity, resource, limiter.Amounts{"calls": 1_000_000_000}); !errors.As(err, &rejection) || rejection.Shards <= shard {
		w.Fatalf("shard %d: %v", shard, err)
	}
	return l
}

// open begins to read the stream.
func (w *world) open() {
	w.Helper()
	description, err := w.client.DescribeTable(w.Context(), &dynamodb.DescribeTableInput{TableName: &w.table})
	if err != nil {
		w.Fatal(err)
	}
	arn := description.Table.LatestStreamArn
	if w.stream, err = events.StreamLabel(*arn); err != nil {
		w.Fatal(err)
	}
	w.streams = dynamodbstreams.New(dynamodbstreams.Options{
		BaseEndpoint: new(dynoxide.Start(w)), Region: dynoxide.Region, Credentials: dynoxide.Credentials(),
	})
	shards, err := w.streams.DescribeStream(w.Context(), &dynamodbstreams.DescribeStreamInput{StreamArn: arn})
	if err != nil {
		w.Fatal(err)
	}
	start, err := w.streams.GetShardIterator(w.Context(), &dynamodbstreams.GetShardIteratorInput{
		StreamArn: arn, ShardId: shards.StreamDescription.Shards[0].ShardId, ShardIteratorType: types.ShardIteratorTypeTrimHorizon,
	})
	if err != nil {
		w.Fatal(err)
	}
	w.iterator = start.ShardIterator
}

// deliver has the aggregator process what was written since the last call, and
// returns how much that was. Nothing may fail.
func (w *world) deliver() int {
	w.Helper()
	page, err := w.streams.GetRecords(w.Context(), &dynamodbstreams.GetRecordsInput{ShardIterator: w.iterator})
	if err != nil {
		w.Fatal(err)
	}
	w.iterator = page.NextShardIterator
	var batch []events.Record
	for _, r := range page.Records {
		batch = append(batch, w.record(r))
	}
	w.delivered = append(w.delivered, batch...)
	report := w.aggregator.Process(w.Context(), batch, time.Now().UnixMilli())
	if len(report.Failures)+len(report.Rejected) > 0 {
		w.Fatalf("of %d records: failed %v, rejected %v", len(batch), report.Failures, report.Rejected)
	}
	w.created, w.doubled = w.created+len(report.Created), w.doubled+len(report.Doublings)
	return len(batch)
}

// settle delivers until nothing more is written.
func (w *world) settle() {
	w.Helper()
	for range 20 {
		delivered := 0
		for n := w.deliver(); n > 0; n = w.deliver() {
			delivered += n
		}
		if delivered == 0 {
			return
		}
	}
	w.Fatal("the aggregator answers its own writes without end")
}

// record is a record as the stream's reader makes it.
func (w *world) record(from types.Record) events.Record {
	w.Helper()
	change := from.Dynamodb
	return events.Record{
		Table: w.table, Stream: w.stream, EventName: string(from.EventName), EventID: *from.EventID,
		Sequence: *change.SequenceNumber, Time: change.ApproximateCreationDateTime.UnixMilli(),
		Keys: w.image(change.Keys), Old: w.image(change.OldImage), New: w.image(change.NewImage),
	}
}

func (w *world) image(from map[string]types.AttributeValue) json.RawMessage {
	w.Helper()
	if len(from) == 0 {
		return nil
	}
	item, err := attributevalue.FromDynamoDBStreamsMap(from)
	if err != nil {
		w.Fatal(err)
	}
	text, err := table.FormatItem(item)
	if err != nil {
		w.Fatal(err)
	}
	return text
}

func (w *world) group(entity string) table.Group {
	return table.Group{Namespace: w.id, Entity: entity, Resource: resource}
}

// shards are those of an entity that exist.
func (w *world) shards(entity string) []*table.Bucket {
	w.Helper()
	var all []*table.Bucket
	for shard := range quota.MaxShards {
		b, err := w.store.Read(w.Context(), w.group(entity).At(shard))
		if err != nil {
			w.Fatal(err)
		}
		if b != nil {
			all = append(all, b)
		}
	}
	return all
}

// bucket is a shard that must be there.
func (w *world) bucket(entity string, shard int) *table.Bucket {
	w.Helper()
	b, err := w.store.Read(w.Context(), w.group(entity).At(shard))
	if err != nil || b == nil {
		w.Fatalf("shard %d: %v, %v", shard, b, err)
	}
	return b
}

// set and theySet store limits of an entity on the resource.
func (w *world) set(entity string, set ...limits.Limit) {
	w.Helper()
	if err := w.ours.SetLimits(w.Context(), limits.For(entity, resource), set...); err != nil {
		w.Fatal(err)
	}
}

func (w *world) theySet(entity string, set ...limits.Limit) {
	w.Helper()
	w.theirs.do("set_limits", args{"entity": entity, "resource": resource, "limits": wires(set)})
}

// use is a use of ours that must be admitted.
func use(t testing.TB, l *ours, entity string, amounts limiter.Amounts) *limiter.Lease {
	t.Helper()
	lease, err := l.Acquire(t.Context(), entity, resource, amounts)
	if err != nil {
		t.Fatalf("%v: %v", amounts, err)
	}
	return lease
}

// theyUse is a use of theirs, of a shard where that is not negative; it reports
// whether it was admitted.
func theyUse(z *zae, entity string, amounts limiter.Amounts, shard int) bool {
	z.Helper()
	a := args{"entity": entity, "resource": resource, "amounts": amounts}
	if shard >= 0 {
		a["shard"] = shard
	}
	return ask[limiter.Amounts](z, "acquire", a) != nil
}

func eq[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
