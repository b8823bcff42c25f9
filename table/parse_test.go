package table

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
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
		`"m":{"M":{"x":{"S":"y"}}},"n":{"N":"12345678901234567890123456789012345678"},"ns":{"NS":["1","2"]},"null":{"NULL":true},` +
		`"s":{"S":"a\"\u00e9\ud83d\ude00 ü"},"ss":{"SS":["a","b"]}} `
	const want = `{"b":{"B":"AQI="},"bool":{"BOOL":true},"bs":{"BS":["AQ==","Ag=="]},"e":{"S":""},"l":{"L":[{"N":"1"},{"L":[]}]},` +
		`"m":{"M":{"x":{"S":"y"}}},"n":{"N":"12345678901234567890123456789012345678"},"ns":{"NS":["1","2"]},"null":{"NULL":true},` +
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
