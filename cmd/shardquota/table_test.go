package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/shardquota/shardquota/internal/dynoxide"
	"github.com/shardquota/shardquota/table"
)

const (
	recordedSession = "../../testdata/session.jsonl.gz"
	sessionsEnd     = "2026-11-30T10:58:59Z" // its last record; the last window is live
)

// report is the part of a JSON report that these tests look at.
type report struct {
	Records    int
	Duplicates int
	Usage      []struct {
		Window, Start string
		Counters      map[string]string
		Events        int
	}
	Ledger []struct{ Held, Granted int64 }
}

// A recording is driven again against a real table whose clients have written
// already but whose usage was never counted: the usage comes out as in memory,
// the buckets stay as they are, and a second run changes nothing.
func TestRedriveTable(t *testing.T) {
	client, name := recordedTable(t)
	before := scan(t, client, name)
	want := replayJSON(t, "--now", sessionsEnd, recordedSession)

	planned := redrive(t, name, "--dry-run")
	if after := scan(t, client, name); !slices.Equal(after, before) {
		t.Error("a dry run changed the table")
	}
	first := redrive(t, name)
	after := scan(t, client, name)
	second := redrive(t, name)

	if first.Records != 455 || len(first.Usage) != 2 || first.Usage[1].Counters["sess"] != "1362" || first.Usage[1].Events != 441 {
		t.Errorf("first run: %+v; want 455 records and 1362 of sess in 441 writes", first)
	}
	if got, want := planned.Usage, first.Usage; len(got) != len(want) || got[1].Counters["sess"] != want[1].Counters["sess"] {
		t.Errorf("the dry run planned %+v, the run did %+v", got, want)
	}
	if first.Ledger[0] != want.Ledger[0] || first.Ledger[0].Held != 3_635_000 {
		t.Errorf("ledger %+v, want that of the replay in memory, %+v, with 3635 held", first.Ledger, want.Ledger)
	}
	if second.Duplicates != 441 || len(second.Usage) != 0 {
		t.Errorf("second run counted %+v and dropped %d duplicates, want nothing and 441", second.Usage, second.Duplicates)
	}
	if again := scan(t, client, name); !slices.Equal(again, after) {
		t.Error("a second run changed the table")
	}
	if grown := len(after) - len(before); grown != 2 {
		t.Errorf("the run added %d items, want 2 of usage", grown)
	}
}

