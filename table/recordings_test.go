package table

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// Every image of a bucket in every recording is scanned, and as the reference
// reads it, by one decoder for all of a recording.
func TestImagesOfRecordings(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds, which -short leaves out")
	}
	names, err := filepath.Glob("../testdata/*.jsonl.gz")
	if err != nil || len(names) < 6 {
		t.Fatalf("found %d recordings (%v), want at least 6", len(names), err)
	}
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			d, images := NewImages(), recordedImages(t, name)
			for _, text := range images {
				if fast := sameImage(t, d, text); !fast {
					t.Errorf("left to the reference: %s", text)
				}
			}
			if len(images) == 0 {
				t.Error("no images")
			}
		})
	}
}

// recordedImages are the images of a recording's buckets, old and new.
func recordedImages(t *testing.T, name string) (images [][]byte) {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	scanner := bufio.NewScanner(lines)
	for scanner.Buffer(nil, 1<<20); scanner.Scan(); {
		var record struct {
			Change struct{ Keys, OldImage, NewImage json.RawMessage } `json:"dynamodb"`
		}
		if err := json.Unmarshal(scanner.Bytes(), &record); err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(record.Change.Keys, []byte(`"`+StateSK+`"`)) {
			continue
		}
		for _, text := range []json.RawMessage{record.Change.OldImage, record.Change.NewImage} {
			if text != nil {
				images = append(images, text)
			}
		}
	}
	if err := scanner.Err(); err != nil {
		t.Fatal(err)
	}
	return images
}
