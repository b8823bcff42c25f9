// Package events holds the records of a DynamoDB stream: how they arrive (in a Lambda event, a recording, the answer of
// the streams API, or the object of an on-failure destination), how they are read back from a file, what they say of a
// bucket, and the windows of time that usage falls in.
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

// SequenceWidth is the width, in digits, that PadSequence pads to: the longest sequence number DynamoDB gives out.
const SequenceWidth = 40

// The names of the events of a stream.
const (
	Insert = "INSERT"
	Modify = "MODIFY"
	Remove = "REMOVE"
)

// Record is one change of one item, as the stream delivered it. Images are left as they came, undecoded.
//
// Where Err is set the record is not usable: Position holds, and of the other fields those that could be read and are
// sound; the rest are zero.
type Record struct {
	Position Position

	EventID   string
	EventName string // Insert, Modify or Remove
	Stream    string // label of the stream, what follows "/stream/" in its ARN; empty where the source names none
	Table     string // table of that ARN; empty where the source names none
	Sequence  string // decimal digits as given, at most SequenceWidth of them
	Time      int64  // when the item was written (ApproximateCreationDateTime), epoch ms

	// Who wrote, where it was not a client: a TTL delete has "dynamodb.amazonaws.com" and "Service".
	PrincipalID   string
	PrincipalType string

	// Objects in DynamoDB JSON; nil where absent or null. A Reader's alias nothing.
	Keys json.RawMessage
	Old  json.RawMessage
	New  json.RawMessage

	// Err, a *RecordError, says why the record is to be rejected. It costs no other record anything.
	Err error
}

// Position says where a record was read.
type Position struct {
	File   string // as named by whoever opened it; empty for an event in memory
	Line   int    // of the record's first byte, from 1
	Offset int64  // of the record's first byte, from 0, after decompression
	Index  int    // of the record in its document's array, from 1; 0 for a document that is itself one record
}

// String renders the position as "file:line, record n, byte n", leaving out what does not apply.
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

// RecordError is well-formed JSON that is no stream record. The reason names fields, never their contents.
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

// checkSequence says what keeps s from being a sequence number, in words that follow its name.
func checkSequence(s string) error {
	if !isDigits(s) {
		return errNotDigits
	}
	if len(s) > SequenceWidth {
		return errTooLong
	}
	return nil
}

// isDigits tells whether s is decimal digits and nothing else, at least one of them.
func isDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// maxLabel bounds a stream's label, which is the time at which the stream was made.
const maxLabel = 64

var errLabel = errors.New("the label of its stream is malformed")

// isLabel tells whether s can be a stream's label, or is empty. Usage items list marks, divided by commas and spaces: a label
// that held one of those would not be read back, and its records be counted again.
func isLabel(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f || s[i] == ',' {
			return false
		}
	}
	return len(s) <= maxLabel
}

// StreamLabel finds the label in a stream's ARN, which ends in "/stream/" and the label.
func StreamLabel(arn string) (string, error) {
	table, label := splitARN(arn)
	if table == "" || label == "" || !isLabel(label) {
		return "", errors.New("not the ARN of a table's stream")
	}
	return label, nil
}

// PadSequence brings a sequence number to SequenceWidth digits, so that two of them compare as strings the way they
// compare as numbers. Anything but 1 to SequenceWidth decimal digits is an error.
func PadSequence(s string) (string, error) {
	if err := checkSequence(s); err != nil {
		return "", fmt.Errorf("sequence number %w", err)
	}
	return zeros[len(s):] + s, nil
}

// zeros are SequenceWidth of them.
const zeros = "0000000000000000000000000000000000000000"

// StreamPosition is a place in a stream, for a usage record to remember: "label/padded sequence number". Marks compare as strings:
// within a stream by sequence number, and a later stream of the table (labels are the times of their creation) after an
// earlier one. The label may be empty, and sorts first. The error is PadSequence's, or for a label that is none; a Record
// without Err causes neither.
func StreamPosition(stream, sequence string) (string, error) {
	if !isLabel(stream) {
		return "", errLabel
	}
	if err := checkSequence(sequence); err != nil {
		return "", fmt.Errorf("sequence number %w", err)
	}
	return stream + "/" + zeros[len(sequence):] + sequence, nil
}
