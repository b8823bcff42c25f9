package storetest

import (
	"errors"
	"maps"
	"strings"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

func (f *fixture) take(amounts map[string]int64, now int64) (table.WriteResult, error) {
	return f.client().Charge(f.Context(), first, table.FastCharge{Amounts: amounts, Now: now})
}

// charged is an item after a write that took amounts.
func charged(item table.Item, amounts map[string]int64) table.Item {
	taken := []quota.Adjustment{debit(quota.WriteMeter, quota.WriteCost)}
	for name, amount := range amounts {
		taken = append(taken, debit(name, amount))
	}
	return corrected(item, taken...)
}

// takeChanges are what a bucket may be like when 1000 are taken of rpm, of which
// there are 5000, and whether that is done.
var takeChanges = []change{
	{"nothing special", nil, true},
	{"exactly enough", attrs{"b_rpm_tk": 1000}, true},
	{"a millitoken less", attrs{"b_rpm_tk": 999}, false},
	{"debt", attrs{"b_rpm_tk": -1}, false},
	{"another limit's debt", attrs{"b_calls_tk": -1}, true},
	{"more than the capacity", attrs{"b_rpm_tk": 90_000}, true},

	{"soft, with nothing left", attrs{"b_rpm_tk": 0, "b_rpm_soft": now + 1}, true},
	{"soft, in debt", attrs{"b_rpm_tk": -7000, "b_rpm_soft": now + 1}, true},
	{"soft until now", attrs{"b_rpm_tk": 999, "b_rpm_soft": now}, false},
	{"soft until now, with enough", attrs{"b_rpm_soft": now}, true},
	{"another limit is soft", attrs{"b_rpm_tk": 999, "b_calls_soft": now + 1}, false},
	{"bypassed, with enough: that is left to a free take", attrs{"bypass": now + 1}, false},
	{"bypassed until now", attrs{"bypass": now}, true},
	{"a bypass that is no number", attrs{"bypass": true}, false},

	{"disabled", attrs{"disabled": true}, false},
	{"not disabled", attrs{"disabled": false}, true},
	{"expired", attrs{"ttl": now / 1000}, false},
	{"expires in a second", attrs{"ttl": now/1000 + 1}, true},
	{"expired long ago", attrs{"ttl": 1}, false},
	{"an expiry that is no number", attrs{"ttl": "soon"}, false},
	{"valid for a millisecond", attrs{"vu": now + 1}, true},
	{"valid until now", attrs{"vu": now}, false},
	{"the limits were changed", attrs{"vu": 0}, false},
	{"a valid-until that is no number", attrs{"vu": "ever"}, false},
	{"a fraction of a millisecond", attrs{"vu": table.N("1796086800000.5")}, true},
	{"a fraction of a second", attrs{"ttl": table.N("1796086800.001")}, true},

	{"one write left", attrs{"b_wcu_tk": 1000}, true},
	{"not quite one write left", attrs{"b_wcu_tk": 999}, false},
	{"no write meter", attrs{"b_wcu_tk": nil}, false},

	{"passed long ago", attrs{"rf": 1}, true},
	{"never passed", attrs{"rf": nil}, true},
	{"another count", attrs{"shard_count": 16}, true},
	{"nothing consumed yet", attrs{"b_rpm_tc": nil}, true},
	{"a limit without a capacity", attrs{"b_rpm_cp": nil}, false},
	{"a limit without a balance", attrs{"b_rpm_tk": nil}, false},
	{"a soft limit without a capacity", attrs{"b_rpm_cp": nil, "b_rpm_soft": now + 1}, false},
	{"a soft limit without a balance", attrs{"b_rpm_tk": nil, "b_rpm_soft": now + 1}, false},
	{"no such limit but a soft stamp", attrs{"b_rpm_tk": nil, "b_rpm_tc": nil, "b_rpm_cp": nil, "b_rpm_ra": nil, "b_rpm_rp": nil, "b_rpm_soft": now + 1}, false},
	{"a balance that is no number", attrs{"b_rpm_tk": "much"}, false},
}

// freeChanges are what a bucket may be like when 1000 are metered of rpm as of a
// bucket that is bypassed.
var freeChanges = []change{
	{"bypassed", attrs{"bypass": now + 1}, true},
	{"not bypassed", nil, false},
	{"bypassed until now", attrs{"bypass": now}, false},
	{"a bypass that is no number", attrs{"bypass": true}, false},
	{"nothing left", attrs{"bypass": now + 1, "b_rpm_tk": -5000, "vu": 0, "b_wcu_tk": -1000}, true},
	{"disabled", attrs{"bypass": now + 1, "disabled": true}, false},
	{"expired", attrs{"bypass": now + 1, "ttl": now / 1000}, false},
	{"no write meter", attrs{"bypass": now + 1, "b_wcu_tk": nil}, false},
	{"a limit without a capacity", attrs{"bypass": now + 1, "b_rpm_cp": nil}, false},
	{"a limit without a balance", attrs{"bypass": now + 1, "b_rpm_tk": nil}, false},
}

var takeCases = []testCase{
	{"a free take meters what is bypassed, and takes nothing", func(f *fixture) {
		for _, c := range freeChanges {
			item := bucket(first, everyType, limit(rpm, 5000, 60_000), calendar(calls, 500, 1000, 1), c.after)
			f.raw.Put(f, item)
			taken, err := f.client().Charge(f.Context(), first, table.FastCharge{Amounts: map[string]int64{rpm: 1000}, Now: now, Free: true})
			if !c.holds {
				f.refused(c.name, taken, err, item)
				continue
			}
			metered := corrected(item, debit(quota.WriteMeter, quota.WriteCost), quota.Adjustment{Limit: rpm, Consumed: 1000})
			f.written(c.name, taken, err, metered)
		}
	}},
	{"each thing that a take depends on", func(f *fixture) {
		amounts := map[string]int64{rpm: 1000}
		for _, c := range takeChanges {
			item := bucket(first, everyType, limit(rpm, 5000, 60_000), calendar(calls, 500, 1000, 1), c.after)
			f.raw.Put(f, item)
			taken, err := f.take(amounts, now)
			if c.holds {
				f.written(c.name, taken, err, charged(item, amounts))
			} else {
				f.refused(c.name, taken, err, item)
			}
		}
	}},
	{"a hot take may put the write meter into debt, and no other", func(f *fixture) {
		for _, c := range []struct {
			name       string
			meter      any
			cool, warm bool
		}{
			{"a write left", 1000, true, true}, {"not quite one", 999, false, true}, {"debt", -70_000, false, true}, {"no meter", nil, false, false},
		} {
			for _, hot := range []bool{false, true, false} { // whatever was asked before
				item := bucket(first, limit(rpm, 5000, 60_000), attrs{"b_wcu_tk": c.meter})
				f.raw.Put(f, item)
				taken, err := f.client().Charge(f.Context(), first, table.FastCharge{Amounts: map[string]int64{rpm: 1000}, Now: now, Hot: hot})
				if hot && c.warm || !hot && c.cool {
					f.written(c.name, taken, err, charged(item, map[string]int64{rpm: 1000}))
				} else {
					f.refused(c.name, taken, err, item)
				}
			}
		}
		item := bucket(first, limit(rpm, 999, 60_000), attrs{"vu": now})
		f.raw.Put(f, item)
		for _, amounts := range []map[string]int64{{rpm: 1000}, nil} {
			taken, err := f.client().Charge(f.Context(), first, table.FastCharge{Amounts: amounts, Now: now, Hot: true})
			f.refused("nothing else is allowed", taken, err, item)
		}
	}},
	{"takes of other limits, and of others at other times", func(f *fixture) {
		item := bucket(first, limit("a", 100, 60_000), limit("b", 100, 60_000), attrs{"vu": now + 50})
		f.raw.Put(f, item)
		for i, amounts := range []map[string]int64{{"a": 1}, {"a": 2, "b": 3}, {"b": 4}, {"b": 5, "a": 6}, nil, {"a": 7}} {
			taken, err := f.take(amounts, now+int64(i))
			f.written("take", taken, err, charged(item, amounts))
			item = charged(item, amounts)
		}
		for _, amounts := range []map[string]int64{{"a#b": 1}, {"a": 1, "b#": 1}, {"": 1}, {"a": 1, "b": 89}} {
			taken, err := f.take(amounts, now)
			f.refused("of what is not there", taken, err, item)
		}
		taken, err := f.take(map[string]int64{"a": 1}, now+50)
		f.refused("too late", taken, err, item)
	}},
	{"the expiry is in seconds, now in milliseconds", func(f *fixture) {
		item := bucket(first, limit(rpm, 5000, 60_000), attrs{"ttl": now/1000 + 1})
		f.raw.Put(f, item)
		taken, err := f.take(nil, now+1000)
		f.refused("a second later", taken, err, item)
		taken, err = f.take(nil, now+999)
		f.written("less than a second later", taken, err, charged(item, nil))
	}},
	{"no bucket", func(f *fixture) {
		taken, err := f.take(map[string]int64{rpm: 1}, now)
		f.refused("take", taken, err, nil)
	}},
	{"nothing but the write", func(f *fixture) {
		item := bucket(first, limit(rpm, -5, 60_000))
		f.raw.Put(f, item)
		taken, err := f.take(nil, now)
		f.written("take", taken, err, charged(item, nil))
	}},
	{"nothing of a limit", func(f *fixture) {
		item := bucket(first, limit(rpm, 0, 60_000), limit("tpm", -1, 60_000))
		f.raw.Put(f, item)
		taken, err := f.take(map[string]int64{"tpm": 0}, now)
		f.refused("in debt", taken, err, item)
		taken, err = f.take(map[string]int64{rpm: 0}, now)
		f.written("with nothing", taken, err, charged(item, map[string]int64{rpm: 0}))
	}},
	{"all or nothing", func(f *fixture) {
		item := bucket(first, limit("a", 10, 60_000), limit("b", 10, 60_000), limit("c", 10, 60_000))
		f.raw.Put(f, item)
		for _, amounts := range []map[string]int64{{"a": 1, "b": 11, "c": 1}, {"a": 1, "z": 0}, {"z": 1}} {
			taken, err := f.take(amounts, now)
			f.refused("too much of one", taken, err, item)
		}
		amounts := map[string]int64{"a": 10, "b": 1}
		taken, err := f.take(amounts, now)
		f.written("enough of each", taken, err, charged(item, amounts))
	}},
	{"a part of a limit is not made whole", func(f *fixture) {
		for _, part := range []string{"b_x_tk_tk", "b_x_tk_cp", "b_x_tk_soft"} {
			item := bucket(first, limit(rpm, 10, 60_000), attrs{part: now + 1})
			f.raw.Put(f, item)
			taken, err := f.take(map[string]int64{"x_tk": 1}, now)
			f.refused(part, taken, err, item)
		}
	}},
	{"limits of any name", func(f *fixture) {
		item, amounts := bucket(first), map[string]int64{}
		for i, name := range append([]string{"_"}, awkward...) {
			item = build(item, limit(name, 100, 60_000))
			amounts[name] = int64(i)
		}
		f.raw.Put(f, item)
		taken, err := f.take(amounts, now)
		want := charged(item, amounts)
		f.written("take", taken, err, want)
		f.raw.Put(f, build(want, attrs{"b_b_x_tk_tk": 3}))
		taken, err = f.take(amounts, now)
		f.refused("one short of one", taken, err, build(want, attrs{"b_b_x_tk_tk": 3}))
	}},
	{"what no take can ask for", func(f *fixture) {
		item := bucket(first, limit(rpm, 10, 60_000), limit("most", quota.MaxAmount, quota.MaxAmount))
		f.raw.Put(f, item)
		for name, amounts := range map[string]map[string]int64{
			"less than nothing": {rpm: -1}, "the write meter": {rpm: 1, quota.WriteMeter: 0}, "too much": {"most": quota.MaxAmount + 1},
		} {
			_, err := f.take(amounts, now)
			if !errors.Is(err, table.ErrRequest) || errors.Is(err, table.ErrRetry) || strings.Contains(err.Error(), group.Entity) {
				f.Errorf("%s: %v", name, err)
			}
		}
		f.has(item)
		amounts := map[string]int64{"most": quota.MaxAmount}
		taken, err := f.take(amounts, now)
		f.written("the most", taken, err, charged(item, amounts))
	}},
	{"the amounts stay the caller's, and the item the table's", func(f *fixture) {
		item := bucket(first, limit(rpm, 10, 60_000))
		f.raw.Put(f, item)
		amounts := map[string]int64{rpm: 3}
		taken, err := f.take(amounts, now)
		f.noError(err)
		if !maps.Equal(amounts, map[string]int64{rpm: 3}) {
			f.Errorf("got %v", amounts)
		}
		delete(taken.Item, "b_rpm_tk")
		f.has(charged(item, amounts))
	}},
}
