package events

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Bounds of what a Reader holds, in bytes. A record of DynamoDB stays below: its two images have at most 400 KB, though
// their JSON may be ten times as long. A payload stays below: Lambda takes 6 MB. White space is bounded like a payload: a
// few KB of gzip can hold any amount of it.
const (
	maxRecord  = 16 << 20
	maxPayload = 64 << 20
)

// ErrEmpty: a file holds nothing but white space.
var ErrEmpty = errors.New("holds no records")

var (
	errCut       = fmt.Errorf("cut short: %w", io.ErrUnexpectedEOF)
	errNotEvent  = errors.New("not a Lambda event: it has no Records")
	errRecords   = errors.New("its Records are not an array")
	errComma     = errors.New("a comma with nothing behind it")
	errNoComma   = errors.New("no comma where one is due")
	errNoKey     = errors.New("no key where one is due")
	errNoColon   = errors.New("no colon behind a key")
	errNoBatch   = reject("a notice of a failed batch without its payload; only an S3 destination is sent the records")
	errNoRecords = reject("a payload without Records")
)

// ReadError ends a reading: the text is malformed, cut short, too large, or could not be read. Err is the cause; it
// wraps io.ErrUnexpectedEOF where the text ends too early. The error names nothing of the data.
type ReadError struct {
	Position Position // of the fault; Index is the record's that was being read, if any
	Err      error
}

func (e *ReadError) Error() string { return e.Position.String() + ": " + e.Err.Error() }
func (e *ReadError) Unwrap() error { return e.Err }

// Reader reads stream records from a file, one at a time. It holds one record, however large the file. The text is any
// number of these documents, one a line or one after another:
//
//   - a Lambda event, or the answer of the streams API's GetRecords: an object with Records, or that array alone
//   - a record of either
//   - the object that Lambda's on-failure S3 destination stores, with the event in payload, as text or as an object. A
//     record in it that names no stream has the one of DDBStreamBatchInfo, which must come before a payload that is an
//     object. The Reader holds an event that is text whole
//
// The text may be gzipped, in one member or several, and begin with a UTF-8 byte order mark. File names do not matter.
type Reader struct {
	file  string
	input io.Reader // to read from; nil once src exists
	large int       // maxRecord, but for tests
	huge  int       // maxPayload, but for tests
	src   *source
	err   error // the last one of Next

	bare  bool // ignore payload: the text is in memory, or is a payload
	stays bool // the text is the caller's and does not change
	docs  int  // documents begun

	// Where the reading is within the document.
	objects   int  // open objects: the document, its payload
	inArray   bool // within the array of records
	first     bool // nothing precedes the next member or element
	undecided bool // the document's object may be a record; its text is kept
	index     int  // elements of the array begun
	records   bool // an array of records was seen
	notice    bool // DDBStreamBatchInfo was seen
	stream    string
	table     string

	payload   []byte   // the event as text, until the document ends
	payloadAt Position // of payload
	inner     *Reader  // reads payload after that
}

// NewReader returns a Reader of r. The positions of records and errors call it file. It reads nothing before Next is
// called, and does not close r.
func NewReader(r io.Reader, file string) *Reader {
	return &Reader{file: file, input: r, large: maxRecord, huge: maxPayload}
}

// newBareReader returns a Reader of text in memory, without bounds.
func newBareReader(text []byte, file string) *Reader {
	return &Reader{file: file, src: inMemory(text), bare: true}
}

// Next returns the next record. Where its Err is set, that record alone is rejected, and the reading goes on. Next's own
// error is io.EOF after the last record of a sound file, and otherwise a *ReadError. Either is final. Records returned
// before a *ReadError are good. An empty file is an error (ErrEmpty); a file of documents without records is not.
func (r *Reader) Next() (Record, error) {
	for r.err == nil {
		rec, ok, err := r.step()
		if err != nil {
			r.err = err
		} else if ok {
			return rec, nil
		}
	}
	return Record{}, r.err
}

// step reads up to the next record, or the next change of state.
func (r *Reader) step() (rec Record, ok bool, err error) {
	switch {
	case r.src == nil:
		return rec, false, r.open()
	case r.inner != nil:
		return r.fromPayload()
	case r.inArray:
		return r.element()
	case r.objects > 0:
		return r.member()
	}
	return r.document()
}

// open begins the reading. The first bytes tell gzip from text.
func (r *Reader) open() error {
	input := bufio.NewReaderSize(r.input, 16<<10)
	r.src, r.input = newSource(input, r.large, r.huge), nil
	if magic, _ := input.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		unzip, err := gzip.NewReader(input)
		if err != nil {
			return r.fail(gzipError(err))
		}
		r.src.r = &unzipper{unzip}
	}
	for len(r.src.buf) < len(byteOrderMark) && r.src.more() == nil {
	}
	if bytes.HasPrefix(r.src.buf, byteOrderMark) {
		r.src.pos = len(byteOrderMark)
	}
	return nil
}

