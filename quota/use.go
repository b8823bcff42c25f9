package quota

import (
	"errors"
	"fmt"
	"slices"
)

// ErrNoLimit says that a bucket has no limit of the name that a use asks for.
var ErrNoLimit = errors.New("no such limit on the bucket")

// WriteCost is what one write of an item takes of its write meter, millitokens.
const WriteCost = 1000

// Take is what one limit gives to a use.
type Take struct {
	Limit    string
	Consumed int64  // added to the total consumed, millitokens
	Debit    int64  // taken off the balance, millitokens; nothing where the bucket is bypassed
	Least    *int64 // the balance must not be below this when the use is written; nil where the limit is not enforced
}

// Use is what a client's slow path does to a bucket in one update: a pass that
// brings it up to date, and the takes on top of it.
type Use struct {
	*Pass
	Takes []Take // the write meter's among them
}

// Opens are the session windows that the use opens, by limit name, to be told
// to the other shards.
func (u *Use) Opens() []Change {
	return slices.DeleteFunc(slices.Clone(u.Changes), func(c Change) bool { return c.Open == nil })
}

// PlanUse decides what a use of a bucket does to it at now: it brings every
// limit up to date, opens the session windows that are not live, stamps the
// valid-until anew, and takes the demand. Where some limit is short, it returns
// those limits and no use. The write meter is charged and never enforced: the
// service itself throttles an item that is written too fast.
//
// The caller has made sure that the bucket is not disabled. The error wraps
// ErrSchedule or ErrNoLimit.
func PlanUse(b *Bucket, demand Demand, now int64) (*Use, []Shortage, error) {
	if b.Broken != nil {
		return nil, nil, b.Broken
	}
	for name := range demand {
		if b.Limit(name) == nil || name == WriteMeter {
			return nil, nil, fmt.Errorf("%w: %s", ErrNoLimit, name)
		}
	}
	at := max(now, b.lastWindow())
	if at <= b.Refilled {
		at = b.Refilled + 1 // the pass has to move the time, which is its lock
	}
	opened := b.opened(at)
	pass, ceilings, err := materialise(opened, demand, at)
	if err != nil {
		return nil, nil, err
	}
	pass.open(b, opened)
	pass.revalidate(opened, ceilings, at)
	use := &Use{Pass: pass}
	after := opened.clone()
	pass.Apply(after)
	if short := use.take(b, after, demand, now); len(short) > 0 {
		return nil, short, nil
	}
	pass.dropIdle()
	return use, nil, nil
}

// clone copies a bucket so far that the copy's limits can be changed.
func (b *Bucket) clone() *Bucket {
	c := *b
	c.Limits = slices.Clone(b.Limits)
	return &c
}

// opened is the bucket with a window that starts at an instant wherever none is
// live then, as if it had been propagated here.
func (b *Bucket) opened(at int64) *Bucket {
	c := b.clone()
	for i := range c.Limits {
		if l := &c.Limits[i]; l.Kind() == Session && !l.Window.live(at) {
			l.Window.Start, l.Window.Mark = new(at), nil
		}
	}
	return c
}

// open marks what rolls into a window that this use opens.
func (p *Pass) open(stored, opened *Bucket) {
	for i := range p.Changes {
		was, is := stored.Limits[i].Window.Start, opened.Limits[i].Window.Start
		if change := &p.Changes[i]; change.Roll != nil && !same(was, is) {
			change.Open, change.Roll = &Open{Start: *is, Over: was}, nil
			p.Why = append(p.Why, Opened)
		}
	}
}

// revalidate stamps the valid-until that is right for the bucket from at on: a
// use may be the first to see that a boundary has passed, or that a window it
// opens ends before the one that was stamped.
func (p *Pass) revalidate(b *Bucket, ceilings []int64, at int64) {
	boundary, bound := b.NextBoundary(at)
	switch stored := b.Valid; {
	case bound && (stored == nil || *stored <= at || *stored > boundary):
		p.Valid = &boundary
	case !bound && stored != nil:
		p.Unbound = true
	default:
		return
	}
	p.pin(ceilings)
}

// take adds the takes of a demand, and returns the limits that are short of it.
// stored is the bucket as read, after as the pass leaves it.
func (u *Use) take(stored, after *Bucket, demand Demand, now int64) []Shortage {
	var short []Shortage
	for i := range after.Limits {
		limit := &after.Limits[i]
		amount, demanded := demand[limit.Name]
		take := Take{Limit: limit.Name, Consumed: amount, Debit: amount}
		switch {
		case limit.Name == WriteMeter:
			take.Consumed, take.Debit = WriteCost, WriteCost
		case !demanded:
			continue
		case now < stored.Bypass:
			take.Debit = 0
		case now < limit.Soft:
		case limit.Balance < amount:
			short = append(short, stored.shortage(i, limit.Balance, amount, now))
		default:
			take.Least = new(amount - u.Changes[i].Delta)
		}
		u.Takes = append(u.Takes, take)
	}
	return short
}
