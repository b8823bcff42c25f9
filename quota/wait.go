package quota

import "math/big"

// Shortage is what a shard has of a limit and what a use asked of it, where the
// use was refused.
type Shortage struct {
	Limit     string
	Requested int64 // millitokens
	Available int64 // the balance brought up to date, millitokens; negative when in debt
	Capacity  int64 // effective, undivided, millitokens
	Ceiling   int64 // the most that this shard may hold, millitokens
	Params    Params
	At        int64 // the first time at which this shard would hold it, if nobody else takes any, epoch ms
	Never     bool  // at this count the shard does not hold so much within a year; At means nothing
}

// Short reports whether the limit has too little.
func (s Shortage) Short() bool { return s.Available < s.Requested }

// shortage describes the i-th limit as the use would find it.
func (u *Use) shortage(stored, after *Bucket, i int, requested, now int64) Shortage {
	limit := &after.Limits[i]
	params, _ := limit.Effective(u.RefilledAt) // no error: planning the pass evaluated it
	s := Shortage{
		Limit: limit.Name, Requested: requested, Available: limit.Balance,
		Capacity: params.Capacity, Ceiling: limit.Ceiling(after.ShardCount, params.Capacity), Params: params,
	}
	if s.At = now; s.Short() {
		at, ok := stored.admits(&stored.Limits[i], requested, now)
		s.At, s.Never = at, !ok
	}
	return s
}

// Bounds of the search for the time at which a limit gives an amount.
const (
	maxStretches = 2_000
	maxAhead     = 400 * minutesPerDay * millisPerMinute
)

// admits returns the first time at which a use of the bucket would find an amount
// of a limit that is short of it now. It foresees no other uses and no operator.
// ok is false where that time is not within about a year.
//
// A pass applies the parameters of its own time to all the time since the last
// pass. So the search goes from turn to turn, and asks what a use in each stretch
// would find: an earlier stretch may hold what a later one trims. Where a schedule
// turns thousands of times before the amount is there, the result is how far the
// search came.
func (b *Bucket) admits(l *Limit, amount, now int64) (at int64, ok bool) {
	start, most := b.useTime(now), l.part(l.Schedule.most(l.Base), b.ShardCount)
	from := start
	for range maxStretches {
		if b.gives(l, amount, from) {
			return from, true
		}
		if granted := l.IsQuota() && l.Current(b.RefilledAt, from); amount > most && (!granted || l.Balance < amount) {
			return 0, false
		}
		turn, turns := l.nextTurn(amount, b.RefilledAt, from)
		if at, drips := b.dripsTo(l, amount, from); drips && (!turns || at < turn) {
			return at, true
		}
		if !turns || from-start > maxAhead {
			return 0, false
		}
		from = turn
	}
	return from, true
}

// gives reports whether a use at an instant would find an amount of a limit.
func (b *Bucket) gives(l *Limit, amount, at int64) bool {
	opened := l.opened(at)
	change, _, _, err := opened.materialise(b, 0, at)
	return err == nil && l.Balance+change.Delta >= amount
}

// nextTurn returns the first instant after from at which the parameters of a limit
// change or a restore becomes due. Before it, a limit that holds too little can
// only drip. refilled is the time of the bucket's last pass.
func (l *Limit) nextTurn(amount, refilled, from int64) (turn int64, ok bool) {
	var restore int64
	var restores, rolls bool
	switch kind := l.Kind(); {
	case kind == Calendar && !l.resetDue(refilled, from):
		restore, restores = l.Resets.Next(from)
	case kind == Session && l.Window.Live(from):
		restore, restores = l.Window.end(from), true
		rolls = l.Window.pending(refilled)
	default:
		return l.Schedule.NextChange(from)
	}
	if l.Balance < amount && !rolls {
		return restore, restores // no parameter lifts a quota
	}
	turn, ok = l.Schedule.NextChange(from)
	if restores && (!ok || restore < turn) {
		return restore, true
	}
	return turn, ok
}

// dripsTo returns the first time, not before from, at which a limit has dripped to
// an amount, if its parameters stay as they are at from.
func (b *Bucket) dripsTo(l *Limit, amount, from int64) (at int64, ok bool) {
	params, err := l.Effective(from)
	if err != nil || l.Kind() != Dripping || amount > l.part(params.Capacity, b.ShardCount) {
		return 0, false
	}
	at, ok = dripsBy(amount-l.Balance, Share(params.Refill, b.ShardCount), params.Period, b.RefilledAt)
	return max(at, from), ok
}

// FillTime returns the milliseconds in which the whole capacity drips, rounded up. ok
// is false where nothing drips, or not so much by the year 10000.
func (p Params) FillTime() (ms int64, ok bool) {
	return dripsBy(p.Capacity, p.Refill, p.Period, 0)
}

// dripsBy returns the first time by which an amount has dripped since from, with
// the rounding of drip. ok is false where it never does.
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
