package delivery_test

import (
	"fmt"
	"hash/fnv"
	"math"
	"slices"

	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/events/delivery"
)

// stream is a table's stream in shards, each of a range of items. A shard ends
// and has one child or two.
type stream struct {
	shards []*streamShard
}

type streamShard struct {
	delivery.Shard
	low, high uint64 // of the items' hashes
	records   []events.Record
	closed    bool
}

// begin opens the first shard of a stream. Older streams end.
func (s *stream) begin() {
	for _, old := range s.shards {
		old.closed = true
	}
	s.open("", 0, math.MaxUint64)
}

func (s *stream) open(parent string, low, high uint64) {
	id := fmt.Sprintf("shard-%d", len(s.shards))
	s.shards = append(s.shards, &streamShard{Shard: delivery.Shard{ID: id, Parent: parent}, low: low, high: high})
}

func hash(record events.Record) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(record.Keys)
	return h.Sum64() * 0x9e3779b97f4a7c15 // fnv says little of what comes last
}

// write puts a record on the open shard of its item.
func (s *stream) write(record events.Record) {
	at := hash(record)
	for _, shard := range s.shards {
		if !shard.closed && shard.low <= at && at <= shard.high {
			shard.records = append(shard.records, record)
		}
	}
}

// roll ends an open shard, which goes on in one child, or in two.
func (s *stream) roll(choice int, split bool) {
	open := slices.DeleteFunc(slices.Clone(s.shards), func(x *streamShard) bool { return x.closed })
	shard := open[choice%len(open)]
	shard.closed = true
	if middle := shard.low + (shard.high-shard.low)/2; split {
		s.open(shard.ID, shard.low, middle)
		s.open(shard.ID, middle+1, shard.high)
		return
	}
	s.open(shard.ID, shard.low, shard.high)
}

func (s *stream) at(id string) *streamShard {
	return s.shards[slices.IndexFunc(s.shards, func(x *streamShard) bool { return x.ID == id })]
}

// after returns the index of the first record after a checkpoint.
func (x *streamShard) after(checkpoint delivery.Checkpoint) int {
	return 1 + slices.IndexFunc(x.records, func(r events.Record) bool { return r.Sequence == checkpoint.After })
}
