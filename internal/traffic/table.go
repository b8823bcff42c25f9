// Package traffic makes clients of a table in memory that keep the rules, and the
// stream of all their writes. Tests drive the aggregator with it. The caller sets
// the time: the table has the true one, each client a clock of its own.
package traffic

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/events/memstream"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/memory"
)

// Table is a table in memory with a stream. Clients and the aggregator use it as a
// table.Store.
type Table struct {
	table.Store // does the requests: the memory, or a variant of it
	Memory      *memory.Store
	Now         int64           // the true time, epoch ms
	Records     []events.Record // all there are so far, in the order of their writes

	// Watch is called with every write to a bucket; may be nil. It must change
	// neither image, and use no method of the table but At and Shards.
	Watch func(old, new *table.Bucket)

	stream memstream.Stream
	seen   map[table.Key]*table.Bucket // as last written; never changed
}

// NewTable returns an empty table.
func NewTable(now int64) *Table {
	store := memory.New()
	t := &Table{Store: store, Memory: store, Now: now, seen: map[table.Key]*table.Bucket{}}
	t.stream.Label, t.stream.Buckets = "2026-11-30T00:00:00.000", true
	t.stream.Now = func() int64 { return t.Now - t.Now%1000 } // in whole seconds, as DynamoDB has it
	store.Watch(t.written)
	return t
}

// written observes a write to the memory.
func (t *Table) written(old, new table.Item) {
	t.stream.Write(old, new)
	records := t.stream.Take()
	if t.Records = append(t.Records, records...); len(records) == 0 || new == nil {
		return
	}
	b := decode(new)
	before := t.seen[b.Key]
	t.seen[b.Key] = b
	if t.Watch != nil {
		t.Watch(before, b)
	}
}

// Limited returns the table for a limiter.Limiter. The methods of a table.Store go
// to Store, the others to the memory.
func (t *Table) Limited() table.Client { return limited{t.Store, client{t.Memory.Client()}} }

// limited has the methods of its Store where the client has them too, since those
// of client lie deeper.
type limited struct {
	table.Store
	client
}

type client struct{ table.Client }

// At returns a copy of a shard's bucket, nil where there is none.
func (t *Table) At(key table.Key) *table.Bucket {
	seen := t.seen[key]
	if seen == nil {
		return nil
	}
	b := *seen // decoding it anew would take most of a test's time
	b.Item, b.Limits = seen.Item.Clone(), slices.Clone(seen.Limits)
	return &b
}

// Shards returns copies of a group's buckets, by ascending shard.
func (t *Table) Shards(group table.Group) []*table.Bucket {
	var shards []*table.Bucket
	for shard := range quota.MaxShards {
		if b := t.At(group.At(shard)); b != nil {
			shards = append(shards, b)
		}
	}
	return shards
}

func decode(item table.Item) *table.Bucket {
	b, err := table.DecodeBucket(item)
	if err != nil {
		panic(err)
	}
	return b
}

// Put writes an item as it is.
func (t *Table) Put(item table.Item) { t.Memory.Put(item) }

// Limit is a limit of a new bucket, full.
type Limit struct {
	Name     string
	Capacity int64 // millitokens
	Refill   int64 // millitokens; 0 for a quota
	Period   int64 // ms
	Resets   string
	Window   int64 // seconds
	Division quota.Division
}

// PutFirst puts shard 0 of a group, at count 1 and full. writes is the capacity of
// its write meter per second.
func (t *Table) PutFirst(group table.Group, writes int64, limits ...Limit) {
	item := table.Item{table.AttrPK: table.S(group.At(0).PK()), table.AttrSK: table.S(table.StateSK)}
	set := func(name string, value int64) { item[name] = table.N(strconv.FormatInt(value, 10)) }
	for _, l := range append(limits, Limit{Name: quota.WriteMeter, Capacity: 1000 * writes, Refill: 1000 * writes, Period: 1000}) {
		at := func(field table.Field) string { return table.Attr(l.Name, field) }
		set(at(table.FieldBalance), l.Capacity)
		set(at(table.FieldConsumed), 0)
		set(at(table.FieldCapacity), l.Capacity)
		set(at(table.FieldRefill), l.Refill)
		set(at(table.FieldPeriod), l.Period)
		if l.Resets != "" {
			item[at(table.FieldResets)] = table.S(l.Resets)
		}
		if l.Division != quota.Divided {
			item[at(table.FieldDivision)] = table.S(string(l.Division))
		}
		if l.Window > 0 {
			set(at(table.FieldLength), l.Window)
		}
		if l.Resets != "" || l.Window > 0 {
			set(at(table.FieldGrant), 1)
		}
	}
	item[table.AttrEntityID], item[table.AttrResource] = table.S(group.Entity), table.S(group.Resource)
	set(table.AttrShardCount, 1)
	set(table.AttrRefilledAt, t.Now)
	set(table.AttrValidUntil, 0)
	t.Put(item)
}

// Restream makes a new stream of the table, numbered from 1, as where an operator
// turns streaming off and on.
func (t *Table) Restream(label string) { t.stream.Restart(label) }

// Change acts as an operator: it changes a limit's terms on every shard, and makes
// clients look at them before they spend again.
func (t *Table) Change(group table.Group, limit string, capacity, refill int64) {
	for _, b := range t.Shards(group) {
		b.Item[table.Attr(limit, table.FieldCapacity)] = number(capacity)
		b.Item[table.Attr(limit, table.FieldRefill)] = number(refill)
		b.Item[table.AttrValidUntil] = number(0)
		t.Put(b.Item)
	}
}

func number(n int64) types.AttributeValue { return table.N(strconv.FormatInt(n, 10)) }

// TopUp acts as an operator: it adds to a quota for this period, on one shard.
func (t *Table) TopUp(key table.Key, limit string, amount int64) {
	b := t.At(key)
	l := b.Limit(limit)
	l.Balance += amount
	l.TopUp += amount
	b.Fill()
	t.Put(b.Item)
}

// String says how far the table is, for a failing test.
func (t *Table) String() string { return fmt.Sprintf("%d records at %d", t.stream.Written(), t.Now) }
