package events

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/shardquota/shardquota/table"
)

// One decoder for a whole recording, which takes an old image for the new one of
// the record before where their texts are the same, reads each record as the
// reference reads its images alone.
func TestRecordingsAreAsTheReferenceReadsThem(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds, which -short leaves out")
	}
	for _, name := range recordingNames(t) {
		t.Run(filepath.Base(name), func(t *testing.T) {
			file, err := os.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			decoder, changes, reused := NewDecoder(), 0, 0
			newest := map[*table.Image]bool{}
			for reader := NewReader(file, name); ; {
				record, err := reader.Next()
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				change, err := decoder.Decode(record)
				if err != nil {
					t.Fatalf("%v: %v", record.Position, err)
				}
				if change == nil {
					continue
				}
				sameAsReference(t, record, change.New, record.New)
				sameAsReference(t, record, change.Old, record.Old)
				if changes++; newest[change.Old] {
					reused++
				}
				newest[change.New] = true
			}
			if t.Logf("%d writes of buckets, %d of them on the image before", changes, reused); reused == 0 {
				t.Error("no image was used again")
			}
		})
	}
}

func sameAsReference(t *testing.T, record Record, image *table.Image, text json.RawMessage) {
	t.Helper()
	if image == nil && text == nil {
		return
	}
	item, err := table.ParseItem(text)
	if err != nil {
		t.Fatalf("%v: %v", record.Position, err)
	}
	want, err := table.DecodeBucket(item)
	if err != nil {
		t.Fatalf("%v: %v", record.Position, err)
	}
	if image.Key != want.Key || !reflect.DeepEqual(image.Bucket, want.Bucket) {
		t.Errorf("%v:\n got %+v\nwant %+v", record.Position, image.Bucket, want.Bucket)
	}
}
