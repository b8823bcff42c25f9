package limiter

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// attempt is a use of one shard under way: the steps that next decides, made on the
// table.
type attempt struct {
	*Limiter
	state
	charged   charges // once it is admitted
	conflicts int     // requests that met another transaction
}

// maxAttempts bounds how often a shard is asked again. Each time but the first,
// someone else has changed its item just before.
const maxAttempts = 16

// attempt takes a demand off one shard: at once where it can, else after what the
// shard's item calls for.
func (l *Limiter) attempt(ctx context.Context, key table.Key, demand quota.Demand, parent bool, now time.Time) (charges, error) {
	group, _ := l.groups.Peek(key.Group)
	a := &attempt{Limiter: l, state: state{key: key, demand: demand, parent: parent, now: now, freeUntil: group.freeUntil}}
	if parent && group.limits != nil {
		if a.demand = restricted(demand, group.limits); len(a.demand) == 0 {
			return nil, errNothing
		}
	}
	var b *table.Bucket
	for refusals := 0; ; {
		item, err := a.do(ctx, next(b, &a.state))
		if errors.Is(err, table.ErrConflict) {
			if a.conflicts++; a.conflicts > maxConflicts {
				return nil, limits.ErrContended
			}
			if err = l.pause(ctx, a.conflicts); err == nil {
				continue // the same step again, which wrote nothing
			}
		}
		if err != nil {
			return nil, err
		}
		switch a.progress {
		case admitted:
			a.firstContact(ctx, item)
			return a.charged, nil
		case refused:
			if refusals++; refusals > maxAttempts {
				return nil, limits.ErrContended
			}
			a.now, a.config = l.store.Now(), nil
			if b, err = a.look(item); err != nil {
				return nil, err
			}
		}
	}
}

// restricted returns a demand without the limits that are not there.
func restricted(demand quota.Demand, there map[string]bool) quota.Demand {
	left := maps.Clone(demand)
	maps.DeleteFunc(left, func(name string, _ int64) bool { return !there[name] })
	return left
}

// look decodes the item of the drawn bucket, and remembers what it says.
func (a *attempt) look(item table.Item) (*table.Bucket, error) {
	if item == nil {
		return nil, nil
	}
	b, err := table.DecodeBucket(item)
	if err != nil {
		return nil, fmt.Errorf("shard %d: %w", a.key.Shard, err)
	}
	if a.mayBypass(b) {
		a.noteBypass(b)
	}
	a.recent = recentShortage{}
	if short, ok := a.short.Get(a.key.Group); ok {
		a.recent = short.recent(b.Shard, a.millis())
	}
	return b, nil
}

// do makes one step, and sets what it came to. It returns the drawn bucket's item
// where it was charged or refused.
func (a *attempt) do(ctx context.Context, s step) (table.Item, error) {
	switch s.action {
	case chargeFast:
		return a.charge(ctx, table.FastCharge{})
	case chargeHot:
		return a.charge(ctx, table.FastCharge{Hot: true})
	case chargeFree:
		a.triedFree = s.bucket != nil
		return a.charge(ctx, table.FastCharge{Free: true})
	case writeUse:
		return a.write(ctx, s.bucket, s.use)
	case readShards:
		return a.gather(ctx)
	case reject:
		if s.learned != nil {
			a.recent.learn(s.bucket, a.demand, s.learned)
		}
		return nil, s.err
	case fail:
		return nil, s.err
	}
	return nil, a.prepare(ctx, s)
}

// charge charges the drawn bucket in one update, without looking at it before.
func (a *attempt) charge(ctx context.Context, how table.FastCharge) (table.Item, error) {
	how.Amounts, how.Now = a.demand, a.millis()
	written, err := a.table.Charge(ctx, a.key, how)
	if err != nil {
		return nil, err
	}
	if written.Item != nil && !how.Hot && !how.Free {
		a.noteCount(a.key, written.Item)
	}
	if a.progress = refused; written.Applied {
		a.admit(written.Item, how.Free)
	}
	return written.Item, nil
}

// admit notes that the drawn bucket has admitted the use.
func (a *attempt) admit(item table.Item, bypassed bool) {
	a.progress = admitted
	a.charged = charges{{key: a.key, item: item, latest: item, demand: a.demand, bypassed: bypassed}}
}

// write writes a use that was planned from a bucket's item, and then does what it
// calls for: it propagates windows and doubles hot shards.
func (a *attempt) write(ctx context.Context, b *table.Bucket, use *quota.Use) (table.Item, error) {
	if err := a.table.Outlive(ctx, a.key.Group, b.Outlive(a.millis())); err != nil {
		return nil, err
	}
	written, err := a.table.Use(ctx, b, use)
	if err != nil {
		return nil, err
	}
	if !written.Applied {
		a.progress = overtaken
		return nil, nil
	}
	a.noteCount(a.key, written.Item) // before it is doubled
	a.admit(written.Item, a.millis() < b.Bypass)
	a.propagateWindows(ctx, a.key, openedBy(b, use.Changes), b.ShardCount)
	a.double(ctx, b, a.millis())
	return written.Item, nil
}

// prepare makes a step that readies the bucket for being charged.
func (a *attempt) prepare(ctx context.Context, s step) error {
	a.progress = prepared
	switch s.action {
	case createShard:
		return a.create(ctx, a.key, a.now)
	case addLimits:
		return a.store.RollOut(ctx, a.key.Group, a.now)
	case restrictUse:
		a.noteLimits(s.bucket)
		if a.demand = s.demand; len(a.demand) == 0 {
			return errNothing
		}
	case readConfig:
		config, err := a.store.Cached(ctx, a.key.Group, a.now)
		a.config, a.configErr, a.progress = &config, err, configRead
	case renewStamps:
		written, err := a.table.Amend(ctx, s.bucket.Key.PK(), table.StateSK, s.renewal)
		if !written.Applied {
			a.progress = notRenewed
		}
		return err
	}
	return nil
}

// firstContact looks at a bucket of a group that this Limiter meets for the first
// time. It remembers which limits the bucket has. Where the program declares others
// and no level stores any, it rolls the program's out. The use is done by now: what
// fails here is tried when the group is met again.
func (a *attempt) firstContact(ctx context.Context, item table.Item) {
	if group, known := a.groups.Peek(a.key.Group); known && group.limits != nil {
		return
	}
	b, err := table.DecodeBucket(item)
	if err != nil {
		return
	}
	if !a.store.HasDefaults(b) {
		config, err := a.store.Cached(ctx, b.Key.Group, a.now)
		if err != nil || config.Default && a.store.RollOut(ctx, b.Key.Group, a.now) != nil {
			return
		}
	}
	a.noteLimits(b)
}

// double doubles the shards of a group whose shard 0 runs hot, and raises the other
// shards. The use is done by now: what fails here is tried at the next one.
func (l *Limiter) double(ctx context.Context, b *table.Bucket, now int64) {
	if !quota.Doubles(&b.Bucket, now) {
		return
	}
	if freezes := quota.FrozenGrants(&b.Bucket, now); len(freezes) > 0 {
		if err := l.table.Freeze(ctx, b.Key, freezes); err != nil {
			return
		}
	}
	doubled, err := l.table.Double(ctx, b.Key.Group, b.ShardCount)
	if err != nil || doubled.Count == 0 {
		return
	}
	l.setCount(b.Key, doubled.Count)
	_, _ = l.table.RaiseAndRead(ctx, b.Key.Group, doubled.Count, now)
}
