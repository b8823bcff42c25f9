package events

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// secretID is the entity id of seeds. Whatever becomes of them, no error may show it.
const secretID = "sk-live-4242"

func FuzzTime(f *testing.F) {
	for _, seed := range []string{`1764498732.123`, `1.764498732E9`, `0e1`, `"2025-11-30T10:32:12.5+01:00"`, `-1`, `"x"`, `1e-1000`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		ms, err := parseTime(json.RawMessage(in))
		if want, ok := exactMillis(in); ok && (err != nil || ms != want) {
			t.Fatalf("%s: %d, %v; it is %d", in, ms, err, want)
		}
		if err != nil {
			if ms != 0 || err != errTimeForm && err != errTimeRange {
				t.Fatalf("%d, %v", ms, err)
			}
			return
		}
		if ms < 0 || ms > maxTime {
			t.Fatalf("%d is out of range", ms)
		}
		again := string(appendSeconds(nil, ms))
		if got, err := parseTime(json.RawMessage(again)); err != nil || got != ms {
			t.Errorf("%d as %s: %d, %v", ms, again, got, err)
		}
		iso := `"` + time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z07:00") + `"`
		if got, err := parseTime(json.RawMessage(iso)); err != nil || got != ms {
			t.Errorf("%d as %s: %d, %v", ms, iso, got, err)
		}
	})
}

// exactMillis reads a JSON number of seconds by rational arithmetic; ok is false for what is none, or no time.
func exactMillis(in string) (ms int64, ok bool) {
	if !json.Valid([]byte(in)) || strings.Trim(in, "-+.eE0123456789") != "" {
		return 0, false
	}
	if i := strings.IndexAny(in, "eE"); i >= 0 {
		if exponent, err := strconv.Atoi(in[i+1:]); err != nil || exponent < -1000 || exponent > 1000 {
			return 0, false
		}
	}
	x, ok := new(big.Rat).SetString(in)
	if !ok || strings.HasPrefix(in, "-") {
		return 0, false
	}
	x.Mul(x, big.NewRat(1000, 1))
	whole := new(big.Int).Quo(x.Num(), x.Denom())
	return whole.Int64(), whole.IsInt64() && whole.Int64() <= maxTime
}

func FuzzReader(f *testing.F) {
	for _, format := range formats {
		data := testFile(f, format.file)
		f.Add(data)
		f.Add(zip(f, data))
	}
	for _, seed := range []string{`{"Records":[5,{},null]}`, "\xef\xbb\xbf[]", `{"payload":"{}"}`, `{"payload":{"payload":{}}}`, `{"a":tru`, "{}\n{}",
		`{"eventName":"INSERT","dynamodb":{"SequenceNumber":"1","ApproximateCreationDateTime":1.5,"Keys":{"a":{"S":"\u00e9\\"}}}}`,
		`{"DDBStreamBatchInfo":{"streamArn":"a:table/b/stream/c"},"payload":{"Records":[{"eventName":"REMOVE","userIdentity":{"Type":"a"},"dynamodb":{"SequenceNumber":"1","ApproximateCreationDateTime":"2026-11-30T10:00:00Z"}}]}}`} {
		f.Add([]byte(seed))
	}
	compressor := gzip.NewWriter(io.Discard) // to make one takes longer than all else
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := readAll(bytes.NewReader(data))
		slow, slowErr := readAll(iotest.OneByteReader(bytes.NewReader(data)))
		if fmt.Sprint(err) != fmt.Sprint(slowErr) || !reflect.DeepEqual(got, slow) {
			t.Fatalf("it matters how the bytes arrive: %v, %v", err, slowErr)
		}
		fuzzError(t, err)
		for i, rec := range got {
			fuzzRecord(t, rec)
			if i > 0 && rec.Position.Offset < got[i-1].Position.Offset { // those of a payload share the payload's
				t.Fatalf("%v comes after %v", rec.Position, got[i-1].Position)
			}
		}
		if !bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
			fuzzPlain(t, data, got, err)
			var zipped bytes.Buffer
			compressor.Reset(&zipped)
			_, _ = compressor.Write(data)
			_ = compressor.Close()
			again, zippedErr := readAll(&zipped)
			if !reflect.DeepEqual(again, got) || fmt.Sprint(zippedErr) != fmt.Sprint(err) {
				t.Fatalf("compressed it is read as %v, %v; not %v, %v", again, zippedErr, got, err)
			}
		}
	})
}

// fuzzError holds the error that ends a reading to what it promises.
func fuzzError(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	failed := (*ReadError)(nil)
	if !errors.As(err, &failed) || failed.Err == nil || failed.Position.File != "test.json" {
		t.Fatalf("no cause or no place: %v", err)
	}
	if len(err.Error()) > 300 || strings.Contains(err.Error(), secretID) {
		t.Fatalf("the error shows the data: %v", err)
	}
}

// fuzzRecord holds a record to what Record promises of it.
func fuzzRecord(t *testing.T, rec Record) {
	t.Helper()
	if rec.Err != nil {
		if rejected := (*RecordError)(nil); !errors.As(rec.Err, &rejected) || len(rejected.Reason) > 300 || strings.Contains(rejected.Reason, secretID) {
			t.Fatalf("rejected by %v", rec.Err)
		}
		return
	}
	if !slices.Contains([]string{Insert, Modify, Remove}, rec.EventName) || rec.Time < 0 || rec.Time > maxTime {
		t.Fatalf("%+v is sound", rec)
	}
	mark, err := StreamPosition(rec.Stream, rec.Sequence)
	if err != nil || strings.ContainsAny(mark, " ,") {
		t.Fatalf("a sound record's mark is %q, %v", mark, err)
	}
	for _, image := range [][]byte{rec.Keys, rec.Old, rec.New} {
		if image != nil && (image[0] != '{' || !json.Valid(image)) {
			t.Fatalf("%q is an image", image)
		}
	}
	fuzzEncode(t, rec)
}

// fuzzEncode writes a record and reads it back: it is the same.
func fuzzEncode(t *testing.T, want Record) {
	line := mustEncode(t, want)
	got, err := readAll(bytes.NewReader(line))
	if err != nil {
		t.Fatal(err)
	}
	sameRecords(t, got, []Record{want})
}

// fuzzPlain is what can be said only of text that is not compressed: places are those of the text, and malformed text is
// not read without an error.
func fuzzPlain(t *testing.T, data []byte, got []Record, err error) {
	t.Helper()
	if err == nil && !validDocuments(data) {
		t.Fatal("malformed text was read without an error")
	}
	for _, rec := range got {
		fuzzPosition(t, data, rec.Position)
	}
	if failed := (*ReadError)(nil); errors.As(err, &failed) {
		fuzzPosition(t, data, failed.Position)
	}
}

func fuzzPosition(t *testing.T, data []byte, p Position) {
	t.Helper()
	if p.Offset < 0 || p.Offset > int64(len(data)) || p.Index < 0 {
		t.Fatalf("%v is outside of %d bytes", p, len(data))
	}
	if want := 1 + bytes.Count(data[:p.Offset], newline); p.Line != want {
		t.Fatalf("byte %d is on line %d, not %d", p.Offset, want, p.Line)
	}
}

func validDocuments(data []byte) bool {
	dec := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(data, byteOrderMark)))
	for {
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return err == io.EOF
		}
	}
}

// What the streaming decoder makes of an event is what encoding/json makes of it.
func FuzzDecodeEvent(f *testing.F) {
	for _, format := range formats {
		f.Add(testFile(f, format.file))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := DecodeEvent(data)
		for _, rec := range got {
			fuzzRecord(t, rec)
		}
		want, isEvent := referenceEvent(data)
		switch {
		case !plainKeys(data):
			return // keys that are there twice, or written with escapes: each decoder has its own way with them
		case bytes.Contains(data, []byte(`"DDBStreamBatchInfo"`)):
			return // whose stream counts for what follows it
		case (err == nil) != isEvent:
			t.Fatalf("%v; that it is an event is %v", err, isEvent)
		case len(got) != len(want):
			t.Fatalf("%d records, not %d", len(got), len(want))
		}
		for i := range got {
			if (got[i].Err == nil) != (want[i] != nil) {
				t.Fatalf("record %d: %v; that it is sound is %v", i, got[i].Err, want[i] != nil)
			}
			if want[i] != nil {
				sameRecords(t, got[i:i+1], []Record{*want[i]})
			}
		}
	})
}

// referenceEvent reads an event by encoding/json alone. A record that is not sound is nil.
func referenceEvent(data []byte) (records []*Record, ok bool) {
	data = bytes.TrimLeft(data, " \t\r\n")
	var array []json.RawMessage
	var object map[string]json.RawMessage
	switch {
	case !json.Valid(data):
		return nil, false
	case data[0] == '[':
		_ = json.Unmarshal(data, &array)
	case json.Unmarshal(data, &object) != nil || object["Records"] == nil || json.Unmarshal(object["Records"], &array) != nil:
		return nil, false
	}
	for _, raw := range array {
		records = append(records, referenceRecord(raw))
	}
	return records, true
}

func referenceRecord(raw json.RawMessage) *Record {
	var fields, change, identity map[string]json.RawMessage
	if depth(raw) > MaxDepth || json.Unmarshal(raw, &fields) != nil || json.Unmarshal(orNull(fields["dynamodb"]), &change) != nil || change == nil {
		return nil
	}
	if json.Unmarshal(orNull(fields["userIdentity"]), &identity) != nil {
		return nil
	}
	sound := true
	text := func(raw json.RawMessage) (s string) {
		sound = json.Unmarshal(orNull(raw), &s) == nil && sound
		return s
	}
	image := func(raw json.RawMessage) json.RawMessage {
		var object map[string]json.RawMessage
		sound = json.Unmarshal(orNull(raw), &object) == nil && sound
		if object == nil {
			return nil
		}
		return raw
	}
	rec := &Record{
		EventID: text(fields["eventID"]), EventName: text(fields["eventName"]), Sequence: text(change["SequenceNumber"]),
		Keys: image(change["Keys"]), Old: image(change["OldImage"]), New: image(change["NewImage"]),
	}
	for _, name := range slices.Sorted(maps.Keys(identity)) {
		switch name {
		case "principalId", "PrincipalId":
			rec.PrincipalID = text(identity[name])
		case "type", "Type":
			rec.PrincipalType = text(identity[name])
		}
	}
	rec.Table, rec.Stream = splitARN(text(fields["eventSourceARN"]))
	at, err := parseTime(orNull(change["ApproximateCreationDateTime"])) // for which FuzzTime vouches
	rec.Time = at
	_, markErr := StreamPosition(rec.Stream, rec.Sequence)
	if !sound || err != nil || markErr != nil || !slices.Contains([]string{Insert, Modify, Remove}, rec.EventName) {
		return nil
	}
	return rec
}

// orNull is null where there is nothing.
func orNull(raw json.RawMessage) json.RawMessage {
	if raw == nil {
		return json.RawMessage("null")
	}
	return raw
}

// depth is how deeply JSON nests.
func depth(raw json.RawMessage) int {
	deepest, at := 0, 0
	for dec := json.NewDecoder(bytes.NewReader(raw)); ; {
		token, err := dec.Token()
		if err != nil {
			return deepest
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			at++
			deepest = max(deepest, at)
		case json.Delim('}'), json.Delim(']'):
			at--
		}
	}
}

// plainKeys tells whether no object of a JSON text has a key twice, or one that is written with an escape.
func plainKeys(data []byte) bool {
	dec := json.NewDecoder(bytes.NewReader(data))
	return !json.Valid(data) || plainValue(dec, data)
}

func plainValue(dec *json.Decoder, data []byte) bool {
	token, _ := dec.Token()
	isObject, seen := token == json.Delim('{'), map[string]bool{}
	if _, isDelim := token.(json.Delim); !isDelim {
		return true
	}
	for dec.More() {
		if isObject {
			start := dec.InputOffset()
			token, _ := dec.Token()
			key := strings.ToLower(token.(string)) // principalId has two spellings
			if seen[key] || bytes.IndexByte(data[start:dec.InputOffset()], '\\') >= 0 {
				return false
			}
			seen[key] = true
		}
		if !plainValue(dec, data) {
			return false
		}
	}
	_, _ = dec.Token()
	return true
}

// FuzzDecode is about the step from a record to a change of a bucket.
func FuzzDecode(f *testing.F) {
	keys, image := []byte(acmeKeys), bucketImage(1000, `,"shard_count":{"N":"2"},"sched":{"S":"1h9s500"},"b_q_tk":{"N":"1"},"b_q_cp":{"N":"5"},"b_q_ra":{"N":"0"},"b_q_rsched":{"S":"1m0h0"}`)
	f.Add(true, "17", []byte(nil), []byte(bucketImage(0, "")), keys)
	f.Add(false, "17", []byte(bucketImage(0, "")), []byte(image), keys)
	f.Add(false, "17", []byte(image), []byte(image), []byte(strings.ReplaceAll(acmeKeys, "#", `\u0023`)))
	f.Fuzz(func(t *testing.T, insert bool, sequence string, old, image, keys []byte) {
		record := Record{EventName: Modify, Stream: testStream, Sequence: sequence, Keys: keys, Old: old, New: image}
		if insert {
			record.EventName = Insert
		}
		change, err := Decode(record)
		if err != nil {
			fuzzDecodeError(t, record, err)
			return
		}
		again, err := Decode(rewritten(t, record))
		if err != nil || (again == nil) != (change == nil) {
			t.Fatalf("written otherwise it decodes as %+v, not %+v (%v)", again, change, err)
		}
		if change == nil {
			return
		}
		fuzzChange(t, change)
		if !sameImage(t, again.New, change.New) || !sameImage(t, again.Old, change.Old) {
			t.Fatalf("written otherwise it decodes as %+v, not %+v", again, change)
		}
	})
}

func fuzzDecodeError(t *testing.T, record Record, err error) {
	t.Helper()
	_, unplaced := StreamPosition("", record.Sequence)
	if unplaced == nil && !errors.Is(err, ErrRecord) && !errors.Is(err, table.ErrItem) && !errors.Is(err, table.ErrKey) {
		t.Fatalf("of no kind: %v", err)
	}
	if strings.Contains(err.Error(), "acme") && !named(record, "acme") {
		t.Fatalf("the error shows an entity: %v", err)
	}
	if len(err.Error()) > 500 {
		t.Fatalf("an error of %d bytes", len(err.Error()))
	}
}

// named reports whether text is part of an attribute's name. Names may be shown.
func named(record Record, text string) bool {
	for _, image := range [][]byte{record.Old, record.New} {
		item, _ := table.ParseItem(image)
		for name := range item {
			if strings.Contains(name, text) {
				return true
			}
		}
	}
	return false
}

// rewritten is a record of the same items in the one spelling that FormatItem has.
func rewritten(t *testing.T, record Record) Record {
	t.Helper()
	for _, image := range []*json.RawMessage{&record.Keys, &record.Old, &record.New} {
		item, err := table.ParseItem(*image)
		if err != nil {
			continue // of an INSERT's old image nothing is known
		}
		if *image, err = table.FormatItem(item); err != nil {
			t.Fatal(err)
		}
	}
	return record
}

// sameImage reports whether two images say the same, however it is written.
func sameImage(t *testing.T, a, b *table.Image) bool {
	t.Helper()
	if a == nil || b == nil {
		return a == b
	}
	return a.Key == b.Key && reflect.DeepEqual(a.Bucket, b.Bucket) && reflect.DeepEqual(whole(t, a), whole(t, b))
}

func whole(t *testing.T, image *table.Image) table.Item {
	t.Helper()
	b, err := image.DecodeFull()
	if err != nil {
		t.Fatal(err)
	}
	return b.Item
}

// fuzzChange compares what a change says with the attributes of its images.
func fuzzChange(t *testing.T, change *Change) {
	t.Helper()
	item := whole(t, change.New)
	if pk, sk := item.Key(); sk != table.StateSK || pk != change.New.Key.PK() {
		t.Fatalf("%+v is of the item %q %q", change.New.Key, pk, sk)
	}
	consumed := change.Consumed()
	for i := range change.New.Limits {
		name := change.New.Limits[i].Name
		want := stored(item, name)
		if change.Old != nil && change.Old.Limit(name) != nil {
			want -= stored(whole(t, change.Old), name)
		}
		if name == quota.WriteMeter {
			want = 0
		}
		if got := consumed[name]; got != want {
			t.Fatalf("consumed %d of %q, not %d", got, name, want)
		}
	}
	if from, to, ok := change.Doubled(); ok && (from < 1 || to <= from || to != change.New.ShardCount) {
		t.Fatalf("doubled from %d to %d", from, to)
	}
}

func stored(item table.Item, limit string) int64 {
	number, ok := item[table.Attr(limit, table.FieldConsumed)].(*types.AttributeValueMemberN)
	if !ok {
		return 0
	}
	n, _ := strconv.ParseInt(number.Value, 10, 64)
	return n
}
