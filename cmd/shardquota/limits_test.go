package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/shardquota/shardquota/internal/dynoxide"
	"github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/limits/manifest"
	"github.com/shardquota/shardquota/table/dynamo"
	"github.com/shardquota/shardquota/table/memory"
)

const exampleLimits = "../../testdata/limits.yaml"

// limited is an empty table on dynoxide that limits are declared in.
type limited struct {
	*testing.T
	client *dynamodb.Client
	name   string
}

func newLimited(t *testing.T) *limited {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", "any")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "any")
	t.Setenv("AWS_REGION", dynoxide.Region)
	t.Setenv("SHARDQUOTA_HASH_KEY", "")
	client := dynoxide.Client(t)
	return &limited{t, client, dynoxide.NewTable(t, client)}
}

// limits runs a limits command with something at standard input.
func (l *limited) limits(stdin, command string, args ...string) (code int, stdout, stderr string) {
	l.Helper()
	var out, errs bytes.Buffer
	args = append([]string{"limits", command, "--table", l.name, "--endpoint-url", dynoxide.Start(l.T)}, args...)
	code = run(context.Background(), args, strings.NewReader(stdin), &out, &errs)
	return code, out.String(), errs.String()
}

// fine runs a limits command that has to end well, and returns what it says.
func (l *limited) fine(stdin, command string, args ...string) string {
	l.Helper()
	code, stdout, stderr := l.limits(stdin, command, args...)
	if code != exitFine || stderr != "" {
		l.Fatalf("%s %q: exit %d: %s", command, args, code, stderr)
	}
	return stdout
}

func (l *limited) items() []string { return scan(l.T, l.client, l.name) }

const newPlan = `The namespace "default" is not there yet.

+ system (line 5)
    + rpm: 60 per minute
+ resource batch/embeddings (line 20)
    + access: disabled
+ resource claude (line 22)
    + cascade: true
    + burst: {capacity: 50, refill: 10, period: 1s, division: replicated}
    + calls: {capacity: 40000, resets: ["0 0 1 * *", "0 0 15 * *"], division: gathered}
    + images: {capacity: 100, refill: 100, period: 1d, soft: true}
    + session: {capacity: 500, window: 5h}
+ resource gpt-4 (line 10)
    + rpm: {capacity: 1000, refill: 600, period: 1m}
    + tpm: {capacity: 90000, refill: 90000, period: 1m, schedule: [{cron: "* 9-17 * * 1-5", scale: 0.5}, {cron: "* 0-5 * * *", capacity: 200000, refill: 100000, period: 30s}], zone: Europe/Berlin}
+ entity entity-1 (line 31)
    + rpm: 300 per minute
+ entity entity-1, resource gpt-4 (line 35)
    + calls: {capacity: 1000000, resets: ["0 0 1 * *"], zone: America/New_York}
    + rpm: 5000 per minute
+ entity entity-2 (line 45)
    + access: bypass
+ entity entity-3 (line 39)
    + access: disabled
+ entity entity-3, resource claude (line 42)
    + access: enabled
    + cascade: false

9 to add, 0 to change, 0 to remove, 0 unchanged
ids are hidden; --ids shows them
`

// A manifest is planned, applied, applied again, exported, changed and pruned.
func TestLimits(t *testing.T) {
	l := newLimited(t)
	if got := l.fine("", "plan", "-f", exampleLimits); got != newPlan {
		t.Errorf("plan:\n%s\nwant\n%s", got, newPlan)
	}
	if items := l.items(); len(items) != 0 {
		t.Errorf("a plan wrote %d items", len(items))
	}
	if got, want := l.fine("", "apply", "-f", exampleLimits, "--yes"), newPlan+"Levels changed: 9\n"; got != want {
		t.Errorf("apply:\n%s\nwant\n%s", got, want)
	}
	stored := l.items()
	again := "0 to add, 0 to change, 0 to remove, 9 unchanged\n"
	if got := l.fine("", "apply", "-f", exampleLimits, "--yes"); got != again {
		t.Errorf("apply once more:\n%s", got)
	}
	exported := l.fine("", "export")
	if got := l.fine(exported, "apply", "-f", "-", "--yes", "--prune"); got != again {
		t.Errorf("what was exported:\n%s", got)
	}
	if !slices.Equal(l.items(), stored) {
		t.Error("nothing was to change, and the table did")
	}

	changed := "system: {limits: {rpm: 90 per minute, tpm: 5 per hour}}\nentities: {acme: {limits: {rpm: 300 per minute}}}\n"
	want := `~ system (line 1)
    ~ rpm capacity: 60 → 90
    ~ rpm refill: 60 → 90
    + tpm: 5 per hour
- resource batch/embeddings
    - access: disabled
`
	got := l.fine(changed, "apply", "-f", "-", "--yes", "--prune")
	if !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "\n0 to add, 1 to change, 7 to remove, 1 unchanged\nids are hidden; --ids shows them\nLevels changed: 8\n") {
		t.Errorf("changed:\n%s", got)
	}
	if got, want := l.fine("", "export"), "namespace: default\nsystem:\n  limits:\n    rpm: 90 per minute\n    tpm: 5 per hour\nentities:\n  acme:\n    limits:\n      rpm: 300 per minute\n"; got != want {
		t.Errorf("exported\n%s\nwant\n%s", got, want)
	}
}

