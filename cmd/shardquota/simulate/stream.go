package simulate

import (
	"slices"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/events/memstream"
	"github.com/shardquota/shardquota/table"
)

// stream is the stream of the table's buckets, decoded as it is written.
type stream struct {
	memstream.Stream
	seen    map[table.Key]*table.Image // each bucket as it was last written
	pending []aggregator.Delivery
	grew    bool // a shard was made, or a count has changed, since that was last set to false
	err     error
}

// write adds a write of the table to the stream.
func (s *stream) write(old, new table.Item) {
	s.Write(old, new)
	changes, err := s.TakeChanges()
	if err != nil {
		s.err = err
	}
	for _, change := range changes {
		s.grew = s.grew || change.Old == nil || change.Old.ShardCount != change.New.ShardCount
		s.seen[change.New.Key] = change.New
		s.pending = append(s.pending, aggregator.Delivery{Record: change.Record, Change: change})
	}
}

// until takes off the stream what was written up to an instant, epoch ms.
func (s *stream) until(written int64) []aggregator.Delivery {
	n := slices.IndexFunc(s.pending, func(d aggregator.Delivery) bool { return d.Record.Time > written })
	if n < 0 {
		n = len(s.pending)
	}
	batch := slices.Clone(s.pending[:n])
	s.pending = slices.Delete(s.pending, 0, n)
	return batch
}
