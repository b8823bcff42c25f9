package events

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// ErrRecord: a record contradicts its event name or its key. The text names the
// cause, never a value of the data.
var ErrRecord = errors.New("undecodable record")

// Change is one write to one bucket, as the stream has it.
type Change struct {
	Record
	StreamPosition string       // orders the writes of one bucket, as text
	Old            *table.Image // nil where the write created the bucket
	New            *table.Image
}

// Decoder decodes the records of one batch. It is not safe for concurrent use.
type Decoder struct {
	images *table.Images
	newest map[table.Key]*table.Image // a bucket's last new image, most often the next record's old one
}

// NewDecoder returns a decoder for one batch.
func NewDecoder() *Decoder {
	return &Decoder{table.NewImages(), map[table.Key]*table.Image{}}
}

// Decode decodes a single record, as Decoder.Decode does.
func Decode(record Record) (*Change, error) { return NewDecoder().Decode(record) }

// Decode reads a record as a write to a bucket. It returns nil for a removal, and
// for a record of any other kind of item, of which it reads the keys alone. The
// error wraps ErrRecord, table.ErrItem or table.ErrKey.
func (d *Decoder) Decode(record Record) (*Change, error) {
	if record.Err != nil {
		return nil, record.Err
	}
	if record.EventName != Insert && record.EventName != Modify {
		return nil, nil
	}
	key, ofBucket, err := d.keys(record.Keys)
	if !ofBucket || err != nil {
		return nil, err
	}
	position, err := StreamPosition(record.Stream, record.Sequence)
	if err != nil {
		return nil, err
	}
	change := &Change{Record: record, StreamPosition: position}
	if change.New, err = d.image("new", record.New); err != nil {
		return nil, err
	}
	if key != change.New.Key {
		return nil, fmt.Errorf("%w: its image is of another item", ErrRecord)
	}
	if record.EventName == Modify {
		if change.Old, err = d.old(key, record.Old); err != nil {
			return nil, err
		}
		if change.Old.Key != key {
			return nil, fmt.Errorf("%w: its images are of two items", ErrRecord)
		}
	}
	d.newest[key] = change.New
	return change, nil
}

// OfBucket reports whether a record is of a bucket, its removal included. It is
// true for a record whose keys cannot be read too: Decode rejects that one.
func OfBucket(record Record) bool {
	_, ofBucket, err := NewDecoder().keys(record.Keys)
	return ofBucket || err != nil
}

// keys reads a record's keys, and reports whether they are a bucket's. Keys that
// hold neither the bucket's sort key nor an escape, which could spell it, are not.
func (d *Decoder) keys(keys json.RawMessage) (key table.Key, ofBucket bool, err error) {
	if len(keys) > 0 && !bytes.Contains(keys, []byte(table.StateSK)) && bytes.IndexByte(keys, '\\') < 0 {
		return table.Key{}, false, nil
	}
	key, ofBucket, err = d.images.Keys(keys)
	if errors.Is(err, table.ErrJSON) {
		err = fmt.Errorf("%w: its keys are not attributes", ErrRecord)
	}
	return key, ofBucket, err
}

// old reads an old image. Most often it is the new image of the bucket's record
// before, which is decoded already.
func (d *Decoder) old(key table.Key, raw json.RawMessage) (*table.Image, error) {
	if newest := d.newest[key]; newest != nil && bytes.Equal(newest.Text(), raw) {
		return newest, nil
	}
	return d.image("old", raw)
}

func (d *Decoder) image(which string, raw json.RawMessage) (*table.Image, error) {
	if raw == nil {
		return nil, fmt.Errorf("%w: no %s image", ErrRecord, which)
	}
	image, err := d.images.Decode(raw)
	if errors.Is(err, table.ErrJSON) {
		return nil, fmt.Errorf("%w: %s image is not attributes", ErrRecord, which)
	}
	if err != nil {
		return nil, fmt.Errorf("%s image: %w", which, err)
	}
	return image, nil
}

// Consumed returns what the write consumed, net of refunds, in millitokens by
// limit name. It leaves out limits of which nothing was consumed, and the write
// meter, which is nobody's usage. A limit that is new on the bucket counts from 0.
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

// Doubled reports whether the write raised the bucket's shard count, and returns
// the old and the new one.
func (c *Change) Doubled() (from, to int, ok bool) {
	if c.Old == nil || c.Old.ShardCount >= c.New.ShardCount {
		return 0, 0, false
	}
	return c.Old.ShardCount, c.New.ShardCount, true
}
