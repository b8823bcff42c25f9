package quota

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// show renders a pass on one line, times relative to day.
func show(p *Pass) string {
	if p == nil {
		return "none"
	}
	var parts []string
	for _, why := range p.Why {
		parts = append(parts, string(why))
	}
	parts = append(parts, fmt.Sprintf("| rf %+d", p.RefilledAt-day))
	if p.ValidUntil != nil {
		parts = append(parts, fmt.Sprintf("vu %+d", *p.ValidUntil-day))
	}
	if p.Unbound {
		parts = append(parts, "vu gone")
	}
	parts = append(parts, "|")
	for _, c := range p.Changes {
		text := c.String()
		if c.Restore {
			text += " restored"
		}
		if c.Applied != nil {
			text += fmt.Sprintf(" wa %+d", *c.Applied-day)
		}
		if c.Roll != nil {
			text += fmt.Sprintf(" ws=%+d", *c.Roll-day)
		}
		if c.Open != nil {
			text += " opens " + showOpen(c.Open)
		}
		if c.Max != nil {
			text += fmt.Sprintf(" <=%d", *c.Max)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, " ")
}

func showOpen(o *Open) string {
	if o.Over == nil {
		return fmt.Sprintf("%+d", o.Start-day)
	}
	return fmt.Sprintf("%+d over %+d", o.Start-day, *o.Over-day)
}

func TestPlanPass(t *testing.T) {
	soft := func(l *Limit) { l.Soft = MaxTime }
	valid := func(b *Bucket, valid int64) *Bucket {
		b.ValidUntil = &valid
		return b
	}
	spent := Demand{"rpm": 10, "calls": 10, "s": 10, WriteMeter: 10}
	const s = second
	for _, c := range []struct {
		name   string
		bucket *Bucket
		demand Demand
		now    int64
		want   string
	}{
		// Drips. 60,000 in a minute is one a millisecond.
		{"short of the demand", shardOf(0, 1, day, dripping("rpm", 9, 60_000)), spent, day + 250,
			"short | rf +250 | rpm+250 <=9"},
		{"the demand is covered", shardOf(0, 1, day, dripping("rpm", 10, 60_000)), spent, day + 250, "none"},
		{"no demand", shardOf(0, 1, day, dripping("rpm", 9, 60_000)), nil, day + 250, "none"},
		{"in debt, no demand", shardOf(0, 1, day, dripping("rpm", -300, 60_000)), nil, day + 250,
			"short | rf +250 | rpm+250 <=-300"},
		{"nothing to add yet", shardOf(0, 1, day, dripping("rpm", 9, 60_000)), spent, day, "none"},
		{"less than a millitoken to add", shardOf(0, 1, day, dripping("rpm", 9, 59)), spent, day + s, "none"},
		{"a millitoken to add", shardOf(0, 1, day, dripping("rpm", 9, 60)), spent, day + s, "short | rf +1000 | rpm+1 <=9"},
		{"full", shardOf(0, 1, day, dripping("rpm", 5, 5)), spent, day + s, "none"},
		{"to the ceiling", shardOf(0, 1, day, dripping("rpm", 9, 60_000)), spent, day + 3600*s, "short | rf +3600000 | rpm+59991 <=9"},
		{"the rate is divided before it drips: 1001 // 4 a minute", shardOf(3, 4, day, dripping("rpm", 0, 1001)), spent, day + 30*s,
			"short | rf +30000 | rpm+125 <=0"},
		{"and so is the ceiling", shardOf(3, 4, day, dripping("rpm", 0, 1001)), spent, day + 300*s,
			"short | rf +300000 | rpm+250 <=0"},
		{"a rate that divides to nothing", shardOf(3, 32, day, dripping("rpm", 0, 31)), spent, day + 9000*s, "none"},
		{"over its share after a doubling", shardOf(0, 2, day, dripping("rpm", 900, 1000)), nil, day + s, "over | rf +1000 | rpm-400"},
		{"exactly at its share", shardOf(0, 2, day, dripping("rpm", 500, 1000)), nil, day + s, "none"},
		{"a soft limit never asks for a pass", shardOf(0, 1, day, with(dripping("rpm", 0, 60_000), soft)), spent, day + s, "none"},
		{"not in debt either", shardOf(0, 1, day, with(dripping("rpm", -5, 60_000), soft)), spent, day + s, "none"},
		{"a soft limit is trimmed", shardOf(0, 2, day, with(dripping("rpm", 900, 1000), soft)), spent, day + s,
			"over | rf +1000 | rpm-400"},
		{"the write meter never asks for a pass", shardOf(0, 1, day, meter(0)), spent, day + s, "none"},
		{"never, over its capacity", shardOf(0, 1, day, meter(2000_000)), spent, day + s, "none"},
		{"the write meter is not divided", shardOf(0, 4, day, dripping("rpm", 0, 240_000), meter(0)), spent, day + 500,
			"short | rf +500 | rpm+500 <=0 wcu+500000 <=0"},
		{"an absent time of the last pass is long ago", shardOf(0, 1, 0, dripping("rpm", 0, 60_000)), spent, day,
			"short | rf +0 | rpm+60000 <=0"},

		// A pass tops one limit up and credits every other its accrual.
		{"every limit", shardOf(0, 2, day,
			dripping("a", 70_000, 240_000), dripping("b", 120_000, 240_000), calendar("calls", 300, 1000, 2),
			dripping("rpm", 5, 60_000), with(dripping("soft", 0, 120_000), soft), meter(1000_000)), spent, day + s,
			"short | rf +1000 | a+2000 <=70000 rpm+500 <=5 soft+1000 <=0"},
		{"two reasons", shardOf(0, 2, day, dripping("a", 700, 1000), dripping("rpm", 5, 60_000)), spent, day + s,
			"over short | rf +1000 | a-200 rpm+500 <=5"},

		// The time of the last pass never goes backward, and nothing drips. It moves
		// by a millisecond, so that it is a lock.
		{"behind the last pass", shardOf(0, 1, day, dripping("rpm", 0, 60_000)), spent, day - 1, "none"},
		{"over, at the time of the last pass", shardOf(0, 2, day, dripping("a", 0, 120_000), dripping("rpm", 900, 1000)), nil, day,
			"over | rf +1 | a+1 <=0 rpm-400"},
		{"that millisecond may be an edge", shardOf(0, 2, day-1, calendar("calls", 7, 1000, 2), dripping("rpm", 900, 1000)), nil, day - 1,
			"reset over | rf +0 | calls+493 restored <=7 rpm-400"},
		{"or end a window that nobody applied", shardOf(0, 2, day-1, opened(session("s", 7, 1000, day-3*hour, 2), day-hour, nil), dripping("rpm", 900, 1000)), nil, day - 1,
			"none"},
		{"over, behind the last pass", shardOf(0, 2, day, dripping("a", 0, 60_000), dripping("rpm", 900, 1000)), spent, day - s,
			"over | rf +1 | rpm-400"},

		// Calendar quotas.
		{"a quota does not drip", shardOf(0, 1, day, calendar("calls", 0, 1000, 1)), spent, day + hour, "none"},
		{"an edge has passed", shardOf(0, 1, day-s, calendar("calls", 7, 1000, 1)), nil, day + s, "reset | rf +1000 | calls+993 restored <=7"},
		{"at the edge itself", shardOf(0, 1, day-1, calendar("calls", 7, 1000, 1)), nil, day, "reset | rf +0 | calls+993 restored <=7"},
		{"passed at the edge", shardOf(0, 1, day, calendar("calls", 7, 1000, 1)), nil, day + s, "none"},
		{"to a share at the stored count", shardOf(3, 4, day-s, calendar("calls", 7, 1001, 1)), nil, day + s,
			"reset | rf +1000 | calls+243 restored <=7"},
		{"down, too: the grant before was larger", shardOf(0, 4, day-s, calendar("calls", 900, 1000, 1)), nil, day,
			"reset | rf +0 | calls-650 restored"},
		{"to what it holds already: the grant is a new one", shardOf(0, 4, day-s, calendar("calls", 250, 1000, 1)), nil, day,
			"reset | rf +0 | calls+0 restored"},
		{"out of debt", shardOf(0, 1, day-s, calendar("calls", -50, 1000, 1)), nil, day, "reset | rf +0 | calls+1050 restored <=-50"},
		{"a top-up ends with its period", shardOf(0, 2, day-s, with(calendar("calls", 700, 1000, 2), func(l *Limit) { l.TopUp = 400 })), nil, day,
			"reset | rf +0 | calls-200 restored"},
		{"soft", shardOf(0, 1, day-s, with(calendar("calls", 7, 1000, 1), soft)), nil, day, "reset | rf +0 | calls+993 restored <=7"},
		{"others drip up to it", shardOf(0, 1, day-s, calendar("calls", 7, 1000, 1), dripping("rpm", 0, 60_000)), nil, day + s,
			"reset | rf +1000 | calls+993 restored <=7 rpm+2000 <=0"},
		{"trimmed to what its grant covers, not to a share", shardOf(0, 8, day, calendar("calls", 800, 1000, 2)), nil, day + s,
			"over | rf +1000 | calls-300"},
		{"within its grant", shardOf(0, 8, day, calendar("calls", 500, 1000, 2)), nil, day + s, "none"},
		{"trimmed to its grant and a top-up", shardOf(0, 2, day, with(calendar("calls", 800, 1000, 2), func(l *Limit) { l.TopUp = 40 })), nil, day + s,
			"over | rf +1000 | calls-260"},
		{"a legacy grant is inferred, not trimmed", shardOf(0, 4, day, calendar("calls", 800, 1000, 0)), nil, day + s, "none"},
		{"a legacy grant over everything is", shardOf(0, 4, day, calendar("calls", 1800, 1000, 0)), nil, day + s, "over | rf +1000 | calls-800"},

		// Session quotas. The window is an hour long.
		{"in its window", shardOf(0, 1, day, session("s", 5, 1000, day, 1)), spent, day + s, "none"},
		{"ended and applied: the next use opens another", shardOf(0, 1, day-2*hour, session("s", 5, 1000, day-2*hour, 1)), spent, day, "none"},
		{"rolls, without a total at the open", shardOf(1, 2, day-s, opened(session("s", 5, 1001, day-2*hour, 1), day, nil)), nil, day + s,
			"rolled | rf +1000 | s+495 restored wa +0 ws=+0 <=5"},
		{"rolls, less what was consumed since", shardOf(1, 2, day-s, with(opened(session("s", 5, 1000, day-2*hour, 1), day, new(int64(40))), consumed(130))), nil, day + s,
			"rolled | rf +1000 | s+405 restored wa +0 ws=+0 <=5"},
		{"a refund since is no allowance", shardOf(1, 2, day-s, with(opened(session("s", 5, 1000, day-2*hour, 1), day, new(int64(130))), consumed(40))), nil, day + s,
			"rolled | rf +1000 | s+495 restored wa +0 ws=+0 <=5"},
		{"more consumed than a share", shardOf(1, 2, day-s, with(opened(session("s", 5, 1000, day-2*hour, 1), day, new(int64(0))), consumed(620))), nil, day + s,
			"rolled | rf +1000 | s-125 restored wa +0 ws=+0"},
		{"rolls a window that starts ahead of now", shardOf(1, 2, day, opened(session("s", 5, 1000, day-2*hour, 1), day+3*s, nil)), nil, day + s,
			"rolled | rf +3000 | s+495 restored wa +3000 ws=+3000 <=5"},
		{"and everything goes with it: nothing is restored or dripped in between again", shardOf(1, 2, day-9*second, calendar("calls", 7, 1000, 1),
			dripping("rpm", 0, 120_000), opened(session("s", 5, 1000, day-2*hour, 1), day+s, nil)), nil, day - s,
			"reset rolled | rf +1000 | calls+493 restored <=7 rpm+10000 <=0 s+495 restored wa +1000 ws=+1000 <=5"},
		{"even where another window has ended by then", shardOf(1, 2, day-2*hour,
			opened(session("s", 5, 1000, 1, 1), day-hour, nil), opened(session("u", 5, 1000, 1, 1), day+s, nil)), nil, day - s, "none"},
		{"rolls behind the last pass", shardOf(1, 2, day+9*s, opened(session("s", 5, 1000, day-2*hour, 1), day, nil)), nil, day + s,
			"rolled | rf +9001 | s+495 restored wa +0 ws=+0 <=5"},
		{"without marker, passed before the start", shardOf(1, 2, day-s, with(opened(session("s", 5, 1000, 1, 1), day, nil), unmarked)), nil, day + s,
			"rolled | rf +1000 | s+495 restored wa +0 ws=+0 <=5"},
		{"without marker, passed since: only the marker is missing", shardOf(1, 2, day+1, dripping("rpm", 0, 120_000), with(opened(session("s", 5, 1000, 1, 1), day, nil), unmarked)), spent, day + s,
			"short | rf +1000 | rpm+999 <=0 s+0 wa +0"},
		{"a window that ended unapplied leaves the whole item alone", shardOf(1, 2, day-2*hour,
			dripping("rpm", 5000, 1000), opened(session("s", 5, 1000, day-9*hour, 1), day-hour, nil), calendar("tpd", 0, 1000, 1)), spent, day, "none"},
		{"a millisecond before its end it rolls", shardOf(1, 2, day-2*hour, opened(session("s", 5, 1000, day-9*hour, 1), day-hour, nil)), nil, day - 1,
			"rolled | rf -1 | s+495 restored wa -3600000 ws=-3600000 <=5"},
		{"two windows, one ended unapplied", shardOf(1, 2, day-2*hour,
			opened(session("s", 5, 1000, day-9*hour, 1), day-hour, nil), opened(session("u", 5, 1000, day-9*hour, 1), day-s, nil)), nil, day, "none"},
		{"never opened: no pass opens it", shardOf(0, 1, day-s, session("s", 5, 1000, 0, 0)), spent, day, "none"},
		{"trimmed in its window", shardOf(0, 4, day, session("s", 900, 1000, day, 2)), nil, day + s, "over | rf +1000 | s-400"},
		{"a top-up ends with its window", shardOf(1, 2, day-s, with(opened(session("s", 900, 1000, day-2*hour, 1), day, nil), func(l *Limit) { l.TopUp = 100 })), nil, day,
			"rolled | rf +0 | s-400 restored wa +0 ws=+0"},

		// Schedules.
		{"half from midnight on: trimmed", shardOf(0, 1, day, with(dripping("rpm", 900, 1000), func(l *Limit) { l.Schedule = night })), nil, day + s,
			"over | rf +1000 | rpm-400"},
		{"half the rate", shardOf(0, 2, day, with(dripping("rpm", 0, 240_000), func(l *Limit) { l.Schedule = night })), spent, day + s,
			"short | rf +1000 | rpm+1000 <=0"},
		{"a quota restored to half", shardOf(0, 2, day-s, with(calendar("calls", 0, 1000, 1), func(l *Limit) { l.Schedule = night })), nil, day,
			"reset | rf +0 | calls+250 restored <=0"},

		// A valid-until is stamped again where it has passed and the next boundary
		// is known: then no balance may be above its ceiling.
		{"not passed", valid(shardOf(0, 1, day-s, calendar("calls", 7, 1000, 1)), day+1), nil, day, "reset | rf +0 | calls+993 restored <=7"},
		{"just passed", valid(shardOf(0, 1, day-s, calendar("calls", 7, 1000, 1)), day), nil, day,
			"reset | rf +0 vu +86400000 | calls+993 restored <=7"},
		{"absent", shardOf(0, 1, day-s, calendar("calls", 7, 1000, 1)), nil, day, "reset | rf +0 | calls+993 restored <=7"},
		{"0, after an operator changed the limits", valid(shardOf(0, 2, day-s, calendar("calls", 900, 1000, 1)), 0), nil, day,
			"reset | rf +0 vu +86400000 | calls-400 restored <=900"},
		{"every balance is pinned", valid(shardOf(0, 2, day-s,
			calendar("calls", 500, 1000, 2), dripping("full", 30, 60), dripping("over", 90, 60), dripping("rpm", 10, 120_000), meter(1000_000)), day), nil, day,
			"reset over | rf +0 vu +86400000 | calls+0 restored <=500 full+0 <=30 over-60 <=90 rpm+1000 <=10 wcu+0 <=1000000"},
		{"nothing is bound to time", valid(shardOf(0, 1, day, dripping("rpm", 0, 60_000)), 0), spent, day + s, "short | rf +1000 | rpm+1000 <=0"},
		{"a schedule's boundary", valid(shardOf(0, 1, day, with(dripping("rpm", 0, 120_000), func(l *Limit) { l.Schedule = night })), 0), spent, day + s,
			"short | rf +1000 vu +21600000 | rpm+1000 <=0"},
		{"the earliest of them", valid(shardOf(0, 1, day+hour, calendar("calls", 5, 1000, 1), dripping("rpm", 0, 60_000), session("s", 7, 1000, day+hour, 1)), day), spent, day + hour + s,
			"short | rf +3601000 vu +7200000 | calls+0 <=1000 rpm+1000 <=0 s+0 <=1000"},
		{"a window that has ended has no boundary", valid(shardOf(0, 1, day, dripping("rpm", 0, 60_000), session("s", 7, 1000, day-hour, 1)), 0), spent, day + s,
			"short | rf +1000 | rpm+1000 <=0"},
		{"nor has one that was never opened", valid(shardOf(0, 1, day, dripping("rpm", 0, 60_000), session("s", 7, 1000, 0, 1)), 0), spent, day + s,
			"short | rf +1000 | rpm+1000 <=0"},
		{"a passed valid-until alone is worth no pass", valid(shardOf(0, 1, day, calendar("calls", 7, 1000, 1)), 0), nil, day + s, "none"},
	} {
		c.bucket.Limits = append([]Limit(nil), c.bucket.Limits...)
		pass, err := PlanPass(c.bucket, c.demand, c.now)
		if got := show(pass); got != c.want || err != nil {
			t.Errorf("%s:\n got %s, %v\nwant %s", c.name, got, err, c.want)
		}
		if pass == nil {
			continue
		}
		if pass.ExpectRefilledAt != c.bucket.RefilledAt || pass.ExpectValidUntil != c.bucket.ValidUntil || pass.ShardCount != c.bucket.ShardCount {
			t.Errorf("%s: expects %+v", c.name, pass)
		}
		for _, change := range pass.Changes {
			if limit := c.bucket.Limit(change.Limit); change.Read != limit.Balance {
				t.Errorf("%s: read %d of %s", c.name, change.Read, change.Limit)
			}
		}
	}
}

// opened gives a session quota a window start that its balance does not reflect.
func opened(l Limit, start int64, consumed *int64) Limit {
	l.Window.Start, l.Window.ConsumedAtOpen = &start, consumed
	return l
}

func consumed(amount int64) func(*Limit) { return func(l *Limit) { l.Consumed = amount } }

func unmarked(l *Limit) { l.Window.Applied = nil }

func TestPlanPassLeavesAlone(t *testing.T) {
	due := func() *Bucket {
		return shardOf(0, 2, day-second, calendar("calls", 7, 1000, 1), dripping("rpm", 900, 1000))
	}
	if pass, err := PlanPass(due(), nil, day); show(pass) != "reset over | rf +0 | calls+493 restored <=7 rpm-400" || err != nil {
		t.Fatalf("untouched: %s, %v", show(pass), err)
	}
	disabled := due()
	disabled.Disabled = true
	if pass, err := PlanPass(disabled, nil, day); pass != nil || err != nil {
		t.Errorf("disabled: %s, %v", show(pass), err)
	}
	broken := due()
	broken.Broken = fmt.Errorf("%w: x", ErrSchedule)
	if pass, err := PlanPass(broken, nil, day); pass != nil || !errors.Is(err, ErrSchedule) {
		t.Errorf("undecodable schedule: %s, %v", show(pass), err)
	}
	scaled := due()
	scaled.Limits = append(scaled.Limits, with(dripping("z", 0, MaxAmount), func(l *Limit) { l.Schedule = tooLarge }))
	if pass, err := PlanPass(scaled, nil, day); pass != nil || !errors.Is(err, ErrSchedule) {
		t.Errorf("a schedule that cannot be evaluated: %s, %v", show(pass), err)
	}
	if pass, err := PlanPass(scaled, nil, day+7*hour); pass == nil || err != nil {
		t.Errorf("outside that entry: %s, %v", show(pass), err)
	}
}

func TestApply(t *testing.T) {
	b := shardOf(1, 2, day-second,
		with(calendar("calls", 7, 1000, 1), func(l *Limit) { l.TopUp = 90 }),
		dripping("over", 900, 1000), dripping("rpm", 5, 120_000),
		opened(session("s", 5, 1000, day-2*hour, 1), day-500, nil))
	b.ValidUntil = new(int64(0))
	pass, err := PlanPass(b, nil, day)
	if err != nil {
		t.Fatal(err)
	}
	pass.Apply(b)
	var got []string
	for _, l := range b.Limits {
		text := fmt.Sprintf("%s=%d", l.Name, l.Balance)
		if l.Grant != nil {
			text += fmt.Sprintf(" gc %d tu %d", *l.Grant, l.TopUp)
		}
		if l.Window.Applied != nil {
			text += fmt.Sprintf(" wa %+d", *l.Window.Applied-day)
		}
		got = append(got, text)
	}
	want := "calls=500 gc 2 tu 0, over=500, rpm=1005, s=500 gc 2 tu 0 wa -500"
	if text := strings.Join(got, ", "); text != want {
		t.Errorf("got %s", text)
	}
	if b.RefilledAt != day || *b.ValidUntil != day-500+hour {
		t.Errorf("rf %+d, vu %+d", b.RefilledAt-day, *b.ValidUntil-day)
	}
	if again, err := PlanPass(b, Demand{"rpm": 1 << 40}, day); again != nil || err != nil {
		t.Errorf("a second pass at the same time: %s, %v", show(again), err)
	}
}

// Another limit's passes must not starve a slow one by more than a millitoken
// a pass.
func TestAccrualSurvivesOtherLimitsPasses(t *testing.T) {
	b := shardOf(0, 4, day, dripping("rpm", 0, 600_000), dripping("slow", 0, 7_000_000))
	b.Limits[1].Base.Period = day // 1,750,000 a day on this shard
	const passes = 1000
	for i := range int64(passes) {
		b.Limits[0].Balance = 0
		pass, err := PlanPass(b, Demand{"rpm": 1000_000}, day+(i+1)*10*second)
		if pass == nil || err != nil {
			t.Fatalf("pass %d: %v", i, err)
		}
		if got := pass.Changes[0].Delta; got != 25_000 {
			t.Fatalf("pass %d: rpm%+d", i, got)
		}
		pass.Apply(b)
	}
	exact := int64(1_750_000) * passes * 10 * second / day
	if got := b.Limits[1].Balance; got > exact || got < exact-passes {
		t.Errorf("slow holds %d, %d accrued", got, exact)
	}
}

func TestNextBoundary(t *testing.T) {
	for _, c := range []struct {
		name   string
		limits []Limit
		now    int64
		want   int64
		ok     bool
	}{
		{"nothing bound to time", []Limit{dripping("rpm", 0, 1), meter(0)}, day, 0, false},
		{"reset", []Limit{calendar("d", 0, 1, 1)}, day, 2 * day, true},
		{"before the reset", []Limit{calendar("d", 0, 1, 1)}, day - 1, day, true},
		{"schedule", []Limit{with(dripping("rpm", 0, 1), func(l *Limit) { l.Schedule = night })}, day, day + 6*hour, true},
		{"window", []Limit{session("s", 0, 1, day, 1)}, day + 5, day + hour, true},
		{"window that ended", []Limit{session("s", 0, 1, day-hour, 1)}, day + 5, day, true},
		{"window never opened", []Limit{session("s", 0, 1, 0, 1)}, day + 5, day + 5, true},
		{"earliest", []Limit{calendar("d", 0, 1, 1), session("s", 0, 1, day, 1), with(dripping("rpm", 0, 1), func(l *Limit) { l.Schedule = night })}, day, day + hour, true},
		{"the write meter has no schedule", []Limit{with(meter(0), func(l *Limit) { l.Schedule, l.Resets = night, daily })}, day, 0, false},
		{"a reset schedule beside a refill restores nothing", []Limit{with(dripping("rpm", 0, 1), func(l *Limit) { l.Resets = daily })}, day, 0, false},
	} {
		if got, ok := shardOf(0, 1, 0, c.limits...).NextBoundary(c.now); got != c.want || ok != c.ok {
			t.Errorf("%s: %+d, %t, want %+d, %t", c.name, got-day, ok, c.want-day, c.ok)
		}
	}
}
