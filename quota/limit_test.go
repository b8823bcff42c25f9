package quota

import (
	"errors"
	"fmt"
	"math"
	"testing"
)

// Instants of these tests. Day is an edge of daily: midnight of 2 January 1970.
const (
	day    = int64(86_400_000)
	hour   = int64(3_600_000)
	second = int64(1000)
)

var (
	daily, _    = ParseResets("1m0h0", "")       // at midnight
	night, _    = ParseSchedule("1h0-5s500", "") // half from midnight to six
	tooLarge, _ = ParseSchedule("1h0-5s1000000000", "")
)

// dripping is a limit that refills to capacity in a minute.
func dripping(name string, balance, capacity int64) Limit {
	return Limit{Name: name, Balance: balance, Base: Params{Capacity: capacity, Refill: capacity, Period: 60_000}}
}

// calendar is a quota that is restored at midnight, granted at a count; 0 makes
// it legacy.
func calendar(name string, balance, capacity int64, grant int) Limit {
	l := Limit{Name: name, Balance: balance, Resets: daily, Base: Params{Capacity: capacity, Period: 1000}}
	if grant != 0 {
		l.Grant = &grant
	}
	return l
}

// session is a quota with a window of an hour from start, which its balance
// reflects; a start of 0 is a window that no use has opened yet.
func session(name string, balance, capacity, start int64, grant int) Limit {
	l := Limit{Name: name, Balance: balance, Window: Window{Length: hour}, Base: Params{Capacity: capacity, Period: 1000}}
	if grant != 0 {
		l.Grant = &grant
	}
	if start != 0 {
		l.Window.Start, l.Window.Applied = &start, &start
	}
	return l
}

func meter(balance int64) Limit {
	return Limit{Name: WriteMeter, Balance: balance, Base: Params{Capacity: 1000_000, Refill: 1000_000, Period: 1000}}
}

// shardOf is a bucket last refilled at a time.
func shardOf(shard, count int, refilled int64, limits ...Limit) *Bucket {
	return &Bucket{Shard: shard, ShardCount: count, RefilledAt: refilled, Limits: limits}
}

func with(l Limit, changes ...func(*Limit)) Limit {
	for _, change := range changes {
		change(&l)
	}
	return l
}

func TestShare(t *testing.T) {
	for _, c := range []struct {
		amount int64
		count  int
		want   int64
	}{
		{1000_000, 1, 1000_000}, {1000_000, 32, 31_250}, {1000_000, 3, 333_333},
		{31, 32, 0}, {0, 8, 0}, {MaxAmount, 32, MaxAmount / 32},
	} {
		if got := Share(c.amount, c.count); got != c.want {
			t.Errorf("Share(%d, %d) = %d, want %d", c.amount, c.count, got, c.want)
		}
	}
}

func TestIsCount(t *testing.T) {
	var counts []int
	for n := -2; n <= 70; n++ {
		if IsCount(n) {
			counts = append(counts, n)
		}
	}
	if got := fmt.Sprint(counts); got != "[1 2 4 8 16 32]" {
		t.Errorf("counts: %s", got)
	}
}

func TestKind(t *testing.T) {
	window := Window{Length: hour}
	for _, c := range []struct {
		name  string
		limit Limit
		want  Kind
	}{
		{"refills", dripping("rpm", 0, 100), Dripping},
		{"reset schedule, no refill", calendar("tpd", 0, 100, 0), Calendar},
		{"window, no refill", session("s", 0, 100, 0, 0), Session},
		{"neither refill, reset schedule nor window", Limit{Name: "once", Base: Params{Capacity: 5}}, Dripping},
		{"window beside a reset schedule", Limit{Name: "x", Resets: daily, Window: window}, Calendar},
		{"refill beside a reset schedule", Limit{Name: "x", Resets: daily, Base: Params{Refill: 1}}, Dripping},
		{"refill beside a window", Limit{Name: "x", Window: window, Base: Params{Refill: 1}}, Dripping},
		{"window start left over from a window that is out of force", Limit{Name: "x", Window: Window{Start: new(day)}}, Dripping},
		{"write meter", meter(0), Meter},
		{"write meter, whatever it carries", Limit{Name: WriteMeter, Resets: daily, Window: window}, Meter},
	} {
		if got := c.limit.Kind(); got != c.want {
			t.Errorf("%s: kind %d, want %d", c.name, got, c.want)
		}
		if got, want := c.limit.IsQuota(), c.want == Calendar || c.want == Session; got != want {
			t.Errorf("%s: quota %t, want %t", c.name, got, want)
		}
	}
}

