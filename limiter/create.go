package limiter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// create makes a shard's bucket, if nobody else does.
func (l *Limiter) create(ctx context.Context, key table.Key, now time.Time) error {
	if key.Shard == 0 {
		return l.createShardZero(ctx, key, now)
	}
	changed := 0 // how often donors did
	for range maxAttempts {
		outcome, err := l.createBeside(ctx, key, now.UnixMilli(), changed >= 2)
		if err != nil {
			return fmt.Errorf("create shard %d: %w", key.Shard, err)
		}
		switch outcome {
		case table.Created, table.Exists:
			return nil
		case table.DonorChanged:
			changed++
		}
	}
	return limits.ErrContended
}

// wholeToken is a token in millitokens. Uses take whole tokens, so that half a token
// would lie idle on two shards: moves leave it with the donor.
const wholeToken = 1000

// createBeside makes a bucket beside those that a group has. Where donors changed
// twice between being read and being debited, it makes it empty: less than the
// shard's share, never more than was sold (docs/adr/0003).
func (l *Limiter) createBeside(ctx context.Context, key table.Key, millis int64, empty bool) (table.CreationOutcome, error) {
	family, err := l.readFamily(ctx, key, millis)
	if err != nil {
		return 0, err
	}
	zero, now := family[0].Bucket, millis
	for _, sibling := range family {
		if sibling.Broken != nil {
			return 0, sibling.Broken
		}
		if sibling.Bucket != nil {
			now = max(now, sibling.Bucket.RefilledAt)
		}
	}
	if zero.Disabled {
		return 0, ErrDisabled
	}
	if err := zero.Readable(now); err != nil {
		return 0, err
	}
	// The shard joins shard 0's windows, and opens its own where those have ended.
	template := *zero
	template.Bucket = *zero.Opened(now)
	fundings, err := quota.Fund(&template.Bucket, table.Buckets(family), key.Shard, zero.ShardCount, now)
	if err != nil {
		return 0, err
	}
	for i := range fundings {
		if f := &fundings[i]; f.Source == quota.Move {
			f.Amount -= f.Amount % wholeToken
			if empty {
				f.Amount = 0
			}
		}
	}
	shard := table.NewShard(&template, key.Shard, zero.ShardCount, now, fundings)
	if shard.Item[table.AttrTTL] != nil {
		shard.Item[table.AttrTTL] = table.Int(limits.Expiry(&shard.Bucket, now))
	}
	outcome, err := l.table.Create(ctx, table.Creation{Bucket: shard, Moves: quota.Moves(fundings), ConfigAttrs: zero.ConfigAttrs()})
	if err == nil && outcome == table.Created {
		l.propagateWindows(ctx, key, newWindows(zero, shard), zero.ShardCount)
	}
	return outcome, err
}

// readFamily reads the shards of a group at the count that shard 0 has. It raises
// those that lag to that count first (docs/adr/0002). It fails with errNoShard where
// the drawn shard is beyond the count.
func (l *Limiter) readFamily(ctx context.Context, drawn table.Key, now int64) ([]table.Sibling, error) {
	for range maxAttempts {
		zero, err := l.table.Read(ctx, drawn.At(0))
		if err != nil {
			return nil, err
		}
		count := 1
		if zero != nil {
			count = zero.ShardCount
		}
		if l.setCount(drawn.At(0), count); drawn.Shard >= count {
			return nil, errNoShard
		}
		family, err := l.table.RaiseAndRead(ctx, drawn.Group, count, now)
		if err != nil {
			return nil, err
		}
		if family[0].Broken != nil {
			return nil, family[0].Broken
		}
		if zero = family[0].Bucket; zero != nil && zero.ShardCount == count {
			return family, nil
		}
	}
	return nil, limits.ErrContended
}

