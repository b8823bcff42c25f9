package table

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
)

// images returns every image of the recordings.
func images(t testing.TB) []json.RawMessage {
	t.Helper()
	names, err := filepath.Glob("../testdata/*.jsonl.gz")
	if err != nil || len(names) == 0 {
		t.Fatalf("no recordings: %v", err)
	}
	var found []json.RawMessage
	for _, name := range names {
		file, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		text, err := gzip.NewReader(file)
		if err != nil {
			t.Fatal(err)
		}
		for decoder := json.NewDecoder(text); decoder.More(); {
			var record struct {
				Change struct{ Keys, OldImage, NewImage json.RawMessage } `json:"dynamodb"`
			}
			if err := decoder.Decode(&record); err != nil {
				t.Fatal(err)
			}
			for _, image := range []json.RawMessage{record.Change.Keys, record.Change.OldImage, record.Change.NewImage} {
				if image != nil {
					found = append(found, image)
				}
			}
		}
		_ = file.Close()
	}
	return found
}

func TestParseItemAgreesWithTheSDK(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds, which -short leaves out")
	}
	all := images(t)
	if len(all) < 20_000 {
		t.Fatalf("only %d images", len(all))
	}
	for _, image := range all {
		got, err := ParseItem(image)
		want, wantErr := attributevalue.UnmarshalMapJSON(image)
		if err != nil || wantErr != nil {
			t.Fatalf("errors %v and %v", err, wantErr)
		}
		if !reflect.DeepEqual(map[string]any(plainMap(got)), map[string]any(plainMap(want))) {
			t.Fatalf("%s\nis read as %v\nwant %v", image, got, want)
		}
	}
}

