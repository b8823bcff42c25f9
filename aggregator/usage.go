package aggregator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/table"
)

// usageAttempts bounds the attempts to write one usage item. A refused write
// returns what is counted already, so that a second attempt usually succeeds.
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
	parts  parts
	sum    sum // of parts, where none is counted yet
}

// usageTasks makes one task for each usage item that the batch adds to. All shards
// of a group share an item.
func (r *run) usageTasks() []task {
	tallies := r.tallies()
	r.report.Usage = slices.Grow(r.report.Usage, len(tallies))
	tasks := make([]task, len(tallies))
	for i := range tallies {
		tasks[i] = task{StepUsage, tallies[i].parts.first(), &tallies[i]}
	}
	return tasks
}

// tallies sums the batch's consumption by usage item. All of a group's writes are
// most often in one window of each length; the items of these windows then share a
// sum.
func (r *run) tallies() []tally {
	groups, texts := r.consuming(), map[time.Time]string{}
	tallies := make([]tally, 0, len(groups)*len(r.Windows))
	for _, all := range groups {
		whole := all.sum(nil)
		for _, window := range r.Windows {
			for rest := all; len(rest) > 0; {
				t := tally{window: window, start: window.Start(rest[0].Time), sum: whole}
				if t.parts, rest = rest.within(window, t.start); len(t.parts) < len(all) {
					t.sum = t.parts.sum(nil)
				}
				t.key = table.UsageKey{Group: all[0].New.Key.Group, Window: string(window), Start: texts[t.start]}
				if t.key.Start == "" {
					t.key.Start = window.Text(t.start)
					texts[t.start] = t.key.Start
				}
				tallies = append(tallies, t)
			}
		}
	}
	return tallies
}

// do counts those records of the tally that are not counted yet. The first attempt
// does not know which are: it succeeds where the records follow what was counted
// last.
func (t *tally) do(ctx context.Context, r *run) error {
	parts, sum := t.parts, t.sum
	for range usageAttempts {
		usage := table.Usage{Key: t.key, Counters: sum.counters, Events: int64(len(parts)), Sources: sum.sources}
		if r.Retention > 0 {
			usage.Expires = t.window.End(t.start).Add(r.Retention).Unix()
		}
		result, err := r.Store.AddUsage(ctx, usage)
		if err != nil {
			return err
		}
		if result.Applied {
			r.report.addUsage(usage)
			return nil
		}
		if parts = r.uncounted(parts, result.Seen); len(parts) == 0 {
			return nil
		}
		sum = parts.sum(result.Seen)
	}
	return errContended
}

// uncounted returns the writes that are not counted yet, and reports the others as
// duplicates.
func (r *run) uncounted(all parts, found map[int]table.SeenRecords) parts {
	var fresh parts
	for _, w := range all {
		if found[w.New.Key.Shard].Has(w.StreamPosition) {
			r.report.duplicate(w)
			continue
		}
		fresh = append(fresh, w)
	}
	return fresh
}

// parts are writes of one group that consumed something: bucket by bucket, each in
// the order of the writes.
type parts []*write

// consuming returns the writes that consumed something by group, in the order in
// which the groups first appear.
func (r *run) consuming() []parts {
	index, groups := map[table.Group]int{}, []parts(nil)
	for _, b := range r.buckets {
		at, ok := index[b.key.Group]
		if !ok {
			at = len(groups)
		}
		for i := range b.writes {
			if w := &b.writes[i]; len(w.consumed) > 0 {
				if at == len(groups) {
					groups, index[b.key.Group] = append(groups, make(parts, 0, len(b.writes))), at
				}
				groups[at] = append(groups[at], w)
			}
		}
	}
	return groups
}

// first returns the lowest index of the writes.
func (p parts) first() int {
	return slices.MinFunc(p, func(a, b *write) int { return cmp.Compare(a.index, b.index) }).index
}

// within divides the writes into those inside one window of time and the others.
func (p parts) within(window events.Window, start time.Time) (inside, others parts) {
	from, to := start.UnixMilli(), window.End(start).UnixMilli()
	outside := func(w *write) bool { return w.Time < from || w.Time >= to }
	if !slices.ContainsFunc(p, outside) {
		return p, nil
	}
	for _, w := range p {
		if outside(w) {
			others = append(others, w)
		} else {
			inside = append(inside, w)
		}
	}
	return inside, others
}

// sum is what writes add to a usage item: what they consumed, and which records
// that counts. It is immutable, since several items may share it.
type sum struct {
	counters map[string]int64
	sources  []table.Source
}

// sum adds the writes up for an item that has counted the records of found.
func (p parts) sum(found map[int]table.SeenRecords) sum {
	s := sum{counters: p.counters()}
	var few [8]table.Range
	for rest := p; len(rest) > 0; {
		shard, ranges := rest[0].New.Key.Shard, few[:0]
		for len(rest) > 0 && rest[0].New.Key.Shard == shard {
			ranges, rest = append(ranges, rest[0].counts), rest[1:]
		}
		s.sources = append(s.sources, table.Source{Shard: shard, Found: found[shard], Next: found[shard].With(ranges...)})
	}
	slices.SortFunc(s.sources, func(a, b table.Source) int { return cmp.Compare(a.Shard, b.Shard) })
	return s
}

func (p parts) counters() map[string]int64 {
	if len(p) == 1 {
		return p[0].consumed
	}
	counters := map[string]int64{}
	for _, w := range p {
		for limit, amount := range w.consumed {
			counters[limit] += amount
		}
	}
	return counters
}
