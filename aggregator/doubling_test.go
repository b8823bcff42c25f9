package aggregator_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// quotaZero is acme's shard 0 with a dripping limit and a daily quota of 1,000
// tokens, as it is after a doubling to a count.
func quotaZero(n int, more ...attrs) table.Item {
	return bucketItem(acme.At(0), append([]attrs{
		count(n), drips("rpm", 1000, 64_000), daily("tpd", 1000_000, 1000_000, 1), {table.AttrValidUntil: midnight + 24*hour},
	}, more...)...)
}

// doubles is the record of shard 0's count going up.
func (w *world) doubles(written int64, zero table.Item, from, to int) aggregator.Delivery {
	w.t.Helper()
	return w.write(written, build(zero, count(from)), build(zero, count(to)))
}

func TestDoublingCreatesShards(t *testing.T) {
	zero := quotaZero(4)
	one := bucketItem(acme.At(1), count(2), drips("rpm", 9, 64_000), daily("tpd", 300_000, 1000_000, 2))
	zero = build(zero, attrs{"b_tpd_tk": 500_000})
	w := newWorld(t, zero, one)
	report := w.sound(noon+7, w.doubles(noon, zero, 2, 4))

	eq(t, "raised", report.Raised, []aggregator.Raise{{Key: acme.At(1), To: 4}})
	eq(t, "created", created(report),
		"2 of 4 [rpm: 16000 (share) tpd: 250000 moved off shard 0 wcu: 1000000 (share)];"+
			"3 of 4 [rpm: 16000 (share) tpd: 250000 moved off shard 1 wcu: 1000000 (share)];")
	eq(t, "declined", declined(report), "")
	want := []string{
		"4 1796126400000 1000 250000 1 1000000",
		"4 1796126400000 9 50000 2 1000000",
		"4 1796126400007 16000 250000 4 1000000",
		"4 1796126400007 16000 250000 4 1000000",
	}
	for shard := range want {
		b := w.shard(shard)
		eq(t, fmt.Sprint("shard ", shard), fmt.Sprint(b.ShardCount, b.RefilledAt, b.Limit("rpm").Balance, b.Limit("tpd").Balance,
			*b.Limit("tpd").Grant, b.Limit("wcu").Balance), want[shard])
	}
	again := w.sound(noon+9, w.doubles(noon, zero, 2, 4))
	eq(t, "again", declined(again), "2 already there;3 already there;")
	eq(t, "again, raised", len(again.Raised)+len(again.Created), 0)
}

// A raise may leap: several doublings in one batch, or a client's to any count.
func TestDoublingFromFirstToLast(t *testing.T) {
	zero := quotaZero(8)
	w := newWorld(t, zero)
	a, b := w.doubles(noon, zero, 1, 2), w.doubles(noon, zero, 2, 8)
	report := w.sound(noon, a, w.other(), b)
	eq(t, "created", len(report.Created), 7)
	for shard := range 8 {
		eq(t, fmt.Sprint("shard ", shard), w.shard(shard).Limit("tpd").Balance, 125_000)
	}
	row, err := quota.Audit("tpd", shardsOf(w), noon)
	eq(t, "ledger", fmt.Sprintf("%+v %v", row, err),
		"{Limit:tpd Capacity:1000000 Held:1000000 Granted:1000000 Grantable:0 TopUp:0 Conserved:true} <nil>")
}

func shardsOf(w *world) []*quota.Bucket {
	var shards []*quota.Bucket
	for _, b := range table.ReadableShards(acme, w.store.Get) {
		shards = append(shards, &b.Bucket)
	}
	return shards
}

