package storetest

import (
	"errors"
	"sync/atomic"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// pair are two shards of a gathered limit and a use of each.
func pair(f *fixture) (items []table.Item, uses []table.PlannedUse) {
	for shard, balance := range []int64{700, 300} {
		item := bucket(group.At(shard), limit(rpm, balance, 1000), attrs{"shard_count": 2, "ttl": 5, "b_rpm_div": "gathered"})
		b := f.put(item)
		use := f.plan(b, quota.Demand{rpm: []int64{450, 300}[shard]}, now+1)
		items, uses = append(items, item), append(uses, table.PlannedUse{Bucket: b, Use: use})
	}
	return items, uses
}

// afterPair is what both uses leave.
func afterPair(items []table.Item) []table.Item {
	var after []table.Item
	for shard, taken := range []int64{450, 300} {
		balance := []int64{500, 300}[shard] - taken // shard 0 was above its part
		after = append(after, build(charged(items[shard], map[string]int64{rpm: taken}), attrs{"rf": now + 1, "b_rpm_tk": balance}))
	}
	return after
}

var useAllCases = []testCase{
	{"all are written, as they are said to be", func(f *fixture) {
		items, uses := pair(f)
		applied, err := f.client().UseAll(f.Context(), uses)
		f.noError(err)
		if !applied {
			f.Fatal("refused")
		}
		f.has(afterPair(items)...)
		for i, want := range afterPair(items) {
			f.sameItem("after", uses[i].After(), want)
		}
	}},
	{"where one does not hold, none is written", func(f *fixture) {
		for shard, changes := range [][]attrs{
			{{"b_rpm_tk": 649}, {"rf": now + 1}, {"vu": 0}, {"shard_count": 4}},
			{{"b_rpm_tk": 299}, {"rf": now + 1}},
		} {
			for _, change := range changes {
				items, uses := pair(f)
				items[shard] = build(items[shard], change)
				f.raw.Put(f, items[shard])
				if applied, err := f.client().UseAll(f.Context(), uses); applied || err != nil {
					f.Errorf("shard %d, %v: %v, %v", shard, change, applied, err)
				}
				f.has(items...)
			}
		}
	}},
	{"one of them is gone", func(f *fixture) {
		items, uses := pair(f)
		f.raw.Delete(f, group.At(1).PK(), table.StateSK)
		if applied, err := f.client().UseAll(f.Context(), uses); applied || err != nil {
			f.Errorf("got %v, %v", applied, err)
		}
		f.has(items[0])
	}},
	{"equal ones of two clients are two", func(f *fixture) {
		_, uses := pair(f)
		applied, err := f.client().UseAll(f.Context(), uses)
		f.noError(err)
		again, err := f.client().UseAll(f.Context(), uses)
		f.noError(err)
		if !applied || again {
			f.Errorf("got %v, and again %v", applied, again)
		}
	}},
	{"of many at once one is written", func(f *fixture) {
		items, uses := pair(f)
		var failed atomic.Int64
		if won := f.race(func(int) (bool, error) {
			applied, err := f.client().UseAll(f.Context(), uses)
			if err != nil && errors.Is(err, table.ErrRetry) {
				failed.Add(1)
				return false, nil
			}
			return applied, err
		}); won != 1 || failed.Load() > 0 {
			f.Errorf("%d were, %d failed", won, failed.Load())
		}
		f.has(afterPair(items)...)
	}},
}
