package events

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/shardquota/shardquota/table"
)

// A bomb is input that is far larger, deeper or longer once it is read than it looks, or than anything real. It is refused
// before it has used more than a bounded amount of memory, and the error says which file, where in it, and what is wrong.

// allocated is how many bytes a call allocates, all told. It holds no more than that at any time.
func allocated(call func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	call()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// repeat reads as text, many times over.
func repeat(text string, times int) io.Reader {
	many := min(times, 1+64<<10/len(text))
	return io.LimitReader(&repeated{text: strings.Repeat(text, many)}, int64(times*len(text)))
}

type repeated struct {
	text string
	at   int
}

func (r *repeated) Read(p []byte) (n int, err error) {
	n = copy(p, r.text[r.at:])
	r.at = (r.at + n) % len(r.text)
	return n, nil
}

func text(s string) io.Reader { return strings.NewReader(s) }

// zipped is a member of gzip data.
func zipped(t testing.TB, data io.Reader) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.Copy(w, data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

const (
	levels = 1_000_000
	mega   = 1 << 20
)

// What takes a record's room is refused once a record is as large as none is. Where what is large is of no other interest,
// the bounds are lower than those that hold: the race detector makes the real ones slow. The buffer doubles, so that on the
// way to a bound twice as much is allocated as it is, and once more by what looks for the cause.
func TestReaderRefusesBombs(t *testing.T) {
	gzipped := func(s string) string { return zipped(t, repeat(s, mega)) }
	for _, c := range []struct {
		name  string
		low   bool // bounds of 1 and 4 MB
		input []io.Reader
		want  string // the error's end
		most  uint64 // MB
	}{
		{"a record nested 1,000,000 levels", false, []io.Reader{repeat(`{"a":`, levels), text("1"), repeat("}", levels)},
			"f.json:1, byte 50000: invalid character '{' exceeded max depth", 40},
		{"an image nested 1,000,000 levels", false, []io.Reader{text(`{"eventName":"INSERT","dynamodb":{"NewImage":{"a":`), repeat(`{"L":[`, levels), repeat(`]}`, levels), text(`}}}`)},
			"f.json:1, byte 30043: invalid character '[' exceeded max depth", 40},
		{"a record of an array nested 1,000,000 levels", false, []io.Reader{text("[{},\n"), repeat(`[`, levels), repeat("]", levels), text("]")},
			"f.json:2, record 2, byte 10005: invalid character '[' exceeded max depth", 10},
		{"a document nested beside its records", false, []io.Reader{text(`{"Records":[],"a":`), repeat(`[`, levels), repeat(`]`, levels), text("}")},
			"f.json:1, byte 10018: invalid character '[' exceeded max depth", 10},
		{"brackets without end", true, []io.Reader{repeat("[", 1<<30)}, "f.json:1, record 1, byte 10001: invalid character '[' exceeded max depth", 4},
		{"a record of 300 MB", false, []io.Reader{text("{}\n" + `{"eventName":"`), repeat("x", 300*mega)},
			"f.json:2, byte 16777220: a value is larger than 16777216 bytes", 60},
		{"a number of 300 MB", true, []io.Reader{text(`{"a":`), repeat("1", 300*mega)}, "f.json:1, byte 1048577: a value is larger than 1048576 bytes", 8},
		{"a key of 300 MB", true, []io.Reader{text(`{"Records":[{"`), repeat("k", 300*mega)}, "f.json:1, record 1, byte 1048589: a value is larger than 1048576 bytes", 8},
		{"300 MB of members", true, []io.Reader{text("{"), repeat(`"a":1,`, 50*mega)}, "a value is larger than 1048576 bytes", 4},
		{"a payload of 300 MB", true, []io.Reader{text(`{"payload":"`), repeat("p", 300*mega)}, "f.json:1, byte 4194316: a value is larger than 4194304 bytes", 20},
		{"1 GB of zeros", true, []io.Reader{repeat(gzipped("\x00"), 1024)}, "f.json:1, byte 0: invalid character '\\x00' looking for beginning of value", 8},
		{"1 GB of spaces", true, []io.Reader{repeat(gzipped(" "), 1024)}, "f.json:1, byte 4194304: more than 4194304 bytes of white space", 1},
		{"1 GB of a text", true, []io.Reader{text(zipped(t, text(`{"a":"`))), repeat(gzipped("x"), 1024)}, "f.json:1, byte 1048577: a value is larger than 1048576 bytes", 8},
		{"a header without end", false, []io.Reader{text("\x1f\x8b\x08\x08\x00\x00\x00\x00\x00\x03"), repeat("n", 300*mega)}, "f.json:1, byte 0: gzip data: gzip: invalid header", 1},
		{"20,000 members of nothing", false, []io.Reader{repeat(zipped(t, text("")), 20_000)}, "f.json:1, byte 0: holds no records", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			reader := NewReader(io.MultiReader(c.input...), "f.json")
			if c.low {
				reader.large, reader.huge = mega, 4*mega
			}
			var err error
			used := allocated(func() { _, err = drain(reader) })
			var failed *ReadError
			if !errors.As(err, &failed) || !strings.HasPrefix(err.Error(), "f.json:") || !strings.HasSuffix(err.Error(), c.want) || len(err.Error()) > 200 {
				t.Errorf("got %v, want %s", err, c.want)
			}
			atMost(t, used, c.most)
		})
	}
}

// atMost holds what was allocated to a number of MB.
func atMost(t *testing.T, used, most uint64) {
	t.Helper()
	t.Logf("%.1f MB", float64(used)/mega)
	if used > most*mega {
		t.Errorf("allocated %d MB, want at most %d", used/mega, most)
	}
}

// drain reads to the end and keeps nothing but the last record.
func drain(r *Reader) (last Record, err error) {
	for {
		rec, err := r.Next()
		if err == io.EOF {
			return last, nil
		}
		if err != nil {
			return last, err
		}
		last = rec
	}
}

// What is sound JSON but no record costs that record alone.
func TestReaderRejectsBombs(t *testing.T) {
	field := func(name, value string) string {
		return `{"eventName":"REMOVE","dynamodb":{"SequenceNumber":"1","ApproximateCreationDateTime":1,"` + name + `":` + value + `}}`
	}
	nested := `{"Records":[]}`
	for range 12 { // which doubles its backslashes each time
		nested = `{"payload":` + quote(nested) + `}`
	}
	for _, c := range []struct {
		name, input, want string
		most              uint64 // MB
	}{
		{"a time of 1,000,000 digits", field("ApproximateCreationDateTime", strings.Repeat("7", mega)), "ApproximateCreationDateTime is out of range", 12},
		{"a time of 1e999999999", field("ApproximateCreationDateTime", "1e999999999"), "ApproximateCreationDateTime is out of range", 1},
		{"a time of 1e-999999999", field("ApproximateCreationDateTime", "1e-999999999"), "ApproximateCreationDateTime is out of range", 1},
		{"an exponent of 1,000,000 digits", field("ApproximateCreationDateTime", "1e"+strings.Repeat("9", mega)), "ApproximateCreationDateTime is out of range", 12},
		{"a sequence number of 1,000,000 digits", field("SequenceNumber", `"`+strings.Repeat("7", mega)+`"`), "SequenceNumber has more than 40 digits", 12},
		{"a stream's label of 1 MB", `{"eventSourceARN":"arn:table/t/stream/` + strings.Repeat("s", mega) + `"}`, "eventSourceARN: the label of its stream is malformed", 12},
		{"9,000 levels", strings.Repeat(`{"a":`, 9_000) + "1" + strings.Repeat("}", 9_000), "nested deeper than 128 levels", 1},
		{"a payload in a payload", `{"payload":` + quote(nested) + `}`, "no eventName", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			var rec Record
			var err error
			used := allocated(func() { rec, err = drain(NewReader(strings.NewReader("\n"+c.input+"\n"), "f.json")) })
			var rejected *RecordError
			if err != nil || !errors.As(rec.Err, &rejected) || rejected.Reason != c.want || rec.Position.Line != 2 {
				t.Errorf("%v: %v, %v; want %s", rec.Position, rec.Err, err, c.want)
			}
			atMost(t, used, c.most)
		})
	}
}

