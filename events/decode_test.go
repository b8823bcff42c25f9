package events

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/shardquota/shardquota/table"
)

const acmeKeys = `{"PK":{"S":"n/BUCKET#acme#gpt-4#0"},"SK":{"S":"#STATE"}}`

// bucketImage is a bucket with one limit and what else is given.
func bucketImage(consumed int, more string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"PK":{"S":"n/BUCKET#acme#gpt-4#0"},"SK":{"S":"#STATE"},"rf":{"N":"1796032800000"},`+
		`"b_rpm_tk":{"N":"%d"},"b_rpm_tc":{"N":"%d"},"b_rpm_cp":{"N":"100000"},"b_rpm_ra":{"N":"0"},"b_rpm_rp":{"N":"60000"}%s}`,
		100_000-consumed, consumed, more))
}

func bucketRecord(name string, old, image json.RawMessage) Record {
	return Record{
		EventName: name, Stream: "2026-11-30T00:00:00.000", Sequence: "17", Time: 1_796_032_800_000,
		Keys: json.RawMessage(acmeKeys), Old: old, New: image,
	}
}

func TestDecodeModify(t *testing.T) {
	change, err := Decode(bucketRecord(Modify, bucketImage(1000, ""), bucketImage(3500, `,"shard_count":{"N":"2"}`)))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := change.New.Key, (table.Key{Group: table.Group{Namespace: "n", Entity: "acme", Resource: "gpt-4"}}); got != want {
		t.Errorf("key %+v, want %+v", got, want)
	}
	if got, want := change.Consumed(), map[string]int64{"rpm": 2500}; !maps.Equal(got, want) {
		t.Errorf("consumed %v, want %v", got, want)
	}
	if from, to, ok := change.Doubled(); !ok || from != 1 || to != 2 {
		t.Errorf("doubled %d to %d, %v; want 1 to 2: an absent count is 1", from, to, ok)
	}
	if want := "2026-11-30T00:00:00.000/" + strings.Repeat("0", 38) + "17"; change.StreamPosition != want {
		t.Errorf("mark %q, want %q", change.StreamPosition, want)
	}
}

func TestDecodeInsertCountsFromNothing(t *testing.T) {
	change, err := Decode(bucketRecord(Insert, nil, bucketImage(3500, "")))
	if err != nil {
		t.Fatal(err)
	}
	if got := change.Consumed(); change.Old != nil || !maps.Equal(got, map[string]int64{"rpm": 3500}) {
		t.Errorf("old %v, consumed %v; want none and 3500", change.Old, got)
	}
	if _, _, ok := change.Doubled(); ok {
		t.Error("a new bucket was taken for a doubling")
	}
}

func TestConsumed(t *testing.T) {
	limit := func(name string, consumed int) string {
		return fmt.Sprintf(`,"b_%[1]s_tk":{"N":"1"},"b_%[1]s_cp":{"N":"1"},"b_%[1]s_tc":{"N":"%[2]d"}`, name, consumed)
	}
	tests := []struct {
		name     string
		old, new string
		want     map[string]int64
	}{
		{"a refund", limit("a.b-c_d", 900), limit("a.b-c_d", 400), map[string]int64{"a.b-c_d": -500}},
		{"a limit that is new on the bucket", "", limit("tpm", 700), map[string]int64{"tpm": 700}},
		{"a limit that is removed", limit("tpm", 700), "", nil},
		{"the write meter", limit("wcu", 1000), limit("wcu", 2000), nil},
		{"a limit without a counter", `,"b_x_tk":{"N":"1"},"b_x_cp":{"N":"1"}`, `,"b_x_tk":{"N":"0"},"b_x_cp":{"N":"1"}`, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			change, err := Decode(bucketRecord(Modify, bucketImage(0, test.old), bucketImage(0, test.new)))
			if err != nil {
				t.Fatal(err)
			}
			if got := change.Consumed(); !maps.Equal(got, test.want) {
				t.Errorf("consumed %v, want %v", got, test.want)
			}
		})
	}
}

// Whatever an item holds besides is kept as it is.
func TestDecodeKeepsEveryType(t *testing.T) {
	const number = "12345678901234567890123456789012345678"
	more := `,"x_b":{"B":"AQID"},"x_bs":{"BS":["AQ=="]},"x_ss":{"SS":["p","q"]},"x_ns":{"NS":["` + number + `"]},"x_n":{"N":"` + number + `"},` +
		`"x_m":{"M":{"l":{"L":[{"NULL":true},{"BOOL":false}]}}}`
	change, err := Decode(bucketRecord(Insert, nil, bucketImage(0, more)))
	if err != nil {
		t.Fatal(err)
	}
	whole, err := change.New.DecodeFull()
	if err != nil {
		t.Fatal(err)
	}
	text, err := table.FormatItem(whole.Item)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"x_b":{"B":"AQID"}`, `"x_bs":{"BS":["AQ=="]}`, `"x_ss":{"SS":["p","q"]}`, `"x_n":{"N":"` + number + `"}`,
		`"x_ns":{"NS":["` + number + `"]}`, `"x_m":{"M":{"l":{"L":[{"NULL":true},{"BOOL":false}]}}}`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the item lost %s: %s", want, text)
		}
	}
}