// recordedTable is a table as the recording left it, without usage.
func recordedTable(t *testing.T) (*dynamodb.Client, string) {
	t.Helper()
	client := dynoxide.Client(t)
	name := dynoxide.NewTable(t, client)
	left := filepath.Join(t.TempDir(), "left.jsonl")
	runReplay(t, "--dry-run", "--dump", left, recordedSession)
	err := loadItems(left, func(item table.Item) {
		if _, err := client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &name, Item: item}); err != nil {
			t.Fatal(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return client, name
}

// A batch that Lambda gave up on, part of which was counted before, is driven
// again after later ones: usage is complete, and a second time adds nothing.
// Files may be given in any order.
func TestRedriveDiscardedBatch(t *testing.T) {
	records := recordedLines(t)
	early, discarded, late := lambdaEvent(t, records[:150]), failureObject(t, records[150:300]), lambdaEvent(t, records[300:])
	counted := lambdaEvent(t, records[180:200])

	client, name := recordedTable(t)
	redriveFiles(t, name, recordedSession)
	want := usageItems(scan(t, client, name))

	client, name = recordedTable(t)
	redriveFiles(t, name, early)
	redriveFiles(t, name, counted)
	without := redriveFiles(t, name, late)
	first := redriveFiles(t, name, discarded)
	after := scan(t, client, name)
	second := redriveFiles(t, name, discarded)
	if without.Duplicates != 0 || first.Duplicates != 20 || first.Usage[1].Events != 129 || first.Usage[1].Counters["sess"] != "411" {
		t.Errorf("driven again: %+v; want 129 writes and 411 of sess, and 20 that were counted", first)
	}
	if got := usageItems(after); !slices.Equal(got, want) {
		t.Errorf("usage is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if second.Duplicates != 149 || len(second.Usage) != 0 || !slices.Equal(scan(t, client, name), after) {
		t.Errorf("driven again twice: %+v, or the table changed", second)
	}

	client, name = recordedTable(t)
	redriveFiles(t, name, late, discarded, early)
	if got := usageItems(scan(t, client, name)); !slices.Equal(got, want) {
		t.Errorf("the last file first: usage is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// What was lost from the on-failure bucket is read off the stream itself, whose
// records do not say which stream they are of.
func TestRedriveGetRecords(t *testing.T) {
	records := recordedLines(t)
	client, name := recordedTable(t)
	redriveFiles(t, name, recordedSession)
	want := usageItems(scan(t, client, name))

	var stream struct{ EventSourceARN string }
	nameless := make([]map[string]any, len(records))
	for i, record := range records {
		if err := errors.Join(json.Unmarshal(record, &stream), json.Unmarshal(record, &nameless[i])); err != nil {
			t.Fatal(err)
		}
		delete(nameless[i], "eventSourceARN")
	}
	client, name = recordedTable(t)
	early := redriveFiles(t, name, lambdaEvent(t, records[:150]))
	rest := redriveFiles(t, name, "--stream-arn", stream.EventSourceARN, writeJSON(t, map[string]any{"Records": nameless, "NextShardIterator": "any"}))
	if n := early.Usage[1].Events; n != rest.Duplicates || n+rest.Usage[1].Events != 441 {
		t.Errorf("%d writes counted, then %d and %d that were; want 441 once", n, rest.Usage[1].Events, rest.Duplicates)
	}
	if got := usageItems(scan(t, client, name)); !slices.Equal(got, want) {
		t.Errorf("usage is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// recordedLines are the records of a recording as JSON.
func recordedLines(t *testing.T) []json.RawMessage {
	t.Helper()
	file, err := os.Open(recordedSession)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	var records []json.RawMessage
	for decoder := json.NewDecoder(unzipped); ; {
		var record json.RawMessage
		if err := decoder.Decode(&record); err == io.EOF {
			return records
		} else if err != nil {
			t.Fatal(err)
		}
		records = append(records, record)
	}
}

// lambdaEvent is a file with records as Lambda hands them over.
func lambdaEvent(t *testing.T, records []json.RawMessage) string {
	return writeJSON(t, map[string]any{"Records": records})
}

// failureObject is a file with records as Lambda's on-failure destination
// stores them.
func failureObject(t *testing.T, records []json.RawMessage) string {
	return writeJSON(t, map[string]any{
		"requestContext":     map[string]any{"condition": "RetryAttemptsExhausted", "approximateInvokeCount": 4},
		"DDBStreamBatchInfo": map[string]any{"batchSize": len(records)},
		"payload":            map[string]any{"Records": records},
	})
}

func writeJSON(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "records.json")
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// usageItems are the lines of a scan that are usage.
func usageItems(lines []string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return !strings.Contains(line, table.UsageSK) })
}

func redrive(t *testing.T, name string, flags ...string) report {
	t.Helper()
	return redriveFiles(t, name, append(flags, recordedSession)...)
}

func redriveFiles(t *testing.T, name string, args ...string) report {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", "any")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "any")
	t.Setenv("AWS_REGION", dynoxide.Region)
	return replayJSON(t, append([]string{"--table", name, "--endpoint-url", dynoxide.Start(t), "--now", sessionsEnd}, args...)...)
}

func replayJSON(t *testing.T, args ...string) report {
	t.Helper()
	var r report
	if err := json.Unmarshal(runReplay(t, append(args, "--format", "json")...), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func runReplay(t *testing.T, args ...string) []byte {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(context.Background(), append([]string{"replay"}, args...), strings.NewReader(""), &stdout, &stderr)
	if code != exitFine {
		t.Fatalf("replay %v: exit %d: %s", args, code, stderr.String())
	}
	return stdout.Bytes()
}

// scan returns the whole table, an item a line, sorted.
func scan(t *testing.T, client *dynamodb.Client, name string) []string {
	t.Helper()
	var lines []string
	pages := dynamodb.NewScanPaginator(client, &dynamodb.ScanInput{TableName: &name})
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range page.Items {
			line, err := table.FormatItem(item)
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, string(line))
		}
	}
	slices.Sort(lines)
	return lines
}

// A table that cannot be reached ends the command with 2, and a record that
// names no stream is refused before it could be counted twice.
func TestRedriveRefusals(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "any")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "any")
	t.Setenv("AWS_REGION", dynoxide.Region)
	nameless := filepath.Join(t.TempDir(), "nameless.jsonl")
	record := `{"eventName":"REMOVE","dynamodb":{"ApproximateCreationDateTime":1796032800,"SequenceNumber":"1","Keys":{"PK":{"S":"a"},"SK":{"S":"b"}}}}`
	if err := os.WriteFile(nameless, []byte(record), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, file, want string }{
		{"no such table", recordedSession, "not applied"},
		{"no stream named", nameless, "names no stream"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			args := []string{"replay", "--table", dynoxide.Name(), "--endpoint-url", dynoxide.Start(t), test.file}
			code := run(context.Background(), args, strings.NewReader(""), &stdout, &stderr)
			if code != exitUsage || !strings.Contains(stderr.String(), test.want) || stdout.Len() > 0 {
				t.Errorf("exit %d, stderr %q, stdout %q; want %d and %q", code, stderr.String(), stdout.String(), exitUsage, test.want)
			}
		})
	}
}
