package limiter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/sharding"
	"github.com/shardquota/shardquota/table"
)

// create makes a shard's bucket, if nobody else does.
func (l *Limiter) create(ctx context.Context, key table.Key, now time.Time) error {
	if key.Shard == 0 {
		return l.createShardZero(ctx, key, now)
	}
	changed, conflicts := 0, 0 // how often donors did, and how often another transaction was in the way
	for range maxAttempts + maxConflicts {
		outcome, err := l.createBeside(ctx, key, now.UnixMilli(), changed >= 2 || conflicts > maxConflicts/2)
		if errors.Is(err, table.ErrConflict) {
			if conflicts++; conflicts > maxConflicts {
				return errGivenUp
			}
			if err = l.pause(ctx, conflicts); err == nil {
				continue // planned again from fresh images
			}
		}
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

// createBeside makes a bucket beside those that a group has. Where donors changed
// twice between being read and being debited, or conflicts go on, it moves nothing: the shard gets less
// than its share, never more than was sold (docs/adr/0003).
func (l *Limiter) createBeside(ctx context.Context, key table.Key, now int64, moveNothing bool) (table.CreationOutcome, error) {
	family, err := l.readFamily(ctx, key, now)
	if err != nil {
		return 0, err
	}
	plan := sharding.Request{
		Siblings: family, Shard: key.Shard, Count: len(family), Now: now,
		May: sharding.May{OpenWindows: true, WholeTokens: true, MoveNothing: moveNothing, AnyCount: true},
	}.Plan()
	switch plan.Refused {
	case "":
	case sharding.ShardExists:
		return table.Exists, nil
	default:
		return 0, refusal(plan)
	}
	shard := plan.Creation.Bucket
	outcome, err := l.table.Create(ctx, plan.Creation)
	if err == nil && outcome == table.Created {
		l.propagateWindows(ctx, key, plan.Opened, shard.ShardCount)
	}
	return outcome, err
}

// refusal is the error of a shard that cannot be created.
func refusal(plan sharding.Plan) error {
	switch {
	case plan.Refused == sharding.GroupDisabled:
		return ErrDisabled
	case plan.Err != nil:
		return plan.Err
	}
	return errors.New(string(plan.Refused))
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
			if err := l.table.Outlive(ctx, drawn.Group, zero.OutliveAnother(now)); err != nil {
				return nil, err
			}
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
	if b == nil {
		return nil
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
// it, it joins their session windows, and gets of a quota only what none of them was
// granted. It returns nil where someone else has made shard 0 meanwhile.
func (l *Limiter) newShardZero(ctx context.Context, key table.Key, config limits.EffectiveConfig, at time.Time) (*table.Bucket, error) {
	now := at.UnixMilli()
	siblings, err := l.readOrphans(ctx, key.Group, now)
	if err != nil || siblings[0].Bucket != nil {
		return nil, err
	}
	item, err := config.ApplyTo(table.EmptyBucket(key, len(siblings), now), at)
	if err != nil {
		return nil, err
	}
	template, err := table.DecodeBucket(item)
	if err != nil {
		return nil, err
	}
	plan := sharding.Request{
		Siblings: siblings, Count: len(siblings), Now: now, Template: template, May: sharding.May{AnyCount: true},
	}.Plan()
	if plan.Refused != "" {
		return nil, refusal(plan)
	}
	return plan.Creation.Bucket, nil
}

// readOrphans reads the shards of a group whose shard 0 is gone, since it expired
// before them. There are as many as the highest count that one of them states. It
// raises those that lag before it reads them, as beside a shard 0 (docs/adr/0002).
func (l *Limiter) readOrphans(ctx context.Context, group table.Group, now int64) ([]table.Sibling, error) {
	keys, err := l.table.Find(ctx, table.Scope(group))
	if err != nil || len(keys) == 0 {
		return make([]table.Sibling, 1), err
	}
	count := 1
	for _, key := range keys {
		for key.Shard >= count && count < quota.MaxShards {
			count *= 2
		}
	}
	for range maxAttempts {
		family, err := l.table.RaiseAndRead(ctx, group, count, now)
		if err != nil {
			return nil, err
		}
		highest := count
		for _, sibling := range family {
			if sibling.Broken != nil {
				return nil, sibling.Broken
			}
			if sibling.Bucket != nil {
				highest = max(highest, sibling.Bucket.ShardCount)
			}
		}
		if highest == count {
			return family, nil
		}
		count = highest
	}
	return nil, limits.ErrContended
}
