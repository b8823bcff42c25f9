package manifest_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/shardquota/shardquota/internal/dynoxide"
	"github.com/shardquota/shardquota/limiter"
	"github.com/shardquota/shardquota/limits"
	. "github.com/shardquota/shardquota/limits/manifest"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/dynamo"
	"github.com/shardquota/shardquota/table/memory"
)

const (
	acme    = "sk-live-acme"
	model   = "gpt-4"
	example = "../../testdata/limits.yaml"
)

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// world is a table whose writes are counted, and a program that uses it.
type world struct {
	*testing.T
	*counted
	store   *limits.Store
	limiter *limiter.Limiter
}

// counted counts the writes of items, and fails those that it is told to.
type counted struct {
	table.Client
	mu     sync.Mutex
	writes int
	fail   func(operation, pk string) error // nil for never
}

func (c *counted) note(operation, pk string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fail != nil {
		if err := c.fail(operation, pk); err != nil {
			return err
		}
	}
	c.writes++
	return nil
}

func (c *counted) Insert(ctx context.Context, item table.Item) (bool, error) {
	pk, _ := item.Key()
	if err := c.note("insert", pk); err != nil {
		return false, err
	}
	return c.Client.Insert(ctx, item)
}

func (c *counted) Amend(ctx context.Context, pk, sk string, amendment table.Amendment) (table.WriteResult, error) {
	if err := c.note("amend", pk); err != nil {
		return table.WriteResult{}, err
	}
	return c.Client.Amend(ctx, pk, sk, amendment)
}

func (c *counted) Remove(ctx context.Context, pk, sk string, expect ...table.NamedValue) (bool, error) {
	if err := c.note("remove", pk); err != nil {
		return false, err
	}
	return c.Client.Remove(ctx, pk, sk, expect...)
}

func newMemory() table.Client { return memory.New().Client() }

func worldOf(t *testing.T, client table.Client) *world {
	w := &world{T: t, counted: &counted{Client: client}}
	var err error
	w.store, err = limits.Open(t.Context(), w.counted, limits.NamespaceID("ns1"), limits.Clock(func() time.Time { return noon }),
		limits.CacheFor(0))
	w.noError(err)
	w.limiter = limiter.New(w.store)
	return w
}

// everywhere runs a test over a table in memory and one on DynamoDB.
func everywhere(t *testing.T, test func(w *world)) {
	t.Run("memory", func(t *testing.T) { test(worldOf(t, newMemory())) })
	t.Run("dynamo", func(t *testing.T) {
		client := dynoxide.Client(t, func(o *dynamodb.Options) { o.RetryMaxAttempts = 10 })
		test(worldOf(t, dynamo.New(client, dynoxide.NewTable(t, client))))
	})
}

func (w *world) noError(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) read(text string) *Manifest {
	w.Helper()
	m, err := Read(strings.NewReader(text), "limits.yaml")
	w.noError(err)
	return m
}

func (w *world) compare(m *Manifest, options ...Option) *Plan {
	w.Helper()
	plan, err := Compare(w.Context(), w.store, m, options...)
	w.noError(err)
	return plan
}

// apply applies a manifest and returns how many items were written.
func (w *world) apply(m *Manifest, options ...Option) int {
	w.Helper()
	before := w.writes
	w.noError(w.compare(m, options...).Apply(w.Context()))
	return w.writes - before
}

func (w *world) export() *Manifest {
	w.Helper()
	m, err := Export(w.Context(), w.store, "")
	w.noError(err)
	return m
}

// shows compares what a plan prints, with the ids and without lines.
func (w *world) shows(plan *Plan, want string) {
	w.Helper()
	shown := *plan
	shown.Changes = slices.Clone(plan.Changes)
	for i := range shown.Changes {
		shown.Changes[i].Line = 0
	}
	var b strings.Builder
	w.noError(shown.Print(&b, func(entity string) string { return entity }))
	if b.String() != want {
		w.Errorf("the plan is\n%s\nnot\n%s", b.String(), want)
	}
}

// rewritten is a manifest that was written and read again.
func rewritten(t testing.TB, m *Manifest) *Manifest {
	t.Helper()
	var b bytes.Buffer
	if err := m.Write(&b); err != nil {
		t.Fatal(err)
	}
	again, err := Read(bytes.NewReader(b.Bytes()), "written")
	if err != nil {
		t.Fatalf("%v in\n%s", err, b.String())
	}
	return again
}

