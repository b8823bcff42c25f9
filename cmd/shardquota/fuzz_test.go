package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/shardquota/shardquota/table"
)

// A small recording and a table to put under it, as seeds.
const (
	seedBucket = `{"PK":{"S":"n/BUCKET#sk-live-4242#gpt-4#0"},"SK":{"S":"#STATE"},"rf":{"N":"1796032800000"},"shard_count":{"N":"2"},` +
		`"b_rpm_tk":{"N":"99000"},"b_rpm_tc":{"N":"1000"},"b_rpm_cp":{"N":"100000"},"b_rpm_ra":{"N":"100000"},"b_rpm_rp":{"N":"60000"},` +
		`"b_q_tk":{"N":"5000"},"b_q_tc":{"N":"0"},"b_q_cp":{"N":"10000"},"b_q_ra":{"N":"0"},"b_q_rp":{"N":"1000"},"b_q_gc":{"N":"2"},"b_q_rsched":{"S":"1m0h0"}}`
	seedRecord = `{"eventName":"MODIFY","dynamodb":{"ApproximateCreationDateTime":1796032800,"SequenceNumber":"12",` +
		`"Keys":{"PK":{"S":"n/BUCKET#sk-live-4242#gpt-4#0"},"SK":{"S":"#STATE"}},"OldImage":` + seedBucket + `,"NewImage":` + seedBucket + `}}`
	seedUsage = `{"PK":{"S":"n/ENTITY#sk-live-4242"},"SK":{"S":"#USAGE#gpt-4#2026-11-30T10:00:00Z#hourly"},"entity_id":{"S":"sk-live-4242"},` +
		`"resource":{"S":"gpt-4"},"window":{"S":"hourly"},"window_start":{"S":"2026-11-30T10:00:00Z"},"rpm":{"N":"1"},"total_events":{"N":"1"},` +
		`"mark#0":{"S":"/0000000000000000000000000000000000000011 abc"},"runs#0":{"S":"/0000000000000000000000000000000000000011 def"}}`
)

// FuzzReplayCommand runs the whole command over a recording and items to put first, both of any content: it ends with one
// of the exit codes and what belongs to it, and what it dumped can be put first again.
func FuzzReplayCommand(f *testing.F) {
	dir := f.TempDir()
	preload, dump := filepath.Join(dir, "preload.jsonl"), filepath.Join(dir, "dump.jsonl")
	f.Add([]byte(seedBucket+"\n"+seedUsage), []byte(seedRecord))
	f.Add([]byte(nil), []byte(strings.ReplaceAll(seedRecord, `"99000"`, `"97000"`)+"\n"+seedRecord))
	f.Add([]byte("\n\n"), []byte(`{"Records":[]}`))
	f.Fuzz(func(t *testing.T, items, recording []byte) {
		_ = os.Remove(dump)
		if err := os.WriteFile(preload, items, 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		var stdout, stderr bytes.Buffer
		args := []string{"replay", "--preload", preload, "--dump", dump, "--format", "json", "-"}
		code := run(ctx, args, bytes.NewReader(recording), &stdout, &stderr)
		if ctx.Err() != nil {
			t.Fatal("the replay does not end")
		}
		fuzzExit(t, code, stdout.Bytes(), stderr.String())
		fuzzDump(t, code, dump)
	})
}

func fuzzExit(t *testing.T, code int, stdout []byte, stderr string) {
	t.Helper()
	if (code == exitFine) != (stderr == "") || stderr != "" && !strings.HasPrefix(stderr, "shardquota: ") || len(stderr) > 2000 {
		t.Fatalf("exit %d says %q", code, stderr)
	}
	var report struct {
		Rejected []json.RawMessage
		Ledger   []struct{ Conserved bool }
	}
	switch code {
	case exitUsage:
		if len(stdout) > 0 {
			t.Fatalf("a failed replay printed %s", stdout)
		}
		return
	case exitFine, exitUnsound:
	default:
		t.Fatalf("exit %d", code)
	}
	if err := json.Unmarshal(stdout, &report); err != nil {
		t.Fatalf("%v of %s", err, stdout)
	}
	sound := len(report.Rejected) == 0
	for _, row := range report.Ledger {
		sound = sound && row.Conserved
	}
	if sound != (code == exitFine) {
		t.Fatalf("exit %d with %s", code, stdout)
	}
}

// fuzzDump checks that a dump is there where a report is, and only then, and that it can be loaded.
func fuzzDump(t *testing.T, code int, name string) {
	t.Helper()
	_, err := os.Stat(name)
	if (err == nil) != (code != exitUsage) {
		t.Fatalf("exit %d, dump %v", code, err)
	}
	if err != nil {
		return
	}
	if err := loadItems(name, func(table.Item) {}); err != nil {
		t.Fatalf("the dump cannot be put first: %v", err)
	}
}

// Bombs end with exit 2, and name file, position and cause; nothing is left that could be taken for a result.
func TestBombs(t *testing.T) {
	const mega = 1 << 20
	deep := strings.Repeat(`{"L":[`, 200_000) + strings.Repeat(`]}`, 200_000)
	for _, c := range []struct {
		name             string
		items, recording string
		want             string
	}{
		{"a record nested without end", "", "{}\n" + strings.Repeat("[", mega), "standard input:2, record 1, byte 10004: invalid character '[' exceeded max depth"},
		{"a recording of spaces", "", strings.Repeat(" ", mega), "standard input:1, byte 1048576: holds no records"},
		{"a record of 20 MB", "", `{"a":"` + strings.Repeat("x", 20*mega), "standard input:1, byte 16777217: a value is larger than 16777216 bytes"},
		{"an item of 9 MB", seedBucket + "\n" + `{"PK":{"S":"` + strings.Repeat("x", 9*mega), "[]", "preload.jsonl:2: bufio.Scanner: token too long"},
		{"an item of 5 MB", seedBucket + "\n" + `{"PK":{"S":"` + strings.Repeat("x", 5*mega) + `"}}`, "[]", "preload.jsonl:2: not an item in DynamoDB JSON: more than 4194304 bytes"},
		{"an item nested 200,000 levels", `{"a":` + deep + `}`, "[]", "preload.jsonl:1: not an item in DynamoDB JSON: values nested too deep at byte 203"},
		{"a key of 1 MB", strings.Replace(seedBucket, "gpt-4", strings.Repeat("g", mega), 1), "[]", "preload.jsonl:1: malformed key: longer than 2048 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			preload, dump := filepath.Join(dir, "preload.jsonl"), filepath.Join(dir, "dump.jsonl")
			if err := os.WriteFile(preload, []byte(c.items), 0o600); err != nil {
				t.Fatal(err)
			}
			var stdout, stderr bytes.Buffer
			code := run(t.Context(), []string{"replay", "--preload", preload, "--dump", dump, "-"}, strings.NewReader(c.recording), &stdout, &stderr)
			if code != exitUsage || stdout.Len() > 0 || !strings.HasSuffix(strings.TrimSpace(stderr.String()), c.want) {
				t.Errorf("exit %d, printed %q, said %.300s; want %s", code, stdout.String(), stderr.String(), c.want)
			}
			if _, err := os.Stat(dump); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("a dump was left: %v", err)
			}
		})
	}
}
