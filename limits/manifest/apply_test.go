package manifest_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/shardquota/shardquota/limiter"
	"github.com/shardquota/shardquota/limits"
	. "github.com/shardquota/shardquota/limits/manifest"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/memory"
)

const three = `
system: {limits: {rpm: 60 per minute}}
resources: {gpt-4: {limits: {rpm: 100 per minute, tpm: {capacity: 9000, refill: 900, period: 10s}}}}
entities: {sk-live-acme: {access: disabled, resources: {gpt-4: {cascade: false}}}}
`

// Applied again, a manifest writes nothing.
func TestIdempotent(t *testing.T) {
	everywhere(t, func(w *world) {
		m := w.read(three)
		// Each level is written, registered (but that of all), and marked as done.
		if writes := w.apply(m); writes != 2+3+3+3 {
			w.Errorf("the first time wrote %d items, want 11", writes)
		}
		plan := w.compare(m)
		if !plan.Empty() || plan.Count(Unchanged) != 4 {
			w.Errorf("the second plan is %+v", plan.Changes)
		}
		w.shows(plan, "0 to add, 0 to change, 0 to remove, 4 unchanged\n")
		if writes := w.apply(m); writes != 0 {
			w.Errorf("the second time wrote %d items", writes)
		}
		if writes := w.apply(m, Prune()); writes != 0 {
			w.Errorf("with prune it wrote %d items", writes)
		}
	})
}

// A plan shows what comes, goes and changes, and nothing of what stays.
func TestPlan(t *testing.T) {
	everywhere(t, func(w *world) {
		w.apply(w.read(three))
		plan := w.compare(w.read(`
resources: {gpt-4: {limits: {rpm: {capacity: 120, refill: 100, period: 1m, soft: true}, calls: {capacity: 5, resets: ["0 0 1 JAN *"]}}}}
entities:
  sk-live-acme: {access: bypass, cascade: true}
  sk-live-beta: {limits: {rpm: 5 per day}}
`))
		before := w.writes
		w.shows(plan, `~ resource gpt-4
    + calls: {capacity: 5, resets: ["0 0 1 1 *"]}
    ~ rpm capacity: 100 → 120
    + rpm soft: true
    - tpm: {capacity: 9000, refill: 900, period: 10s}
~ entity sk-live-acme
    ~ access: disabled → bypass
    + cascade: true
+ entity sk-live-beta
    + rpm: 5 per day

1 to add, 2 to change, 0 to remove, 0 unchanged
`)
		if w.writes != before {
			w.Errorf("a plan wrote %d items", w.writes-before)
		}
		if line := plan.Changes[2].Line; line != 5 {
			w.Errorf("sk-live-beta is on line %d, not 5", line)
		}
	})
}

// What a manifest does not name is left alone, unless it is pruned or an earlier
// manifest named it.
func TestPrune(t *testing.T) {
	everywhere(t, func(w *world) {
		levels := func() (at []string) {
			for _, level := range w.export().Levels {
				at = append(at, fmt.Sprint(level.At.Entity(), "/", level.At.Resource()))
			}
			return at
		}
		expect := func(what string, want ...string) {
			w.Helper()
			if got := levels(); !slices.Equal(got, want) {
				w.Errorf("%s: stored %q, want %q", what, got, want)
			}
		}
		first, less := w.read(three), w.read("system: {limits: {rpm: 60 per minute}}")
		w.apply(first)
		other := w.read("resources: {claude: {access: disabled}}")
		w.apply(other)
		w.apply(less)
		expect("left alone", "/", "/claude", "/gpt-4", "sk-live-acme/", "sk-live-acme/gpt-4")
		w.shows(w.compare(less, Was(first)), `- resource gpt-4
    - rpm: 100 per minute
    - tpm: {capacity: 9000, refill: 900, period: 10s}
- entity sk-live-acme
    - access: disabled
- entity sk-live-acme, resource gpt-4
    - cascade: false

0 to add, 0 to change, 3 to remove, 1 unchanged
`)
		w.apply(less, Was(first))
		expect("of the earlier manifest", "/", "/claude")
		if writes := w.apply(less, Was(first)); writes != 0 {
			w.Errorf("once more writes %d items", writes)
		}
		w.apply(less, Prune())
		expect("pruned", "/")
		w.apply(w.read("{}"), Prune())
		expect("all of it")
	})
}

