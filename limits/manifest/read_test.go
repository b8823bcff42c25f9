package manifest_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/shardquota/shardquota/limits"
	. "github.com/shardquota/shardquota/limits/manifest"
)

// limitOf is a manifest with one limit of one field each line.
func limitOf(fields ...string) string {
	return "system:\n  limits:\n    x:\n      " + strings.Join(fields, "\n      ") + "\n"
}

// malformed are manifests by what is said of them after the name of the file.
var malformed = []struct{ says, text string }{
	{"1:1: it is empty", ""},
	{"1:1: it is empty", "# nothing\n"},
	{"1:1: a mapping belongs here, not nothing", "~\n"},
	{"1:1: a mapping belongs here, not a list", "- a\n"},
	{"2:1: a second document begins", "system: {limits: {x: 5 per minute}}\n--- {}\n"},
	{"1:13: it is no YAML: mapping values are not allowed in this context", "namespace: a: b\n"},
	{"1:11: it is no YAML: unknown anchor … referenced", "entities: *acme\n"},

	// Keys.
	{"2:1: unknown key; there may be namespace, system, resources, entities", "system: {limits: {x: 5 per minute}}\nsk-live-acme: {}\n"},
	{"2:1: the key is there twice, first on line 1", "namespace: a\nnamespace: b\n"},
	{"3:3: the key is there twice, first on line 2", "entities:\n  sk-live-acme: {access: bypass}\n  \"sk-live-acme\": {access: bypass}\n"},
	{"1:3: a key is a text, not a list", "? [a]\n: b\n"},
	{"1:1: a key is a text, not nothing", "~: b\n"},
	{"1:1: a key is a text, not a value of another type", "!x namespace: b\n"},
	{"2:3: unknown key \"access\"; there may be limits", "system:\n  access: disabled\n"},
	{"3:5: unknown key \"disabled\"; there may be limits, access, cascade", "resources:\n  gpt-4:\n    disabled: true\n"},
	{"3:5: unknown key; there may be limits, access, cascade, resources", "entities:\n  sk-live-acme:\n    sk-live-acme: {}\n"},
	{"4:7: unknown key \"refil\"; there may be capacity, refill, period, resets, window, schedule, zone, soft, division", limitOf("refil: 5")},
	{"4:20: unknown key \"tz\"; there may be cron, scale, capacity, refill, period", "system:\n  limits:\n    x: {capacity: 1,\n      schedule: [{ tz: UTC}]}\n"},

	{"1:1: unknown key \"Namespaces\"; there may be namespace,", "Namespaces: a\n"},
	{"4:7: unknown key \"limit\"; there may be limits", "resources:\n  gpt-4:\n    cascade: true\n    ? limit\n    : 5\n"},
	{"3:5: unknown key; there may be limits", "resources:\n  gpt-4:\n    sk-live-acme: {limits: {x: 5 per minute}}\n"},
	{"3:5: unknown key; there may be limits", "resources:\n  gpt-4:\n    acme: {limits: {x: 5 per minute}}\n"},
	{"4:7: unknown key; there may be capacity", limitOf("sk-live-acme: 5")},
	{"4:7: unknown key \"Capacity\"; there may be capacity", limitOf("Capacity: 5")},

	// Names.
	{"2:3: an entity's id has up to 256 letters", "entities:\n  'sk/live': {access: bypass}\n"},
	{"2:3: a resource has up to 64 letters", "resources:\n  4gpt: {access: bypass}\n"},
	{`1:34: malformed limit: the name "wcu" is reserved, as are wcu and those of usage items' attributes: PK, SK, `, "resources: {gpt-4: { limits:   { wcu: 5 per minute}}}"},
	{"1:20: malformed limit: no limit has this name", "system: { limits: {a b: 5 per minute}}"},

	// Values.
	{"1:12: a text belongs here, not a number", "namespace: 5\n"},
	{"1:12: a text belongs here, not nothing", "namespace: ''\n"},
	{"1:8: a mapping belongs here, not nothing", "system:\n"},
	{"1:1: it says nothing: leave it out", "system: {}\n"},
	{"2:3: it says nothing: leave it out", "entities:\n  sk-live-acme: {}\n"},
	{"3:13: it names no limit: leave it out", "resources:\n  gpt-4:\n    limits: {}\n"},
	{"1:29: one of bypass, disabled, enabled belongs here", "entities: {a:    { access:  sk-live-acme}}"},
	{"1:30: one of bypass, disabled, enabled belongs here", "entities: {a:    { access:   true}}"},
	{"1:29: true or false belongs here, not a text", "resources: {gpt: { cascade: 'true'}}"},
	{"3:8: a limit is a mapping, or a text such as 60 per minute", "system:\n  limits:\n    x: 5\n"},
	{"3:8: a limit is a mapping, or a text such as 60 per minute", "system:\n  limits:\n    x: 5 per week\n"},
	{"3:8: a limit is a mapping, or a text such as 60 per minute (or second, hour, day)\n", "system:\n  limits:\n    x: sk-live-acme\n"},
	{`3:8: a limit is a mapping, or a text such as 60 per minute (or second, hour, day); for a month: {capacity: 1000000, resets: ["0 0 1 * *"]}`, "system:\n  limits:\n    x: 1000000 per month\n"},
	{`3:8: a limit is a mapping, or a text such as 60 per minute (or second, hour, day); for a month: {capacity: 1_000, resets: ["0 0 1 * *"]}`, "system:\n  limits:\n    x: 1_000\n"},
	{`3:8: a limit is a mapping, or a text such as 60 per minute (or second, hour, day); for a week: {capacity: 5, resets: ["0 0 * * 1"]}`, "system:\n  limits:\n    x: 5 per week\n"},
	{`3:8: a limit is a mapping, or a text such as 60 per minute (or second, hour, day); for a year: {capacity: 5, resets: ["0 0 1 1 *"]}`, "system:\n  limits:\n    x: 5 per year\n"},
	{`3:8: a limit is a mapping, or a text such as 60 per minute (or second, hour, day); for a month: {capacity: 1000000, resets: ["0 0 1 * *"]}`, "system:\n  limits:\n    x: '@monthly'\n"},
	{`4:16: malformed limit: @hourly is no cron expression here: write "0 * * * *"`, limitOf("resets: ['@hourly']")},
	{`3:8: it is no YAML: found character that cannot start any token; for a month: {capacity: 1000000, resets: ["0 0 1 * *"]}`, "system:\n  limits:\n    x: @monthly\n"},
	{"3:8: it is no YAML: found character that cannot start any token\n", "system:\n  limits:\n    x: @acme\n"},
	{"3:8: the number is too large", "system:\n  limits:\n    x: 99999999999999999999 per minute\n"},
	{"4:17: a whole number belongs here", limitOf("capacity: 1.5")},
	{"4:17: a whole number belongs here", limitOf("capacity: '5'")},
	{"4:17: a whole number belongs here", limitOf("capacity: 0x10")},
	{"4:17: a whole number belongs here", limitOf("capacity: 010")},
	{"4:17: the number is too large", limitOf("capacity: 99999999999999999999")},
	{"5:15: a duration such as 1d, 5h, 1m or 1m30s belongs here", limitOf("capacity: 5", "period: 60s60s")},
	{"5:15: a duration such as 1d, 5h, 1m or 1m30s belongs here", limitOf("capacity: 5", "period: 60")},
	{"5:15: a duration is within 1 and 1000000000 seconds", limitOf("capacity: 5", "period: 0s")},
	{"5:15: a duration is within 1 and 1000000000 seconds", limitOf("capacity: 5", "period: 9999999999d")},
	{"5:13: true or false belongs here, not a number", limitOf("capacity: 5", "soft: 1")},
	{"5:17: one of divided, gathered, replicated belongs here", limitOf("capacity: 5", "division: split")},
	{"4:15: a list belongs here, not a text", limitOf("resets: 0 0 1 * *")},
	{"4:15: the list is empty: leave it out", limitOf("resets: []")},
	{"4:16: a text belongs here, not a number", limitOf("resets: [5]")},
	{"5:15: malformed limit: ", limitOf("resets: [0 0 1 * *,", "        61 0 1 * *]")},
	{"4:18: a cron expression is missing", limitOf("schedule: [{scale: 0.5}]")},
	{"4:18: malformed limit: schedule entry 0: ", limitOf("schedule: [{cron: 0 0, scale: 0.5}]")},
	{"4:18: malformed limit: ", limitOf("schedule: [{cron: '* * * * *', scale: 0.5, capacity: 5}]")},
	{"4:45: a number such as 0.5 belongs here", limitOf("schedule: [{cron: '* 1 * * *', scale: 1e3}]")},
	{"4:45: a number such as 0.5 belongs here", limitOf("schedule: [{cron: '* 1 * * *', scale: 0.0005}]")},
	{"4:45: the scale is above 0", limitOf("schedule: [{cron: '* 1 * * *', scale: 0.0}]")},
	{"4:48: a whole number above 0 belongs here", limitOf("schedule: [{cron: '* 1 * * *', capacity: 0}]")},

	// Limits that are none.
	{"4:7: a capacity is missing", limitOf("period: 1m")},
	{"4:7: a period is missing, or resets or a window for a quota", limitOf("capacity: 5")},
	{"4:7: a quota, which has resets or a window, has no refill and no period", limitOf("capacity: 5", "window: 1h", "period: 1m")},
	{"4:7: a zone is for resets or a schedule, and there is neither", limitOf("capacity: 5", "window: 1h", "zone: UTC")},
	{`4:7: malformed limit "x": the capacity 0 is not within 1 and 1000000000000000 tokens`, limitOf("capacity: 0", "window: 1h")},
	{`4:7: malformed limit "x": a quota has Resets or a Window, not both`, limitOf("capacity: 5", "window: 1h", "resets: [0 0 1 * *]")},
	{`4:7: malformed limit "x": the time zone "Mars/Olympus" is unknown`, limitOf("capacity: 5", "resets: [0 0 1 * *]", "zone: Mars/Olympus")},
	{`4:7: malformed limit "x": a reset at every minute never begins`, limitOf("capacity: 5", "resets: ['* * * * *']")},
	{`4:7: malformed limit "x": a quota has no Refill, in a schedule neither`, limitOf("capacity: 5", "window: 1h", "schedule: [{cron: '* 1 * * *', refill: 5}]")},
	{`4:7: malformed limit "x": `, limitOf("capacity: 5", "window: 1h", "division: replicated")},
	{`1:18: malformed limit "y": its zone is "Asia/Tokyo", that of another one "UTC"; a bucket has one zone`,
		"system: {limits: {x: {capacity: 5, resets: [0 0 1 * *]}, y: {capacity: 5, resets: [0 0 1 * *], zone: Asia/Tokyo}}}"},
}

