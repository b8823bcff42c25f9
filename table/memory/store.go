// Package memory keeps the table in one process. Each operation does what the
// same operation's conditional write does on DynamoDB, under one lock; the
// conformance suite and random sequences hold the two to it.
package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// Store is a table in memory, safe for concurrent use. Items that it is given
// are copied, numbers brought to the form DynamoDB stores them in; items that
// it returns are copies.
type Store struct {
	load Loader

	mu    sync.Mutex
	items map[itemKey]table.Item // nil for an item known to be absent; an item is never changed, only replaced
	watch func(old, new table.Item)
}

var _ table.Store = (*Store)(nil)

// Loader reads one item of another table, nil where there is none.
type Loader func(ctx context.Context, pk, sk string) (table.Item, error)

type itemKey struct{ pk, sk string }

func bucketKey(key table.Key) itemKey { return itemKey{key.PK(), table.StateSK} }

// New returns an empty table.
func New() *Store { return &Store{items: map[itemKey]table.Item{}} }

// Over returns a table that lies over another: an item is loaded from there
// when an operation first needs it, and writes stay in memory. Get, Shards and
// Items see what was loaded or written so far.
func Over(load Loader) *Store {
	s := New()
	s.load = load
	return s
}

// fetch makes sure that the items of keys are in memory, if they exist at all.
// Loading happens outside the lock; of two loads of one item the first one to
// arrive counts.
func (s *Store) fetch(ctx context.Context, keys ...itemKey) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", table.ErrRetry, err)
	}
	for _, key := range s.unseen(keys) {
		item, err := s.load(ctx, key.pk, key.sk)
		if err != nil {
			return fmt.Errorf("load item: %w", err)
		}
		s.keepLoaded(key, item)
	}
	return nil
}

func (s *Store) unseen(keys []itemKey) []itemKey {
	if s.load == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(keys), func(key itemKey) bool {
		_, seen := s.items[key]
		return seen
	})
}

func (s *Store) keepLoaded(key itemKey, item table.Item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, seen := s.items[key]; !seen {
		s.items[key] = canonicalItem(item)
	}
}

// Put stores an item, over whatever is at its key.
func (s *Store) Put(item table.Item) {
	pk, sk := item.Key()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(itemKey{pk, sk}, canonicalItem(item))
}

// Watch has a function told of every write from now on, in the order of the
// writes: the item before it and after it, nil where there was or is none. It
// may keep both, must change neither, and must not use the table.
func (s *Store) Watch(told func(old, new table.Item)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watch = told
}

// set stores an item, nil for none, in place of the one that is there.
func (s *Store) set(at itemKey, item table.Item) {
	old := s.items[at]
	s.items[at] = item
	if s.watch != nil && (old != nil || item != nil) {
		s.watch(old, item)
	}
}

// Get returns the item at a key, nil where there is none.
func (s *Store) Get(pk, sk string) table.Item {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.items[itemKey{pk, sk}].Clone()
}

// Delete removes the item at a key, if there is one.
func (s *Store) Delete(pk, sk string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(itemKey{pk, sk}, nil)
}

// Items returns every item, sorted by partition key and then by sort key.
func (s *Store) Items() []table.Item {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := make([]itemKey, 0, len(s.items))
	for key, item := range s.items {
		if item != nil {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b itemKey) int {
		return cmp.Or(strings.Compare(a.pk, b.pk), strings.Compare(a.sk, b.sk))
	})
	items := make([]table.Item, len(keys))
	for i, key := range keys {
		items[i] = s.items[key].Clone()
	}
	return items
}

// Shards returns the buckets of a group by ascending shard. What cannot be
// decoded is left out.
func (s *Store) Shards(group table.Group) []*table.Bucket {
	s.mu.Lock()
	defer s.mu.Unlock()
	var shards []*table.Bucket
	for shard := range quota.MaxShards {
		if b := decodable(s.items[bucketKey(group.At(shard))]); b != nil {
			shards = append(shards, b)
		}
	}
	return shards
}

// Read implements table.Store.
func (s *Store) Read(ctx context.Context, key table.Key) (*table.Bucket, error) {
	at := bucketKey(key)
	if err := s.fetch(ctx, at); err != nil {
		return nil, fmt.Errorf("read bucket: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := decode(s.items[at])
	if err != nil {
		return nil, fmt.Errorf("read bucket: %w", err)
	}
	return b, nil
}

// decode reads a stored item as a bucket that shares nothing with the table,
// nil where there is no item.
func decode(item table.Item) (*table.Bucket, error) {
	if item == nil {
		return nil, nil
	}
	return table.DecodeBucket(item.Clone())
}

// decodable is decode where an item that cannot be read is as good as none.
func decodable(item table.Item) *table.Bucket {
	b, err := decode(item)
	if err != nil {
		return nil
	}
	return b
}
