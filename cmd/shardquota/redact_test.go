package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/table"
)

// idsOf are the entity ids that an item names.
func idsOf(item table.Item) []string {
	var ids []string
	for _, name := range []string{table.AttrEntityID, "parent_id", "ent"} {
		if text, ok := item[name].(*types.AttributeValueMemberS); ok {
			ids = append(ids, text.Value)
		}
	}
	return ids
}

// piece is the beginning and the end of a recording: enough to see all that is
// in it, and not so much that the race detector takes long.
func piece(t *testing.T, name string) []events.Record {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var all []events.Record
	for reader := events.NewReader(file, name); ; {
		record, err := reader.Next()
		if err == io.EOF {
			return slices.Concat(all[:60], all[len(all)-60:])
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, record)
	}
}

// writeRecords writes a recording.
func writeRecords(t *testing.T, name string, records []events.Record) {
	t.Helper()
	var text []byte
	for _, record := range records {
		line, err := events.EncodeRecord(record)
		if err != nil {
			t.Fatal(err)
		}
		text = append(append(text, line...), '\n')
	}
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A redacted recording replays to the same report, to the last figure, under the
// names that the logs have for the entities; and none of the ids is in it.
func TestRedactedReplay(t *testing.T) {
	const key = "a key"
	t.Setenv("SHARDQUOTA_HASH_KEY", key)
	// What differs in kind: parents, two namespaces, an operator's items, sessions,
	// limits that come and go, shards that are created.
	for _, recording := range []string{"cascade", "mixed", "operator", "session", "limit-change", "quota-walk"} {
		t.Run(recording, func(t *testing.T) {
			t.Parallel()
			dir, r, ids := t.TempDir(), redactor{aggregator.NewPseudonyms(key)}, map[string]bool{}
			from, to := filepath.Join(dir, "as-it-was.jsonl"), filepath.Join(dir, "redacted.jsonl")
			records := piece(t, "../../testdata/"+recording+".jsonl.gz")
			writeRecords(t, from, records)
			for i, record := range records {
				for _, image := range []json.RawMessage{record.Old, record.New} {
					if item, err := table.ParseItem(image); err == nil {
						for _, id := range idsOf(item) {
							ids[id] = true
						}
					}
				}
				var err error
				if records[i], err = r.record(record); err != nil {
					t.Fatal(err)
				}
			}
			writeRecords(t, to, records)
			if delete(ids, "-"); len(ids) == 0 { // it stands for none
				t.Fatal("no ids are found in the recording")
			}
			text := readAll(t, to)
			for id := range ids {
				if at := bytes.Index(text, []byte(id)); at >= 0 {
					t.Errorf("%s is in it: …%s", id, text[max(0, at-80):at+40])
				}
			}
			want, got := sortedReport(t, from), sortedReport(t, to, "--ids")
			if got != want {
				t.Errorf("the report is\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// sortedReport is a replay's report with the rows of each part in an order that
// does not depend on ids.
func sortedReport(t *testing.T, recording string, flags ...string) string {
	t.Helper()
	args := append([]string{"--format", "json", "--windows", "hourly,monthly", "--batch-size", "300"}, flags...)
	var report map[string]json.RawMessage
	if err := json.Unmarshal(runReplay(t, append(args, recording)...), &report); err != nil {
		t.Fatal(err)
	}
	for part, raw := range report {
		var rows []any
		if json.Unmarshal(raw, &rows) != nil {
			continue
		}
		texts := make([]string, len(rows))
		for i, row := range rows {
			text, err := json.Marshal(row)
			if err != nil {
				t.Fatal(err)
			}
			texts[i] = string(text)
		}
		slices.Sort(texts)
		report[part] = json.RawMessage("[" + strings.Join(texts, ",") + "]")
	}
	text, err := json.MarshalIndent(report, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// What is hidden of each kind of text, and what stays. A hidden entity is the
// pseudonym of the logs, a valid name of an entity.
func TestRedactor(t *testing.T) {
	names := aggregator.NewPseudonyms("k")
	r := redactor{names}
	of := func(text string) string { return names.Of(table.Group{Namespace: "ns", Entity: text}) }
	if !regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.\-:@]*$`).MatchString(of("x")) {
		t.Errorf("%s is no name of an entity", of("x"))
	}
	for _, test := range []struct{ attribute, text, want string }{
		{"PK", "ns/BUCKET#sk-1#gpt-4/mini#12", "ns/BUCKET#" + of("sk-1") + "#gpt-4/mini#12"},
		{"PK", "ns/ENTITY#sk-1", "ns/ENTITY#" + of("sk-1")},
		{"PK", "ns/AUDIT#sk-1", "ns/AUDIT#" + of("sk-1")},
		{"PK", "ns/RESOURCE#gpt-4/mini", "ns/RESOURCE#gpt-4/mini"},
		{"PK", "_/SYSTEM#", "_/SYSTEM#"},
		{"PK", "ns/NEW#sk-1", of("ns/NEW#sk-1")},
		{"PK", "sk-1", of("sk-1")},
		{"SK", "#STATE", "#STATE"},
		{"SK", "#USAGE#gpt-4#2026-11-30T10:00:00Z#hourly", "#USAGE#gpt-4#2026-11-30T10:00:00Z#hourly"},
		{"SK", "#CONFIG#_default_", "#CONFIG#_default_"},
		{"SK", "#NAMESPACE#sk-1", "#NAMESPACE#" + of("sk-1")},
		{"SK", "#STATE#sk-1", of("#STATE#sk-1")},
		{"GSI1PK", "ns/PARENT#sk-2", "ns/PARENT#" + of("sk-2")},
		{"GSI1SK", "CHILD#sk-1", "CHILD#" + of("sk-1")},
		{"GSI2SK", "BUCKET#sk-1#0", "BUCKET#" + of("sk-1") + "#0"},
		{"GSI2SK", "USAGE#2026-11-30T10:00:00Z#sk-1", "USAGE#2026-11-30T10:00:00Z#" + of("sk-1")},
		{"GSI3SK", "BUCKET#gpt-4#0", "BUCKET#gpt-4#0"},
		{"GSI3SK", "sk-1", of("sk-1")},
		{"GSI4PK", "ns", "ns"},
		{"GSI4SK", "BUCKET#sk-1#gpt-4#0", "BUCKET#" + of("sk-1") + "#gpt-4#0"},
		{"GSI4SK", "OP#sk-1#gpt-4#ticket", "OP#" + of("sk-1") + "#gpt-4#" + of("ticket")},
		{"entity_id", "sk-1", of("sk-1")},
		{"parent_id", "sk-2", of("sk-2")},
		{"resource", "gpt-4", "gpt-4"},
		{"b_rpm_rsched", "1m0", "1m0"},
		{"b_rpm_tk", "sk-1", of("sk-1")},
		{"mark#0", "s/01 ab", "s/01 ab"},
		{"name", "of sk-1", of("of sk-1")},
	} {
		got := r.item("ns", table.Item{test.attribute: table.S(test.text)})
		if text := got[test.attribute].(*types.AttributeValueMemberS).Value; text != test.want {
			t.Errorf("%s %s: %s, want %s", test.attribute, test.text, text, test.want)
		}
	}
	nested := json.RawMessage(`{"a":{"L":[{"S":"sk-1"},{"M":{"sk-1":{"B":"c2stMQ=="}}},{"SS":["sk-1"]},{"BS":["c2stMQ=="]},{"N":"1"},{"BOOL":true},{"NULL":true}]}}`)
	item, err := table.ParseItem(nested)
	if err != nil {
		t.Fatal(err)
	}
	text, err := table.FormatItem(r.item("ns", item))
	if err != nil || bytes.Contains(text, []byte("sk-1")) || bytes.Contains(text, []byte("c2stMQ")) || !bytes.Contains(text, []byte(`{"N":"1"},{"BOOL":true}`)) {
		t.Errorf("nested: %s, %v", text, err)
	}
	for _, record := range []events.Record{{Keys: json.RawMessage(`["sk-1"]`)}, {Keys: nested, New: json.RawMessage(`{"sk-1":1}`)}} {
		if _, err := r.record(record); err == nil || strings.Contains(err.Error(), "sk-1") {
			t.Errorf("a record that cannot be read: %v", err)
		}
	}
}

// A recording that goes on is redacted under the key that it was begun with,
// and no id is in anything that was written.
func TestRecordRedacted(t *testing.T) {
	c := newClients(t)
	dir := t.TempDir()
	for _, key := range []string{"", "the environment's"} {
		t.Setenv("SHARDQUOTA_HASH_KEY", key)
		f := recordFlags{output: filepath.Join(dir, cmp.Or(key, "random")+".jsonl"), current: true, redact: true}
		for range 2 {
			c.use(1, 10)
			if _, err := c.record(f); err != nil {
				t.Fatal(err)
			}
		}
		at, err := loadJSON[recorded](positionOf(f.output))
		if err != nil || (at.Redact.Key == "") != (key != "") {
			t.Errorf("kept %+v, %v", at, err)
		}
		usage := replayUsage(t, f.output)
		if len(usage) != 1 || len(usage[0].Entity) != 16 {
			t.Errorf("a replay has usage of %+v, want that of one pseudonym", usage)
		}
		if key != "" && usage[0].Entity != aggregator.NewPseudonyms(key).Of(groupOf(1)) {
			t.Errorf("the pseudonym %s is not that of the logs", usage[0].Entity)
		}
		for _, name := range []string{f.output, positionOf(f.output)} {
			text, err := os.ReadFile(name)
			info, infoErr := os.Stat(name)
			if err := errors.Join(err, infoErr); err != nil {
				t.Fatal(err)
			}
			if bytes.Contains(text, []byte(secretID)) || info.Mode().Perm() != 0o600 {
				t.Errorf("%s holds an id, or others can read it: %v", name, info.Mode())
			}
		}
	}
}
