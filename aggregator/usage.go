package aggregator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/table"
)

// usageAttempts bounds how often one usage item is tried. Each refused attempt
// tells what is counted already, so that a second one normally settles it.
const usageAttempts = 5

var (
	errCounterName = errors.New("a limit named like an attribute of usage items cannot be counted")
	errContended   = fmt.Errorf("usage item contended: %w", table.ErrRetry)
)

// tally is what a batch adds to one usage item.
type tally struct {
	key    table.UsageKey
	window events.Window
	start  time.Time
	first  int     // place in the batch of the first of parts
	parts  []write // bucket by bucket, each in the order of the writes
}

// usageTasks makes one task for every usage item that the batch adds to: all
// shards of a group share it.
func (r *run) usageTasks() []task {
	var tasks []task
	for _, t := range r.tallies() {
		tasks = append(tasks, task{StepUsage, t.first, t.apply})
	}
	return tasks
}

// tallies gathers the batch's consumption by usage item, in the order in which
// they first appear.
func (r *run) tallies() []*tally {
	byKey := map[table.UsageKey]*tally{}
	var tallies []*tally
	for _, b := range r.buckets {
		for _, w := range b.writes {
			if len(w.consumed) == 0 {
				continue
			}
			for _, window := range r.Windows {
				start := window.Start(w.Time)
				key := table.UsageKey{Group: b.key.Group, Window: string(window), Start: window.Text(start)}
				t := byKey[key]
				if t == nil {
					t = &tally{key: key, window: window, start: start, first: w.index}
					byKey[key] = t
					tallies = append(tallies, t)
				}
				t.first = min(t.first, w.index)
				t.parts = append(t.parts, w)
			}
		}
	}
	return tallies
}

// apply counts the tally's records that are not counted yet. It first tries
// without knowing what is, which holds where they follow what was counted last.
func (t *tally) apply(ctx context.Context, r *run) error {
	parts, found := t.parts, map[int]table.Counted(nil)
	for range usageAttempts {
		usage := t.usage(parts, found, r.Retention)
		result, err := r.Store.AddUsage(ctx, usage)
		if err != nil {
			return err
		}
		if result.Applied {
			r.report.addUsage(usage)
			return nil
		}
		found = result.Counted
		if parts = r.uncounted(parts, found); len(parts) == 0 {
			return nil
		}
	}
	return errContended
}

// uncounted returns the parts that are not counted yet, and reports the others.
func (r *run) uncounted(parts []write, found map[int]table.Counted) []write {
	var fresh []write
	for _, w := range parts {
		if found[w.New.Key.Shard].Has(w.Mark) {
			r.report.duplicate(w)
			continue
		}
		fresh = append(fresh, w)
	}
	return fresh
}

// usage sums parts into one update of an item that has counted what was found.
func (t *tally) usage(parts []write, found map[int]table.Counted, retention time.Duration) table.Usage {
	usage := table.Usage{Key: t.key, Counters: map[string]int64{}, Events: int64(len(parts))}
	if retention > 0 {
		usage.Expires = t.window.End(t.start).Add(retention).Unix()
	}
	records := map[int][]table.Run{}
	for _, w := range parts {
		for limit, amount := range w.consumed {
			usage.Counters[limit] += amount
		}
		records[w.New.Key.Shard] = append(records[w.New.Key.Shard], w.counts)
	}
	for _, shard := range slices.Sorted(maps.Keys(records)) {
		next := found[shard].With(records[shard]...)
		usage.Sources = append(usage.Sources, table.Source{Shard: shard, Found: found[shard], Next: next})
	}
	return usage
}