// Raising does not wait for usage, which may fail, nor for a record that
// consumed anything.
func TestRaisingComesFirst(t *testing.T) {
	zero := quotaZero(4)
	w := newWorld(t, zero, bucketItem(acme.At(1), count(2), daily("tpd", 1, 1000_000, 2)))
	var calls []string
	w.agg.Concurrency = 1
	w.fake.calls = func(name string) { calls = append(calls, name) }
	w.fake.addUsage = func(context.Context, table.Usage) (table.UsageResult, error) {
		return table.UsageResult{}, fmt.Errorf("add usage: %w", table.ErrRetry)
	}
	spent, _ := w.spend(noon, build(zero, count(2)), "rpm", 100)
	report := w.process(noon, spent, w.doubles(noon, zero, 2, 4))
	eq(t, "failures", failed(report), "0 usage;")
	eq(t, "calls", calls, "[raise create create usage]")
	eq(t, "raised", w.shard(1).ShardCount, 4)
	eq(t, "created", len(report.Created), 2)
}

func TestDeclines(t *testing.T) {
	two := func(more ...attrs) table.Item { return quotaZero(2, more...) }
	session := func(more ...attrs) table.Item {
		return two(append([]attrs{hourly("s", 500, 1000, 1, noon-1000)}, more...)...)
	}
	broken := bucketItem(acme.At(1), count(4), attrs{"b_wcu_tk": "x"})
	unscheduled := bucketItem(acme.At(1), count(4), daily("tpd", 500_000, 1000_000, 2), attrs{"b_tpd_rsched": "1q"})
	for _, c := range []struct {
		name     string
		items    []table.Item
		from, to int
		want     string
	}{
		{"shard 0 is gone", nil, 1, 2, "1 shard 0 is gone or unreadable;"},
		{"shard 0 cannot be read", []table.Item{two(attrs{"b_rpm_tk": "x"})}, 1, 2, "1 shard 0 is gone or unreadable;"},
		{"a sibling cannot be read", []table.Item{quotaZero(4), broken}, 2, 4, "2 siblings unreadable;3 siblings unreadable;"},
		{"a sibling's schedule cannot be read", []table.Item{quotaZero(4), unscheduled}, 2, 4, "2 undecodable schedule;3 undecodable schedule;"},
		{"to 3", []table.Item{quotaZero(3)}, 2, 3, "2 shard count is not a power of two up to 32;"},
		{"to 64", []table.Item{quotaZero(64)}, 32, 64, "32 shard count is not a power of two up to 32;"},
		{"to 65,536", []table.Item{quotaZero(1 << 16)}, 32, 1 << 16, "32 shard count is not a power of two up to 32;"},
		{"a later doubling", []table.Item{quotaZero(8)}, 2, 4, "2 overtaken by a later doubling;3 overtaken by a later doubling;"},
		{"the count is below", []table.Item{two()}, 2, 4, "2 pinned shard count moved;3 pinned shard count moved;"},
		{"schedule", []table.Item{two(attrs{"sched": "1h9z"})}, 1, 2, "1 undecodable schedule;"},
		{"reset schedule", []table.Item{two(attrs{"b_tpd_rsched": "2m0"})}, 1, 2, "1 undecodable schedule;"},
		{"zone", []table.Item{two(attrs{"sched": "1h9s500", "sched_tz": "Mars/Olympus"})}, 1, 2, "1 undecodable schedule;"},
		{"a schedule that cannot be evaluated", []table.Item{two(attrs{"b_rpm_sched": "1s1000000000", "b_rpm_cp": int64(1) << 60})}, 1, 2,
			"1 undecodable schedule;"},
		{"disabled", []table.Item{two(attrs{table.AttrDisabled: true})}, 1, 2, "1 bucket is disabled;"},
		{"not disabled", []table.Item{two(attrs{table.AttrDisabled: false})}, 1, 2, ""},
		{"a window that ended", []table.Item{session(attrs{"b_s_ws": noon - hour, "b_s_wa": noon - hour})}, 1, 2, "1 no live applied session window;"},
		{"a window nobody opened", []table.Item{session(attrs{"b_s_ws": nil, "b_s_wa": nil})}, 1, 2, "1 no live applied session window;"},
		{"a window not applied yet", []table.Item{session(attrs{"b_s_wa": noon - 2*hour})}, 1, 2, "1 no live applied session window;"},
		{"not applied, without a marker", []table.Item{session(attrs{"b_s_wa": nil}, refilled(noon-2000))}, 1, 2, "1 no live applied session window;"},
		{"a window that is live", []table.Item{session()}, 1, 2, ""},
		{"a window out of force beside a reset schedule", []table.Item{session(attrs{"b_s_rsched": "1m0h0", "b_s_ws": nil})}, 1, 2, ""},
		{"already there", []table.Item{two(), bucketItem(acme.At(1), count(2), drips("rpm", 1, 64_000))}, 1, 2, "1 already there;"},
		{"one is there", []table.Item{quotaZero(4), bucketItem(acme.At(2), count(4), drips("rpm", 1, 64_000))}, 2, 4, "2 already there;"},
	} {
		w := newWorld(t, c.items...)
		before := dump(t, w.store)
		zero := quotaZero(c.to)
		report := w.sound(noon, w.doubles(noon, zero, c.from, c.to))
		eq(t, c.name, declined(report), c.want)
		if c.to > quota.MaxShards {
			eq(t, c.name+": created", len(report.Created), 0)
			continue
		}
		eq(t, c.name+": created", len(report.Created), c.to-c.from-len(report.Declined))
		if len(report.Created) == 0 {
			sameTable(t, c.name, dump(t, w.store), before)
		}
	}
}