// A refill that only a schedule gives makes no dripping limit of a quota.
func TestKindIsOfTheBase(t *testing.T) {
	refills, err := ParseSchedule("1h0-5a7", "")
	if err != nil {
		t.Fatal(err)
	}
	l := with(calendar("tpd", 10, 100, 1), func(l *Limit) { l.Schedule = refills })
	pass, err := Materialise(shardOf(0, 1, day, l), nil, day+hour)
	if err != nil || l.Kind() != Calendar || len(pass.Changes) != 0 {
		t.Errorf("kind %d, changes %v, %v", l.Kind(), pass.Changes, err)
	}
}

func TestGrantCount(t *testing.T) {
	const capacity = 1000
	for _, c := range []struct {
		name           string
		balance, topUp int64
		grant          *int
		count, want    int
	}{
		{"as stored", 0, 0, new(2), 8, 2},
		{"as stored, whatever the balance", 1000, 0, new(4), 8, 4},
		{"stored 0 reads as the count", 1000, 0, new(0), 8, 8},
		{"stored below 0 reads as the count", 1000, 0, new(-3), 4, 4},
		{"legacy, exactly a share", 250, 0, nil, 4, 4},
		{"legacy, over a share", 251, 0, nil, 4, 2},
		{"legacy, exactly half", 500, 0, nil, 4, 2},
		{"legacy, over half", 501, 0, nil, 4, 1},
		{"legacy, over everything", 5000, 0, nil, 4, 1},
		{"legacy, spent", 0, 0, nil, 4, 4},
		{"legacy, in debt", -70, 0, nil, 4, 4},
		{"legacy, one shard", 1000, 0, nil, 1, 1},
		{"legacy, a top-up is no grant", 450, 200, nil, 4, 4},
		{"legacy, a share and a top-up", 450, 199, nil, 4, 2},
	} {
		l := Limit{Name: "tpd", Balance: c.balance, TopUp: c.topUp, Grant: c.grant, Resets: daily}
		if got := l.GrantCount(c.count, capacity); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func TestCeiling(t *testing.T) {
	topUp := func(l *Limit) { l.TopUp = 30 }
	for _, c := range []struct {
		name  string
		limit Limit
		count int
		want  int64
	}{
		{"dripping, a share", dripping("rpm", 0, 1001), 4, 250},
		{"dripping, a grant count has no say", with(dripping("rpm", 0, 1001), func(l *Limit) { l.Grant = new(1) }), 4, 250},
		{"dripping, nor has a top-up", with(dripping("rpm", 0, 1001), topUp), 4, 250},
		{"write meter, undivided", meter(0), 8, 1000_000},
		{"calendar, what its grant covers", calendar("tpd", 0, 1001, 2), 8, 500},
		{"calendar, and the top-up", with(calendar("tpd", 0, 1001, 2), topUp), 8, 530},
		{"session", session("s", 0, 1001, day, 4), 8, 250},
		{"session, and the top-up", with(session("s", 0, 1001, day, 4), topUp), 8, 280},
		{"legacy, by its balance", calendar("tpd", 126, 1000, 0), 8, 250},
		{"legacy, less its top-up", with(calendar("tpd", 155, 1000, 0), topUp), 8, 155},
	} {
		capacity := c.limit.Base.Capacity
		if got := c.limit.Ceiling(c.count, capacity); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func TestCurrent(t *testing.T) {
	type quota struct {
		name     string
		limit    Limit
		refilled int64
		now      int64
		want     bool
	}
	window := func(start, applied *int64) Limit {
		return Limit{Name: "s", Window: Window{Length: hour, Start: start, Applied: applied}}
	}
	for _, c := range []quota{
		{"calendar, passed since the edge", calendar("d", 0, 1, 1), day + 1, day + hour, true},
		{"calendar, passed at the edge", calendar("d", 0, 1, 1), day, day + hour, true},
		{"calendar, passed before the edge", calendar("d", 0, 1, 1), day - 1, day + hour, false},
		{"calendar, now at the edge", calendar("d", 0, 1, 1), day - 1, day, false},
		{"calendar, now before the edge", calendar("d", 0, 1, 1), 1, day - 1, true},
		{"calendar, passed ahead of now", calendar("d", 0, 1, 1), day + hour, day, true},
		{"session, live and applied", window(new(day), new(day)), 0, day + hour - 1, true},
		{"session, at its end", window(new(day), new(day)), 0, day + hour, false},
		{"session, never opened", window(nil, nil), day, day + 1, false},
		{"session, a newer start than applied", window(new(day), new(day-hour)), day + 9, day + 1, false},
		{"session, an older start than applied", window(new(day), new(day+1)), 0, day + 1, true},
		{"session without marker, passed since", window(new(day), nil), day, day + 1, true},
		{"session without marker, passed before", window(new(day), nil), day - 1, day + 1, false},
		{"session, the pass has no say beside a marker", window(new(day), new(day)), 5, day + 1, true},
		{"session, starts ahead of now", window(new(day+5), new(day+5)), 5, day, true},
	} {
		if got := c.limit.Current(c.refilled, c.now); got != c.want {
			t.Errorf("%s: %t, want %t", c.name, got, c.want)
		}
	}
}

func TestWindowsLive(t *testing.T) {
	live, ended := session("a", 0, 1, day, 1), session("b", 0, 1, day-hour, 1)
	pending := with(session("c", 0, 1, day, 1), func(l *Limit) { l.Window.Applied = new(day - 1) })
	for _, c := range []struct {
		name   string
		limits []Limit
		want   bool
	}{
		{"no session quota", []Limit{dripping("rpm", 0, 1), calendar("d", 0, 1, 1), meter(0)}, true},
		{"live", []Limit{live}, true},
		{"one of two ended", []Limit{live, ended}, false},
		{"one of two pending", []Limit{live, pending}, false},
		{"none opened", []Limit{session("a", 0, 1, 0, 1)}, false},
		{"a window beside a reset schedule is out of force", []Limit{with(ended, func(l *Limit) { l.Resets = daily })}, true},
	} {
		if got := shardOf(0, 1, day, c.limits...).WindowsLive(day + 1); got != c.want {
			t.Errorf("%s: %t, want %t", c.name, got, c.want)
		}
	}
}

func TestLimitEffective(t *testing.T) {
	scheduled := func(l Limit, s Schedule) Limit {
		return with(l, func(l *Limit) { l.Schedule = s })
	}
	for _, c := range []struct {
		name  string
		limit Limit
		now   int64
		want  Params
	}{
		{"in the entry", scheduled(dripping("rpm", 0, 1000), night), day + hour, Params{500, 500, 60_000}},
		{"outside", scheduled(dripping("rpm", 0, 1000), night), day + 6*hour, Params{1000, 1000, 60_000}},
		{"quota", scheduled(calendar("d", 0, 1000, 1), night), day, Params{500, 0, 1000}},
		{"the write meter is never scheduled", scheduled(meter(0), night), day, Params{1000_000, 1000_000, 1000}},
	} {
		if got, err := c.limit.Effective(c.now); got != c.want || err != nil {
			t.Errorf("%s: %v, %v, want %v", c.name, got, err, c.want)
		}
	}
}

// What a schedule makes too large for the arithmetic to be exact is as good as
// unreadable.
func TestLimitEffectiveBeyondBounds(t *testing.T) {
	for _, capacity := range []int64{MaxAmount/1000_000 + 1, MaxAmount / 1000, MaxAmount} {
		l := with(dripping("rpm", 0, capacity), func(l *Limit) { l.Schedule = tooLarge })
		if _, err := l.Effective(day); !errors.Is(err, ErrSchedule) || !errors.Is(err, ErrOverflow) {
			t.Errorf("capacity %d: %v", capacity, err)
		}
		if err := shardOf(0, 1, 0, l).Readable(day); !errors.Is(err, ErrSchedule) {
			t.Errorf("capacity %d: readable: %v", capacity, err)
		}
		if err := shardOf(0, 1, 0, l).Readable(day + 7*hour); err != nil {
			t.Errorf("capacity %d, outside the entry: %v", capacity, err)
		}
	}
	exact := with(dripping("rpm", 0, MaxAmount/1000_000), func(l *Limit) { l.Schedule = tooLarge })
	if got, err := exact.Effective(day); err != nil || got.Capacity > MaxAmount || got.Capacity < MaxAmount-1000_000 {
		t.Errorf("just within: %v, %v", got, err)
	}
}

func TestReadable(t *testing.T) {
	broken := shardOf(0, 1, 0, dripping("rpm", 0, 1))
	broken.Broken = fmt.Errorf("%w: x", ErrSchedule)
	if err := broken.Readable(day); !errors.Is(err, ErrSchedule) {
		t.Errorf("broken: %v", err)
	}
	if err := shardOf(0, 1, 0, meter(0), calendar("d", 0, 1, 1)).Readable(math.MaxInt64); err != nil {
		t.Errorf("sound: %v", err)
	}
}

func TestLimitByName(t *testing.T) {
	b := shardOf(0, 1, 0, dripping("a", 1, 1), dripping("b", 2, 2))
	if l := b.Limit("b"); l == nil || l.Balance != 2 {
		t.Errorf("b: %v", l)
	}
	b.Limit("a").Balance = 7
	if b.Limits[0].Balance != 7 {
		t.Error("not the bucket's own")
	}
	if l := b.Limit("c"); l != nil {
		t.Errorf("c: %v", l)
	}
}
