package aggregator_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// put stores an item and returns it, as a client's write that is on the stream.
func (w *world) put(item table.Item) table.Item {
	w.store.Put(item)
	return item
}

// balances renders what a shard of acme's holds, and when it was last passed
// after noon.
func (w *world) balances(shard int) string {
	w.t.Helper()
	b, text := w.shard(shard), ""
	for i := range b.Limits {
		text += fmt.Sprintf("%s %d, ", b.Limits[i].Name, b.Limits[i].Balance)
	}
	return text + fmt.Sprintf("rf %+d", b.RefilledAt-noon)
}

// Acceptance: a pass that tops one limit up credits every other its accrual.
func TestPassCreditsEveryLimit(t *testing.T) {
	start := bucketItem(acme.At(0), count(2), drips("rpm", 1500, 60_000), drips("tpm", 300_000, 1200_000), drips("idle", 0, 120_000),
		daily("tpd", 400, 1000, 2), attrs{"b_idle_soft": true})
	w := newWorld(t)
	d, item := w.spend(noon+2000, start, "rpm", 1000)
	w.put(item)
	report := w.sound(noon+2000, d)
	// Half of 1,000, 20,000 and 2,000 a second, for two seconds.
	eq(t, "balances", w.balances(0), "idle 2000, rpm 1500, tpd 400, tpm 320000, wcu 1000000, rf +2000")
	eq(t, "passes", len(report.Passes), 1)
	eq(t, "why", report.Passes[0].Pass.Why, "[short]")
	again := w.sound(noon+2000, d)
	eq(t, "again", w.balances(0), "idle 2000, rpm 1500, tpd 400, tpm 320000, wcu 1000000, rf +2000")
	eq(t, "again: passes, lost", fmt.Sprint(len(again.Passes), again.PassesLost), "0 1")
}

// Every write is judged by its own demand, and not the last one for all.
func TestPassIsForTheWriteThatWasShort(t *testing.T) {
	w := newWorld(t)
	a, item := w.spend(noon+1000, bucketItem(acme.At(0), drips("rpm", 9000, 60_000)), "rpm", 8000)
	b, item := w.spend(noon+1000, item, "rpm", 500)
	w.put(item)
	report := w.sound(noon+1000, a, b)
	eq(t, "passes", len(report.Passes), 1)
	eq(t, "balances", w.balances(0), "rpm 1500, wcu 1000000, rf +1000")
}

// A write before the last pass is settled by it. One pass is enough for a batch.
func TestPassAfterTheLastOne(t *testing.T) {
	w := newWorld(t)
	start := bucketItem(acme.At(0), drips("rpm", 1000, 60_000))
	short, item := w.spend(noon+1000, start, "rpm", 1000)
	passed := build(item, attrs{"b_rpm_tk": 40_000, table.AttrRefilledAt: noon + 40_000})
	pass := w.write(noon+40_000, item, passed)
	calm, item := w.spend(noon+40_000, passed, "rpm", 1000)
	w.put(item)
	report := w.sound(noon+41_000, short, pass, calm)
	eq(t, "passes, lost", fmt.Sprint(len(report.Passes), report.PassesLost), "0 0")
	eq(t, "balances", w.balances(0), "rpm 39000, wcu 1000000, rf +40000")
}

func TestPassRestoresAndTrims(t *testing.T) {
	for _, c := range []struct {
		name string
		item table.Item
		want string
	}{
		{"calendar edge", bucketItem(acme.At(0), count(4), refilled(midnight-1), daily("tpd", 40, 1000, 1), attrs{"b_tpd_tu": 9}),
			"tpd 250, wcu 1000000, rf +0"},
		{"over", bucketItem(acme.At(0), count(4), daily("tpd", 800, 1000, 2)), "tpd 500, wcu 1000000, rf +1"},
		{"roll", bucketItem(acme.At(1), count(4), refilled(noon-2*hour), hourly("s", 40, 1000, 1, noon-3*hour),
			attrs{"b_s_ws": noon - 7, "b_s_wtc": 60, "b_s_tc": 100}), "s 210, wcu 1000000, rf +0"},
	} {
		w := newWorld(t)
		key := decoded(t, c.item).Key
		d := w.write(noon, c.item, build(w.put(c.item), attrs{"novel": 1}))
		report := w.sound(noon, d)
		eq(t, c.name, w.balances(key.Shard), c.want)
		eq(t, c.name+": passes", len(report.Passes), 1)
		if grant := w.shard(key.Shard).Limits[0].Grant; c.name != "over" && *grant != 4 {
			t.Errorf("%s: granted at %d", c.name, *grant)
		}
		if topUp := w.shard(key.Shard).Limits[0].TopUp; topUp != 0 {
			t.Errorf("%s: top-up %d", c.name, topUp)
		}
		w.sound(noon+1, d)
		eq(t, c.name+" again", w.balances(key.Shard), c.want)
	}
}

