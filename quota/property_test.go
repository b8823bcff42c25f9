package quota

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// randomBucket makes a bucket of every kind of limit in every state, at most
// two days before day's midnight, and what was just consumed.
func randomBucket(r *rand.Rand, schedules bool) (*Bucket, Demand) {
	b := &Bucket{
		Shard:      r.IntN(4),
		ShardCount: 1 << r.IntN(6),
		RefilledAt: day + r.Int64N(2*day) - day,
	}
	if r.IntN(2) == 0 {
		b.ValidUntil = new([]int64{0, b.RefilledAt, day, 3 * day}[r.IntN(4)])
	}
	demand := Demand{}
	for i := range 1 + r.IntN(5) {
		l := randomLimit(r, fmt.Sprint("l", i), b.RefilledAt)
		if schedules && r.IntN(3) == 0 {
			l.Schedule = night
		}
		b.Limits = append(b.Limits, l)
		demand[l.Name] = r.Int64N(4000) - 1000
	}
	b.Limits = append(b.Limits, meter(r.Int64N(1200_000)))
	return b, demand
}

func randomLimit(r *rand.Rand, name string, refilled int64) Limit {
	capacity := r.Int64N(100_000)
	l := Limit{
		Name:     name,
		Balance:  r.Int64N(2*capacity+1000) - capacity/2,
		Consumed: r.Int64N(5000),
		Base:     Params{Capacity: capacity, Period: 1 + r.Int64N(100_000)},
		Soft:     MaxTime * int64(max(0, r.IntN(5)-3)),
	}
	switch r.IntN(3) {
	case 0:
		l.Base.Refill = r.Int64N(100_000)
		return l
	case 1:
		l.Resets = daily
	case 2:
		l.Window = randomWindow(r, refilled)
	}
	if r.IntN(3) > 0 {
		l.Grant = new(r.IntN(33))
	}
	if r.IntN(4) == 0 {
		l.TopUp = r.Int64N(capacity + 1)
	}
	return l
}

func randomWindow(r *rand.Rand, refilled int64) Window {
	w := Window{Length: hour * (1 + r.Int64N(50))}
	near := func() *int64 { return new(refilled + r.Int64N(2*hour) - hour) }
	if r.IntN(5) > 0 {
		w.Start = near()
	}
	if r.IntN(2) == 0 {
		w.Applied = near()
	} else if r.IntN(2) == 0 {
		w.Applied = w.Start
	}
	if r.IntN(2) == 0 {
		w.ConsumedAtOpen = new(r.Int64N(5000))
	}
	return w
}

// copyOf is a bucket that shares no limit with b.
func copyOf(b *Bucket) *Bucket {
	c := *b
	c.Limits = append([]Limit(nil), b.Limits...)
	return &c
}

// after is a bucket with the pass at now made, worth a write or not.
func after(t *testing.T, b *Bucket, now int64) *Bucket {
	t.Helper()
	pass, err := Materialise(b, nil, now)
	if err != nil {
		t.Fatal(err)
	}
	c := copyOf(b)
	pass.Apply(c)
	return c
}

func TestPassKeepsWithinItsCeilings(t *testing.T) {
	written := 0
	for seed := range uint64(30_000) {
		r := rand.New(rand.NewPCG(seed, 1))
		b, demand := randomBucket(r, true)
		now := day + r.Int64N(2*day) - day
		pass, err := PlanPass(b, demand, now)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if pass == nil {
			continue
		}
		written++
		if pass.RefilledAt < now || pass.RefilledAt <= b.RefilledAt {
			t.Fatalf("seed %d: time does not move: %s", seed, show(pass))
		}
		if pass.ValidUntil != nil && (*pass.ValidUntil <= now || len(pass.Changes) != len(b.Limits)) {
			t.Fatalf("seed %d: valid-until %s", seed, show(pass))
		}
		for _, change := range pass.Changes {
			checkChange(t, seed, b, pass, change, pass.RefilledAt)
		}
	}
	if written < 10_000 {
		t.Errorf("only %d passes: the input tests nothing", written)
	}
}

