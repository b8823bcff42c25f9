package limiter

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// gathers reports whether other shards may give what a bucket lacks: it has
// siblings, and all that it lacks is of limits that are gathered. One that drips is
// for what is more than a shard can hold alone: shards that run dry all have some
// crumbs, and collecting them costs more writes than the uses that wait.
func (a *asking) gathers(b *table.Bucket, have []quota.Shortage) bool {
	return b.Count > 1 && !slices.ContainsFunc(have, func(s quota.Shortage) bool {
		l := b.Limit(s.Limit)
		return s.Short() && (!l.Gathers() || !l.IsQuota() && s.Requested <= s.Ceiling || a.knownShort(s))
	})
}

// shortFor is how long it is remembered that the shards of a group have too little
// of a quota together: who is out of tokens asks most.
const shortFor = time.Second

// knownShort reports whether all shards had less than is asked for a moment ago. A
// shard that can never hold so much cannot say when they will.
func (a *asking) knownShort(s quota.Shortage) bool {
	seen, _ := a.seen.Peek(a.key.Group)
	had, ok := seen.had[s.Limit]
	return ok && a.millis() < seen.until && had < s.Requested && !s.Never
}

// rememberShort keeps what all shards had of what is gathered.
func (a *asking) rememberShort(b *table.Bucket, have []quota.Shortage) {
	seen, _ := a.seen.Peek(a.key.Group)
	seen.had, seen.until = map[string]int64{}, a.now.Add(shortFor).UnixMilli()
	for _, s := range have {
		if b.Limit(s.Limit).Gathers() {
			seen.had[s.Limit] = s.Available
		}
	}
	a.seen.Add(a.key.Group, seen)
}

// gather takes a use off several shards in one transaction. It reads them all,
// and makes those that are missing before it rejects: what they are owed is the
// entity's. Where others write meanwhile it looks again.
func (a *asking) gather(ctx context.Context) (table.Taken, error) {
	for range attempts {
		family, err := a.family(ctx)
		if err != nil {
			return table.Taken{}, err
		}
		shards, missing := a.together(family)
		if own := family[a.key.Shard]; own.Broken != nil {
			return table.Taken{}, fmt.Errorf("shard %d: %w", a.key.Shard, own.Broken)
		} else if own.Bucket == nil {
			return table.Taken{}, nil // gone: it is made, and asked again
		}
		a.now = a.Limiter.now()
		if opens, err := a.openFirst(ctx, shards[0]); err != nil {
			return table.Taken{}, err
		} else if opens {
			continue
		}
		pieces, have, err := quota.PlanGather(bucketsOf(shards), a.demand, a.millis())
		switch {
		case err != nil:
			return table.Taken{}, fmt.Errorf("gather from %d shards: %w", len(shards), err)
		case pieces == nil && len(missing) > 0 && !hopeless(shards[0], have):
			if err := a.createAll(ctx, missing); err != nil {
				return table.Taken{}, err
			}
			continue
		case pieces == nil:
			a.rememberShort(shards[0], have)
			r := rejection(shards[0], have, a.millis())
			r.Together = true
			return table.Taken{}, r
		}
		if taken, err := a.useAll(ctx, shards, pieces); taken.Applied || err != nil {
			return taken, err
		}
	}
	return table.Taken{}, ErrContended
}

// hopeless reports whether more is asked for than all shards can ever hold.
func hopeless(b *table.Bucket, have []quota.Shortage) bool {
	return slices.ContainsFunc(have, func(s quota.Shortage) bool {
		return s.Short() && b.Limit(s.Limit).Gathers() && !b.Together(s.Limit, s.Requested)
	})
}

// together are the shards that can be read, the asked one first, and the numbers
// of those that are not there.
func (a *asking) together(family []table.Sibling) (shards []*table.Bucket, missing []int) {
	for shard, sibling := range family {
		switch b := sibling.Bucket; {
		case b == nil && sibling.Broken == nil:
			missing = append(missing, shard)
		case b == nil:
		case shard == a.key.Shard:
			shards = slices.Insert(shards, 0, b)
		default:
			shards = append(shards, b)
		}
	}
	return shards, missing
}

func bucketsOf(shards []*table.Bucket) []*quota.Bucket {
	buckets := make([]*quota.Bucket, len(shards))
	for i, b := range shards {
		buckets[i] = &b.Bucket
	}
	return buckets
}

// openFirst opens the session windows of the asked shard that are to be opened,
// and tells the others, so that all give in the same.
func (a *asking) openFirst(ctx context.Context, b *table.Bucket) (opens bool, err error) {
	use, _, err := quota.PlanUse(&b.Bucket, nil, a.millis())
	if err != nil || len(use.Opens()) == 0 {
		return false, err
	}
	taken, err := a.table.Use(ctx, b, use, expiry(&b.Bucket, a.millis()))
	if err == nil && taken.Applied {
		a.tell(ctx, opened(b, use.Changes), b.Count)
	}
	return true, err
}

// createAll makes the shards that are missing.
func (a *asking) createAll(ctx context.Context, missing []int) error {
	for _, shard := range missing {
		other := *a
		other.key = a.key.At(shard)
		if err := other.create(ctx); err != nil {
			return err
		}
	}
	return nil
}

// useAll writes the pieces of a use, and keeps what each shard gave.
func (a *asking) useAll(ctx context.Context, shards []*table.Bucket, pieces []quota.Piece) (table.Taken, error) {
	var uses []table.Using
	for _, piece := range pieces {
		at := slices.IndexFunc(shards, func(b *table.Bucket) bool { return &b.Bucket == piece.Bucket })
		uses = append(uses, table.Using{Bucket: shards[at], Use: piece.Use, Expires: expiry(piece.Bucket, a.millis())})
	}
	if len(uses) == 1 {
		only := uses[0]
		taken, err := a.table.Use(ctx, only.Bucket, only.Use, only.Expires)
		if taken.Applied {
			a.gathered = side{{key: only.Bucket.Key, item: taken.Item, latest: taken.Item, demand: pieces[0].Demand}}
		}
		return taken, err
	}
	applied, err := a.table.UseAll(ctx, uses)
	if !applied || err != nil {
		return table.Taken{}, err
	}
	for i, using := range uses {
		item := using.After()
		a.gathered = append(a.gathered, &part{key: using.Bucket.Key, item: item, latest: item, demand: pieces[i].Demand})
	}
	return table.Taken{Applied: true, Item: a.gathered[0].item}, nil
}
