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

// fold gathers a batch by bucket, in the order in which the buckets first
// appear. What does not decode is rejected alone.
func fold(batch []Delivery, report *Report) []*bucket {
	var buckets []*bucket
	byKey := map[table.Key]*bucket{}
	for i, d := range batch {
		if d.Err != nil {
			report.reject(i, d.Record, d.Err)
			continue
		}
		if d.Change == nil {
			continue
		}
		b := byKey[d.Change.New.Key]
		if b == nil {
			b = &bucket{key: d.Change.New.Key}
			byKey[b.key] = b
			buckets = append(buckets, b)
		}
		if len(b.writes) > 0 && d.Change.Mark <= b.last().Mark {
			report.Duplicates++ // delivered twice within one batch
			continue
		}
		b.writes = append(b.writes, write{d.Change, i, countable(d.Change.Consumed(), i, d.Record, report)})
	}
	return buckets
}

// countable drops what no usage item can have a counter for.
func countable(consumed map[string]int64, index int, record events.Record, report *Report) map[string]int64 {
	for limit := range consumed {
		if !table.CanCount(limit) {
			delete(consumed, limit)
			report.reject(index, record, errCounterName)
		}
	}
	return consumed
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
