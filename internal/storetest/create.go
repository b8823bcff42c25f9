package storetest

import (
	"fmt"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// newShard is a shard as it is created: at a count, with a balance of calls.
func (f *fixture) newShard(shard, count int, balance int64) table.Creation {
	f.Helper()
	item := bucket(group.At(shard), attrs{"shard_count": count}, calendar(calls, balance, 8000, count))
	return table.Creation{Bucket: f.decode(item)}
}

// move is a move of a calendar quota off a donor that was read at a count, with
// a grant of its own.
func move(limit string, amount int64, donor, grant, count int) quota.Funding {
	return quota.Funding{
		Limit: limit, Source: quota.Move, Amount: amount, Donor: donor,
		Guard: quota.Guard{Grant: grant, ShardCount: count, RefilledAt: midnight},
	}
}

func (f *fixture) create(creation table.Creation, want table.CreationOutcome) {
	f.Helper()
	got, err := f.store.Create(f.Context(), creation)
	f.noError(err)
	check(f, "outcome", got, want)
}

// creationRefused creates a shard that must be refused, and changes nothing.
func (f *fixture) creationRefused(creation table.Creation, want table.CreationOutcome) {
	f.Helper()
	before := f.raw.Items(f)
	f.create(creation, want)
	f.has(before...)
}

// guard moves 1000 off shard 1, which is as given, for a shard planned at an
// instant, and fails the test unless that is done or refused as it should be.
func (f *fixture) guard(planned int64, name string, donor attrs, guard quota.Guard, holds bool) {
	f.Helper()
	limit := calls
	if guard.SessionOnly {
		limit = sess
	}
	zero, one := bucket(first, attrs{"shard_count": 4}), bucket(group.At(1), donor)
	f.raw.Put(f, zero)
	f.raw.Put(f, one)
	f.raw.Delete(f, group.At(3).PK(), table.StateSK)
	creation := f.newShard(3, 4, 1000)
	creation.Bucket.RefilledAt = planned
	creation.Bucket.Fill()
	creation.Moves = []quota.Funding{{Limit: limit, Source: quota.Move, Amount: 1000, Donor: 1, Guard: guard}}
	outcome, err := f.store.Create(f.Context(), creation)
	f.noError(err)
	if !holds {
		check(f, name, outcome, table.DonorChanged)
		f.has(zero, one)
		return
	}
	check(f, name, outcome, table.Created)
	balance := f.decode(f.raw.Get(f, group.At(1).PK(), table.StateSK)).Limit(limit).Balance
	check(f, name+": balance", balance, f.decode(one).Limit(limit).Balance-1000)
}

// donorChanges are what may happen to a donor between being read and being
// debited: by the kind of quota and guard.
var donorChanges = []struct {
	name    string
	donor   attrs // the donor as read
	guard   quota.Guard
	changes []change
}{
	{"calendar", calendar(calls, 3000, 8000, 2), quota.Guard{Grant: 2, ShardCount: 4, RefilledAt: midnight}, []change{
		{"nothing", nil, true},
		{"spending that leaves enough", attrs{"b_calls_tk": 1000}, true},
		{"spending that does not", attrs{"b_calls_tk": 999}, false},
		{"debt", attrs{"b_calls_tk": -5000}, false},
		{"a grant at another count", attrs{"b_calls_gc": 4}, false},
		{"a grant that is gone", attrs{"b_calls_gc": nil}, false},
		{"a pass", attrs{"rf": now + 1}, true},
		{"a pass at the edge", attrs{"rf": midnight}, true},
		{"a period that is over", attrs{"rf": midnight - 1}, false},
		{"no pass at all", attrs{"rf": nil}, false},
		{"a raise", attrs{"shard_count": 8}, true},
		{"a limit that is gone", attrs{"b_calls_tk": nil}, false},
	}},
	{"calendar without an edge", calendar(calls, 3000, 8000, 2), quota.Guard{Grant: 2, ShardCount: 4}, []change{
		{"nothing", nil, true},
		{"any time", attrs{"rf": 1}, true},
		{"no time", attrs{"rf": nil}, true},
	}},
	{"session", session(sess, 3000, 8000, 2, now-9), quota.Guard{Grant: 2, ShardCount: 4, SessionOnly: true, Applied: new(now - 9)}, []change{
		{"nothing", nil, true},
		{"an older pass", attrs{"rf": 1}, true},
		{"a window opened elsewhere but not applied", attrs{"b_sess_ws": now}, true},
		{"another window", attrs{"b_sess_wa": now - 8}, false},
		{"no window", attrs{"b_sess_wa": nil}, false},
	}},
	{"session older than the marker", merge(session(sess, 3000, 8000, 2, now-9), attrs{"b_sess_wa": nil}),
		quota.Guard{Grant: 2, ShardCount: 4, SessionOnly: true}, []change{
			{"nothing", nil, true},
			{"a window applied", attrs{"b_sess_wa": now - 9}, false},
		}},
	{"legacy", calendar(calls, 3000, 8000, 0), quota.Guard{Grant: 2, ShardCount: 4, Legacy: true, RefilledAt: midnight}, []change{
		{"nothing", nil, true},
		{"a freeze", attrs{"b_calls_gc": 2}, false},
		{"a raise without a freeze", attrs{"shard_count": 8}, false},
		{"no count", attrs{"shard_count": nil}, false},
	}},
	{"legacy at 1", merge(calendar(calls, 3000, 8000, 0), attrs{"shard_count": 1}),
		quota.Guard{Grant: 1, ShardCount: 1, Legacy: true, RefilledAt: midnight}, []change{
			{"nothing", nil, true},
			{"no count", attrs{"shard_count": nil}, true},
			{"a count below 1", attrs{"shard_count": 0}, true},
			{"a raise without a freeze", attrs{"shard_count": 2}, false},
		}},
	{"a grant below 1 reads as the count", merge(calendar(calls, 3000, 8000, 0), attrs{"b_calls_gc": 0}),
		quota.Guard{Grant: 4, ShardCount: 4, RefilledAt: midnight}, []change{
			{"nothing", nil, true},
			{"a grant at the count", attrs{"b_calls_gc": 4}, true},
			{"a grant at another", attrs{"b_calls_gc": 2}, false},
			{"a raise", attrs{"shard_count": 8}, false},
			{"no grant", attrs{"b_calls_gc": nil}, false},
		}},
}

var createCases = []testCase{
	{"a mint is put under the pin", func(f *fixture) {
		zero := bucket(first, attrs{"shard_count": 4}, calendar(calls, 10, 8000, 4))
		f.raw.Put(f, zero)
		creation := f.newShard(2, 4, 2000)
		f.create(creation, table.Created)
		f.has(zero, creation.Bucket.Item)
	}},
	{"a move off shard 0", func(f *fixture) {
		zero := bucket(first, attrs{"shard_count": 2}, calendar(calls, 5000, 8000, 1), everyType)
		f.raw.Put(f, zero)
		creation := f.newShard(1, 2, 4000)
		creation.Moves = []quota.Funding{move(calls, 4000, 0, 1, 2)}
		f.create(creation, table.Created)
		f.has(build(zero, attrs{"b_calls_tk": 1000}), creation.Bucket.Item)
	}},
	{"a move off another shard leaves shard 0 alone", func(f *fixture) {
		zero := bucket(first, attrs{"shard_count": 4}, calendar(calls, 5000, 8000, 4))
		one := bucket(group.At(1), attrs{"shard_count": 4}, calendar(calls, 2000, 8000, 2))
		f.raw.Put(f, zero)
		f.raw.Put(f, one)
		creation := f.newShard(3, 4, 2000)
		creation.Moves = []quota.Funding{move(calls, 2000, 1, 2, 4)}
		f.create(creation, table.Created)
		f.has(zero, build(one, attrs{"b_calls_tk": 0}), creation.Bucket.Item)
	}},
	{"several quotas off one donor, others off another", func(f *fixture) {
		zero := bucket(first, attrs{"shard_count": 4}, session(sess, 900, 1000, 1, now-9))
		one := bucket(group.At(1), attrs{"shard_count": 4})
		creation, debits := f.newShard(3, 4, 2000), attrs{}
		for i, name := range append([]string{"_"}, awkward...) {
			one = build(one, calendar(name, 5000, 8000, 2))
			creation.Moves = append(creation.Moves, move(name, int64(i+1), 1, 2, 4))
			debits[table.Attr(name, table.FieldBalance)] = 5000 - i - 1
		}
		off := move(sess, 250, 0, 1, 4)
		off.Guard = quota.Guard{Grant: 1, ShardCount: 4, SessionOnly: true, Applied: new(now - 9)}
		creation.Moves = append(creation.Moves, off)
		f.raw.Put(f, zero)
		f.raw.Put(f, one)
		f.create(creation, table.Created)
		f.has(build(zero, attrs{"b_sess_tk": 650}), build(one, debits), creation.Bucket.Item)
	}},
	{"dozens of quotas off one donor", func(f *fixture) {
		zero := bucket(first, attrs{"shard_count": 2})
		creation, debits := f.newShard(1, 2, 2000), attrs{}
		for i := range 30 {
			name := fmt.Sprintf("quota.%d", i)
			zero = build(zero, calendar(name, 5000, 8000, 1))
			creation.Moves = append(creation.Moves, move(name, 4000, 0, 1, 2))
			debits[table.Attr(name, table.FieldBalance)] = 1000
		}
		f.raw.Put(f, zero)
		f.create(creation, table.Created)
		f.has(build(zero, debits), creation.Bucket.Item)
	}},
	{"each thing that a donor's guard depends on", func(f *fixture) {
		planned := now // each creation is planned at a time of its own: an equal one would be a retry
		for _, d := range donorChanges {
			for _, c := range d.changes {
				planned++
				f.guard(planned, d.name+": "+c.name, merge(merge(attrs{"shard_count": 4}, d.donor), c.after), d.guard, c.holds)
			}
		}
	}},
	{"one donor that changed leaves the other undebited", func(f *fixture) {
		f.raw.Put(f, bucket(first, attrs{"shard_count": 4}, session(sess, 900, 1000, 1, now-9)))
		f.raw.Put(f, bucket(group.At(1), attrs{"shard_count": 4}, calendar(calls, 100, 8000, 2)))
		creation := f.newShard(3, 4, 2000)
		off := move(sess, 250, 0, 1, 4)
		off.Guard = quota.Guard{Grant: 1, ShardCount: 4, SessionOnly: true, Applied: new(now - 9)}
		creation.Moves = []quota.Funding{off, move(calls, 101, 1, 2, 4)}
		f.creationRefused(creation, table.DonorChanged)
	}},
	{"a donor that is gone", func(f *fixture) {
		f.raw.Put(f, bucket(first, attrs{"shard_count": 4}, calendar(calls, 10, 8000, 4)))
		creation := f.newShard(3, 4, 2000)
		creation.Moves = []quota.Funding{move(calls, 2000, 1, 2, 4)}
		f.creationRefused(creation, table.DonorChanged)
	}},
	{"a shard that exists", func(f *fixture) {
		f.raw.Put(f, bucket(first, attrs{"shard_count": 2}, calendar(calls, 5000, 8000, 1)))
		f.raw.Put(f, bucket(group.At(1), attrs{"shard_count": 2, "rf": now - 1}, calendar(calls, 4000, 8000, 2)))
		creation := f.newShard(1, 2, 4000)
		creation.Moves = []quota.Funding{move(calls, 4000, 0, 1, 2)}
		f.creationRefused(creation, table.Exists)
	}},
	{"a pin that moved", func(f *fixture) {
		for _, count := range []any{8, 2, nil} {
			f.raw.Put(f, bucket(first, attrs{"shard_count": count}, calendar(calls, 5000, 8000, 1)))
			f.raw.Put(f, bucket(group.At(1), attrs{"shard_count": 4}, calendar(calls, 5000, 8000, 2)))
			minted, offZero, offOne := f.newShard(3, 4, 2000), f.newShard(3, 4, 2000), f.newShard(3, 4, 2000)
			offZero.Moves = []quota.Funding{move(calls, 2000, 0, 1, 4)}
			offOne.Moves = []quota.Funding{move(calls, 2000, 1, 2, 4)}
			f.creationRefused(minted, table.PinMoved)
			f.creationRefused(offZero, table.PinMoved)
			f.creationRefused(offOne, table.PinMoved)
		}
	}},
	{"a pin that is gone", func(f *fixture) {
		minted, moved := f.newShard(1, 2, 4000), f.newShard(1, 2, 4000)
		moved.Moves = []quota.Funding{move(calls, 4000, 0, 1, 2)}
		f.creationRefused(minted, table.PinMoved)
		f.creationRefused(moved, table.PinMoved)
	}},
	{"where several things changed, the shard comes first and then the pin", func(f *fixture) {
		f.raw.Put(f, bucket(first, attrs{"shard_count": 8}, calendar(calls, 1, 8000, 1)))
		f.raw.Put(f, bucket(group.At(1), attrs{"shard_count": 8}, calendar(calls, 1, 8000, 2)))
		offZero, offOne := f.newShard(3, 4, 2000), f.newShard(3, 4, 2000)
		offZero.Moves = []quota.Funding{move(calls, 2000, 0, 1, 4)}
		offOne.Moves = []quota.Funding{move(calls, 2000, 1, 2, 4)}
		f.creationRefused(offZero, table.PinMoved)
		f.creationRefused(offOne, table.PinMoved)
		f.raw.Put(f, bucket(group.At(3), attrs{"shard_count": 8}, calendar(calls, 1, 8000, 8)))
		f.creationRefused(offZero, table.Exists)
		f.creationRefused(offOne, table.Exists)
	}},
	{"the terms that shard 0 is held to", func(f *fixture) {
		zero := bucket(first, attrs{"shard_count": 2, "vu": now + 5}, calendar(calls, 9000, 8000, 1))
		b := f.put(zero)
		for _, moves := range [][]quota.Funding{nil, {move(calls, 4000, 0, 1, 2)}} {
			creation := f.newShard(1, 2, 4000)
			creation.Moves, creation.ConfigAttrs = moves, b.ConfigAttrs()
			for _, changed := range []attrs{
				{"b_calls_cp": 10_000}, {"b_calls_ra": 1}, {"b_calls_rp": 2}, {"b_calls_rsched": "1m0h1"}, {"b_calls_sched": "1h9s500"},
				{"b_calls_cp": nil}, {"vu": 0}, {"vu": nil}, {"disabled": true}, {"sched": "1h9s500"}, {"sched_tz": "Asia/Tokyo"},
			} {
				f.raw.Put(f, build(zero, changed))
				f.creationRefused(creation, table.DonorChanged)
			}
			f.raw.Put(f, build(zero, attrs{"b_calls_cp": 10_000, "shard_count": 4}))
			f.creationRefused(creation, table.PinMoved)
		}
		creation := f.newShard(1, 2, 4000)
		creation.ConfigAttrs = b.ConfigAttrs()
		spent := build(zero, attrs{"b_calls_tk": 1, "b_wcu_tk": 2, "rf": now + 3})
		f.raw.Put(f, spent)
		f.create(creation, table.Created)
		f.has(spent, creation.Bucket.Item)
	}},
	{"a retry of a creation that landed", func(f *fixture) {
		zero := bucket(first, attrs{"shard_count": 2}, calendar(calls, 9000, 8000, 1))
		f.raw.Put(f, zero)
		creation := f.newShard(1, 2, 4000)
		creation.Moves = []quota.Funding{move(calls, 4000, 0, 1, 2)}
		f.create(creation, table.Created)
		f.create(creation, table.Created)
		zero = build(zero, attrs{"b_calls_tk": 5000})
		f.has(zero, creation.Bucket.Item)
		used := build(creation.Bucket.Item, attrs{"b_calls_tk": 3000, "b_calls_tc": 1000, "b_wcu_tk": 999_000, "b_wcu_tc": 1000})
		f.raw.Put(f, used)
		f.create(creation, table.Created)
		f.has(zero, used)
	}},
	{"a shard that was made otherwise is not taken for a retry", func(f *fixture) {
		f.raw.Put(f, bucket(first, attrs{"shard_count": 2}, calendar(calls, 9000, 8000, 1)))
		creation := f.newShard(1, 2, 4000)
		creation.Moves = []quota.Funding{move(calls, 4000, 0, 1, 2)}
		for _, other := range []attrs{
			{"rf": now + 1}, {"shard_count": 4}, {"b_calls_gc": 1}, {"b_calls_gc": nil}, {"b_calls_tk": 3999},
			{"b_calls_tc": 1}, {"b_calls_tu": 5}, {"x": "y"}, {"b_wcu_tk": nil}, {"b_calls_tk": "none"},
		} {
			f.raw.Put(f, build(creation.Bucket.Item, other))
			f.creationRefused(creation, table.Exists)
		}
	}},
}