func quote(s string) string { return fmt.Sprintf("%q", s) }

// An image that is larger than an item can be is not taken apart.
func TestDecodeRefusesBombs(t *testing.T) {
	bucket := func(more string) Record { return bucketRecord(Insert, nil, bucketImage(0, more)) }
	long := strings.Repeat("k", mega)
	longKey := bucket("")
	longKey.Keys = []byte(strings.Replace(acmeKeys, "acme", long, 1))
	longKey.New = bytes.Replace(longKey.New, []byte("acme"), []byte(long), 1)
	for _, c := range []struct {
		name   string
		record Record
		want   string
		is     error
		most   uint64 // MB
	}{
		{"1,000,000 attributes", bucket(strings.Repeat(`,"a":{"S":""}`, 1_000_000)), "new image is not attributes", ErrRecord, 1},
		{"an attribute nested 1,000,000 levels", bucket(`,"x":` + strings.Repeat(`{"L":[`, levels) + strings.Repeat(`]}`, levels)), "new image is not attributes", ErrRecord, 1},
		{"a number of 1,000,000 digits", bucket(`,"b_rpm_gc":{"N":"` + strings.Repeat("7", mega) + `"}`), "b_rpm_gc: not a whole number of 64 bits", table.ErrItem, 8},
		{"a number of 1e999999999", bucket(`,"b_rpm_gc":{"N":"1e999999999"}`), "b_rpm_gc: not a whole number of 64 bits", table.ErrItem, 1},
		{"a key of 1 MB", longKey, "longer than 2048 bytes", table.ErrKey, 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			var err error
			used := allocated(func() { _, err = Decode(c.record) })
			if !errors.Is(err, c.is) || !strings.HasSuffix(err.Error(), c.want) {
				t.Errorf("got %.200v, want %s", err, c.want)
			}
			atMost(t, used, c.most)
		})
	}
}

// However many records a document has, one is held at a time.
func TestReaderStreams(t *testing.T) {
	const n = 150_000
	reader := NewReader(io.MultiReader(text(`{"Records":[`), repeat(`{},`, n), text(`{}]}`)), "f.json")
	most, records := uint64(0), 0
	before := heap()
	for ; ; records++ {
		rec, err := reader.Next()
		if err == io.EOF {
			break
		}
		if err != nil || rec.Err == nil {
			t.Fatal(err, rec.Err)
		}
		if records%(n/8) == 0 {
			most = max(most, heap())
		}
	}
	if records != n+1 || most > before+mega {
		t.Errorf("%d records; the heap grew from %d to %d bytes", records, before, most)
	}
}
