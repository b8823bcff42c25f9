package limiter

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// ErrReleased says that a lease was released already, or is adjusted though its
// release has begun.
var ErrReleased = errors.New("the lease was released")

// Lease is what a use took. It is safe for concurrent use.
type Lease struct {
	limiter *Limiter
	counted bool // false where the table could not be reached, and uses are admitted then

	mu       sync.Mutex
	charges  []charges // the entity's, then its parent's
	begun    bool      // the release
	released bool
}

// Counted reports whether the use was counted. It was not where the table could not
// be reached and the Limiter allows that.
func (l *Lease) Counted() bool { return l.counted }

// Taken returns what the lease holds by now, tokens by limit name.
func (l *Lease) Taken() Amounts {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := Amounts{}
	if len(l.charges) > 0 {
		for name, amount := range l.charges[0].demand() {
			taken[name] = amount / 1000
		}
	}
	return taken
}

// Left returns what the charged shards had left of the limits that were asked for,
// when the lease was last adjusted: tokens, rounded down, negative in debt. Other
// shards may have more. What has dripped since is not in it.
func (l *Lease) Left() Amounts {
	l.mu.Lock()
	defer l.mu.Unlock()
	left := Amounts{}
	if len(l.charges) == 0 {
		return left
	}
	for _, c := range l.charges[0] {
		for name := range c.demand {
			if balance, ok := c.latest.Int(table.Attr(name, table.FieldBalance)); ok {
				left[name] += balance
			}
		}
	}
	for name, balance := range left {
		left[name] = floor(balance)
	}
	return left
}

// Adjust reconciles the lease with what was really used: tokens by limit name that
// were used beyond what was taken, or less than that where an amount is negative. It
// takes limits too of which nothing was taken.
//
// Adjust may take a balance below zero; later uses wait until it recovers. A refund
// never lifts a balance above its ceiling. It never adds to a later period's quota. A
// bucket that is gone took its tokens with it: a refund to it counts as made, and
// nothing more is taken of it.
//
// Where the error wraps table.ErrRetry, some of it may have been written. Taken says
// what the lease holds; a refund that may have been written counts as made. Adjust
// does not retry by itself. Any other error says that nothing was written. Once a
// Release has begun, even one that failed, the error is ErrReleased.
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
	held := l.charges[0].demand()
	for name, amount := range demand {
		if held[name]+amount < 0 {
			return fmt.Errorf("%w: %.80s: %d would give back more than the %d that were taken", ErrAmount, name, amount/1000, held[name]/1000)
		}
	}
	err := l.adjust(ctx, demand)
	if err != nil && !errors.Is(err, table.ErrRetry) && !maps.Equal(held, l.charges[0].demand()) {
		return fmt.Errorf("%w: some of it was settled: %w", table.ErrRetry, err)
	}
	return err
}

// Release refunds everything that the lease holds: the use did not happen. It can be
// retried where it failed. What it may have refunded by then, since the error wraps
// table.ErrRetry, it does not refund again.
func (l *Lease) Release(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.released {
		return ErrReleased
	}
	l.begun = true
	for len(l.charges) > 0 {
		last := l.charges[len(l.charges)-1]
		refund := quota.Demand{}
		for name, amount := range last.demand() {
			refund[name] = -amount
		}
		if err := l.limiter.reconcile(ctx, last, refund); err != nil {
			return fmt.Errorf("release: %w", err)
		}
		l.charges = l.charges[:len(l.charges)-1]
	}
	l.released = true
	return nil
}

// patience is how long a use that failed halfway tries to refund, whatever its
// context says.
const patience = 5 * time.Second

// undo refunds what a use took of an entity whose parent gave nothing.
func (l *Lease) undo(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	return l.Release(ctx)
}

// adjust reconciles with the entity, and then brings its parent to the same, as far as
// the parent has the limits: also what an earlier adjustment wrote to the child alone.
func (l *Lease) adjust(ctx context.Context, used quota.Demand) error {
	own := l.charges[0]
	for i, c := range l.charges {
		if i > 0 {
			if used = c.behind(own, used); len(used) == 0 {
				continue
			}
		}
		if err := l.limiter.reconcile(ctx, c, used); err != nil {
			return fmt.Errorf("adjust: %w", err)
		}
	}
	return nil
}

// behind returns what a parent has to reconcile to hold what its child does.
func (c charges) behind(child charges, used quota.Demand) quota.Demand {
	missing, held, target := quota.Demand{}, c.demand(), child.demand()
	for name := range used {
		amount := target[name] - held[name]
		if amount != 0 && c[0].item[table.Attr(name, table.FieldBalance)] != nil {
			missing[name] = amount
		}
	}
	return missing
}

// reconcile reconciles what an entity was charged, millitokens. The first bucket that
// gave of a limit takes what was used beyond it. A refund goes to those that gave, the
// last one first. All of it is checked before any is written.
func (l *Limiter) reconcile(ctx context.Context, c charges, used quota.Demand) error {
	if len(refunds(used)) > 0 {
		defer l.short.Remove(c[0].key.Group)
	}
	var all []reconciliation
	for i := len(c) - 1; i >= 0; i-- {
		portion := used
		if len(c) > 1 {
			if portion = c.portion(i, used); len(portion) == 0 {
				continue
			}
		}
		one, err := c[i].reconciliation(portion, l.store.Now().UnixMilli())
		if err != nil {
			return err
		}
		all = append(all, one)
		used = minus(used, portion)
	}
	for _, one := range all {
		if err := l.writeReconciliation(ctx, one); err != nil {
			return err
		}
	}
	return nil
}

