package quota

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"
)

// clocks are the zones of random schedules: with summer times of every kind, and
// without.
var clocks = []string{"", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "Pacific/Apia", "America/Sao_Paulo"}

// randomClock is a schedule or none, on a random clock.
func randomSchedule(r *rand.Rand) Schedule {
	if r.IntN(3) == 0 {
		return Schedule{}
	}
	texts := []string{"1h0-5s500", "1h9-17w1-5s2500", "1m0-29c40", "1D1s300", "1w6-7s100;h8-10s3000", "1m*/7h3a90p7", "1h1-2s1500;h3s10", "1D29M2s9000"}
	s, err := ParseSchedule(texts[r.IntN(len(texts))], clocks[r.IntN(len(clocks))])
	if err != nil {
		panic(err)
	}
	return s
}

func randomResets(r *rand.Rand) Resets {
	texts := []string{"1m0h0", "1m0", "1m30h*/6", "1m0h0D1", "1m0h9w1", "1m15h2;m15h14"}
	resets, err := ParseResets(texts[r.IntN(len(texts))], clocks[r.IntN(len(clocks))])
	if err != nil {
		panic(err)
	}
	return resets
}

// scheduledBucket is a random bucket whose limits have calendars on any clock,
// last passed at some time of 2026, and a time around that.
func scheduledBucket(r *rand.Rand) (b *Bucket, now int64) {
	year := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
	b = &Bucket{ShardCount: 1 << r.IntN(6), RefilledAt: year + r.Int64N(365*day)}
	for i := range 1 + r.IntN(4) {
		l := randomLimit(r, fmt.Sprint("l", i), b.RefilledAt)
		l.Schedule, l.Soft = randomSchedule(r), 0
		if !l.Resets.Empty() {
			l.Resets = randomResets(r)
		}
		b.Limits = append(b.Limits, l)
	}
	return b, b.RefilledAt + []int64{-1, 0, 1, r.Int64N(hour), r.Int64N(9 * day), -r.Int64N(hour)}[r.IntN(6)]
}

// randomAmount is more than a limit has, more often than not.
func randomAmount(r *rand.Rand, b *Bucket, l *Limit) int64 {
	share := Share(l.Base.Capacity, b.ShardCount)
	return []int64{r.Int64N(share + 1), max(0, l.Balance) + r.Int64N(share+1), share, r.Int64N(3*share + 1)}[r.IntN(4)]
}

// short is what PlanUse says a bucket has of one limit, where it is too little.
func short(t *testing.T, b *Bucket, name string, amount, now int64) (Shortage, bool) {
	t.Helper()
	use, have, err := PlanUse(b, Demand{name: amount}, now)
	if err != nil || (use == nil) == (have == nil) {
		t.Fatalf("%s, %v, %v", showUse(use), have, err)
	}
	if use != nil {
		return Shortage{}, false
	}
	return have[0], true
}

// A use at the time that a shortage names is given what it asks for, and none
// before it is. Where that is to be never, it is at no time of the year.
func TestShortageIsHonest(t *testing.T) {
	kinds, nevers := map[Kind]int{}, 0
	for seed := range uint64(4_000) {
		r := rand.New(rand.NewPCG(seed, 7))
		b, now := scheduledBucket(r)
		for i := range b.Limits {
			l := &b.Limits[i]
			amount := randomAmount(r, b, l)
			s, is := short(t, b, l.Name, amount, now)
			if !is {
				continue
			}
			if s.Never {
				if nevers++; nevers%8 == 0 {
					checkNever(t, r, seed, b, l, amount, now)
				}
				continue
			}
			kinds[l.Kind()]++
			checkAt(t, r, seed, b, l, s, now)
		}
	}
	if kinds[Dripping] < 700 || kinds[Calendar] < 700 || kinds[Session] < 500 || nevers < 700 {
		t.Errorf("%v, %d never: the input tests too little", kinds, nevers)
	}
}

func checkAt(t *testing.T, r *rand.Rand, seed uint64, b *Bucket, l *Limit, s Shortage, now int64) {
	t.Helper()
	if s.At <= now {
		t.Fatalf("seed %d: %s: %+v at %d", seed, l.Name, s, now)
	}
	if late, is := short(t, b, l.Name, s.Requested, s.At); is {
		t.Fatalf("seed %d: %s: at %d it is short by %d", seed, l.Name, s.At, late.Requested-late.Available)
	}
	for _, before := range []int64{s.At - 1, now + r.Int64N(s.At-now), now + r.Int64N(s.At-now)} {
		if _, is := short(t, b, l.Name, s.Requested, before); !is {
			t.Fatalf("seed %d: %s: %+v, given at %d", seed, l.Name, s, before)
		}
	}
}

