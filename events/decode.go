package events

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// ErrRecord says that a record is not what its event name and key say it is.
// Its text names the cause, never a value of the data.
var ErrRecord = errors.New("undecodable record")

// Change is one write to one bucket, off the stream.
type Change struct {
	Record
	Mark string        // orders the writes of one bucket, as text
	Old  *table.Bucket // nil where the write created the bucket
	New  *table.Bucket
}

// Decode reads a record as a write to a bucket. It returns nil for a record of
// any other item kind and for a removal, at the cost of a look at its keys.
// The error wraps ErrRecord, table.ErrItem or table.ErrKey.
func Decode(record Record) (*Change, error) {
	if record.Err != nil {
		return nil, record.Err
	}
	if record.EventName != "INSERT" && record.EventName != "MODIFY" {
		return nil, nil
	}
	keys, err := bucketKeys(record.Keys)
	if keys == nil || err != nil {
		return nil, err
	}
	mark, err := Mark(record.Stream, record.Sequence)
	if err != nil {
		return nil, err
	}
	change := &Change{Record: record, Mark: mark}
	if change.New, err = decodeImage("new", record.New); err != nil {
		return nil, err
	}
	if pk, _ := keys.Key(); pk != change.New.Key.PK() {
		return nil, fmt.Errorf("%w: its image is of another item", ErrRecord)
	}
	if record.EventName == "INSERT" {
		return change, nil
	}
	if change.Old, err = decodeImage("old", record.Old); err != nil {
		return nil, err
	}
	if change.Old.Key != change.New.Key {
		return nil, fmt.Errorf("%w: its images are of two items", ErrRecord)
	}
	return change, nil
}

// OfBucket reports whether a record is of a bucket, its removal included, or
// may be: one that cannot be told is for Decode to reject.
func OfBucket(record Record) bool {
	keys, err := bucketKeys(record.Keys)
	return keys != nil || err != nil
}

// bucketKeys returns a record's keys if they are a bucket's, otherwise nil. Most
// other kinds are told by their keys not holding the word, nor an escape that it
// could be written with.
func bucketKeys(keys json.RawMessage) (table.Item, error) {
	if len(keys) > 0 && !bytes.Contains(keys, []byte(table.StateSK)) && bytes.IndexByte(keys, '\\') < 0 {
		return nil, nil
	}
	item, err := table.ParseItem(keys)
	if err != nil {
		return nil, fmt.Errorf("%w: its keys are not attributes", ErrRecord)
	}
	if _, sk := item.Key(); sk != table.StateSK {
		return nil, nil
	}
	return item, nil
}

func decodeImage(which string, raw json.RawMessage) (*table.Bucket, error) {
	if raw == nil {
		return nil, fmt.Errorf("%w: no %s image", ErrRecord, which)
	}
	item, err := table.ParseItem(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: %s image is not attributes", ErrRecord, which)
	}
	bucket, err := table.DecodeBucket(item)
	if err != nil {
		return nil, fmt.Errorf("%s image: %w", which, err)
	}
	return bucket, nil
}

// Consumed returns what the write consumed of each limit, net of refunds, in
// millitokens by limit name; limits it consumed nothing of are absent, and so
// is the write meter, which is nobody's usage. A limit that is new on the
// bucket counts from 0.
func (c *Change) Consumed() map[string]int64 {
	var consumed map[string]int64
	for i := range c.New.Limits {
		limit := &c.New.Limits[i]
		if limit.Name == quota.WriteMeter {
			continue
		}
		delta := limit.Consumed
		if c.Old != nil {
			if before := c.Old.Limit(limit.Name); before != nil {
				delta -= before.Consumed
			}
		}
		if delta == 0 {
			continue
		}
		if consumed == nil {
			consumed = map[string]int64{}
		}
		consumed[limit.Name] = delta
	}
	return consumed
}

// Doubled reports whether the write raised the bucket's shard count, and from
// and to which.
func (c *Change) Doubled() (from, to int, ok bool) {
	if c.Old == nil || c.Old.Count >= c.New.Count {
		return 0, 0, false
	}
	return c.Old.Count, c.New.Count, true
}
