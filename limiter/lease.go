package limiter

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// ErrReleased says that a lease was released already, or is to be settled though
// its release has begun.
var ErrReleased = errors.New("the lease was released")

// Lease is what a use took. It is safe for concurrent use.
type Lease struct {
	limiter *Limiter
	counted bool // false where the table could not be reached, and uses are admitted then

	mu       sync.Mutex
	sides    []side // the entity's, then its parent's
	begun    bool   // the release
	released bool
}

// Counted reports whether the use was counted; it was not where the table could
// not be reached and the Limiter allows that.
func (l *Lease) Counted() bool { return l.counted }

// Taken is what the lease holds by now, tokens by limit name.
func (l *Lease) Taken() Amounts {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := Amounts{}
	if len(l.sides) > 0 {
		for name, amount := range l.sides[0].demand() {
			taken[name] = amount / 1000
		}
	}
	return taken
}

// Left is what the shards that gave had left of the limits that were asked for
// when the lease was last settled, tokens rounded down; less than nothing is
// debt. Other shards may have more, and what has dripped since is not in it.
func (l *Lease) Left() Amounts {
	l.mu.Lock()
	defer l.mu.Unlock()
	left := Amounts{}
	if len(l.sides) == 0 {
		return left
	}
	for _, p := range l.sides[0] {
		for name := range p.demand {
			if balance, ok := p.latest.Int(table.Attr(name, table.FieldBalance)); ok {
				left[name] += balance
			}
		}
	}
	for name, balance := range left {
		left[name] = floor(balance)
	}
	return left
}

