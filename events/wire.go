package events

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"
	"unicode/utf8"
)

// recordOf decodes a value that is valid JSON. If it is not a record, the record's Err says why. The images are not
// decoded. They are parts of data if that stays as it is, or else copies.
func recordOf(data []byte, at Position, stays bool) Record {
	rec := Record{Position: at}
	if data[0] != '{' {
		rec.Err = reject("not an object")
		return rec
	}
	w := wire{stays: stays}
	w.record(&rec, inMemory(data))
	rec.Err = w.reason
	return rec
}

// members walks through the object at s, which is valid JSON. It yields each key, in quotes, with s at the value, and
// skips a value that the caller has not read. A key that is written with escapes is treated as unknown.
func members(s *source) iter.Seq[[]byte] {
	return func(yield func(key []byte) bool) {
		for c := byte('{'); c != '}'; c, _ = s.space() {
			s.pos++ // past the brace or a comma
			if c, _ = s.space(); c == '}' {
				break // of an object without members
			}
			key := s.next()
			s.until(':')
			s.pos++
			_, _ = s.space()
			value := s.pos
			if !yield(key) {
				return
			}
			if s.pos == value {
				_ = s.next()
			}
		}
		s.pos++
	}
}

// wire reads the fields of a record. Lambda and the streams API spell the fields of userIdentity differently.
type wire struct {
	reason error // the first one to reject the record
	stays  bool  // the text stays as it is
}

func (w *wire) reject(format string, args ...any) {
	if w.reason == nil {
		w.reason = reject(format, args...)
	}
}

func (w *wire) record(rec *Record, s *source) {
	name, changed := false, false
	for key := range members(s) {
		switch string(key) {
		case `"eventID"`:
			rec.EventID = w.text("eventID", s.next())
		case `"eventName"`:
			rec.EventName, name = w.eventName(s.next()), true
		case `"eventSourceARN"`:
			rec.Table, rec.Stream = w.source(s.next())
		case `"userIdentity"`:
			w.identity(rec, s.next())
		case `"dynamodb"`:
			w.change(rec, s)
			changed = true
		}
	}
	if !name {
		w.reject("no eventName")
	}
	if !changed {
		w.reject("no dynamodb")
	}
}

func (w *wire) change(rec *Record, s *source) {
	if s.buf[s.pos] != '{' {
		w.reject("dynamodb is not an object")
		return
	}
	sequence, time := false, false
	for key := range members(s) {
		switch string(key) {
		case `"SequenceNumber"`:
			rec.Sequence, sequence = w.sequence(s.next()), true
		case `"ApproximateCreationDateTime"`:
			rec.Time, time = w.time(s.next()), true
		case `"Keys"`:
			rec.Keys = w.image("Keys", s.next())
		case `"OldImage"`:
			rec.Old = w.image("OldImage", s.next())
		case `"NewImage"`:
			rec.New = w.image("NewImage", s.next())
		}
	}
	if !sequence {
		w.reject("no SequenceNumber")
	}
	if !time {
		w.reject("no ApproximateCreationDateTime")
	}
}

func (w *wire) identity(rec *Record, value []byte) {
	if isNull(value) {
		return
	}
	if value[0] != '{' {
		w.reject("userIdentity is not an object")
		return
	}
	s := inMemory(value)
	for key := range members(s) {
		switch string(key) {
		case `"principalId"`, `"PrincipalId"`:
			rec.PrincipalID = w.text("userIdentity.principalId", s.next())
		case `"type"`, `"Type"`:
			rec.PrincipalType = w.text("userIdentity.type", s.next())
		}
	}
}

// text returns a string's value, empty for null.
func (w *wire) text(name string, value []byte) string {
	if isNull(value) {
		return ""
	}
	if value[0] != '"' {
		w.reject("%s is not text", name)
		return ""
	}
	if plain := value[1 : len(value)-1]; bytes.IndexByte(plain, '\\') < 0 && utf8.Valid(plain) {
		return string(plain)
	}
	var text string
	_ = json.Unmarshal(value, &text) // a valid string
	return text
}