// The window that a client opened ended before anyone applied it: the item is
// left as it is, whatever else it is due.
func TestPassLeavesAMissedWindow(t *testing.T) {
	item := bucketItem(acme.At(1), count(2), refilled(midnight-9*hour), daily("tpd", 0, 1000, 1), drips("rpm", 0, 60_000),
		hourly("s", 40, 1000, 1, midnight-9*hour), attrs{"b_s_ws": noon - 2*hour})
	w := newWorld(t)
	d, item := w.spend(noon, item, "rpm", 1000)
	w.put(item)
	before := dump(t, w.store)
	w.agg.Windows = nil
	report := w.sound(noon, d)
	eq(t, "passes", len(report.Passes)+report.PassesLost, 0)
	sameTable(t, "left alone", dump(t, w.store), before)
}

// A pass that lost is planned once more from the item as it is.
func TestPassLost(t *testing.T) {
	start := bucketItem(acme.At(0), drips("rpm", 1000, 60_000))
	for _, c := range []struct {
		name      string
		now       table.Item // what the table holds
		want      string
		passes    int
		lost      int
		sabotaged bool
	}{
		{"to a pass that left it short", build(start, attrs{"b_rpm_tk": 500, table.AttrRefilledAt: noon + 500}), "rpm 1000, wcu 1000000, rf +1000", 1, 1, false},
		{"to a pass that did what was wanted", build(start, attrs{"b_rpm_tk": 30_000, table.AttrRefilledAt: noon + 500}),
			"rpm 30000, wcu 1000000, rf +500", 0, 1, false},
		{"to one ahead of now", build(start, attrs{"b_rpm_tk": 500, table.AttrRefilledAt: noon + 5000}), "rpm 500, wcu 1000000, rf +5000", 0, 1, false},
		{"to a doubling", build(start, attrs{"b_rpm_tk": 0}, count(2)), "rpm 500, wcu 1000000, rf +1000", 1, 1, false},
		{"to an operator, who changed the limit", build(start, attrs{"b_rpm_tk": 0, table.AttrValidUntil: 0, "b_rpm_ra": 6000}),
			"rpm 100, wcu 1000000, rf +1000", 1, 1, false},
		{"to a refund", build(start, attrs{"b_rpm_tk": 500}), "rpm 500, wcu 1000000, rf +0", 0, 1, true},
		{"to an operator who disabled it", build(start, attrs{table.AttrDisabled: true, table.AttrRefilledAt: noon + 5}), "rpm 1000, wcu 1000000, rf +5", 0, 1, false},
	} {
		w := newWorld(t)
		d, _ := w.spend(noon+1000, start, "rpm", 1000)
		w.put(c.now)
		if c.sabotaged {
			w.fake.pass = func(ctx context.Context, b *table.Bucket, p *quota.Pass) (table.PassResult, error) {
				result, err := w.store.Pass(ctx, b, p)
				result.Current.Limit("rpm").Balance = 50_000 // by the time it is read it has enough
				return result, err
			}
		}
		report := w.sound(noon+1000, d)
		eq(t, c.name, w.balances(0), c.want)
		eq(t, c.name+": passes, lost", fmt.Sprint(len(report.Passes), report.PassesLost), fmt.Sprint(c.passes, c.lost))
	}
	w := newWorld(t) // the bucket is gone
	d, _ := w.spend(noon+1000, start, "rpm", 1000)
	report := w.sound(noon+1000, d)
	eq(t, "gone: passes, lost", fmt.Sprint(len(report.Passes), report.PassesLost), "0 1")
}

func TestPassLostTwice(t *testing.T) {
	w := newWorld(t)
	d, item := w.spend(noon+1000, bucketItem(acme.At(0), drips("rpm", 1000, 60_000)), "rpm", 1000)
	w.put(item)
	tries := 0
	w.fake.pass = func(context.Context, *table.Bucket, *quota.Pass) (table.PassResult, error) {
		tries++
		return table.PassResult{Current: w.shard(0)}, nil
	}
	report := w.sound(noon+1000, d)
	eq(t, "tries, passes, lost", fmt.Sprint(tries, len(report.Passes), report.PassesLost), "2 0 2")
}

// Spending between the image and the pass is kept: the pass adds.
func TestPassAddsToWhatIsThere(t *testing.T) {
	w := newWorld(t)
	start := bucketItem(acme.At(0), drips("rpm", 1000, 60_000))
	d, item := w.spend(noon+1000, start, "rpm", 1000)
	w.put(build(item, attrs{"b_rpm_tk": -250, "b_rpm_tc": 1250}))
	w.sound(noon+1000, d)
	eq(t, "balances", w.balances(0), "rpm 750, wcu 1000000, rf +1000")
}

