package quota

import (
	"math"
	"math/bits"
)

// MaxAmount bounds every stored amount, in millitokens, on either side of zero.
// Sums and differences of two amounts then fit an int64.
const MaxAmount = int64(1) << 61

// MaxTime bounds every stored time, in epoch milliseconds: the end of year 9999.
const MaxTime = int64(253402300799999)

// mulDiv returns a*b/c rounded down, computed in 128 bits. ok is false where
// the result does not fit an int64. a and b must not be negative, c must be
// positive.
func mulDiv(a, b, c int64) (result int64, ok bool) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return 0, false
	}
	quotient, _ := bits.Div64(hi, lo, uint64(c))
	if quotient > math.MaxInt64 {
		return 0, false
	}
	return int64(quotient), true
}

// drip returns what a balance has become after elapsed milliseconds of refill,
// at most ceiling. A balance above the ceiling is trimmed to it, whatever the
// time; a negative elapsed time drips nothing.
func drip(balance, ceiling, refill, period, elapsed int64) int64 {
	if balance >= ceiling {
		return ceiling
	}
	if elapsed <= 0 || refill <= 0 || period <= 0 {
		return balance
	}
	added, ok := mulDiv(elapsed, refill, period)
	if !ok || added >= ceiling-balance {
		return ceiling
	}
	return balance + added
}
