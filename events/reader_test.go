package events

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
)

const testStream = "2026-11-30T09:00:00.123"

// wantRecords are the three records that every recording in testdata holds, read off its JSON lines by hand.
func wantRecords(t testing.TB) []Record {
	t.Helper()
	var raw [3]struct {
		Dynamodb struct{ Keys, OldImage, NewImage json.RawMessage }
	}
	for i, line := range bytes.Split(bytes.TrimSpace(testFile(t, "records.jsonl")), newline) {
		if err := json.Unmarshal(line, &raw[i]); err != nil {
			t.Fatal(err)
		}
	}
	records := []Record{
		{EventID: "aaaa1", EventName: Modify, Sequence: "000000000000000000001", Time: 1796032801000},
		{EventID: "aaaa2", EventName: Insert, Sequence: "800000000003126276362", Time: 1796032802123},
		{EventID: "aaaa3", EventName: Remove, Sequence: "800000000003126276363", Time: 1796032803000,
			PrincipalID: "dynamodb.amazonaws.com", PrincipalType: "Service"},
	}
	for i := range records {
		r := &records[i]
		r.Table, r.Stream = "limits", testStream
		r.Keys, r.Old, r.New = raw[i].Dynamodb.Keys, raw[i].Dynamodb.OldImage, raw[i].Dynamodb.NewImage
	}
	return records
}

func testFile(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func mustEncode(t testing.TB, r Record) []byte {
	t.Helper()
	line, err := EncodeRecord(r)
	if err != nil {
		t.Fatal(err)
	}
	return line
}

// sameRecords compares all but positions; images by what they mean, not how they are spaced.
func sameRecords(t testing.TB, got, want []Record) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d records, want %d", len(got), len(want))
	}
	for i := range got {
		if g, w := rendered(t, got[i]), rendered(t, want[i]); g != w {
			t.Fatalf("record %d:\n got %s\nwant %s", i, g, w)
		}
	}
}

// rendered is a record but for its position.
func rendered(t testing.TB, r Record) string {
	t.Helper()
	images := make([]any, 3)
	for i, raw := range []json.RawMessage{r.Keys, r.Old, r.New} {
		if raw == nil {
			continue
		}
		if err := json.Unmarshal(raw, &images[i]); err != nil {
			t.Fatal(err)
		}
	}
	text, err := json.Marshal(images)
	if err != nil {
		t.Fatal(err)
	}
	r.Position, r.Keys, r.Old, r.New = Position{}, nil, nil, nil
	return fmt.Sprintf("%+v %s", r, text)
}

// Bounds that tests can pass without much text, though the buffer must outgrow its first size.
const (
	testRecord  = 100_000
	testPayload = 400_000
)

func readAll(r io.Reader) ([]Record, error) {
	reader := NewReader(r, "test.json")
	reader.large, reader.huge = testRecord, testPayload
	var records []Record
	for {
		rec, err := reader.Next()
		if err == io.EOF {
			return records, nil
		}
		if err != nil {
			return records, err
		}
		records = append(records, rec)
	}
}

