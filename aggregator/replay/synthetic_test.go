package replay

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/events/memstream"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/sharding"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/memory"
)

var seed = flag.Uint64("seed", 1, "first seed of the synthetic recordings")

// client writes to a table of its own as a client of the layout does, and
// records what it writes: first uses, fast paths, passes, doublings, moves,
// operators' changes.
type client struct {
	t      testing.TB
	rng    *rand.Rand
	store  *memory.Store
	group  table.Group
	now    int64 // epoch ms
	count  int
	stream memstream.Stream
}

// hour is a reset calendar that fires every hour.
const hour = "1m0"

func newClient(t testing.TB, seed uint64, calls int) *client {
	c := &client{
		t: t, rng: rand.New(rand.NewPCG(seed, 2)), store: memory.New(), count: 1,
		group: table.Group{Namespace: "n", Entity: "acme", Resource: "gpt-4"},
		now:   1_796_032_800_000 - 60_000, // a minute before a full hour
	}
	c.stream.Label, c.stream.Now = "2026-11-30T00:00:00.000", func() int64 { return c.now / 1000 * 1000 }
	c.store.Watch(c.stream.Write)
	item := table.Item{
		table.AttrPK: table.S(c.group.At(0).PK()), table.AttrSK: table.S(table.StateSK),
		table.AttrEntityID: table.S("acme"), table.AttrResource: table.S("gpt-4"),
		table.AttrShardCount: table.N("1"), table.AttrResets: table.S(hour),
		table.Attr("rpm", table.FieldResets): table.S("-"),
		table.AttrRefilledAt:                 table.N(fmt.Sprint(c.now)),
		table.AttrValidUntil:                 table.N(fmt.Sprint(c.now + 60_000)),
	}
	limit := func(name string, capacity, refill, period int) {
		for field, value := range map[table.Field]int{
			table.FieldBalance: capacity, table.FieldConsumed: 0, table.FieldCapacity: capacity,
			table.FieldRefill: refill, table.FieldPeriod: period,
		} {
			item[table.Attr(name, field)] = table.N(fmt.Sprint(value))
		}
	}
	limit("rpm", 60_000, 60_000, 60_000)
	limit("calls", calls, 0, 1000)
	limit(quota.WriteMeter, 1_000_000, 1_000_000, 1000)
	item[table.Attr("calls", table.FieldGrant)] = table.N("1")
	c.store.Put(item)
	return c
}

func (c *client) read(shard int) *table.Bucket {
	b, err := c.store.Read(c.t.Context(), c.group.At(shard))
	if err != nil {
		c.t.Fatal(err)
	}
	return b
}

// update changes a bucket and records it.
func (c *client) update(b *table.Bucket, change func(b *table.Bucket)) {
	change(b)
	b.Fill()
	c.store.Put(b.Item)
}

// step does one random thing.
func (c *client) step() {
	c.now += c.rng.Int64N(1500)
	switch c.rng.IntN(60) {
	case 0:
		c.double()
	case 1:
		c.update(c.read(0), func(b *table.Bucket) { b.ValidUntil = new(int64(0)) })
	case 2:
		c.now += 60_000
	case 3:
		c.topUp(c.read(0), 1000*(1+c.rng.Int64N(5)))
	default:
		c.acquire(c.rng.IntN(c.count), 1000*(1+c.rng.Int64N(4)))
	}
}

// acquire takes tokens on the fast path where it can, with a pass where it
// must, and not at all where even that is not enough.
func (c *client) acquire(shard int, amount int64) {
	b := c.read(shard)
	if b == nil {
		b = c.create(shard)
	}
	if fits(b, amount) && *b.ValidUntil > c.now {
		c.update(b, func(b *table.Bucket) { take(b, amount) })
		return
	}
	c.pass(b, amount)
}

func fits(b *table.Bucket, amount int64) bool {
	return b.Limit("rpm").Balance >= amount && b.Limit("calls").Balance >= amount && b.Limit(quota.WriteMeter).Balance >= 1000
}

