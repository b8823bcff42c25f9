package limiter

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// sighting is what is remembered of a group.
type sighting struct {
	count  int             // of its shards
	limits map[string]bool // that its buckets have; nil while none was looked at
	free   int64           // until when they are bypassed, epoch ms
}

// part is what one bucket gave to a use.
type part struct {
	key      table.Key
	item     table.Item // as the use left it
	latest   table.Item // as the last settlement left it
	demand   quota.Demand
	bypassed bool // nothing was taken off balances
}

// side is what an entity's buckets gave to one use: one of them, or several to
// what is gathered.
type side []*part

// demand is what they gave together, millitokens.
func (s side) demand() quota.Demand {
	if len(s) == 1 {
		return s[0].demand
	}
	sum := quota.Demand{}
	for _, p := range s {
		for name, amount := range p.demand {
			sum[name] += amount
		}
	}
	return sum
}

// parent is the entity that is to give too.
func (s side) parent() (entity string, cascades bool) {
	entity = s[0].item.Text(table.AttrParentID)
	return entity, entity != "" && s[0].item.Flag(table.AttrCascade)
}

var (
	// errNoShard says that a shard that was drawn is none of the group's.
	errNoShard = errors.New("the shard count is lower than was thought")
	// errNothing says that a parent has none of the limits that are asked for.
	errNothing = errors.New("nothing to take")
)

// draw asks shards at random until one gives, so many as the Limiter may. The
// rejection that is returned promises the most. A parent gives of those limits
// alone that it has; where it has none of them, the side is nil.
func (l *Limiter) draw(ctx context.Context, group table.Group, demand quota.Demand, parent bool, now time.Time) (side, error) {
	var asked uint32 // a bit for each shard
	var best *Rejection
	for draws := l.draws; draws > 0; {
		shard, ok := l.pick(group, asked)
		if !ok {
			break
		}
		asked |= 1 << shard
		gave, err := l.ask(ctx, group.At(shard), demand, parent, now)
		var rejection *Rejection
		switch {
		case errors.Is(err, errNoShard):
			continue // it was no draw: the count is known better now
		case errors.Is(err, errNothing):
			return nil, nil
		case !errors.As(err, &rejection):
			return gave, err
		case rejection.ofAll(): // no other has what all have not
			draws = 1
		}
		if draws--; best == nil || rejection.sooner(best) {
			best = rejection
		}
	}
	if best == nil {
		return nil, ErrContended
	}
	best.Parent = parent
	return nil, best
}

