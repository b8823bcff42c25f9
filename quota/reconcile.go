package quota

// Adjustment is what settling a use does to one limit of its shard.
type Adjustment struct {
	Limit    string
	Consumed int64  // added to the total consumed, millitokens; negative where something is given back
	Balance  int64  // added to the balance, millitokens
	Max      *int64 // the balance must not be above this when it is written; nil asks nothing
}

// Reconcile plans what a use does to its bucket that turned out to have used more
// or, where an amount is negative, less than it took. b is the bucket as it is,
// taken as it was left by the use.
//
// More is always taken, into debt if it must be. What is given back comes off
// the total consumed, but lifts a balance at most to its ceiling, and a quota's
// only in the period in which it was taken: anything else would be allowance
// that nobody granted. So nothing is lifted either where the use may have been
// bypassed, which takes nothing off, or where the ceiling cannot be known. The
// write meter is charged. Limits that the bucket no longer has are left out.
// Amounts are at most MaxAmount, on either side of zero.
func Reconcile(b, taken *Bucket, used Demand, now int64) []Adjustment {
	var corrections []Adjustment
	for i := range b.Limits {
		l := &b.Limits[i]
		amount := used[l.Name]
		c := Adjustment{Limit: l.Name, Consumed: amount, Balance: -amount}
		switch {
		case l.Name == WriteMeter:
			c.Consumed, c.Balance = WriteCost, -WriteCost
		case amount == 0:
			continue
		case amount < 0:
			c.Balance, c.Max = b.lift(l, taken, -amount, now)
		}
		corrections = append(corrections, c)
	}
	return corrections
}

// lift is how much of what is given back the balance can take, and what it must
// then not be above.
func (b *Bucket) lift(l *Limit, taken *Bucket, amount, now int64) (lifted int64, most *int64) {
	params, err := l.Effective(now)
	if err != nil || b.Broken != nil || taken.Bypass > taken.RefilledAt || !l.samePeriod(b, taken) {
		return 0, nil
	}
	ceiling := l.Ceiling(b.ShardCount, params.Capacity)
	if lifted = min(amount, ceiling-l.Balance); lifted <= 0 {
		return 0, nil
	}
	return lifted, new(ceiling - lifted)
}

// samePeriod reports whether what was taken of a quota was of the period that
// its balance is of still. Of a limit that drips it always is. An operator may
// have given the quota another calendar meanwhile: then neither may have had an
// edge.
func (l *Limit) samePeriod(b, taken *Bucket) bool {
	was := taken.Limit(l.Name)
	if was == nil || was.Kind() != l.Kind() || was.ResetCount != l.ResetCount {
		return false
	}
	switch l.Kind() {
	case Calendar:
		return !l.resetDue(taken.RefilledAt, b.RefilledAt) && !was.resetDue(taken.RefilledAt, b.RefilledAt)
	case Session:
		return setAndEqual(was.Window.Start, l.Window.Start) && setAndEqual(was.Window.Applied, l.Window.Applied)
	}
	return true
}
