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

// cached is a level's config, and until when it is believed. Many entities share the
// levels of resources and of everything.
type cached struct {
	config
	until time.Time
}

// cacheSize is how many levels a Store remembers.
const cacheSize = 100_000

func newCache() *lru.Cache[table.ItemKey, cached] {
	cache, err := lru.New[table.ItemKey, cached](cacheSize)
	if err != nil {
		panic("limits: " + err.Error()) // of a size below 1
	}
	return cache
}

// configs returns what the levels at keys say, from the cache where it is known.
func (s *Store) configs(ctx context.Context, keys []table.ItemKey, now time.Time) ([]config, error) {
	configs := make([]config, len(keys))
	var missing []table.ItemKey
	for i, key := range keys {
		known, ok := s.cache.Get(key)
		if configs[i] = known.config; !ok || !now.Before(known.until) {
			missing = append(missing, key)
		}
	}
	if len(missing) == 0 {
		return configs, nil
	}
	items, err := s.table.Items(ctx, missing)
	if err != nil {
		return nil, err
	}
	for i, fresh := range s.remember(missing, items, now) {
		configs[slices.Index(keys, missing[i])] = fresh
	}
	return configs, nil
}

// remember reads the items of levels, and remembers what they say.
func (s *Store) remember(keys []table.ItemKey, items []table.Item, now time.Time) []config {
	configs := make([]config, len(keys))
	for i, key := range keys {
		rules, invalid := rulesOn(items[i])
		configs[i] = config{rules, invalid}
		s.cache.Add(key, cached{configs[i], now.Add(s.cacheFor)})
	}
	return configs
}