// A batch in which a bucket is both short and hot always ends in the same table:
// the pass goes first, at the count it was planned at.
func TestPassThenDoubling(t *testing.T) {
	var first string
	for i := range 200 {
		w := newWorld(t)
		item := bucketItem(acme.At(0), refilled(midnight-1), drips("rpm", 2000, 60_000), daily("tpd", 5, 1000, 1), attrs{"b_wcu_tk": -1 << 40})
		d, item := w.spend(noon, item, "wcu", 1000)
		w.put(item)
		report := w.sound(noon, d)
		eq(t, "passes, lost, doublings", fmt.Sprint(len(report.Passes), report.PassesLost, report.Doublings), "1 0 [{{ns1 sk-live-acme gpt-4} 1 2}]")
		if text := dump(t, w.store); i == 0 {
			first = text
		} else {
			sameTable(t, fmt.Sprint("run ", i), text, first)
		}
	}
}

func TestDisabledBucket(t *testing.T) {
	w := newWorld(t)
	item := bucketItem(acme.At(0), refilled(midnight-1), drips("rpm", 0, 60_000), daily("tpd", 5, 1000, 1),
		attrs{table.AttrDisabled: true, "b_wcu_tk": 5})
	d, item := w.spend(noon, item, "rpm", 1000)
	doubled := w.write(noon, item, w.put(build(item, count(2))))
	report := w.sound(noon, d, doubled)
	eq(t, "usage", w.usage(acme, "hourly", atNoon), "rpm 1, events 1")
	eq(t, "passes, doublings, created", fmt.Sprint(len(report.Passes), len(report.Doublings), len(report.Created)), "0 0 0")
	eq(t, "declined", declined(report), "1 bucket is disabled;")
	eq(t, "rejected", len(report.Rejected), 0)
	eq(t, "balances", w.balances(0), "rpm -1000, tpd 5, wcu 5, rf -43200001")
}

func TestOneTaskFailsAlone(t *testing.T) {
	lost := fmt.Errorf("lost: %w", table.ErrRetry)
	var batch []aggregator.Delivery
	w := newWorld(t)
	other := table.Group{Namespace: "ns1", Entity: "b", Resource: "r"}
	for _, key := range []table.Key{acme.At(0), other.At(0)} {
		d, item := w.spend(noon+1000, bucketItem(key, drips("rpm", 1000, 60_000)), "rpm", 1000)
		w.put(item)
		batch = append(batch, d)
	}
	w.fake.pass = func(ctx context.Context, b *table.Bucket, p *quota.Pass) (table.PassResult, error) {
		if b.Key.Group == acme {
			return table.PassResult{}, lost
		}
		return w.store.Pass(ctx, b, p)
	}
	report := w.process(noon+1000, batch...)
	eq(t, "failures", failed(report), "0 pass;")
	eq(t, "passes", fmt.Sprint(len(report.Passes), len(report.Usage)), "1 2")
	w.fake.pass = nil
	w.sound(noon+1000, batch...)
	eq(t, "balances", w.balances(0), "rpm 1000, wcu 1000000, rf +1000")
	eq(t, "usage", w.usage(acme, "hourly", atNoon), "rpm 1, events 1")
}

// A pass is planned from the bucket's last image: what the batch spent before
// it is of the old period, and other limits' accrual is counted from what they
// hold in the end.
func TestPassIsPlannedFromTheLastImage(t *testing.T) {
	edge := midnight + 24*hour
	spends := func(w *world, zero table.Item, limit string) []aggregator.Delivery {
		var batch []aggregator.Delivery
		for range 5 {
			var d aggregator.Delivery
			d, zero = w.spend(edge-10_000, zero, limit, 100_000)
			w.put(zero)
			batch = append(batch, d)
		}
		return batch
	}
	zero := bucketItem(acme.At(0), daily("tpd", 1000_000, 1000_000, 1), refilled(edge-60_000))
	w := newWorld(t, zero)
	w.sound(edge+2000, spends(w, zero, "tpd")...)
	eq(t, "restored, whatever was spent before the edge", w.shard(0).Limit("tpd").Balance, int64(1000_000))

	zero = bucketItem(acme.At(0), drips("slow", 500_000, 600_000), drips("short", 0, 60_000), refilled(edge-60_000))
	w = newWorld(t, zero)
	w.sound(edge, append(spends(w, zero, "slow"), w.write(edge-10_000, w.store.Get(acme.At(0).PK(), table.StateSK),
		build(w.store.Get(acme.At(0).PK(), table.StateSK), attrs{"b_short_tc": 1000})))...)
	eq(t, "a minute's accrual on what is left", w.shard(0).Limit("slow").Balance, int64(600_000))
}

// What was spent between the last image and the restore is of the old period
// too: the restore is tried on exact balances first, then as an addition.
func TestRestoreForgivesTheOldPeriod(t *testing.T) {
	edge := midnight + 24*hour
	zero := bucketItem(acme.At(0), daily("tpd", 900_000, 1000_000, 1), refilled(edge-60_000))
	w := newWorld(t, zero)
	d, item := w.spend(edge-10_000, zero, "tpd", 100_000)
	_, later := w.spend(edge-1, item, "tpd", 300_000)
	w.put(later)
	report := w.sound(edge+2000, d)
	eq(t, "balance", w.shard(0).Limit("tpd").Balance, int64(1000_000))
	eq(t, "lost", report.PassesLost, 1)
	eq(t, "written", len(report.Passes), 1)
}