// readWhole reads a sound file.
func readWhole(t testing.TB, data []byte) []Record {
	t.Helper()
	records, err := readAll(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return records
}

// isBeginning compares everything, positions too.
func isBeginning(t testing.TB, got, want []Record) {
	t.Helper()
	if len(got) > len(want) {
		t.Fatalf("%d records, want %d at most", len(got), len(want))
	}
	for i := range got {
		if !reflect.DeepEqual(got[i], want[i]) {
			t.Fatalf("record %d:\n got %+v\nwant %+v", i, got[i], want[i])
		}
	}
}

func zip(t testing.TB, members ...[]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	for _, data := range members {
		w := gzip.NewWriter(&b)
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// formats are the recordings in testdata; each holds wantRecords.
var formats = []struct {
	file string
	arn  bool // names table and stream
}{
	{file: "lambda.json", arn: true},
	{file: "lambda-pretty.json", arn: true},
	{file: "records.jsonl", arn: true},
	{file: "events.jsonl", arn: true},
	{file: "concatenated.json", arn: true},
	{file: "get-records.json"},
	{file: "array.json"},
	{file: "failure-text.json", arn: true},
	{file: "failure-text-first.json", arn: true},
	{file: "failure-object.json", arn: true},
}

func formatRecords(t testing.TB, arn bool) []Record {
	records := wantRecords(t)
	for i := range records {
		if !arn {
			records[i].Table, records[i].Stream = "", ""
		}
	}
	return records
}

func TestReaderFormats(t *testing.T) {
	bom := string(byteOrderMark)
	for _, format := range formats {
		data := testFile(t, format.file)
		half := len(data) / 2
		for _, variant := range []struct {
			name string
			in   io.Reader
		}{
			{"plain", bytes.NewReader(data)},
			{"gzip", bytes.NewReader(zip(t, data))},
			{"gzip of members", bytes.NewReader(zip(t, data[:half], nil, data[half:]))},
			{"mark", strings.NewReader(bom + string(data))},
			{"gzip of mark", bytes.NewReader(zip(t, []byte(bom), data))},
			{"spaced", strings.NewReader("\r\n\t " + string(data) + "\n \n")},
			{"byte by byte", iotest.OneByteReader(bytes.NewReader(data))},
			{"gzip byte by byte", iotest.OneByteReader(bytes.NewReader(zip(t, data)))},
			{"data with EOF", iotest.DataErrReader(bytes.NewReader(data))},
		} {
			t.Run(format.file+"/"+variant.name, func(t *testing.T) {
				got, err := readAll(variant.in)
				if err != nil {
					t.Fatal(err)
				}
				sameRecords(t, got, formatRecords(t, format.arn))
			})
		}
	}
}

func TestReaderPositions(t *testing.T) {
	lines := testFile(t, "records.jsonl")
	line2 := int64(bytes.IndexByte(lines, '\n') + 1)
	pretty := testFile(t, "lambda-pretty.json")
	second := int64(bytes.Index(pretty, []byte("    {\n      \"eventID\": \"aaaa2\"")) + 4)
	text := testFile(t, "failure-text.json")
	payload := int64(bytes.Index(text, []byte(`"payload":`)) + len(`"payload":`))
	for _, tt := range []struct {
		file string
		want Position // of the second record
	}{
		{"records.jsonl", Position{"f", 2, line2, 0}},
		{"lambda.json", Position{"f", 1, int64(bytes.Index(testFile(t, "lambda.json"), []byte(`{"eventID":"aaaa2"`))), 2}},
		{"lambda-pretty.json", Position{"f", 1 + bytes.Count(pretty[:second], newline), second, 2}},
		{"failure-text.json", Position{"f", 1, payload, 2}},
	} {
		for _, in := range []io.Reader{bytes.NewReader(testFile(t, tt.file)), bytes.NewReader(zip(t, testFile(t, tt.file)))} {
			r := NewReader(in, "f")
			if _, err := r.Next(); err != nil {
				t.Fatal(err)
			}
			rec, err := r.Next()
			if err != nil || rec.Position != tt.want {
				t.Errorf("%s: position %+v, %v, want %+v", tt.file, rec.Position, err, tt.want)
			}
		}
	}
}

// Lines are counted across many fillings of the buffer.
func TestReaderCountsLines(t *testing.T) {
	line := append(mustEncode(t, wantRecords(t)[0]), '\n')
	blank := []byte("\n \r\n")
	in := bytes.Repeat(append(bytes.Clone(blank), line...), 500)
	got, err := readAll(iotest.HalfReader(bytes.NewReader(in)))
	if err != nil || len(got) != 500 {
		t.Fatalf("%d records, %v", len(got), err)
	}
	for i, rec := range got {
		want := Position{"test.json", 3*i + 3, int64(i*(len(line)+len(blank)) + len(blank)), 0}
		if rec.Position != want {
			t.Fatalf("record %d: %+v, want %+v", i, rec.Position, want)
		}
	}
}

func TestReaderErrors(t *testing.T) {
	good := string(mustEncode(t, wantRecords(t)[0]))
	event := `{"Records":[` + good + `]}`
	long := strings.Repeat(" ", testRecord+1)
	for _, tt := range []struct {
		name, in string
		records  int
		at       int // offset of the error
		want     string
	}{
		{"empty", "", 0, 0, "test.json:1, byte 0: holds no records"},
		{"blank", "\n \n", 0, 3, "test.json:3, byte 3: holds no records"},
		{"mark alone", "\xef\xbb\xbf", 0, 3, "byte 3: holds no records"},
		{"text", "user-7,3", 0, 0, "invalid character 'u' looking for beginning of value"},
		{"UTF-16", "\xff\xfe{\x00", 0, 0, "invalid character 'ÿ' looking for beginning of value"},
		{"bad line", good + "\n{\"a\" 1}\n" + good, 1, len(good) + 6, "test.json:2, byte %d: no colon behind a key"},
		{"bad value", good + "\n{\"a\":user-7}\n" + good, 1, len(good) + 6, "test.json:2, byte %d: invalid character 'u' looking for beginning of value"},
		{"garbage behind a record", good + "user-7\n", 1, len(good), "invalid character 'u' looking for beginning of value"},
		{"comma behind a record", good + "," + good, 1, len(good), "invalid character ',' looking for beginning of value"},
		{"brace behind a record", good + "}", 1, len(good), "invalid character '}' looking for beginning of value"},
		{"garbage behind an event", event + "x", 1, len(event), "test.json:1, byte %d: invalid character 'x' looking for beginning of value"},
		{"NUL behind an event", event + "\x00\x00", 1, len(event), `invalid character '\x00' looking for beginning of value`},
		{"no comma", `{"Records":[{} {}]}`, 1, 15, "no comma where one is due"},
		{"last comma", `{"Records":[{}, ]}`, 1, 16, "a comma with nothing behind it"},
		{"first comma", `{"Records":[,{}]}`, 0, 12, "record 1, byte 12: invalid character ',' looking for beginning of value"},
		{"wrong bracket", `{"Records":[{"a":[1}]}`, 0, 19, "record 1, byte 19: invalid character '}' after array element"},
		{"wrong bracket before the array", `{"x":[1},"Records":[]}`, 0, 7, "invalid character '}' after array element"},
		{"wrong bracket behind the array", `{"Records":[{}}`, 1, 14, "no comma where one is due"},
		{"bad word before the array", `{"x":tru,"Records":[]}`, 0, 8, "invalid character ',' in literal true (expecting 'e')"},
		{"bad word behind the array", `{"Records":[],"x":tru}`, 0, 21, "invalid character '}' in literal true (expecting 'e')"},
		{"bad word in an array", `{"Records":[nul]}`, 0, 15, "invalid character ']' in literal null (expecting 'l')"},
		{"bad word for Records", `{"Records":nope}`, 0, 12, "invalid character 'o' in literal null (expecting 'u')"},
		{"bad key", `{"Records":[],"\x":1}`, 0, 16, "invalid character 'x' in string escape code"},
		{"no key", `{"Records":[],5:1}`, 0, 14, "no key where one is due"},
		{"raw line end in text", "{\"Records\":[{\"a\":\"b\n\"}]}", 0, 19, `invalid character '\n' in string literal`},
		{"Records is text", `{"Records":"user-7"}`, 0, 11, "its Records are not an array"},
		{"quote missing", `{"Records":[{"a":"b,"c":"d"},{"a":"b"}]}`, 0, 21, "record 1, byte 21: invalid character 'c' after object key:value pair"},
		{"large element", `{"Records":[{},{"a":"` + strings.ReplaceAll(long, " ", "x") + `"}]}`, 1, -1, "record 2, byte %d: a value is larger than 100000 bytes"},
		{"large record", `{"a":"` + strings.ReplaceAll(long, " ", "x") + `"}`, 0, -1, "a value is larger than 100000 bytes"},
		{"large record of members", `{` + strings.Repeat(`"a":"b",`, 1+testRecord/8) + `"a":1}`, 0, -1, "a value is larger than 100000 bytes"},
		{"record padded large", `{"a":` + long + `1}`, 0, -1, "a value is larger than 100000 bytes"},
		{"bad JSON in a payload", `{"payload":"{\"Records\":[{},{x"}`, 1, 11, "record 2, byte 11: payload, byte 16: invalid character 'x' looking for beginning of object key string"},
		{"cut payload", `{"payload":"{\"Records\":[{}"}`, 1, 11, "payload, byte 14: cut short: unexpected EOF"},
		{"empty payload", `{"payload":""}`, 0, 11, "payload, byte 0: holds no records"},
		{"garbage behind a payload", `{"payload":"{\"Records\":[{}]}"`, 0, 31, "cut short: unexpected EOF"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, in := range [][]byte{[]byte(tt.in), zip(t, []byte(tt.in))} {
				got, err := readAll(bytes.NewReader(in))
				if len(got) != tt.records {
					t.Errorf("%d records, want %d", len(got), tt.records)
				}
				var failed *ReadError
				if !errors.As(err, &failed) {
					t.Fatalf("got %v", err)
				}
				if tt.at >= 0 && failed.Position.Offset != int64(tt.at) {
					t.Errorf("at byte %d, want %d", failed.Position.Offset, tt.at)
				}
				want := strings.ReplaceAll(tt.want, "%d", fmt.Sprint(failed.Position.Offset))
				if !strings.HasSuffix(err.Error(), want) || !strings.HasPrefix(err.Error(), "test.json:") {
					t.Errorf("got %q, want %q", err, want)
				}
				if strings.Contains(err.Error(), "user-7") {
					t.Errorf("%q tells an entity", err)
				}
			}
		})
	}
}

func TestReaderAccepts(t *testing.T) {
	good := string(mustEncode(t, wantRecords(t)[0]))
	for _, tt := range []struct {
		name, in string
		records  int
	}{
		{"no records", `{"Records":[],"NextShardIterator":"x"}`, 0},
		{"no records, twice", `{"Records":[]}{"Records":null}`, 0},
		{"empty array", `[]`, 0},
		{"members before", `{"a":{"b":[1,"]"]},"c":null,"Records":[` + good + `]}`, 1},
		{"members behind", `{"Records":[` + good + `],"a":{"b":[1,"]"]},"c":null}`, 1},
		{"documents of all kinds", good + "[" + good + "," + good + "]\n" + `{"Records":[` + good + "]} " + good, 5},
		{"payload of one record", `{"payload":` + good + `}`, 1},
		{"payload of null", `{"payload":null}`, 1},
		{"much white space", strings.Repeat("\n", 3*testRecord) + `{"Records":[` + strings.Repeat(" ", 2*testRecord) + good + `]}`, 1},
		{"large payload", `{"payload":"{\"Records\":[` + strings.Repeat(" ", 2*testRecord) + `]}"}`, 0},
	} {
		got, err := readAll(strings.NewReader(tt.in))
		if err != nil || len(got) != tt.records {
			t.Errorf("%s: %d records, %v, want %d", tt.name, len(got), err, tt.records)
		}
	}
}

// A large payload does not make the next record's bound any wider.
func TestReaderPayloadBound(t *testing.T) {
	in := `{"payload":"{\"Records\":[` + strings.Repeat(" ", testPayload) + `]}"}`
	if _, err := readAll(strings.NewReader(in)); err == nil || !strings.HasSuffix(err.Error(), "a value is larger than 400000 bytes") {
		t.Errorf("got %v", err)
	}
	in = `{"payload":"{\"Records\":[` + strings.Repeat(" ", 2*testRecord) + `]}"}{"a":"` + strings.Repeat("x", testRecord) + `"}`
	if _, err := readAll(strings.NewReader(in)); err == nil || !strings.HasSuffix(err.Error(), "a value is larger than 100000 bytes") {
		t.Errorf("got %v", err)
	}
}

func TestReaderRejectsAlone(t *testing.T) {
	good := string(mustEncode(t, wantRecords(t)[0]))
	deep := strings.Repeat(`{"a":`, 200) + "1" + strings.Repeat("}", 200)
	for _, tt := range []struct{ name, in, reason string }{
		{"number", `5`, "not an object"},
		{"other object", `{"user-7":"user-7"}`, "no eventName"},
		{"deep", deep, "nested deeper than 128 levels"},
		{"notice of SQS", `{"version":"1.0","DDBStreamBatchInfo":{"shardId":"s"}}`, errNoBatch.(*RecordError).Reason},
		{"payload without records", `{"payload":{"a":1}}`, errNoRecords.(*RecordError).Reason},
		{"payload as text without records", `{"payload":"{\"user-7\":1}"}`, "no eventName"},
	} {
		got, err := readAll(strings.NewReader(good + "\n" + tt.in + "\n" + good + "\n"))
		if err != nil || len(got) != 3 || got[0].Err != nil || got[2].Err != nil {
			t.Errorf("%s: %v, %v", tt.name, got, err)
			continue
		}
		var rejected *RecordError
		if !errors.As(got[1].Err, &rejected) || rejected.Reason != tt.reason {
			t.Errorf("%s: got %v, want %s", tt.name, got[1].Err, tt.reason)
		}
		if got[1].Position.Line != 2 || got[2].Position.Line != 3 {
			t.Errorf("%s: lines %d, %d", tt.name, got[1].Position.Line, got[2].Position.Line)
		}
	}
}

func TestReaderErrorIsFinal(t *testing.T) {
	r := NewReader(strings.NewReader("{}x{}"), "f")
	if _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	_, first := r.Next()
	if _, again := r.Next(); first == nil || first != again {
		t.Errorf("%v, then %v", first, again)
	}
	r = NewReader(strings.NewReader("{}"), "f")
	for i, want := range []error{nil, io.EOF, io.EOF} {
		if _, err := r.Next(); err != want {
			t.Errorf("call %d: %v", i, err)
		}
	}
}

func TestReaderPassesOnFailures(t *testing.T) {
	broken := errors.New("broken pipe")
	data := testFile(t, "records.jsonl")
	want := readWhole(t, data)
	for n := range len(data) {
		in := io.MultiReader(bytes.NewReader(data[:n]), iotest.ErrReader(broken))
		got, err := readAll(in)
		if !errors.Is(err, broken) {
			t.Fatalf("after %d bytes: %v", n, err)
		}
		isBeginning(t, got, want)
		if n := bytes.Count(data[:n], newline) + atLineEnd(data, n); len(got) != n {
			t.Fatalf("%d records, want %d", len(got), n)
		}
	}
}

// atLineEnd is 1 where a cut at n leaves a whole record without its line end.
func atLineEnd(data []byte, n int) int {
	if n < len(data) && data[n] == '\n' && n > 0 && data[n-1] != '\n' {
		return 1
	}
	return 0
}

// documents finds where a file's documents end, by another decoder, and how many records there are up to each.
func documents(t testing.TB, data []byte) map[int]int {
	t.Helper()
	ends := map[int]int{}
	records := 0
	dec := json.NewDecoder(bytes.NewReader(data))
	for {
		var doc struct {
			Records []json.RawMessage
			Payload json.RawMessage
		}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err == io.EOF {
			return ends
		} else if err != nil {
			t.Fatal(err)
		}
		_ = json.Unmarshal(raw, &doc)
		switch {
		case raw[0] == '[' || doc.Payload != nil:
			records += 3
		case doc.Records != nil:
			records += len(doc.Records)
		default:
			records++
		}
		ends[int(dec.InputOffset())] = records
	}
}

// Cut anywhere, a file ends in an error, unless the cut is between documents. Then its records are exactly those before.
func TestReaderCutAnywhere(t *testing.T) {
	for _, format := range formats {
		t.Run(format.file, func(t *testing.T) {
			t.Parallel()
			data := testFile(t, format.file)
			want := readWhole(t, data)
			ends := documents(t, data)
			sound, ok := 0, false
			for n := range len(data) {
				if records, end := ends[n]; end {
					sound, ok = records, true
				} else if n > 0 && !isSpace(data[n-1]) {
					ok = false
				}
				got, err := readAll(bytes.NewReader(data[:n]))
				if ok != (err == nil) {
					t.Fatalf("cut at %d of %d: %v", n, len(data), err)
				}
				if ok && len(got) != sound {
					t.Fatalf("cut at %d: %d records, want %d", n, len(got), sound)
				}
				if err != nil && n > 0 && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, ErrEmpty) {
					t.Fatalf("cut at %d: %v", n, err)
				}
				isBeginning(t, got, want)
			}
		})
	}
}

// The same for gzip: no cut goes unnoticed but one between members that is between documents.
func TestReaderCutGzip(t *testing.T) {
	lines := testFile(t, "records.jsonl")
	second := bytes.IndexByte(lines, '\n') + 1
	first := zip(t, lines[:second])
	for name, file := range map[string]struct {
		data  []byte
		sound int // cut here, the file is sound
	}{
		"lambda":  {zip(t, testFile(t, "lambda.json")), -1},
		"get":     {zip(t, testFile(t, "get-records.json")), -1},
		"failure": {zip(t, testFile(t, "failure-text.json")), -1},
		"lines":   {zip(t, lines), -1},
		"members": {zip(t, lines[:second], lines[second:]), len(first)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := readWhole(t, file.data)
			for n := range len(file.data) {
				got, err := readAll(bytes.NewReader(file.data[:n]))
				if (err == nil) != (n == file.sound) {
					t.Fatalf("cut at %d of %d: %v", n, len(file.data), err)
				}
				if n == file.sound && len(got) != 1 {
					t.Fatalf("cut at %d: %d records", n, len(got))
				}
				isBeginning(t, got, want)
			}
		})
	}
}

