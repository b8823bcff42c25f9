package table

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/shardquota/shardquota/quota"
)

// Table keeps what Store and Client promise over any DB. It plans each operation
// as writes, sends them, and says what the answers mean.
type Table struct {
	DB

	Raises  int                             // how many shards of one group are raised at once; 0 means one
	Reads   int                             // how often a lookup asks for what was left unread; 0 means once
	Backoff func(attempt int) time.Duration // how long a lookup waits after attempt 1, 2, …; nil means not at all
}

var _ Client = (*Table)(nil)

// Read implements Store.
func (t *Table) Read(ctx context.Context, key Key) (*Bucket, error) {
	result, err := t.Load(ctx, &Lookup{Operation: "read bucket", Keys: []ItemKey{key.State()}})
	if err != nil {
		return nil, err
	}
	b, err := result.Items[0].bucket()
	if err != nil {
		return nil, fmt.Errorf("read bucket: %w", err)
	}
	return b, nil
}

// AddUsage implements Store.
func (t *Table) AddUsage(ctx context.Context, usage Usage) (UsageResult, error) {
	if err := usage.Check(); err != nil {
		return UsageResult{}, fmt.Errorf("add usage: %w", err)
	}
	result, err := t.Do(ctx, usageWrite(usage))
	if err != nil || result.Applied {
		return UsageResult{Applied: result.Applied}, err
	}
	seen, err := result.Item.SeenRecords()
	if err != nil {
		return UsageResult{}, fmt.Errorf("add usage: %w", err)
	}
	return UsageResult{Seen: seen}, nil
}

// Pass implements Store.
//
// The SDK may have sent a write again whose answer was lost. The second one finds
// the bucket's time moved and is refused. Pass reports it as lost, since nothing on
// the item says whose pass moved the time. Planning from the item that comes with
// the refusal finds nothing left to do.
func (t *Table) Pass(ctx context.Context, b *Bucket, pass *quota.Pass) (PassResult, error) {
	result, err := t.Do(ctx, passWrite("write pass", b, pass, nil))
	if err != nil || result.Applied {
		return PassResult{Applied: result.Applied}, err
	}
	current, _ := result.Bucket() // an item that cannot be read is as good as none
	return PassResult{Current: current}, nil
}

// Outlive implements Store.
func (t *Table) Outlive(ctx context.Context, group Group, extensions []quota.Extension) error {
	for _, e := range extensions {
		if _, err := t.Do(ctx, outliveWrite(group.At(e.Shard), e)); err != nil {
			return err
		}
	}
	return nil
}

// Double implements Store.
func (t *Table) Double(ctx context.Context, group Group, from int) (DoubleResult, error) {
	result, err := t.Do(ctx, doubleWrite(group, from))
	switch {
	case err != nil:
		return DoubleResult{}, err
	case result.Applied:
		return DoubleResult{Applied: true, Count: 2 * from}, nil
	case result.Item == nil:
		return DoubleResult{}, nil
	}
	count, err := result.Item.ShardCount()
	if err != nil {
		return DoubleResult{}, fmt.Errorf("double: %w", err)
	}
	return DoubleResult{Count: count}, nil
}

// Freeze implements Store.
func (t *Table) Freeze(ctx context.Context, key Key, freezes []quota.Freeze) error {
	_, err := t.Do(ctx, freezeWrite(key, freezes))
	return err
}

// RaiseAndRead implements Store: one consistent read of all shards, and then one
// update of each that was found below count.
func (t *Table) RaiseAndRead(ctx context.Context, group Group, count int, now int64) ([]Sibling, error) {
	siblings, err := t.Shards(ctx, group, count)
	if err != nil {
		return nil, err
	}
	raises, ctx := errgroup.WithContext(ctx)
	raises.SetLimit(max(1, t.Raises))
	for shard := range siblings {
		if b := siblings[shard].Bucket; b != nil && shard != 0 && b.ShardCount < count {
			raises.Go(func() (err error) {
				siblings[shard], err = t.raise(ctx, b, count, now)
				return err
			})
		}
	}
	if err := raises.Wait(); err != nil {
		return nil, err
	}
	return siblings, nil
}

// raise brings one shard's count up. It returns the image that this left, or the
// one that another writer's raise had left before.
func (t *Table) raise(ctx context.Context, b *Bucket, count int, now int64) (Sibling, error) {
	result, err := t.Do(ctx, raiseWrite(b, count, now))
	if err != nil || result.Item == nil {
		return Sibling{}, err
	}
	raised, err := result.Bucket()
	return Sibling{Bucket: raised, Raised: result.Applied, Broken: err}, nil
}

// Shards reads shards 0..count-1 of a group, by index, consistently. Unlike
// RaiseAndRead it writes nothing.
func (t *Table) Shards(ctx context.Context, group Group, count int) ([]Sibling, error) {
	keys := make([]ItemKey, count)
	for shard := range keys {
		keys[shard] = group.At(shard).State()
	}
	items, err := t.load(ctx, "read siblings", keys...)
	if err != nil {
		return nil, err
	}
	siblings := make([]Sibling, count)
	for shard, item := range items {
		b, err := item.bucket()
		siblings[shard] = Sibling{Bucket: b, Broken: err}
	}
	return siblings, nil
}