// Adjust settles what was used beyond what was taken or, where an amount is
// negative, less than that, tokens by limit name; also of limits of which
// nothing was taken. More is always taken, into debt if it must be, which
// later uses wait for. What is given back lifts no balance above its ceiling,
// and a quota's only in the period in which it was taken. A bucket that is gone
// took its tokens with it: what it is to get back counts as given back, and more
// is not taken of it.
//
// Where it fails with an error that wraps table.ErrRetry, some of it may have
// been settled, and Taken says what the lease holds; it is not tried again by
// itself. What it may have given back counts as given back. Any other error says
// that nothing was settled: once a Release has begun, also one that failed, it is
// ErrReleased.
func (l *Lease) Adjust(ctx context.Context, used Amounts) error {
	demand := quota.Demand{}
	for name, amount := range used {
		if amount < -maxAmount || amount > maxAmount {
			return fmt.Errorf("%w: %.80s: %d", ErrAmount, name, amount)
		}
		demand[name] = amount * 1000
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.begun {
		return ErrReleased
	}
	if !l.counted {
		return nil
	}
	held := l.sides[0].demand()
	for name, amount := range demand {
		if held[name]+amount < 0 {
			return fmt.Errorf("%w: %.80s: %d would give back more than the %d that were taken", ErrAmount, name, amount/1000, held[name]/1000)
		}
	}
	err := l.settle(ctx, demand)
	if err != nil && !errors.Is(err, table.ErrRetry) && !maps.Equal(held, l.sides[0].demand()) {
		return fmt.Errorf("%w: some of it was settled: %w", table.ErrRetry, err)
	}
	return err
}

// Release gives everything back that the lease holds: the use did not happen.
// Where it failed it can be tried again. What it may have given back by then,
// since the error wraps table.ErrRetry, it does not give back again.
func (l *Lease) Release(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.released {
		return ErrReleased
	}
	l.begun = true
	for len(l.sides) > 0 {
		last := l.sides[len(l.sides)-1]
		back := quota.Demand{}
		for name, amount := range last.demand() {
			back[name] = -amount
		}
		if err := l.limiter.settle(ctx, last, back); err != nil {
			return fmt.Errorf("release: %w", err)
		}
		l.sides = l.sides[:len(l.sides)-1]
	}
	l.released = true
	return nil
}

// patience is how long a use that failed halfway tries to give back, whatever
// its context says.
const patience = 5 * time.Second

// undo gives back what a use took of an entity whose parent gave nothing.
func (l *Lease) undo(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	return l.Release(ctx)
}

// settle settles with the entity, and brings its parent to the same as far as it
// has the limits: also what an adjustment before reached the child alone with.
func (l *Lease) settle(ctx context.Context, used quota.Demand) error {
	own := l.sides[0]
	for i, s := range l.sides {
		if i > 0 {
			if used = s.catchUp(own, used); len(used) == 0 {
				continue
			}
		}
		if err := l.limiter.settle(ctx, s, used); err != nil {
			return fmt.Errorf("adjust: %w", err)
		}
	}
	return nil
}

// catchUp is what a parent has to settle to hold what its child does.
func (s side) catchUp(own side, used quota.Demand) quota.Demand {
	lacks, held, theirs := quota.Demand{}, s.demand(), own.demand()
	for name := range used {
		amount := theirs[name] - held[name]
		if amount != 0 && s[0].item[table.Attr(name, table.FieldBalance)] != nil {
			lacks[name] = amount
		}
	}
	return lacks
}

// settle settles what a side gave, millitokens. What was used beyond it is the
// first's that gave of the limit; what is given back goes to those that gave it,
// the last first. All of it is checked before any is written.
func (l *Limiter) settle(ctx context.Context, s side, used quota.Demand) error {
	if len(givenBack(used)) > 0 {
		defer l.short.Remove(s[0].key.Group)
	}
	var settlements []settlement
	for i := len(s) - 1; i >= 0; i-- {
		due := used
		if len(s) > 1 {
			if due = s.due(i, used); len(due) == 0 {
				continue
			}
		}
		settlement, err := s[i].settlement(due, l.now().UnixMilli())
		if err != nil {
			return err
		}
		settlements = append(settlements, settlement)
		used = without(used, due)
	}
	for _, settlement := range settlements {
		if err := l.write(ctx, settlement); err != nil {
			return err
		}
	}
	return nil
}

// due is what of a settlement is the i-th shard's, those behind it done.
func (s side) due(i int, used quota.Demand) quota.Demand {
	if i == 0 {
		return used
	}
	due := quota.Demand{}
	for name, amount := range used {
		if back := min(-amount, s[i].demand[name]); back > 0 {
			due[name] = -back
		} else if amount > 0 && s.first(name) == i {
			due[name] = amount
		}
	}
	return due
}

// first is the place of the first shard that gave of a limit, if it be nothing.
func (s side) first(name string) int {
	return slices.IndexFunc(s, func(p *part) bool { _, gave := p.demand[name]; return gave })
}

// without is what is left of a settlement when a part of it is done.
func without(used, part quota.Demand) quota.Demand {
	left := maps.Clone(used)
	for name, amount := range part {
		if left[name] -= amount; left[name] == 0 {
			delete(left, name)
		}
	}
	return left
}

// settlement is what one bucket is to settle.
type settlement struct {
	*part
	used        quota.Demand  // millitokens
	taken, last *table.Bucket // as the use left it, and the last settlement
	now         int64
}

// settlement checks what the part is to settle. The error wraps ErrUndefined,
// ErrAmount, or says why the bucket cannot be read.
func (p *part) settlement(used quota.Demand, now int64) (settlement, error) {
	s := settlement{part: p, used: used, now: now}
	var err error
	if s.taken, err = table.DecodeBucket(p.item); err == nil {
		s.last, err = table.DecodeBucket(p.latest)
	}
	if err != nil {
		return s, fmt.Errorf("shard %d: %w", p.key.Shard, err)
	}
	for name := range used {
		if s.taken.Limit(name) == nil || name == quota.WriteMeter {
			return s, fmt.Errorf("%w: %.80s on %s", ErrUndefined, name, p.key.Resource)
		}
	}
	if !p.bypassed {
		s.taken.Bypass = 0 // whatever the stamp says, the balance had it and gave it
	}
	return s, sound(s.last, s.corrections(s.last, false))
}

// write settles what one bucket gave.
func (l *Limiter) write(ctx context.Context, s settlement) error {
	b := s.last
	for attempt := range maxAttempts {
		corrections := s.corrections(b, attempt == maxAttempts-1)
		if err := sound(b, corrections); err != nil {
			return err
		}
		settled, err := l.table.Reconcile(ctx, b, corrections)
		if err != nil {
			if errors.Is(err, table.ErrRetry) && !errors.Is(err, table.ErrThrottled) {
				s.settled(givenBack(s.used), s.latest)
			}
			return err
		}
		if settled.Applied {
			s.settled(s.used, settled.Item)
			l.outlive(ctx, settled.Item, s.now)
			return nil
		}
		if b, err = settled.Bucket(); err != nil {
			return err
		}
		if b == nil { // gone: there is nothing to settle with
			s.settled(givenBack(s.used), s.latest)
			return nil
		}
	}
	return ErrContended
}

// outlive has a bucket that is in debt outlive it: gone before, it would be
// forgiven. What was settled is settled; where this fails the next use that
// passes the bucket does it.
func (l *Limiter) outlive(ctx context.Context, item table.Item, now int64) {
	expires, ok := item.Int(table.AttrTTL)
	b, err := table.DecodeBucket(item)
	if !ok || err != nil || repaid(&b.Bucket) == 0 || expiry(&b.Bucket, now) <= expires {
		return
	}
	_, _ = l.table.Amend(ctx, b.Key.PK(), table.StateSK, table.Amendment{
		Set:    table.Item{table.AttrTTL: whole(expiry(&b.Bucket, now))},
		Expect: []table.NamedValue{{Name: table.AttrTTL, Value: item[table.AttrTTL]}},
	})
}

// sound refuses what would leave a bucket that nobody can read.
func sound(b *table.Bucket, corrections []quota.Adjustment) error {
	for _, c := range corrections {
		l := b.Limit(c.Limit)
		for _, sum := range []int64{l.Balance + c.Balance, l.Consumed + c.Consumed} { // of two amounts, which fits
			if sum < -quota.MaxAmount || sum > quota.MaxAmount {
				return fmt.Errorf("%w: %.80s: with it the bucket would hold more than there is room for", ErrAmount, c.Limit)
			}
		}
	}
	return nil
}

// givenBack is what may have been given back where the answer did not arrive. It
// is not given back again: a second time it would be others' tokens.
func givenBack(used quota.Demand) quota.Demand {
	back := maps.Clone(used)
	maps.DeleteFunc(back, func(_ string, amount int64) bool { return amount > 0 })
	return back
}

// corrections are those of the bucket as it is. The last attempt lifts nothing,
// and so cannot be refused.
func (s settlement) corrections(b *table.Bucket, last bool) []quota.Adjustment {
	corrections := quota.Reconcile(&b.Bucket, &s.taken.Bucket, s.used, s.now)
	for i := range corrections {
		c := &corrections[i]
		if c.Limit == quota.WriteMeter {
			continue
		}
		if s.bypassed || last && c.Balance > 0 {
			c.Balance, c.Max = 0, nil
		}
	}
	return corrections
}

// settled keeps what the part holds now.
func (p *part) settled(used quota.Demand, latest table.Item) {
	p.latest, p.demand = latest, maps.Clone(p.demand)
	for name, amount := range used {
		p.demand[name] += amount
	}
}
