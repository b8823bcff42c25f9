package traffic

import (
	"context"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/memory"
)

// Limited is the table to a limiter.Limiter. All that it writes to buckets is on
// the stream.
func (t *Table) Limited() table.Client { return limited{t, t.Memory.Client()} }

type limited struct {
	*Table
	client *memory.Client
}

var _ table.Client = limited{}

// Charge implements table.Client.
func (l limited) Charge(ctx context.Context, key table.Key, take table.FastCharge) (table.WriteResult, error) {
	defer l.observe(key)
	return l.client.Charge(ctx, key, take)
}

// Use implements table.Client.
func (l limited) Use(ctx context.Context, b *table.Bucket, use *quota.Use, expires int64) (table.WriteResult, error) {
	defer l.observe(b.Key)
	return l.client.Use(ctx, b, use, expires)
}

// UseAll implements table.Client.
func (l limited) UseAll(ctx context.Context, uses []table.PlannedUse) (bool, error) {
	for _, use := range uses {
		defer l.observe(use.Bucket.Key)
	}
	return l.client.UseAll(ctx, uses)
}

// Reconcile implements table.Client.
func (l limited) Reconcile(ctx context.Context, b *table.Bucket, corrections []quota.Adjustment) (table.WriteResult, error) {
	defer l.observe(b.Key)
	return l.client.Reconcile(ctx, b, corrections)
}

// PropagateWindow implements table.Client.
func (l limited) PropagateWindow(ctx context.Context, key table.Key, window table.OpenedWindow) (bool, error) {
	defer l.observe(key)
	return l.client.PropagateWindow(ctx, key, window)
}

// Insert implements table.Client.
func (l limited) Insert(ctx context.Context, item table.Item) (bool, error) {
	defer l.observeItem(item.Key())
	return l.client.Insert(ctx, item)
}

// Amend implements table.Client.
func (l limited) Amend(ctx context.Context, pk, sk string, amendment table.Amendment) (table.WriteResult, error) {
	defer l.observeItem(pk, sk)
	return l.client.Amend(ctx, pk, sk, amendment)
}

// Remove implements table.Client.
func (l limited) Remove(ctx context.Context, pk, sk string, expect ...table.NamedValue) (bool, error) {
	return l.client.Remove(ctx, pk, sk, expect...)
}

// Items implements table.Client.
func (l limited) Items(ctx context.Context, keys []table.ItemKey) ([]table.Item, error) {
	return l.client.Items(ctx, keys)
}

// Find implements table.Client.
func (l limited) Find(ctx context.Context, scope table.Scope) ([]table.Key, error) {
	return l.client.Find(ctx, scope)
}

// FindLevels implements table.Client.
func (l limited) FindLevels(ctx context.Context, namespace, resource string) ([]table.ItemKey, error) {
	return l.client.FindLevels(ctx, namespace, resource)
}

// observeItem observes an item that may be a bucket.
func (l limited) observeItem(pk, sk string) {
	if key, err := table.ParseKey(pk); err == nil && sk == table.StateSK {
		l.observe(key)
	}
}