func take(b *table.Bucket, amount int64) {
	for name, amount := range map[string]int64{"rpm": amount, "calls": amount, quota.WriteMeter: 1000} {
		limit := b.Limit(name)
		limit.Balance -= amount
		limit.Consumed += amount
	}
}

// pass materialises a bucket and takes tokens if there are enough.
func (c *client) pass(b *table.Bucket, amount int64) {
	pass, err := quota.Materialise(&b.Bucket, nil, c.now)
	if err != nil {
		c.t.Fatal(err)
	}
	c.update(b, func(b *table.Bucket) {
		pass.Apply(&b.Bucket)
		boundary, _ := b.NextBoundary(c.now)
		b.ValidUntil = &boundary
		if fits(b, amount) {
			take(b, amount)
		}
	})
}

// topUp adds to the quota as an operator does, with a pass.
func (c *client) topUp(b *table.Bucket, amount int64) {
	pass, err := quota.Materialise(&b.Bucket, nil, c.now)
	if err != nil {
		c.t.Fatal(err)
	}
	c.update(b, func(b *table.Bucket) {
		pass.Apply(&b.Bucket)
		limit := b.Limit("calls")
		limit.Balance += amount
		limit.TopUp += amount
		b.ValidUntil = new(int64(0))
	})
}

// double raises shard 0's count and tells the siblings, whether or not all
// shards of the last doubling are in use.
func (c *client) double() {
	if c.count == 8 {
		return
	}
	c.count *= 2
	for shard := range c.count / 2 {
		if b := c.read(shard); b != nil {
			c.update(b, func(b *table.Bucket) { b.ShardCount = c.count })
		}
	}
}

// create makes a shard on its first draw, its quota moved off a sibling.
func (c *client) create(shard int) *table.Bucket {
	siblings := make([]table.Sibling, c.count)
	for i := range siblings {
		siblings[i].Bucket = c.read(i)
	}
	plan := sharding.Request{Siblings: siblings, Shard: shard, Count: c.count, Now: c.now}.Plan()
	if plan.Refused != "" {
		c.t.Fatal(plan)
	}
	c.store.Put(plan.Creation.Bucket.Item)
	for _, f := range plan.Creation.Moves {
		c.update(c.read(f.Donor), func(b *table.Bucket) { b.Limit(f.Limit).Balance -= f.Amount })
	}
	return c.read(shard)
}

// Streams of a client that drains its buckets, passes, doubles, spends a quota
// to its end and crosses reset edges come to the same table however they are
// delivered.
func TestSyntheticDeliveryDoesNotMatter(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds, which -short leaves out")
	}
	for n := range uint64(16) {
		t.Run(fmt.Sprint("seed ", *seed+n), func(t *testing.T) {
			calls := 500_000 // nearly spent in the end
			if n%2 == 0 {
				calls = 50_000_000
			}
			records := newClient(t, *seed+n, calls).steps(300)
			report, want := setting{batch: 1000}.run(t, records)
			if len(report.Rejected) > 0 || report.NotConserved() > 0 {
				t.Errorf("rejected %v, ledger %+v", report.Rejected, report.Ledger)
			}
			for _, s := range []setting{{batch: 1}, {batch: 7}, {batch: 5, redeliver: true}, {batch: 1000, redeliver: true}} {
				_, got := s.run(t, records)
				sameTable(t, fmt.Sprintf("%+v", s), got, want)
			}
			if calls > 500_000 {
				_, again := setting{batch: 100, preload: want}.run(t, records)
				sameTable(t, "read again over its own dump", again, want)
			}
		})
	}
}

func (c *client) steps(n int) []events.Record {
	for range n {
		c.step()
	}
	c.now += 61_000
	for shard := range c.count { // so that how far each was applied is told by its usage
		c.acquire(shard, 1000)
	}
	return c.stream.Take()
}