// A table that was declared and pruned is as it was before.
func TestPrunedLeavesNothing(t *testing.T) {
	w := worldOf(t, newMemory())
	w.apply(exampleManifest(t))
	w.apply(w.read("{}"), Prune())
	for _, sk := range []string{"#RESOURCES", "#ENTITY_CONFIG_RESOURCES"} {
		items, err := w.Client.Items(t.Context(), []table.ItemKey{{PK: "ns1/SYSTEM#", SK: sk}})
		w.noError(err)
		if len(items[0]) != 4 { // its keys
			t.Errorf("%s holds %v", sk, items[0])
		}
	}
	items, err := w.Client.Items(t.Context(), []table.ItemKey{{PK: "ns1/SYSTEM#", SK: "#CONFIG"}, {PK: "ns1/ENTITY#acme", SK: "#CONFIG#gpt-4"}})
	w.noError(err)
	if items[0] != nil || items[1] != nil {
		t.Errorf("left: %v", items)
	}
}

// A change reaches the buckets that are there, and what it removes leaves them to
// the next level.
func TestAppliedToLiveBuckets(t *testing.T) {
	everywhere(t, func(w *world) {
		capacity := func() int64 {
			w.Helper()
			lease, err := w.limiter.Acquire(w.Context(), acme, model, limiter.Amounts{"rpm": 0})
			w.noError(err)
			w.noError(lease.Release(w.Context()))
			key := table.Group{Namespace: "ns1", Entity: acme, Resource: model}.At(0)
			b, err := w.Client.Read(w.Context(), key)
			w.noError(err)
			return b.Limit("rpm").Base.Capacity / 1000
		}
		for _, step := range []struct {
			text string
			want int64
		}{
			{"system: {limits: {rpm: 60 per minute}}", 60},
			{"system: {limits: {rpm: 70 per minute}}", 70},
			{"system: {limits: {rpm: 70 per minute}}\nentities: {sk-live-acme: {limits: {rpm: 5 per second}}}", 5},
			{"system: {limits: {rpm: 80 per minute}}", 80},
		} {
			w.apply(w.read(step.text), Prune())
			if got := capacity(); got != step.want {
				w.Errorf("%s: the bucket's capacity is %d, want %d", step.text, got, step.want)
			}
		}
		w.apply(w.read("system: {limits: {rpm: 80 per minute}}\nresources: {gpt-4: {access: disabled}}"))
		if _, err := w.limiter.Acquire(w.Context(), acme, model, limiter.Amounts{"rpm": 1}); !errors.Is(err, limiter.ErrDisabled) {
			w.Errorf("disabled: %v", err)
		}
	})
}

