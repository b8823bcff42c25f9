package limiter

import (
	"context"
	"errors"
	"time"

	"github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// groupCache is what a Limiter remembers of a group.
type groupCache struct {
	count     int             // of its shards
	limits    map[string]bool // that its buckets have; nil until one was looked at
	freeUntil int64           // its buckets are bypassed until, epoch ms
}

// charge is what a use charged to one bucket.
type charge struct {
	key      table.Key
	item     table.Item // as the use left it
	latest   table.Item // as the last reconciliation left it
	demand   quota.Demand
	bypassed bool // nothing was taken off balances
}

// charges are what a use charged to one entity: one bucket, or several for a pooled
// limit.
type charges []*charge

// demand sums up what the buckets gave, millitokens.
func (c charges) demand() quota.Demand {
	if len(c) == 1 {
		return c[0].demand
	}
	sum := quota.Demand{}
	for _, one := range c {
		for name, amount := range one.demand {
			sum[name] += amount
		}
	}
	return sum
}

// parent returns the entity that a use takes of too.
func (c charges) parent() (entity string, cascades bool) {
	entity = c[0].item.Text(table.AttrParentID)
	return entity, entity != "" && c[0].item.Flag(table.AttrCascade)
}

var (
	// errNoShard says that the drawn shard is beyond the group's count.
	errNoShard = errors.New("the shard count is lower than was thought")
	// errGivenUp says that others' transactions kept the drawn shard from being created.
	errGivenUp = errors.New("the shard cannot be created for now")
	// errNothing says that a parent has none of the limits that are asked for.
	errNothing = errors.New("nothing to take")
)

// draw asks shards at random until one admits the use, at most as many as
// ShardAttempts allows. Of several rejections it returns the one with the shortest
// wait. A parent gives only of the limits that it has; where it has none of them,
// draw returns no charges.
func (l *Limiter) draw(ctx context.Context, group table.Group, demand quota.Demand, parent bool, now time.Time) (charges, error) {
	var asked uint32 // a bit for each shard
	var best *Rejection
	for attempts := l.shardAttempts; attempts > 0; {
		shard, ok := l.pick(group, asked)
		if !ok {
			break
		}
		asked |= 1 << shard
		charged, err := l.attempt(ctx, group.At(shard), demand, parent, now)
		var rejection *Rejection
		switch {
		case errors.Is(err, errNoShard), errors.Is(err, errGivenUp):
			continue // this is no attempt: the count is known better now, or another shard may do
		case errors.Is(err, errNothing):
			return nil, nil
		case !errors.As(err, &rejection):
			return charged, err
		case rejection.ofAll(): // no shard has what all together have not
			attempts = 1
		}
		if attempts--; best == nil || rejection.sooner(best) {
			best = rejection
		}
	}
	if best == nil {
		return nil, limits.ErrContended
	}
	best.Parent = parent
	return nil, best
}

// pick returns a shard at random that was not asked yet.
func (l *Limiter) pick(group table.Group, asked uint32) (shard int, ok bool) {
	count := 1
	if known, ok := l.groups.Get(group); ok {
		count = known.count
	}
	var free [quota.MaxShards]int
	n := 0
	for shard := range min(count, quota.MaxShards) {
		if asked&(1<<shard) == 0 {
			free[n] = shard
			n++
		}
	}
	if n == 0 {
		return 0, false
	}
	return free[l.pickOf(n)], true
}

// setCount remembers a group's shard count, as a shard states it. Shard 0 alone may
// lower it.
func (l *Limiter) setCount(key table.Key, count int) {
	group, known := l.groups.Peek(key.Group)
	if known && (count == group.count || count < group.count && key.Shard != 0) {
		return
	}
	group.count = count
	l.groups.Add(key.Group, group)
}

// noteCount remembers the shard count that an item states.
func (l *Limiter) noteCount(key table.Key, item table.Item) {
	if count, err := item.ShardCount(); err == nil {
		l.setCount(key, count)
	}
}

// noteLimits remembers which limits a group's buckets have.
func (l *Limiter) noteLimits(b *table.Bucket) {
	group, _ := l.groups.Peek(b.Key.Group)
	group.count, group.limits = max(group.count, b.ShardCount), map[string]bool{}
	for i := range b.Limits {
		group.limits[b.Limits[i].Name] = true
	}
	l.groups.Add(b.Key.Group, group)
}

// noteBypass remembers until when a group's buckets are bypassed.
func (l *Limiter) noteBypass(b *table.Bucket) {
	group, _ := l.groups.Peek(b.Key.Group)
	if group.freeUntil != b.Bypass {
		group.count, group.freeUntil = max(group.count, b.ShardCount), b.Bypass
		l.groups.Add(b.Key.Group, group)
	}
}