var byteOrderMark = []byte{0xef, 0xbb, 0xbf}

// unzipper marks errors as those of the compression, not of the text.
type unzipper struct{ gzip *gzip.Reader }

func (u *unzipper) Read(p []byte) (int, error) {
	n, err := u.gzip.Read(p)
	return n, gzipError(err)
}

func gzipError(err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return fmt.Errorf("gzip data: %w", err)
}

// document begins the next document.
func (r *Reader) document() (rec Record, ok bool, err error) {
	c, err := r.src.space()
	if err == io.EOF && r.docs > 0 {
		return rec, false, io.EOF
	}
	if err == io.EOF {
		return rec, false, r.fail(ErrEmpty)
	}
	if err != nil {
		return rec, false, r.fail(err)
	}
	r.docs++
	r.index, r.records, r.notice, r.stream, r.table = 0, false, false, "", ""
	switch c {
	case '[':
		r.beginArray()
	case '{':
		r.src.hold()
		r.src.pos++
		r.objects, r.first, r.undecided = 1, true, true
	default:
		return r.whole()
	}
	return rec, false, nil
}

// whole reads the next value as a record.
func (r *Reader) whole() (rec Record, ok bool, err error) {
	r.src.hold()
	defer r.src.release()
	if end, deepest, ok := frame(r.src.buf[r.src.pos:]); ok && end <= r.src.limit {
		r.src.pos, r.src.deepest = r.src.pos+end, deepest
		return r.finish()
	}
	if err := r.src.value(); err != nil {
		return rec, false, r.malformed(err)
	}
	return r.record()
}

// record decodes the source's kept text, if that is JSON.
func (r *Reader) record() (rec Record, ok bool, err error) {
	if !json.Valid(r.src.kept()) {
		return rec, false, r.malformed(errCut)
	}
	return r.finish()
}

// finish decodes the source's kept text, which is JSON.
func (r *Reader) finish() (rec Record, ok bool, err error) {
	rec = recordOf(r.src.kept(), r.position(r.src.keep), r.stays)
	if r.src.deepest > MaxDepth {
		rec.Err = reject("nested deeper than %d levels", MaxDepth)
	}
	if rec.Stream == "" && rec.Table == "" {
		rec.Stream, rec.Table = r.stream, r.table
	}
	return rec, true, nil
}

func (r *Reader) beginArray() {
	r.src.pos++
	r.inArray, r.first, r.records = true, true, true
}

// element reads the next record of an array, or the array's end.
func (r *Reader) element() (rec Record, ok bool, err error) {
	end, err := r.separator(']')
	if err != nil {
		return rec, false, err
	}
	if end {
		r.inArray, r.first, r.index = false, false, 0
		return rec, false, nil
	}
	r.index++
	return r.whole()
}

// separator moves to the next element or member, or past the closing bracket.
func (r *Reader) separator(closing byte) (end bool, err error) {
	c, err := r.src.space()
	if err != nil {
		return false, r.fail(err)
	}
	if c == closing {
		r.src.pos++
		return true, nil
	}
	if !r.first {
		if c != ',' {
			return false, r.fail(errNoComma)
		}
		r.src.pos++
		if c, err = r.src.space(); err != nil {
			return false, r.fail(err)
		}
		if c == closing {
			return false, r.fail(errComma)
		}
	}
	r.first = false
	return false, nil
}

// position returns the position of a byte of the source's buffer.
func (r *Reader) position(i int) Position {
	return Position{File: r.file, Line: r.src.lineAt(i), Offset: r.src.base + int64(i), Index: r.index}
}

// fail ends the reading at the source's position.
func (r *Reader) fail(cause error) error {
	return r.failAt(r.src.pos, cause)
}

// malformed ends the reading within the kept value: at its first syntax error, or else with cause at the source's
// position.
func (r *Reader) malformed(cause error) error {
	i, cause := r.src.diagnose(r.src.keep, cause)
	return r.failAt(i, cause)
}

func (r *Reader) failAt(i int, cause error) error {
	if cause == io.EOF {
		cause = errCut
	}
	return &ReadError{Position: r.position(i), Err: cause}
}

// DecodeEvent reads a Lambda event, {"Records": [...]}. Positions count from its first byte and name no file. A malformed
// record has its Err set; the others are not affected. The records' objects are parts of data, which must not change. The
// error, a *ReadError, says that data is not JSON or not an event.
func DecodeEvent(data []byte) ([]Record, error) {
	r := newBareReader(data, "")
	r.stays = true
	var records []Record
	for {
		rec, err := r.Next()
		if err != nil && err != io.EOF {
			return nil, err
		}
		if !r.records || r.docs > 1 {
			return nil, &ReadError{Position: r.position(r.src.pos), Err: errNotEvent}
		}
		if err == io.EOF {
			return records, nil
		}
		records = append(records, rec)
	}
}
