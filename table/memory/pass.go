package memory

import (
	"context"
	"fmt"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// Pass implements table.Store.
func (s *Store) Pass(ctx context.Context, bucket *table.Bucket, pass *quota.Pass) (table.PassResult, error) {
	at := bucketKey(bucket.Key)
	if err := s.fetch(ctx, at); err != nil {
		return table.PassResult{}, fmt.Errorf("write pass: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	stored := s.items[at]
	if stored == nil || !passHolds(image(stored), bucket, pass) {
		return table.PassResult{Current: decodable(stored)}, nil
	}
	next, err := passed(stored, pass)
	if err != nil {
		return table.PassResult{}, fmt.Errorf("write pass: %w", err)
	}
	s.set(at, next)
	return table.PassResult{Applied: true}, nil
}

func passHolds(i image, bucket *table.Bucket, pass *quota.Pass) bool {
	if !i.reads(table.AttrRefilledAt, pass.ExpectRefilledAt) ||
		!i.isOrAbsent(table.AttrValidUntil, pass.ExpectValidUntil) ||
		!i.countAtMost(pass.ShardCount) {
		return false
	}
	if (pass.ValidUntil != nil || pass.Unbound) && !i.same(table.AttrSchedule, bucket.Item[table.AttrSchedule]) {
		return false
	}
	if table.ConfigChanged(bucket) && !i.termed(bucket.PassConfigAttrs()) {
		return false
	}
	for _, change := range pass.Changes {
		if !changeHolds(i, change) {
			return false
		}
		if table.Holds(pass, change) && !unchanged(i, bucket, change) {
			return false
		}
	}
	return true
}

func changeHolds(i image, change quota.Change) bool {
	if change.Max != nil && !i.atMost(table.Attr(change.Limit, table.FieldBalance), *change.Max) {
		return false
	}
	start := table.Attr(change.Limit, table.FieldStart)
	if change.Open != nil {
		return i.isOrAbsent(start, change.Open.Over)
	}
	return change.Roll == nil || i.is(start, *change.Roll)
}

// unchanged reports whether a limit's balance and consumption are as the pass
// read them.
func unchanged(i image, bucket *table.Bucket, change quota.Change) bool {
	return i.is(table.Attr(change.Limit, table.FieldBalance), change.Read) &&
		i.reads(table.Attr(change.Limit, table.FieldConsumed), bucket.Limit(change.Limit).Consumed)
}

// passed returns the item with the pass written.
func passed(stored table.Item, pass *quota.Pass) (table.Item, error) {
	item := stored.Clone()
	setNumber(item, table.AttrRefilledAt, max(pass.RefilledAt, pass.ExpectRefilledAt))
	if pass.ValidUntil != nil {
		setNumber(item, table.AttrValidUntil, *pass.ValidUntil)
	}
	if pass.Unbound {
		delete(item, table.AttrValidUntil)
	}
	for _, change := range pass.Changes {
		if change.Delta != 0 {
			if err := addAmount(item, table.Attr(change.Limit, table.FieldBalance), change.Delta); err != nil {
				return nil, err
			}
		}
		if change.Restore {
			setNumber(item, table.Attr(change.Limit, table.FieldGrant), int64(pass.ShardCount))
			delete(item, table.Attr(change.Limit, table.FieldTopUp))
		}
		if change.Open != nil {
			setNumber(item, table.Attr(change.Limit, table.FieldStart), change.Open.Start)
		}
		if change.Applied != nil {
			setNumber(item, table.Attr(change.Limit, table.FieldApplied), *change.Applied)
		}
	}
	return item, nil
}
