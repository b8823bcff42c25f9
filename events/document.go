package events

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// This file is the part of Reader that walks through a document that is an object: a record, an event, or the object that
// an on-failure destination stores for a failed batch. Only its members show which of them it is.

// member reads the next member of a document, or the document's end.
func (r *Reader) member() (rec Record, ok bool, err error) {
	end, err := r.separator('}')
	if err != nil {
		return rec, false, err
	}
	if end {
		return r.endObject()
	}
	name, c, err := r.key()
	if err != nil {
		return rec, false, err
	}
	switch {
	case name == keyRecords:
		err = r.beginRecords(c)
	case name == keyPayload && !r.bare && r.objects == 1 && (c == '"' || c == '{'):
		err = r.beginPayload(c)
	case name == keyBatch && r.objects == 1:
		err = r.skip(r.batchInfo)
	default:
		err = r.skip(nil)
	}
	return rec, false, err
}

// Members of a document that the Reader knows.
type memberName int

const (
	keyOther memberName = iota
	keyRecords
	keyPayload
	keyBatch
)

// key reads a member's key and its colon. It returns the first byte of the member's value.
func (r *Reader) key() (name memberName, next byte, err error) {
	if !r.undecided {
		r.src.hold()
		defer r.src.release()
	}
	if c, err := r.src.space(); err != nil || c != '"' {
		return 0, 0, r.fail(or(err, errNoKey))
	}
	start := r.src.pos - r.src.keep
	if err := r.src.value(); err != nil {
		return 0, 0, r.malformed(err)
	}
	if name, err = r.named(r.src.kept()[start:]); err != nil {
		return 0, 0, err
	}
	if c, err := r.src.space(); err != nil || c != ':' {
		return 0, 0, r.fail(or(err, errNoColon))
	}
	r.src.pos++
	if next, err = r.src.space(); err != nil {
		return 0, 0, r.fail(err)
	}
	return name, next, nil
}

func or(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

// named returns which member a key names. It checks a key that it does not know, unless record checks it later.
func (r *Reader) named(key []byte) (memberName, error) {
	switch string(key) {
	case `"Records"`:
		return keyRecords, nil
	case `"payload"`:
		return keyPayload, nil
	case `"DDBStreamBatchInfo"`:
		return keyBatch, nil
	}
	if !r.undecided && !json.Valid(key) {
		return keyOther, r.malformed(errNoKey)
	}
	return keyOther, nil
}

// skip moves past a member's value, and calls see with it unless see is nil. In an object that may be a record the value
// is not checked yet.
func (r *Reader) skip(see func(value []byte)) error {
	if !r.undecided {
		r.src.hold()
		defer r.src.release()
	}
	start := r.src.pos - r.src.keep
	if err := r.src.value(); err != nil {
		return r.malformed(err)
	}
	value := r.src.kept()[start:]
	if !r.undecided && !json.Valid(value) {
		return r.malformed(errCut)
	}
	if see != nil {
		see(value)
	}
	return nil
}

// batchInfo reads which stream a failed batch is of. Where that is malformed its records have no stream.
func (r *Reader) batchInfo(value []byte) {
	var info struct {
		StreamARN string `json:"streamArn"`
	}
	_ = json.Unmarshal(value, &info)
	if r.table, r.stream = splitARN(info.StreamARN); !isLabel(r.stream) {
		r.stream = ""
	}
	r.notice = true
}

// decide settles that the object is a document, not a record. It checks the text kept so far and releases it.
func (r *Reader) decide() error {
	if !r.undecided {
		return nil
	}
	if !json.Valid(headObject(r.src.kept())) {
		return r.malformed(errCut)
	}
	r.src.release()
	r.undecided = false
	return nil
}

// headObject completes an object that was read up to a key: {"a":1,"Records": becomes {"a":1,"Records":null}.
func headObject(head []byte) []byte {
	return append(head[:len(head):len(head)], "null}"...)
}

// beginRecords enters the array of records. A null in its place means no records.
func (r *Reader) beginRecords(next byte) error {
	if err := r.decide(); err != nil {
		return err
	}
	if next == '[' {
		r.beginArray()
		return nil
	}
	if next != 'n' {
		return r.fail(errRecords)
	}
	r.records = true
	return r.skip(nil)
}

// beginPayload enters an event that is an object. It keeps one that is text until the end of the document.
func (r *Reader) beginPayload(next byte) error {
	if err := r.decide(); err != nil {
		return err
	}
	if next == '{' {
		r.src.pos++
		r.objects, r.first, r.records = 2, true, false
		return nil
	}
	r.payloadAt = r.position(r.src.pos)
	r.src.limit = r.huge
	defer func() { r.src.limit = r.large }()
	return r.skip(func(value []byte) {
		var text string
		_ = json.Unmarshal(value, &text) // valid, and a string
		r.payload = []byte(text)
	})
}

// endObject ends a document or its payload.
func (r *Reader) endObject() (rec Record, ok bool, err error) {
	r.objects--
	r.first = false
	switch {
	case r.undecided:
		return r.endUndecided()
	case r.objects == 1 && !r.records:
		return Record{Position: r.position(r.src.pos), Err: errNoRecords}, true, nil
	case r.objects == 0 && r.payload != nil:
		r.inner = newBareReader(r.payload, r.file)
		r.payload = nil
	}
	return rec, false, nil
}

func (r *Reader) endUndecided() (rec Record, ok bool, err error) {
	defer r.src.release()
	r.undecided = false
	r.src.deepest++ // its members were framed one by one
	rec, ok, err = r.record()
	if ok && r.notice {
		rec.Err = errNoBatch
	}
	return rec, ok, err
}

// fromPayload returns the next record of a payload. Its position is the payload's, with the record's index.
func (r *Reader) fromPayload() (rec Record, ok bool, err error) {
	rec, err = r.inner.Next()
	at := r.payloadAt
	if failed := (*ReadError)(nil); errors.As(err, &failed) {
		at.Index = failed.Position.Index
		cause := fmt.Errorf("payload, byte %d: %w", failed.Position.Offset, failed.Err)
		return Record{}, false, &ReadError{Position: at, Err: cause}
	}
	if err == io.EOF {
		r.inner = nil
		return Record{}, false, nil
	}
	at.Index = rec.Position.Index
	rec.Position = at
	if rec.Stream == "" && rec.Table == "" {
		rec.Stream, rec.Table = r.stream, r.table
	}
	return rec, true, nil
}