// Whatever declines the creation, a sibling that is there is told the count.
func TestDeclinedDoublingRaises(t *testing.T) {
	for name, change := range map[string]attrs{
		"disabled":  {table.AttrDisabled: true},
		"schedule":  {"sched": "1h9z"},
		"overtaken": count(8),
	} {
		w := newWorld(t, quotaZero(4, change), bucketItem(acme.At(1), count(2), drips("rpm", 1, 64_000)))
		report := w.sound(noon, w.doubles(noon, quotaZero(4), 2, 4))
		eq(t, name+": declined", len(report.Declined), 2)
		eq(t, name+": count of shard 1", w.shard(1).ShardCount, 4)
	}
}

// Outcomes of a creation that another writer got in the way of.
func TestDoublingLosesRaces(t *testing.T) {
	for _, c := range []struct {
		name     string
		outcomes []table.CreationOutcome
		want     string
		raises   int
	}{
		{"the pin moved", []table.CreationOutcome{table.PinMoved}, "2 pinned shard count moved;3 pinned shard count moved;", 1},
		{"someone created it", []table.CreationOutcome{table.Exists, table.Created}, "2 already there;", 1},
		{"its donor changed once", []table.CreationOutcome{table.DonorChanged, table.Created, table.Created}, "", 2},
		{"its donor changed twice", []table.CreationOutcome{table.DonorChanged, table.DonorChanged, table.Created}, "2 donor changed;", 2},
		{"both", []table.CreationOutcome{table.DonorChanged, table.DonorChanged, table.DonorChanged, table.DonorChanged}, "2 donor changed;3 donor changed;", 3},
		{"its donor changed, and then it was there", []table.CreationOutcome{table.DonorChanged, table.Exists, table.Created}, "2 already there;", 2},
	} {
		w := newWorld(t, quotaZero(4), bucketItem(acme.At(1), count(4), daily("tpd", 300_000, 1000_000, 2)))
		raises, n := 0, 0
		w.fake.calls = func(name string) {
			if name == "raise" {
				raises++
			}
		}
		w.fake.create = func(context.Context, table.Creation) (table.CreationOutcome, error) {
			n++
			return c.outcomes[n-1], nil
		}
		report := w.sound(noon, w.doubles(noon, quotaZero(4), 2, 4))
		eq(t, c.name, declined(report), c.want)
		eq(t, c.name+": tries", n, len(c.outcomes))
		eq(t, c.name+": reads", raises, c.raises)
	}
}