// What is malformed is said with its place and cause, and without an id.
func TestMalformed(t *testing.T) {
	for _, test := range malformed {
		m, err := Read(strings.NewReader(test.text), "limits.yaml")
		switch {
		case m != nil || !errors.Is(err, ErrManifest):
			t.Errorf("%q: got %v, %v", test.text, m, err)
		case !strings.HasPrefix(err.Error()+"\n", "limits.yaml:"+test.says):
			t.Errorf("%q:\n got %v\nwant %s", test.text, err, test.says)
		case strings.Contains(err.Error(), acme):
			t.Errorf("%q: an id is in %v", test.text, err)
		case strings.Contains(test.says, "malformed limit") != errors.Is(err, limits.ErrLimit):
			t.Errorf("%q: %v is a limit's error: %v", test.text, err, errors.Is(err, limits.ErrLimit))
		}
	}
}

// Every name that is said to be reserved is, and is said to be.
func TestReservedNames(t *testing.T) {
	_, err := Read(strings.NewReader("system: {limits: {ttl: 5 per minute}}"), "f")
	if err == nil {
		t.Fatal("ttl is a limit")
	}
	_, list, ok := strings.Cut(strings.ReplaceAll(err.Error(), " to ", ", GSI2PK, GSI2SK, GSI3PK, GSI3SK, "), "attributes: ")
	names := append(strings.Split(list, ", "), "wcu")
	if !ok || len(names) != 17 {
		t.Fatalf("got %q", names)
	}
	for _, name := range names {
		_, err := Read(strings.NewReader("system: {limits: {"+name+": 5 per minute}}"), "f")
		if want := fmt.Sprintf("f:1:19: malformed limit: the name %q is reserved, ", name); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// Aliases are followed, as far as that stays small.
func TestAliases(t *testing.T) {
	m, err := Read(strings.NewReader("system: &all\n  limits: {rpm: 5 per minute}\nresources:\n  gpt-4: *all\n  claude: *all\n"), "f")
	if err != nil || len(m.Levels) != 3 || !m.Levels[2].Equal(m.Levels[0].Rules) || m.Levels[2].Line != 4 {
		t.Errorf("got %+v, %v", m, err)
	}
	var b strings.Builder
	b.WriteString("system:\n  limits: &many\n")
	for i := range 30 {
		fmt.Fprintf(&b, "    l%d: {capacity: 1, period: 1s}\n", i)
	}
	b.WriteString("resources:\n")
	for i := range 4000 {
		fmt.Fprintf(&b, "  r%d: {limits: *many}\n", i)
	}
	if _, err := Read(strings.NewReader(b.String()), "f"); !errors.Is(err, ErrManifest) || !strings.Contains(err.Error(), "aliases add more than 100000 keys and values") {
		t.Errorf("got %v", err)
	}
}

// A file that is too long is not parsed.
func TestTooLong(t *testing.T) {
	_, err := Read(strings.NewReader(strings.Repeat("#\n", 9<<20)), "f")
	if !errors.Is(err, ErrManifest) || err.Error() != "f:1:1: it is longer than 16 MiB" {
		t.Errorf("got %v", err)
	}
}
