package quota

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// showUse renders a use on one line: its pass, and what it takes of each limit.
func showUse(u *Use) string {
	if u == nil {
		return "none"
	}
	parts := []string{show(u.Pass), "| takes"}
	for _, take := range u.Charges {
		text := fmt.Sprintf("%s %d", take.Limit, take.Consumed)
		if take.Debit != take.Consumed {
			text += fmt.Sprintf(" debit %d", take.Debit)
		}
		if take.Least != nil {
			text += fmt.Sprintf(" >=%d", *take.Least)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, " ")
}

// showShort renders what is short, times relative to day.
func showShort(have []Shortage) string {
	var parts []string
	for _, s := range have {
		if !s.Short() {
			continue
		}
		text := fmt.Sprintf("%s %d of %d, at most %d of %d", s.Limit, s.Available, s.Requested, s.Ceiling, s.Capacity)
		if s.Never {
			text += ", never"
		} else {
			text += fmt.Sprintf(", at %+d", s.At-day)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

// valid gives a bucket a valid-until.
func valid(b *Bucket, until int64) *Bucket {
	b.ValidUntil = &until
	return b
}

func bypassed(b *Bucket, until int64) *Bucket {
	b.Bypass = until
	return b
}

func softUntil(until int64) func(*Limit) { return func(l *Limit) { l.Soft = until } }

func atNight(l *Limit) { l.Schedule = night }

func TestPlanUse(t *testing.T) {
	const s = second
	of := func(pairs ...any) Demand {
		demand := Demand{}
		for i := 0; i < len(pairs); i += 2 {
			demand[pairs[i].(string)] = int64(pairs[i+1].(int))
		}
		return demand
	}
	rpm := func(amount int) Demand { return of("rpm", amount) }
	for _, c := range []struct {
		name   string
		bucket *Bucket
		demand Demand
		now    int64
		want   string
	}{
		// Drips. 60,000 in a minute is one a millisecond.
		{"what is there", shardOf(0, 1, day, dripping("rpm", 900, 60_000)), rpm(700), day + 250,
			"| rf +250 | rpm+250 <=900 | takes rpm 700 >=450"},
		{"what has dripped", shardOf(0, 1, day, dripping("rpm", 900, 60_000)), rpm(1150), day + 250,
			"short | rf +250 | rpm+250 <=900 | takes rpm 1150 >=900"},
		{"out of debt", shardOf(0, 1, day, dripping("rpm", -300, 60_000)), rpm(200), day + 500,
			"short | rf +500 | rpm+500 <=-300 | takes rpm 200 >=-300"},
		{"nothing of what is there", shardOf(0, 1, day, dripping("rpm", 900, 60_000)), rpm(0), day + 250,
			"| rf +250 | rpm+250 <=900 | takes rpm 0 >=-250"},
		{"no demand: only a write", shardOf(0, 1, day, dripping("rpm", 900, 60_000), meter(5000)), nil, day + 2,
			"| rf +2 | rpm+2 <=900 wcu+2000 <=5000 | takes wcu 1000"},
		{"a write that the meter does not have", shardOf(0, 1, day, dripping("rpm", 900, 60_000), meter(0)), rpm(1), day,
			"| rf +1 | rpm+1 <=900 wcu+1000 <=0 | takes rpm 1 >=0 wcu 1000"},
		{"the meter's debt is forgiven", shardOf(0, 1, day, dripping("rpm", 900, 60_000), meter(-70_000)), rpm(1), day + 2,
			"| rf +2 | rpm+2 <=900 wcu+70000 <=-70000 | takes rpm 1 >=-1 wcu 1000"},
		{"but for what has dripped by then", shardOf(0, 1, day, dripping("rpm", 900, 60_000), meter(-1500)), rpm(1), day + 2,
			"| rf +2 | rpm+2 <=900 wcu+2000 <=-1500 | takes rpm 1 >=-1 wcu 1000"},
		{"all of its share", shardOf(3, 4, day, dripping("rpm", 0, 1001)), rpm(250), day + 60*s,
			"short | rf +60000 | rpm+250 <=0 | takes rpm 250 >=0"},
		{"with every limit on the bucket brought up to date", shardOf(0, 2, day, calendar("calls", 300, 1000, 2),
			dripping("a", 70_000, 240_000), dripping("rpm", 5, 60_000), meter(1000_000)), of("rpm", 400, "calls", 300), day + s,
			"short | rf +1000 vu +86400000 | calls+0 <=500 a+2000 <=70000 rpm+500 <=5 wcu+0 <=1000000 | takes calls 300 >=300 rpm 400 >=-100 wcu 1000"},
		{"of a balance that is over its ceiling, the trim with it", shardOf(0, 2, day, dripping("rpm", 900, 1000)), rpm(500), day + s,
			"over | rf +1000 | rpm-400 | takes rpm 500 >=900"},

		// The time always moves, which is the lock.
		{"behind the last pass", shardOf(0, 1, day, dripping("rpm", 900, 60_000)), rpm(700), day - 5*s,
			"| rf +1 | rpm+1 <=900 | takes rpm 700 >=699"},
		{"at the last pass", shardOf(0, 1, day, dripping("rpm", 900, 60_000)), rpm(901), day,
			"short | rf +1 | rpm+1 <=900 | takes rpm 901 >=900"},
		{"behind it, and that millisecond is an edge", shardOf(0, 1, day-1, calendar("calls", 7, 1000, 1)), of("calls", 1000), day - s,
			"reset | rf +0 vu +86400000 | calls+993 restored <=7 | takes calls 1000 >=7"},
		{"of a window that a clock ahead started", shardOf(1, 2, day, opened(session("s", 5, 1000, day-2*hour, 1), day+3*s, nil)), of("s", 500), day + s,
			"rolled | rf +3000 vu +3603000 | s+495 restored wa +3000 ws=+3000 <=5 | takes s 500 >=5"},
		{"beside one, where an older window is over by then", shardOf(1, 2, day-s,
			opened(session("s", 5, 1000, day-2*hour, 1), day+3*s, nil), session("u", 5, 1000, day-hour+2*s, 2)), of("u", 400), day + s,
			"opened rolled | rf +3000 vu +3603000 | s+495 restored wa +3000 ws=+3000 <=5 u+495 restored wa +3000 opens +3000 over -3598000 <=5 | takes u 400 >=-95"},

		// Calendar quotas.
		{"of a quota", shardOf(0, 1, day, calendar("calls", 70, 1000, 1)), of("calls", 70), day + hour,
			"| rf +3600000 vu +86400000 | calls+0 <=1000 | takes calls 70 >=70"},
		{"of one that is due", shardOf(0, 2, day-s, calendar("calls", 7, 1001, 1)), of("calls", 500), day + s,
			"reset | rf +1000 vu +86400000 | calls+493 restored <=7 | takes calls 500 >=7"},
		{"of one that is due for less than it holds", shardOf(0, 4, day-s, calendar("calls", 900, 1000, 1)), of("calls", 250), day,
			"reset | rf +0 vu +86400000 | calls-650 restored <=900 | takes calls 250 >=900"},
		{"of one that is due, in debt", shardOf(0, 1, day-s, calendar("calls", -50, 1000, 1)), of("calls", 1), day,
			"reset | rf +0 vu +86400000 | calls+1050 restored <=-50 | takes calls 1 >=-1049"},

		// Session quotas. A use opens a window where none is live; one that lasts an
		// hour.
		{"the first window", shardOf(0, 2, day-s, session("s", 0, 1000, 0, 0)), of("s", 300), day,
			"opened | rf +0 vu +3600000 | s+500 restored wa +0 opens +0 <=0 | takes s 300 >=-200"},
		{"over one that has ended", shardOf(0, 2, day-s, session("s", 40, 1000, day-hour, 1)), of("s", 300), day,
			"opened | rf +0 vu +3600000 | s+460 restored wa +0 opens +0 over -3600000 <=40 | takes s 300 >=-160"},
		{"not a millisecond before it has", shardOf(0, 2, day-s, session("s", 400, 1000, day-hour+1, 2)), of("s", 300), day,
			"| rf +0 vu +1 | s+0 <=500 | takes s 300 >=300"},
		{"over one that ended unapplied", shardOf(0, 2, day-3*hour, opened(session("s", 40, 1000, day-9*hour, 1), day-2*hour, new(int64(7)))), of("s", 500), day,
			"opened | rf +0 vu +3600000 | s+460 restored wa +0 opens +0 over -7200000 <=40 | takes s 500 >=40"},
		{"behind the last pass, from there on", shardOf(0, 2, day, session("s", 40, 1000, day-hour, 1)), of("s", 1), day - s,
			"opened | rf +1 vu +3600001 | s+460 restored wa +1 opens +1 over -3600000 <=40 | takes s 1 >=-459"},
		{"without a marker", shardOf(0, 2, day-s, with(session("s", 40, 1000, day-hour, 1), unmarked)), of("s", 1), day,
			"opened | rf +0 vu +3600000 | s+460 restored wa +0 opens +0 over -3600000 <=40 | takes s 1 >=-459"},
		{"whatever a clock ahead has marked as applied", shardOf(0, 2, day-s, with(session("s", 40, 1000, 0, 1), func(l *Limit) { l.Window.Applied = new(day + hour) })), of("s", 1), day,
			"opened | rf +0 vu +3600000 | s+460 restored wa +0 opens +0 <=40 | takes s 1 >=-459"},
		{"nobody asks for it, and it opens all the same", shardOf(0, 1, day-s, dripping("rpm", 5, 60_000), session("s", 40, 1000, day-hour, 1)), rpm(5), day,
			"opened | rf +0 vu +3600000 | rpm+1000 <=5 s+960 restored wa +0 opens +0 over -3600000 <=40 | takes rpm 5 >=-995"},
		{"beside a live one, a quota that is due and a drip", shardOf(0, 2, day-s, calendar("calls", 7, 1000, 1), dripping("rpm", 5, 120_000),
			session("s", 40, 1000, day-hour, 1), session("u", 300, 1000, day-hour/2, 2), meter(1000_000)), of("s", 1, "u", 2, "calls", 3, "rpm", 4), day,
			"reset opened | rf +0 vu +1800000 | calls+493 restored <=7 rpm+1000 <=5 s+460 restored wa +0 opens +0 over -3600000 <=40 u+0 <=500 wcu+0 <=1000000" +
				" | takes calls 3 >=-490 rpm 4 >=-996 s 1 >=-459 u 2 >=2 wcu 1000"},
		{"a live one that is pending rolls", shardOf(0, 2, day-s, with(opened(session("s", 40, 1000, day-2*hour, 1), day-500, new(int64(5))), consumed(25))), of("s", 480), day,
			"rolled | rf +0 vu +3599500 | s+440 restored wa -500 ws=-500 <=40 | takes s 480 >=40"},
		{"a top-up ends with the window before", shardOf(0, 2, day-s, with(session("s", 700, 1000, day-hour, 2), func(l *Limit) { l.TopUp = 300 })), of("s", 500), day,
			"opened | rf +0 vu +3600000 | s-200 restored wa +0 opens +0 over -3600000 <=700 | takes s 500 >=700"},

		// The valid-until.
		{"stamped where it has passed", valid(shardOf(0, 1, day, calendar("calls", 7, 1000, 1)), day+5), of("calls", 1), day + 5,
			"| rf +5 vu +86400000 | calls+0 <=1000 | takes calls 1 >=1"},
		{"left where it has not", valid(shardOf(0, 1, day, calendar("calls", 7, 1000, 1)), day+6), of("calls", 1), day + 5,
			"| rf +5 | | takes calls 1 >=1"},
		{"left at the boundary", valid(shardOf(0, 1, day, calendar("calls", 7, 1000, 1)), 2*day), of("calls", 1), day + 5,
			"| rf +5 | | takes calls 1 >=1"},
		{"lowered to the boundary", valid(shardOf(0, 1, day, calendar("calls", 7, 1000, 1)), 2*day+1), of("calls", 1), day + 5,
			"| rf +5 vu +86400000 | calls+0 <=1000 | takes calls 1 >=1"},
		{"lowered to the end of the window that it opens", valid(shardOf(0, 1, day, session("s", 7, 1000, day-hour, 1)), day+2*hour), of("s", 1), day + 5,
			"opened | rf +5 vu +3600005 | s+993 restored wa +5 opens +5 over -3600000 <=7 | takes s 1 >=-992"},
		{"to a schedule's boundary", valid(shardOf(0, 1, day, with(dripping("rpm", 900, 1000), atNight)), 0), rpm(1), day + 6,
			"over | rf +6 vu +21600000 | rpm-400 <=900 | takes rpm 1 >=401"},
		{"removed where nothing is bound to time", valid(shardOf(0, 1, day, dripping("rpm", 900, 60_000), meter(1000_000)), 0), rpm(1), day + 5,
			"| rf +5 vu gone | rpm+5 <=900 wcu+0 <=1000000 | takes rpm 1 >=-4 wcu 1000"},
		{"removed though it has not passed", valid(shardOf(0, 1, day, dripping("rpm", 60_000, 60_000)), 2*day), rpm(1), day + 5,
			"| rf +5 vu gone | rpm+0 <=60000 | takes rpm 1 >=1"},

		// What is not enforced.
		{"soft", shardOf(0, 1, day, with(dripping("rpm", 5, 60_000), softUntil(day+11))), rpm(900), day + 10,
			"| rf +10 | rpm+10 <=5 | takes rpm 900"},
		{"a soft quota that is due", shardOf(0, 1, day-s, with(calendar("calls", 5, 1000, 1), softUntil(MaxTime))), of("calls", 2000), day,
			"reset | rf +0 vu +86400000 | calls+995 restored <=5 | takes calls 2000"},
		{"bypassed", bypassed(shardOf(0, 1, day, dripping("rpm", 5, 60_000), with(dripping("soft", 0, 60_000), softUntil(MaxTime)), meter(5000)), day+11), of("rpm", 900, "soft", 1), day + 10,
			"short | rf +10 | rpm+10 <=5 soft+10 <=0 wcu+10000 <=5000 | takes rpm 900 debit 0 soft 1 debit 0 wcu 1000"},
		{"bypassed, without a window", bypassed(shardOf(0, 1, day, dripping("rpm", 5, 60_000), session("s", 400, 1000, 0, 1)), day+11), of("s", 900), day + 10,
			"| rf +0 | | takes s 900 debit 0"},
		{"bypassed by the caller's clock, not by the pass's", bypassed(shardOf(0, 1, day, dripping("rpm", 5, 60_000)), day-s), rpm(900), day - 2*s,
			"short | rf +1 | rpm+1 <=5 | takes rpm 900 debit 0"},
	} {
		use, have, err := PlanUse(c.bucket, c.demand, c.now)
		if got := showUse(use); got != c.want || have != nil || err != nil {
			t.Errorf("%s:\n got %s, %s, %v\nwant %s", c.name, got, showShort(have), err, c.want)
			continue
		}
		if use.ExpectRefilledAt != c.bucket.RefilledAt || use.ExpectValidUntil != c.bucket.ValidUntil || use.ShardCount != c.bucket.ShardCount {
			t.Errorf("%s: expects %+v", c.name, use.Pass)
		}
	}
}

// A use with the demand that is short changes nothing, and says when it is not.
func TestPlanUseShort(t *testing.T) {
	const s = second
	year := func(l *Limit) { l.Schedule, _ = ParseSchedule("1D1M1c50", "Asia/Tokyo") } // 50 tokens on New Year's day
	hourly := func(l *Limit) { l.Resets, _ = ParseResets("1m0", "") }
	for _, c := range []struct {
		name   string
		bucket *Bucket
		demand Demand
		now    int64
		want   string
	}{
		{"a millitoken", shardOf(0, 1, day, dripping("rpm", 900, 60_000)), Demand{"rpm": 1151}, day + 250, "rpm 1150 of 1151, at most 60000 of 60000, at +251"},
		{"a millitoken more than its share", shardOf(0, 2, day, dripping("rpm", 900, 60_001)), Demand{"rpm": 30_001}, day, "rpm 900 of 30001, at most 30000 of 60001, never"},
		{"in debt", shardOf(0, 1, day, dripping("rpm", -900, 60_000)), Demand{"rpm": 1}, day, "rpm -899 of 1, at most 60000 of 60000, at +901"},
		{"nothing, in debt", shardOf(0, 1, day, dripping("rpm", -900, 60_000)), Demand{"rpm": 0}, day, "rpm -899 of 0, at most 60000 of 60000, at +900"},
		{"both of them", shardOf(0, 1, day, calendar("calls", 5, 1000, 1), dripping("ok", 90, 90), dripping("rpm", 900, 60_000)), Demand{"rpm": 1000, "calls": 6, "ok": 1}, day + s/20,
			"calls 5 of 6, at most 1000 of 1000, at +86400000; rpm 950 of 1000, at most 60000 of 60000, at +100"},
		{"behind the last pass", shardOf(0, 1, day, dripping("rpm", 900, 60_000)), Demand{"rpm": 1000}, day - hour, "rpm 901 of 1000, at most 60000 of 60000, at +100"},
		{"a quota, behind a pass that was past an edge", shardOf(0, 1, day+5, calendar("calls", 5, 1000, 1)), Demand{"calls": 6}, day - 5, "calls 5 of 6, at most 1000 of 1000, at +86400000"},
		{"a quota that is due", shardOf(0, 2, day-5, calendar("calls", 900, 1000, 1)), Demand{"calls": 501}, day, "calls 500 of 501, at most 500 of 1000, never"},
		{"a quota's capacity is halved at night", shardOf(0, 1, day, with(calendar("calls", 900, 1000, 1), atNight)), Demand{"calls": 800}, day + 5,
			"calls 500 of 800, at most 500 of 500, at +21600000"},
		{"a grant of more than a share", shardOf(0, 4, day, with(calendar("calls", 400, 1000, 2), atNight)), Demand{"calls": 400}, day + 5,
			"calls 250 of 400, at most 250 of 500, at +21600000"},
		{"a quota that is due is restored to more by day", shardOf(0, 1, day-5, with(calendar("calls", 9, 1000, 1), atNight)), Demand{"calls": 800}, day + 5,
			"calls 500 of 800, at most 500 of 500, at +21600000"},
		{"the edges of a night do not", shardOf(0, 1, day, with(calendar("calls", 9, 1000, 1), atNight), dripping("x", 0, 0)), Demand{"calls": 800}, day + 5,
			"calls 9 of 800, at most 500 of 500, at +108000000"},
		{"the first edge of the day does", shardOf(0, 1, day+hour/2, with(calendar("calls", 9, 1000, 1), atNight, hourly)), Demand{"calls": 501}, day + hour/2,
			"calls 9 of 501, at most 500 of 500, at +21600000"},
		{"until a window ends", shardOf(0, 1, day, session("s", 5, 1000, day-hour/2, 1)), Demand{"s": 6}, day, "s 5 of 6, at most 1000 of 1000, at +1800000"},
		{"until one ends that rolls", shardOf(0, 1, day, with(opened(session("s", 5, 1000, day-2*hour, 1), day+1, new(int64(0))), consumed(400))), Demand{"s": 601}, day + 9,
			"s 600 of 601, at most 1000 of 1000, at +3600001"},
		{"or until the day, where it is still to roll then", shardOf(0, 1, day+5*hour, with(opened(session("s", 5, 1000, day-2*hour, 1), day+5*hour+1, new(int64(0))), atNight, consumed(100))),
			Demand{"s": 500}, day + 5*hour + 9, "s 400 of 500, at most 500 of 500, at +21600000"},
		{"a window that opens, with less than that", shardOf(0, 2, day, session("s", 5, 1000, day-hour, 1)), Demand{"s": 501}, day, "s 500 of 501, at most 500 of 1000, never"},
		{"what never drips", shardOf(0, 1, day, with(dripping("rpm", 5, 1000), func(l *Limit) { l.Base.Refill = 0 })), Demand{"rpm": 6}, day, "rpm 5 of 6, at most 1000 of 1000, never"},
		{"what a shard's part of the rate rounds to nothing", shardOf(0, 32, day, with(dripping("rpm", 5, 1000), func(l *Limit) { l.Base.Refill = 31 })), Demand{"rpm": 6}, day, "rpm 5 of 6, at most 31 of 1000, never"},
		{"once a year", shardOf(0, 1, day, with(dripping("rpm", 20_000, 20_000), year)), Demand{"rpm": 30_000}, day, "rpm 20000 of 30000, at most 20000 of 20000, at +31417200000"},
		{"more than even then", shardOf(0, 1, day, with(dripping("rpm", 20_000, 20_000), year)), Demand{"rpm": 50_001}, day, "rpm 20000 of 50001, at most 20000 of 20000, never"},
		{"as soon as its schedule can be evaluated", shardOf(0, 1, day-hour, with(dripping("rpm", 5, MaxAmount/1000), func(l *Limit) { l.Schedule, l.Base.Refill = tooLarge, 24_000 })), Demand{"rpm": 2_000_000}, day - hour,
			"rpm 5 of 2000000, at most 2305843009213693 of 2305843009213693, at +21600000"},
	} {
		before := copyOf(c.bucket)
		use, have, err := PlanUse(c.bucket, c.demand, c.now)
		if got := showShort(have); got != c.want || use != nil || err != nil {
			t.Errorf("%s:\n got %s, %s, %v\nwant %s", c.name, got, showUse(use), err, c.want)
		}
		if len(have) != len(c.demand) {
			t.Errorf("%s: %d limits told of, %d asked for", c.name, len(have), len(c.demand))
		}
		if fmt.Sprintf("%+v", *before) != fmt.Sprintf("%+v", *c.bucket) {
			t.Errorf("%s: the bucket is %+v now", c.name, c.bucket)
		}
	}
}

func TestPlanUseRefused(t *testing.T) {
	sound := func() *Bucket { return shardOf(0, 1, day, dripping("rpm", 900, 60_000), meter(1000_000)) }
	broken := sound()
	broken.Broken = fmt.Errorf("%w: x", ErrSchedule)
	scaled := sound()
	scaled.Limits = append(scaled.Limits, with(dripping("z", 0, MaxAmount), func(l *Limit) { l.Schedule = tooLarge }))
	spent := sound()
	spent.Limits[0].Consumed = MaxAmount - 5
	owing := shardOf(0, 1, day, with(dripping("rpm", 5-MaxAmount, 0), softUntil(MaxTime)))
	for _, c := range []struct {
		name   string
		bucket *Bucket
		demand Demand
		want   error
	}{
		{"an unknown limit", sound(), Demand{"rpm": 1, "tpm": 1}, ErrNoLimit},
		{"an unknown limit, of which nothing is asked", sound(), Demand{"tpm": 0}, ErrNoLimit},
		{"the write meter", sound(), Demand{WriteMeter: 1}, ErrNoLimit},
		{"a broken schedule", broken, Demand{"rpm": 1}, ErrSchedule},
		{"a broken schedule before all", broken, Demand{"tpm": 1}, ErrSchedule},
		{"another limit's schedule cannot be evaluated", scaled, Demand{"rpm": 1}, ErrSchedule},
		{"less than nothing", sound(), Demand{"rpm": -1}, ErrAmount},
		{"more than an item can hold", sound(), Demand{"rpm": MaxAmount + 1}, ErrAmount},
		{"a total of more than that", spent, Demand{"rpm": 6}, ErrAmount},
		{"a debt of more than that", owing, Demand{"rpm": 6}, ErrAmount},
	} {
		use, have, err := PlanUse(c.bucket, c.demand, day+9)
		if use != nil || have != nil || !errors.Is(err, c.want) {
			t.Errorf("%s: %s, %v, %v", c.name, showUse(use), have, err)
		}
	}
	for name, b := range map[string]*Bucket{"total": spent, "debt": owing} {
		if use, _, err := PlanUse(b, Demand{"rpm": 5}, day+9); use == nil || err != nil {
			t.Errorf("the largest %s: %v", name, err)
		}
	}
}

// What is opened is what the other shards are told of.
func TestOpens(t *testing.T) {
	b := shardOf(0, 2, day-second, dripping("rpm", 5, 60), session("s", 40, 1000, day-hour, 1), session("t", 40, 1000, day-hour/2, 1),
		opened(session("u", 40, 1000, day-2*hour, 1), day-second/2, nil), session("v", 40, 1000, 0, 1))
	use, _, err := PlanUse(b, Demand{"rpm": 1}, day)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, change := range use.Opens() {
		got = append(got, change.Limit+" "+showOpen(change.Open))
	}
	if text := strings.Join(got, ", "); text != "s +0 over -3600000, v +0" {
		t.Errorf("got %s", text)
	}
	if why := fmt.Sprint(use.Why); why != "[opened opened rolled]" {
		t.Errorf("why: %s", why)
	}
}

// A window whose end no item can hold leaves a valid-until that one can.
func TestUseOfAnEndlessWindow(t *testing.T) {
	b := shardOf(0, 1, day, with(session("s", 5, 1000, 0, 1), func(l *Limit) { l.Window.Length = MaxTime }))
	use, _, err := PlanUse(b, Demand{"s": 1}, day)
	if err != nil || use.ValidUntil == nil || *use.ValidUntil != MaxTime {
		t.Errorf("%s, %v", showUse(use), err)
	}
}