// No flipped bit in gzip data changes what is read without an error, and none makes fewer records of it.
func TestReaderCorruptGzip(t *testing.T) {
	data := zip(t, testFile(t, "lambda.json"))
	want := wantRecords(t)
	unnoticed := 0
	for i := range data {
		for _, mask := range []byte{0x01, 0x10, 0xff} {
			corrupt := bytes.Clone(data)
			corrupt[i] ^= mask
			got, err := readAll(bytes.NewReader(corrupt))
			if err == nil {
				unnoticed++
				sameRecords(t, got, want)
			}
		}
	}
	if unnoticed > 3*10 {
		t.Errorf("%d corruptions went unnoticed, more than the header has bytes that mean nothing", unnoticed)
	}
	tail := bytes.Clone(data)
	tail[len(tail)-5] ^= 1 // of the checksum
	got, err := readAll(bytes.NewReader(tail))
	if !errors.Is(err, gzip.ErrChecksum) || !strings.Contains(err.Error(), "gzip data: ") || len(got) != 3 {
		t.Errorf("bad checksum: %d records, %v", len(got), err)
	}
	if _, err := readAll(bytes.NewReader(append(data, "user-7 and more"...))); !errors.Is(err, gzip.ErrHeader) {
		t.Errorf("garbage behind gzip: %v", err)
	}
}