// A level that someone changes between plan and apply is left as he made it, and
// those before it are done.
func TestStale(t *testing.T) {
	const next = `
system: {limits: {rpm: 90 per minute}}
resources: {gpt-4: {limits: {rpm: 101 per minute}}}
entities: {sk-live-acme: {limits: {rpm: 5 per minute}}}
`
	gpt4 := limits.ForResource(model)
	for name, meanwhile := range map[string]func(w *world) error{
		"another limit": func(w *world) error {
			return w.store.SetLimits(w.Context(), gpt4, limits.PerMinute("rpm", 100), limits.PerMinute("other", 1))
		},
		"access": func(w *world) error { return w.store.SetAccess(w.Context(), gpt4, limits.Disabled) },
		"gone":   func(w *world) error { return w.store.DeleteLimits(w.Context(), gpt4) },
		"applied": func(w *world) error {
			return w.compare(w.read("resources: {gpt-4: {limits: {rpm: 102 per minute}}}")).Apply(w.Context())
		},
	} {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(w *world) {
				w.apply(w.read(three))
				plan := w.compare(w.read(next))
				w.noError(meanwhile(w))
				was, err := w.store.Stored(w.Context(), gpt4)
				w.noError(err)
				err = plan.Apply(w.Context())
				var failed *ApplyError
				if !errors.Is(err, limits.ErrStale) || !errors.As(err, &failed) {
					w.Fatalf("got %v", err)
				}
				if want := "limits.yaml:3: resource gpt-4: store limits: stored otherwise meanwhile (1 made before it, 1 left)"; err.Error() != want {
					w.Errorf("got %v\nwant %s", err, want)
				}
				if len(failed.Done) != 1 || failed.Done[0].At != limits.ForEntity(acme) || len(failed.Left) != 1 || failed.Failed.At != gpt4 {
					w.Errorf("got %+v", failed)
				}
				is, err := w.store.Stored(w.Context(), gpt4, limits.ForAll(), limits.ForEntity(acme))
				w.noError(err)
				if !is[0].Rules.Equal(was[0].Rules) || is[1].Limits[0].Capacity != 60 || is[2].Access != limits.Inherit {
					w.Errorf("stored %+v", is)
				}
				w.apply(w.read(next)) // a new plan knows
				if !w.compare(w.read(next)).Empty() {
					w.Error("the next plan is not done either")
				}
			})
		})
	}
}

// One that comes between plan and apply is stale, too, and so is one that someone
// changes in the moment in which it is written.
func TestStaleAtTheLastMoment(t *testing.T) {
	for _, test := range []struct{ name, first, rival string }{
		{"a level that is new", "system: {limits: {x: 1 per day}}", "resources: {gpt-4: {limits: {rpm: 8 per minute}}}"},
		{"the same of one that is there", three, "resources: {gpt-4: {limits: {rpm: 8 per minute}}}"},
		{"something else of it", three, "resources: {gpt-4: {access: disabled, limits: {rpm: 100 per minute, tpm: {capacity: 9000, refill: 900, period: 10s}}}}"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := worldOf(t, newMemory())
			w.apply(w.read(test.first))
			plan := w.compare(w.read("resources: {gpt-4: {limits: {rpm: 7 per minute}}}"))
			rival := worldOf(t, w.Client)
			theirs := rival.read(test.rival)
			w.fail = func(operation, pk string) error { // the level was read and found to be as it was
				if pk == "ns1/RESOURCE#gpt-4" {
					w.fail = nil
					rival.apply(theirs)
				}
				return nil
			}
			if err := plan.Apply(t.Context()); !errors.Is(err, limits.ErrStale) {
				t.Fatalf("got %v", err)
			}
			stored := w.export().Levels[1] // so it is registered
			if stored.At != limits.ForResource(model) || !stored.Equal(theirs.Levels[0].Rules) {
				t.Errorf("stored %+v", stored)
			}
		})
	}
}

// Limits that someone sets while others are being removed from the buckets stay.
func TestSetWhileRemoved(t *testing.T) {
	w := worldOf(t, newMemory())
	w.apply(w.read("system: {limits: {rpm: 60 per minute}}\nresources: {gpt-4: {limits: {rpm: 100 per minute}}}"))
	_, err := w.limiter.Acquire(t.Context(), acme, model, limiter.Amounts{"rpm": 1})
	w.noError(err)
	rival, at := worldOf(t, w.Client), limits.ForResource(model)
	w.fail = func(operation, pk string) error {
		if strings.Contains(pk, "/BUCKET#") {
			w.fail = nil
			rival.noError(rival.store.SetLimits(t.Context(), at, limits.PerMinute("rpm", 8)))
		}
		return nil
	}
	w.apply(w.read("system: {limits: {rpm: 60 per minute}}"), Prune())
	limits, err := w.store.Limits(t.Context(), at)
	w.noError(err)
	if len(limits) != 1 || limits[0].Capacity != 8 || len(w.export().Levels) != 2 {
		t.Errorf("stored %+v", limits)
	}
}

