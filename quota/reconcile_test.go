package quota

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// showAdjustments renders adjustments: of each limit what comes to its total
// consumed and to its balance, and what that must not be above.
func showAdjustments(adjustments []Adjustment) string {
	var parts []string
	for _, c := range adjustments {
		text := fmt.Sprintf("%s %+d %+d", c.Limit, c.Consumed, c.Balance)
		if c.Max != nil {
			text += fmt.Sprintf(" <=%d", *c.Max)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

func TestReconcile(t *testing.T) {
	back := Demand{"q": -100}
	hourly, _ := ParseResets("1m0", "")
	on := func(l Limit) *Bucket { return shardOf(0, 2, day+hour/2, l) }
	was := func(l Limit, changes ...func(*Bucket)) *Bucket {
		b := shardOf(0, 2, day+hour/4, l)
		for _, change := range changes {
			change(b)
		}
		return b
	}
	at := func(refilled int64) func(*Bucket) { return func(b *Bucket) { b.RefilledAt = refilled } }
	window := func(start, applied int64) func(*Limit) {
		return func(l *Limit) { l.Window.Start, l.Window.Applied = &start, &applied }
	}
	drips, quota, windowed := dripping("q", 300, 1000), calendar("q", 300, 1000, 2), session("q", 300, 1000, day, 2)
	for _, c := range []struct {
		name     string
		b, taken *Bucket
		used     Demand
		want     string
	}{
		{"more", on(drips), was(drips), Demand{"q": 120}, "q +120 -120"},
		{"more than there is", on(drips), was(drips), Demand{"q": 1000}, "q +1000 -1000"},
		{"more of a quota, across its edge", on(quota), was(quota, at(day-1)), Demand{"q": 1000}, "q +1000 -1000"},
		{"exactly what was taken", on(drips), was(drips), Demand{"q": 0}, ""},
		{"nothing told of", on(drips), was(drips), nil, ""},
		{"less", on(drips), was(drips), back, "q -100 +100 <=400"},
		{"less, up to the ceiling", on(drips), was(drips), Demand{"q": -200}, "q -200 +200 <=300"},
		{"less, past the ceiling", on(drips), was(drips), Demand{"q": -201}, "q -201 +200 <=300"},
		{"less, at the ceiling", on(dripping("q", 500, 1000)), was(drips), back, "q -100 +0"},
		{"less, above the ceiling", on(dripping("q", 600, 1000)), was(drips), back, "q -100 +0"},
		{"less, in debt", on(dripping("q", -40, 1000)), was(drips), back, "q -100 +100 <=400"},
		{"the ceiling is that of now", shardOf(0, 2, day, with(drips, atNight)), was(drips), back, "q -100 +0"},
		{"less of what drips, whenever it was taken", on(drips), was(drips, at(day-5*hour)), back, "q -100 +100 <=400"},
		{"a limit that is gone", on(dripping("other", 1, 1)), was(drips), back, ""},
		{"a limit that was not there", on(drips), was(dripping("other", 1, 1)), back, "q -100 +0"},
		{"the write meter", shardOf(0, 1, day, drips, meter(0)), was(drips), nil, "wcu +1000 -1000"},
		{"the write meter, told of or not", shardOf(0, 1, day, drips, meter(1000_000)), shardOf(0, 1, day, drips, meter(0)), Demand{WriteMeter: -7}, "wcu +1000 -1000"},
		{"soft limits too", on(with(drips, softUntil(MaxTime))), was(drips), back, "q -100 +100 <=400"},

		// A quota is lifted within its period alone.
		{"a quota", on(quota), was(quota), back, "q -100 +100 <=400"},
		{"taken at the edge", on(quota), was(quota, at(day)), back, "q -100 +100 <=400"},
		{"taken before the edge", on(quota), was(quota, at(day-1)), back, "q -100 +0"},
		{"no edge between but one to come", shardOf(0, 2, day-9, quota), was(quota, at(day-hour)), back, "q -100 +100 <=400"},
		{"its grant is its ceiling, not a share", shardOf(0, 8, day+hour/2, quota), was(quota), Demand{"q": -300}, "q -300 +200 <=300"},
		{"and a top-up with it", shardOf(0, 8, day+hour/2, with(quota, func(l *Limit) { l.TopUp = 50 })), was(quota), Demand{"q": -300}, "q -300 +250 <=300"},
		{"restored by an operator", on(with(quota, func(l *Limit) { l.ResetCount = 1 })), was(quota), back, "q -100 +0"},
		{"restored by an operator before", on(with(quota, func(l *Limit) { l.ResetCount = 3 })), was(with(quota, func(l *Limit) { l.ResetCount = 3 })), back, "q -100 +100 <=400"},
		{"given another calendar since an edge of the old one", shardOf(0, 2, day+hour, quota), was(with(quota, func(l *Limit) { l.Resets = hourly })), back, "q -100 +0"},
		{"given another calendar with an edge", shardOf(0, 2, day+hour, with(quota, func(l *Limit) { l.Resets = hourly })), was(quota), back, "q -100 +0"},
		{"dripping before", on(quota), was(drips), back, "q -100 +0"},
		{"a quota before", on(drips), was(quota), back, "q -100 +0"},

		{"a window", on(windowed), was(windowed), back, "q -100 +100 <=400"},
		{"another window", on(session("q", 300, 1000, day+1, 2)), was(windowed), back, "q -100 +0"},
		{"a window told of since", on(with(windowed, window(day+1, day))), was(windowed), back, "q -100 +0"},
		{"one that was told of then", on(with(windowed, window(day+1, day+1))), was(with(windowed, window(day+1, day))), back, "q -100 +0"},
		{"no marker: the period is unknown", on(with(windowed, unmarked)), was(with(windowed, unmarked)), back, "q -100 +0"},
		{"never opened", on(session("q", 300, 1000, 0, 2)), was(session("q", 300, 1000, 0, 2)), back, "q -100 +0"},

		// What cannot be known to have been taken off a balance is not put back.
		{"bypassed", on(drips), bypassed(was(drips), day+hour), back, "q -100 +0"},
		{"bypassed until the pass", on(drips), bypassed(was(drips), day+hour/4), back, "q -100 +100 <=400"},
		{"bypassed since", bypassed(on(drips), day+hour), was(drips), back, "q -100 +100 <=400"},
		{"an unreadable schedule", &Bucket{ShardCount: 1, Limits: []Limit{drips}, Broken: ErrSchedule}, was(drips), back, "q -100 +0"},
		{"more, of an unreadable schedule", &Bucket{ShardCount: 1, Limits: []Limit{drips}, Broken: ErrSchedule}, was(drips), Demand{"q": 5}, "q +5 -5"},
		{"a schedule that cannot be evaluated", shardOf(0, 1, day, with(dripping("q", 0, MaxAmount), func(l *Limit) { l.Schedule = tooLarge })), was(drips), back, "q -100 +0"},

		{"several", shardOf(0, 2, day+hour/2, calendar("calls", 7, 1000, 2), drips, windowed, meter(5)),
			shardOf(0, 2, day-1, calendar("calls", 7, 1000, 2), drips, windowed, meter(5)), Demand{"calls": -5, "q": 6},
			"calls -5 +0, q +6 -6, q +6 -6, wcu +1000 -1000"},
		{"the largest", on(dripping("q", -MaxAmount, MaxAmount)), was(drips), Demand{"q": -MaxAmount}, "q -2305843009213693952 +2305843009213693952 <=-1152921504606846976"},
		{"the largest, of the largest", on(with(calendar("q", -MaxAmount, MaxAmount, 1), func(l *Limit) { l.TopUp = MaxAmount })), was(quota), Demand{"q": -MaxAmount}, "q -2305843009213693952 +2305843009213693952 <=2305843009213693952"},
	} {
		if got := showAdjustments(Reconcile(c.b, c.taken, c.used, day+hour/2)); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

// Whatever happened between a use and its settling: what is given back lifts no
// balance above its ceiling, and no quota's after a restore.
func TestReconcileLiftsWithinItsPeriod(t *testing.T) {
	lifts, kept := 0, 0
	for seed := range uint64(10_000) {
		r := rand.New(rand.NewPCG(seed, 9))
		taken, now := scheduledBucket(r)
		b, restored := copyOf(taken), map[string]bool{}
		for range r.IntN(3) {
			now += r.Int64N(2 * day)
			use, _, err := PlanUse(b, nil, now)
			if err != nil {
				t.Fatal(err)
			}
			use.Apply(b)
			for _, change := range use.Changes {
				restored[change.Limit] = restored[change.Limit] || change.Restore
			}
		}
		used := Demand{}
		for _, l := range b.Limits {
			used[l.Name] = r.Int64N(40_000) - 30_000
		}
		for _, c := range Reconcile(b, taken, used, now) {
			l := b.Limit(c.Limit)
			params, _ := l.Effective(now)
			ceiling := l.Ceiling(b.ShardCount, params.Capacity)
			switch {
			case c.Consumed != used[c.Limit]:
				t.Fatalf("seed %d: %s: %d consumed", seed, c.Limit, c.Consumed)
			case used[c.Limit] > 0 && (c.Balance != -used[c.Limit] || c.Max != nil):
				t.Fatalf("seed %d: %s: debited by %+v", seed, c.Limit, c)
			case c.Balance <= 0:
			case c.Balance > -used[c.Limit] || l.Balance+c.Balance > ceiling || c.Max == nil || *c.Max+c.Balance > ceiling || *c.Max < l.Balance:
				t.Fatalf("seed %d: %s: %+v at %d, at most %d", seed, c.Limit, c, l.Balance, ceiling)
			case l.IsQuota() && restored[c.Limit]:
				t.Fatalf("seed %d: %s: %+v, but it was restored since", seed, c.Limit, c)
			case l.IsQuota():
				kept++
			default:
				lifts++
			}
		}
	}
	if lifts < 700 || kept < 1700 {
		t.Errorf("%d lifts, %d of quotas: the input tests too little", lifts, kept)
	}
}
