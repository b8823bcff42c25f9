// Package memory keeps a table in one process. It evaluates each write as DynamoDB
// does, under one lock. The conformance suite and random sequences of writes hold
// it to that.
package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/shardquota/shardquota/table"
)

// Store is a table in memory, safe for concurrent use. Items that it is given
// are copied, numbers brought to the form DynamoDB stores them in; items that
// it returns are copies.
//
// A Store is a table.DB, and the table.Table over it.
type Store struct {
	table.Table
	Now func() int64 // the service's time, epoch ms; nil where answers are to carry none

	load Loader

	mu    sync.Mutex
	items map[table.ItemKey]table.Item // nil for an item known to be absent; an item is never changed, only replaced
	watch func(old, new table.Item)
}

var (
	_ table.DB     = (*Store)(nil)
	_ table.Store  = (*Store)(nil)
	_ table.Client = (*Client)(nil)
)

// Loader reads one item of another table, nil where there is none.
type Loader func(ctx context.Context, pk, sk string) (table.Item, error)

// New returns an empty table.
func New() *Store {
	s := &Store{items: map[table.ItemKey]table.Item{}}
	s.DB = s
	return s
}

// Client is the table as programs have it that take tokens.
type Client struct {
	*table.Table
	Store *Store
}

// Client returns the table as programs have it that take tokens.
func (s *Store) Client() *Client { return &Client{&s.Table, s} }

// time is the time that an answer carries.
func (s *Store) time() int64 {
	if s.Now == nil {
		return 0
	}
	return s.Now()
}

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
func (s *Store) fetch(ctx context.Context, keys ...table.ItemKey) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", table.ErrRetry, err)
	}
	for _, key := range s.unseen(keys) {
		item, err := s.load(ctx, key.PK, key.SK)
		if err != nil {
			return fmt.Errorf("load item: %w", err)
		}
		s.keepLoaded(key, item)
	}
	return nil
}

func (s *Store) unseen(keys []table.ItemKey) []table.ItemKey {
	if s.load == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(keys), func(key table.ItemKey) bool {
		_, seen := s.items[key]
		return seen
	})
}

func (s *Store) keepLoaded(key table.ItemKey, item table.Item) {
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
	s.set(table.ItemKey{PK: pk, SK: sk}, canonicalItem(item))
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
func (s *Store) set(at table.ItemKey, item table.Item) {
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
	return s.items[table.ItemKey{PK: pk, SK: sk}].Clone()
}

// Delete removes the item at a key, if there is one.
func (s *Store) Delete(pk, sk string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(table.ItemKey{PK: pk, SK: sk}, nil)
}

// Items returns every item, sorted by partition key and then by sort key.
func (s *Store) Items() []table.Item {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := make([]table.ItemKey, 0, len(s.items))
	for key, item := range s.items {
		if item != nil {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b table.ItemKey) int {
		return cmp.Or(strings.Compare(a.PK, b.PK), strings.Compare(a.SK, b.SK))
	})
	items := make([]table.Item, len(keys))
	for i, key := range keys {
		items[i] = s.items[key].Clone()
	}
	return items
}