// Whichever write fails, no level is half done, the error says how far it came,
// and applying again does the rest, on the buckets as well.
func TestCutShort(t *testing.T) {
	const next = `
system: {limits: {rpm: 61 per minute, other: 5 per minute}}
resources: {claude: {access: disabled}}
entities: {sk-live-acme: {limits: {rpm: 7 per minute}, access: enabled}}
`
	failure := errors.New("out of order")
	for cut := 0; ; cut++ {
		w := worldOf(t, newMemory())
		w.apply(w.read(three))
		bucket := table.Group{Namespace: "ns1", Entity: "sk-live-beta", Resource: "claude"}.At(0)
		_, err := w.limiter.Acquire(t.Context(), bucket.Entity, bucket.Resource, limiter.Amounts{"rpm": 1})
		w.noError(err)
		before := map[limits.Level]limits.Rules{}
		for _, level := range w.export().Levels {
			before[level.At] = level.Rules
		}
		m, left := w.read(next), cut
		w.fail = func(string, string) error {
			if left--; left < 0 {
				return failure
			}
			return nil
		}
		err = w.compare(m, Prune()).Apply(t.Context())
		w.fail = nil
		if err == nil {
			if cut < 14 {
				t.Errorf("it took %d writes, fewer than there are to make", cut)
			}
			return
		}
		var failed *ApplyError
		if !errors.Is(err, failure) || !errors.As(err, &failed) || len(failed.Done)+1+len(failed.Left) != 5 || strings.Contains(err.Error(), acme) {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		after := map[limits.Level]limits.Rules{}
		for _, level := range m.Levels {
			after[level.At] = level.Rules
		}
		stored, err := w.store.Levels(t.Context())
		w.noError(err)
		for _, level := range stored {
			if !level.Rules.Equal(before[level.At]) && !level.Rules.Equal(after[level.At]) {
				t.Errorf("cut at %d: %v is neither as before nor as after: %+v", cut, level.At, level.Rules)
			}
		}
		w.apply(m, Prune())
		b, err := w.Client.Read(t.Context(), bucket)
		w.noError(err)
		if capacity := b.Limit("rpm").Base.Capacity; capacity != 61_000 || b.Limit("other") == nil || !b.Disabled {
			t.Errorf("cut at %d: the bucket holds %d of rpm, disabled %v", cut, capacity, b.Disabled)
		}
		if got := w.export(); !got.Equal(m) {
			t.Errorf("cut at %d: stored %+v", cut, got)
		}
		if !w.compare(m, Prune()).Empty() {
			t.Errorf("cut at %d: the next plan is not empty", cut)
		}
		for _, item := range w.Client.(*memory.Client).Store.Items() {
			if pk, sk := item.Key(); item["spread_pending"] != nil {
				t.Errorf("cut at %d: %s %s is marked still", cut, pk, sk)
			}
		}
	}
}

// A plan says of a level that it was not brought to all buckets.
func TestPending(t *testing.T) {
	w := worldOf(t, newMemory())
	m := w.read("resources: {gpt-4: {limits: {rpm: 5 per minute}}}")
	writes := 0
	w.fail = func(string, string) error {
		if writes++; writes == 3 { // the registry, the level, and the end of its mark
			return errors.New("out of order")
		}
		return nil
	}
	if err := w.compare(m).Apply(t.Context()); err == nil {
		t.Fatal("it was applied")
	}
	w.fail = nil
	w.shows(w.compare(m), `~ resource gpt-4
    ~ to be brought to all buckets: the last change was cut short

0 to add, 1 to change, 0 to remove, 0 unchanged
`)
	if report := w.compare(m).Report(strings.ToUpper); len(report.Levels) != 1 || !report.Levels[0].Pending {
		t.Errorf("got %+v", report)
	}
}
