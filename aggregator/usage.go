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
	parts  []write // in batch order
}

// usageTasks makes one task for every usage item that the batch adds to: all
// shards of a group share it.
func (r *run) usageTasks() []task {
	tallies := map[table.UsageKey]*tally{}
	var tasks []task
	for _, b := range r.buckets {
		for _, w := range b.writes {
			if len(w.consumed) == 0 {
				continue
			}
			for _, window := range r.Windows {
				start := window.Start(w.Time)
				key := table.UsageKey{Group: b.key.Group, Window: string(window), Start: window.Text(start)}
				t := tallies[key]
				if t == nil {
					t = &tally{key: key, window: window, start: start}
					tallies[key] = t
					tasks = append(tasks, task{StepUsage, w.index, t.apply})
				}
				t.parts = append(t.parts, w)
			}
		}
	}
	return tasks
}

// apply counts the tally's records that are not counted yet.
func (t *tally) apply(ctx context.Context, r *run) error {
	parts := t.parts
	for range usageAttempts {
		if len(parts) == 0 {
			return nil
		}
		usage := t.usage(parts, r.Retention)
		result, err := r.Store.AddUsage(ctx, usage)
		if err != nil {
			return err
		}
		if result.Applied {
			r.report.addUsage(usage)
			return nil
		}
		var fresh []write
		for _, w := range parts {
			if w.Mark <= result.Marks[w.New.Key.Shard] {
				r.report.duplicate(w)
				continue
			}
			fresh = append(fresh, w)
		}
		parts = fresh
	}
	return errContended
}

// usage sums parts into one update.
func (t *tally) usage(parts []write, retention time.Duration) table.Usage {
	usage := table.Usage{Key: t.key, Counters: map[string]int64{}, Events: int64(len(parts))}
	if retention > 0 {
		usage.Expires = t.window.End(t.start).Add(retention).Unix()
	}
	sources := map[int]table.Source{}
	for _, w := range parts {
		for limit, amount := range w.consumed {
			usage.Counters[limit] += amount
		}
		shard := w.New.Key.Shard
		source, seen := sources[shard]
		if !seen {
			source = table.Source{Shard: shard, First: w.Mark}
		}
		source.Last = w.Mark
		sources[shard] = source
	}
	for _, shard := range slices.Sorted(maps.Keys(sources)) {
		usage.Sources = append(usage.Sources, sources[shard])
	}
	return usage
}