func checkNever(t *testing.T, r *rand.Rand, seed uint64, b *Bucket, l *Limit, amount, now int64) {
	t.Helper()
	for i := range int64(120) {
		at := now + i*73*hour + r.Int64N(73*hour)
		if _, is := short(t, b, l.Name, amount, at); !is {
			t.Fatalf("seed %d: %s: never %d, given at %d", seed, l.Name, amount, at)
		}
	}
}

// A schedule that turns more often than anybody would search ends the search
// before the time, not after it.
func TestShortageOfARestlessSchedule(t *testing.T) {
	restless, err := ParseSchedule("1D31M12c1000;m*/2s500", "")
	if err != nil {
		t.Fatal(err)
	}
	b := shardOf(0, 1, day, with(dripping("rpm", 0, 1000), func(l *Limit) { l.Schedule = restless }))
	s, is := short(t, b, "rpm", 2000, day)
	if want := day + maxStretches*millisPerMinute; !is || s.Never || s.At != want {
		t.Errorf("%+v, want %d", s, want)
	}
}

// What a limit has dripped to at the time that dripsBy names is what was asked
// for, a millisecond before it is less, for numbers of any size.
func TestDripsBy(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	named := 0
	for i := range 50_000 {
		amount, refill, period, from := anySize(r)>>1, anySize(r)>>2, anySize(r)>>10, r.Int64N(MaxTime)
		at, ok := dripsBy(amount, refill, period, from)
		if !ok {
			if refill > 0 && period > 0 && wideDrips(refill, period, from, MaxTime).Cmp(big.NewInt(amount)) >= 0 {
				t.Fatalf("case %d: %d of %d in %d from %d: never, but there is time", i, amount, refill, period, from)
			}
			continue
		}
		if amount > 0 {
			named++
		}
		if at < from || at > MaxTime {
			t.Fatalf("case %d: at %d from %d", i, at, from)
		}
		if wideDrips(refill, period, from, at).Cmp(big.NewInt(amount)) < 0 {
			t.Fatalf("case %d: %d of %d in %d from %d is not there at %d", i, amount, refill, period, from, at)
		}
		if at > from && wideDrips(refill, period, from, at-1).Cmp(big.NewInt(amount)) >= 0 {
			t.Fatalf("case %d: %d of %d in %d from %d is there before %d", i, amount, refill, period, from, at)
		}
	}
	if named < 5_000 {
		t.Errorf("only %d times: the input tests nothing", named)
	}
}

// wideDrips is dripped where numbers have no end.
func wideDrips(refill, period, from, to int64) *big.Int {
	by := func(t int64) *big.Int {
		x := new(big.Int).Mul(big.NewInt(t), big.NewInt(refill))
		return x.Quo(x, big.NewInt(max(1, period)))
	}
	return new(big.Int).Sub(by(to), by(from))
}

// The largest of everything that an item can hold.
func TestUseOfTheLargest(t *testing.T) {
	most := dripping("rpm", MaxAmount, MaxAmount)
	owing := with(dripping("owing", -MaxAmount, MaxAmount), softUntil(0))
	topped := with(calendar("topped", MaxAmount, MaxAmount, 1), func(l *Limit) { l.TopUp = MaxAmount })
	rolling := with(opened(session("rolling", MaxAmount, 0, 1, 1), day, new(-MaxAmount)), consumed(MaxAmount))
	b := shardOf(0, 1, day-1, most, owing, topped, rolling)
	use, _, err := PlanUse(b, Demand{"rpm": MaxAmount, "topped": MaxAmount}, day)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := *use.Charges[0].Least, MaxAmount; got != want || use.Charges[0].Debit != want {
		t.Errorf("at least %d, %+v", got, use.Charges[0])
	}
	for name, want := range map[string]int64{"owing": -MaxAmount + MaxAmount/60_000 + 1, "rolling": -2 * MaxAmount} {
		s, is := short(t, b, name, MaxAmount, day)
		if !is || s.Available < want-1 || s.Available > want || s.Requested != MaxAmount {
			t.Errorf("%s: %+v", name, s)
		}
		if s.At <= day && !s.Never {
			t.Errorf("%s: %+v", name, s)
		}
	}
	for _, now := range []int64{0, MaxTime, math.MaxInt64 / 4} {
		if _, _, err := PlanUse(b, Demand{"rpm": 1}, now); err != nil {
			t.Errorf("at %d: %v", now, err)
		}
	}
}
