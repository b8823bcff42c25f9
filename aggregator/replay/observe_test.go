package replay

import (
	"context"
	"reflect"
	"testing"

	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/memory"
)

// images checks that what an observer is told of each bucket is one unbroken
// story: each write begins where the one before it ended.
type images struct {
	t        *testing.T
	last     map[table.Key]*table.Image
	told     int
	consumed map[string]int64
}

func newImages(t *testing.T) *images {
	return &images{t: t, last: map[table.Key]*table.Image{}, consumed: map[string]int64{}}
}

func (i *images) observe(at int64, before, after *table.Image) {
	i.told++
	key := i.key(before, after)
	if last, ok := i.last[key]; ok && !sameItem(last, before) {
		i.t.Errorf("write %d at %d does not begin where the last one of shard %d ended", i.told, at, key.Shard)
	}
	i.last[key] = after
	for l := range after.Limits {
		limit := &after.Limits[l]
		consumed := limit.Consumed
		if before != nil && before.Limit(limit.Name) != nil {
			consumed -= before.Limit(limit.Name).Consumed
		}
		i.consumed[limit.Name] += consumed
	}
}

func (i *images) key(before, after *table.Image) table.Key {
	if after == nil {
		after = before
	}
	return after.Key
}

func sameItem(a, b *table.Image) bool {
	return a == nil && b == nil || a != nil && b != nil && reflect.DeepEqual(itemOf(a), itemOf(b))
}

func itemOf(i *table.Image) table.Item {
	b, err := i.DecodeFull()
	if err != nil {
		return nil
	}
	return b.Item
}

// An observer of a table in memory sees everything that becomes of it, whoever
// wrote: at the end its images are the table, and what they consumed is what was
// counted. Delivering twice shows it nothing more.
func TestObserveInMemory(t *testing.T) {
	for name, redeliver := range map[string]bool{"quota-walk": false, "session": true} {
		seen, store := newImages(t), memory.New()
		run := InMemory(store)
		run.Aggregator.Windows = []events.Window{events.Daily}
		run.Observe, run.Redeliver = seen.observe, redeliver
		report, err := run.Run(context.Background(), &list{recording(t, "../../testdata/"+name+".jsonl.gz")})
		if err != nil {
			t.Fatal(err)
		}
		if want := map[string]int{"quota-walk": 8, "session": 2}[name]; len(seen.last) != want {
			t.Errorf("%d buckets were seen, want %d", len(seen.last), want)
		}
		for key, b := range seen.last {
			if stored, err := store.Read(context.Background(), key); err != nil || !sameItem(stored.Image(), b) {
				t.Errorf("the last image of shard %d is not the table's", key.Shard)
			}
		}
		for _, usage := range report.Usage {
			for limit, counted := range usage.Counters {
				if seen.consumed[limit] != counted {
					t.Errorf("%s: the images consumed %d of %s, %d were counted", name, seen.consumed[limit], limit, counted)
				}
			}
		}
	}
}

// What an operator does, what is deleted and what a window does is one unbroken
// story too, and so is a dry run, in which the aggregator does nothing.
func TestObserveStories(t *testing.T) {
	for _, name := range []string{"operator", "mixed", "session"} {
		for _, dry := range []bool{false, true} {
			told := map[table.Key]*table.Image{}
			run := InMemory(memory.New())
			run.DryRun = dry
			run.Observe = func(_ int64, before, after *table.Image) {
				key := (&images{}).key(before, after)
				if last, ok := told[key]; ok && !sameItem(last, before) {
					t.Errorf("%s, dry %v: a write of shard %d does not begin where the last one ended", name, dry, key.Shard)
				}
				told[key] = after
			}
			if _, err := run.Run(context.Background(), &list{recording(t, "../../testdata/"+name+".jsonl.gz")}); err != nil {
				t.Fatal(err)
			}
			if len(told) == 0 {
				t.Errorf("%s: nothing was observed", name)
			}
		}
	}
}

// Over a real table, which has gone on since, the observer is told what the
// recording says, once.
func TestObserveAgain(t *testing.T) {
	records := recording(t, "../../testdata/session.jsonl.gz")
	store := memory.New()
	seen := newImages(t)
	run := Again(store, func(_ context.Context, pk, sk string) (table.Item, error) { return store.Get(pk, sk), nil })
	run.Aggregator.Windows = []events.Window{events.Daily}
	run.Observe, run.Redeliver = seen.observe, true
	if _, err := run.Run(context.Background(), &list{records}); err != nil {
		t.Fatal(err)
	}
	changes := 0
	for _, record := range records {
		if change, err := events.Decode(record); err == nil && change != nil {
			changes++
		}
	}
	if seen.told != changes || changes == 0 {
		t.Errorf("%d writes were told of, want the recording's %d", seen.told, changes)
	}
	if seen.consumed["sess"] != 1_362_000 {
		t.Errorf("%d of sess consumed, want 1362000", seen.consumed["sess"])
	}
}
