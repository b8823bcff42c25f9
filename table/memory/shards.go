package memory

import (
	"context"
	"fmt"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// Double implements table.Store.
func (s *Store) Double(ctx context.Context, group table.Group, from int) (table.DoubleResult, error) {
	at := bucketKey(group.At(0))
	if err := s.fetch(ctx, at); err != nil {
		return table.DoubleResult{}, fmt.Errorf("double: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	stored := s.items[at]
	if stored == nil {
		return table.DoubleResult{}, nil
	}
	if !image(stored).countIs(from) {
		count, err := stored.ShardCount()
		if err != nil {
			return table.DoubleResult{}, fmt.Errorf("double: %w", err)
		}
		return table.DoubleResult{Count: count}, nil
	}
	next := stored.Clone()
	setNumber(next, table.AttrShardCount, int64(2*from))
	s.set(at, next)
	return table.DoubleResult{Applied: true, Count: 2 * from}, nil
}

// Freeze implements table.Store.
func (s *Store) Freeze(ctx context.Context, key table.Key, freezes []quota.Freeze) error {
	at := bucketKey(key)
	if err := s.fetch(ctx, at); err != nil {
		return fmt.Errorf("freeze shard %d: %w", key.Shard, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if stored := s.items[at]; stored != nil {
		s.set(at, frozen(stored.Clone(), freezes))
	}
	return nil
}

// RaiseAndRead implements table.Store.
func (s *Store) RaiseAndRead(ctx context.Context, group table.Group, count int, now int64) ([]table.Sibling, error) {
	keys := make([]itemKey, count)
	for shard := range keys {
		keys[shard] = bucketKey(group.At(shard))
	}
	if err := s.fetch(ctx, keys...); err != nil {
		return nil, fmt.Errorf("read siblings: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	siblings := make([]table.Sibling, count)
	for shard, at := range keys {
		b, err := decode(s.items[at])
		if err != nil || b == nil || shard == 0 || b.ShardCount >= count {
			siblings[shard] = table.Sibling{Bucket: b, Broken: err}
			continue
		}
		s.set(at, raised(s.items[at], b, count, now))
		b, err = decode(s.items[at])
		siblings[shard] = table.Sibling{Bucket: b, Raised: true, Broken: err}
	}
	return siblings, nil
}

// raised returns a shard's item at a larger count, its legacy grants frozen.
func raised(stored table.Item, b *table.Bucket, count int, now int64) table.Item {
	item := stored.Clone()
	setNumber(item, table.AttrShardCount, int64(count))
	return frozen(item, quota.FrozenGrants(&b.Bucket, now))
}

// frozen sets grant counts on an item where none are.
func frozen(item table.Item, freezes []quota.Freeze) table.Item {
	for _, freeze := range freezes {
		if name := table.Attr(freeze.Limit, table.FieldGrant); item[name] == nil {
			setNumber(item, name, int64(freeze.Grant))
		}
	}
	return item
}

// Create implements table.Store.
func (s *Store) Create(ctx context.Context, creation table.Creation) (table.CreationOutcome, error) {
	key := creation.Bucket.Key
	at, pin, donors := bucketKey(key), bucketKey(key.Group.At(0)), creation.Donors()
	keys := []itemKey{at, pin}
	for _, donor := range donors {
		keys = append(keys, bucketKey(key.Group.At(donor.Shard)))
	}
	if err := s.fetch(ctx, keys...); err != nil {
		return 0, fmt.Errorf("create shard %d: %w", key.Shard, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if stored := s.items[at]; stored != nil {
		if creation.Landed(stored) {
			return table.Created, nil
		}
		return table.Exists, nil
	}
	if first := s.items[pin]; first == nil || !image(first).countIs(creation.Bucket.ShardCount) {
		return table.PinMoved, nil
	} else if !image(first).termed(creation.ConfigAttrs) {
		return table.DonorChanged, nil
	}
	debited, err := s.debited(key.Group, donors)
	if err != nil {
		return 0, fmt.Errorf("create shard %d: %w", key.Shard, err)
	}
	if debited == nil {
		return table.DonorChanged, nil
	}
	for i, donor := range donors {
		s.set(bucketKey(key.Group.At(donor.Shard)), debited[i])
	}
	s.set(at, canonicalItem(creation.Complete()))
	return table.Created, nil
}

// debited returns the donors' items with what is moved taken off, nil where a
// guard does not hold.
func (s *Store) debited(group table.Group, donors []table.Donor) ([]table.Item, error) {
	items := make([]table.Item, len(donors))
	for i, donor := range donors {
		stored := s.items[bucketKey(group.At(donor.Shard))]
		if stored == nil {
			return nil, nil
		}
		items[i] = stored.Clone()
		for _, move := range donor.Moves {
			if !guardHolds(image(stored), move) {
				return nil, nil
			}
			if err := addAmount(items[i], table.Attr(move.Limit, table.FieldBalance), -move.Amount); err != nil {
				return nil, err
			}
		}
	}
	return items, nil
}

// guardHolds reports whether a donor still holds what is moved, its grant as
// read and its period still the current one.
func guardHolds(i image, move quota.Funding) bool {
	guard := move.Guard
	if !i.atLeast(table.Attr(move.Limit, table.FieldBalance), move.Amount) || !grantHolds(i, move) {
		return false
	}
	if guard.SessionOnly {
		return i.isOrAbsent(table.Attr(move.Limit, table.FieldApplied), guard.Applied)
	}
	return guard.RefilledAt == 0 || i.atLeast(table.AttrRefilledAt, guard.RefilledAt)
}

// grantHolds compares the grant count. A legacy grant is inferred from the
// shard count, and a stored one below 1 reads as the shard count: then the
// shard count is compared too.
func grantHolds(i image, move quota.Funding) bool {
	guard, name := move.Guard, table.Attr(move.Limit, table.FieldGrant)
	if guard.Legacy {
		return !i.has(name) && i.countIs(guard.ShardCount)
	}
	return i.is(name, int64(guard.Grant)) ||
		guard.Grant == guard.ShardCount && i.atMost(name, 0) && i.countIs(guard.ShardCount)
}
