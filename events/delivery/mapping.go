// Package delivery decides which records of a table's stream to deliver next. It
// follows the rules of Lambda's event source mappings:
//
//   - A batch is gathered by number of records, size and time.
//   - After a partial failure it is retried from the lowest failed record.
//   - After an error it is halved, if the mapping says so.
//   - After so many attempts, or at such an age, it is set aside.
//   - A stream shard is not delivered before its parent is done.
//   - The changes of one item are delivered in order.
//
// A Mapping is a state machine. It does no I/O and has no clock:
//
//	m.Open(shard, checkpoint)           the stream has this shard
//	m.Wants()                           the shards to read on
//	m.Read(shard, records, ended, now)  these records were read
//	m.Next(now)                         the batch to deliver, or to set aside
//	m.Done(batch, answer, now)          the function answered this
//	m.Checkpoints()                     where to go on after a restart
//
// Delivery is at least once: after a restart from its checkpoints, a mapping
// delivers again whatever came after a record that was not done.
package delivery

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

// Config says how a mapping delivers. The zero value is Lambda's default:
// batches of 100, delivered at once, retried for ever.
type Config struct {
	BatchSize  int           // most records of a batch; 0 means DefaultBatchSize
	Bytes      int           // most bytes of a batch's keys and images, but for its first record; 0 means MaxBytes
	Window     time.Duration // how long records are gathered for a batch that is not full
	Parallel   int           // lanes of a shard: its batches under way at once; 0 means 1
	Bisect     bool          // halve a batch that failed as a whole
	Attempts   int           // most deliveries of a batch: Lambda's MaximumRetryAttempts and one; 0 means any number
	MaxAge     time.Duration // older records are not delivered; 0 means any age
	Backoff    time.Duration // before the first retry of a batch; doubled for each further one
	MaxBackoff time.Duration // what Backoff grows to; 0 means a minute

	// Filter says which records are delivered; nil means all.
	Filter func(events.Record) bool
}

// Shard is a shard of a stream. IDs are unique over all streams of a mapping.
type Shard struct {
	ID, Parent string // Parent may be "", or name a shard that the stream has dropped
}

// Checkpoint says how far a shard is done. The zero value is its beginning.
type Checkpoint struct {
	After string `json:"after,omitempty"` // sequence number up to which every record is done; "" for none
	Ended bool   `json:"ended,omitempty"` // the shard was read to its end, and every record is done
}

// Mapping is one event source mapping. It is not safe for concurrent use.
type Mapping struct {
	config Config
	shards []*shard // in the order in which they were opened
	turn   int      // index of the lane to ask first, over all shards' lanes
}

// shard is a stream shard that is being delivered.
type shard struct {
	Shard
	checkpoint Checkpoint
	ended      bool
	open       []*entry // read, in order, from the first that is not done
	lanes      []*lane
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
	if config.MaxBackoff <= 0 {
		config.MaxBackoff = time.Minute
	}
	config.Parallel = max(1, config.Parallel)
	return &Mapping{config: config}
}

// Open adds a shard that is to be delivered from a checkpoint. Opening a known
// shard does nothing.
func (m *Mapping) Open(s Shard, from Checkpoint) {
	if m.find(s.ID) != nil {
		return
	}
	opened := &shard{Shard: s, checkpoint: from, ended: from.Ended}
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

// Forget drops every shard that is done, unless keep names it.
func (m *Mapping) Forget(keep func(id string) bool) {
	m.shards = slices.DeleteFunc(m.shards, func(s *shard) bool { return s.checkpoint.Ended && !keep(s.ID) })
}

// Wants returns the shards to read on. Such a shard has not ended, its parent is
// done, and it holds fewer records than a batch of each lane takes.
func (m *Mapping) Wants() []string {
	var ids []string
	for _, s := range m.shards {
		parent := m.find(s.Parent)
		if !s.ended && (parent == nil || parent.checkpoint.Ended) && len(s.open) < m.config.BatchSize*m.config.Parallel {
			ids = append(ids, s.ID)
		}
	}
	return ids
}

// Read adds the next records of a shard. No more follow where it has ended.
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

// lane returns the lane that delivers a record. An item always has the same one.
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

// advance moves the checkpoint past the records that are done.
func (s *shard) advance() {
	for len(s.open) > 0 && s.open[0].done {
		if s.open[0].Sequence != "" { // a malformed record may have none
			s.checkpoint.After = s.open[0].Sequence
		}
		s.open = s.open[1:]
	}
	s.checkpoint.Ended = s.ended && len(s.open) == 0
}

// Checkpoints returns how far each shard is done, by its id. A mapping that opens
// the shards at their checkpoints misses no record.
func (m *Mapping) Checkpoints() map[string]Checkpoint {
	checkpoints := map[string]Checkpoint{}
	for _, s := range m.shards {
		checkpoints[s.ID] = s.checkpoint
	}
	return checkpoints
}

// Next returns a batch to deliver at now, or nil. A batch with GivenUp set is to
// be set aside instead. Its lane has no other batch until this one is Done.
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

// Wake returns when Next may have a batch even if no call of Read or Done comes
// first; ok is false where one must.
func (m *Mapping) Wake(now int64) (at int64, ok bool) {
	for _, l := range m.lanes() {
		if wake, waits := l.wake(); waits && (!ok || wake < at) {
			at, ok = wake, true
		}
	}
	return max(at, now), ok
}