// Ids are shown on request alone, in the text and in the JSON.
func TestLimitsHideIDs(t *testing.T) {
	l := newLimited(t)
	const secret = "sk-live-secret"
	text := "entities:\n  " + secret + ":\n    limits:\n      rpm: 5 per minute\n"
	for _, format := range []string{"text", "json"} {
		if got := l.fine(text, "plan", "-f", "-", "--format", format); strings.Contains(got, secret) || !strings.Contains(got, "entity-1") {
			t.Errorf("%s:\n%s", format, got)
		}
		if got := l.fine(text, "plan", "-f", "-", "--format", format, "--ids"); !strings.Contains(got, secret) {
			t.Errorf("%s with ids:\n%s", format, got)
		}
	}
	const hint = "1 to add, 0 to change, 0 to remove, 0 unchanged\nids are hidden; --ids shows them\n"
	if got := l.fine(text, "plan", "-f", "-"); !strings.Contains(got, "+ entity entity-1 (line 2)\n") || !strings.HasSuffix(got, hint) {
		t.Errorf("got\n%s", got)
	}
	if got := l.fine(text, "plan", "-f", "-", "--ids"); strings.Contains(got, "hidden") {
		t.Errorf("with ids:\n%s", got)
	}
	if got := l.fine("system: {limits: {rpm: 5 per minute}}", "plan", "-f", "-"); strings.Contains(got, "hidden") {
		t.Errorf("without an entity:\n%s", got)
	}
	_, _, stderr := l.limits(text+"      "+secret+": {}\n", "plan", "-f", "-")
	if want := "shardquota: standard input:5:7: a capacity is missing\n"; stderr != strings.Replace(want, "5:7", "5:23", 1) || strings.Contains(stderr, secret) {
		t.Errorf("got %q", stderr)
	}
}

func TestLimitsAsJSON(t *testing.T) {
	l := newLimited(t)
	l.fine("resources: {gpt-4: {limits: {rpm: 5 per minute}}}", "apply", "-f", "-", "--yes")
	text := "resources:\n  gpt-4:\n    limits:\n      rpm: 8 per minute\n"
	var report manifest.Report
	if err := json.Unmarshal([]byte(l.fine(text, "plan", "-f", "-", "--format", "json")), &report); err != nil {
		t.Fatal(err)
	}
	if report.Changed != 1 || report.Added+report.Removed+report.Unchanged != 0 || len(report.Levels) != 1 {
		t.Fatalf("got %+v", report)
	}
	level := report.Levels[0]
	if level.Change != manifest.Changed || level.Resource != "gpt-4" || level.Line != 2 || len(level.Fields) != 2 ||
		level.Fields[0].Limit != "rpm" || level.Fields[0].Field != "capacity" || *level.Fields[0].From != "5" || *level.Fields[0].To != "8" {
		t.Errorf("got %+v", level)
	}
	var made application
	if err := json.Unmarshal([]byte(l.fine(text, "apply", "-f", "-", "--format", "json", "--yes")), &made); err != nil {
		t.Fatal(err)
	}
	if made.Applied != 1 || made.Changed != 1 {
		t.Errorf("got %+v", made)
	}
}

// Scripts are told whether anything changes.
func TestLimitsExitCodes(t *testing.T) {
	l := newLimited(t)
	const text = "system: {limits: {rpm: 5 per minute}}"
	for _, test := range []struct {
		name, stdin string
		args        []string
		want        int
	}{
		{"something changes", text, []string{"--detailed-exitcode"}, 2},
		{"malformed", "system: 1", []string{"--detailed-exitcode"}, 1},
		{"malformed, without the flag", "system: 1", nil, 2},
		{"something changes, without the flag", text, nil, 0},
	} {
		if code, _, stderr := l.limits(test.stdin, "plan", append(test.args, "-f", "-")...); code != test.want || (stderr == "") != (test.stdin == text) {
			t.Errorf("%s: exit %d, want %d; %q", test.name, code, test.want, stderr)
		}
	}
	l.fine(text, "apply", "-f", "-", "--yes")
	if code, _, _ := l.limits(text, "plan", "-f", "-", "--detailed-exitcode"); code != 0 {
		t.Errorf("nothing changes: exit %d", code)
	}
}

