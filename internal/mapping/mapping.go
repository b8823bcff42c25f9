// Package mapping says which records of a table's stream are to be delivered
// next, by the rules of Lambda's event source mappings: batches that are
// gathered by number, size and time, delivered again from the lowest failure,
// halved where the function returned an error, and kept aside after so many
// attempts or at such an age; a stream shard not before its parent, and the
// changes of one item always in their order.
//
// It is a state machine. It reads nothing, calls nothing and has no clock:
//
//	m.Open(shard, position)             a shard that the stream has
//	m.Wants()                           which shards to read on
//	m.Read(shard, records, ended, now)  what was read
//	m.Next(now)                         a batch to deliver, or to keep aside
//	m.Done(batch, answer, now)          what became of it
//	m.Positions()                       where to go on after a restart
//
// Delivery is at least once: after a restart, from the positions, what lies
// behind a record that was not done is delivered again.
package mapping

import (
	"hash/fnv"
	"slices"
	"time"

	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/table"
)

// Lambda's bounds of a batch, unless a Config has lower ones.
const (
	DefaultBatchSize = 100
	MaxBytes         = 6 << 20
)

// Config is how a mapping delivers. The zero value is Lambda's default:
// batches of 100, at once, tried for ever.
type Config struct {
	BatchSize int           // records of a batch at most; 0 means DefaultBatchSize
	Bytes     int           // of a batch's keys and images at most; 0 means MaxBytes. A batch has one record at least
	Window    time.Duration // how long records are gathered for a batch that is not full
	Parallel  int           // batches of one shard at once, each item always in the same lane; 0 means 1
	Bisect    bool          // halve a batch that failed as a whole
	Attempts  int           // at one batch, Lambda's MaximumRetryAttempts and the first; 0 means any number
	MaxAge    time.Duration // of a record that is still delivered; 0 means any
	Backoff   time.Duration // before the first retry of a batch, doubled for each further one
	Slowest   time.Duration // bounds what Backoff grows to; 0 means a minute

	// Filter says which records are delivered at all; nil means all.
	Filter func(events.Record) bool
}

// Shard is a shard of a stream. IDs are unique over all streams of a mapping.
type Shard struct {
	ID, Parent string // Parent is "" or names a shard that need not be known: streams forget
}

// Position is how far a shard is done. The zero value is its beginning.
type Position struct {
	After string `json:"after,omitempty"` // the sequence number of the last record before which nothing is left; "" for none
	Ended bool   `json:"ended,omitempty"` // the shard was read to its end, and all of it is done
}

// Mapping is one event source mapping. It is not safe for concurrent use.
type Mapping struct {
	config Config
	shards []*shard // in the order in which they were opened
	turn   int      // the lane that is looked at first, of all shards' together
}

// shard is a stream shard under way.
type shard struct {
	Shard
	position Position
	ended    bool
	open     []*entry // read, the first not done, in order
	lanes    []*lane
}

// entry is a record that was read.
type entry struct {
	events.Record
	arrived int64 // epoch ms
	done    bool
}

// New returns a mapping that knows of no shard yet.
func New(config Config) *Mapping {
	if config.BatchSize <= 0 {
		config.BatchSize = DefaultBatchSize
	}
	if config.Bytes <= 0 {
		config.Bytes = MaxBytes
	}
	if config.Slowest <= 0 {
		config.Slowest = time.Minute
	}
	config.Parallel = max(1, config.Parallel)
	return &Mapping{config: config}
}

// Open tells of a shard and how far it was done before. Opening a shard that is
// known does nothing.
func (m *Mapping) Open(s Shard, from Position) {
	if m.find(s.ID) != nil {
		return
	}
	opened := &shard{Shard: s, position: from, ended: from.Ended}
	for range m.config.Parallel {
		opened.lanes = append(opened.lanes, &lane{config: &m.config, shard: opened})
	}
	m.shards = append(m.shards, opened)
}

func (m *Mapping) find(id string) *shard {
	i := slices.IndexFunc(m.shards, func(s *shard) bool { return s.ID == id })
	if i < 0 {
		return nil
	}
	return m.shards[i]
}

// Forget drops shards that are done and no longer in the stream, as keep says.
func (m *Mapping) Forget(keep func(id string) bool) {
	m.shards = slices.DeleteFunc(m.shards, func(s *shard) bool { return s.position.Ended && !keep(s.ID) })
}

// Wants are the shards that can be read on: not ended, the parent done, and
// with less at hand than would fill a batch of every lane.
func (m *Mapping) Wants() []string {
	var ids []string
	for _, s := range m.shards {
		parent := m.find(s.Parent)
		if !s.ended && (parent == nil || parent.position.Ended) && len(s.open) < m.config.BatchSize*m.config.Parallel {
			ids = append(ids, s.ID)
		}
	}
	return ids
}

// Read takes what was read of a shard, after what was read of it before. A
// shard that ended has no records after these.
func (m *Mapping) Read(id string, records []events.Record, ended bool, now int64) {
	s := m.find(id)
	s.ended = s.ended || ended
	for _, record := range records {
		e := &entry{Record: record, arrived: now}
		s.open = append(s.open, e)
		if m.config.Filter != nil && !m.config.Filter(record) {
			e.done = true
			continue
		}
		l := s.lanes[m.lane(record)]
		l.fresh = append(l.fresh, e)
	}
	s.advance()
}

// lane is where an item's records go: all of one item to the same.
func (m *Mapping) lane(record events.Record) int {
	if m.config.Parallel == 1 {
		return 0
	}
	item, err := table.ParseItem(record.Keys)
	if err != nil {
		return 0
	}
	hash := fnv.New64a()
	pk, _ := item.Key()
	_, _ = hash.Write([]byte(pk))
	return int(hash.Sum64() % uint64(m.config.Parallel))
}

// advance moves the shard's position over what is done.
func (s *shard) advance() {
	for len(s.open) > 0 && s.open[0].done {
		if s.open[0].Sequence != "" { // of a record that cannot be read
			s.position.After = s.open[0].Sequence
		}
		s.open = s.open[1:]
	}
	s.position.Ended = s.ended && len(s.open) == 0
}

// Positions are how far each shard is done, by its id. A mapping that opens the
// shards at these positions, and reads on after them, misses nothing.
func (m *Mapping) Positions() map[string]Position {
	positions := map[string]Position{}
	for _, s := range m.shards {
		positions[s.ID] = s.position
	}
	return positions
}

// Next returns a batch to be delivered or, where it is given up, to be kept
// aside; nil where there is none at now. Until it is Done, nothing else of its
// lane comes; other lanes can be asked for meanwhile.
func (m *Mapping) Next(now int64) *Batch {
	lanes := m.lanes()
	for i := range lanes {
		at := (m.turn + i) % len(lanes)
		if batch := lanes[at].next(now); batch != nil {
			m.turn = at + 1
			return batch
		}
	}
	return nil
}

func (m *Mapping) lanes() []*lane {
	var lanes []*lane
	for _, s := range m.shards {
		lanes = append(lanes, s.lanes...)
	}
	return lanes
}

// Wake is when Next may have a batch though nothing more is read or done; ok is
// false where only that can help.
func (m *Mapping) Wake(now int64) (at int64, ok bool) {
	for _, l := range m.lanes() {
		if due, waits := l.wake(); waits && (!ok || due < at) {
			at, ok = due, true
		}
	}
	return max(at, now), ok
}
