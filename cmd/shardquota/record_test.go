package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/shardquota/shardquota/events/delivery"
	"github.com/shardquota/shardquota/internal/dynoxide"
)

// sequencesOf are the sequence numbers of a recording, in its order.
func sequencesOf(t *testing.T, name string) []string {
	t.Helper()
	var all []string
	for line := range bytes.Lines(readAll(t, name)) {
		var record struct {
			EventSourceARN string
			Dynamodb       struct{ SequenceNumber string }
		}
		if err := json.Unmarshal(line, &record); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !strings.Contains(record.EventSourceARN, "/stream/") {
			t.Fatalf("%s: a record names no stream", name)
		}
		all = append(all, record.Dynamodb.SequenceNumber)
	}
	return all
}

// upTo are the sequence numbers that dynoxide gives to the first n writes.
func upTo(n int) []string {
	var all []string
	for i := range n {
		all = append(all, strconv.Itoa(i+1))
	}
	return all
}

// What is recorded replays to what clients spent, as text, gzipped and without
// what is no bucket; and again, from where it ended.
func TestRecordReplays(t *testing.T) {
	c := newClients(t)
	dir := t.TempDir()
	for _, test := range []struct {
		name string
		recordFlags
	}{
		{"plain.jsonl", recordFlags{}}, {"packed.jsonl.gz", recordFlags{}}, {"buckets.jsonl", recordFlags{buckets: true}},
	} {
		c.use(1, 20)
		c.use(2, 30)
		f := test.recordFlags
		f.output, f.current = filepath.Join(dir, test.name), true
		for range 2 {
			if said, err := c.record(f); err != nil {
				t.Fatalf("%v: %s", err, said)
			}
			c.use(1, 5)
		}
		said, err := c.record(f)
		if err != nil || !strings.Contains(said, "recorded 5 records of 1 shard to "+f.output+", which has "+strconv.Itoa(c.wrote)) {
			t.Errorf("the third time: %v: %s", err, said)
		}
		if got, want := sequencesOf(t, f.output), upTo(c.wrote); !slices.Equal(got, want) {
			t.Errorf("recorded %v", got)
		}
		counted := map[string]string{}
		for _, usage := range replayUsage(t, f.output) {
			counted[usage.Entity] = usage.Counters["rpm"]
		}
		for _, nth := range []int{1, 2} {
			if got, want := counted[groupOf(nth).Entity], strconv.FormatInt(c.account(nth), 10); got != want {
				t.Errorf("%s: a replay counts %s of entity %d, want %s", test.name, got, nth, want)
			}
		}
	}
}

// usageRow is what a report says of usage.
type usageRow struct {
	Entity   string
	Counters map[string]string
}

func replayUsage(t *testing.T, name string) []usageRow {
	t.Helper()
	var report struct{ Usage []usageRow }
	if err := json.Unmarshal(runReplay(t, "--ids", "--windows", "monthly", "--format", "json", name), &report); err != nil {
		t.Fatal(err)
	}
	return report.Usage
}

// Killed in the midst of it and started again, with what a crash may leave at
// the end of the file: nothing is lost and nothing comes twice.
func TestRecordKilled(t *testing.T) {
	for _, name := range []string{"killed.jsonl", "killed.jsonl.gz"} {
		t.Run(name, func(t *testing.T) {
			c := newClients(t)
			file := filepath.Join(t.TempDir(), name)
			recordedSoFar := func() int64 {
				at, err := loadJSON[recorded](positionOf(file))
				if err != nil {
					t.Fatal(err)
				}
				if at == nil {
					return 0
				}
				return at.Records
			}
			for range 2 {
				c.use(1, 40)
				before := recordedSoFar()
				p := startTool(t, "record", "--table", c.table, "-o", file)
				await(t, "the recording grows", func() bool { return recordedSoFar() > before })
				c.use(2, 40)
				p.kill()
				tear(t, file)
			}
			before := recordedSoFar()
			p := startTool(t, "record", "--table", c.table, "-o", file)
			await(t, "the rest is read", func() bool { return recordedSoFar() > before })
			c.use(3, 10)
			if !isGzip(file) {
				await(t, "the last are read", func() bool { return recordedSoFar() == int64(c.wrote) })
			}
			said := p.interrupt()
			if !strings.Contains(said, "records of 1 shard to "+file+", which has "+strconv.FormatInt(recordedSoFar(), 10)) {
				t.Errorf("said %s", said)
			}
			if _, err := c.record(recordFlags{output: file, current: true}); err != nil {
				t.Fatal(err)
			}
			if got, want := sequencesOf(t, file), upTo(c.wrote); !slices.Equal(got, want) {
				t.Errorf("recorded %v, want 1 to %d", got, c.wrote)
			}
		})
	}
}

// tear leaves half a line at the end of a file, or half a gzip member.
func tear(t *testing.T, name string) {
	t.Helper()
	file, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	half := []byte(`{"eventID":"99","eventName":"MOD`)
	if isGzip(name) {
		half = []byte{0x1f, 0x8b, 8, 0, 0, 0}
	}
	if _, err := file.Write(half); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}