// portion returns what the i-th bucket reconciles, once those behind it are done.
func (c charges) portion(i int, used quota.Demand) quota.Demand {
	if i == 0 {
		return used
	}
	portion := quota.Demand{}
	for name, amount := range used {
		if refund := min(-amount, c[i].demand[name]); refund > 0 {
			portion[name] = -refund
		} else if amount > 0 && c.firstOf(name) == i {
			portion[name] = amount
		}
	}
	return portion
}

// firstOf returns the place of the first bucket that was asked for a limit.
func (c charges) firstOf(name string) int {
	return slices.IndexFunc(c, func(one *charge) bool { _, asked := one.demand[name]; return asked })
}

// minus returns what is left of a demand when a portion of it is done.
func minus(used, portion quota.Demand) quota.Demand {
	left := maps.Clone(used)
	for name, amount := range portion {
		if left[name] -= amount; left[name] == 0 {
			delete(left, name)
		}
	}
	return left
}

// reconciliation is what one bucket has to reconcile.
type reconciliation struct {
	*charge
	used        quota.Demand  // millitokens
	taken, last *table.Bucket // as the use left it, and the last reconciliation
	now         int64
}

// reconciliation checks what a bucket has to reconcile. The error wraps
// limits.ErrUndefined, ErrAmount, or says why the bucket cannot be read.
func (c *charge) reconciliation(used quota.Demand, now int64) (reconciliation, error) {
	r := reconciliation{charge: c, used: used, now: now}
	var err error
	if r.taken, err = table.DecodeBucket(c.item); err == nil {
		r.last, err = table.DecodeBucket(c.latest)
	}
	if err != nil {
		return r, fmt.Errorf("shard %d: %w", c.key.Shard, err)
	}
	for name := range used {
		if r.taken.Limit(name) == nil || name == quota.WriteMeter {
			return r, fmt.Errorf("%w: %.80s on %s", limits.ErrUndefined, name, c.key.Resource)
		}
	}
	if !c.bypassed {
		r.taken.Bypass = 0 // the balance gave it, whatever the stamp says
	}
	return r, checkRoom(r.last, r.adjustments(r.last, false))
}

// writeReconciliation reconciles what one bucket gave.
func (l *Limiter) writeReconciliation(ctx context.Context, r reconciliation) error {
	b := r.last
	for try := range maxAttempts {
		adjustments := r.adjustments(b, try == maxAttempts-1)
		if err := checkRoom(b, adjustments); err != nil {
			return err
		}
		written, err := l.table.Reconcile(ctx, b, adjustments)
		if err != nil {
			if errors.Is(err, table.ErrRetry) && !errors.Is(err, table.ErrThrottled) {
				r.note(refunds(r.used), r.latest)
			}
			return err
		}
		if written.Applied {
			r.note(r.used, written.Item)
			l.outliveDebt(ctx, written.Item, r.now)
			return nil
		}
		if b, err = written.Bucket(); err != nil {
			return err
		}
		if b == nil { // gone: there is nothing to reconcile
			r.note(refunds(r.used), r.latest)
			return nil
		}
	}
	return limits.ErrContended
}

// outliveDebt has a bucket that is in debt expire later: gone before it is repaid, the
// debt would be forgiven. It ignores failures: whoever passes the bucket next does it.
func (l *Limiter) outliveDebt(ctx context.Context, item table.Item, now int64) {
	if b, err := table.DecodeBucket(item); err == nil {
		_ = l.table.Outlive(ctx, b.Key.Group, b.Outlive(now))
	}
}

// checkRoom refuses adjustments that would leave a bucket that nobody can read.
func checkRoom(b *table.Bucket, adjustments []quota.Adjustment) error {
	for _, a := range adjustments {
		l := b.Limit(a.Limit)
		for _, sum := range []int64{l.Balance + a.Balance, l.Consumed + a.Consumed} { // of two amounts, which fits
			if sum < -quota.MaxAmount || sum > quota.MaxAmount {
				return fmt.Errorf("%w: %.80s: with it the bucket would hold more than there is room for", ErrAmount, a.Limit)
			}
		}
	}
	return nil
}

// refunds returns the part of a demand that is given back. Where an answer is lost it
// counts as made: a second refund would be the tokens of others.
func refunds(used quota.Demand) quota.Demand {
	back := maps.Clone(used)
	maps.DeleteFunc(back, func(_ string, amount int64) bool { return amount > 0 })
	return back
}

// adjustments returns those of the bucket as it is. The last try lifts no balance, and
// so cannot be refused.
func (r reconciliation) adjustments(b *table.Bucket, last bool) []quota.Adjustment {
	adjustments := quota.Reconcile(&b.Bucket, &r.taken.Bucket, r.used, r.now)
	for i := range adjustments {
		a := &adjustments[i]
		if a.Limit == quota.WriteMeter {
			continue
		}
		if r.bypassed || last && a.Balance > 0 {
			a.Balance, a.Max = 0, nil
		}
	}
	return adjustments
}

// note notes what the bucket's charge is now.
func (c *charge) note(used quota.Demand, latest table.Item) {
	c.latest, c.demand = latest, maps.Clone(c.demand)
	for name, amount := range used {
		c.demand[name] += amount
	}
}
