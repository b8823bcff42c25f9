package limits

import (
	"context"
	"slices"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/shardquota/shardquota/table"
)

// config is what one level's item says; the zero value says nothing.
type config struct {
	Rules
	invalid error // why the limits cannot be read
}

// cache remembers for a while what levels say. Many entities share the levels of
// resources and of everything.
type cache struct {
	keep    time.Duration
	entries *lru.Cache[table.ItemKey, cached]
}

type cached struct {
	config
	until time.Time
}

// cacheSize is how many levels a Store remembers.
const cacheSize = 100_000

func newCache(keep time.Duration) cache {
	entries, err := lru.New[table.ItemKey, cached](cacheSize)
	if err != nil {
		panic("limits: " + err.Error()) // of a size below 1
	}
	return cache{keep, entries}
}

// recall returns what is known of the levels at keys, and the keys of those of which
// nothing is.
func (c cache) recall(keys []table.ItemKey, now time.Time) (configs []config, missing []table.ItemKey) {
	configs = make([]config, len(keys))
	for i, key := range keys {
		entry, ok := c.entries.Get(key)
		if !ok || !now.Before(entry.until) {
			missing = append(missing, key)
			continue
		}
		configs[i] = entry.config
	}
	return configs, missing
}

// remember reads the items of levels, and remembers what they say.
func (c cache) remember(keys []table.ItemKey, items []table.Item, now time.Time) []config {
	configs := make([]config, len(keys))
	for i, key := range keys {
		rules, invalid := rulesOn(items[i])
		configs[i] = config{rules, invalid}
		c.entries.Add(key, cached{configs[i], now.Add(c.keep)})
	}
	return configs
}

// forget forgets what is known of a level.
func (c cache) forget(key table.ItemKey) { c.entries.Remove(key) }

// configs returns what the levels at keys say, from the cache where it is known.
func (s *Store) configs(ctx context.Context, keys []table.ItemKey, now time.Time) ([]config, error) {
	configs, missing := s.cache.recall(keys, now)
	if len(missing) == 0 {
		return configs, nil
	}
	items, err := s.table.Items(ctx, missing)
	if err != nil {
		return nil, err
	}
	for i, fresh := range s.cache.remember(missing, items, now) {
		configs[slices.Index(keys, missing[i])] = fresh
	}
	return configs, nil
}