// Create implements Store.
func (t *Table) Create(ctx context.Context, creation Creation) (CreationOutcome, error) {
	result, err := t.Transact(ctx, creation.transaction())
	if err != nil {
		return 0, err
	}
	return creation.outcome(result.Refused), nil
}

// Charge implements Client.
func (t *Table) Charge(ctx context.Context, key Key, charge FastCharge) (WriteResult, error) {
	if err := charge.Sound(); err != nil {
		return WriteResult{}, fmt.Errorf("charge: %w", err)
	}
	return t.Do(ctx, chargeWrite(key, charge))
}

// Use implements Client.
func (t *Table) Use(ctx context.Context, b *Bucket, use *quota.Use) (WriteResult, error) {
	return t.Do(ctx, useWrite(PlannedUse{b, use}))
}

// UseAll implements Client. The transaction is not Repeatable: another client's
// equal use would be taken for this one.
func (t *Table) UseAll(ctx context.Context, uses []PlannedUse) (bool, error) {
	transaction := &Transaction{Operation: "use several"}
	for _, use := range uses {
		transaction.Writes = append(transaction.Writes, useWrite(use))
	}
	result, err := t.Transact(ctx, transaction)
	if errors.Is(err, ErrConflict) {
		return false, nil
	}
	return err == nil && len(result.Refused) == 0, err
}

// Reconcile implements Client.
func (t *Table) Reconcile(ctx context.Context, b *Bucket, adjustments []quota.Adjustment) (WriteResult, error) {
	return t.Do(ctx, reconcileWrite(b, adjustments))
}

// PropagateWindow implements Client.
func (t *Table) PropagateWindow(ctx context.Context, key Key, window OpenedWindow) (bool, error) {
	result, err := t.Do(ctx, propagateWrite(key, window))
	return result.Applied, err
}

// Insert implements Client.
func (t *Table) Insert(ctx context.Context, item Item) (bool, error) {
	result, err := t.Do(ctx, insertWrite(item))
	return result.Applied || Equal(result.Item, item), err
}

// Amend implements Client.
func (t *Table) Amend(ctx context.Context, pk, sk string, amendment Amendment) (WriteResult, error) {
	return t.Do(ctx, amendWrite(pk, sk, amendment))
}

// Remove implements Client.
func (t *Table) Remove(ctx context.Context, pk, sk string, expect ...NamedValue) (bool, error) {
	result, err := t.Do(ctx, removeWrite(pk, sk, expect))
	return result.Applied, err
}

// Items implements Client.
func (t *Table) Items(ctx context.Context, keys []ItemKey) ([]Item, error) {
	items, err := t.load(ctx, "read items", keys...)
	for i := range items {
		items[i] = items[i].Clone() // a key may be there twice
	}
	return items, err
}

// load reads items in the order of keys. It asks once for a key that is there
// twice, and again for what a request left unread.
func (t *Table) load(ctx context.Context, operation string, keys ...ItemKey) ([]Item, error) {
	found, distinct := make(map[ItemKey]Item, len(keys)), make([]ItemKey, 0, len(keys))
	for _, key := range keys {
		if _, twice := found[key]; !twice {
			found[key] = nil
			distinct = append(distinct, key)
		}
	}
	for batch := range slices.Chunk(distinct, MaxBatchKeys) {
		for attempt := 1; len(batch) > 0; attempt++ {
			result, err := t.Load(ctx, &Lookup{operation, batch, true})
			if err != nil {
				return nil, err
			}
			for i, key := range batch {
				if item := result.Items[i]; item != nil {
					found[key] = item
				}
			}
			if batch = result.Unread; len(batch) > 0 {
				if err := t.pause(ctx, attempt); err != nil {
					return nil, fmt.Errorf("%s: %w: %d keys left unread by %d requests", operation, err, len(batch), attempt)
				}
			}
		}
	}
	items := make([]Item, len(keys))
	for i, key := range keys {
		items[i] = found[key]
	}
	return items, nil
}

// pause waits before a lookup asks again. The error wraps ErrRetry where it has
// asked often enough or ctx has ended.
func (t *Table) pause(ctx context.Context, attempt int) error {
	if attempt >= t.Reads {
		return ErrRetry
	}
	if t.Backoff == nil {
		return nil
	}
	timer := time.NewTimer(t.Backoff(attempt))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrRetry, ctx.Err())
	}
}

// Find implements Client. It finds an entity's buckets by GSI3, a resource's by
// GSI2 and a namespace's by GSI4.
func (t *Table) Find(ctx context.Context, scope Scope) ([]Key, error) {
	result, err := t.Query(ctx, scope.query())
	var keys []Key
	for _, item := range result.Keys {
		if key, err := ParseKey(item.PK); item.SK == StateSK && err == nil && scope.Holds(key) {
			keys = append(keys, key)
		}
	}
	return keys, err
}

// FindLevels implements Client.
func (t *Table) FindLevels(ctx context.Context, namespace, resource string) ([]ItemKey, error) {
	result, err := t.Query(ctx, &Query{"find levels", "GSI3", LevelPK(namespace, resource), LevelSK})
	return result.Keys, err
}
