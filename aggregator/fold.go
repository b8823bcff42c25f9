package aggregator

import (
	"slices"

	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// write is one change of a bucket and its place in the batch.
type write struct {
	*events.Change
	index    int
	consumed map[string]int64
}

// bucket is all writes of a batch to one bucket, in order.
type bucket struct {
	key    table.Key
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
			b = &bucket{key: d.Change.New.Key}
			byKey[b.key] = b
			f.buckets = append(f.buckets, b)
		}
		if len(b.writes) > 0 && d.Change.Mark <= b.last().Mark {
			f.duplicates++
			continue
		}
		b.writes = append(b.writes, write{d.Change, i, f.countable(d.Change.Consumed(), i, d.Record)})
	}
	return f
}

func (f *folded) reject(index int, record events.Record, err error) {
	f.rejected = append(f.rejected, Rejection{index, record.Position, record.Sequence, err})
}

// countable drops what no usage item can have a counter for.
func (f *folded) countable(consumed map[string]int64, index int, record events.Record) map[string]int64 {
	for limit := range consumed {
		if !table.CanCount(limit) {
			delete(consumed, limit)
			f.reject(index, record, errCounterName)
		}
	}
	return consumed
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
// first to the last such write, and the place of the first.
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
			legacy := quota.Freezes(&w.Old.Bucket, w.Time)
			d, index, ok = doubling{group: b.key.Group, from: from, legacy: legacy}, w.index, true
		}
		d.to, d.written = max(d.to, to), w.Time
	}
	return d, index, ok
}

// pressed reports whether shard 0 was hot at some write at its last count. What
// did not draw on the write meter is no sign of heat: the record of a doubling
// shows the meter as low as before, and would call for the next.
func (b *bucket) pressed() bool {
	count := b.last().New.Count
	return slices.ContainsFunc(b.writes, func(w write) bool {
		return w.New.Count == count && w.metered() && quota.Doubles(&w.New.Bucket, w.Time)
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
