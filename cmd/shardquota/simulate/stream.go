package simulate

import (
	"fmt"
	"slices"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/table"
)

// stream is the stream of the table's buckets.
type stream struct {
	seen    map[table.Key]*table.Image // each bucket as it was last written
	pending []aggregator.Delivery
	number  int  // records so far
	grew    bool // a shard was made, or a count has changed, since that was last set to false
	err     error
}

// write adds a write of the table to the stream. now is in epoch ms.
func (s *stream) write(old, new table.Item, now int64) {
	if _, sk := new.Key(); sk != table.StateSK {
		return
	}
	b, err := table.DecodeBucket(new)
	if err != nil {
		s.err = err
		return
	}
	s.number++
	change := &events.Change{
		Record:         events.Record{EventName: events.Modify, Stream: "simulation", Sequence: fmt.Sprint(s.number), Time: now},
		StreamPosition: fmt.Sprintf("%020d", s.number),
		Old:            s.seen[b.Key], New: b.Image(),
	}
	if old == nil {
		change.EventName = events.Insert
	}
	s.grew = s.grew || change.Old == nil || change.Old.ShardCount != b.ShardCount
	s.seen[b.Key] = change.New
	s.pending = append(s.pending, aggregator.Delivery{Record: change.Record, Change: change})
}

// take takes off the stream what was written up to an instant.
func (s *stream) take(written int64) []aggregator.Delivery {
	n := slices.IndexFunc(s.pending, func(d aggregator.Delivery) bool { return d.Record.Time > written })
	if n < 0 {
		n = len(s.pending)
	}
	batch := slices.Clone(s.pending[:n])
	s.pending = slices.Delete(s.pending, 0, n)
	return batch
}
