package limiter

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// ErrReleased says that a lease was released already.
var ErrReleased = errors.New("the lease was released")

// Lease is what a use took. It is safe for concurrent use.
type Lease struct {
	limiter *Limiter
	counted bool // false where the table could not be reached, and uses are admitted then

	mu       sync.Mutex
	parts    []*part // of the entity's bucket, then of its parent's
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
	if len(l.parts) > 0 {
		for name, amount := range l.parts[0].demand {
			taken[name] = amount / 1000
		}
	}
	return taken
}

// Left is what the shard that gave had left of the limits that were asked for
// when the lease was last settled, tokens rounded down; less than nothing is
// debt. Other shards may have more, and what has dripped since is not in it.
func (l *Lease) Left() Amounts {
	l.mu.Lock()
	defer l.mu.Unlock()
	left := Amounts{}
	if len(l.parts) == 0 {
		return left
	}
	for name := range l.parts[0].demand {
		if balance, ok := l.parts[0].latest.Whole(table.Attr(name, table.FieldBalance)); ok {
			left[name] = floor(balance)
		}
	}
	return left
}

// Adjust settles what was used beyond what was taken or, where an amount is
// negative, less than that, tokens by limit name; also of limits of which
// nothing was taken. More is always taken, into debt if it must be, which
// later uses wait for. What is given back lifts no balance above its ceiling,
// and a quota's only in the period in which it was taken.
//
// Where it fails with an error that wraps table.ErrRetry, some of it may have
// been settled; it is not tried again by itself. What it may have given back
// counts as given back.
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
	if l.released {
		return ErrReleased
	}
	if !l.counted {
		return nil
	}
	for name, amount := range demand {
		if l.parts[0].demand[name]+amount < 0 {
			return fmt.Errorf("%w: %.80s: %d would give back more than the %d that were taken", ErrAmount, name, amount/1000, l.parts[0].demand[name]/1000)
		}
	}
	return l.settle(ctx, demand)
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
	for len(l.parts) > 0 {
		last := l.parts[len(l.parts)-1]
		back := quota.Demand{}
		for name, amount := range last.demand {
			back[name] = -amount
		}
		if err := l.limiter.settle(ctx, last, back); err != nil {
			return fmt.Errorf("release: %w", err)
		}
		l.parts = l.parts[:len(l.parts)-1]
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

// settle settles with the entity's bucket, and brings its parent's to the same as
// far as it has the limits: also what an adjustment before reached the child
// alone with.
func (l *Lease) settle(ctx context.Context, used quota.Demand) error {
	own := l.parts[0]
	for i, p := range l.parts {
		if i > 0 {
			if used = p.catchUp(own, used); len(used) == 0 {
				continue
			}
		}
		if err := l.limiter.settle(ctx, p, used); err != nil {
			return fmt.Errorf("adjust: %w", err)
		}
	}
	return nil
}

// catchUp is what a parent's part has to settle to hold what its child's does.
func (p *part) catchUp(own *part, used quota.Demand) quota.Demand {
	lacks := quota.Demand{}
	for name := range used {
		amount := own.demand[name] - p.demand[name]
		if amount != 0 && p.item[table.Attr(name, table.FieldBalance)] != nil {
			lacks[name] = amount
		}
	}
	return lacks
}

// settle settles what a part's bucket gave, millitokens.
func (l *Limiter) settle(ctx context.Context, p *part, used quota.Demand) error {
	taken, err := table.DecodeBucket(p.item)
	if err != nil {
		return fmt.Errorf("shard %d: %w", p.key.Shard, err)
	}
	for name := range used {
		if taken.Limit(name) == nil || name == quota.WriteMeter {
			return fmt.Errorf("%w: %.80s on %s", ErrUndefined, name, p.key.Resource)
		}
	}
	if !p.bypassed {
		taken.Bypass = 0 // whatever the stamp says, the balance had it and gave it
	}
	b, err := table.DecodeBucket(p.latest)
	if err != nil {
		return fmt.Errorf("shard %d: %w", p.key.Shard, err)
	}
	now := l.now().UnixMilli()
	for attempt := range attempts {
		corrections := p.corrections(b, taken, used, now, attempt == attempts-1)
		if err := sound(b, corrections); err != nil {
			return err
		}
		settled, err := l.table.Settle(ctx, b, corrections)
		if err != nil {
			if errors.Is(err, table.ErrRetry) && !errors.Is(err, table.ErrThrottled) {
				p.settled(givenBack(used), p.latest)
			}
			return err
		}
		if settled.Applied {
			p.settled(used, settled.Item)
			l.outlive(ctx, settled.Item, now)
			return nil
		}
		if b, err = settled.Bucket(); b == nil || err != nil {
			return err // gone: there is nothing to settle with
		}
	}
	return ErrContended
}

// outlive has a bucket that is in debt outlive it: gone before, it would be
// forgiven. What was settled is settled; where this fails the next use that
// passes the bucket does it.
func (l *Limiter) outlive(ctx context.Context, item table.Item, now int64) {
	expires, ok := item.Whole(table.AttrTTL)
	b, err := table.DecodeBucket(item)
	if !ok || err != nil || repaid(&b.Bucket) == 0 || expiry(&b.Bucket, now) <= expires {
		return
	}
	_, _ = l.table.Amend(ctx, b.Key.PK(), table.StateSK, table.Amendment{
		Set:    table.Item{table.AttrTTL: whole(expiry(&b.Bucket, now))},
		Expect: []table.Term{{Name: table.AttrTTL, Value: item[table.AttrTTL]}},
	})
}

// sound refuses what would leave a bucket that nobody can read.
func sound(b *table.Bucket, corrections []quota.Correction) error {
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

// corrections are those of a part's bucket. The last attempt lifts nothing, and
// so cannot be refused.
func (p *part) corrections(b, taken *table.Bucket, used quota.Demand, now int64, last bool) []quota.Correction {
	corrections := quota.Settle(&b.Bucket, &taken.Bucket, used, now)
	for i := range corrections {
		c := &corrections[i]
		if c.Limit == quota.WriteMeter {
			continue
		}
		if p.bypassed || last && c.Balance > 0 {
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
