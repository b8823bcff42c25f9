package stream

import (
	"cmp"
	"slices"

	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/internal/mapping"
)

// readAhead is how many records of a shard a Merge holds before it wants no
// more of it.
const readAhead = pageSize

// Merge puts the records of a stream's shards into one order: that of each
// shard, a shard after its parent, and else by the time of the write, so far as
// shards are read to the present. It is not safe for concurrent use.
type Merge struct {
	began  int64 // epoch ms
	shards []*source
}

// source is a shard that is merged.
type source struct {
	mapping.Shard
	queue   []events.Record // read, not taken
	taken   string          // sequence number of the last one taken, "" for none
	ended   bool            // no more than queue comes
	empty   int             // answers without records, in a row
	current bool            // it was read to when the merge began
}

// NewMerge returns a Merge for what a Tail begins to read at now, epoch ms.
func NewMerge(now int64) *Merge { return &Merge{began: now} }

// Open implements Consumer.
func (m *Merge) Open(shard mapping.Shard, from mapping.Position) {
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

// readable reports whether the shard's parent is done with.
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

// Take returns the next records in order, as many as can be told by now: a
// shard that may hold earlier ones is waited for until it is read to the
// present.
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

// earliest is the shard whose next record was written first, nil where there is
// none; waiting says that a shard which has none at hand may have an earlier one.
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

// before orders records of two shards. Times are whole seconds on the service;
// what order sequence numbers have between shards is not promised, but they
// keep the result the same.
func before(a, b events.Record) bool {
	return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(len(a.Sequence), len(b.Sequence)), cmp.Compare(a.Sequence, b.Sequence)) < 0
}

// Current reports whether all shards were read to when the merge began, and all
// that was read is taken. It is false while no shard is known.
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

// Positions are how far each shard is taken, by its id.
func (m *Merge) Positions() map[string]mapping.Position {
	positions := map[string]mapping.Position{}
	for _, s := range m.shards {
		positions[s.ID] = mapping.Position{After: s.taken, Ended: s.done()}
	}
	return positions
}
