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
	counts   table.Range // what a usage item stores once the write is counted; only where it consumed
}

// bucket is all writes of a batch to one bucket, in the order of the writes.
type bucket struct {
	key    table.Key
	first  int // place in the batch of the first record
	writes []write
}

func (b *bucket) last() write { return b.writes[len(b.writes)-1] }

// folded is a batch by bucket.
type folded struct {
	buckets    []*bucket // in the order in which they first appear
	rejected   []Rejection
	duplicates int // records delivered twice within the batch
}

// fold groups a batch by bucket. It rejects each record that does not decode, and
// no other.
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

// order sorts a bucket's writes and drops duplicates. The batch is in order
// already, unless several batches were put together.
func (f *folded) order(b *bucket) {
	all := len(b.writes)
	slices.SortStableFunc(b.writes, func(a, b write) int { return strings.Compare(a.StreamPosition, b.StreamPosition) })
	b.writes = slices.CompactFunc(b.writes, func(a, b write) bool { return a.StreamPosition == b.StreamPosition })
	f.duplicates += all - len(b.writes)
	var before *write
	for i := range b.writes {
		w := &b.writes[i]
		if w.consumed = f.countable(*w); len(w.consumed) > 0 {
			w.counts = w.seenRange(before)
		}
		before = w
	}
}

// seenRange returns the range that a usage item stores once the write is counted.
// The old image is most often what the write before it left, whose totals are
// computed already.
func (w *write) seenRange(before *write) table.Range {
	seen := table.Range{
		First: table.Bound{Position: w.StreamPosition},
		Last:  table.Bound{Position: w.StreamPosition, Total: table.Totals(&w.New.Bucket)},
	}
	switch {
	case w.Old == nil:
		seen.First.Total = table.TotalsBefore(nil, &w.New.Bucket)
	case before != nil && before.New == w.Old && before.counts.Last.Total != "":
		seen.First.Total = before.counts.Last.Total
	default:
		seen.First.Total = table.Totals(&w.Old.Bucket)
	}
	return seen
}

func (f *folded) reject(index int, record events.Record, err error) {
	f.rejected = append(f.rejected, Rejection{index, record.Position, record.Sequence, err})
}

// countable returns what a write consumed of limits that a usage item can have a
// counter for. It rejects the others.
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

// invalidDivisions returns the limits whose division is ignored, by each bucket's
// last image.
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

// demandSpan is how far back from a bucket's last write its demand is measured, in
// milliseconds. A batch may span any time. The latest rate predicts the demand,
// and the length of the batch does not.
const demandSpan = 10_000

// demand returns what the bucket's last writes consumed, millitokens by limit.
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

// doubled returns the rise of shard 0's count from the first to the last such
// write of the batch, and the lowest index of one.
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
		d.to, d.written, d.zero = max(d.to, to), w.Time, &w.New.Bucket
	}
	return d, index, ok
}

// pressed reports whether shard 0 was hot at some write at its last count. A write
// that did not draw on the write meter shows no heat: the record of a doubling has
// the meter as low as before, and would call for another one.
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
