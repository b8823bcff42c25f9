// Package events reads the records of a DynamoDB stream. A record arrives in a Lambda event, a recording, the answer of
// the streams API, or the object of an on-failure destination. Decode reads it as a write to a bucket. A Window is the
// span of time that usage falls in.
package events

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// MaxDepth is how deeply a record may nest its objects and arrays. DynamoDB allows an attribute 32 levels, each of
// which takes two in its JSON.
const MaxDepth = 128

// SequenceWidth is the number of digits of the longest sequence number that DynamoDB gives out.
const SequenceWidth = 40

// Event names of a stream.
const (
	Insert = "INSERT"
	Modify = "MODIFY"
	Remove = "REMOVE"
)

// Record is one change of one item, as the stream delivered it. Its images are not decoded.
//
// A record with Err set is not usable. Its Position is right, and so is each other field that could be read; the rest
// are zero.
type Record struct {
	Position Position

	EventID   string
	EventName string // Insert, Modify or Remove
	Stream    string // label of the stream, which follows "/stream/" in its ARN; empty where the source names none
	Table     string // table of that ARN; empty where the source names none
	Sequence  string // decimal digits as given, at most SequenceWidth of them
	Time      int64  // when the item was written (ApproximateCreationDateTime), epoch ms

	// The writer, if it was not a client: a TTL delete has "dynamodb.amazonaws.com" and "Service".
	PrincipalID   string
	PrincipalType string

	// Objects in DynamoDB JSON; nil where absent or null. Those of a Reader share no memory with its input.
	Keys json.RawMessage
	Old  json.RawMessage
	New  json.RawMessage

	// Err, a *RecordError, says why the record is rejected. Other records are not affected.
	Err error
}

// Position is where a record was read.
type Position struct {
	File   string // as NewReader was given it; empty for an event in memory
	Line   int    // of the record's first byte, from 1
	Offset int64  // of the record's first byte, from 0, after decompression
	Index  int    // of the record in its document's array, from 1; 0 for a document that is itself one record
}

// String renders the position as "file:line, record n, byte n", without the parts that do not apply.
func (p Position) String() string {
	var b strings.Builder
	if p.File != "" {
		fmt.Fprintf(&b, "%s:%d, ", p.File, p.Line)
	}
	if p.Index > 0 {
		fmt.Fprintf(&b, "record %d, ", p.Index)
	}
	fmt.Fprintf(&b, "byte %d", p.Offset)
	return b.String()
}

// RecordError says why well-formed JSON is not a stream record. The reason names fields, never their contents.
type RecordError struct {
	Reason string
}

func (e *RecordError) Error() string { return "not a stream record: " + e.Reason }

func reject(format string, args ...any) error {
	return &RecordError{Reason: fmt.Sprintf(format, args...)}
}

var (
	errNotDigits = errors.New("is not a decimal number")
	errTooLong   = fmt.Errorf("has more than %d digits", SequenceWidth)
)

// checkSequence returns why s is not a sequence number, in words that follow its name.
func checkSequence(s string) error {
	if !isDigits(s) {
		return errNotDigits
	}
	if len(s) > SequenceWidth {
		return errTooLong
	}
	return nil
}

// isDigits reports whether s is one decimal digit or more, and nothing else.
func isDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// maxLabel bounds a stream's label, in bytes. DynamoDB uses the time at which the stream was created.
const maxLabel = 64

var errLabel = errors.New("the label of its stream is malformed")

// isLabel reports whether s can be a stream's label, or is empty. A label holds no comma and no space: usage items list
// stream positions divided by them, and a label that was not read back would have its records counted again.
func isLabel(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f || s[i] == ',' {
			return false
		}
	}
	return len(s) <= maxLabel
}

// StreamLabel returns the label at the end of a stream's ARN, after "/stream/".
func StreamLabel(arn string) (string, error) {
	table, label := splitARN(arn)
	if table == "" || label == "" || !isLabel(label) {
		return "", errors.New("not the ARN of a table's stream")
	}
	return label, nil
}

// zeros pads a sequence number to SequenceWidth digits.
const zeros = "0000000000000000000000000000000000000000"

// StreamPosition returns the position of a record in its stream, as usage items store it: "label/sequence", with the
// sequence number padded to SequenceWidth digits. Positions compare as text: within a stream by sequence number, and a
// later stream of the table after an earlier one, since labels are times. An empty label sorts first. The error says
// what is wrong with the label or the sequence number; those of a Record without Err are sound.
func StreamPosition(stream, sequence string) (string, error) {
	if !isLabel(stream) {
		return "", errLabel
	}
	if err := checkSequence(sequence); err != nil {
		return "", fmt.Errorf("sequence number %w", err)
	}
	return stream + "/" + zeros[len(sequence):] + sequence, nil
}
