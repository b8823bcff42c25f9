package quota

import (
	"math/rand/v2"
	"reflect"
	"testing"
)

// stored is what a table holds of a bucket's limits, as other writers change it
// between a plan and its write.
type stored map[string]*Limit

func storedOf(b *Bucket) stored {
	s := stored{}
	for i := range b.Limits {
		s[b.Limits[i].Name] = new(b.Limits[i])
	}
	return s
}

// spend makes a random write of another's: it takes something, as much as is
// there, or gives something back.
func (s stored) spend(r *rand.Rand, name string) {
	l := s[name]
	amount := r.Int64N(20_000)
	if r.IntN(4) == 0 {
		amount = -amount
	} else if l.Balance < amount {
		amount = max(0, l.Balance)
	}
	l.Balance -= amount
	l.Consumed += amount
}

// write makes a use if its conditions hold, as a table does: by additions.
func (s stored) write(u *Use) bool {
	for _, c := range u.Changes {
		if c.Max != nil && s[c.Limit].Balance > *c.Max {
			return false
		}
	}
	for _, take := range u.Charges {
		if take.Least != nil && s[take.Limit].Balance < *take.Least {
			return false
		}
	}
	for _, c := range u.Changes {
		s[c.Limit].Balance += c.Delta
	}
	for _, take := range u.Charges {
		s[take.Limit].Balance -= take.Debit
		s[take.Limit].Consumed += take.Consumed
	}
	return true
}

// useCase is a random bucket, what is asked of it, and when.
func useCase(r *rand.Rand) (b *Bucket, demand Demand, now int64) {
	b, now = scheduledBucket(r)
	b.Limits = append(b.Limits, meter(r.Int64N(1200_000)-100_000))
	if r.IntN(2) == 0 {
		b.ValidUntil = new([]int64{0, b.RefilledAt, now, now + 3*day}[r.IntN(4)])
	}
	if r.IntN(10) == 0 {
		b.Bypass = now + r.Int64N(3) - 1
	}
	demand = Demand{}
	for i := range b.Limits[:len(b.Limits)-1] {
		l := &b.Limits[i]
		if r.IntN(5) == 0 {
			l.Soft = now + r.Int64N(3) - 1
		}
		if r.IntN(3) > 0 {
			demand[l.Name] = r.Int64N(Share(l.Base.Capacity, b.ShardCount)/2 + 1)
		}
	}
	return b, demand, now
}

// Whatever others write between the plan of a use and its write: where it is
// written, no limit that it enforces is left below zero, none that it lifts or
// stamps a valid-until for above its ceiling, and every total consumed has grown
// by what was taken.
func TestUseHoldsAgainstOthers(t *testing.T) {
	written, refused, short := 0, 0, 0
	for seed := range uint64(10_000) {
		r := rand.New(rand.NewPCG(seed, 8))
		b, demand, now := useCase(r)
		use, have, err := PlanUse(b, demand, now)
		if err != nil {
			t.Fatal(err)
		}
		if use == nil {
			short++
			checkHave(t, seed, have, demand)
			continue
		}
		checkUse(t, seed, b, use, demand, now)
		item := storedOf(b)
		for range r.IntN(4) {
			item.spend(r, b.Limits[r.IntN(len(b.Limits))].Name)
		}
		before := item.clone()
		if !item.write(use) {
			refused++
			continue
		}
		written++
		for _, take := range use.Charges {
			l := item[take.Limit]
			if take.Least != nil && l.Balance < 0 {
				t.Fatalf("seed %d: %s: %d left\n%s", seed, l.Name, l.Balance, showUse(use))
			}
			if got := l.Consumed - before[l.Name].Consumed; got != take.Consumed {
				t.Fatalf("seed %d: %s: %d consumed", seed, l.Name, got)
			}
		}
		for _, c := range use.Changes {
			l := *item[c.Limit]
			if c.Restore {
				l.Grant, l.TopUp = new(use.ShardCount), 0
			}
			params, _ := l.Effective(use.RefilledAt)
			if ceiling := l.Ceiling(b.ShardCount, params.Capacity); (c.Delta > 0 || use.ValidUntil != nil) && l.Grant != nil && l.Balance > ceiling {
				t.Fatalf("seed %d: %s: %d, at most %d\n%s", seed, l.Name, l.Balance, ceiling, showUse(use))
			}
		}
	}
	if written < 1500 || refused < 700 || short < 1000 {
		t.Errorf("%d written, %d refused, %d short: the input tests too little", written, refused, short)
	}
}