func exampleManifest(t testing.TB) *Manifest {
	t.Helper()
	file, err := os.Open(example)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	m, err := Read(file, "limits.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// The example declares what its comments say.
func TestExample(t *testing.T) {
	m := exampleManifest(t)
	says := map[limits.Level]limits.Rules{}
	for _, level := range m.Levels {
		says[level.At] = level.Rules
	}
	yes, no := true, false
	tpm := limits.PerMinute("tpm", 90_000)
	tpm.Schedule = []quota.Entry{{Cron: "* 9-17 * * 1-5", Scale: 500}, {Cron: "* 0-5 * * *", Capacity: 200_000, Refill: 100_000, Period: 30}}
	tpm.Zone = "Europe/Berlin"
	calls := limits.Quota("calls", 40_000, "0 0 1 * *", "0 0 15 * *")
	calls.Division, calls.Zone = quota.Pooled, "UTC"
	images := limits.PerDay("images", 100)
	images.Soft = true
	monthly := limits.Quota("calls", 1_000_000, "0 0 1 * *")
	monthly.Zone = "America/New_York"
	want := map[limits.Level]limits.Rules{
		limits.ForAll(): {Limits: []limits.Limit{limits.PerMinute("rpm", 60)}},
		limits.ForResource(model): {Limits: []limits.Limit{
			{Name: "rpm", Capacity: 1000, Refill: 600, Period: time.Minute}, tpm,
		}},
		limits.ForResource("batch/embeddings"): {Access: limits.Disabled},
		limits.ForResource("claude"): {Cascade: &yes, Limits: []limits.Limit{
			{Name: "burst", Capacity: 50, Refill: 10, Period: time.Second, Division: quota.Replicated}, calls, images,
			limits.Session("session", 500, 5*time.Hour),
		}},
		limits.ForEntity("acme"):                 {Limits: []limits.Limit{limits.PerMinute("rpm", 300)}},
		limits.For("acme", model):                {Limits: []limits.Limit{monthly, limits.PerMinute("rpm", 5000)}},
		limits.ForEntity("trial"):                {Access: limits.Disabled},
		limits.For("trial", "claude"):            {Access: limits.Enabled, Cascade: &no},
		limits.ForEntity("internal@example.com"): {Access: limits.Bypass},
	}
	if m.Namespace != "default" || len(m.Levels) != len(want) {
		t.Errorf("namespace %q and %d levels, want default and %d", m.Namespace, len(m.Levels), len(want))
	}
	for at, rules := range want {
		if !says[at].Equal(rules) {
			t.Errorf("%v:\n got %+v\nwant %+v", at, says[at], rules)
		}
	}
}

// Everything comes back as it was declared: from a file, and from a table.
func TestRoundTrip(t *testing.T) {
	everywhere(t, func(w *world) {
		m := exampleManifest(t)
		if again := rewritten(t, m); !again.Equal(m) {
			w.Errorf("from a file: %+v\nwant %+v", again, m)
		}
		w.apply(m)
		exported := w.export()
		exported.Namespace = m.Namespace
		if !exported.Equal(m) {
			w.Errorf("from the table: %+v\nwant %+v", exported, m)
		}
		if writes := w.apply(rewritten(t, exported), Prune()); writes != 0 {
			w.Errorf("what was exported writes %d items", writes)
		}
	})
}

// What is written reads well.
func TestWritten(t *testing.T) {
	var b strings.Builder
	if err := exampleManifest(t).Write(&b); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/written.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("written:\n%s", b.String())
	}
}

// JSON is read as well.
func TestReadsJSON(t *testing.T) {
	m, err := Read(strings.NewReader(`{"entities": {"acme": {"limits": {"rpm": {"capacity": 5, "period": "1m"}}}}}`), "limits.json")
	if err != nil {
		t.Fatal(err)
	}
	want := &Manifest{Levels: []Level{{At: limits.ForEntity("acme"), Rules: limits.Rules{Limits: []limits.Limit{limits.PerMinute("rpm", 5)}}}}}
	if !m.Equal(want) {
		t.Errorf("got %+v", m)
	}
}

// A manifest that no file could hold is not written.
func TestNotWritten(t *testing.T) {
	rpm := limits.Rules{Limits: []limits.Limit{limits.PerMinute("rpm", 5)}}
	for says, levels := range map[string][]Level{
		"resource gpt-4: it is there twice":     {{At: limits.ForResource(model), Rules: rpm}, {At: limits.ForResource(model), Rules: rpm}},
		"system: it is there twice, or out":     {{At: limits.ForResource(model), Rules: rpm}, {At: limits.ForAll(), Rules: rpm}},
		"an entity: it says nothing":            {{At: limits.ForEntity(acme)}},
		"system: it says nothing, or what such": {{At: limits.ForAll(), Rules: limits.Rules{Access: limits.Disabled}}},
		"a level that is none":                  {{Rules: rpm}},
		"an entity, resource gpt-4: malformed":  {{At: limits.For(acme, model), Rules: limits.Rules{Limits: []limits.Limit{{Name: "rpm"}}}}},
	} {
		var b strings.Builder
		err := (&Manifest{Levels: levels}).Write(&b)
		if !errors.Is(err, ErrManifest) || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), acme) || b.Len() != 0 {
			t.Errorf("%s: got %v and %q", says, err, b.String())
		}
	}
}

// A plan names the lines of what the manifest names, and of nothing else.
func TestPrintLines(t *testing.T) {
	plan := &Plan{Changes: []Change{
		{At: limits.ForAll(), Kind: Added, Line: 2},
		{At: limits.ForResource(model), Kind: Unchanged, Line: 7},
		{At: limits.ForEntity(acme), Kind: Changed, Line: 12},
		{At: limits.For(acme, model), Kind: Removed},
	}}
	var b strings.Builder
	if err := plan.Print(&b, func(string) string { return "entity-1" }); err != nil {
		t.Fatal(err)
	}
	const want = "+ system (line 2)\n~ entity entity-1 (line 12)\n- entity entity-1, resource gpt-4\n\n1 to add, 1 to change, 1 to remove, 1 unchanged\n"
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}