// A donor that is spent from between the reading and the creation is read again.
func TestDoublingAfterItsDonorWasSpent(t *testing.T) {
	w := newWorld(t, quotaZero(2))
	first := true
	w.fake.create = func(ctx context.Context, c table.Creation) (table.CreationOutcome, error) {
		if first {
			first = false
			w.store.Put(quotaZero(2, attrs{"b_tpd_tk": 123_000, "b_tpd_tc": 877_000}))
		}
		return w.store.Create(ctx, c)
	}
	report := w.sound(noon, w.doubles(noon, quotaZero(2), 1, 2))
	eq(t, "created", created(report), "1 of 2 [rpm: 32000 (share) tpd: 123000 moved off shard 0 wcu: 1000000 (share)];")
	eq(t, "donor", w.shard(0).Limit("tpd").Balance, 0)
}

func TestCloneOfShardZero(t *testing.T) {
	zero := quotaZero(2, hourly("s", 900, 1000, 1, noon-5000), attrs{
		"b_tpd_tu": 500, "b_tpd_tc": 77, "b_s_wtc": 40, "b_rpm_tc": 9, "b_rpm_x9": "later", "b_tpd_soft": true,
		"cascade": true, "parent_id": "umbrella", "pgen": 7, "ttl": 1999999999, "novel": "x", "b_wcu_tk": 5, "b_wcu_tc": 12,
		table.AttrGSI2SK: "BUCKET#" + acme.Entity + "#0",
	})
	w := newWorld(t, zero)
	w.sound(noon, w.doubles(noon, zero, 1, 2))
	got, want := w.store.Get(acme.At(1).PK(), table.StateSK), build(zero, attrs{
		table.AttrPK: acme.At(1).PK(), table.AttrRefilledAt: noon, "ttl": midnight/1000 + 9*86400, table.AttrValidUntil: noon - 5000 + hour,
		"b_tpd_tk": 500_000, "b_tpd_tc": 0, "b_tpd_gc": 2, "b_tpd_tu": nil,
		"b_s_tk": 500, "b_s_tc": 0, "b_s_gc": 2, "b_s_wtc": 0,
		"b_rpm_tk": 32_000, "b_rpm_tc": 0, "b_wcu_tk": 1000_000, "b_wcu_tc": 0,
		table.AttrGSI2PK: "ns1/RESOURCE#gpt-4", table.AttrGSI2SK: "BUCKET#sk-live-acme#1",
		table.AttrGSI3PK: "ns1/ENTITY#sk-live-acme", table.AttrGSI3SK: "BUCKET#gpt-4#1",
		table.AttrGSI4PK: "ns1", table.AttrGSI4SK: "BUCKET#sk-live-acme#gpt-4#1",
	})
	sameItem(t, got, want)
	// The donor kept its own top-up, consumption and consumption at open.
	sameItem(t, w.store.Get(acme.At(0).PK(), table.StateSK), build(zero, attrs{"b_tpd_tk": 500_000, "b_s_tk": 400}))
}

func sameItem(t *testing.T, got, want table.Item) {
	t.Helper()
	names := map[string]bool{}
	for name := range got {
		names[name] = true
	}
	for name := range want {
		names[name] = true
	}
	for name := range names {
		text := func(item table.Item) string {
			if item[name] == nil {
				return "absent"
			}
			line, _ := table.FormatItem(table.Item{"": item[name]})
			return string(line)
		}
		if text(got) != text(want) {
			t.Errorf("%s is %s, want %s", name, text(got), text(want))
		}
	}
}

