package quota

import (
	"fmt"
	"slices"
)

// Change is what a pass does to one limit.
type Change struct {
	Limit   string
	Read    int64  // the balance the change was computed from, millitokens
	Delta   int64  // added to the balance, so that concurrent spending still counts
	Restore bool   // a reset or a roll: stamp the grant count and end the period's top-up
	Applied *int64 // window start to record as applied, epoch ms; nil leaves it
	Roll    *int64 // the window start being rolled, which must still be the stored one
	Open    *Open  // the window that a use opens here; nil for none
	Max     *int64 // the balance must not exceed this when the pass is written; nil requires nothing
}

// Open is a session window that a client's use opens.
type Open struct {
	Start int64  // epoch ms
	Over  *int64 // the start that is replaced, which must still be the stored one; nil where there was none
}

// Pass is one materialising pass of a bucket: it brings every limit on the item to
// RefilledAt. It can be written only while the item has the Expect values and a
// shard count of at most ShardCount.
type Pass struct {
	Changes          []Change
	RefilledAt       int64  // the new time of the pass, epoch ms
	ValidUntil       *int64 // new valid-until, epoch ms; nil leaves it. Pins the item's schedule
	Unbound          bool   // removes the valid-until, since nothing on the bucket is bound to time; only a client's pass does
	ShardCount       int    // shard count the pass was sized at
	Exact            bool   // each restored limit must have its balance and consumption exactly as read
	ExpectRefilledAt int64
	ExpectValidUntil *int64
	Why              []Reason // why the pass is worth a write; never empty
}

// Reason is why a pass is written.
type Reason string

// The reasons of a pass.
const (
	Short  Reason = "short"  // less than the demand just observed
	Over   Reason = "over"   // above its ceiling
	Reset  Reason = "reset"  // a calendar edge has passed
	Rolled Reason = "rolled" // a session window opened elsewhere
	Opened Reason = "opened" // a client's use opens a session window
	NotDue Reason = ""       // nothing to write
)

// Demand is how much was just consumed of each limit, millitokens by limit name.
type Demand map[string]int64

// PlanPass decides whether a bucket needs a materialising pass at now, and plans
// it. It returns nil where no pass is worth a write: some limit must be due a
// restore, be over its ceiling, or hold less than the demand. A pass always
// materialises every limit on the item, since it moves the time that all of them
// refill from.
//
// PlanPass leaves a disabled bucket alone, and one with an ended window that was
// never applied. The error wraps ErrSchedule.
//
// A pass always moves the bucket's time, by a millisecond where now is not after
// it. So a pass that is planned again from the same image, at a later now, cannot
// take a trim off twice. A shortage alone never justifies that millisecond.
func PlanPass(b *Bucket, demand Demand, now int64) (*Pass, error) {
	if b.Broken != nil {
		return nil, b.Broken
	}
	at := max(now, b.lastWindow())
	behind := at <= b.RefilledAt
	if behind {
		at = b.RefilledAt + 1
	}
	if b.Disabled || b.missedWindow(at) {
		return nil, nil
	}
	pass, err := Materialise(b, demand, at)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(pass.Why, func(why Reason) bool { return why != Short || !behind }) {
		return nil, nil
	}
	return pass, nil
}

// Materialise plans the pass of a bucket at now whether or not it is worth a
// write. The caller has checked that the bucket may be touched.
//
// Where a clock ahead of now has opened a window, the pass is at the start of that
// window, and so is every limit. Otherwise a reset between the two would never
// come, and what drips between them would be lost.
func Materialise(b *Bucket, demand Demand, now int64) (*Pass, error) {
	pass, ceilings, err := materialise(b, demand, max(now, b.lastWindow()))
	if err != nil {
		return nil, err
	}
	pass.restamp(b, ceilings, max(now, b.lastWindow()))
	pass.dropIdle()
	return pass, nil
}

// materialise plans the pass of a bucket without its valid-until. It returns a
// change and a ceiling for every limit.
func materialise(b *Bucket, demand Demand, now int64) (pass *Pass, ceilings []int64, err error) {
	pass = &Pass{
		ShardCount:       b.ShardCount,
		RefilledAt:       max(now, b.RefilledAt),
		ExpectRefilledAt: b.RefilledAt,
		ExpectValidUntil: b.ValidUntil,
		Changes:          make([]Change, 0, len(b.Limits)),
	}
	ceilings = make([]int64, len(b.Limits))
	for i := range b.Limits {
		limit := &b.Limits[i]
		change, reason, ceiling, err := limit.materialise(b, demand[limit.Name], now)
		if err != nil {
			return nil, nil, err
		}
		if reason != NotDue {
			pass.Why = append(pass.Why, reason)
		}
		ceilings[i] = ceiling
		pass.Changes = append(pass.Changes, change)
	}
	return pass, ceilings, nil
}

// materialise brings one limit to now.
func (l *Limit) materialise(b *Bucket, demand, now int64) (c Change, why Reason, ceiling int64, err error) {
	params, err := l.Effective(now)
	if err != nil {
		return Change{}, NotDue, 0, err
	}
	change := Change{Limit: l.Name, Read: l.Balance}
	var target int64
	switch kind := l.Kind(); {
	case kind == Session && l.Window.pending(b.RefilledAt):
		why, target = Rolled, l.rollTarget(Share(params.Capacity, b.ShardCount))
		change.Restore, change.Roll = true, l.Window.Start
	case kind == Calendar && l.resetDue(b.RefilledAt, now):
		why, target = Reset, Share(params.Capacity, b.ShardCount)
		change.Restore = true
	default:
		target, why = l.refill(b, params, demand, now)
	}
	if kind := l.Kind(); kind == Session && l.Window.Start != nil && !setAndEqual(l.Window.Applied, l.Window.Start) {
		change.Applied = l.Window.Start
	}
	change.Delta = target - l.Balance
	if change.Delta > 0 {
		change.Max = new(change.Read)
	}
	ceiling = l.Ceiling(b.ShardCount, params.Capacity)
	if change.Restore {
		ceiling = Share(params.Capacity, b.ShardCount)
	}
	return change, why, ceiling, nil
}

