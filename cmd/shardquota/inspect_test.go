package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/internal/dynoxide"
	"github.com/shardquota/shardquota/internal/fixture"
	"github.com/shardquota/shardquota/table"
)

// inspected is a table on dynoxide with the items that a test gives it, and the
// namespace "default".
type inspected struct {
	*testing.T
	client *dynamodb.Client
	name   string
}

func newInspected(t *testing.T, items ...table.Item) *inspected {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", "any")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "any")
	t.Setenv("AWS_REGION", dynoxide.Region)
	t.Setenv("SHARDQUOTA_HASH_KEY", "")
	in := &inspected{T: t, client: dynoxide.Client(t)}
	in.name = dynoxide.NewTable(t, in.client)
	in.put(table.Item{
		table.AttrPK: table.S("_/SYSTEM#"), table.AttrSK: table.S("#NAMESPACE#default"),
		"namespace_id": table.S(fixture.Acme.Namespace),
	})
	for _, item := range items {
		in.put(item)
	}
	return in
}

func (in *inspected) put(item table.Item) {
	in.Helper()
	if _, err := in.client.PutItem(in.Context(), &dynamodb.PutItemInput{TableName: &in.name, Item: item}); err != nil {
		in.Fatal(err)
	}
}

// run runs the command and holds it to writing nothing.
func (in *inspected) run(args ...string) (code int, stdout, stderr string) {
	in.Helper()
	before := scan(in.T, in.client, in.name)
	var out, errs bytes.Buffer
	args = append([]string{"inspect", "--table", in.name, "--endpoint-url", dynoxide.Start(in.T)}, args...)
	code = run(context.Background(), args, strings.NewReader(""), &out, &errs)
	if !slices.Equal(scan(in.T, in.client, in.name), before) {
		in.Error("inspect changed the table")
	}
	return code, out.String(), errs.String()
}

const noonAndAMinute = "2026-12-01T12:01:00Z"

// A sound quota on two shards, with the usage of its newest windows.
func TestInspectSound(t *testing.T) {
	acme := fixture.Acme
	in := newInspected(t,
		fixture.Bucket(acme.At(0), fixture.Count(2), fixture.Daily("calls", 900_500, 2_000_000, 1)),
		fixture.Bucket(acme.At(1), fixture.Count(2), fixture.Daily("calls", 1_000_000, 2_000_000, 2)),
		usageOf(acme, "2026-12-01T11:00:00Z", "hourly", "99.5"), usageOf(acme, "2026-12-01T00:00:00Z", "daily", "99.5"))
	code, text, stderr := in.run("--now", noonAndAMinute, acme.Entity, acme.Resource)
	if code != exitFine || stderr != "" {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	goldenText(t, "inspect-sound.txt", text)
	code, withID, _ := in.run("--now", noonAndAMinute, "--ids", "--namespace-id", acme.Namespace, acme.Entity, acme.Resource)
	if code != exitFine || withID != strings.Replace(text, "entity-1", acme.Entity, 1) {
		t.Errorf("exit %d; with its id and the namespace's:\n%s", code, withID)
	}
}

// An item that cannot be read is named with its cause and costs nothing else; a
// quota granted twice is not conserved. Nothing that is printed holds the id.
func TestInspectUnsound(t *testing.T) {
	acme := fixture.Acme
	in := newInspected(t,
		fixture.Bucket(acme.At(0), fixture.Count(4), fixture.Daily("calls", 900_000, 2_000_000, 2)),
		fixture.Bucket(acme.At(2), fixture.Count(4), fixture.Daily("calls", 900_000, 2_000_000, 2)),
		fixture.Bucket(acme.At(3), fixture.Count(4), fixture.Attrs{"rf": acme.Entity}),
		fixture.Bucket(acme.At(1), fixture.Count(4), fixture.Daily("calls", 1, 2_000_000, 4), fixture.Attrs{"b_calls_sched": "9z"}))
	code, text, stderr := in.run("--now", noonAndAMinute, "--format", "json", acme.Entity, acme.Resource)
	if code != exitUnsound || stderr != "shardquota: inspect: 1 of 1 ledgers not conserved, 2 items cannot be read\n" {
		t.Errorf("exit %d: %s", code, stderr)
	}
	if strings.Contains(text, acme.Entity) {
		t.Error("the id is shown unasked")
	}
	var got struct {
		Namespace, Entity, Resource string
		Sound                       bool
		Count                       int
		Shards                      []struct {
			Index    int
			Presence string
			Limits   []struct {
				Name             string
				Balance, Ceiling int64
				Grant            int
				Current          bool
			}
		}
		Faults []struct{ Item, Cause string }
	}
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	fixture.Eq(t, "group", []string{got.Namespace, got.Entity, got.Resource}, []string{"ns1", "entity-1", "gpt-4"})
	fixture.Eq(t, "count", got.Count, 4)
	fixture.Eq(t, "shard 2", got.Shards[2], "{2 there [{calls 900000 1000000 2 true}]}")
	fixture.Eq(t, "shard 3", got.Shards[3].Presence, "undecodable")
	fixture.Eq(t, "faults", got.Faults[1], "{shard 3 malformed item: rf: not a number}")
	if !strings.Contains(got.Faults[0].Cause, "schedule of limit calls") {
		t.Errorf("shard 1: %v", got.Faults[0])
	}
	fixture.Eq(t, "sound", got.Sound, false)
}

// Where there is nothing to see, or the question is wrong, nothing is printed.
func TestInspectRefusals(t *testing.T) {
	in := newInspected(t)
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{fixture.Acme.Entity, "gpt-4"}, `no bucket of that entity on "gpt-4" in namespace "default"`},
		{[]string{"--namespace-id", "ns9", fixture.Acme.Entity, "gpt-4"}, "no bucket of that entity"},
		{[]string{"--namespace", "prod", fixture.Acme.Entity, "gpt-4"}, `no namespace "prod"`},
		{[]string{"--table", dynoxide.Name(), fixture.Acme.Entity, "gpt-4"}, "look up the namespace"},
		{[]string{"--now", "noon", fixture.Acme.Entity, "gpt-4"}, `--now: "noon" is not a time`},
		{[]string{"--format", "yaml", fixture.Acme.Entity, "gpt-4"}, "--format"},
		{[]string{"--history", "25h", fixture.Acme.Entity, "gpt-4"}, "--history"},
		{[]string{"--html", "/", fixture.Acme.Entity, "gpt-4"}, "--html"},
		{[]string{"a#b", "gpt-4"}, "ENTITY is empty or holds a #"},
		{[]string{"--namespace-id", "a/b", "a", "gpt-4"}, "--namespace-id"},
		{[]string{fixture.Acme.Entity}, "name an ENTITY and a RESOURCE"},
	} {
		code, stdout, stderr := in.run(test.args...)
		if code != exitUsage || stdout != "" || !strings.Contains(stderr, test.want) {
			t.Errorf("%v: exit %d, stdout %q, stderr %q; want %q", test.args, code, stdout, stderr, test.want)
		}
		if strings.Contains(stderr, fixture.Acme.Entity) {
			t.Errorf("%v: the error holds the id", test.args)
		}
	}
}