// generate writes n records as one document of the wanted kind.
func generate(pipe *io.PipeWriter, n int, record []byte, open, between, closing string) {
	w := bufio.NewWriter(pipe) // whose error is sticky
	_, _ = w.WriteString(open)
	for i := range n {
		if i > 0 {
			_, _ = w.WriteString(between)
		}
		_, _ = w.Write(record)
	}
	_, _ = w.WriteString(closing)
	pipe.CloseWithError(w.Flush())
}

func TestReaderMemory(t *testing.T) {
	record := mustEncode(t, Record{EventName: Remove, Sequence: "1", Keys: json.RawMessage(`{"PK":{"S":"a"},"SK":{"S":"b"}}`)})
	for _, tt := range []struct {
		name                   string
		n                      int
		open, between, closing string
	}{
		{"event", 200_000, `{"Records":[`, ",", "]}"},
		{"lines", 50_000, "", "\n", "\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := tt.n
			if testing.Short() {
				n /= 10
			}
			out, in := io.Pipe()
			go generate(in, n, record, tt.open, tt.between, tt.closing)
			r := NewReader(out, "pipe")
			before, most := heap(), uint64(0)
			records := 0
			for ; ; records++ {
				rec, err := r.Next()
				if err == io.EOF {
					break
				}
				if err != nil || rec.Err != nil {
					t.Fatal(err, rec.Err)
				}
				if records%(n/10) == 0 {
					most = max(most, heap())
				}
			}
			if records != n {
				t.Errorf("%d records, want %d", records, n)
			}
			if most > before+8<<20 {
				t.Errorf("heap grew from %d to %d bytes over %d bytes of input", before, most, n*len(record))
			}
		})
	}
}

