package aggregator_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/internal/fixture"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/memory"
)

const (
	midnight = fixture.Midnight
	noon     = fixture.Noon
	hour     = fixture.Hour
	second   = fixture.Second
)

type attrs = fixture.Attrs

var (
	acme       = fixture.Acme
	build      = fixture.Build
	bucketItem = fixture.Bucket
	drips      = fixture.Drips
	daily      = fixture.Daily
	hourly     = fixture.Hourly
	count      = fixture.Count
	refilled   = fixture.Refilled
	dump       = fixture.Dump
	sameTable  = fixture.SameTable
	eq         = fixture.Eq
)

func decoded(t testing.TB, item table.Item) *table.Bucket {
	t.Helper()
	b, err := table.DecodeBucket(item)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// stream makes records of one stream, numbered as they are made.
type stream struct {
	t     testing.TB
	label string
	seq   int
}

func newStream(t testing.TB) *stream { return &stream{t: t, label: "2026-12-01T00:00:00.000"} }

// write is a change of an item, or with no old one its first appearance.
func (s *stream) write(written int64, old, new table.Item) aggregator.Delivery {
	s.t.Helper()
	s.seq++
	record := events.Record{
		Position: events.Position{Index: s.seq}, EventName: events.Insert, Stream: s.label,
		Sequence: strconv.Itoa(s.seq), Time: written,
	}
	position, err := events.StreamPosition(record.Stream, record.Sequence)
	if err != nil {
		s.t.Fatal(err)
	}
	change := &events.Change{Record: record, StreamPosition: position, New: decoded(s.t, new).Image()}
	if old != nil {
		change.EventName, change.Old = events.Modify, decoded(s.t, old).Image()
	}
	return aggregator.Delivery{Record: change.Record, Change: change}
}

// spend is a change by which one limit's consumption rose, or with a negative
// amount was refunded. It returns the item it left too.
func (s *stream) spend(written int64, old table.Item, limit string, amount int64) (aggregator.Delivery, table.Item) {
	s.t.Helper()
	b := decoded(s.t, old)
	l := b.Limit(limit)
	new := build(old, attrs{
		table.Attr(limit, table.FieldBalance):  l.Balance - amount,
		table.Attr(limit, table.FieldConsumed): l.Consumed + amount,
	})
	return s.write(written, old, new), new
}

// other is a record that is nothing to the aggregator.
func (s *stream) other() aggregator.Delivery {
	s.seq++
	return aggregator.Delivery{Record: events.Record{EventName: events.Remove, Stream: s.label, Sequence: strconv.Itoa(s.seq)}}
}

// fakeStore is a table whose methods can be replaced one by one; the rest is
// done by the table in memory.
type fakeStore struct {
	*memory.Store
	addUsage func(context.Context, table.Usage) (table.UsageResult, error)
	pass     func(context.Context, *table.Bucket, *quota.Pass) (table.PassResult, error)
	double   func(context.Context, table.Group, int) (table.DoubleResult, error)
	raise    func(context.Context, table.Group, int, int64) ([]table.Sibling, error)
	create   func(context.Context, table.Creation) (table.CreationOutcome, error)
	calls    func(name string) // told of every call; may be nil
}

func (f *fakeStore) called(name string) {
	if f.calls != nil {
		f.calls(name)
	}
}

func (f *fakeStore) AddUsage(ctx context.Context, usage table.Usage) (table.UsageResult, error) {
	f.called("usage")
	if f.addUsage != nil {
		return f.addUsage(ctx, usage)
	}
	return f.Store.AddUsage(ctx, usage)
}

func (f *fakeStore) Pass(ctx context.Context, bucket *table.Bucket, pass *quota.Pass) (table.PassResult, error) {
	f.called("pass")
	if f.pass != nil {
		return f.pass(ctx, bucket, pass)
	}
	return f.Store.Pass(ctx, bucket, pass)
}

func (f *fakeStore) Double(ctx context.Context, group table.Group, from int) (table.DoubleResult, error) {
	f.called("double")
	if f.double != nil {
		return f.double(ctx, group, from)
	}
	return f.Store.Double(ctx, group, from)
}

func (f *fakeStore) RaiseAndRead(ctx context.Context, group table.Group, count int, now int64) ([]table.Sibling, error) {
	f.called("raise")
	if f.raise != nil {
		return f.raise(ctx, group, count, now)
	}
	return f.Store.RaiseAndRead(ctx, group, count, now)
}

func (f *fakeStore) Create(ctx context.Context, creation table.Creation) (table.CreationOutcome, error) {
	f.called("create")
	if f.create != nil {
		return f.create(ctx, creation)
	}
	return f.Store.Create(ctx, creation)
}

// world is a table in memory, an aggregator over it and the stream of its
// writes.
type world struct {
	*stream
	store *memory.Store
	fake  *fakeStore
	agg   *aggregator.Aggregator
}

func newWorld(t testing.TB, items ...table.Item) *world {
	store := memory.New()
	for _, item := range items {
		store.Put(item)
	}
	fake := &fakeStore{Store: store}
	return &world{newStream(t), store, fake, &aggregator.Aggregator{
		Store: fake, Windows: []events.Window{events.Hourly}, Concurrency: 4,
	}}
}

// process delivers a batch at a time.
func (w *world) process(now int64, batch ...aggregator.Delivery) *aggregator.Report {
	w.t.Helper()
	return w.agg.ProcessDecoded(context.Background(), batch, func(int64) int64 { return now })
}

// sound delivers a batch that must not fail.
func (w *world) sound(now int64, batch ...aggregator.Delivery) *aggregator.Report {
	w.t.Helper()
	report := w.process(now, batch...)
	if err := report.Err(); err != nil {
		w.t.Fatalf("failures: %v", err)
	}
	return report
}

// shard returns a shard of acme's, which must be there.
func (w *world) shard(shard int) *table.Bucket {
	w.t.Helper()
	b, err := w.store.Read(context.Background(), acme.At(shard))
	if err != nil || b == nil {
		w.t.Fatalf("shard %d: %v, %v", shard, b, err)
	}
	return b
}

// usage renders the counters of a usage item, "" where there is none.
func (w *world) usage(group table.Group, window, start string) string {
	key := table.UsageKey{Group: group, Window: window, Start: start}
	item := w.store.Get(key.PK(), key.SK())
	if item == nil {
		return ""
	}
	_, counters, err := table.ParseUsage(item)
	if err != nil {
		w.t.Fatal(err)
	}
	text := ""
	for _, name := range slices.Sorted(maps.Keys(counters)) {
		text += fmt.Sprintf("%s %s, ", name, counters[name])
	}
	n, _ := item[table.AttrTotalEvents].(*types.AttributeValueMemberN)
	return text + "events " + n.Value
}

// failed renders a report's failures: index and step.
func failed(r *aggregator.Report) string {
	text := ""
	for _, f := range r.Failures {
		text += fmt.Sprintf("%d %s;", f.Index, f.Step)
	}
	return text
}

// declined renders a report's declines: shard and reason.
func declined(r *aggregator.Report) string {
	text := ""
	for _, d := range r.Declined {
		text += fmt.Sprintf("%d %s;", d.Key.Shard, d.Reason)
	}
	return text
}

// created renders a report's creations: shard of count, and how it was funded.
func created(r *aggregator.Report) string {
	text := ""
	for _, c := range r.Created {
		text += fmt.Sprintf("%d of %d %v;", c.Key.Shard, c.Count, c.Funding)
	}
	return text
}
