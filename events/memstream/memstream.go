// Package memstream makes the stream of a table in memory.
package memstream

import (
	"encoding/json"
	"fmt"
	"strconv"
	"sync"

	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/table"
)

// Stream records the writes of a table in memory, as DynamoDB would deliver them.
// memory.Store.Watch takes its Write. It is safe for concurrent use.
type Stream struct {
	Label   string       // the stream's name, which each record has
	Now     func() int64 // returns the time of a write, epoch ms
	Buckets bool         // records the writes of buckets alone

	mu      sync.Mutex
	writes  []write // those not taken yet
	written int
	texts   map[table.ItemKey]json.RawMessage // the images that were formatted last
	images  map[table.Key]*table.Image        // the images that were decoded last
}

// write is one write of an item.
type write struct {
	record   events.Record // but for its keys and images
	old, new table.Item
}

// Write records one write: the item before and after it, nil where there was or
// is none. A write that changes nothing makes no record.
func (s *Stream) Write(old, new table.Item) {
	item, name := new, events.Modify
	switch {
	case old == nil:
		name = events.Insert
	case new == nil:
		item, name = old, events.Remove
	case table.Equal(old, new):
		return
	}
	if _, sk := item.Key(); s.Buckets && sk != table.StateSK {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written++
	s.writes = append(s.writes, write{old: old, new: new, record: events.Record{
		Position: events.Position{Index: s.written}, EventName: name, Stream: s.Label,
		Sequence: strconv.Itoa(s.written), Time: s.Now(),
	}})
}

// Take returns the records of the writes that were not taken before, in order. It
// panics where an item cannot be formatted, which no table holds.
func (s *Stream) Take() []events.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.texts == nil {
		s.texts = map[table.ItemKey]json.RawMessage{}
	}
	records := make([]events.Record, len(s.writes))
	for i, w := range s.writes {
		var key table.ItemKey
		if key.PK, key.SK = w.new.Key(); w.new == nil {
			key.PK, key.SK = w.old.Key()
		}
		before := s.texts[key]
		if before == nil {
			before = text(w.old)
		}
		records[i] = w.record
		records[i].Keys = text(table.Item{table.AttrPK: table.S(key.PK), table.AttrSK: table.S(key.SK)})
		records[i].Old, records[i].New = before, text(w.new)
		s.texts[key] = records[i].New
	}
	s.writes = nil
	return records
}

// TakeChanges is Take for a stream of buckets whose reader needs no text: it
// returns the records as they decode, without the removals. The error wraps
// table.ErrItem or table.ErrKey.
func (s *Stream) TakeChanges() ([]*events.Change, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.images == nil {
		s.images = map[table.Key]*table.Image{}
	}
	var changes []*events.Change
	for _, w := range s.writes {
		if w.new == nil {
			continue
		}
		change, err := s.change(w)
		if err != nil {
			return nil, err
		}
		changes = append(changes, change)
	}
	s.writes = nil
	return changes, nil
}

func (s *Stream) change(w write) (*events.Change, error) {
	position, err := events.StreamPosition(w.record.Stream, w.record.Sequence)
	if err != nil {
		return nil, err
	}
	b, err := table.DecodeBucket(w.new)
	if err != nil {
		return nil, err
	}
	change := &events.Change{Record: w.record, StreamPosition: position, New: b.Image()}
	if w.old != nil {
		if change.Old = s.images[b.Key]; change.Old == nil {
			before, err := table.DecodeBucket(w.old)
			if err != nil {
				return nil, err
			}
			change.Old = before.Image()
		}
	}
	s.images[b.Key] = change.New
	return change, nil
}

// text formats an item, nil for none.
func text(item table.Item) json.RawMessage {
	if item == nil {
		return nil
	}
	text, err := table.FormatItem(item)
	if err != nil {
		panic(fmt.Sprintf("memstream: %v", err))
	}
	return text
}

// Written returns how many records there ever were.
func (s *Stream) Written() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written
}

// Restart ends the stream and begins another one, whose records are numbered from
// 1, as where an operator turns streaming off and on.
func (s *Stream) Restart(label string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Label, s.written = label, 0
}
