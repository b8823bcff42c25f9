package quota

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

func TestMulDiv(t *testing.T) {
	for _, c := range []struct {
		a, b, c, want int64
		ok            bool
	}{
		{7, 3, 2, 10, true},
		{0, math.MaxInt64, 1, 0, true},
		{math.MaxInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64, true},
		{math.MaxInt64, 1, 1, math.MaxInt64, true},
		{math.MaxInt64, 2, 1, 0, false}, // fits 64 bits, not 63
		{1 << 62, 2, 1, 0, false},       // 2^63
		{math.MaxInt64, 4, 1, 0, false}, // fits neither
		{math.MaxInt64, math.MaxInt64, 1, 0, false},
		{math.MaxInt64, 1000, 1001, 9214157878975800006, true}, // 128 bits in between
		{MaxTime, MaxAmount, 60_000, 0, false},
	} {
		if got, ok := mulDiv(c.a, c.b, c.c); got != c.want || ok != c.ok {
			t.Errorf("mulDiv(%d, %d, %d) = %d, %t, want %d, %t", c.a, c.b, c.c, got, ok, c.want, c.ok)
		}
	}
}

// anySize is a number of 0 to 63 bits, each length as likely.
func anySize(r *rand.Rand) int64 { return r.Int64() >> r.IntN(63) }

func TestMulDivAgainstBig(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	fits := 0
	for i := range 200_000 {
		a, b, c := anySize(r), anySize(r), max(1, anySize(r))
		want := new(big.Int).Mul(big.NewInt(a), big.NewInt(b))
		want.Quo(want, big.NewInt(c))
		got, ok := mulDiv(a, b, c)
		if ok != want.IsInt64() || ok && got != want.Int64() {
			t.Fatalf("case %d: mulDiv(%d, %d, %d) = %d, %t, want %v", i, a, b, c, got, ok, want)
		}
		if ok {
			fits++
		}
	}
	if fits < 20_000 || fits > 180_000 {
		t.Errorf("%d of the results fit: the input tests one side only", fits)
	}
}

func TestDrip(t *testing.T) {
	for _, c := range []struct {
		name                                      string
		balance, ceiling, refill, period, elapsed int64
		want                                      int64
	}{
		{"rounds down", 10, 1000, 7, 10, 12, 18}, // 8.4
		{"nothing yet", 10, 1000, 1, 1000, 999, 10},
		{"to the millitoken", 10, 1000, 1, 1000, 1000, 11},
		{"stops at the ceiling", 990, 1000, 1, 1, 11, 1000},
		{"exactly to the ceiling", 990, 1000, 1, 1, 10, 1000},
		{"out of debt", -500, 1000, 1, 1, 200, -300},
		{"trims, time or not", 1001, 1000, 1, 1, 0, 1000},
		{"trims when time runs backward", 1001, 1000, 1, 1, -50, 1000},
		{"a ceiling of nothing", 5, 0, 1, 1, 10, 0},
		{"backward", 10, 1000, 5, 1, -1, 10},
		{"no refill", 10, 1000, 0, 1, 50, 10},
		{"no period", 10, 1000, 5, 0, 50, 10},
		{"saturates", 0, MaxAmount, MaxAmount, 1, MaxTime, MaxAmount},
		{"saturates out of the deepest debt", -MaxAmount, MaxAmount, MaxAmount, 1, MaxTime, MaxAmount},
		{"the widest gap, a step at a time", -MaxAmount, MaxAmount, MaxAmount, 1, 1, 0},
		{"a top-up on the largest share", -MaxAmount, 2 * MaxAmount, 1, 1, 5, 5 - MaxAmount},
	} {
		if got := drip(c.balance, c.ceiling, c.refill, c.period, 0, c.elapsed); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// drip is min(balance + what dripped, ceiling), computed without bounds, where
// what dripped by an instant is instant*refill/period rounded down.
func TestDripAgainstBig(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	signed := func() int64 {
		plus, minus := anySize(r), anySize(r)
		return (plus - minus) / 4
	}
	by := func(instant, refill, period int64) *big.Int {
		dripped := new(big.Int).Mul(big.NewInt(instant), big.NewInt(refill))
		return dripped.Quo(dripped, big.NewInt(period))
	}
	for i := range 200_000 {
		balance, ceiling := signed(), anySize(r)/4
		refill, period, from := anySize(r)/4, anySize(r), anySize(r)/2
		to := from + anySize(r)/2
		want := big.NewInt(balance)
		if period > 0 {
			want.Add(want, by(to, refill, period))
			want.Sub(want, by(from, refill, period))
		}
		if limit := big.NewInt(ceiling); want.Cmp(limit) > 0 {
			want = limit
		}
		if got := drip(balance, ceiling, refill, period, from, to); want.Cmp(big.NewInt(got)) != 0 {
			t.Fatalf("case %d: drip(%d, %d, %d, %d, %d, %d) = %d, want %v", i, balance, ceiling, refill, period, from, to, got, want)
		}
	}
}

// Ten tokens a day are 0.1157 millitokens a second: a pass a second must not
// round them away.
func TestDripLosesNothingBetweenPasses(t *testing.T) {
	const day, tenTokens = 86_400_000, 10_000
	var balance int64
	start := int64(1_796_032_800_123)
	for now := start; now < start+day; now += 1000 {
		balance = drip(balance, tenTokens, tenTokens, day, now, now+1000)
	}
	if balance != tenTokens {
		t.Errorf("after a day of passes: %d, want %d", balance, tenTokens)
	}
}