// Records of other items, and removals, are skipped without a look at their
// images, which here could not be read.
func TestDecodeSkips(t *testing.T) {
	unreadable := json.RawMessage(`{"PK":`)
	other := bucketRecord(Modify, unreadable, unreadable)
	other.Keys = json.RawMessage(`{"PK":{"S":"n/BUCKET#acme#gpt-4#0"},"SK":{"S":"#OP#1"}}`)
	removed := bucketRecord(Remove, unreadable, nil)
	for _, record := range []Record{other, removed} {
		if change, err := Decode(record); change != nil || err != nil {
			t.Errorf("%s of %s: %v, %v; want nothing", record.EventName, record.Keys, change, err)
		}
	}
}

func TestDecodeRejects(t *testing.T) {
	good := bucketImage(0, "")
	secret := func(from, to string) json.RawMessage {
		return json.RawMessage(strings.Replace(string(good), from, to, 1))
	}
	noKeys := bucketRecord(Insert, nil, good)
	noKeys.Keys = nil
	badSequence := bucketRecord(Insert, nil, good)
	badSequence.Sequence = "x17"
	marked := bucketRecord(Insert, nil, good)
	marked.Err = &RecordError{Reason: "marked by the reader"}
	tests := []struct {
		name   string
		record Record
		want   string
		is     error
	}{
		{"no new image", bucketRecord(Insert, nil, nil), "no new image", ErrRecord},
		{"no old image", bucketRecord(Modify, nil, good), "no old image", ErrRecord},
		{"an image that is no item", bucketRecord(Insert, nil, json.RawMessage(`{"PK":"secret"}`)), "new image is not attributes", ErrRecord},
		{"an image of another item", bucketRecord(Insert, nil, secret("gpt-4#0", "gpt-4#1")), "image is of another item", ErrRecord},
		{"images of two items", bucketRecord(Modify, secret("gpt-4#0", "gpt-4#1"), good), "images are of two items", ErrRecord},
		{"no keys", noKeys, "keys", ErrRecord},
		{"a number that is none", bucketRecord(Insert, nil, secret(`{"N":"100000"}`, `{"N":"secret"}`)), "not a whole number", table.ErrItem},
		{"a number of the wrong type", bucketRecord(Insert, nil, secret(`{"N":"100000"}`, `{"S":"secret"}`)), "not a number", table.ErrItem},
		{"a number out of range", bucketRecord(Insert, nil, secret(`{"N":"100000"}`, `{"N":"9223372036854775807"}`)), "out of range", table.ErrItem},
		{"a malformed key", bucketRecord(Insert, nil, secret("#acme#", "#secret")), "malformed key", table.ErrKey},
		{"a bad sequence number", badSequence, "sequence", nil},
		{"rejected by the reader", marked, "marked by the reader", nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			change, err := Decode(test.record)
			if change != nil || err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("%v, %v; want an error with %q", change, err, test.want)
			}
			if test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("%v is not %v", err, test.is)
			}
			if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "acme") {
				t.Errorf("the error shows the data: %v", err)
			}
		})
	}
}

// An item kind that is no bucket must cost next to nothing beside one that is.
func BenchmarkDecode(b *testing.B) {
	bucket := bucketRecord(Modify, bucketImage(1000, ""), bucketImage(3500, ""))
	other := bucket
	other.Keys = json.RawMessage(`{"PK":{"S":"n/ENTITY#acme"},"SK":{"S":"#META"}}`)
	for name, record := range map[string]Record{"bucket": bucket, "other": other} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Decode(record); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestOfBucket(t *testing.T) {
	for keys, want := range map[string]bool{
		acmeKeys: true,
		`{"PK":{"S":"n/ENTITY#acme"},"SK":{"S":"#META"}}`:      false,
		`{"PK":{"S":"n/ENTITY#acme"},"SK":{"S":"#STATE#old"}}`: false,
		`{"PK":{"S":"n/ENTITY#acme"},"SK":"#STATE"}`:           true, // for Decode to reject
	} {
		if got := OfBucket(Record{EventName: Remove, Keys: json.RawMessage(keys)}); got != want {
			t.Errorf("%s: %t", keys, got)
		}
	}
}
