package aggregator_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/memory"
)

// Noon is when these tests begin, 1 December 2026 UTC; midnight is the edge of
// the calendar quotas' day before it.
const (
	midnight = int64(1796083200000)
	noon     = midnight + 12*hour
	hour     = int64(3_600_000)
	second   = int64(1000)
)

var acme = table.Group{Namespace: "ns1", Entity: "sk-live-acme", Resource: "gpt-4"}

// attrs are attributes by name: whole numbers, text, booleans or values as the
// table has them; nil removes one.
type attrs map[string]any

func build(item table.Item, changes ...attrs) table.Item {
	item = item.Clone()
	for _, more := range changes {
		for name, value := range more {
			switch v := value.(type) {
			case nil:
				delete(item, name)
			case int:
				item[name] = table.N(strconv.Itoa(v))
			case int64:
				item[name] = table.N(strconv.FormatInt(v, 10))
			case string:
				item[name] = table.S(v)
			case bool:
				item[name] = &types.AttributeValueMemberBOOL{Value: v}
			case types.AttributeValue:
				item[name] = v
			default:
				panic(fmt.Sprintf("attribute %s of type %T", name, value))
			}
		}
	}
	return item
}

// bucketItem is a shard's item at count 1, last passed at noon, with a full
// write meter and what else is given.
func bucketItem(key table.Key, more ...attrs) table.Item {
	base := table.Item{
		table.AttrPK: table.S(key.PK()), table.AttrSK: table.S(table.StateSK),
		table.AttrEntityID: table.S(key.Entity), table.AttrResource: table.S(key.Resource),
		table.AttrShardCount: table.N("1"),
		"b_wcu_tk":           table.N("1000000"), "b_wcu_tc": table.N("0"), "b_wcu_cp": table.N("1000000"),
		"b_wcu_ra": table.N("1000000"), "b_wcu_rp": table.N("1000"),
	}
	return build(base, append([]attrs{{table.AttrRefilled: noon}}, more...)...)
}

// drips is a limit that refills to its capacity in a minute.
func drips(name string, balance, capacity int64) attrs {
	at := func(field table.Field) string { return table.Attr(name, field) }
	return attrs{
		at(table.FieldBalance): balance, at(table.FieldConsumed): 0, at(table.FieldCapacity): capacity,
		at(table.FieldRefill): capacity, at(table.FieldPeriod): 60_000,
	}
}

// daily is a quota restored at midnight, granted at a count; 0 is legacy.
func daily(name string, balance, capacity int64, grant int) attrs {
	a := lump(name, balance, capacity, grant)
	a[table.Attr(name, table.FieldResets)] = "1m0h0"
	return a
}

// hourly is a quota with a session window of an hour from start, applied; 0 is
// one that no use has opened.
func hourly(name string, balance, capacity int64, grant int, start int64) attrs {
	a := lump(name, balance, capacity, grant)
	a[table.Attr(name, table.FieldLength)] = 3600
	if start != 0 {
		a[table.Attr(name, table.FieldStart)], a[table.Attr(name, table.FieldApplied)] = start, start
	}
	return a
}

func lump(name string, balance, capacity int64, grant int) attrs {
	a := drips(name, balance, capacity)
	a[table.Attr(name, table.FieldRefill)] = 0
	if grant > 0 {
		a[table.Attr(name, table.FieldGrant)] = grant
	}
	return a
}

func count(n int) attrs { return attrs{table.AttrShardCount: n} }

func refilled(at int64) attrs { return attrs{table.AttrRefilled: at} }

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
	mark, err := events.Mark(record.Stream, record.Sequence)
	if err != nil {
		s.t.Fatal(err)
	}
	change := &events.Change{Record: record, Mark: mark, New: decoded(s.t, new)}
	if old != nil {
		change.EventName, change.Old = events.Modify, decoded(s.t, old)
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

// dump renders the whole table, the same table always as the same text.
func dump(t testing.TB, store *memory.Store) string {
	t.Helper()
	text := ""
	for _, item := range store.Items() {
		line, err := table.FormatItem(item)
		if err != nil {
			t.Fatal(err)
		}
		text += string(line) + "\n"
	}
	return text
}

// sameTable compares two dumps and shows the items in which they differ.
func sameTable(t testing.TB, what, got, want string) {
	t.Helper()
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(a), len(b)) {
		var x, y string
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		if x != y {
			at := 0
			for at < min(len(x), len(y)) && x[at] == y[at] {
				at++
			}
			from := max(0, at-40)
			t.Errorf("%s: item %d differs:\n got …%.120s\nwant …%.120s", what, i, x[min(from, len(x)):], y[min(from, len(y)):])
			return
		}
	}
}

// eq fails where got is not want, which are compared as text.
func eq(t testing.TB, what string, got, want any) {
	t.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		t.Errorf("%s:\n got %s\nwant %s", what, g, w)
	}
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