// heap is how many bytes are in use once garbage is collected.
func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

func BenchmarkNext(b *testing.B) {
	record := mustEncode(b, wantRecords(b)[0])
	const n = 1000
	lines := bytes.Repeat(append(bytes.Clone(record), '\n'), n)
	event := append(append([]byte(`{"Records":[`), bytes.Join(bytes.Split(bytes.TrimSpace(lines), newline), []byte(","))...), "]}"...)
	for _, bb := range []struct {
		name string
		data []byte
	}{{"lines", lines}, {"event", event}, {"gzip", zip(b, lines)}} {
		b.Run(bb.name, func(b *testing.B) {
			b.SetBytes(int64(len(record)))
			b.ReportAllocs()
			var r *Reader
			for i := 0; b.Loop(); i++ {
				if i%n == 0 {
					r = NewReader(bytes.NewReader(bb.data), "bench")
				}
				if rec, err := r.Next(); err != nil || rec.Err != nil {
					b.Fatal(err, rec.Err)
				}
			}
		})
	}
}

func BenchmarkDecodeEvent(b *testing.B) {
	record := mustEncode(b, wantRecords(b)[0])
	event := []byte(`{"Records":[` + strings.Repeat(string(record)+",", 999) + string(record) + `]}`)
	b.SetBytes(int64(len(event)))
	b.ReportAllocs()
	for b.Loop() {
		if records, err := DecodeEvent(event); err != nil || len(records) != 1000 {
			b.Fatal(err)
		}
	}
}
