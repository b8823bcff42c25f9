package quota

import (
	"errors"
	"fmt"
	"slices"
)

// Errors of a use.
var (
	ErrNoLimit = errors.New("no such limit on the bucket")
	ErrAmount  = errors.New("amount out of range") // or its sum with what the item holds
)

// WriteCost is what one write of an item takes of its write meter, millitokens.
const WriteCost = 1000

// Charge is what a use takes of one limit.
type Charge struct {
	Limit    string
	Consumed int64  // added to the total consumed, millitokens
	Debit    int64  // taken off the balance, millitokens; nothing where the bucket is bypassed
	Least    *int64 // the balance must be at least this when the use is written; nil where the limit is not enforced
}

// Use is what a client's slow path does to a bucket in one update: a pass that
// brings it up to date, and the charges on top of it.
type Use struct {
	*Pass
	Charges []Charge // with the write meter's
}

// Opens returns the session windows that the use opens, by limit name. The client
// propagates them to the other shards.
func (u *Use) Opens() []Change {
	return slices.DeleteFunc(slices.Clone(u.Changes), func(c Change) bool { return c.Open == nil })
}

// PlanUse plans a use of a bucket at now. The use brings every limit up to date,
// opens the session windows that are not live, stamps the valid-until anew, and
// charges the demand. Where some limit is short, PlanUse returns no use and what
// each enforced limit has.
//
// A use of a bypassed bucket opens, joins and rolls no session window. Where bringing
// the bucket up to date would, the use only meters. Without a demand, PlanUse brings
// such a bucket up to date too.
//
// The write meter is charged and never enforced: DynamoDB itself throttles an item
// that is written too fast.
//
// The caller has checked that the bucket is not disabled. Amounts are from 0 to
// MaxAmount. The error wraps ErrSchedule, ErrNoLimit or ErrAmount.
func PlanUse(b *Bucket, demand Demand, now int64) (*Use, []Shortage, error) {
	if err := b.checkDemand(demand); err != nil {
		return nil, nil, err
	}
	at := b.useTime(now)
	if now < b.Bypass && len(demand) > 0 && !b.WindowsLive(at) {
		return b.planMetering(demand, now)
	}
	opened := b.Opened(at)
	pass, ceilings, err := materialise(opened, demand, at)
	if err != nil {
		return nil, nil, err
	}
	pass.open(b, opened)
	pass.forgive()
	pass.revalidate(opened, ceilings, at)
	use := &Use{Pass: pass}
	after := opened.clone()
	pass.Apply(after)
	have, err := use.charge(b, after, demand, now)
	if err != nil {
		return nil, nil, err
	}
	if slices.ContainsFunc(have, Shortage.Short) {
		return nil, have, nil
	}
	pass.dropIdle()
	return use, nil, nil
}

// planMetering plans a use of a bypassed bucket. The time of the last pass stays: all
// limits refill from it.
func (b *Bucket) planMetering(demand Demand, now int64) (*Use, []Shortage, error) {
	use := &Use{Pass: &Pass{
		RefilledAt: b.RefilledAt, ShardCount: b.ShardCount, ExpectRefilledAt: b.RefilledAt, ExpectValidUntil: b.ValidUntil,
	}}
	if _, err := use.charge(b, b, demand, now); err != nil {
		return nil, nil, err
	}
	return use, nil, nil
}

// forgive lifts a write meter that is in debt to zero. A client that writes while
// the item is hot ignores the meter, and the debt must not slow uses down for long
// after the heat.
func (p *Pass) forgive() {
	for i := range p.Changes {
		if change := &p.Changes[i]; change.Limit == WriteMeter && change.Read+change.Delta < 0 {
			change.Delta, change.Max = -change.Read, new(change.Read)
		}
	}
}

// checkDemand returns why a demand cannot be one on the bucket.
func (b *Bucket) checkDemand(demand Demand) error {
	if b.Broken != nil {
		return b.Broken
	}
	for name, amount := range demand {
		switch {
		case b.Limit(name) == nil || name == WriteMeter:
			return fmt.Errorf("%w: %s", ErrNoLimit, name)
		case amount < 0 || amount > MaxAmount:
			return fmt.Errorf("%w: limit %s", ErrAmount, name)
		}
	}
	return nil
}

// useTime returns the time of the pass that a use at now makes. The time must
// move, since it is the bucket's lock, and never falls below a window's start.
func (b *Bucket) useTime(now int64) int64 { return max(now, b.lastWindow(), b.RefilledAt+1) }

// clone copies a bucket so far that the limits of the copy can be changed.
func (b *Bucket) clone() *Bucket {
	c := *b
	c.Limits = slices.Clone(b.Limits)
	return &c
}

// Opened returns a copy of the bucket in which a window starts at an instant
// wherever none is live then, as if it had been propagated here.
func (b *Bucket) Opened(at int64) *Bucket {
	c := b.clone()
	for i := range c.Limits {
		c.Limits[i] = c.Limits[i].opened(at)
	}
	return c
}

// opened returns the limit with such a window. The window that its balance
// reflects has ended by then, even if a clock ahead has stamped it.
func (l Limit) opened(at int64) Limit {
	if l.Kind() != Session || l.Window.Live(at) {
		return l
	}
	l.Window.Start, l.Window.ConsumedAtOpen = new(at), nil
	if l.Window.Applied != nil && *l.Window.Applied >= at {
		l.Window.Applied = nil
	}
	return l
}

// open marks each roll into a window that this use opens.
func (p *Pass) open(stored, opened *Bucket) {
	for i := range p.Changes {
		was, is := stored.Limits[i].Window.Start, opened.Limits[i].Window.Start
		if change := &p.Changes[i]; change.Roll != nil && !setAndEqual(was, is) {
			change.Open, change.Roll = &Open{Start: *is, Over: was}, nil
			p.Why[slices.Index(p.Why, Rolled)] = Opened
		}
	}
}

// revalidate stamps the valid-until that is right for the bucket from at on. A use
// may be the first to see that a boundary has passed, or may open a window that
// ends before the stored valid-until.
func (p *Pass) revalidate(b *Bucket, ceilings []int64, at int64) {
	boundary, bound := b.NextBoundary(at)
	switch stored := b.ValidUntil; {
	case bound && (stored == nil || *stored <= at || *stored > boundary):
		p.ValidUntil = &boundary
	case !bound && stored != nil:
		p.Unbound = true
	default:
		return
	}
	p.pin(ceilings)
}

// charge adds the charges of a demand, and returns what the enforced limits have.
// stored is the bucket as read, after as the pass leaves it.
func (u *Use) charge(stored, after *Bucket, demand Demand, now int64) (have []Shortage, err error) {
	for i := range after.Limits {
		limit := &after.Limits[i]
		amount, demanded := demand[limit.Name]
		charge := Charge{Limit: limit.Name, Consumed: amount, Debit: amount}
		switch {
		case limit.Name == WriteMeter:
			charge.Consumed, charge.Debit = WriteCost, WriteCost
		case !demanded:
			continue
		case now < stored.Bypass:
			charge.Debit = 0
		case now >= limit.Soft:
			s := u.shortage(stored, after, i, amount, now)
			if have = append(have, s); s.Short() {
				continue
			}
			charge.Least = new(amount - u.Changes[i].Delta)
		}
		if limit.Consumed > MaxAmount-charge.Consumed || limit.Balance < charge.Debit-MaxAmount {
			return nil, fmt.Errorf("%w: limit %s", ErrAmount, limit.Name)
		}
		u.Charges = append(u.Charges, charge)
	}
	return have, nil
}