// createShardZero makes shard 0 of a group, with the limits in force. It reads the
// configuration again afterwards: an operator who changed it meanwhile could not see
// the bucket yet.
func (l *Limiter) createShardZero(ctx context.Context, key table.Key, now time.Time) error {
	config, err := l.store.Effective(ctx, key.Group, now)
	if config.Access == limits.Disabled {
		return ErrDisabled
	}
	if err != nil {
		return err
	}
	b, err := l.newShardZero(ctx, key, config, now)
	if err != nil {
		return fmt.Errorf("create shard 0: %w", err)
	}
	inserted, err := l.table.Insert(ctx, b.Item)
	if err != nil || !inserted {
		return err
	}
	again, err := l.store.Effective(ctx, key.Group, now)
	if errors.Is(err, limits.ErrUndefined) || err == nil && config.Equal(again) {
		return nil
	}
	if err != nil {
		return err
	}
	return l.store.RollOut(ctx, key.Group, now)
}

// newShardZero returns shard 0 of a group that has none. Where other shards outlived
// it, it joins them, and gets of a quota only what none of them was granted.
func (l *Limiter) newShardZero(ctx context.Context, key table.Key, config limits.EffectiveConfig, at time.Time) (*table.Bucket, error) {
	siblings, count, err := l.readOrphans(ctx, key.Group, at.UnixMilli())
	if err != nil {
		return nil, err
	}
	now := at.UnixMilli()
	for _, sibling := range siblings {
		now = max(now, sibling.RefilledAt)
	}
	item, err := config.ApplyTo(table.EmptyBucket(key, count, now), at)
	if err != nil {
		return nil, err
	}
	b, err := table.DecodeBucket(item)
	if err != nil {
		return nil, err
	}
	// A session's first use has to open its window, and must not be admitted before.
	if boundary, bound := b.NextBoundary(now); !bound || boundary > now {
		if b.ValidUntil = nil; bound {
			b.ValidUntil = &boundary
		}
		b.Fill()
	}
	return b, subtractGranted(b, siblings, now)
}

// readOrphans reads the shards of a group whose shard 0 is gone, since it expired
// before them. Their count is the highest that one of them states. It raises those
// that lag before it reads them, as beside a shard 0 (docs/adr/0002).
func (l *Limiter) readOrphans(ctx context.Context, group table.Group, now int64) (siblings []*quota.Bucket, count int, err error) {
	keys, err := l.table.Find(ctx, table.Scope(group))
	if err != nil || len(keys) == 0 {
		return nil, 1, err
	}
	count = 1
	for _, key := range keys {
		for key.Shard >= count && count < quota.MaxShards {
			count *= 2
		}
	}
	for range maxAttempts {
		family, err := l.table.RaiseAndRead(ctx, group, count, now)
		if err != nil {
			return nil, 0, err
		}
		highest := count
		for _, sibling := range family {
			if sibling.Broken != nil {
				return nil, 0, sibling.Broken
			}
			if sibling.Bucket != nil {
				highest = max(highest, sibling.Bucket.ShardCount)
			}
		}
		if highest == count {
			return table.Buckets(family), count, nil
		}
		count = highest
	}
	return nil, 0, limits.ErrContended
}

// subtractGranted leaves shards what they were granted of a new shard 0's share, and
// has it join their windows. A move off them would check that shard 0 exists, so that
// none is possible: shard 0 begins with nothing of a limit that a donor would give. A
// quota comes with its next period, and a dripping limit drips.
func subtractGranted(b *table.Bucket, siblings []*quota.Bucket, now int64) error {
	if len(siblings) == 0 {
		return nil
	}
	for i := range b.Limits {
		l := &b.Limits[i]
		for _, sibling := range siblings {
			theirs := sibling.Limit(l.Name)
			if l.Kind() == quota.Session && theirs != nil && theirs.Kind() == quota.Session && theirs.Current(sibling.RefilledAt, now) {
				l.Window.Start, l.Window.Applied = theirs.Window.Start, theirs.Window.Start
			}
		}
	}
	fundings, err := quota.Fund(&b.Bucket, siblings, 0, b.ShardCount, now)
	if err != nil {
		return err
	}
	for _, f := range fundings {
		if b.Limit(f.Limit).Balance = f.Amount; f.Source == quota.Move {
			b.Limit(f.Limit).Balance = 0
		}
	}
	b.Fill()
	return nil
}