// The namespace is the flag's or the manifest's, and not two.
func TestLimitsOfANamespace(t *testing.T) {
	l := newLimited(t)
	const text = "namespace: tenants\nsystem: {limits: {rpm: 5 per minute}}"
	if code, _, stderr := l.limits(text, "plan", "-f", "-", "--namespace", "other"); code != exitUsage || stderr != "shardquota: --namespace: \"other\" is not that of the manifest, \"tenants\"\n" {
		t.Errorf("exit %d: %s", code, stderr)
	}
	if code, _, stderr := l.limits("", "export"); code != exitUsage || !strings.Contains(stderr, `there is no namespace "default"`) {
		t.Errorf("exit %d: %s", code, stderr)
	}
	l.fine(text, "apply", "-f", "-", "--yes")
	file := filepath.Join(t.TempDir(), "limits.yaml")
	l.fine("", "export", "--namespace", "tenants", "-o", file)
	got, err := os.ReadFile(file)
	if err != nil || string(got) != "namespace: tenants\nsystem:\n  limits:\n    rpm: 5 per minute\n" {
		t.Errorf("exported %q, %v", got, err)
	}
	ns, err := limits.Open(t.Context(), dynamo.New(l.client, l.name), limits.Namespace("tenants"))
	if err != nil {
		t.Fatal(err)
	}
	if limits, err := ns.Limits(t.Context(), limits.ForAll()); err != nil || len(limits) != 1 || limits[0].Capacity != 5 {
		t.Errorf("stored %+v, %v", limits, err)
	}
}

// Where a plan ends early, it is said what was done and what was not, in which a
// number stands for the entity.
func TestLimitsCutShort(t *testing.T) {
	l, err := limits.Open(t.Context(), memory.New().Client(), limits.NamespaceID("ns1"))
	if err != nil {
		t.Fatal(err)
	}
	const text = "system: {limits: {rpm: 5 per minute}}\nentities: {acme: {access: disabled, resources: {gpt-4: {access: enabled}}}}"
	for format, want := range map[string]string{
		"text": "Applied:\n  + entity entity-1, resource gpt-4 (line 2)\nNot applied:\n  + entity entity-1 (line 2)\n  + system (line 1)\n",
		"json": `"applied": 1`,
	} {
		m, err := manifest.Read(strings.NewReader(text), "limits.yaml")
		if err != nil {
			t.Fatal(err)
		}
		plan, err := manifest.Compare(t.Context(), l, m)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.SetAccess(t.Context(), limits.ForEntity("acme"), limits.Bypass); err != nil {
			t.Fatal(err)
		}
		c := &compared{&limitsTable{store: l, id: "ns1"}, m, plan, func(string) string { return "entity-1" }, false}
		f := limitsFlags{format: format}
		var out strings.Builder
		err = f.made(&out, c, c.make(t.Context(), nil))
		if !errors.Is(err, limits.ErrStale) || err.Error() != "limits.yaml:2: an entity: store limits: stored otherwise meanwhile (1 made before it, 1 left)" {
			t.Errorf("%s: %v", format, err)
		}
		if !strings.Contains(out.String(), want) || strings.Contains(out.String(), "acme") {
			t.Errorf("%s: %s", format, out.String())
		}
		for _, level := range []limits.Level{limits.ForEntity("acme"), limits.For("acme", "gpt-4")} {
			if err := l.SetAccess(t.Context(), level, limits.Inherit); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Only a person who says yes, or --yes, changes anything.
func TestLimitsAsk(t *testing.T) {
	for answer, want := range map[string]bool{"yes\n": true, " yes \n": true, "yes": true, "y\n": false, "no\n": false, "\n": false, "": false} {
		var asked strings.Builder
		agreed, err := confirm(strings.NewReader(answer), &asked)
		if err != nil || agreed != want || !strings.HasPrefix(asked.String(), "\nType yes to apply: ") || strings.Contains(asked.String(), "Nothing was changed") == want {
			t.Errorf("%q: %v, %v, %q", answer, agreed, err, asked.String())
		}
	}
	l := newLimited(t)
	code, stdout, stderr := l.limits("", "apply", "-f", exampleLimits)
	if code != exitUsage || stdout != "" || !strings.Contains(stderr, "there is no terminal to ask on: say --yes") {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
	if items := l.items(); len(items) != 0 {
		t.Errorf("%d items were written", len(items))
	}
}

// Where a table is not found, it is said which, and where.
func TestTableNamed(t *testing.T) {
	l := newLimited(t)
	endpoint := dynoxide.Start(t)
	const cause = "ResourceNotFoundException: "
	for _, args := range [][]string{
		{"limits", "plan", "-f", exampleLimits},
		{"limits", "export"},
		{"inspect", "acme", "gpt-4"},
		{"replay", recordedSession},
	} {
		var out, errs bytes.Buffer
		args = append(args, "--table", "nowhere", "--endpoint-url", endpoint)
		code := run(t.Context(), args, strings.NewReader(""), &out, &errs)
		text := errs.String()
		if code != exitUsage || !strings.HasPrefix(text, "shardquota: table nowhere at "+endpoint+": ") ||
			!strings.Contains(text, cause) || !strings.HasSuffix(text, " (are its name, region and account right?)\n") {
			t.Errorf("%q: exit %d: %s", args, code, text)
		}
	}
	// The codes of plan --detailed-exitcode hold.
	l.name = "nowhere"
	if code, _, stderr := l.limits("", "plan", "-f", exampleLimits, "--detailed-exitcode"); code != exitFailed || !strings.HasPrefix(stderr, "shardquota: table nowhere at ") {
		t.Errorf("exit %d: %s", code, stderr)
	}
}
