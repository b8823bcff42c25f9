package manifest_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardquota/shardquota/limits"
	. "github.com/shardquota/shardquota/limits/manifest"
	"github.com/shardquota/shardquota/quota"
)

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// amount is a number of tokens of any size.
func amount(r *rand.Rand) int64 { return 1 + r.Int64N(pick[int64](r, 9, 1000, 1_000_000_000_000_000)) }

func seconds(r *rand.Rand) int64 {
	return pick(r, 1, 60, 3600, 86_400, 1+r.Int64N(100_000), 1+r.Int64N(1_000_000_000))
}

func randomCron(r *rand.Rand) string {
	return strings.Join([]string{
		pick(r, "0", "*/5", "1,2,30-40", "59"), pick(r, "*", "0", "9-17", "0-6/2"), pick(r, "*", "1", "1,15", "31"),
		pick(r, "*", "JAN", "mar-may", "12"), pick(r, "*", "MON-FRI", "0", "7", "1,SUN"),
	}, " ")
}

func randomEntry(r *rand.Rand, isQuota bool) quota.Entry {
	e := quota.Entry{Cron: randomCron(r)}
	if r.IntN(2) == 0 {
		e.Scale = 1 + r.Int64N(pick[int64](r, 999, 10_000, 1_000_000_000))
		return e
	}
	e.Capacity = amount(r)
	if r.IntN(2) == 0 {
		e.Period = seconds(r)
	}
	if !isQuota && r.IntN(2) == 0 {
		e.Refill = amount(r)
	}
	return e
}

// randomLimit is a limit of any kind, which may not be valid with others.
func randomLimit(r *rand.Rand, name, zone string) limits.Limit {
	l := limits.Limit{Name: name, Capacity: amount(r), Soft: r.IntN(3) == 0}
	l.Division = pick(r, quota.Divided, quota.Pooled)
	switch r.IntN(4) {
	case 0:
		for range 1 + r.IntN(3) {
			l.Resets = append(l.Resets, randomCron(r))
		}
	case 1:
		l.Window = time.Duration(seconds(r)) * time.Second
	case 2:
		l.Refill, l.Period = l.Capacity, pick(r, time.Second, time.Minute, time.Hour, 24*time.Hour)
	default:
		l.Refill, l.Period = amount(r), time.Duration(seconds(r))*time.Second
		l.Division = pick(r, quota.Divided, quota.Pooled, quota.Replicated)
	}
	for range pick(r, 0, 0, 1, 3) {
		l.Schedule = append(l.Schedule, randomEntry(r, l.Refill == 0))
	}
	if len(l.Resets)+len(l.Schedule) > 0 {
		l.Zone = zone
	}
	return l
}

var limitNames = []string{"rpm", "tpm", "a.b-c_d", "null", "true", "y", "No", "e1", "period", "x_cp"}

func randomRules(r *rand.Rand, at limits.Level) limits.Rules {
	var rules limits.Rules
	zone := pick(r, "", "UTC", "Europe/Berlin", "America/New_York")
	for _, name := range limitNames {
		if r.IntN(3) == 0 {
			rules.Limits = append(rules.Limits, randomLimit(r, name, zone))
		}
	}
	if at == limits.ForAll() {
		return rules
	}
	rules.Access = pick(r, limits.Inherit, limits.Enabled, limits.Disabled, limits.Bypass)
	rules.Cascade = pick(r, nil, new(true), new(false))
	return rules
}

// randomManifest declares random rules on random levels, spelt in the limiter's
// own way.
func randomManifest(t testing.TB, r *rand.Rand) *Manifest {
	at := []limits.Level{limits.ForAll()}
	for range 8 {
		resource := pick(r, "gpt-4", "null", "a/b:c", "Yes", "y.1")
		entity := pick(r, "1", "0x1F", "1e3", "2026-12-01", "a:b@c", "true", "n")
		at = append(at, limits.ForResource(resource), limits.For(entity, resource), limits.ForEntity(entity))
	}
	slices.SortFunc(at, limits.CompareLevels)
	m := &Manifest{Namespace: pick(r, "", "default", "on")}
	for _, at := range slices.Compact(at) {
		rules := randomRules(r, at)
		if rules.Empty() || r.IntN(4) == 0 {
			continue
		}
		if len(rules.Limits) > 0 {
			var err error
			if rules.Limits, err = limits.Normal(rules.Limits...); err != nil {
				t.Fatalf("%+v: %v", rules.Limits, err)
			}
		}
		m.Levels = append(m.Levels, Level{At: at, Rules: rules})
	}
	return m
}

// Whatever can be declared comes back from a file and from a table, and changes
// nothing then.
func TestRandomRoundTrip(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds, which -short leaves out")
	}
	kinds := map[string]int{}
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 6))
		w := worldOf(t, newMemory())
		m := randomManifest(t, r)
		if again := rewritten(t, m); !again.Equal(m) {
			t.Fatalf("seed %d: from a file %+v\nwant %+v", seed, again, m)
		}
		w.apply(randomManifest(t, r))
		w.apply(rewritten(t, m), Prune())
		exported, err := Export(t.Context(), w.store, m.Namespace)
		w.noError(err)
		if !exported.Equal(m) {
			t.Fatalf("seed %d: from the table %+v\nwant %+v", seed, exported, m)
		}
		if writes := w.apply(rewritten(t, exported), Prune()); writes != 0 {
			t.Fatalf("seed %d: the same again wrote %d items", seed, writes)
		}
		for _, level := range m.Levels {
			for _, l := range level.Limits {
				kinds[fmt.Sprintf("quota %v, window %v, schedule %v, %s", len(l.Resets) > 0, l.Window > 0, len(l.Schedule) > 0, l.Division)]++
			}
		}
	}
	if len(kinds) != 14 { // three kinds with or without a schedule, gathered or divided, and what drips replicated too
		t.Errorf("of the kinds of limit were there %v", kinds)
	}
}

// Whatever is read can be written, and is the same then; and whatever is refused
// names its place.
func FuzzRead(f *testing.F) {
	f.Add([]byte(three))
	for _, test := range malformed {
		f.Add([]byte(test.text))
	}
	f.Add([]byte("a: &a [*a]\n"))
	f.Add([]byte("system: &s {limits: *s}\n"))
	f.Add([]byte("system: !!map {limits: {x: !!str 5 per minute}}\n"))
	f.Add([]byte("%YAML 1.2\n---\nentities: {\"\\u0061\": {access: bypass}}\n..."))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := Read(bytes.NewReader(text), "limits.yaml")
		if err != nil {
			if m != nil || !strings.HasPrefix(err.Error(), "limits.yaml:") {
				t.Errorf("got %v, %v", m, err)
			}
			return
		}
		if again := rewritten(t, m); !again.Equal(m) {
			t.Errorf("got %+v\nwant %+v", again, m)
		}
	})
}