func TestValidUntilOfANewShard(t *testing.T) {
	drip := bucketItem(acme.At(0), count(2), drips("rpm", 60_000, 64_000))
	for _, c := range []struct {
		name string
		zero table.Item
		want string
	}{
		{"the next edge", quotaZero(2), fmt.Sprint(midnight + 24*hour)},
		{"the next edge, shard 0's has passed", quotaZero(2, attrs{table.AttrValidUntil: noon - 5}), fmt.Sprint(midnight + 24*hour)},
		{"the end of the window", quotaZero(2, hourly("s", 900, 1000, 1, noon-5)), fmt.Sprint(noon - 5 + hour)},
		{"0 stays: a client is to look", quotaZero(2, attrs{table.AttrValidUntil: 0}), "0"},
		{"absent and nothing bound to time", drip, "absent"},
		{"absent, but there is an edge", quotaZero(2, attrs{table.AttrValidUntil: nil}), fmt.Sprint(midnight + 24*hour)},
		{"as it is where nothing is bound to time", build(drip, attrs{table.AttrValidUntil: 5}), "5"},
	} {
		w := newWorld(t, c.zero)
		w.sound(noon, w.doubles(noon, c.zero, 1, 2))
		got := "absent"
		if valid := w.shard(1).ValidUntil; valid != nil {
			got = fmt.Sprint(*valid)
		}
		eq(t, c.name, got, c.want)
	}
}

// A shard that is created in mid-window joins shard 0's.
func TestSessionShardJoinsTheWindow(t *testing.T) {
	zero := quotaZero(4, hourly("s", 700, 1000, 1, noon-5000))
	old := bucketItem(acme.At(1), count(2), daily("tpd", 1, 1000_000, 2), hourly("s", 88, 1000, 2, noon-3*hour))
	w := newWorld(t, zero, old)
	report := w.sound(noon, w.doubles(noon, zero, 2, 4))
	eq(t, "created", created(report),
		"2 of 4 [rpm: 16000 (share) s: 250 moved off shard 0 tpd: 250000 moved off shard 0 wcu: 1000000 (share)];"+
			"3 of 4 [rpm: 16000 (share) s: 250 moved off shard 0 tpd: 1 moved off shard 1 wcu: 1000000 (share)];")
	for shard := 2; shard < 4; shard++ {
		s := w.shard(shard).Limit("s")
		eq(t, "window", fmt.Sprint(*s.Window.Start, *s.Window.Applied, *s.Grant, s.Balance), fmt.Sprint(noon-5000, noon-5000, 4, 250))
	}
	eq(t, "left on shard 0", w.shard(0).Limit("s").Balance, 200)
	eq(t, "a window that ended gives nothing", w.shard(1).Limit("s").Balance, 88)
}

// A raise freezes what a legacy grant covers, so that a spent one still does.
func TestLegacySiblingsAreFrozen(t *testing.T) {
	zero := quotaZero(4, attrs{"b_tpd_tk": 500_000, "b_tpd_gc": 2})
	one := bucketItem(acme.At(1), count(2), daily("tpd", 100_000, 1000_000, 0))
	w := newWorld(t, zero, one)
	report := w.sound(noon, w.doubles(noon, zero, 2, 4))
	eq(t, "grant", *w.shard(1).Limit("tpd").Grant, 2)
	eq(t, "created", created(report),
		"2 of 4 [rpm: 16000 (share) tpd: 250000 moved off shard 0 wcu: 1000000 (share)];"+
			"3 of 4 [rpm: 16000 (share) tpd: 100000 moved off shard 1 wcu: 1000000 (share)];")
}

// Shard 0's legacy grant is frozen before its count rises. Read at the new one,
// half spent, it would be taken for half a grant and the other half be minted.
func TestLegacyShardZeroIsFrozenByItsDoubling(t *testing.T) {
	hot := bucketItem(acme.At(0), daily("tpd", 400_000, 1000_000, 0), attrs{"b_tpd_tc": 600_000, "b_wcu_tk": 5000})
	w := newWorld(t, hot)
	d, item := w.spend(noon, hot, "wcu", 1000)
	w.put(item)
	w.sound(noon, d)
	w.sound(noon, w.write(noon, item, w.store.Get(acme.At(0).PK(), table.StateSK)))
	held := w.shard(0).Limit("tpd").Balance + w.shard(1).Limit("tpd").Balance
	eq(t, "consumed and held", 600_000+held, 1000_000)
}