func (s stored) clone() stored {
	c := stored{}
	for name, l := range s {
		c[name] = new(*l)
	}
	return c
}

// checkHave: of what is refused at least one limit is short, and each told of
// was asked for.
func checkHave(t *testing.T, seed uint64, have []Shortage, demand Demand) {
	t.Helper()
	some := false
	for _, s := range have {
		some = some || s.Short()
		if amount, ok := demand[s.Limit]; !ok || s.Requested != amount {
			t.Fatalf("seed %d: %+v of %v", seed, s, demand)
		}
	}
	if !some {
		t.Fatalf("seed %d: none is short: %+v", seed, have)
	}
}

// checkMetering: such a use leaves all but what is consumed as it was.
func checkMetering(t *testing.T, seed uint64, b *Bucket, use *Use) {
	t.Helper()
	after := copyOf(b)
	if use.Apply(after); !reflect.DeepEqual(after, copyOf(b)) {
		t.Fatalf("seed %d: %+v is now %+v: %s", seed, b, after, showUse(use))
	}
}

// checkUse: a use moves the time, leaves every window of the bucket live and
// applied and a valid-until that reaches to the next boundary at most.
func checkUse(t *testing.T, seed uint64, b *Bucket, use *Use, demand Demand, now int64) {
	t.Helper()
	checkCharges(t, seed, b, use, demand, now)
	if now < b.Bypass && len(demand) > 0 && !b.WindowsLive(b.useTime(now)) {
		checkMetering(t, seed, b, use)
		return
	}
	after := copyOf(b)
	use.Apply(after)
	if use.RefilledAt < now || use.RefilledAt <= b.RefilledAt || after.RefilledAt != use.RefilledAt {
		t.Fatalf("seed %d: the time is %d, was %d: %s", seed, use.RefilledAt, b.RefilledAt, showUse(use))
	}
	if !after.WindowsLive(use.RefilledAt) || after.missedWindow(use.RefilledAt) {
		t.Fatalf("seed %d: a window is not live: %s", seed, showUse(use))
	}
	boundary, bound := after.NextBoundary(use.RefilledAt)
	if bound != (after.ValidUntil != nil) || bound && (*after.ValidUntil > boundary || *after.ValidUntil <= use.RefilledAt) {
		t.Fatalf("seed %d: valid until %v, boundary %d, %t: %s", seed, after.ValidUntil, boundary, bound, showUse(use))
	}
	for _, open := range use.Opens() {
		if w := b.Limit(open.Limit).Window; w.Live(open.Open.Start) || open.Open.Start != use.RefilledAt || !open.Restore || *open.Applied != open.Open.Start {
			t.Fatalf("seed %d: %s opens over %+v: %s", seed, open.Limit, w, showUse(use))
		}
	}
}

// checkCharges: a use takes exactly what was asked for, and one write.
func checkCharges(t *testing.T, seed uint64, b *Bucket, use *Use, demand Demand, now int64) {
	t.Helper()
	if len(use.Charges) != len(demand)+1 {
		t.Fatalf("seed %d: %v is asked for: %s", seed, demand, showUse(use))
	}
	for _, take := range use.Charges {
		l := b.Limit(take.Limit)
		amount, free := demand[take.Limit], now < b.Bypass || now < l.Soft
		if l.Kind() == Meter {
			amount, free = WriteCost, true
		}
		if take.Consumed != amount || free != (take.Least == nil) || take.Debit != amount && (now >= b.Bypass || take.Debit != 0 || l.Kind() == Meter) {
			t.Fatalf("seed %d: %+v of %d: %s", seed, take, amount, showUse(use))
		}
	}
}
