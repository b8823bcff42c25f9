package storetest

import (
	"fmt"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// plan is a use as the rules plan it; it must not be short.
func (f *fixture) plan(b *table.Bucket, demand quota.Demand, at int64) *quota.Use {
	f.Helper()
	use, short, err := quota.PlanUse(&b.Bucket, demand, at)
	f.noError(err)
	if use == nil {
		f.Fatalf("short: %+v", short)
	}
	return use
}

func (f *fixture) use(b *table.Bucket, use *quota.Use) (table.WriteResult, error) {
	return f.client().Use(f.Context(), b, use)
}

// wideUse is a use of a bucket with a limit of every kind: it drips rpm, restores
// the calendar quota, opens a session window over one that has ended and one
// where there was none, rolls a third, and stamps a valid-until.
func wideUse(f *fixture) (table.Item, *table.Bucket, *quota.Use) {
	const ended = now - 7200_000
	item := bucket(first, everyType, limit(rpm, 100, 60_000), limit("soft", -50, 60_000), calendar(calls, 70, 8000, 2),
		session("fresh", 5, 4000, 1, 0), session("over", 30, 4000, 2, ended), session("told", 40, 4000, 2, ended), attrs{
			"shard_count": 4, "rf": midnight - 9000, "vu": ended, "sched": "1h9-17s500", "ttl": now/1000 + 50,
			"b_calls_tu": 250, "b_over_tu": 3, "b_soft_soft": now + 1, "b_over_sched": "-",
			"b_fresh_ws": nil, "b_fresh_wa": nil, "b_told_ws": now - 500, "b_told_wtc": 0, "b_told_tc": 20,
		})
	b := f.decode(item)
	return item, b, f.plan(b, quota.Demand{rpm: 9000, calls: 2000, "fresh": 1000, "over": 1, "told": 0, "soft": 70_000}, now)
}

// afterWideUse is what it leaves. 3,609 s have dripped rpm full.
func afterWideUse(item table.Item) table.Item {
	return build(item, attrs{
		"rf": now, "vu": now - 500 + 7200_000,
		"b_rpm_tk": 15_000 - 9000, "b_rpm_tc": 9000, "b_soft_tk": 15_000 - 70_000, "b_soft_tc": 70_000,
		"b_calls_tk": 0, "b_calls_tc": 2000, "b_calls_gc": 4, "b_calls_tu": nil,
		"b_fresh_tk": 0, "b_fresh_tc": 1000, "b_fresh_gc": 4, "b_fresh_ws": now, "b_fresh_wa": now,
		"b_over_tk": 999, "b_over_tc": 1, "b_over_gc": 4, "b_over_tu": nil, "b_over_ws": now, "b_over_wa": now,
		"b_told_tk": 980, "b_told_gc": 4, "b_told_wa": now - 500,
		"b_wcu_tk": 999_000, "b_wcu_tc": 1000,
	})
}

// useChanges are what may happen to wideUse's item meanwhile.
var useChanges = []change{
	{"nothing", nil, true},
	{"spending that leaves enough", attrs{"b_rpm_tk": 99, "b_rpm_tc": 1, "b_wcu_tk": 5}, true},
	{"as much spending as there is", attrs{"b_rpm_tk": -5900, "b_calls_tk": 70}, true},
	{"a millitoken more", attrs{"b_rpm_tk": -5901}, false},
	{"spending of what is taken whole", attrs{"b_calls_tk": 69}, false},
	{"spending of a window that opens", attrs{"b_over_tk": -969}, true},
	{"a millitoken more of it", attrs{"b_over_tk": -970}, false},
	{"spending of what is soft", attrs{"b_soft_tk": -900_000}, true},
	{"a write meter in debt", attrs{"b_wcu_tk": -1}, true},
	{"a refund to a balance that is lifted", attrs{"b_rpm_tk": 101}, false},
	{"a top-up of a quota that is restored", attrs{"b_calls_tk": 71}, false},
	{"another pass", attrs{"rf": midnight - 8999}, false},
	{"another valid-until", attrs{"vu": 0}, false},
	{"no valid-until", attrs{"vu": nil}, false},
	{"a raise", attrs{"shard_count": 8}, false},
	{"a count below the use's", attrs{"shard_count": 2}, true},
	{"another schedule", attrs{"sched": "1h9-17s501"}, false},
	{"another use opened the first window", attrs{"b_fresh_ws": now - 1}, false},
	{"another use opened the next", attrs{"b_over_ws": now - 1}, false},
	{"the window that is opened over is gone", attrs{"b_over_ws": nil}, false},
	{"a newer window was told of", attrs{"b_told_ws": now - 400}, false},
	{"another expiry", attrs{"ttl": 17}, true},
	{"a limit that is enforced went", attrs{"b_rpm_tk": nil}, false},
	{"an attribute that nobody knows", attrs{"x_unknown": 7}, true},
}

var useCases = []testCase{
	{"every part of a use is written", func(f *fixture) {
		item, b, use := wideUse(f)
		f.raw.Put(f, item)
		taken, err := f.use(b, use)
		f.written("use", taken, err, afterWideUse(item))
	}},
	{"each thing that a use depends on", func(f *fixture) {
		for _, c := range useChanges {
			item, b, use := wideUse(f)
			meanwhile := build(item, c.after)
			f.raw.Put(f, meanwhile)
			taken, err := f.use(b, use)
			if !c.holds {
				f.refused(c.name, taken, err, meanwhile)
				continue
			}
			f.written(c.name, taken, err, sum(afterWideUse(item), item, meanwhile))
		}
	}},
	{"the valid-until goes where nothing is bound to time", func(f *fixture) {
		item := bucket(first, limit(rpm, 100, 60_000), attrs{"vu": now + 5})
		b := f.put(item)
		use := f.plan(b, quota.Demand{rpm: 1}, now+1)
		f.raw.Put(f, build(item, attrs{"sched": "1h9-17s500"}))
		taken, err := f.use(b, use)
		f.refused("a schedule has come", taken, err, build(item, attrs{"sched": "1h9-17s500"}))
		f.raw.Put(f, build(item, attrs{"b_rpm_tk": 60_000}))
		taken, err = f.use(b, use)
		f.refused("a balance is above what it was read at", taken, err, build(item, attrs{"b_rpm_tk": 60_000}))
		f.raw.Put(f, item)
		taken, err = f.use(b, use)
		f.written("nothing has changed", taken, err, build(charged(item, map[string]int64{rpm: 1}), attrs{"rf": now + 1, "b_rpm_tk": 100, "vu": nil}))
	}},
	{"the terms are held where the valid-until was 0 already", func(f *fixture) {
		item := bucket(first, limit(rpm, 100, 60_000), attrs{"vu": 0})
		b := f.put(item)
		use := f.plan(b, quota.Demand{rpm: 1}, now+1)
		for _, changed := range []attrs{{"b_rpm_cp": 50_000}, {"disabled": true}, {"b_rpm_rsched": "1m0h0"}, {"sched_tz": "Asia/Tokyo"}} {
			f.raw.Put(f, build(item, changed))
			taken, err := f.use(b, use)
			f.refused("terms", taken, err, build(item, changed))
		}
	}},
	{"what is bypassed counts, and costs nothing but the write", func(f *fixture) {
		item := bucket(first, limit(rpm, 60_000, 60_000), calendar(calls, -70, 8000, 1), attrs{"bypass": now + 5000})
		b := f.put(item)
		taken, err := f.use(b, f.plan(b, quota.Demand{rpm: 90_000, calls: 3}, now+1))
		f.written("use", taken, err, build(item, attrs{
			"rf": now + 1, "vu": midnight + 86400_000, "b_rpm_tc": 90_000, "b_calls_tc": 3, "b_wcu_tk": 999_000, "b_wcu_tc": 1000,
		}))
	}},
	{"what is bypassed makes no part of a limit that went", func(f *fixture) {
		item := bucket(first, limit(rpm, 60_000, 60_000), attrs{"bypass": now + 5000})
		b := f.put(item)
		use := f.plan(b, quota.Demand{rpm: 5}, now+1)
		item = build(item, attrs{"b_rpm_tk": nil, "b_rpm_cp": nil})
		f.raw.Put(f, item)
		taken, err := f.use(b, use)
		f.written("use", taken, err, build(item, attrs{"rf": now + 1, "b_rpm_tc": 5, "b_wcu_tk": 999_000, "b_wcu_tc": 1000}))
	}},
	{"nothing of a limit of which nothing was consumed yet", func(f *fixture) {
		item := bucket(first, limit(rpm, 60_000, 60_000), attrs{"b_rpm_tc": nil})
		b := f.put(item)
		taken, err := f.use(b, f.plan(b, quota.Demand{rpm: 0}, now+1))
		f.written("use", taken, err, build(item, attrs{"rf": now + 1, "b_rpm_tc": 0, "b_wcu_tk": 999_000, "b_wcu_tc": 1000}))
	}},
	{"a trim and a take of what it leaves", func(f *fixture) {
		item := bucket(first, limit(rpm, 900, 1000), attrs{"shard_count": 2})
		b := f.put(item)
		use := f.plan(b, quota.Demand{rpm: 500}, now+1)
		f.raw.Put(f, build(item, attrs{"b_rpm_tk": 899}))
		taken, err := f.use(b, use)
		f.refused("it leaves less", taken, err, build(item, attrs{"b_rpm_tk": 899}))
		f.raw.Put(f, item)
		taken, err = f.use(b, use)
		f.written("it leaves as much", taken, err, build(item, attrs{
			"rf": now + 1, "b_rpm_tk": 0, "b_rpm_tc": 500, "b_wcu_tk": 999_000, "b_wcu_tc": 1000,
		}))
	}},
	{"the same use twice", func(f *fixture) {
		item, b, use := wideUse(f)
		f.raw.Put(f, item)
		_, err := f.use(b, use)
		f.noError(err)
		taken, err := f.use(b, use)
		f.refused("again", taken, err, afterWideUse(item))
	}},
	{"a bucket that is gone", func(f *fixture) {
		b := f.decode(bucket(first, limit(rpm, 100, 60_000), attrs{"rf": 0, "shard_count": nil}))
		taken, err := f.use(b, f.plan(b, nil, 1))
		f.refused("use", taken, err, nil)
	}},
	{"dozens of limits of any name", func(f *fixture) {
		item := bucket(first, attrs{"vu": now})
		names := append([]string{"_"}, awkward...)
		for i := range 25 {
			names = append(names, fmt.Sprintf("limit-%d.x", i))
		}
		demand, want := quota.Demand{}, attrs{"rf": now + 1, "vu": now + 1 + 7200_000, "b_wcu_tk": 999_000, "b_wcu_tc": 1000}
		for i, name := range names {
			item = build(item, session(name, 10, 1000, 1, now-7200_000))
			demand[name] = int64(i)
			for field, value := range map[table.Field]any{
				table.FieldBalance: 1000 - i, table.FieldConsumed: i, table.FieldStart: now + 1, table.FieldApplied: now + 1,
			} {
				want[table.Attr(name, field)] = value
			}
		}
		b := f.put(item)
		taken, err := f.use(b, f.plan(b, demand, now+1))
		f.written("use", taken, err, build(item, want))
	}},
}

// sum is what a write leaves of an item that was changed meanwhile: planned,
// and what the item had more or less by then.
func sum(planned, read, meanwhile table.Item) table.Item {
	result := planned.Clone()
	for name, value := range meanwhile {
		at, is := meanwhile.Int(name)
		before, was := read.Int(name)
		after, left := planned.Int(name)
		_, field, _ := table.SplitAttr(name)
		switch {
		case is && was && left && (field == table.FieldBalance || field == table.FieldConsumed):
			result = build(result, attrs{name: after + at - before})
		case read[name] == nil || render(read[name]) != render(value):
			result[name] = value
		}
	}
	return result
}
