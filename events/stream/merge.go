package stream

import (
	"cmp"
	"slices"

	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/events/delivery"
)

// readAhead is how many records of a shard a Merge holds before it stops reading it.
const readAhead = pageSize

// Merge puts the records of a stream's shards into one order. The order of each
// shard stays, and a shard follows its parent. Records of other shards are sorted
// by the time of the write, as far as all shards are read. A Merge is not safe
// for concurrent use.
type Merge struct {
	began  int64 // epoch ms
	shards []*source
}

// source is a shard that is being merged.
type source struct {
	delivery.Shard
	queue   []events.Record // read and not taken
	taken   string          // sequence number of the last record taken; "" for none
	ended   bool            // nothing follows queue
	empty   int             // answers without records, in a row
	current bool            // it was read up to the time at which the merge began
}

// NewMerge returns a Merge for a Tail that begins to read at now, epoch ms.
func NewMerge(now int64) *Merge { return &Merge{began: now} }

// Open implements Consumer.
func (m *Merge) Open(shard delivery.Shard, from delivery.Checkpoint) {
	m.shards = append(m.shards, &source{Shard: shard, taken: from.After, ended: from.Ended})
}

func (m *Merge) find(id string) *source {
	i := slices.IndexFunc(m.shards, func(s *source) bool { return s.ID == id })
	if i < 0 {
		return nil
	}
	return m.shards[i]
}

func (s *source) done() bool { return s.ended && len(s.queue) == 0 }

// readable reports whether the shard's parent is done.
func (m *Merge) readable(s *source) bool {
	parent := m.find(s.Parent)
	return parent == nil || parent.done()
}

// Wants implements Consumer.
func (m *Merge) Wants() []string {
	var ids []string
	for _, s := range m.shards {
		if !s.ended && len(s.queue) < readAhead && m.readable(s) {
			ids = append(ids, s.ID)
		}
	}
	return ids
}

// Read implements Consumer.
func (m *Merge) Read(id string, records []events.Record, ended bool, _ int64) {
	s := m.find(id)
	s.queue = append(s.queue, records...)
	s.ended = s.ended || ended
	if s.empty++; len(records) > 0 {
		s.empty = 0
		s.current = s.current || records[len(records)-1].Time >= m.began
	}
	s.current = s.current || s.empty >= quiet
}

// Forget implements Consumer.
func (m *Merge) Forget(keep func(id string) bool) {
	m.shards = slices.DeleteFunc(m.shards, func(s *source) bool { return s.done() && !keep(s.ID) })
}

// Take returns the next records in order. It returns no record while a shard that
// was not read to the present may hold an earlier one.
func (m *Merge) Take() []events.Record {
	var records []events.Record
	for {
		s, waiting := m.earliest()
		if s == nil || waiting {
			return records
		}
		record := s.queue[0]
		if s.queue = s.queue[1:]; record.Sequence != "" {
			s.taken = record.Sequence
		}
		records = append(records, record)
	}
}

// earliest returns the shard whose next record was written first, or nil; waiting
// says that a shard with an empty queue may hold an earlier record.
func (m *Merge) earliest() (first *source, waiting bool) {
	for _, s := range m.shards {
		switch {
		case len(s.queue) > 0:
			if first == nil || before(s.queue[0], first.queue[0]) {
				first = s
			}
		case !s.ended && !s.current && m.readable(s):
			waiting = true
		}
	}
	return first, waiting
}

// before orders records of two shards by time. DynamoDB gives times in whole
// seconds, and promises no order of sequence numbers between shards. They break
// ties so that the result is always the same.
func before(a, b events.Record) bool {
	return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(len(a.Sequence), len(b.Sequence)), cmp.Compare(a.Sequence, b.Sequence)) < 0
}

// Current reports whether all shards were read up to the time at which the merge
// began, and every record was taken. It is false while no shard is known.
func (m *Merge) Current() bool {
	if len(m.shards) == 0 {
		return false
	}
	for _, s := range m.shards {
		if len(s.queue) > 0 || !s.ended && !s.current {
			return false
		}
	}
	return true
}

// Checkpoints returns how far each shard was taken, by its id.
func (m *Merge) Checkpoints() map[string]delivery.Checkpoint {
	checkpoints := map[string]delivery.Checkpoint{}
	for _, s := range m.shards {
		checkpoints[s.ID] = delivery.Checkpoint{After: s.taken, Ended: s.done()}
	}
	return checkpoints
}
