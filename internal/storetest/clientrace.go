package storetest

import (
	"sync/atomic"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// clientRaceCases: of many that take at once no more get something than there is,
// and what each wrote counts.
var clientRaceCases = []testCase{
	{"takes of what is enough for five", func(f *fixture) {
		item := bucket(first, limit(rpm, 5999, 60_000))
		f.raw.Put(f, item)
		won := f.race(func(int) (bool, error) {
			taken, err := f.take(map[string]int64{rpm: 1000}, now)
			left, _ := taken.Item.Int("b_rpm_tk")
			if left < 999 || !taken.Applied && left != 999 {
				f.Errorf("applied %t with %d left", taken.Applied, left)
			}
			return taken.Applied, err
		})
		check(f, "taken", won, 5)
		f.has(build(item, attrs{"b_rpm_tk": 999, "b_rpm_tc": 5000, "b_wcu_tk": 995_000, "b_wcu_tc": 5000}))
	}},
	{"one use", func(f *fixture) {
		item, b, use := wideUse(f)
		f.raw.Put(f, item)
		won := f.race(func(int) (bool, error) {
			taken, err := f.use(b, use)
			return taken.Applied, err
		})
		check(f, "used", won, 1)
		f.has(afterWideUse(item))
	}},
	{"one window, opened by each in a use of its own", func(f *fixture) {
		item := bucket(first, session(sess, 30, 100_000, 1, now-7200_000))
		b := f.put(item)
		won := f.race(func(racer int) (bool, error) {
			taken, err := f.use(b, f.plan(b, quota.Demand{sess: 1000}, now+int64(racer)))
			return taken.Applied, err
		})
		check(f, "opened", won, 1)
		check(f, "balance", f.decode(f.raw.Get(f, first.PK(), table.StateSK)).Limit(sess).Balance, 99_000)
	}},
	{"uses, takes and corrections", func(f *fixture) {
		item := bucket(first, limit(rpm, 100_000, 100_000))
		b := f.put(item)
		var dripped, given atomic.Int64
		f.race(func(racer int) (bool, error) {
			amount := int64(racer + 1)
			switch racer % 3 {
			case 0:
				taken, err := f.take(map[string]int64{rpm: amount}, now)
				given.Add(counted(taken, -amount))
				return taken.Applied, err
			case 1:
				taken, err := f.settle(b, debit(rpm, amount))
				given.Add(counted(taken, -amount))
				return taken.Applied, err
			}
			current, err := f.store.Read(f.Context(), first)
			if err != nil {
				return false, err
			}
			use := f.plan(current, quota.Demand{rpm: amount}, now+int64(racer))
			taken, err := f.use(current, use)
			given.Add(counted(taken, -amount))
			for _, change := range use.Changes {
				if change.Limit == rpm {
					dripped.Add(counted(taken, change.Delta))
				}
			}
			return taken.Applied, err
		})
		after := f.decode(f.raw.Get(f, first.PK(), table.StateSK)).Limit(rpm)
		check(f, "balance", after.Balance, 100_000+dripped.Load()+given.Load())
		check(f, "consumed", after.Consumed, -given.Load())
	}},
	{"one window that is told of", func(f *fixture) {
		item := bucket(first, session(sess, 70, 8000, 1, now-9000_000))
		f.raw.Put(f, item)
		won := f.race(func(int) (bool, error) { return f.client().PropagateWindow(f.Context(), first, window) })
		check(f, "told", won, 1)
		f.has(build(item, attrs{"b_sess_ws": window.Start, "b_sess_rsa": 7200, "b_sess_wtc": 0, "vu": 0}))
	}},
	{"one item, inserted differently by each", func(f *fixture) {
		won := f.race(func(racer int) (bool, error) {
			return f.client().Insert(f.Context(), meta("a", attrs{"n": racer}))
		})
		check(f, "inserted", won, 1)
		check(f, "items", len(f.raw.Items(f)), 1)
	}},
	{"one amendment, each expecting what was read", func(f *fixture) {
		f.raw.Put(f, meta("a", attrs{"n": 0}))
		won := f.race(func(racer int) (bool, error) {
			taken, err := f.amend(meta("a", nil), table.Amendment{
				Set: build(table.Item{}, attrs{"n": racer + 1}), Expect: []table.NamedValue{{Name: "n", Value: table.N("0")}},
			})
			return taken.Applied, err
		})
		check(f, "amended", won, 1)
	}},
}

// counted is an amount if it was written.
func counted(taken table.WriteResult, amount int64) int64 {
	if taken.Applied {
		return amount
	}
	return 0
}
