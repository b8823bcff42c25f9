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

// drip returns the balance at to of a limit that was refilled to balance at from.
// It never exceeds ceiling: a balance above it is trimmed, whatever the time. A
// time that runs backward drips nothing.
//
// drip rounds what has dripped by an instant down on the scale of the clock. So
// the drips over adjoining spans add up to the drip over both, and a limit that
// gains less than a millitoken between two passes loses nothing.
func drip(balance, ceiling, refill, period, from, to int64) int64 {
	if balance >= ceiling {
		return ceiling
	}
	if to <= from || refill <= 0 || period <= 0 {
		return balance
	}
	added, ok := dripped(refill, period, from, to)
	if !ok || added >= ceiling-balance {
		return ceiling
	}
	return balance + added
}

// dripped returns to*refill/period less from*refill/period, each rounded down. ok
// is false where the result does not fit an int64.
func dripped(refill, period, from, to int64) (added int64, ok bool) {
	// The part of a unit that has dripped before from counts towards the next.
	high, low := bits.Mul64(uint64(from), uint64(refill))
	begun := bits.Rem64(high, low, uint64(period))
	high, low = bits.Mul64(uint64(to-from), uint64(refill))
	low, carry := bits.Add64(low, begun, 0)
	high += carry
	if high >= uint64(period) {
		return 0, false
	}
	quotient, _ := bits.Div64(high, low, uint64(period))
	return int64(quotient), quotient <= math.MaxInt64
}
