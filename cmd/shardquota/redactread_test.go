package main

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/limiter"
	"github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/memory"
)

// What texts of an attribute are.
const (
	read   = "read"   // programs go by them: kept
	hidden = "hidden" // may hold an id
	shaped = "shaped" // an id is hidden in them
	none   = "none"   // it holds no text
)

// attributes are all that table and limiter name, by name; fields are the last
// parts of those of limits.
var (
	attributes = map[string]string{
		"PK": shaped, "SK": shaped, "GSI2PK": shaped, "GSI2SK": shaped, "GSI3PK": shaped, "GSI3SK": shaped, "GSI4SK": shaped, "GSI4PK": read,
		"resource": read, "sched": read, "rsched": read, "sched_tz": read, "window": read, "window_start": read,
		"disabled": read, "resources": read, "on_unavailable": read,
		"entity_id": hidden, "parent_id": hidden, "name": hidden, "metadata": hidden, "created_at": hidden, "pinc": hidden, "declared_by": hidden,
		"shard_count": none, "bypass": none, "cascade": none, "rf": none, "vu": none, "ttl": none, "total_events": none,
		"pgen": none, "config_version": none, "spread_pending": none,
	}
	fields = map[string]string{
		"sched": read, "rsched": read, "div": read,
		"tk": none, "tc": none, "cp": none, "ra": none, "rp": none, "ws": none, "rsa": none, "wa": none, "wtc": none,
		"gc": none, "tu": none, "soft": none, "rn": none,
	}
)

// named are the texts of a package's constants whose names begin so.
func named(t *testing.T, dir string, prefixes ...string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no source in %s: %v", dir, err)
	}
	var texts []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(source, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 || !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(spec.Names[0].Name, p) }) {
				return true
			}
			if literal, ok := spec.Values[0].(*ast.BasicLit); ok && literal.Kind == token.STRING {
				text, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Fatal(err)
				}
				texts = append(texts, text)
			}
			return true
		})
	}
	return texts
}

// Every attribute and field that has a name in the source is known here for what
// it is, and treated so: a new one fails until it is looked at.
func TestRedactorKeepsWhatIsRead(t *testing.T) {
	all := slices.Concat(named(t, "../../table", "Attr"), named(t, "../../limits", "attr"))
	if !slices.Contains(all, table.AttrZone) || !slices.Contains(all, "on_unavailable") {
		t.Fatalf("found %q", all)
	}
	for _, name := range all {
		if attributes[name] == "" {
			t.Errorf("%s: is its text read? Say it here, and in harmless", name)
		}
	}
	limits := named(t, "../../table", "Field")
	if len(limits) < len(fields) {
		t.Fatalf("found the fields %q", limits)
	}
	treated := map[string]string{"namespace_id": read, "status": read, "mark#31": read, "runs#0": read}
	for name, kind := range attributes {
		treated[name] = kind
	}
	for _, field := range limits {
		if fields[field] == "" {
			t.Errorf("field %s: is its text read? Say it here, and in harmless", field)
		}
		for _, prefix := range []string{"b_", "l_", "w_"} {
			treated[prefix+"tokens.in-a_b_"+field] = fields[field]
		}
	}
	r := redactor{aggregator.NewPseudonyms("k")}
	for name, kind := range treated {
		if kind == shaped {
			if shapes[name] == nil {
				t.Errorf("%s has no shape", name)
			}
			continue
		}
		item := r.item("ns", table.Item{name: table.S("text")})
		if kept := table.SameValue(item[name], table.S("text")); kept != (kind == read) {
			t.Errorf("%s, whose text is %s: kept is %v", name, kind, kept)
		}
		for _, value := range []types.AttributeValue{table.N("7"), &types.AttributeValueMemberBOOL{Value: true}} {
			if item := r.item("ns", table.Item{name: value}); !table.SameValue(item[name], value) {
				t.Errorf("%s: %v became %v", name, value, item[name])
			}
		}
	}
}

// recordings of what a limiter writes to a table in memory.
type written struct {
	*testing.T
	now     time.Time
	records []events.Record
}

func (w *written) write(old, new table.Item) {
	record := events.Record{
		EventName: events.Modify, Stream: "s", Sequence: strconv.Itoa(len(w.records) + 1), Time: w.now.UnixMilli(),
	}
	switch {
	case old == nil:
		record.EventName = events.Insert
	case new == nil:
		record.EventName = events.Remove
	}
	text := func(item table.Item) json.RawMessage {
		if item == nil {
			return nil
		}
		text, err := table.FormatItem(item)
		if err != nil {
			w.Error(err)
		}
		return text
	}
	item := new
	if item == nil {
		item = old
	}
	pk, sk := item.Key()
	record.Keys = text(table.Item{table.AttrPK: table.S(pk), table.AttrSK: table.S(sk)})
	record.Old, record.New = text(old), text(new)
	w.records = append(w.records, record)
}

