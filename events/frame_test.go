package events

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// sameFrame compares a frame with what the library and the reader make of the
// same text.
func sameFrame(t *testing.T, text []byte) (framed bool) {
	t.Helper()
	end, deepest, ok := frame(text)
	if !ok {
		return false
	}
	s := inMemory(text)
	s.hold()
	if err := s.value(); err != nil || s.pos != end || s.deepest != deepest {
		t.Errorf("%q: it ends at %d, %d deep; the reader says %d, %d, %v", text, end, deepest, s.pos, s.deepest, err)
	}
	if !json.Valid(text[:end]) {
		t.Errorf("%q is framed and no JSON", text[:end])
	}
	return true
}

func FuzzFrame(f *testing.F) {
	for _, text := range framed {
		f.Add([]byte(text))
	}
	for _, text := range unframed {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) { sameFrame(t, text) })
}

var framed = []string{
	`{}`, `{"a":[]}`, `{"a":[1,-2.50,0,"x",true,false,null,{"b":{}}],"é":"é"}`, `{"a":1}, {`, `{"a":0.0}`, `{"a":[1e3,-1.7E+09,0e-1]}`, `{"":""}x`,
}

// unframed are no JSON, cut, or written as DynamoDB does not.
var unframed = []string{
	``, `[]`, `"a"`, `1`, `{`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `{,"a":1}`, `{"a" :1}`, `{"a":01}`, `{"a":-}`, `{"a":1.}`, `{"a":.5}`,
	`{"a":1e}`, `{"a":1e+}`, `{"a":1e+-3}`, `{"a":+1}`, `{"a":tru}`, `{"a":nul}`, `{"a":"\n"}`, "{\"a\":\"\n\"}", `{"a":[1 ]}`, `{"a":[1,]}`, `{"a":[,1]}`, `{"a":[1}}`, `{a:1}`, `{"a":"b`,
	"\x00", "{\x00}", "{\"a\":\x00}", strings.Repeat(`{"a":`, MaxDepth+1) + "1" + strings.Repeat("}", MaxDepth+1),
}

func TestFrame(t *testing.T) {
	for _, text := range framed {
		if !sameFrame(t, []byte(text)) {
			t.Errorf("%s is not framed", text)
		}
	}
	for _, text := range unframed {
		if sameFrame(t, []byte(text)) {
			t.Errorf("%s is framed", text)
		}
	}
}

// Every record of every recording takes the fast path.
func TestFrameOfRecordings(t *testing.T) {
	for _, name := range recordingNames(t) {
		for _, line := range recordedLines(t, name) {
			if !sameFrame(t, line) {
				t.Errorf("%s: left to the reference: %s", name, line)
			}
		}
	}
}

// recordingNames are the files of the recordings.
func recordingNames(t *testing.T) []string {
	t.Helper()
	names, err := filepath.Glob("../testdata/*.jsonl.gz")
	if err != nil || len(names) < 6 {
		t.Fatalf("found %d recordings (%v), want at least 6", len(names), err)
	}
	return names
}

// recordedLines are the records of a recording, each as its text.
func recordedLines(t *testing.T, name string) [][]byte {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(unzipped)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Split(bytes.TrimSpace(text), newline)
}
