package quota

// Adjustment is what reconciling a use does to one limit of its shard.
type Adjustment struct {
	Limit    string
	Consumed int64  // added to the total consumed, millitokens; negative for a refund
	Balance  int64  // added to the balance, millitokens
	Max      *int64 // the balance must not exceed this when it is written; nil requires nothing
}

// Reconcile plans the adjustments for a use that used more than it took, or less
// where an amount is negative. b is the bucket now, taken as the use left it.
//
// A surplus is always charged, into debt if need be. A refund lowers the total
// consumed. It lifts a balance at most to its ceiling, and a quota's balance only
// in the period of the use: anything else would be allowance that nobody granted.
// So a refund lifts nothing where the use may have been bypassed and taken
// nothing, or where the ceiling cannot be known.
//
// The write meter is charged. Limits that the bucket no longer has are left out.
// Amounts are at most MaxAmount, on either side of zero.
func Reconcile(b, taken *Bucket, used Demand, now int64) []Adjustment {
	var adjustments []Adjustment
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
		adjustments = append(adjustments, c)
	}
	return adjustments
}

// lift returns how much of a refund the balance can take, and what the balance
// must not exceed when that is written.
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

// samePeriod reports whether a use was of the period that the balance of its limit
// is of now. For a dripping limit it always was. Where an operator gave a quota
// another calendar meanwhile, neither calendar may have had an edge.
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