// From now on, and nothing before; to standard output; for a time only.
func TestRecordFromNow(t *testing.T) {
	c := newClients(t)
	c.use(1, 10)
	file := filepath.Join(t.TempDir(), "now.jsonl")
	if said, err := c.record(recordFlags{output: file, current: true, from: fromNow}); err != nil || !strings.Contains(said, "recorded 0 records of 1 shard") {
		t.Fatalf("%v: %s", err, said)
	}
	c.use(1, 3)
	if _, err := c.record(recordFlags{output: file, current: true}); err != nil {
		t.Fatal(err)
	}
	got := sequencesOf(t, file)
	if n := len(got); n < 3 || !slices.Equal(got[n-3:], upTo(c.wrote)[c.wrote-3:]) {
		t.Errorf("recorded %v, want at least the last 3 of %d", got, c.wrote)
	}
	out, err := c.record(recordFlags{output: "-", length: 1_000_000_000})
	if err != nil || strings.Count(out, `{"eventID"`) != c.wrote {
		t.Errorf("to standard output: %v, %d lines, want %d", err, strings.Count(out, `{"eventID"`), c.wrote)
	}
}

// A shard that left the stream unread is said, and the exit status tells it.
func TestRecordLost(t *testing.T) {
	c := newClients(t)
	c.use(1, 10)
	file := filepath.Join(t.TempDir(), "lost.jsonl")
	f := recordFlags{output: file, current: true}
	if _, err := c.record(f); err != nil {
		t.Fatal(err)
	}
	at, err := loadJSON[recorded](positionOf(file))
	if err != nil {
		t.Fatal(err)
	}
	at.Shards["shardId-gone"] = delivery.Checkpoint{After: "7"}
	if err := saveJSON(positionOf(file), at); err != nil {
		t.Fatal(err)
	}
	said, err := c.record(f)
	if !errors.Is(err, errLost) || !strings.Contains(said, "shardId-gone is no longer on the stream and was not read to its end: records are lost") {
		t.Errorf("%v: %s", err, said)
	}
	if got, want := sequencesOf(t, file), upTo(c.wrote); !slices.Equal(got, want) {
		t.Errorf("recorded %v", got)
	}
}

// What cannot be gone on with is refused, with its cause, and stays as it is.
func TestRecordRefusals(t *testing.T) {
	c := newClients(t)
	c.use(1, 2)
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	good := recordFlags{output: file("good.jsonl"), current: true}
	if _, err := c.record(good); err != nil {
		t.Fatal(err)
	}
	alter := func(name string, change func(*recorded)) {
		at, err := loadJSON[recorded](positionOf(good.output))
		if err != nil {
			t.Fatal(err)
		}
		change(at)
		text := readAll(t, good.output)
		if err := errors.Join(os.WriteFile(file(name), text, 0o600), saveJSON(positionOf(file(name)), at)); err != nil {
			t.Fatal(err)
		}
	}
	alter("short.jsonl", func(at *recorded) { at.Bytes++ })
	alter("buckets.jsonl", func(at *recorded) { at.Buckets = true })
	alter("redacted.jsonl", func(at *recorded) { at.Redact = newRedacted("one key") })
	alter("other.jsonl", func(at *recorded) { at.Table = "other" })
	alter("elsewhere.jsonl", func(at *recorded) { at.Stream = "arn:aws:dynamodb:a:1:table/x/stream/y" })
	if err := os.WriteFile(file("bare.jsonl"), []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(positionOf(file("broken.jsonl")), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SHARDQUOTA_HASH_KEY", "another key")
	base := []string{"record", "--until-caught-up", "--endpoint-url", dynoxide.Start(t)}
	for _, test := range []struct {
		table, file string
		flags       []string
		want        string
	}{
		{c.table, "short.jsonl", nil, "what is missing cannot be read again"},
		{c.table, "buckets.jsonl", nil, "--buckets: "},
		{c.table, "redacted.jsonl", nil, "--redact: "},
		{c.table, "redacted.jsonl", []string{"--redact"}, "begun under another SHARDQUOTA_HASH_KEY"},
		{c.table, "other.jsonl", nil, "--table: "},
		{c.table, "elsewhere.jsonl", nil, "the position is of another table"},
		{c.table, "bare.jsonl", nil, "nothing tells where it ends"},
		{c.table, "broken.jsonl", nil, "broken.jsonl.position: unexpected end"},
		{dynoxide.Name(), "new.jsonl", nil, "ResourceNotFoundException"},
		{c.table, "new.jsonl", []string{"--from", "noon"}, "--from: "},
		{c.table, "", nil, "name a file"},
		{"", "new.jsonl", nil, "name a --table"},
		{c.table, "nowhere/new.jsonl", nil, "cannot be written"},
		{c.table, "new.jsonl", []string{"--for", "-1s"}, "--for: "},
	} {
		args := append(slices.Clone(base), test.flags...)
		if test.file != "" {
			args = append(args, "-o", file(test.file))
		}
		if test.table != "" {
			args = append(args, "--table", test.table)
		}
		if code, said := command(t, args...); code != exitUsage || !strings.Contains(said, test.want) {
			t.Errorf("%s %v: exit %d, %s; want %q", test.file, test.flags, code, said, test.want)
		}
	}
	if _, err := os.Stat(file("new.jsonl")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a refused recording left a file: %v", err)
	}
}