func (w *wire) source(value []byte) (table, stream string) {
	table, stream = splitARN(w.text("eventSourceARN", value))
	if !isLabel(stream) {
		w.reject("eventSourceARN: %v", errLabel)
		return table, ""
	}
	return table, stream
}

func (w *wire) eventName(value []byte) string {
	switch name := w.text("eventName", value); name {
	case Insert, Modify, Remove:
		return name
	case "":
		w.reject("no eventName")
	default:
		w.reject("eventName is none of %s, %s, %s", Insert, Modify, Remove)
	}
	return ""
}

func (w *wire) sequence(value []byte) string {
	digits := w.text("SequenceNumber", value)
	if digits == "" {
		w.reject("no SequenceNumber")
		return ""
	}
	if err := checkSequence(digits); err != nil {
		w.reject("SequenceNumber %v", err)
		return ""
	}
	return digits
}

func (w *wire) time(value []byte) int64 {
	if isNull(value) {
		w.reject("no ApproximateCreationDateTime")
		return 0
	}
	ms, err := parseTime(value)
	if err != nil {
		w.reject("ApproximateCreationDateTime %v", err)
	}
	return ms
}

func (w *wire) image(name string, value []byte) json.RawMessage {
	if isNull(value) {
		return nil
	}
	if value[0] != '{' {
		w.reject("%s is not an object", name)
		return nil
	}
	if w.stays {
		return slices.Clip(value)
	}
	return bytes.Clone(value)
}

func isNull(value []byte) bool { return string(value) == "null" }

// splitARN returns table and label of a stream's ARN, arn:aws:dynamodb:REGION:ACCOUNT:table/TABLE/stream/LABEL.
func splitARN(arn string) (table, stream string) {
	head, stream, _ := strings.Cut(arn, "/stream/")
	_, table, _ = strings.Cut(head, ":table/")
	return table, stream
}

// joinARN returns an ARN that splitARN can read. It has no region and no account, since a Record does not keep them.
func joinARN(table, stream string) string {
	switch {
	case stream != "":
		return "arn:aws:dynamodb:::table/" + table + "/stream/" + stream
	case table != "":
		return "arn:aws:dynamodb:::table/" + table
	}
	return ""
}

// wireRecord is a record as EncodeRecord writes it.
type wireRecord struct {
	EventID        string        `json:"eventID"`
	EventName      string        `json:"eventName"`
	EventSource    string        `json:"eventSource"`
	EventSourceARN string        `json:"eventSourceARN,omitempty"`
	UserIdentity   *wireIdentity `json:"userIdentity,omitempty"`
	Change         wireChange    `json:"dynamodb"`
}

type wireIdentity struct {
	PrincipalID string `json:"principalId"`
	Type        string `json:"type"`
}

type wireChange struct {
	Time     json.RawMessage `json:"ApproximateCreationDateTime"`
	Keys     json.RawMessage `json:"Keys,omitempty"`
	New      json.RawMessage `json:"NewImage,omitempty"`
	Old      json.RawMessage `json:"OldImage,omitempty"`
	Sequence string          `json:"SequenceNumber"`
}

// EncodeRecord writes a record as Lambda delivers it, as one line without a line end. A file of such lines is a recording,
// which a Reader reads. It does not write Position, and returns an error for a record with Err set.
func EncodeRecord(r Record) ([]byte, error) {
	if r.Err != nil {
		return nil, fmt.Errorf("write record: %w", r.Err)
	}
	w := wireRecord{
		EventID:        r.EventID,
		EventName:      r.EventName,
		EventSourceARN: joinARN(r.Table, r.Stream),
		EventSource:    "aws:dynamodb",
		Change: wireChange{
			Time: appendSeconds(nil, r.Time), Keys: r.Keys, New: r.New, Old: r.Old, Sequence: r.Sequence,
		},
	}
	if r.PrincipalID != "" || r.PrincipalType != "" {
		w.UserIdentity = &wireIdentity{PrincipalID: r.PrincipalID, Type: r.PrincipalType}
	}
	return json.Marshal(w)
}
