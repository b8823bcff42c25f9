package demo

import (
	"encoding/json"
	"strconv"
	"sync"
	"time"

	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/table"
)

// stream is the stream of the table's buckets.
type stream struct {
	mu      sync.Mutex
	written []write
	number  int // records ever taken off
}

// write is one write of a bucket, as the stream remembers it.
type write struct {
	old, new table.Item
	at       int64 // epoch ms
}

// write remembers a write of the table.
func (s *stream) write(old, new table.Item) {
	item := new
	if item == nil {
		item = old
	}
	if _, sk := item.Key(); sk != table.StateSK {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written = append(s.written, write{old, new, time.Now().UnixMilli()})
}

// length is how many records there ever were.
func (s *stream) length() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.number + len(s.written)
}

// next takes all records off the stream that there are.
func (s *stream) next() ([]events.Record, error) {
	s.mu.Lock()
	taken, first := s.written, s.number+1
	s.written, s.number = nil, s.number+len(taken)
	s.mu.Unlock()
	records := make([]events.Record, len(taken))
	for i, w := range taken {
		record, err := w.record(first + i)
		if err != nil {
			return nil, err
		}
		records[i] = record
	}
	return records, nil
}

// record is the write as DynamoDB would deliver it.
func (w write) record(number int) (events.Record, error) {
	record := events.Record{
		Position: events.Position{Index: number}, EventName: events.Modify, Stream: "demo",
		Sequence: strconv.Itoa(number), Time: w.at,
	}
	item := w.new
	switch {
	case w.old == nil:
		record.EventName = events.Insert
	case w.new == nil:
		record.EventName, item = events.Remove, w.old
	}
	pk, sk := item.Key()
	var errs [3]error
	record.Keys, errs[0] = image(table.Item{table.AttrPK: table.S(pk), table.AttrSK: table.S(sk)})
	record.Old, errs[1] = image(w.old)
	record.New, errs[2] = image(w.new)
	for _, err := range errs {
		if err != nil {
			return events.Record{}, err
		}
	}
	return record, nil
}

func image(item table.Item) (json.RawMessage, error) {
	if item == nil {
		return nil, nil
	}
	return table.FormatItem(item)
}
