package infra_test

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/infra"
)

// matches is Lambda's rule for a filter: each field that the pattern names must
// be there, and equal one of the values listed for it. It is as much of the
// rule as our pattern needs; anything else in a pattern is an error.
func matches(pattern, record any) (bool, error) {
	switch pattern := pattern.(type) {
	case map[string]any:
		object, ok := record.(map[string]any)
		for name, inner := range pattern {
			if !ok {
				return false, nil
			}
			if matched, err := matches(inner, object[name]); !matched || err != nil {
				return false, err
			}
		}
		return true, nil
	case []any:
		for _, value := range pattern {
			if _, isText := value.(string); !isText {
				return false, fmt.Errorf("a rule that this test does not know: %v", value)
			}
		}
		return slices.Contains(pattern, record), nil
	}
	return false, fmt.Errorf("a pattern that Lambda does not know: %v", pattern)
}

func filtered(t *testing.T, record string) bool {
	t.Helper()
	var pattern, event any
	for text, into := range map[string]*any{infra.FilterPattern(): &pattern, record: &event} {
		if err := json.Unmarshal([]byte(text), into); err != nil {
			t.Fatal(err)
		}
	}
	matched, err := matches(pattern, event)
	if err != nil {
		t.Fatal(err)
	}
	return matched
}

// Of all recorded stream records those pass the filter that the aggregator
// makes a change of, and no other: nothing that counts is kept out, and nothing
// that does not is paid for.
func TestFilterOverRecordings(t *testing.T) {
	files, err := filepath.Glob("../testdata/*.jsonl.gz")
	if err != nil || len(files) < 9 {
		t.Fatalf("%d recordings, %v", len(files), err)
	}
	passed, kept := map[string]int{}, map[string]int{}
	for _, file := range files {
		for line := range strings.Lines(gunzip(t, file)) {
			kind, wanted := classify(t, line)
			passes := filtered(t, line)
			if passes != wanted {
				t.Fatalf("%s: passes: %v: %.200s", file, passes, line)
			}
			if passes {
				passed[kind]++
			} else {
				kept[kind]++
			}
		}
	}
	t.Logf("passed %v, kept out %v", passed, kept)
	if len(passed) != 2 || passed["INSERT STATE"] < 40 || passed["MODIFY STATE"] < 9000 {
		t.Errorf("passed: %v", passed)
	}
	for _, kind := range []string{"REMOVE STATE", "INSERT OP", "INSERT USAGE", "INSERT META", "MODIFY CONFIG", "INSERT AUDIT", "MODIFY VERSION"} {
		if kept[kind] == 0 {
			t.Errorf("no recording has %s: %v", kind, kept)
		}
	}
}

func gunzip(t *testing.T, file string) string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(unzipped)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// classify returns what a stream record is of, "MODIFY STATE", and whether the
// aggregator makes a change of it.
func classify(t *testing.T, line string) (kind string, change bool) {
	t.Helper()
	records, err := events.DecodeEvent([]byte(`{"Records":[` + line + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := events.Decode(records[0])
	if err != nil {
		t.Fatal(err)
	}
	var keys struct{ SK struct{ S string } }
	if err := json.Unmarshal(records[0].Keys, &keys); err != nil {
		t.Fatal(err)
	}
	item, _, _ := strings.Cut(strings.TrimPrefix(keys.SK.S, "#"), "#")
	return records[0].EventName + " " + item, decoded != nil
}

// Records as they are written down here must not pass.
func TestFilterRefuses(t *testing.T) {
	record := func(name, pk, sk string) string {
		return fmt.Sprintf(`{"eventName":%q,"eventSource":"aws:dynamodb","dynamodb":{"Keys":{"PK":{"S":%q},"SK":{"S":%q}}}}`, name, pk, sk)
	}
	bucket := "ns/BUCKET#a#r#0"
	for _, name := range []string{"INSERT", "MODIFY"} {
		if !filtered(t, record(name, bucket, "#STATE")) {
			t.Errorf("%s of a bucket does not pass", name)
		}
	}
	for what, text := range map[string]string{
		"removal of a bucket":         record("REMOVE", bucket, "#STATE"),
		"operation beside a bucket":   record("MODIFY", bucket, "#OP#1"),
		"usage":                       record("MODIFY", "ns/ENTITY#a", "#USAGE#r#2026-11-30T10:00:00Z#hourly"),
		"entity":                      record("INSERT", "ns/ENTITY#a", "#META"),
		"configuration of an entity":  record("MODIFY", "ns/ENTITY#a", "#CONFIG#r"),
		"configuration of a resource": record("MODIFY", "ns/RESOURCE#r", "#CONFIG"),
		"system configuration":        record("MODIFY", "ns/SYSTEM#", "#CONFIG"),
		"namespace":                   record("INSERT", "_/SYSTEM#", "#NAMESPACE#default"),
		"version":                     record("MODIFY", "ns/SYSTEM#", "#VERSION"),
		"audit":                       record("INSERT", "ns/AUDIT#a", "#AUDIT#1"),
		"sort key that begins so":     record("MODIFY", bucket, "#STATE#"),
		"no keys":                     `{"eventName":"MODIFY","dynamodb":{}}`,
	} {
		if filtered(t, text) {
			t.Errorf("%s passes", what)
		}
	}
}