// A clock that is behind the siblings' last pass would fund the shard in a
// period that is over for them, and leave it due for a restore on top of it. A
// batch's time is that of its beginning, so that this takes no bad clock.
func TestDoublingBehindARestore(t *testing.T) {
	zero := quotaZero(2, refilled(midnight+3), attrs{"b_tpd_tk": 1000_000, "b_tpd_gc": 1})
	w := newWorld(t, zero)
	report := w.sound(midnight-1, w.doubles(midnight-1, zero, 1, 2))
	eq(t, "created", created(report), "1 of 2 [rpm: 32000 (share) tpd: 500000 moved off shard 0 wcu: 1000000 (share)];")
	eq(t, "and is current", w.shard(1).Limit("tpd").Current(w.shard(1).RefilledAt, midnight+9), true)
	eq(t, "valid until", *w.shard(1).ValidUntil, midnight+24*hour)

	// Shard 0 was restored at 2 already: what it had before is no concern of the
	// shard that is created now.
	zero = quotaZero(2, refilled(midnight+3), attrs{"b_tpd_tk": 500_000, "b_tpd_gc": 2})
	w = newWorld(t, zero)
	w.sound(midnight-1, w.doubles(midnight-1, zero, 1, 2))
	one := w.shard(1)
	eq(t, "minted once", fmt.Sprint(one.Limit("tpd").Balance, one.Limit("tpd").Current(one.RefilledAt, midnight+9)), "500000 true")
}

func TestDoublingFails(t *testing.T) {
	lost := fmt.Errorf("lost: %w", table.ErrRetry)
	zero := quotaZero(4)
	for _, c := range []struct {
		name string
		fail func(w *world)
	}{
		{"raise", func(w *world) {
			w.fake.raise = func(context.Context, table.Group, int, int64) ([]table.Sibling, error) { return nil, lost }
		}},
		{"raise again", func(w *world) {
			n := 0
			w.fake.raise = func(ctx context.Context, g table.Group, count int, now int64) ([]table.Sibling, error) {
				if n++; n > 1 {
					return nil, lost
				}
				return w.store.RaiseAndRead(ctx, g, count, now)
			}
			w.fake.create = func(context.Context, table.Creation) (table.CreationOutcome, error) { return table.DonorChanged, nil }
		}},
		{"first creation", func(w *world) {
			w.fake.create = func(context.Context, table.Creation) (table.CreationOutcome, error) { return 0, lost }
		}},
		{"second creation", func(w *world) {
			w.fake.create = func(ctx context.Context, c table.Creation) (table.CreationOutcome, error) {
				if c.Bucket.Shard == 3 {
					return 0, lost
				}
				return w.store.Create(ctx, c)
			}
		}},
		{"the answer to a creation", func(w *world) {
			w.fake.create = func(ctx context.Context, c table.Creation) (table.CreationOutcome, error) {
				_, _ = w.store.Create(ctx, c)
				return 0, lost
			}
		}},
	} {
		w := newWorld(t, zero, bucketItem(acme.At(1), count(2), daily("tpd", 0, 1000_000, 2)))
		c.fail(w)
		spent, _ := w.spend(noon, build(zero, count(2)), "rpm", 1000)
		batch := []aggregator.Delivery{w.other(), spent, w.doubles(noon, zero, 2, 4), w.other()}
		eq(t, c.name, failed(w.process(noon, batch...)), "2 shard;")
		eq(t, c.name+": usage", w.usage(acme, "hourly", atNoon), "rpm 1, events 1")
		w.fake.raise, w.fake.create = nil, nil
		w.sound(noon, batch[2:]...)
		eq(t, c.name+": moved once", fmt.Sprint(w.shard(0).Limit("tpd").Balance, w.shard(2).Limit("tpd").Balance), "750000 250000")
		eq(t, c.name+": count", fmt.Sprint(w.shard(1).ShardCount, w.shard(2).ShardCount, w.shard(3).ShardCount), "4 4 4")
	}
}

