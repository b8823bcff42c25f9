package aggregator

import (
	"slices"
	"strings"

	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// write is one change of a bucket and its place in the batch.
type write struct {
	*events.Change
	index    int
	consumed map[string]int64
	counts   table.Range // how a usage item notes that the write is counted; only where it consumed
}

// bucket is all writes of a batch to one bucket, in the order in which they were
// made.
type bucket struct {
	key    table.Key
	first  int // place in the batch of the first record
	writes []write
}

func (b *bucket) last() write { return b.writes[len(b.writes)-1] }

// folded is a batch gathered by bucket.
type folded struct {
	buckets    []*bucket // in the order in which they first appear
	rejected   []Rejection
	duplicates int // records delivered twice within the batch
}

// fold gathers a batch by bucket. What does not decode is rejected alone.
func fold(batch []Delivery) folded {
	var f folded
	byKey := map[table.Key]*bucket{}
	for i, d := range batch {
		if d.Err != nil {
			f.reject(i, d.Record, d.Err)
			continue
		}
		if d.Change == nil {
			continue
		}
		b := byKey[d.Change.New.Key]
		if b == nil {
			b = &bucket{key: d.Change.New.Key, first: i}
			byKey[b.key] = b
			f.buckets = append(f.buckets, b)
		}
		b.writes = append(b.writes, write{Change: d.Change, index: i})
	}
	for _, b := range f.buckets {
		f.order(b)
	}
	return f
}

// order puts a bucket's writes in the order in which they were made, which is
// that of the batch unless several were put together, and drops what is there
// twice.
func (f *folded) order(b *bucket) {
	all := len(b.writes)
	slices.SortStableFunc(b.writes, func(a, b write) int { return strings.Compare(a.StreamPosition, b.StreamPosition) })
	b.writes = slices.CompactFunc(b.writes, func(a, b write) bool { return a.StreamPosition == b.StreamPosition })
	f.duplicates += all - len(b.writes)
	var before *write
	for i := range b.writes {
		w := &b.writes[i]
		if w.consumed = f.countable(*w); len(w.consumed) > 0 {
			w.counts = w.run(before)
		}
		before = w
	}
}

// run is how a usage item notes that the write is counted. What the write found
// is most often what the one before it left, whose totals are known then.
func (w *write) run(before *write) table.Range {
	run := table.Range{
		First: table.Bound{Position: w.StreamPosition},
		Last:  table.Bound{Position: w.StreamPosition, Total: table.Totals(&w.New.Bucket)},
	}
	switch {
	case w.Old == nil:
		run.First.Total = table.TotalsBefore(nil, &w.New.Bucket)
	case before != nil && before.New == w.Old && before.counts.Last.Total != "":
		run.First.Total = before.counts.Last.Total
	default:
		run.First.Total = table.Totals(&w.Old.Bucket)
	}
	return run
}

func (f *folded) reject(index int, record events.Record, err error) {
	f.rejected = append(f.rejected, Rejection{index, record.Position, record.Sequence, err})
}

// countable is what a write consumed of limits that a usage item can have a
// counter for.
func (f *folded) countable(w write) map[string]int64 {
	consumed := w.Consumed()
	for limit := range consumed {
		if !table.CanCount(limit) {
			delete(consumed, limit)
			f.reject(w.index, w.Record, errCounterName)
		}
	}
	return consumed
}

// invalidDivisions are the limits, of buckets as the batch leaves them, whose division
// is ignored.
func (f *folded) invalidDivisions() []InvalidDivision {
	var found []InvalidDivision
	for _, b := range f.buckets {
		limits := b.last().New.Limits
		for i := range limits {
			if l := &limits[i]; l.InvalidDivision() {
				found = append(found, InvalidDivision{b.key, l.Name, l.Division})
			}
		}
	}
	return found
}

// demandSpan is how far back from a bucket's last write its demand is
// measured, in milliseconds. A batch may span any time: what will be asked for
// next is told by how fast it was asked for last, not by how long the batch is.
const demandSpan = 10_000

// demand is what the bucket's last writes consumed, millitokens by limit.
func (b *bucket) demand() quota.Demand {
	demand := quota.Demand{}
	since := b.last().Time - demandSpan
	for _, w := range slices.Backward(b.writes) {
		if w.Time <= since {
			break
		}
		for limit, amount := range w.consumed {
			demand[limit] = max(-quota.MaxAmount, min(demand[limit]+amount, quota.MaxAmount))
		}
	}
	return demand
}

// doubled returns what the batch saw of shard 0's count going up: from the
// first to the last such write, and the first place in the batch of one.
func (b *bucket) doubled() (d doubling, index int, ok bool) {
	if b.key.Shard != 0 {
		return doubling{}, 0, false
	}
	for _, w := range b.writes {
		from, to, raised := w.Doubled()
		if !raised {
			continue
		}
		if !ok {
			legacy := quota.FrozenGrants(&w.Old.Bucket, w.Time)
			d, index, ok = doubling{group: b.key.Group, from: from, legacy: legacy}, w.index, true
		}
		index = min(index, w.index)
		d.to, d.written = max(d.to, to), w.Time
	}
	return d, index, ok
}

// pressed reports whether shard 0 was hot at some write at its last count. What
// did not draw on the write meter is no sign of heat: the record of a doubling
// shows the meter as low as before, and would call for the next.
func (b *bucket) pressed() bool {
	count := b.last().New.ShardCount
	return slices.ContainsFunc(b.writes, func(w write) bool {
		return w.New.ShardCount == count && w.metered() && quota.Doubles(&w.New.Bucket, w.Time)
	})
}

// metered reports whether the write drew on the write meter, as each of a
// client's does.
func (w write) metered() bool {
	meter := w.New.Limit(quota.WriteMeter)
	if meter == nil || w.Old == nil {
		return meter != nil
	}
	before := w.Old.Limit(quota.WriteMeter)
	return before == nil || meter.Consumed > before.Consumed || meter.Balance < before.Balance
}
