package storetest

import (
	"fmt"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

func (f *fixture) settle(b *table.Bucket, corrections ...quota.Adjustment) (table.WriteResult, error) {
	return f.client().Reconcile(f.Context(), b, corrections)
}

// debit and credit are corrections of one limit, the credit up to a ceiling.
func debit(name string, amount int64) quota.Adjustment {
	return quota.Adjustment{Limit: name, Consumed: amount, Balance: -amount}
}

func credit(name string, amount, ceiling int64) quota.Adjustment {
	return quota.Adjustment{Limit: name, Consumed: -amount, Balance: amount, Max: new(ceiling - amount)}
}

// settleChanges are what may happen between reading a bucket and lifting rpm's
// balance from 300 by 100, to at most 500.
var settleChanges = []change{
	{"nothing", nil, true},
	{"spending", attrs{"b_rpm_tk": -9000}, true},
	{"a refund that leaves room", attrs{"b_rpm_tk": 400}, true},
	{"a refund that does not", attrs{"b_rpm_tk": 401}, false},
	{"a refund of what is only debited", attrs{"b_calls_tk": 7000_000}, true},
	{"a pass", attrs{"rf": now + 1}, false},
	{"a clock that went back", attrs{"rf": now - 1}, false},
	{"no pass", attrs{"rf": nil}, false},
	{"another count", attrs{"shard_count": 4}, false},
	{"a lower count", attrs{"shard_count": 1}, false},
	{"no count", attrs{"shard_count": nil}, false},
	{"the limits were changed", attrs{"vu": 0}, false},
	{"another valid-until", attrs{"vu": now + 6}, false},
	{"no valid-until", attrs{"vu": nil}, false},
	{"other terms, which the valid-until would tell", attrs{"b_rpm_cp": 1}, true},
	{"disabled", attrs{"disabled": true}, true},
	{"expired", attrs{"ttl": 1}, true},
	{"a write meter in debt", attrs{"b_wcu_tk": -5}, true},
	{"the limit went", attrs{"b_rpm_tk": nil}, false},
}

var settleCases = []testCase{
	{"each thing that a lift depends on, and a debit does not", func(f *fixture) {
		item := bucket(first, everyType, limit(rpm, 300, 1000), calendar(calls, 70, 8000, 2), attrs{"shard_count": 2, "vu": now + 5})
		b := f.decode(item)
		for _, c := range settleChanges {
			meanwhile := build(item, c.after)
			f.raw.Put(f, meanwhile)
			corrections := []quota.Adjustment{debit(calls, 900), credit(rpm, 100, 500), debit("wcu", 1000)}
			taken, err := f.settle(b, corrections...)
			if !c.holds {
				f.refused(c.name, taken, err, meanwhile)
				taken, err = f.settle(b, corrections[0], corrections[2])
				f.written(c.name+": debits", taken, err, corrected(meanwhile, corrections[0], corrections[2]))
				continue
			}
			f.written(c.name, taken, err, corrected(meanwhile, corrections...))
		}
	}},
	{"the terms are held where the valid-until was 0 already", func(f *fixture) {
		item := bucket(first, limit(rpm, 300, 1000), attrs{"vu": 0})
		b := f.decode(item)
		for _, changed := range []attrs{{"b_rpm_cp": 500}, {"b_rpm_sched": "1h9s500"}, {"sched_tz": "Asia/Tokyo"}, {"disabled": true}} {
			meanwhile := build(item, changed)
			f.raw.Put(f, meanwhile)
			taken, err := f.settle(b, credit(rpm, 100, 1000))
			f.refused("a lift", taken, err, meanwhile)
			taken, err = f.settle(b, debit(rpm, 5))
			f.written("a debit", taken, err, corrected(meanwhile, debit(rpm, 5)))
		}
	}},
	{"a total consumed that goes down without a lift asks for nothing", func(f *fixture) {
		item := bucket(first, limit(rpm, 300, 1000), attrs{"b_rpm_tc": 40})
		b := f.put(item)
		meanwhile := build(item, attrs{"rf": now + 9, "shard_count": 8, "vu": 3})
		f.raw.Put(f, meanwhile)
		taken, err := f.settle(b, quota.Adjustment{Limit: rpm, Consumed: -100}, debit("wcu", 1000))
		f.written("settle", taken, err, build(meanwhile, attrs{"b_rpm_tc": -60, "b_wcu_tk": 999_000, "b_wcu_tc": 1000}))
	}},
	{"a bucket that was never passed, at no count", func(f *fixture) {
		item := bucket(first, limit(rpm, 300, 1000), attrs{"rf": nil, "shard_count": nil})
		b := f.put(item)
		taken, err := f.settle(b, credit(rpm, 100, 1000))
		f.written("settle", taken, err, corrected(item, credit(rpm, 100, 1000)))
	}},
	{"as the rules plan it", func(f *fixture) {
		item := bucket(first, limit(rpm, 300, 1000), calendar(calls, 70, 8000, 1), session(sess, 70, 8000, 1, now-5))
		b := f.put(item)
		taken, err := f.settle(b, quota.Reconcile(&b.Bucket, &b.Bucket, quota.Demand{rpm: -800, calls: -30, sess: 90}, now)...)
		f.written("settle", taken, err, build(item, attrs{
			"b_rpm_tk": 1000, "b_rpm_tc": -800, "b_calls_tk": 100, "b_calls_tc": -30, "b_sess_tk": -20, "b_sess_tc": 90,
			"b_wcu_tk": 999_000, "b_wcu_tc": 1000,
		}))
	}},
	{"nothing to correct", func(f *fixture) {
		item := bucket(first, limit(rpm, 300, 1000))
		b := f.put(item)
		taken, err := f.settle(b)
		f.written("settle", taken, err, item)
	}},
	{"a bucket that is gone", func(f *fixture) {
		b := f.decode(bucket(first, limit(rpm, 300, 1000), attrs{"rf": nil}))
		for _, c := range []quota.Adjustment{debit(rpm, 5), credit(rpm, 5, 1000)} {
			taken, err := f.settle(b, c)
			f.refused("settle", taken, err, nil)
		}
	}},
	{"dozens of limits of any name", func(f *fixture) {
		item, corrections := bucket(first), []quota.Adjustment{debit("wcu", 1000)}
		names := append([]string{"_"}, awkward...)
		for i := range 30 {
			names = append(names, fmt.Sprintf("limit-%d.x", i))
		}
		for i, name := range names {
			item = build(item, limit(name, 100, 1000))
			corrections = append(corrections, credit(name, int64(i)+1, 1000))
		}
		b := f.put(item)
		taken, err := f.settle(b, corrections...)
		f.written("settle", taken, err, corrected(item, corrections...))
	}},
}

// corrected is an item with corrections added.
func corrected(item table.Item, corrections ...quota.Adjustment) table.Item {
	more := attrs{}
	for _, c := range corrections {
		balance, consumed := table.Attr(c.Limit, table.FieldBalance), table.Attr(c.Limit, table.FieldConsumed)
		held, _ := item.Int(balance)
		total, _ := item.Int(consumed)
		more[balance], more[consumed] = held+c.Balance, total+c.Consumed
	}
	return build(item, more)
}

// window is a session window of two hours that began a second after now.
var window = table.OpenedWindow{Limit: sess, Start: now + 1000, Length: 7200_000}

const ended = now + 1000 - 7200_000 // the last start that has ended by then

// tellChanges are the shards that may be told of it.
var tellChanges = []change{
	{"a window that ended long ago", nil, true},
	{"one that ends as it begins", attrs{"b_sess_ws": ended, "b_sess_wa": ended}, true},
	{"one that ends a millisecond later", attrs{"b_sess_ws": ended + 1, "b_sess_wa": ended + 1}, false},
	{"the window itself", attrs{"b_sess_ws": window.Start}, false},
	{"a newer one", attrs{"b_sess_ws": window.Start + 1}, false},
	{"one that ended and was never applied", attrs{"b_sess_ws": ended}, true},
	{"none", attrs{"b_sess_ws": nil, "b_sess_wa": nil}, true},
	{"none but a marker, passed since", attrs{"b_sess_ws": nil, "rf": window.Start + 5}, true},
	{"no marker, passed before", attrs{"b_sess_wa": nil, "rf": window.Start - 1}, true},
	{"no marker, passed as it begins", attrs{"b_sess_wa": nil, "rf": window.Start}, false},
	{"no marker, passed since", attrs{"b_sess_wa": nil, "rf": window.Start + 5}, false},
	{"no marker, never passed", attrs{"b_sess_wa": nil, "rf": nil}, false},
	{"a marker, passed since", attrs{"rf": window.Start + 5}, true},
	{"a marker, never passed", attrs{"rf": nil}, true},
	{"no window length yet", attrs{"b_sess_rsa": nil}, true},
	{"another valid-until", attrs{"vu": now + 77}, true},
	{"nothing consumed yet", attrs{"b_sess_tc": nil}, true},
	{"told before", attrs{"b_sess_wtc": 3}, true},
	{"a start that is no number", attrs{"b_sess_ws": "noon"}, false},
}

var tellCases = []testCase{
	{"each thing that it depends on", func(f *fixture) {
		for _, c := range tellChanges {
			item := bucket(first, everyType, limit(rpm, 1, 2), session(sess, 70, 8000, 1, now-9000_000), attrs{"b_sess_tc": 500}, c.after)
			f.raw.Put(f, item)
			told, err := f.client().PropagateWindow(f.Context(), first, window)
			f.noError(err)
			check(f, "told, where there is "+c.name, told, c.holds)
			if c.holds {
				consumed, _ := item.Int("b_sess_tc")
				item = build(item, attrs{"b_sess_ws": window.Start, "b_sess_rsa": 7200, "b_sess_wtc": consumed, "vu": 0})
			}
			f.has(item)
		}
	}},
	{"told of twice, it is told of once", func(f *fixture) {
		item := bucket(first, session(sess, 70, 8000, 1, now-9000_000))
		f.raw.Put(f, item)
		for _, want := range []bool{true, false} {
			told, err := f.client().PropagateWindow(f.Context(), first, window)
			f.noError(err)
			check(f, "told", told, want)
			f.has(build(item, attrs{"b_sess_ws": window.Start, "b_sess_rsa": 7200, "b_sess_wtc": 0, "vu": 0}))
			f.raw.Put(f, build(f.raw.Get(f, first.PK(), table.StateSK), attrs{"b_sess_tc": 0}))
		}
	}},
	{"no shard", func(f *fixture) {
		told, err := f.client().PropagateWindow(f.Context(), group.At(3), window)
		f.noError(err)
		check(f, "told", told, false)
		f.has()
	}},
	{"what it is told of rolls, and what was consumed since counts", func(f *fixture) {
		f.raw.Put(f, bucket(first, session("b_x_tk", 70, 8000, 1, now-9000_000), attrs{"b_b_x_tk_tc": 500}))
		told, err := f.client().PropagateWindow(f.Context(), first, table.OpenedWindow{Limit: "b_x_tk", Start: now, Length: 7200_000})
		f.noError(err)
		check(f, "told", told, true)
		b := f.put(build(f.raw.Get(f, first.PK(), table.StateSK), attrs{"b_b_x_tk_tc": 560, "b_b_x_tk_tk": 10}))
		use := f.plan(b, quota.Demand{"b_x_tk": 7940}, now+1)
		if len(use.Opens()) != 0 || use.Changes[0].Roll == nil {
			f.Errorf("it does not roll: %+v", use.Changes)
		}
		taken, err := f.use(b, use)
		f.noError(err)
		check(f, "applied", taken.Applied, true)
		check(f, "balance", f.decode(taken.Item).Limit("b_x_tk").Balance, 0)
	}},
}
