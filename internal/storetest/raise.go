package storetest

import (
	"errors"

	"github.com/shardquota/shardquota/table"
)

func (f *fixture) raise(count int) []table.Sibling {
	f.Helper()
	siblings, err := f.store.RaiseAndRead(f.Context(), group, count, now)
	f.noError(err)
	if len(siblings) != count {
		f.Fatalf("%d siblings, not %d", len(siblings), count)
	}
	return siblings
}

// sibling fails the test unless a sibling was returned and stored as item.
func (f *fixture) sibling(got table.Sibling, raised bool, item table.Item) {
	f.Helper()
	f.noError(got.Broken)
	check(f, "raised", got.Raised, raised)
	f.sameItem("the sibling", itemOf(got.Bucket), item)
	if item != nil {
		pk, sk := item.Key()
		f.sameItem("the stored sibling", f.raw.Get(f, pk, sk), item)
	}
}

var raiseCases = []testCase{
	{"every sibling below the count is raised", func(f *fixture) {
		at := func(shard, count int) table.Item {
			return bucket(group.At(shard), limit(rpm, int64(shard), 1000), everyType, attrs{"shard_count": count})
		}
		zero, one, two, three, five := at(0, 4), at(1, 4), at(2, 8), build(at(3, 4), attrs{"shard_count": nil}), at(5, 16)
		for _, item := range []table.Item{zero, one, two, three, five, at(9, 2)} {
			f.raw.Put(f, item)
		}
		siblings := f.raise(8)
		f.sibling(siblings[0], false, zero)
		f.sibling(siblings[1], true, build(one, attrs{"shard_count": 8}))
		f.sibling(siblings[2], false, two)
		f.sibling(siblings[3], true, build(three, attrs{"shard_count": 8}))
		f.sibling(siblings[4], false, nil)
		f.sibling(siblings[5], false, five)
		check(f, "items", len(f.raw.Items(f)), 6)
		f.sameItem("a shard past the count", f.raw.Get(f, group.At(9).PK(), table.StateSK), at(9, 2))
	}},
	{"nothing there", func(f *fixture) {
		for _, sibling := range f.raise(32) {
			f.sibling(sibling, false, nil)
		}
		f.has()
	}},
	{"all 32", func(f *fixture) {
		for shard := range 32 {
			f.raw.Put(f, bucket(group.At(shard), limit(rpm, int64(shard), 1000), attrs{"shard_count": 16}))
		}
		for shard, sibling := range f.raise(32) {
			want := 32
			if shard == 0 {
				want = 16
			}
			check(f, "shard", sibling.Bucket.Shard, shard)
			check(f, "count", sibling.Bucket.ShardCount, want)
			check(f, "balance", sibling.Bucket.Limit(rpm).Balance, int64(shard))
			check(f, "raised", sibling.Raised, shard > 0)
		}
	}},
	{"a raise freezes legacy grants as they are inferred", func(f *fixture) {
		item := bucket(group.At(1), attrs{"shard_count": 4}, limit(rpm, 5, 1000),
			session("spent", 100, 8000, 0, now-1000),  // fits a share at 4: 2000
			session("half", 2001, 8000, 0, now-1000),  // more than that, so granted at 2
			session("whole", 4001, 8000, 0, now-1000), // more than a share at 2
			session("known", 100, 8000, 2, now-1000),
			calendar("day", 4001, 8000, 0),
			calendar("day-known", 1, 8000, 4))
		f.raw.Put(f, item)
		f.sibling(f.raise(8)[1], true, build(item, attrs{
			"shard_count": 8, "b_spent_gc": 4, "b_half_gc": 2, "b_whole_gc": 1, "b_day_gc": 1,
		}))
	}},
	{"no freeze without a raise, none on shard 0", func(f *fixture) {
		zero := bucket(first, attrs{"shard_count": 2}, session(sess, 100, 8000, 0, now-1000))
		one := bucket(group.At(1), attrs{"shard_count": 4}, session(sess, 100, 8000, 0, now-1000))
		f.raw.Put(f, zero)
		f.raw.Put(f, one)
		siblings := f.raise(4)
		f.sibling(siblings[0], false, zero)
		f.sibling(siblings[1], false, one)
	}},
	{"after a raise no pass at the lower count is written", func(f *fixture) {
		b := f.put(bucket(group.At(1), attrs{"shard_count": 2}, calendar(calls, 7, 8000, 2)))
		pass := drip(b, calls, 3993)
		pass.Changes[0].Restore = true
		f.raise(4)
		f.passLost(b, pass)
	}},
	{"a schedule that cannot be read does not keep a shard from being raised", func(f *fixture) {
		item := bucket(group.At(1), attrs{"sched": "9?"}, session(sess, 100, 8000, 0, now-1000))
		f.raw.Put(f, item)
		f.sibling(f.raise(2)[1], true, build(item, attrs{"shard_count": 2, "b_sess_gc": 1}))
	}},
	{"an item that cannot be read is told, left alone, and costs its siblings nothing", func(f *fixture) {
		bad := bucket(group.At(1), limit(rpm, 1, 2), attrs{"b_rpm_tk": "x"})
		good := bucket(group.At(2), limit(rpm, 1, 2))
		f.raw.Put(f, bad)
		f.raw.Put(f, good)
		siblings := f.raise(4)
		if got := siblings[1]; got.Bucket != nil || got.Raised || !errors.Is(got.Broken, table.ErrItem) {
			f.Errorf("got %+v", got)
		}
		raised := build(good, attrs{"shard_count": 4})
		f.sibling(siblings[2], true, raised)
		f.has(bad, raised)
	}},
	{"limits of any name", func(f *fixture) {
		item, want := bucket(group.At(1)), attrs{"shard_count": 2}
		for _, name := range append([]string{"_"}, awkward...) {
			item = build(item, session(name, 100, 8000, 0, now-1000))
			want[table.Attr(name, table.FieldGrant)] = 1
		}
		f.raw.Put(f, item)
		f.sibling(f.raise(2)[1], true, build(item, want))
	}},
}