// pick returns a shard at random that was not asked yet.
func (l *Limiter) pick(group table.Group, asked uint32) (shard int, ok bool) {
	count := 1
	if seen, known := l.seen.Get(group); known {
		count = seen.count
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

// learn remembers a group's shard count. Only shard 0 can tell that it is lower
// than was thought.
func (l *Limiter) learn(key table.Key, count int) {
	seen, known := l.seen.Peek(key.Group)
	if known && (count == seen.count || count < seen.count && key.Shard != 0) {
		return
	}
	seen.count = count
	l.seen.Add(key.Group, seen)
}

// asking is a use of one shard under way.
type asking struct {
	*Limiter
	key    table.Key
	demand quota.Demand
	parent bool
	now    time.Time

	tried    bool // to take free
	bypassed bool
	gathered side // what several shards gave; nil where the asked one did
	told     bool // the other shards of session windows
}

func (a *asking) millis() int64 { return a.now.UnixMilli() }

// maxAttempts bounds how often a shard is asked. Each but the first begins with an
// item that someone else has changed just before.
const maxAttempts = 16

// ask takes a demand off one shard: at once where it can, else after what the
// shard's item calls for.
func (l *Limiter) ask(ctx context.Context, key table.Key, demand quota.Demand, parent bool, now time.Time) (side, error) {
	a := &asking{Limiter: l, key: key, demand: demand, parent: parent, now: now}
	if err := a.narrow(); err != nil {
		return nil, err
	}
	taken, err := a.begin(ctx)
	for attempt := 0; err == nil && !taken.Applied && attempt < maxAttempts; attempt++ {
		a.now = l.now()
		taken, err = a.prepare(ctx, taken.Item)
	}
	switch {
	case err != nil:
		return nil, err
	case !taken.Applied:
		return nil, ErrContended
	}
	a.meet(ctx, taken.Item)
	if a.gathered != nil {
		return a.gathered, nil
	}
	return side{{key: key, item: taken.Item, latest: taken.Item, demand: a.demand, bypassed: a.bypassed}}, nil
}

// narrow leaves out of what a parent is asked for what it is known not to have.
func (a *asking) narrow() error {
	seen, ok := a.seen.Peek(a.key.Group)
	if !a.parent || !ok || seen.limits == nil {
		return nil
	}
	a.demand = maps.Clone(a.demand)
	maps.DeleteFunc(a.demand, func(name string, _ int64) bool { return !seen.limits[name] })
	if len(a.demand) == 0 {
		return errNothing
	}
	return nil
}

// begin asks first as the group was last known.
func (a *asking) begin(ctx context.Context) (table.WriteResult, error) {
	if seen, _ := a.seen.Peek(a.key.Group); a.millis() < seen.free {
		return a.takeFree(ctx)
	}
	return a.take(ctx)
}

// take is the fast path: one update, and no look at the item before.
func (a *asking) take(ctx context.Context) (table.WriteResult, error) {
	taken, err := a.table.Charge(ctx, a.key, table.FastCharge{Amounts: a.demand, Now: a.millis()})
	if taken.Item != nil {
		a.hear(taken.Item)
	}
	return taken, err
}

// hear remembers what an item says of the shard count.
func (a *asking) hear(item table.Item) {
	if count, err := item.ShardCount(); err == nil {
		a.learn(a.key, count)
	}
}

// takeHot takes though the write meter is spent: the bucket was passed just now
// by someone else, who looks after the heat.
func (a *asking) takeHot(ctx context.Context) (table.WriteResult, error) {
	return a.table.Charge(ctx, a.key, table.FastCharge{Amounts: a.demand, Now: a.millis(), Hot: true})
}

// takeFree meters a use of a bucket that is bypassed.
func (a *asking) takeFree(ctx context.Context) (table.WriteResult, error) {
	taken, err := a.table.Charge(ctx, a.key, table.FastCharge{Amounts: a.demand, Now: a.millis(), Free: true})
	a.bypassed = taken.Applied
	return taken, err
}

// prepare does what an item calls for that did not give at once, and asks again
// or, where both can be done in one update, takes with it.
func (a *asking) prepare(ctx context.Context, item table.Item) (table.WriteResult, error) {
	if item == nil {
		if err := a.create(ctx); err != nil {
			return table.WriteResult{}, err
		}
		return a.take(ctx)
	}
	b, err := table.DecodeBucket(item)
	if err != nil {
		return table.WriteResult{}, fmt.Errorf("shard %d: %w", a.key.Shard, err)
	}
	if b.Disabled {
		return table.WriteResult{}, ErrDisabled
	}
	if !a.tried && a.bypasses(b) { // one that is to be passed first is tried once
		a.tried = true
		return a.takeFree(ctx)
	}
	use, have, err := quota.PlanUse(&b.Bucket, a.demand, a.millis())
	switch {
	case errors.Is(err, quota.ErrNoLimit):
		return a.supply(ctx, b)
	case err != nil:
		return table.WriteResult{}, fmt.Errorf("shard %d: %w", a.key.Shard, err)
	case use == nil:
		return a.reject(ctx, b, have)
	}
	return a.use(ctx, b, use)
}

// bypasses reports whether a bucket admits everything for now, and remembers
// until when. One that lacks a limit gets it first.
func (a *asking) bypasses(b *table.Bucket) bool {
	for name := range a.demand {
		if b.Limit(name) == nil {
			return false
		}
	}
	seen, _ := a.seen.Peek(a.key.Group)
	if seen.free != b.Bypass {
		seen.count, seen.free = max(seen.count, b.ShardCount), b.Bypass
		a.seen.Add(a.key.Group, seen)
	}
	return a.millis() < b.Bypass
}

// use writes what was planned from a bucket's item, and then does what a use
// leaves to be done. A lock that was lost leaves a plain taking.
func (a *asking) use(ctx context.Context, b *table.Bucket, use *quota.Use) (table.WriteResult, error) {
	taken, err := a.table.Use(ctx, b, use, expiry(&b.Bucket, a.millis()))
	if err != nil {
		return table.WriteResult{}, err
	}
	if !taken.Applied {
		return a.takeHot(ctx)
	}
	a.hear(taken.Item) // before it is doubled
	a.bypassed = a.millis() < b.Bypass
	a.tell(ctx, opened(b, use.Changes), b.ShardCount)
	a.double(ctx, b)
	return taken, nil
}

// reject is the rejection of a use, unless a stamp that would have admitted it
// has only to be renewed, or other shards may give what this one lacks.
func (a *asking) reject(ctx context.Context, b *table.Bucket, have []quota.Shortage) (table.WriteResult, error) {
	renewed, err := a.renew(ctx, b)
	if err != nil {
		return table.WriteResult{}, err
	}
	if renewed {
		return a.take(ctx)
	}
	if !gathers(b, have) {
		return table.WriteResult{}, rejection(b, have, a.millis())
	}
	if r := a.knownShort(b); r != nil {
		return table.WriteResult{}, r
	}
	return a.gather(ctx)
}

// double doubles the shards of a group whose shard 0 runs hot, and tells the
// others. The use is done by now: what fails here is tried at the next one.
func (a *asking) double(ctx context.Context, b *table.Bucket) {
	if !quota.Doubles(&b.Bucket, a.millis()) {
		return
	}
	if freezes := quota.FrozenGrants(&b.Bucket, a.millis()); len(freezes) > 0 {
		if err := a.table.Freeze(ctx, b.Key, freezes); err != nil {
			return
		}
	}
	doubled, err := a.table.Double(ctx, b.Key.Group, b.ShardCount)
	if err != nil || doubled.Count == 0 {
		return
	}
	a.learn(b.Key, doubled.Count)
	_, _ = a.table.RaiseAndRead(ctx, b.Key.Group, doubled.Count, a.millis())
}
