package terminal

import (
	"bytes"
	"compress/gzip"
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/charmbracelet/colorprofile"

	"github.com/shardquota/shardquota/aggregator/replay"
	"github.com/shardquota/shardquota/cmd/shardquota/survey"
	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/internal/fixture"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/memory"
)

var update = flag.Bool("update", false, "write the golden drawings anew; review every line that changes")

const minute = 60 * fixture.Second

// Each drawing was reviewed by eye. None is wider than 80 columns, and without a
// terminal none holds an escape sequence.
func TestDrawings(t *testing.T) {
	for name, s := range map[string]*survey.Survey{
		"walk":      walked(t),
		"trouble":   trouble(t),
		"windows":   windows(t),
		"many":      many(t),
		"drips":     drips(t),
		"divisions": divisions(t),
		"readme":    sample(t),
	} {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			if err := Draw(&got, "entity-1 gpt-4", s); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", name+".txt")
			if *update {
				if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if got.String() != string(want) {
				t.Errorf("the drawing differs from %s; got\n%s", path, got.String())
			}
			for line := range strings.Lines(got.String()) {
				if width := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); width > 80 {
					t.Errorf("%d columns: %s", width, line)
				}
			}
			if strings.Contains(got.String(), "\x1b") {
				t.Error("the drawing holds escape sequences, and there is no terminal")
			}
		})
	}
}

// What README shows is what is drawn.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var drawn bytes.Buffer
	if err := Draw(&drawn, "entity-1 gpt-4", sample(t)); err != nil {
		t.Fatal(err)
	}
	indented := strings.ReplaceAll("    "+strings.TrimSpace(strings.ReplaceAll(drawn.String(), "\n", "\n    ")), "    \n", "\n")
	if !strings.Contains(string(readme), indented) {
		t.Errorf("README.md does not hold\n%s", indented)
	}
}

// On a terminal what is wrong is red and loud; with NO_COLOR it is only bold.
func TestColours(t *testing.T) {
	for _, test := range []struct {
		name     string
		profile  colorprofile.Profile
		has, not string
	}{
		{"sixteen colours", colorprofile.ANSI, "\x1b[1;7;31mNOT CONSERVED", ""},
		{"NO_COLOR", colorprofile.ASCII, "\x1b[1;7mNOT CONSERVED", "31m"},
		{"no terminal", colorprofile.NoTTY, "NOT CONSERVED", "\x1b"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got bytes.Buffer
			if err := draw(&colorprofile.Writer{Forward: &got, Profile: test.profile}, "entity-1 gpt-4", trouble(t)); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(got.String(), test.has) {
				t.Errorf("does not hold %q:\n%q", test.has, got.String())
			}
			if test.not != "" && strings.Contains(got.String(), test.not) {
				t.Errorf("holds %q:\n%q", test.not, got.String())
			}
		})
	}
}

// What a name on the table would have a terminal do is not done.
func TestNamesThatATerminalObeys(t *testing.T) {
	name := "calls\x1b]0;owned\x07\x1b[2J\u202e"
	b := decoded(t, fixture.Bucket(fixture.Acme.At(0), fixture.Daily(name, 1000, 1000, 1)))
	s := survey.Take(survey.Found{Shards: []table.Sibling{{Bucket: b}}}, fixture.Noon)
	var got bytes.Buffer
	if err := draw(&colorprofile.Writer{Forward: &got, Profile: colorprofile.TrueColor}, "entity-1 gpt-4", s); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"\x1b]", "\x07", "\x1b[2J", "\u202e"} {
		if strings.Contains(got.String(), bad) {
			t.Errorf("the drawing holds %q", bad)
		}
	}
}

