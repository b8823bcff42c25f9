package replay

import (
	"context"
	"reflect"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/memory"
)

// Observe is called with each write and its time (epoch ms): the bucket before and
// after it, nil where there was or is none. It must change neither.
type Observe func(at int64, before, after *table.Image)

// watcher shows an observer what happens to a table in memory. It remembers each
// bucket as it last was: the recording may have written to it, the rules that the
// driver applies, or the aggregator.
type watcher struct {
	observe Observe
	store   *memory.Store
	last    map[table.Key]*table.Bucket
	groups  map[table.Group]bool
	at      int64
}

// watch returns nil where nobody observes.
func (r *Replay) watch() *watcher {
	if r.Observe == nil || r.driver == nil {
		return nil
	}
	if r.watcher == nil {
		r.watcher = &watcher{
			observe: r.Observe, store: r.driver.store,
			last: map[table.Key]*table.Bucket{}, groups: map[table.Group]bool{},
		}
	}
	return r.watcher
}

// before reads a record's bucket and its siblings before the record is applied.
func (w *watcher) before(x aggregator.Delivery) (err error) {
	if w == nil {
		return nil
	}
	w.at = x.Record.Time
	key, ok := keyOf(x)
	if !ok {
		return nil
	}
	if !w.groups[key.Group] {
		w.groups[key.Group] = true
		for _, b := range table.ReadableShards(key.Group, w.store.Get) {
			w.last[b.Key] = b
		}
	}
	if x.Change != nil && x.Change.Old != nil && w.last[key] == nil {
		w.last[key], err = x.Change.Old.DecodeFull() // the driver puts it there first
	}
	return err
}

// after shows what a record did. A record that creates a shard changes siblings
// too.
func (w *watcher) after(ctx context.Context, x aggregator.Delivery) error {
	key, ok := keyOf(x)
	if w == nil || !ok {
		return nil
	}
	if err := w.look(ctx, key); err != nil || x.Change == nil || x.Change.Old != nil {
		return err
	}
	for _, b := range table.ReadableShards(key.Group, w.store.Get) {
		if err := w.look(ctx, b.Key); err != nil {
			return err
		}
	}
	return nil
}

func keyOf(x aggregator.Delivery) (table.Key, bool) {
	if x.Change != nil {
		return x.Change.New.Key, true
	}
	id, ok := identify(x.Record)
	if !ok || id.SK != table.StateSK {
		return table.Key{}, false
	}
	key, err := table.ParseKey(id.PK)
	return key, err == nil
}

// reported shows what the aggregator wrote.
func (w *watcher) reported(ctx context.Context, report *aggregator.Report) error {
	if w == nil {
		return nil
	}
	for _, key := range touched(report) {
		if err := w.look(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

func touched(report *aggregator.Report) []table.Key {
	var keys []table.Key
	for _, x := range report.Passes {
		keys = append(keys, x.Key)
	}
	for _, x := range report.Doublings {
		keys = append(keys, x.Group.At(0))
	}
	for _, x := range report.Raised {
		keys = append(keys, x.Key)
	}
	for _, x := range report.Created {
		keys = append(keys, x.Key)
		for _, funding := range x.Funding {
			keys = append(keys, x.Key.At(funding.Donor))
		}
	}
	return keys
}

// look shows what happened to a bucket since the last look.
func (w *watcher) look(ctx context.Context, key table.Key) error {
	after, err := w.store.Read(ctx, key)
	if err != nil {
		return err
	}
	before := w.last[key]
	if before == nil && after == nil || before != nil && after != nil && reflect.DeepEqual(before.Item, after.Item) {
		return nil
	}
	w.observe(w.at, before.Image(), after.Image())
	if w.last[key] = after; after == nil {
		delete(w.last, key)
	}
	return nil
}

// recorded shows an observer of a real table what the recording holds. It does not
// read the table, to which others have written since.
func (r *Replay) recorded(batch []aggregator.Delivery) {
	if r.Observe == nil || r.driver != nil {
		return
	}
	for _, x := range batch {
		switch {
		case x.Change != nil:
			r.Observe(x.Record.Time, x.Change.Old, x.Change.New)
		case x.Err == nil && x.Record.EventName == events.Remove:
			r.removed(x.Record)
		}
	}
}

func (r *Replay) removed(record events.Record) {
	item, err := table.ParseItem(record.Old)
	if err != nil {
		return
	}
	if b, err := table.DecodeBucket(item); err == nil {
		r.Observe(record.Time, b.Image(), nil)
	}
}
