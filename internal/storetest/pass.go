package storetest

import (
	"fmt"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// drip is a pass of a bucket at one second past now that adds to one limit.
func drip(b *table.Bucket, limit string, delta int64) *quota.Pass {
	pass := &quota.Pass{
		RefilledAt:       now + 1000,
		ShardCount:       b.ShardCount,
		ExpectRefilledAt: b.RefilledAt,
		ExpectValidUntil: b.ValidUntil,
		Why:              []quota.Reason{quota.Short},
	}
	if l := b.Limit(limit); l != nil {
		pass.Changes = []quota.Change{{Limit: limit, Read: l.Balance, Delta: delta}}
	}
	return pass
}

func (f *fixture) pass(b *table.Bucket, pass *quota.Pass) {
	f.Helper()
	result, err := f.store.Pass(f.Context(), b, pass)
	f.noError(err)
	if !result.Applied || result.Current != nil {
		f.Fatalf("got %+v, not a pass that was applied", result)
	}
}

// passLost writes a pass that must be refused with the item as it is, and
// change nothing.
func (f *fixture) passLost(b *table.Bucket, pass *quota.Pass) {
	f.Helper()
	before := f.raw.Items(f)
	result, err := f.store.Pass(f.Context(), b, pass)
	f.noError(err)
	if result.Applied {
		f.Fatal("the pass was applied")
	}
	f.sameItem("the current item", itemOf(result.Current), f.raw.Get(f, b.Key.PK(), table.StateSK))
	f.has(before...)
}

// change is one way in which the stored item moves between being read and the
// pass, and whether the pass still holds.
type change struct {
	name  string
	after attrs
	holds bool
}

// rollPass is the pass of a bucket with a limit of every kind, which rolls the
// session, restores the calendar quota, drips rpm and stamps a valid-until.
func rollPass(f *fixture) (table.Item, *table.Bucket, *quota.Pass) {
	item := bucket(first, limit(rpm, 100, 60_000), calendar(calls, 70, 8000, 2), session(sess, 30, 4000, 2, now-500), attrs{
		"shard_count": 4, "rf": now - 9000, "vu": 0, "sched": "1h9-17s500", "b_sess_wa": now - 7300_000, "b_calls_tu": 250, "b_sess_tu": 3,
	})
	b := f.decode(item)
	return item, b, &quota.Pass{
		RefilledAt: now, ShardCount: 4, ExpectRefilledAt: now - 9000, ExpectValidUntil: new(int64(0)), ValidUntil: new(now + 5000),
		Changes: []quota.Change{
			{Limit: calls, Read: 70, Delta: 1930, Restore: true, Max: new(int64(70))},
			{Limit: rpm, Read: 100, Delta: 2250, Max: new(int64(100))},
			{Limit: sess, Read: 30, Delta: 970, Restore: true, Roll: new(now - 500), Applied: new(now - 500), Max: new(int64(30))},
			{Limit: "wcu", Read: 1000_000, Max: new(int64(1000_000))},
		},
		Why: []quota.Reason{quota.Rolled},
	}
}

// rollChanges are what may happen to rollPass's item meanwhile.
var rollChanges = []change{
	{"nothing", nil, true},
	{"spending", attrs{"b_rpm_tk": -900, "b_rpm_tc": 1000, "b_calls_tk": 60, "b_wcu_tk": 999_000}, true},
	{"another pass", attrs{"rf": now - 8999}, false},
	{"a clock that went back", attrs{"rf": now - 9001}, false},
	{"rf gone", attrs{"rf": nil}, false},
	{"limits changed by an operator", attrs{"vu": nil}, false},
	{"another valid-until", attrs{"vu": 1}, false},
	{"a raise", attrs{"shard_count": 8}, false},
	{"a count below the pass's", attrs{"shard_count": 2}, true},
	{"no count", attrs{"shard_count": nil}, true},
	{"a top-up of a pinned balance", attrs{"b_calls_tk": 71}, false},
	{"a refund to a pinned balance", attrs{"b_rpm_tk": 101}, false},
	{"a window opened elsewhere", attrs{"b_sess_ws": now - 400}, false},
	{"a window taken away", attrs{"b_sess_ws": nil}, false},
	{"another schedule", attrs{"sched": "1h9-17s501"}, false},
	{"no schedule", attrs{"sched": nil}, false},
	{"a limit's own schedule", attrs{"b_rpm_sched": "1h9-17s501"}, false},
	{"another reset schedule", attrs{"rsched": "1m0h1"}, false},
	{"another capacity, the valid-until being 0 already", attrs{"b_rpm_cp": 59_000}, false},
	{"disabled, the valid-until being 0 already", attrs{"disabled": true}, false},
	{"a limit removed", attrs{"b_rpm_tk": nil}, false},
}

var passCases = []testCase{
	{"every part of a pass is written", func(f *fixture) {
		item, b, pass := rollPass(f)
		f.raw.Put(f, item)
		f.pass(b, pass)
		f.has(build(item, attrs{
			"rf": now, "vu": now + 5000, "b_rpm_tk": 2350,
			"b_calls_tk": 2000, "b_calls_gc": 4, "b_calls_tu": nil,
			"b_sess_tk": 1000, "b_sess_gc": 4, "b_sess_tu": nil, "b_sess_wa": now - 500,
		}))
	}},
	{"each thing that a pass depends on", func(f *fixture) {
		for _, c := range rollChanges {
			item, b, pass := rollPass(f)
			f.raw.Put(f, build(item, c.after))
			if !c.holds {
				f.passLost(b, pass)
				continue
			}
			result, err := f.store.Pass(f.Context(), b, pass)
			f.noError(err)
			check(f, "applied after "+c.name, result.Applied, true)
		}
	}},
	{"a newer window that was told of without touching the valid-until", func(f *fixture) {
		item, _, pass := rollPass(f)
		item = build(item, attrs{"vu": 7})
		b := f.decode(item)
		pass.ExpectValidUntil, pass.ValidUntil = new(int64(7)), nil
		f.raw.Put(f, build(item, attrs{"b_sess_ws": now - 400}))
		f.passLost(b, pass)
		f.raw.Put(f, item)
		f.pass(b, pass)
	}},
	{"a pass adds, so that concurrent spending still counts", func(f *fixture) {
		item := bucket(first, limit(rpm, 100, 60_000))
		b := f.put(item)
		f.raw.Put(f, build(item, attrs{"b_rpm_tk": -400, "b_rpm_tc": 500}))
		f.pass(b, drip(b, rpm, 1000))
		f.has(build(item, attrs{"b_rpm_tk": 600, "b_rpm_tc": 500, "rf": now + 1000}))
	}},
	{"a trim takes off a balance that is not pinned", func(f *fixture) {
		item := bucket(first, limit(rpm, 900, 500))
		b := f.put(item)
		f.raw.Put(f, build(item, attrs{"b_rpm_tk": 950}))
		f.pass(b, drip(b, rpm, -400))
		f.has(build(item, attrs{"b_rpm_tk": 550, "rf": now + 1000}))
	}},
	{"the schedule is not pinned where no valid-until is set", func(f *fixture) {
		item := bucket(first, limit(rpm, 100, 60_000))
		b := f.put(item)
		f.raw.Put(f, build(item, attrs{"sched": "1h9-17s501"}))
		f.pass(b, drip(b, rpm, 1))
	}},
	{"a schedule that appears is seen where a valid-until is set", func(f *fixture) {
		item := bucket(first, limit(rpm, 100, 60_000), attrs{"vu": 5})
		b := f.put(item)
		f.raw.Put(f, build(item, attrs{"sched": "1h9-17s501"}))
		pass := drip(b, rpm, 1)
		pass.ValidUntil = new(now + 7)
		f.passLost(b, pass)
	}},
	{"a bucket that was never passed has no time", func(f *fixture) {
		item := bucket(first, limit(rpm, 100, 60_000), attrs{"rf": nil, "shard_count": nil, "b_rpm_tc": nil})
		b := f.put(item)
		f.pass(b, drip(b, rpm, 1000))
		f.has(build(item, attrs{"b_rpm_tk": 1100, "rf": now + 1000}))
	}},
	{"a valid-until that appears refuses", func(f *fixture) {
		item := bucket(first, limit(rpm, 100, 60_000))
		b := f.put(item)
		f.raw.Put(f, build(item, attrs{"vu": 0}))
		f.passLost(b, drip(b, rpm, 1000))
	}},
	{"a bucket that is gone", func(f *fixture) {
		b := f.decode(bucket(first, limit(rpm, 100, 60_000), attrs{"rf": 0}))
		f.passLost(b, drip(b, rpm, 1000))
	}},
	{"a bucket that cannot be read any more", func(f *fixture) {
		b := f.put(bucket(first, limit(rpm, 100, 60_000)))
		f.raw.Put(f, build(b.Item, attrs{"rf": "never"}))
		result, err := f.store.Pass(f.Context(), b, drip(b, rpm, 1000))
		f.noError(err)
		if result.Applied || result.Current != nil {
			f.Errorf("got %+v", result)
		}
	}},
	{"the same pass twice", func(f *fixture) {
		item, b, pass := rollPass(f)
		f.raw.Put(f, item)
		f.pass(b, pass)
		f.passLost(b, pass)
	}},
	{"the same pass twice where it does not move the time", func(f *fixture) {
		for _, delta := range []int64{1000, -50} {
			b := f.put(bucket(first, limit(rpm, 100, 60_000)))
			pass := drip(b, rpm, delta)
			pass.RefilledAt = b.RefilledAt
			f.pass(b, pass)
			want := build(b.Item, attrs{"b_rpm_tk": 100 + delta})
			f.has(want)
			f.passLost(b, pass)
			// Spending brings the balance back to where it was read.
			f.raw.Put(f, build(b.Item, attrs{"b_rpm_tc": delta}))
			f.passLost(b, pass)
		}
	}},
	{"a pass never moves the time back", func(f *fixture) {
		b := f.put(bucket(first, limit(rpm, 100, 60_000)))
		pass := drip(b, rpm, 7)
		pass.RefilledAt = b.RefilledAt - 5000
		f.pass(b, pass)
		f.has(build(b.Item, attrs{"b_rpm_tk": 107}))
	}},
	{"dozens of limits of any name, and attributes that it does not know", func(f *fixture) {
		item := bucket(first, everyType)
		names := append([]string{"_"}, awkward...)
		for i := range 50 {
			names = append(names, fmt.Sprintf("limit-%d.x", i))
		}
		for _, name := range names {
			item = build(item, calendar(name, 10, 1000, 1))
		}
		b := f.put(item)
		pass, want := drip(b, "", 0), attrs{"rf": now + 1000, "vu": now + 2}
		pass.ValidUntil = new(now + 2)
		for i, name := range names {
			pass.Changes = append(pass.Changes, quota.Change{
				Limit: name, Read: 10, Delta: int64(i) - 3, Restore: true, Max: new(int64(10)),
			})
			want[table.Attr(name, table.FieldBalance)] = 7 + i
		}
		f.pass(b, pass)
		f.has(build(item, want))
	}},
}