// A raise of another shard than 0 is no doubling, nor is a count that falls.
func TestWhatIsNoDoubling(t *testing.T) {
	w := newWorld(t, quotaZero(2))
	w.fake.calls = func(name string) { t.Errorf("%s", name) }
	one := bucketItem(acme.At(1), count(2), drips("rpm", 0, 64_000))
	w.sound(noon,
		w.write(noon, one, build(one, count(4))),
		w.write(noon, quotaZero(2), quotaZero(1)),
		w.write(noon, quotaZero(2), quotaZero(2, attrs{"novel": 1})))
}

// What the stream delivers is a doubling also where the count was absent.
func TestDoublingFromAnAbsentCount(t *testing.T) {
	w := newWorld(t, quotaZero(2))
	report := w.sound(noon, w.write(noon, quotaZero(2, attrs{table.AttrShardCount: nil}), quotaZero(2)))
	eq(t, "created", len(report.Created), 1)
	for _, window := range []events.Window{events.Hourly} {
		eq(t, "usage", w.usage(acme, string(window), atNoon), "")
	}
}

// A legacy quota on shard 0 has no grant count. Half spent at count 1 and read
// at count 2 it looks like a grant of half the quota, and the other half would
// be granted again. Its size is taken from before the count rose.
func TestDoublingOfLegacyQuota(t *testing.T) {
	legacy := attrs{"b_tpd_gc": nil, "b_tpd_tk": 400_000, "b_tpd_tc": 600_000}
	zero := quotaZero(2, legacy)
	w := newWorld(t, zero)
	report := w.sound(noon, w.doubles(noon, zero, 1, 2))
	eq(t, "created", created(report), "1 of 2 [rpm: 32000 (share) tpd: 400000 moved off shard 0 wcu: 1000000 (share)];")
	eq(t, "grant of shard 0", *w.shard(0).Limit("tpd").Grant, 1)
	eq(t, "held by shard 0", w.shard(0).Limit("tpd").Balance, int64(0))
}

// Doubling a hot bucket freezes what a legacy quota was granted, too.
func TestPressureFreezesLegacyQuota(t *testing.T) {
	zero := quotaZero(1, attrs{"b_tpd_gc": nil, "b_tpd_tk": 400_000, "b_wcu_tk": 0, "rf": noon})
	w := newWorld(t, zero)
	report := w.sound(noon, w.write(noon, build(zero, attrs{"b_wcu_tk": 1000}), zero))
	eq(t, "doublings", report.Doublings, []aggregator.Doubling{{Group: acme, From: 1, To: 2}})
	eq(t, "grant of shard 0", *w.shard(0).Limit("tpd").Grant, 1)
}

// An operator who lowers a limit, or disables the bucket, between the read and
// the creation is noticed: a shard made by the limits that were read would be
// spent from by clients that look no further.
func TestDoublingSeesTermsChange(t *testing.T) {
	zero := quotaZero(2)
	for _, test := range []struct {
		name              string
		change            attrs
		created, declined string
	}{
		{"capacity lowered", attrs{"b_tpd_cp": 10_000, table.AttrValidUntil: 0},
			"1 of 2 [rpm: 32000 (share) tpd: 5000 moved off shard 0 wcu: 1000000 (share)];", ""},
		{"disabled", attrs{table.AttrDisabled: true, table.AttrValidUntil: 0}, "", "1 bucket is disabled;"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, zero)
			changed := false
			w.agg.Store = &fakeStore{Store: w.store, calls: func(name string) {
				if name == "create" && !changed {
					changed = true
					w.store.Put(build(zero, test.change))
				}
			}}
			report := w.sound(noon, w.doubles(noon, zero, 1, 2))
			eq(t, "created", created(report), test.created)
			eq(t, "declined", declined(report), test.declined)
		})
	}
}