func TestParseItemRefuses(t *testing.T) {
	deep := strings.Repeat(`{"L":[`, maxNesting+2) + strings.Repeat(`]}`, maxNesting+2)
	tests := []struct{ text, cause string }{
		{``, "expected {"},
		{`null`, "expected {"},
		{`[]`, "expected {"},
		{`{"a":{"S":"secret"}`, "expected ,"},
		{`{"a":{"S":"secret"}}}`, "something follows"},
		{`{"a":{"S":"secret"},}`, `expected "`},
		{`{"a":{"S":"secret","N":"1"}}`, "expected }"},
		{`{"a":{}}`, `expected "`},
		{`{"a":{"X":"secret"}}`, "no known type"},
		{`{"a":{"N":1}}`, `expected "`},
		{`{"a":{"B":"secret!"}}`, "not base64"},
		{`{"a":{"BOOL":"true"}}`, "expected true or false"},
		{`{"a":{"S":"secret`, "without end"},
		{`{"a":{"S":"secret\`, "without end"},
		{`{"a":{"S":"secret\q"}}`, "malformed string"},
		{"{\"a\":{\"S\":\"sec\nret\"}}", "control character"},
		{`{"a":` + deep + `}`, "nested too deep"},
		{`{"a":{"SS":[]}}`, "an empty set at byte 13"},
		{`{"a":{"NS":[ ]}}`, "an empty set"},
		{`{"a":{"M":{"b":{"BS":[]}}}}`, "an empty set"},
	}
	for _, test := range tests {
		_, err := ParseItem([]byte(test.text))
		if !errors.Is(err, ErrJSON) || !strings.Contains(err.Error(), test.cause) {
			t.Errorf("%.60s: error %v, want %q", test.text, err, test.cause)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error shows the data: %v", test.text, err)
		}
	}
}

func TestParseItemEveryType(t *testing.T) {
	const text = ` { "b" : {"B":"AQI="}, "bool":{"BOOL":true},"bs":{"BS":["AQ==","Ag=="]},"e":{"S":""},"l":{"L":[{"N":"1"},{"L":[]}]},` +
		`"m":{"M":{"x":{"S":"y"},"z":{"M":{}}}},"n":{"N":"12345678901234567890123456789012345678"},"ns":{"NS":["1","2"]},"null":{"NULL":true},` +
		`"s":{"S":"a\"\u00e9\ud83d\ude00 ü"},"ss":{"SS":["a","b"]}} `
	const want = `{"b":{"B":"AQI="},"bool":{"BOOL":true},"bs":{"BS":["AQ==","Ag=="]},"e":{"S":""},"l":{"L":[{"N":"1"},{"L":[]}]},` +
		`"m":{"M":{"x":{"S":"y"},"z":{"M":{}}}},"n":{"N":"12345678901234567890123456789012345678"},"ns":{"NS":["1","2"]},"null":{"NULL":true},` +
		`"s":{"S":"a\"é😀 ü"},"ss":{"SS":["a","b"]}}`
	item, err := ParseItem([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	got, err := FormatItem(item)
	if err != nil || string(got) != want {
		t.Errorf("read and written again: %s (%v)\nwant %s", got, err, want)
	}
}

// What is read is what the SDK reads, and reads back from what is written.
func FuzzParseItem(f *testing.F) {
	for _, image := range images(f)[:200] {
		f.Add([]byte(image))
	}
	f.Add([]byte(`{"a":{"SS":["\ud800"]},"b":{"M":{}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		item, err := ParseItem(text)
		if err != nil {
			fuzzRefused(t, text, err)
			return
		}
		reference, err := attributevalue.UnmarshalMapJSON(text)
		if err != nil {
			t.Fatalf("the SDK refuses what was read: %v", err)
		}
		written, err := FormatItem(item)
		if err != nil {
			t.Fatal(err)
		}
		want, err := FormatItem(reference)
		if err != nil || string(written) != string(want) {
			t.Fatalf("read as %s, the SDK as %s (%v)", written, want, err)
		}
		again, err := ParseItem(written)
		if err != nil || !reflect.DeepEqual(plainMap(again), plainMap(item)) {
			t.Fatalf("written as %s, read back as %v (%v)", written, again, err)
		}
	})
}

// fuzzRefused holds a refusal to what is not an item, or one that the SDK reads only because it looks less closely: it
// lets a value be null, have no type or several, or nest without end, takes a set or a list of null for an empty one, and
// lets a set be empty.
func fuzzRefused(t *testing.T, text []byte, err error) {
	t.Helper()
	if !errors.Is(err, ErrJSON) || len(err.Error()) > 100 {
		t.Fatalf("refused by %v", err)
	}
	var at int
	if _, found, _ := strings.Cut(err.Error(), " at byte "); found != "" {
		at, _ = strconv.Atoi(found)
	}
	if at > len(text) {
		t.Fatalf("of %d bytes: %v", len(text), err)
	}
	var values map[string]json.RawMessage
	if json.Unmarshal(text, &values) == nil && values != nil && wellFormed(text, values, 0) {
		t.Fatalf("refused by %v, though every value has one type", err)
	}
}

// wellFormed reports whether values are what DynamoDB can hold, told by encoding/json, and no name is there twice.
func wellFormed(text []byte, values map[string]json.RawMessage, depth int) bool {
	if members(text) != len(values) {
		return false
	}
	for _, raw := range values {
		if !wellFormedValue(raw, depth) {
			return false
		}
	}
	return true
}

func wellFormedValue(raw json.RawMessage, depth int) bool {
	var value map[string]json.RawMessage
	if depth > maxNesting || json.Unmarshal(raw, &value) != nil || len(value) != 1 || members(raw) != 1 {
		return false
	}
	for kind, content := range value {
		if bytes.Contains(content, []byte("null")) {
			return false // perhaps in a string, which is good enough
		}
		var list []json.RawMessage
		var inner map[string]json.RawMessage
		switch kind {
		case "L":
			return json.Unmarshal(content, &list) == nil && !slices.ContainsFunc(list, func(raw json.RawMessage) bool { return !wellFormedValue(raw, depth+1) })
		case "M":
			return json.Unmarshal(content, &inner) == nil && wellFormed(content, inner, depth+1)
		case "SS", "NS", "BS":
			return json.Unmarshal(content, plainContents[kind]) == nil && json.Unmarshal(content, &list) == nil && len(list) > 0
		}
		return json.Unmarshal(content, plainContents[kind]) == nil
	}
	return false
}

// plainContents are what the types without further values in them hold; Unmarshal fails for what is none of them.
var plainContents = map[string]any{
	"S": new(string), "N": new(string), "B": new([]byte), "BOOL": new(bool), "NULL": new(bool),
	"SS": new([]string), "NS": new([]string), "BS": new([][]byte),
}

// members counts the members of an object, those of one name too, of which encoding/json makes one.
func members(object []byte) (n int) {
	decoder := json.NewDecoder(bytes.NewReader(object))
	_, _ = decoder.Token()
	for ; decoder.More(); n++ {
		var skipped json.RawMessage
		_, _ = decoder.Token()
		_ = decoder.Decode(&skipped)
	}
	return n
}

// The ratio of the two is what the parser is for.
func BenchmarkParseItem(b *testing.B) {
	image := slices.MaxFunc(images(b), func(a, b json.RawMessage) int { return len(a) - len(b) })
	b.Run("ours", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := ParseItem(image); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("sdk", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := attributevalue.UnmarshalMapJSON(image); err != nil {
				b.Fatal(err)
			}
		}
	})
}
