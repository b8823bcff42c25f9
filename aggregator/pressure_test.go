package aggregator_test

import (
	"testing"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/table"
)

// traffic writes to acme's shard 0 at a steady rate through the table, without
// a client's pass, and delivers every batch's records, and what the aggregator
// itself wrote, in batches of some milliseconds. Shard 0 gets its share of the
// traffic of all shards. Times of records are whole seconds, rounded down.
func traffic(t *testing.T, perSecond, phase, batchEvery, duration int64) (w *world, doublings []aggregator.Doubling) {
	w = newWorld(t, bucketItem(acme.At(0), refilled(noon+phase), drips("rpm", 1<<50, 1<<52)))
	key := acme.At(0)
	seen := w.store.Get(key.PK(), table.StateSK)
	batch := []events.Record{raw(t, w.write(noon, nil, seen))}
	record := func(now int64, item table.Item) {
		batch = append(batch, raw(t, w.write(now-now%second, seen, item)))
		seen = item
	}
	due, shards := int64(0), int64(1) // writes to shard 0 are due in thousandths
	for elapsed := int64(1); elapsed <= duration; elapsed++ {
		now := noon + phase + elapsed
		for due += perSecond / shards; due >= 1000; due -= 1000 {
			b := decoded(t, seen)
			b.Limit("wcu").Balance -= 1000
			b.Limit("wcu").Consumed += 1000
			b.Limit("rpm").Consumed += 1000
			item := b.Item.Clone()
			b.Item = item
			b.Fill()
			w.store.Put(item)
			record(now, item)
		}
		if elapsed%batchEvery != 0 {
			continue
		}
		report := w.agg.Process(t.Context(), batch, now)
		if err := report.Err(); err != nil || len(report.Rejected) > 0 {
			t.Fatalf("%v, rejected %v", err, report.Rejected)
		}
		batch = nil
		doublings = append(doublings, report.Doublings...)
		if item := w.store.Get(key.PK(), table.StateSK); len(report.Doublings) > 0 {
			record(now, item)
			shards = int64(decoded(t, item).ShardCount)
		}
	}
	return w, doublings
}

func TestHotTrafficDoubles(t *testing.T) {
	for _, phase := range []int64{0, 400, 999} {
		_, doublings := traffic(t, 1500, phase, 100, 2*second)
		if len(doublings) == 0 || doublings[0].From != 1 || doublings[0].To != 2 {
			t.Errorf("the pass %d ms into a second: %v", phase, doublings)
		}
	}
}

func TestSlowTrafficNeverDoubles(t *testing.T) {
	w, doublings := traffic(t, 1, 300, 5000, hour)
	eq(t, "doublings", len(doublings), 0)
	eq(t, "writes", w.shard(0).Limit("wcu").Consumed, 3600_000)
	eq(t, "the meter as stored", w.shard(0).Limit("wcu").Balance, 1000_000-3600_000)
	eq(t, "usage", w.usage(acme, "hourly", atNoon), "rpm 3599, events 3599")
	eq(t, "usage", w.usage(acme, "hourly", "2026-12-01T13:00:00Z"), "rpm 1, events 1")
}

// A meter that is low says nothing once the writes have stopped: neither the
// record of the doubling itself, nor that of a raise, an operator's change or a
// refund calls for the next doubling.
func TestOnlyWritesThatAreMeteredDouble(t *testing.T) {
	low := build(bucketItem(acme.At(0), drips("rpm", 1<<50, 1<<52)), attrs{"b_wcu_tk": 5000, "b_wcu_tc": 995_000})
	for name, change := range map[string]attrs{
		"a doubling":          {table.AttrShardCount: 2},
		"an operator's":       {table.AttrValidUntil: 0},
		"a refund":            {"b_rpm_tk": 1<<50 + 7, "b_rpm_tc": -7},
		"a pass":              {table.AttrRefilledAt: noon + 1},
		"a meter that is new": nil,
	} {
		old := low
		if change == nil {
			old = build(low, attrs{"b_wcu_tk": nil})
		}
		w := newWorld(t, build(low, change))
		report := w.sound(noon, w.write(noon, old, build(low, change)))
		want := 0
		if change == nil {
			want = 1
		}
		eq(t, name, len(report.Doublings), want)
	}
	w := newWorld(t, low)
	d, item := w.spend(noon, low, "rpm", 1000)
	w.store.Put(item)
	eq(t, "a write without the meter", len(w.sound(noon, d).Doublings), 0)
	d, item = w.spend(noon, low, "wcu", 1000)
	w.store.Put(item)
	report := w.sound(noon, d)
	eq(t, "one with it", report.Doublings, []aggregator.Doubling{{Group: acme, From: 1, To: 2}})
	eq(t, "count", w.shard(0).ShardCount, 2)
	report = w.sound(noon, d)
	eq(t, "the same again", len(report.Doublings), 0)
	eq(t, "count", w.shard(0).ShardCount, 2)
}

func TestPressureIsOfTheLastCount(t *testing.T) {
	hot := build(bucketItem(acme.At(0), drips("rpm", 1<<50, 1<<52)), attrs{"b_wcu_tk": 6000})
	w := newWorld(t)
	press, low := w.spend(noon, hot, "wcu", 1000)
	four := build(low, count(4))
	raised := w.write(noon, low, four)
	calm, last := w.spend(noon+5*second, four, "wcu", 1000) // dripped to the full by then
	w.store.Put(last)
	eq(t, "hot at 1, calm at 4", len(w.sound(noon, press, raised, calm).Doublings), 0)
	again, _ := w.spend(noon+100, four, "wcu", 1000)
	eq(t, "hot at 4", w.sound(noon, press, raised, again).Doublings, []aggregator.Doubling{{Group: acme, From: 4, To: 8}})
}

func TestDoublingStopsAtTheMost(t *testing.T) {
	hot := func(key table.Key, n int, more ...attrs) table.Item {
		return build(bucketItem(key, drips("rpm", 1<<50, 1<<52)), append(more, count(n), attrs{"b_wcu_tk": 6000})...)
	}
	for _, c := range []struct {
		name string
		item table.Item
		want int
	}{
		{"at 16", hot(acme.At(0), 16), 1},
		{"at 32", hot(acme.At(0), 32), 0},
		{"at 64", hot(acme.At(0), 64), 0},
		{"shard 1", hot(acme.At(1), 2), 0},
		{"disabled", hot(acme.At(0), 1, attrs{table.AttrDisabled: true}), 0},
		{"a schedule that cannot be read", hot(acme.At(0), 1, attrs{"sched": "9x"}), 0},
	} {
		w := newWorld(t, c.item)
		d, _ := w.spend(noon, c.item, "wcu", 1000)
		eq(t, c.name, len(w.sound(noon, d).Doublings), c.want)
	}
}