func decoded(t testing.TB, item table.Item) *table.Bucket {
	t.Helper()
	b, err := table.DecodeBucket(item)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// take surveys items and those faults that are given by shard.
func take(t testing.TB, now int64, broken map[int]error, items ...table.Item) *survey.Survey {
	t.Helper()
	found := survey.Found{Shards: make([]table.Sibling, quota.MaxShards)}
	for _, item := range items {
		b := decoded(t, item)
		found.Shards[b.Shard].Bucket = b
	}
	for shard, err := range broken {
		found.Shards[shard].Broken = err
	}
	return survey.Take(found, now)
}

// walked is a daily quota after it has gone from 1 shard to 8.
func walked(t testing.TB) *survey.Survey {
	file, err := os.Open("../../../testdata/quota-walk.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	plain, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	store := memory.New()
	run := replay.InMemory(store)
	run.Aggregator.Windows = []events.Window{events.Hourly, events.Daily}
	if _, err := run.Run(context.Background(), events.NewReader(plain, "quota-walk")); err != nil {
		t.Fatal(err)
	}
	found := survey.Found{Shards: make([]table.Sibling, quota.MaxShards)}
	for _, item := range store.Items() {
		if b, err := table.DecodeBucket(item); err == nil {
			found.Shards[b.Shard].Bucket = b
		} else if _, _, err := table.ParseUsage(item); err == nil {
			found.Usage = append([]table.Item{item}, found.Usage...)
		}
	}
	return survey.Take(found, 1796036350_000)
}

// trouble has something of everything that can be wrong.
func trouble(t testing.TB) *survey.Survey {
	at := fixture.Acme.At
	return take(t, fixture.Noon+90*fixture.Second, map[int]error{3: table.ErrItem},
		fixture.Bucket(at(0), fixture.Count(8), fixture.Daily("calls", 250_000, 8_000_000, 4), fixture.Attrs{"vu": 0, "b_wcu_tk": -150_000_000}),
		fixture.Bucket(at(1), fixture.Count(8), fixture.Daily("calls", 2_500_500, 8_000_000, 4), fixture.Attrs{"b_calls_tu": 600_000}),
		fixture.Bucket(at(4), fixture.Count(4), fixture.Daily("calls", 1_000_000, 8_000_000, 4), fixture.Attrs{"disabled": true}),
		fixture.Bucket(at(5), fixture.Count(8), fixture.Daily("calls", 900_000, 8_000_000, 8), fixture.Refilled(fixture.Midnight-fixture.Hour)),
	)
}

// windows are session windows in every state.
func windows(t testing.TB) *survey.Survey {
	at := fixture.Acme.At
	now := fixture.Noon + 10*minute
	return take(t, now, nil,
		fixture.Bucket(at(0), fixture.Count(4), fixture.Refilled(now), fixture.Hourly("sess", 950_000, 4_000_000, 4, fixture.Noon)),
		fixture.Bucket(at(1), fixture.Count(4), fixture.Hourly("sess", 100_000, 4_000_000, 4, fixture.Noon-2*fixture.Hour),
			fixture.Attrs{"b_sess_ws": fixture.Noon, "vu": 0}),
		fixture.Bucket(at(2), fixture.Count(4), fixture.Hourly("sess", 100_000, 4_000_000, 4, fixture.Noon-2*fixture.Hour)),
		fixture.Bucket(at(3), fixture.Count(4), fixture.Hourly("sess", 1_000_000, 4_000_000, 4, 0)))
}

// many is a quota on 32 shards, the last of which was never used.
func many(t testing.TB) *survey.Survey {
	var items []table.Item
	for shard := range quota.MaxShards - 1 {
		items = append(items, fixture.Bucket(fixture.Acme.At(shard), fixture.Count(32), fixture.Daily("calls", int64(100_000-3_000*shard), 3_200_000, 32)))
	}
	return take(t, fixture.Noon, nil, items...)
}

// drips are limits without a period: one under a schedule, one that is not
// enforced.
func drips(t testing.TB) *survey.Survey {
	return take(t, fixture.Noon, nil, fixture.Bucket(fixture.Acme.At(0),
		fixture.Drips("rpm", 400_000, 1_000_000), fixture.Attrs{"b_rpm_sched": "1h9-17w1-5s500", "sched_tz": "America/New_York"},
		fixture.Drips("tpm", 90_000_000, 90_000_000), fixture.Attrs{"b_tpm_soft": fixture.Noon + fixture.Hour}))
}

// divisions are limits that are not simply divided, one of which cannot be.
func divisions(t testing.TB) *survey.Survey {
	at := fixture.Acme.At
	says := fixture.Attrs{"b_rpm_div": "replicated", "b_calls_div": "gathered", "b_wrong_div": "replicated"}
	var items []table.Item
	for shard := range 2 {
		items = append(items, fixture.Bucket(at(shard), fixture.Count(2), fixture.Drips("rpm", 800_000, 1_000_000),
			fixture.Daily("calls", 400_000, 1_000_000, 2), fixture.Daily("wrong", 500_000, 1_000_000, 2), says))
	}
	return take(t, fixture.Noon, nil, items...)
}

// sample is a quota on 4 shards, one of which was not used yet.
func sample(t testing.TB) *survey.Survey {
	at, now := fixture.Acme.At, fixture.Noon+90*fixture.Second
	open := fixture.Attrs{"vu": fixture.Midnight + 24*fixture.Hour}
	found := survey.Found{Shards: make([]table.Sibling, quota.MaxShards)}
	for _, item := range []table.Item{
		fixture.Bucket(at(0), fixture.Count(4), open, fixture.Daily("calls", 1_250_000, 8_000_000, 1), fixture.Attrs{"b_wcu_tk": -89_690_000}),
		fixture.Bucket(at(1), fixture.Count(4), open, fixture.Daily("calls", 1_600_000, 8_000_000, 2), fixture.Refilled(now-50*fixture.Second)),
		fixture.Bucket(at(2), fixture.Count(4), open, fixture.Daily("calls", 1_950_000, 8_000_000, 4), fixture.Refilled(now-20*fixture.Second)),
	} {
		b := decoded(t, item)
		found.Shards[b.Shard].Bucket = b
	}
	seen := survey.Take(found, now)
	seen.Usage = []survey.Usage{
		{Window: "hourly", Start: "2026-12-01T12:00:00Z", Counters: map[string]string{"calls": "200"}, Events: "200"},
		{Window: "daily", Start: "2026-12-01T00:00:00Z", Counters: map[string]string{"calls": "3200"}, Events: "3200"},
	}
	return seen
}
