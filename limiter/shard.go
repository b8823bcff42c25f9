package limiter

import (
	"context"
	"fmt"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// create makes the asked shard's bucket, if nobody else does.
func (a *asking) create(ctx context.Context) error {
	if a.key.Shard == 0 {
		return a.found(ctx)
	}
	changed := 0 // how often donors or terms did
	for range maxAttempts {
		outcome, err := a.join(ctx, changed >= 2)
		if err != nil {
			return fmt.Errorf("create shard %d: %w", a.key.Shard, err)
		}
		switch outcome {
		case table.Created, table.Exists:
			return nil
		case table.DonorChanged:
			changed++
		}
	}
	return ErrContended
}

// wholeToken is a token in millitokens. Uses take whole ones, so that the half
// tokens of a part that is none would lie idle on two shards: they stay with the
// donor, where they are whole.
const wholeToken = 1000

// join makes a bucket beside those that a group has. Where donors changed twice
// between being read and being debited, it is to be made empty: less than the
// shard's part, never more than was sold (docs/adr/0003).
func (a *asking) join(ctx context.Context, empty bool) (table.CreationOutcome, error) {
	family, err := a.family(ctx)
	if err != nil {
		return 0, err
	}
	zero, now := family[0].Bucket, a.millis()
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
	fundings, err := quota.Fund(&template.Bucket, table.Buckets(family), a.key.Shard, zero.ShardCount, now)
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
	shard := table.NewShard(&template, a.key.Shard, zero.ShardCount, now, fundings)
	if shard.Item[table.AttrTTL] != nil {
		shard.Item[table.AttrTTL] = whole(expiry(&shard.Bucket, now))
	}
	outcome, err := a.table.Create(ctx, table.Creation{Bucket: shard, Moves: quota.Moves(fundings), ConfigAttrs: zero.ConfigAttrs()})
	if err == nil && outcome == table.Created {
		a.tell(ctx, started(zero, shard), zero.ShardCount)
	}
	return outcome, err
}

// started are the windows of a shard that are not those of shard 0.
func started(zero, shard *table.Bucket) []table.OpenedWindow {
	var windows []table.OpenedWindow
	for i := range shard.Limits {
		is, was := shard.Limits[i].Window, zero.Limits[i].Window
		if is.Start != nil && (was.Start == nil || *was.Start != *is.Start) {
			windows = append(windows, table.OpenedWindow{Limit: shard.Limits[i].Name, Start: *is.Start, Length: is.Length})
		}
	}
	return windows
}

// family reads the shards of a group at the count that shard 0 has, those that
// lag raised to it (docs/adr/0002). It fails with errNoShard where the asked
// shard is none of them.
func (a *asking) family(ctx context.Context) ([]table.Sibling, error) {
	for range maxAttempts {
		zero, err := a.table.Read(ctx, a.key.At(0))
		if err != nil {
			return nil, err
		}
		count := 1
		if zero != nil {
			count = zero.ShardCount
		}
		if a.learn(a.key.At(0), count); a.key.Shard >= count {
			return nil, errNoShard
		}
		family, err := a.table.RaiseAndRead(ctx, a.key.Group, count, a.millis())
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
	return nil, ErrContended
}