// refill drips or trims a limit whose period has not turned, and returns whether
// that alone is worth a write. The write meter is never worth one: every reader
// drips it from the time of the last pass.
func (l *Limit) refill(b *Bucket, params Params, demand, now int64) (target int64, why Reason) {
	ceiling := l.Ceiling(b.ShardCount, params.Capacity)
	rate := Share(params.Refill, b.ShardCount)
	switch l.Kind() {
	case Meter:
		return drip(l.Balance, ceiling, params.Refill, params.Period, b.RefilledAt, now), NotDue
	case Calendar, Session:
		rate = 0
	}
	target = drip(l.Balance, ceiling, rate, params.Period, b.RefilledAt, now)
	switch {
	case target < l.Balance:
		why = Over
	case target > l.Balance && l.Balance < demand && now >= l.Soft:
		why = Short
	}
	return target, why
}

// rollTarget returns the balance after a roll: the share less what was consumed
// since the window start was propagated here. So the new window pays for what was
// spent between the two.
func (l *Limit) rollTarget(share int64) int64 {
	if l.Window.ConsumedAtOpen == nil {
		return share
	}
	return share - max(0, l.Consumed-*l.Window.ConsumedAtOpen)
}

// restamp gives the pass a new valid-until where the stored one has passed and the
// next boundary is known.
func (p *Pass) restamp(b *Bucket, ceilings []int64, now int64) {
	if b.ValidUntil == nil || *b.ValidUntil > now {
		return
	}
	boundary, ok := b.NextBoundary(now)
	if !ok || boundary <= now {
		return
	}
	p.ValidUntil = &boundary
	p.pin(ceilings)
}

// pin requires of a pass, after which the fast path spends without looking, that
// no balance is above its ceiling when the pass is written.
func (p *Pass) pin(ceilings []int64) {
	for i := range p.Changes {
		change := &p.Changes[i]
		if change.Max == nil {
			change.Max = new(ceilings[i] - min(change.Delta, 0))
		}
	}
}

// dropIdle removes the changes that would write nothing.
func (p *Pass) dropIdle() {
	writes := p.Changes[:0]
	for _, change := range p.Changes {
		if change.Delta != 0 || change.Restore || change.Applied != nil || change.Max != nil {
			writes = append(writes, change)
		}
	}
	p.Changes = writes
}

// Apply does to a bucket in memory what writing the pass does to the item.
func (p *Pass) Apply(b *Bucket) {
	for _, change := range p.Changes {
		limit := b.Limit(change.Limit)
		limit.Balance += change.Delta
		if change.Restore {
			limit.Grant, limit.TopUp = new(p.ShardCount), 0
		}
		if change.Open != nil {
			limit.Window.Start = new(change.Open.Start)
		}
		if change.Applied != nil {
			limit.Window.Applied = change.Applied
		}
	}
	b.RefilledAt = p.RefilledAt
	if p.ValidUntil != nil || p.Unbound {
		b.ValidUntil = p.ValidUntil
	}
}

// Restores reports whether the pass begins a period for some quota.
func (p *Pass) Restores() bool {
	return slices.ContainsFunc(p.Changes, func(c Change) bool { return c.Restore })
}

// NextBoundary returns the first instant after now at which a schedule changes the
// bucket's parameters, a reset falls or a session window ends. A valid-until must
// not reach past it. Where a use still has to open a window, the boundary is not
// after now. ok is false where nothing on the bucket is bound to time.
func (b *Bucket) NextBoundary(now int64) (boundary int64, ok bool) {
	offer := func(t int64, found bool) {
		if found && (!ok || t < boundary) {
			boundary, ok = t, true
		}
	}
	for i := range b.Limits {
		limit := &b.Limits[i]
		switch limit.Kind() {
		case Meter:
			continue
		case Calendar:
			offer(limit.Resets.Next(now))
		case Session:
			offer(limit.Window.end(now), true)
		}
		offer(limit.Schedule.NextChange(now))
	}
	return boundary, ok
}

// end returns when the window ends, or now where none was ever opened. The last
// time that an item can store bounds it.
func (w *Window) end(now int64) int64 {
	if w.Start == nil {
		return now
	}
	return min(*w.Start+w.Length, MaxTime)
}

// missedWindow reports whether a window was propagated here and ended before a
// pass applied it. The next use opens another one. Until then no pass may touch
// the item, since it would record the dead window as applied.
func (b *Bucket) missedWindow(now int64) bool {
	for i := range b.Limits {
		l := &b.Limits[i]
		if l.Kind() == Session && l.Window.pending(b.RefilledAt) && !l.Window.Live(now) {
			return true
		}
	}
	return false
}

// lastWindow returns the newest window start on the bucket, epoch ms, 0 for none.
// The time of a pass never falls below it.
func (b *Bucket) lastWindow() int64 {
	var last int64
	for i := range b.Limits {
		l := &b.Limits[i]
		if l.Kind() == Session && l.Window.Start != nil {
			last = max(last, *l.Window.Start)
		}
	}
	return last
}

// setAndEqual reports whether both times are there and equal. Two absent times are
// not.
func setAndEqual(a, b *int64) bool { return a != nil && b != nil && *a == *b }

// String renders the change for a report: the limit and what the pass adds to it.
func (c Change) String() string { return fmt.Sprintf("%s%+d", c.Limit, c.Delta) }
