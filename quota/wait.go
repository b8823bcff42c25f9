package quota

import (
	"math/big"
	"slices"
)

// Shortage is why a limit of a shard does not give what is asked of it.
type Shortage struct {
	Limit     string
	Requested int64 // millitokens
	Available int64 // the balance brought up to date, millitokens; negative when in debt
	Capacity  int64 // effective, undivided, millitokens
	Ceiling   int64 // the most that this shard may hold, millitokens
	Params    Params
	At        int64 // when this shard would give it, if nothing else is taken until then, epoch ms
	Never     bool  // no shard at this count can ever hold so much; At means nothing
}

// shortage describes the i-th limit of a bucket as stored, of which a use at
// now would find available.
func (b *Bucket) shortage(i int, available, requested, now int64) Shortage {
	limit := &b.Limits[i]
	params, _ := limit.Effective(now) // evaluated before, while the pass was planned
	s := Shortage{
		Limit: limit.Name, Requested: requested, Available: available,
		Capacity: params.Capacity, Ceiling: limit.Ceiling(b.Count, params.Capacity), Params: params,
	}
	at, ok := b.admits(limit, requested, now)
	s.At, s.Never = at, !ok
	return s
}

// Bounds of the search for the time at which a limit gives an amount.
const (
	maxSegments = 2_000
	maxAhead    = 400 * minutesPerDay * millisPerMinute
)

// admits returns the first time, not before now, at which a use of the bucket
// would find an amount of a limit. Nobody else's use is foreseen, and no
// operator's. ok is false where no stretch of the limit's schedule, for more
// than a year, gives a share of the amount.
//
// A pass applies the parameters that hold when it is written to all the time
// since the last one, and so does this.
func (b *Bucket) admits(l *Limit, amount, now int64) (at int64, ok bool) {
	from := now
	for range maxSegments {
		params, err := l.Effective(from)
		if err != nil {
			return 0, false
		}
		end, ends := l.Schedule.NextChange(from)
		if at, ok := b.admitsWithin(l, params, amount, from); ok && (!ends || at < end) {
			return at, true
		}
		if !ends || end-now > maxAhead {
			return 0, false
		}
		from = end
	}
	return 0, false
}

// admitsWithin is admits for a stretch that starts at from and keeps to one set
// of parameters.
func (b *Bucket) admitsWithin(l *Limit, params Params, amount, from int64) (at int64, ok bool) {
	if amount > Share(params.Capacity, b.Count) {
		return 0, false
	}
	switch l.Kind() {
	case Calendar:
		if l.resetDue(b.Refilled, from) {
			return from, true
		}
		return l.Resets.Next(from)
	case Session:
		return max(from, l.Window.end(from)), true
	default:
		at, ok := dripsBy(amount-l.Balance, Share(params.Refill, b.Count), params.Period, b.Refilled)
		return max(at, from), ok
	}
}

// dripsBy is the first time by which so much has dripped since from, with the
// rounding of drip; ok is false where it never does.
func dripsBy(amount, refill, period, from int64) (at int64, ok bool) {
	if amount <= 0 {
		return from, true
	}
	if refill <= 0 || period <= 0 {
		return 0, false
	}
	units, rest, wide := new(big.Int), new(big.Int), big.NewInt
	units.Mul(wide(from), wide(refill)).Quo(units, wide(period)) // dripped before from
	units.Add(units, wide(amount)).Mul(units, wide(period))
	units.QuoRem(units, wide(refill), rest)
	if rest.Sign() > 0 {
		units.Add(units, wide(1))
	}
	return units.Int64(), units.IsInt64() && units.Int64() <= MaxTime
}

// Longest returns the time until all shortages are over, in milliseconds from
// now. ok is false where one of them never is.
func Longest(short []Shortage, now int64) (wait int64, ok bool) {
	if slices.ContainsFunc(short, func(s Shortage) bool { return s.Never }) {
		return 0, false
	}
	for _, s := range short {
		wait = max(wait, s.At-now)
	}
	return wait, true
}