// checkChange: a change raises no balance above its ceiling, lowers none below
// it except in a restore, which sets it; and where it is pinned, what may be
// found at most leaves the balance within the ceiling.
func checkChange(t *testing.T, seed uint64, b *Bucket, pass *Pass, c Change, now int64) {
	t.Helper()
	limit := b.Limit(c.Limit)
	params, _ := limit.Effective(now)
	ceiling := limit.Ceiling(b.ShardCount, params.Capacity)
	if c.Restore {
		ceiling = params.Capacity / int64(b.ShardCount)
	}
	target := limit.Balance + c.Delta
	switch {
	case c.Read != limit.Balance:
		t.Fatalf("seed %d: %s was read as %d", seed, limit.Name, c.Read)
	case target > ceiling:
		t.Fatalf("seed %d: %s: %d is above %d", seed, limit.Name, target, ceiling)
	case !c.Restore && target < min(limit.Balance, ceiling):
		t.Fatalf("seed %d: %s: %d from %d under %d", seed, limit.Name, target, limit.Balance, ceiling)
	case c.Restore && limit.Kind() == Calendar && target != ceiling:
		t.Fatalf("seed %d: %s: restored to %d, not %d", seed, limit.Name, target, ceiling)
	case c.Restore && !limit.IsQuota():
		t.Fatalf("seed %d: %s restored", seed, limit.Name)
	case c.Max == nil && (c.Delta > 0 || pass.ValidUntil != nil):
		t.Fatalf("seed %d: %s is not pinned", seed, limit.Name)
	case c.Max != nil && *c.Max+c.Delta > ceiling:
		t.Fatalf("seed %d: %s: pinned to %d%+d, above %d", seed, limit.Name, *c.Max, c.Delta, ceiling)
	}
}

// After a pass there is nothing left to do at the same time, whatever the
// demand.
func TestPassTwiceIsOnce(t *testing.T) {
	for seed := range uint64(30_000) {
		r := rand.New(rand.NewPCG(seed, 1))
		b, demand := randomBucket(r, true)
		now := day + r.Int64N(2*day) - day
		pass, err := PlanPass(b, demand, now)
		if err != nil {
			t.Fatal(err)
		}
		if pass == nil {
			continue
		}
		once := copyOf(b)
		pass.Apply(once)
		if again, err := PlanPass(once, demand, now); again != nil || err != nil {
			t.Fatalf("seed %d: after %s\n again %s, %v", seed, show(pass), show(again), err)
		}
		again, err := Materialise(once, demand, pass.RefilledAt)
		if err != nil {
			t.Fatal(err)
		}
		for _, change := range again.Changes {
			if change.Delta != 0 || change.Restore {
				t.Fatalf("seed %d: after %s\n still %s", seed, show(pass), show(again))
			}
		}
	}
}

// Two passes never grant more than the one that would have done. What they
// grant less is rounding: under a millitoken.
func TestPassesOfAnIntervalGrantNoMore(t *testing.T) {
	for seed := range uint64(30_000) {
		r := rand.New(rand.NewPCG(seed, 1))
		b, _ := randomBucket(r, false)
		end := b.RefilledAt + r.Int64N(2*hour)
		middle := b.RefilledAt + r.Int64N(end-b.RefilledAt+1)
		whole, halves := after(t, b, end), after(t, after(t, b, middle), end)
		if whole.RefilledAt != halves.RefilledAt {
			t.Fatalf("seed %d: refilled at %+d and %+d", seed, whole.RefilledAt-day, halves.RefilledAt-day)
		}
		for i := range b.Limits {
			one, two := whole.Limits[i].Balance, halves.Limits[i].Balance
			if two > one || two < one-1 {
				t.Fatalf("seed %d: %s: %d by two passes, %d by one", seed, b.Limits[i].Name, two, one)
			}
		}
	}
}
