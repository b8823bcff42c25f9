package storetest

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

const racers = 16

// race runs racers of fn at once and counts those that return true.
func (f *fixture) race(fn func(racer int) (bool, error)) int {
	f.Helper()
	var won atomic.Int64
	var wait sync.WaitGroup
	start := make(chan struct{})
	for racer := range racers {
		wait.Go(func() {
			<-start
			ok, err := fn(racer)
			if err != nil {
				f.Errorf("racer %d: %v", racer, err)
			}
			if ok {
				won.Add(1)
			}
		})
	}
	close(start)
	wait.Wait()
	return int(won.Load())
}

// raceCases: of many writers that do the same thing at once exactly one does
// it.
var raceCases = []testCase{
	{"one usage", func(f *fixture) {
		won := f.race(func(int) (bool, error) {
			result, err := f.store.AddUsage(f.Context(), oneCount(rpm, 1500))
			if !result.Applied && !result.Seen[0].Has("10") {
				f.Errorf("refused with %v", result.Seen)
			}
			return result.Applied, err
		})
		check(f, "applied", won, 1)
		f.has(usageItem(1, map[string]string{rpm: "1.5"}, oneCounted))
	}},
	{"usage of different sources", func(f *fixture) {
		won := f.race(func(racer int) (bool, error) {
			usage := oneCount(rpm, 1500)
			usage.Sources[0].Shard = racer
			result, err := f.store.AddUsage(f.Context(), usage)
			return result.Applied, err
		})
		check(f, "applied", won, racers)
		marks := attrs{}
		for racer := range racers {
			marks[table.PositionAttr(racer)], marks[table.RangesAttr(racer)] = "10 b", "10 a"
		}
		f.has(usageItem(racers, map[string]string{rpm: "24"}, marks))
	}},
	{"usage in one gap, each writer knowing what the others did as it was told", func(f *fixture) {
		f.raw.Put(f, usageItem(2, nil, attrs{"mark#0": "90 y", "runs#0": "10 a,10 b,90 x"}))
		won := f.race(func(racer int) (bool, error) {
			mark := fmt.Sprint(20 + racer)
			counted := table.SeenRecords{run("10 a", "10 b"), run("90 x", "90 y")}
			for range racers { // each refusal is another's doing
				usage := counting(rpm, 1000, found(0, counted, run(mark+" p", mark+" q")))
				result, err := f.store.AddUsage(f.Context(), usage)
				if result.Applied || err != nil {
					return result.Applied, err
				}
				counted = result.Seen[0]
			}
			return false, nil
		})
		check(f, "applied", won, racers)
		item := f.raw.Items(f)[0]
		counted, err := item.SeenRecords()
		f.noError(err)
		check(f, "runs", len(counted[0]), 2+racers)
		f.has(usageItem(2+racers, map[string]string{rpm: "16"}, attrs{"mark#0": "90 y", "runs#0": item["runs#0"]}))
	}},
	{"one pass", func(f *fixture) {
		b := f.put(bucket(first, limit(rpm, 100, 60_000)))
		won := f.race(func(int) (bool, error) {
			result, err := f.store.Pass(f.Context(), b, drip(b, rpm, 1000))
			if !result.Applied && (result.Current == nil || result.Current.RefilledAt != now+1000) {
				f.Errorf("lost to %+v", result.Current)
			}
			return result.Applied, err
		})
		check(f, "applied", won, 1)
		f.has(build(b.Item, attrs{"b_rpm_tk": 1100, "rf": now + 1000}))
	}},
	{"different passes of one image", func(f *fixture) {
		b := f.put(bucket(first, limit(rpm, 100, 60_000)))
		won := f.race(func(racer int) (bool, error) {
			pass := drip(b, rpm, 1000)
			pass.RefilledAt += int64(racer)
			result, err := f.store.Pass(f.Context(), b, pass)
			return result.Applied, err
		})
		check(f, "applied", won, 1)
		check(f, "balance", f.decode(f.raw.Get(f, first.PK(), table.StateSK)).Limit(rpm).Balance, 1100)
	}},
	{"one pass that does not move the time", func(f *fixture) {
		b := f.put(bucket(first, limit(rpm, 900, 500)))
		won := f.race(func(int) (bool, error) {
			pass := drip(b, rpm, -400)
			pass.RefilledAt = b.RefilledAt
			result, err := f.store.Pass(f.Context(), b, pass)
			return result.Applied, err
		})
		check(f, "applied", won, 1)
		f.has(build(b.Item, attrs{"b_rpm_tk": 500}))
	}},
	{"one doubling", func(f *fixture) {
		b := f.put(bucket(first, limit(rpm, 100, 60_000), attrs{"shard_count": 2}))
		won := f.race(func(int) (bool, error) {
			result, err := f.store.Double(f.Context(), group, 2)
			if result.Count != 4 {
				f.Errorf("the count is %d", result.Count)
			}
			return result.Applied, err
		})
		check(f, "applied", won, 1)
		f.has(build(b.Item, attrs{"shard_count": 4}))
	}},
	{"one raise", func(f *fixture) {
		zero := bucket(first, limit(rpm, 1, 1000), attrs{"shard_count": 8})
		one := bucket(group.At(1), limit(rpm, 1, 1000), session(sess, 4001, 8000, 0, now-9), attrs{"shard_count": 2})
		f.raw.Put(f, zero)
		f.raw.Put(f, one)
		won := f.race(func(int) (bool, error) {
			siblings, err := f.store.RaiseAndRead(f.Context(), group, 8, now)
			if err != nil {
				return false, err
			}
			if siblings[1].Bucket.ShardCount != 8 {
				f.Errorf("an image at %d", siblings[1].Bucket.ShardCount)
			}
			return siblings[1].Raised, nil
		})
		check(f, "raised", won, 1)
		f.has(zero, build(one, attrs{"shard_count": 8, "b_sess_gc": 1}))
	}},
	{"raises and resets", func(f *fixture) {
		b := f.put(bucket(group.At(1), calendar(calls, 7, 8000, 1)))
		won := f.race(func(racer int) (bool, error) {
			if racer%2 == 0 {
				siblings, err := f.store.RaiseAndRead(f.Context(), group, 2, now)
				if err == nil && siblings[1].Bucket.ShardCount != 2 {
					f.Errorf("an image at %d", siblings[1].Bucket.ShardCount)
				}
				return false, err
			}
			pass := drip(b, calls, 7993)
			pass.Changes[0].Restore = true
			result, err := f.store.Pass(f.Context(), b, pass)
			return result.Applied, err
		})
		if won > 1 {
			f.Errorf("%d resets", won)
		}
		want := build(b.Item, attrs{"shard_count": 2})
		if won == 1 {
			want = build(want, attrs{"b_calls_tk": 8000, "rf": now + 1000})
		}
		f.has(want)
	}},
	{"one shard, made differently by each", func(f *fixture) {
		zero := bucket(first, attrs{"shard_count": 2}, calendar(calls, 100_000, 8000, 1))
		f.raw.Put(f, zero)
		won := f.race(func(racer int) (bool, error) {
			creation := f.newShard(1, 2, 4000)
			creation.Bucket.RefilledAt += int64(racer)
			creation.Bucket.Fill()
			creation.Moves = []quota.Funding{move(calls, 4000, 0, 1, 2)}
			outcome, err := f.store.Create(f.Context(), creation)
			if outcome != table.Created && outcome != table.Exists {
				err = fmt.Errorf("outcome %v: %w", outcome, err)
			}
			return outcome == table.Created, err
		})
		check(f, "created", won, 1)
		check(f, "shard 0's balance", f.decode(f.raw.Get(f, first.PK(), table.StateSK)).Limit(calls).Balance, 96_000)
	}},
	{"one shard, made equally by all", func(f *fixture) {
		zero := bucket(first, attrs{"shard_count": 2}, calendar(calls, 100_000, 8000, 1))
		f.raw.Put(f, zero)
		creation := f.newShard(1, 2, 4000)
		creation.Moves = []quota.Funding{move(calls, 4000, 0, 1, 2)}
		won := f.race(func(int) (bool, error) {
			outcome, err := f.store.Create(f.Context(), creation)
			return outcome == table.Created, err
		})
		check(f, "created", won, racers)
		f.has(build(zero, attrs{"b_calls_tk": 96_000}), creation.Bucket.Item)
	}},
	{"different shards off a donor that has enough for five", func(f *fixture) {
		zero := bucket(first, attrs{"shard_count": 32}, calendar(calls, 1299, 8000, 1))
		f.raw.Put(f, zero)
		won := f.race(func(racer int) (bool, error) {
			creation := f.newShard(1+racer, 32, 250)
			creation.Moves = []quota.Funding{move(calls, 250, 0, 1, 32)}
			outcome, err := f.store.Create(f.Context(), creation)
			if outcome != table.Created && outcome != table.DonorChanged {
				err = fmt.Errorf("outcome %v: %w", outcome, err)
			}
			return outcome == table.Created, err
		})
		check(f, "created", won, 5)
		check(f, "items", len(f.raw.Items(f)), 6)
		f.sameItem("shard 0", f.raw.Get(f, first.PK(), table.StateSK), build(zero, attrs{"b_calls_tk": 49}))
	}},
}