// divided is a recording of uses of limits that are replicated, gathered and
// scheduled, declared by levels, over a doubling; and the items of the levels.
func divided(t *testing.T) ([]events.Record, *memory.Store) {
	t.Helper()
	store, w := memory.New(), &written{T: t, now: time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)}
	store.Watch(w.write)
	declared, err := limits.Open(t.Context(), store.Client(), limits.NamespaceID("ns1"), limits.Clock(func() time.Time { return w.now }))
	if err != nil {
		t.Fatal(err)
	}
	burst, tokens := limits.PerMinute("burst", 400), limits.Quota("tokens", 1000, "0 0 1 * *")
	burst.Division, tokens.Division = quota.Replicated, quota.Pooled
	burst.Schedule = []quota.Entry{{Cron: "* 0-5 * * *", Scale: 500}}
	session := limits.Session("session", 900, 5*time.Hour)
	session.Division = quota.Pooled
	if err := declared.SetLimits(t.Context(), limits.ForResource("gpt-4"), burst, tokens, session); err != nil {
		t.Fatal(err)
	}
	if err := declared.SetAccess(t.Context(), limits.ForEntity(secretID+"other"), limits.Bypass); err != nil {
		t.Fatal(err)
	}
	l := limiter.New(declared, limiter.ShardAttempts(quota.MaxShards))
	for i := range 40 {
		if i == 10 {
			if _, err := store.Double(t.Context(), table.Group{Namespace: "ns1", Entity: secretID + "acme", Resource: "gpt-4"}, 1); err != nil {
				t.Fatal(err)
			}
		}
		amount := int64(5)
		if i > 35 {
			amount = 120 // more than one part has: it is gathered
		}
		if _, err := l.Acquire(t.Context(), secretID+"acme", "gpt-4", limiter.Amounts{"burst": 1, "tokens": amount, "session": 2}); err != nil {
			t.Fatal(err)
		}
		w.now = w.now.Add(200 * time.Millisecond)
	}
	return w.records, store
}

// A redacted recording replays with its divisions, to the same figures.
func TestRedactedDivisions(t *testing.T) {
	const key = "a key"
	t.Setenv("SHARDQUOTA_HASH_KEY", key)
	records, store := divided(t)
	dir, r := t.TempDir(), redactor{aggregator.NewPseudonyms(key)}
	from, to := filepath.Join(dir, "as-it-was.jsonl"), filepath.Join(dir, "redacted.jsonl")
	writeRecords(t, from, records)
	for i := range records {
		var err error
		if records[i], err = r.record(records[i]); err != nil {
			t.Fatal(err)
		}
	}
	writeRecords(t, to, records)
	if text := readAll(t, to); strings.Contains(string(text), secretID) {
		t.Error("an id is in it")
	}
	want, got := sortedReport(t, from), sortedReport(t, to, "--ids")
	if got != want {
		t.Errorf("the report is\n%s\nwant\n%s", got, want)
	}
	text := string(runReplay(t, to))
	for _, row := range []string{"burst    replicated  400", "tokens   gathered    1000", "session  gathered    900"} {
		if !strings.Contains(text, row) {
			t.Errorf("%q is not in\n%s", row, text)
		}
	}
	if strings.Contains(text, "IGNORED") {
		t.Errorf("a division is ignored:\n%s", text)
	}

	hidden := memory.New()
	for _, item := range store.Items() {
		hidden.Put(r.item("ns1", item))
	}
	l, err := limits.Open(t.Context(), hidden.Client(), limits.NamespaceID("ns1"))
	if err != nil {
		t.Fatal(err)
	}
	levels, err := l.Levels(t.Context())
	if err != nil || len(levels) != 2 || levels[1].Access != limits.Bypass {
		t.Fatalf("redacted, the levels are %+v, %v", levels, err)
	}
	limits := levels[0].Limits
	if len(limits) != 3 || limits[0].Division != quota.Replicated || len(limits[0].Schedule) != 1 ||
		limits[1].Division != quota.Pooled || limits[1].Window != 5*time.Hour ||
		limits[2].Division != quota.Pooled || !slices.Equal(limits[2].Resets, []string{"0 0 1 * *"}) {
		t.Errorf("redacted, the limits are %+v", limits)
	}
}