// The page has its history from the table's own stream: here a doubling and the
// shard that it led to. Writes of others are not part of it.
func TestInspectPage(t *testing.T) {
	acme, other := fixture.Acme, fixture.Acme
	other.Entity = "sk-live-other"
	in := newInspected(t, fixture.Bucket(acme.At(0), fixture.Daily("calls", 2_000_000, 2_000_000, 1)))
	in.put(fixture.Bucket(other.At(0), fixture.Daily("theirs", 5, 5, 1)))
	in.update(acme.At(0), "SET shard_count = :n ADD b_calls_tk :x", map[string]int64{":n": 2, ":x": -1_000_000})
	in.put(fixture.Bucket(acme.At(1), fixture.Count(2), fixture.Daily("calls", 1_000_000, 2_000_000, 2)))
	file := filepath.Join(t.TempDir(), "page.html")
	for _, test := range []struct {
		history   string
		has, lack []string
	}{
		{"1h", []string{"doubled from 1 shard to 2", "gave 1000 calls to a sibling", "created at 2 shards: 1000 calls moved off shard 0; 1000 wcu"}, []string{"history: "}},
		{"0", []string{"Ledger of quotas"}, []string{"doubled from"}},
	} {
		code, _, stderr := in.run("--html", file, "--history", test.history, "--ids=false", acme.Entity, acme.Resource)
		if code != exitFine || stderr != "" {
			t.Fatalf("history %s: exit %d: %s", test.history, code, stderr)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range test.has {
			if !bytes.Contains(text, []byte(want)) {
				t.Errorf("history %s: the page does not hold %q", test.history, want)
			}
		}
		for _, not := range append(test.lack, acme.Entity, other.Entity, "theirs") {
			if bytes.Contains(text, []byte(not)) {
				t.Errorf("history %s: the page holds %q", test.history, not)
			}
		}
		if left, _ := filepath.Glob(filepath.Join(filepath.Dir(file), "*")); len(left) != 1 {
			t.Errorf("beside the page there is %v", left)
		}
	}
}

func (in *inspected) update(key table.Key, expression string, values map[string]int64) {
	in.Helper()
	attributes := map[string]types.AttributeValue{}
	for name, value := range values {
		attributes[name] = table.N(strconv.FormatInt(value, 10))
	}
	_, err := in.client.UpdateItem(in.Context(), &dynamodb.UpdateItemInput{
		TableName: &in.name, UpdateExpression: &expression, ExpressionAttributeValues: attributes,
		Key: table.Item{table.AttrPK: table.S(key.PK()), table.AttrSK: table.S(table.StateSK)},
	})
	if err != nil {
		in.Fatal(err)
	}
}

func usageOf(group table.Group, start, window, tokens string) table.Item {
	key := table.UsageKey{Group: group, Window: window, Start: start}
	item := table.Item{
		table.AttrPK: table.S(key.PK()), table.AttrSK: table.S(key.SK()),
		"calls": table.N(tokens), table.AttrTotalEvents: table.N("7"),
	}
	for _, label := range key.Labels() {
		item[label[0]] = table.S(label[1])
	}
	return item
}

// goldenText compares a text with a file that was reviewed by eye.
func goldenText(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("differs from %s; got\n%s", path, got)
	}
}

// A recording that is driven again over a real table makes a page of what it
// says, with the table's ledger and what was counted.
func TestRedrivePage(t *testing.T) {
	_, name := recordedTable(t)
	file := filepath.Join(t.TempDir(), "page.html")
	redrive(t, name, "--html", file)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"rolled into the window of sess with 2000", "created at 2 shards: ", ", 1362 sess<", ">3635<", "sess conserved",
	} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("the page does not hold %q", want)
		}
	}
}
