package memory

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

var _ table.Client = (*Client)(nil)

// Client is the table to a program that takes tokens.
type Client struct{ *Store }

// Client returns the table as its clients have it.
func (s *Store) Client() *Client { return &Client{s} }

// write changes one item: next makes the item that is stored in its place, nil
// where a condition does not hold.
func (s *Store) write(ctx context.Context, operation string, at itemKey, next func(stored table.Item) (table.Item, error)) (table.WriteResult, error) {
	if err := s.fetch(ctx, at); err != nil {
		return table.WriteResult{}, fmt.Errorf("%s: %w", operation, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	stored := s.items[at]
	item, err := next(stored)
	if err != nil {
		return table.WriteResult{}, fmt.Errorf("%s: %w", operation, err)
	}
	if item == nil {
		return table.WriteResult{Item: stored.Clone()}, nil
	}
	s.set(at, item)
	return table.WriteResult{Applied: true, Item: item.Clone()}, nil
}

// Charge implements table.Client.
func (c *Client) Charge(ctx context.Context, key table.Key, take table.FastCharge) (table.WriteResult, error) {
	if err := take.Sound(); err != nil {
		return table.WriteResult{}, fmt.Errorf("take: %w", err)
	}
	return c.write(ctx, "take", bucketKey(key), func(stored table.Item) (table.Item, error) {
		if stored == nil || !takeHolds(image(stored), take) {
			return nil, nil
		}
		item := stored.Clone()
		for _, limit := range slices.Sorted(maps.Keys(take.Amounts)) {
			debit := take.Amounts[limit]
			if take.Free {
				debit = 0
			}
			if err := charge(item, limit, take.Amounts[limit], -debit); err != nil {
				return nil, err
			}
		}
		return item, charge(item, quota.WriteMeter, quota.WriteCost, -quota.WriteCost)
	})
}

func takeHolds(i image, take table.FastCharge) bool {
	if i.has(table.AttrDisabled) && !i.same(table.AttrDisabled, &types.AttributeValueMemberBOOL{}) ||
		i.has(table.AttrTTL) && !i.above(table.AttrTTL, take.Now/1000) ||
		!i.has(table.Attr(quota.WriteMeter, table.FieldBalance)) {
		return false
	}
	for limit := range take.Amounts {
		if !i.has(table.Attr(limit, table.FieldCapacity)) || !i.has(table.Attr(limit, table.FieldBalance)) {
			return false
		}
	}
	if take.Free {
		return i.above(table.AttrBypass, take.Now)
	}
	return enforced(i, take)
}

// enforced reports whether a bucket gives what is taken.
func enforced(i image, take table.FastCharge) bool {
	if i.has(table.AttrBypass) && !i.atMost(table.AttrBypass, take.Now) ||
		i.has(table.AttrValidUntil) && !i.above(table.AttrValidUntil, take.Now) ||
		!take.Hot && !i.atLeast(table.Attr(quota.WriteMeter, table.FieldBalance), quota.WriteCost) {
		return false
	}
	for limit, amount := range take.Amounts {
		least := amount
		if i.above(table.Attr(limit, table.FieldSoft), take.Now) {
			least = amount - quota.MaxAmount // what is less could not be read any more
		}
		if !i.atLeast(table.Attr(limit, table.FieldBalance), least) {
			return false
		}
	}
	return true
}

// charge adds to the total consumed and, if that is anything, to the balance of
// a limit.
func charge(item table.Item, limit string, consumed, balance int64) error {
	if err := addAmount(item, table.Attr(limit, table.FieldConsumed), consumed); err != nil || balance == 0 {
		return err
	}
	return addAmount(item, table.Attr(limit, table.FieldBalance), balance)
}

// Use implements table.Client.
func (c *Client) Use(ctx context.Context, bucket *table.Bucket, use *quota.Use, expires int64) (table.WriteResult, error) {
	return c.write(ctx, "use", bucketKey(bucket.Key), func(stored table.Item) (table.Item, error) {
		return used(stored, table.PlannedUse{Bucket: bucket, Use: use, Expires: expires})
	})
}

// UseAll implements table.Client.
func (c *Client) UseAll(ctx context.Context, uses []table.PlannedUse) (bool, error) {
	var keys []itemKey
	for _, use := range uses {
		keys = append(keys, bucketKey(use.Bucket.Key))
	}
	if err := c.fetch(ctx, keys...); err != nil {
		return false, fmt.Errorf("use several: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	items := make([]table.Item, len(uses))
	for i, use := range uses {
		var err error
		if items[i], err = used(c.items[keys[i]], use); items[i] == nil || err != nil {
			return false, err
		}
	}
	for i, item := range items {
		c.set(keys[i], item)
	}
	return true, nil
}

// used is an item after a use, nil where that does not hold.
func used(stored table.Item, u table.PlannedUse) (table.Item, error) {
	expiring := u.Expires != 0 && u.Bucket.Item[table.AttrTTL] != nil
	if stored == nil || !passHolds(image(stored), u.Bucket, u.Use.Pass) || !useHolds(image(stored), u.Use) ||
		expiring && !image(stored).has(table.AttrTTL) {
		return nil, nil
	}
	item, err := passed(stored, u.Use.Pass)
	if err != nil {
		return nil, err
	}
	for _, take := range u.Use.Charges {
		if err := charge(item, take.Limit, take.Consumed, -take.Debit); err != nil {
			return nil, err
		}
	}
	if expiring {
		setNumber(item, table.AttrTTL, u.Expires)
	}
	return item, nil
}

func useHolds(i image, use *quota.Use) bool {
	for _, take := range use.Charges {
		if take.Least != nil && !i.atLeast(table.Attr(take.Limit, table.FieldBalance), *take.Least) {
			return false
		}
	}
	return true
}

// Reconcile implements table.Client.
func (c *Client) Reconcile(ctx context.Context, bucket *table.Bucket, corrections []quota.Adjustment) (table.WriteResult, error) {
	return c.write(ctx, "settle", bucketKey(bucket.Key), func(stored table.Item) (table.Item, error) {
		if stored == nil || !settleHolds(image(stored), bucket, corrections) {
			return nil, nil
		}
		item := stored.Clone()
		for _, correction := range corrections {
			if err := charge(item, correction.Limit, correction.Consumed, correction.Balance); err != nil {
				return nil, err
			}
		}
		return item, nil
	})
}

func settleHolds(i image, bucket *table.Bucket, corrections []quota.Adjustment) bool {
	if table.Lifts(corrections) && !i.asRead(bucket) {
		return false
	}
	for _, correction := range corrections {
		if correction.Max != nil && !i.atMost(table.Attr(correction.Limit, table.FieldBalance), *correction.Max) {
			return false
		}
	}
	return true
}

// asRead reports whether nothing has come to a bucket since it was read that a
// lift of its balances depends on.
func (i image) asRead(bucket *table.Bucket) bool {
	return i.reads(table.AttrRefilledAt, bucket.RefilledAt) && i.isOrAbsent(table.AttrValidUntil, bucket.ValidUntil) && i.countIs(bucket.ShardCount) &&
		(!table.ConfigChanged(bucket) || i.termed(bucket.PassConfigAttrs()))
}

// PropagateWindow implements table.Client.
func (c *Client) PropagateWindow(ctx context.Context, key table.Key, window table.OpenedWindow) (bool, error) {
	at := func(field table.Field) string { return table.Attr(window.Limit, field) }
	told, err := c.write(ctx, "tell of a window", bucketKey(key), func(stored table.Item) (table.Item, error) {
		i := image(stored)
		if stored == nil ||
			i.has(at(table.FieldStart)) && !i.atMost(at(table.FieldStart), window.Start-window.Length) ||
			!i.has(at(table.FieldApplied)) && !i.below(table.AttrRefilledAt, window.Start) {
			return nil, nil
		}
		item := stored.Clone()
		item[at(table.FieldConsumedAtOpen)] = table.N("0")
		if consumed := stored[at(table.FieldConsumed)]; consumed != nil {
			item[at(table.FieldConsumedAtOpen)] = consumed
		}
		setNumber(item, at(table.FieldStart), window.Start)
		setNumber(item, at(table.FieldLength), window.Length/1000)
		setNumber(item, table.AttrValidUntil, 0)
		return item, nil
	})
	return told.Applied, err
}

// Insert implements table.Client.
func (c *Client) Insert(ctx context.Context, item table.Item) (bool, error) {
	inserted, err := c.write(ctx, "insert", keyOf(item), func(stored table.Item) (table.Item, error) {
		if stored != nil {
			return nil, nil
		}
		return canonicalItem(item), nil
	})
	return inserted.Applied || table.Equal(inserted.Item, canonicalItem(item)), err
}

// Amend implements table.Client.
func (c *Client) Amend(ctx context.Context, pk, sk string, amendment table.Amendment) (table.WriteResult, error) {
	return c.write(ctx, "amend", itemKey{pk, sk}, func(stored table.Item) (table.Item, error) {
		if stored == nil || !image(stored).termed(amendment.Expect) {
			return nil, nil
		}
		item := stored.Clone()
		maps.Copy(item, amendment.Set)
		for _, name := range amendment.Remove {
			delete(item, name)
		}
		return canonicalItem(item), nil
	})
}

// Replace implements table.Client.
func (c *Client) Replace(ctx context.Context, item table.Item) error {
	_, err := c.write(ctx, "replace", keyOf(item), func(table.Item) (table.Item, error) { return canonicalItem(item), nil })
	return err
}

// Remove implements table.Client.
func (c *Client) Remove(ctx context.Context, pk, sk string, expect ...table.NamedValue) (removed bool, err error) {
	at := itemKey{pk, sk}
	if err := c.fetch(ctx, at); err != nil {
		return false, fmt.Errorf("remove: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	stored := c.items[at]
	if stored == nil || !image(stored).termed(expect) {
		return false, nil
	}
	c.set(at, nil)
	return true, nil
}

// Items implements table.Client.
func (c *Client) Items(ctx context.Context, keys []table.ItemKey) ([]table.Item, error) {
	items := make([]table.Item, len(keys))
	for i, key := range keys {
		at := itemKey{key.PK, key.SK}
		if err := c.fetch(ctx, at); err != nil {
			return nil, fmt.Errorf("read items: %w", err)
		}
		items[i] = c.Get(key.PK, key.SK)
	}
	return items, nil
}

// Find implements table.Client. Of a table that lies over another it sees what
// was loaded or written so far.
func (c *Client) Find(ctx context.Context, scope table.Scope) ([]table.Key, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("find buckets: %w: %w", table.ErrRetry, err)
	}
	var keys []table.Key
	for _, item := range c.Store.Items() {
		pk, sk := item.Key()
		key, err := table.ParseKey(pk)
		if sk == table.StateSK && err == nil && scope.Holds(key) {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

func keyOf(item table.Item) itemKey {
	pk, sk := item.Key()
	return itemKey{pk, sk}
}
