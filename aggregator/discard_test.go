package aggregator_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/memory"
)

// These tests are about batches that the event source gives up on: part of them
// may be counted, later records are counted before someone drives them again.

func TestUsageOfADiscardedBatch(t *testing.T) {
	w := newWorld(t)
	zero, batch := large(0), []aggregator.Delivery{}
	for i := range int64(6) {
		var d aggregator.Delivery
		d, zero = w.spend(noon+i, zero, "rpm", 1000<<i)
		batch = append(batch, d)
	}
	for _, step := range []struct {
		name       string
		batch      []aggregator.Delivery
		want       string
		duplicates int
		runs       int
	}{
		{"the first", batch[:1], "rpm 1, events 1", 0, 1},
		{"what came after a discarded batch", batch[4:5], "rpm 17, events 2", 0, 2},
		{"part of that batch", batch[2:3], "rpm 21, events 3", 0, 3},
		{"it goes on", batch[5:], "rpm 53, events 4", 0, 3},
		{"all of the batch", batch[1:4], "rpm 63, events 6", 1, 1},
		{"all of it again", batch[1:4], "rpm 63, events 6", 3, 1},
		{"everything again", batch, "rpm 63, events 6", 6, 1},
	} {
		report := w.sound(noon, step.batch...)
		eq(t, step.name, w.usage(acme, "hourly", atNoon), step.want)
		eq(t, step.name+": duplicates", report.Duplicates, step.duplicates)
		eq(t, step.name+": runs", len(w.counted(noon)[0]), step.runs)
	}
}

// counted is what the usage item of an hour has counted of each shard.
func (w *world) counted(at int64) map[int]table.SeenRecords {
	w.t.Helper()
	start := events.Hourly.Start(at)
	key := table.UsageKey{Group: acme, Window: "hourly", Start: events.Hourly.Text(start)}
	counted, err := w.store.Get(key.PK(), key.SK()).SeenRecords()
	if err != nil {
		w.t.Fatal(err)
	}
	return counted
}

// Several batches that were put together in any order leave the table that they
// leave in theirs.
func TestBatchInAnyOrder(t *testing.T) {
	for seed := range uint64(30) {
		w, other := newWorld(t), newWorld(t)
		batch := ten(w.stream)
		shuffled := slices.Clone(batch)
		rand.New(rand.NewPCG(seed, 6)).Shuffle(len(batch), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		w.sound(noon, batch...)
		report := other.sound(noon, append(shuffled, shuffled...)...)
		sameTable(t, fmt.Sprint("seed ", seed), dump(t, other.store), dump(t, w.store))
		eq(t, "duplicates", report.Duplicates, 9)
		if t.Failed() {
			return
		}
	}
}

// A bucket is looked after as its last write left it, wherever in the batch
// that is.
func TestLastWriteOfABatchInAnyOrder(t *testing.T) {
	empty := bucketItem(acme.At(0), drips("rpm", 0, 60_000))
	full := build(empty, attrs{"b_rpm_tk": 60_000, table.AttrRefilledAt: noon + hour})
	w := newWorld(t, full)
	spent, _ := w.spend(noon, build(empty, attrs{"b_rpm_tk": 1000}), "rpm", 1000)
	refill := w.write(noon+hour, empty, full)
	report := w.sound(noon+hour, refill, spent)
	eq(t, "passes", len(report.Passes)+report.PassesLost, 0)
	eq(t, "usage", w.usage(acme, "hourly", atNoon), "rpm 1, events 1")
}

// A record that does not decode leaves a gap, so that it is counted once it
// does.
func TestUsageOfARecordThatDidNotDecode(t *testing.T) {
	w := newWorld(t)
	a, zero := w.spend(noon, large(0), "rpm", 1000)
	b, zero := w.spend(noon, zero, "rpm", 2000)
	c, _ := w.spend(noon, zero, "rpm", 4000)
	broken := aggregator.Delivery{Record: b.Record, Err: events.ErrRecord}
	writes := 0
	w.fake.calls = func(string) { writes++ }
	w.sound(noon, a, broken, c)
	eq(t, "without", w.usage(acme, "hourly", atNoon), "rpm 5, events 2")
	eq(t, "writes", writes, 1)
	w.sound(noon, a, b, c)
	eq(t, "with", w.usage(acme, "hourly", atNoon), "rpm 7, events 3")
	eq(t, "runs", len(w.counted(noon)[0]), 1)
}

// What follows without a break is counted by one write, which reads nothing.
func TestUsageIsOneWriteInOrder(t *testing.T) {
	w := newWorld(t)
	batch, writes := ten(w.stream), 0
	w.fake.calls = func(string) { writes++ }
	for part := range slices.Chunk(batch, 3) {
		w.sound(noon, part...)
	}
	eq(t, "writes", writes, 3) // the last record consumes nothing
	eq(t, "usage", w.usage(acme, "hourly", atNoon), "rpm 6.5, tpm -0.25, events 7")
}

// A mark alone, without a total, is what was kept before there were runs: all
// up to it is counted, and what follows is.
func TestUsageAfterAMarkAlone(t *testing.T) {
	w := newWorld(t)
	a, zero := w.spend(noon, large(0), "rpm", 1000)
	b, zero := w.spend(noon, zero, "rpm", 2000)
	c, zero := w.spend(noon, zero, "rpm", 4000)
	d, _ := w.spend(noon, zero, "rpm", 8000)
	w.sound(noon, b)
	key := table.UsageKey{Group: acme, Window: "hourly", Start: atNoon}
	item := w.store.Get(key.PK(), key.SK())
	w.store.Put(build(item, attrs{"mark#0": b.Change.StreamPosition, "runs#0": nil}))
	w.sound(noon, d)
	eq(t, "usage", w.usage(acme, "hourly", atNoon), "rpm 10, events 2")
	report := w.sound(noon, a, b, c, d)
	eq(t, "usage of all", w.usage(acme, "hourly", atNoon), "rpm 14, events 3")
	eq(t, "duplicates", report.Duplicates, 3)
}

// A limit that was used for the first time and then removed leaves the totals
// as they were before. What is missing is missed all the same.
func TestUsageOfALimitThatWasRemoved(t *testing.T) {
	w := newWorld(t)
	a, zero := w.spend(noon, large(0), "rpm", 5000)
	b, zero := w.spend(noon, zero, "tpm", 700_000)
	without := attrs{}
	for name := range zero {
		if strings.HasPrefix(name, "b_tpm_") {
			without[name] = nil
		}
	}
	removed := build(zero, without)
	c := w.write(noon, zero, removed)
	d, _ := w.spend(noon, removed, "rpm", 1000)
	w.sound(noon, a)
	w.sound(noon, d) // b and c were given up on
	report := w.sound(noon, b, c)
	eq(t, "usage", w.usage(acme, "hourly", atNoon), "rpm 6, tpm 700, events 3")
	eq(t, "duplicates", report.Duplicates, 0)
}

// What is counted but cannot be read counts nothing twice, and says so.
func TestUsageWhereWhatIsCountedCannotBeRead(t *testing.T) {
	w := newWorld(t)
	a, zero := w.spend(noon, large(0), "rpm", 1000)
	b, _ := w.spend(noon, zero, "rpm", 2000)
	one, _ := w.spend(noon, large(1), "rpm", 4000)
	w.sound(noon, a)
	key := table.UsageKey{Group: acme, Window: "hourly", Start: atNoon}
	item := w.store.Get(key.PK(), key.SK())
	w.store.Put(build(item, attrs{"runs#0": "unreadable"}))
	report := w.process(noon, w.other(), a)
	eq(t, "failures", failed(report), "1 usage;")
	if err := report.Err(); !errors.Is(err, table.ErrItem) || errors.Is(err, table.ErrRetry) || strings.Contains(err.Error(), acme.Entity) {
		t.Errorf("error %v", err)
	}
	eq(t, "usage", w.usage(acme, "hourly", atNoon), "rpm 1, events 1")
	w.sound(noon, one)
	eq(t, "of another shard", w.usage(acme, "hourly", atNoon), "rpm 5, events 2")
	// Without the attribute all up to the mark is counted.
	w.store.Put(build(w.store.Get(key.PK(), key.SK()), attrs{"runs#0": nil}))
	report = w.sound(noon, a, b, one)
	eq(t, "mended", w.usage(acme, "hourly", atNoon), "rpm 7, events 3")
	eq(t, "duplicates", report.Duplicates, 2)
}

// A batch comes again from the first record of the usage that failed, whichever
// bucket that is of.
func TestUsageFailsFromItsFirstRecord(t *testing.T) {
	w := newWorld(t)
	idle := w.write(noon, large(0), build(large(0), attrs{table.AttrValidUntil: 7}))
	early, _ := w.spend(noon, large(1), "rpm", 1000)
	late, _ := w.spend(noon, build(large(0), attrs{table.AttrValidUntil: 7}), "rpm", 2000)
	w.fake.addUsage = func(context.Context, table.Usage) (table.UsageResult, error) {
		return table.UsageResult{}, table.ErrRetry
	}
	eq(t, "failures", failed(w.process(noon, idle, early, late)), "1 usage;")
}

// addUsage is the method of a table.
type addUsage func(context.Context, table.Usage) (table.UsageResult, error)

// feed is an event source that delivers a stream with all that can go wrong,
// and an operator who drives again what it gave up on.
type feed struct {
	*world
	r       *rand.Rand
	faults  int  // percent of the writes and of the deliveries that fail
	refunds int  // percent of the writes that give back
	recur   bool // all writes are of one limit and amount

	log       []aggregator.Delivery
	discarded [][]aggregator.Delivery
	sums      map[int64]map[string]int64 // consumption by hour and limit
	events    map[int64]int64
	gaps      int // the most gaps that a shard had at once
}

func newFeed(t testing.TB, seed uint64, wrap func(*memory.Store) addUsage) *feed {
	f := &feed{
		world: newWorld(t), r: rand.New(rand.NewPCG(seed, 7)), faults: 30, refunds: 20,
		sums: map[int64]map[string]int64{}, events: map[int64]int64{},
	}
	inner := wrap(f.store)
	f.fake.addUsage = func(ctx context.Context, u table.Usage) (table.UsageResult, error) {
		if f.chance(f.faults) {
			return table.UsageResult{}, table.ErrRetry
		}
		result, err := inner(ctx, u)
		if f.chance(f.faults) {
			return table.UsageResult{}, table.ErrRetry
		}
		return result, err
	}
	f.agg.Concurrency = 1
	return f
}

func (f *feed) chance(percent int) bool { return f.r.IntN(100) < percent }

// writeAll makes the stream: what clients write to three shards in two hours. No
// two sums of what is consumed are equal, or nearly all recur.
func (f *feed) writeAll() {
	at := noon + hour - 60*second
	var items [3]table.Item
	for range 60 {
		at += f.r.Int64N(4) * second
		shard := f.r.IntN(3)
		old := items[shard]
		limit, amount := []string{"rpm", "tpm"}[f.r.IntN(2)], 1+f.r.Int64N(1<<40)
		if f.recur {
			limit, amount = "rpm", 1000
		}
		switch {
		case old == nil:
			items[shard] = build(large(shard), attrs{table.Attr(limit, table.FieldConsumed): amount})
		case f.chance(15):
			items[shard] = build(old, attrs{table.AttrValidUntil: int(f.r.Int64N(1 << 40))})
			f.log = append(f.log, f.write(at, old, items[shard]))
			continue
		case f.chance(f.refunds):
			amount = -amount
			fallthrough
		default:
			b := decoded(f.t, old)
			items[shard] = build(old, attrs{table.Attr(limit, table.FieldConsumed): b.Limit(limit).Consumed + amount})
		}
		f.log = append(f.log, f.write(at, old, items[shard]))
		start := at - at%hour
		if f.sums[start] == nil {
			f.sums[start] = map[string]int64{}
		}
		f.sums[start][limit] += amount
		f.events[start]++
	}
}

// deliver is what Lambda does with a batch: again from the first failure, in
// halves, and in the end not at all. A batch may fail though all of it was
// done.
func (f *feed) deliver(batch []aggregator.Delivery, attempts int) {
	for ; attempts > 0; attempts-- {
		report := f.process(noon, batch...)
		f.look()
		first := len(batch)
		if len(report.Failures) > 0 {
			first = report.Failures[0].Index
		} else if f.chance(f.faults) {
			first = f.r.IntN(len(batch))
		}
		if batch = batch[first:]; len(batch) == 0 {
			return
		}
		if half := len(batch) / 2; half > 0 && f.chance(30) {
			f.deliver(batch[:half], attempts-1)
			f.deliver(batch[half:], attempts-1)
			return
		}
	}
	f.discarded = append(f.discarded, batch)
}

// look keeps how many gaps there were at most.
func (f *feed) look() {
	for _, at := range []int64{noon, noon + hour} {
		key := table.UsageKey{Group: acme, Window: "hourly", Start: events.Hourly.Text(events.Hourly.Start(at))}
		counted, _ := f.store.Get(key.PK(), key.SK()).SeenRecords()
		for _, runs := range counted {
			f.gaps = max(f.gaps, len(runs)-1)
		}
	}
}

// redrive drives some discarded batch again, or two at once in any order, or
// its halves, the later one first.
func (f *feed) redrive() {
	if len(f.discarded) == 0 {
		return
	}
	f.r.Shuffle(len(f.discarded), func(i, j int) { f.discarded[i], f.discarded[j] = f.discarded[j], f.discarded[i] })
	n := min(1+f.r.IntN(2), len(f.discarded))
	batch := slices.Concat(f.discarded[:n]...)
	f.discarded = slices.Clone(f.discarded[n:])
	if half := len(batch) / 2; half > 0 && f.chance(40) {
		f.deliver(batch[half:], 2)
		batch = batch[:half]
	}
	f.deliver(batch, 2)
}

// run delivers the stream and drives again all that was discarded, while the
// stream goes on and after it, and returns what is wrong in the end.
func (f *feed) run() (wrong []string) {
	f.writeAll()
	for rest := f.log; len(rest) > 0; {
		n := min(1+f.r.IntN(8), len(rest))
		f.deliver(rest[:n], 1+f.r.IntN(2))
		rest = rest[n:]
		if f.chance(20) {
			f.redrive()
		}
	}
	ever := slices.Clone(f.discarded)
	for range 5 {
		f.redrive()
	}
	f.faults = 0
	for range len(f.log) {
		f.redrive()
	}
	if wrong = f.check(); len(f.discarded) > 0 {
		wrong = append(wrong, fmt.Sprintf("%d batches cannot be counted", len(f.discarded)))
	}
	before := dump(f.t, f.store)
	for _, batch := range append(ever, f.log) {
		f.deliver(batch, 1)
	}
	if dump(f.t, f.store) != before {
		wrong = append(wrong, "another delivery changed the table")
	}
	return wrong
}

// check compares usage with what was consumed.
func (f *feed) check() (wrong []string) {
	for start, sums := range f.sums {
		want := ""
		for _, limit := range slices.Sorted(maps.Keys(sums)) {
			want += fmt.Sprintf("%s %s, ", limit, table.Tokens(sums[limit]))
		}
		want += fmt.Sprint("events ", f.events[start])
		text := events.Hourly.Text(events.Hourly.Start(start))
		got := f.usage(acme, "hourly", text)
		if f.recur { // what is missing but was nothing in sum is not missed
			got, _, _ = strings.Cut(got, "events")
			want, _, _ = strings.Cut(want, "events")
		}
		if got != want {
			wrong = append(wrong, fmt.Sprintf("%s: %s, not %s", text, got, want))
		}
		for shard, runs := range f.counted(start) {
			if len(runs) != 1 {
				wrong = append(wrong, fmt.Sprintf("%s: shard %d still has %d gaps", text, shard, len(runs)-1))
			}
		}
	}
	return wrong
}

// Clients that take and give back the same amount again and again leave totals
// that recur, which gaps cannot be told by.
func TestUsageExactlyOnceWhereTotalsRecur(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds, which -short leaves out")
	}
	for seed := range uint64(300) {
		f := newFeed(t, seed, sound)
		f.recur, f.refunds = true, 45
		if wrong := f.run(); wrong != nil {
			t.Fatalf("seed %d: %s", seed, strings.Join(wrong, "\n"))
		}
	}
}

func sound(store *memory.Store) addUsage { return store.AddUsage }

func TestUsageExactlyOnceWhateverIsDiscarded(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds, which -short leaves out")
	}
	discarded, gaps := 0, 0
	for seed := range uint64(200) {
		f := newFeed(t, seed, sound)
		if wrong := f.run(); wrong != nil {
			t.Fatalf("seed %d: %s", seed, strings.Join(wrong, "\n"))
		}
		gaps = max(gaps, f.gaps)
		if f.gaps > 0 {
			discarded++
		}
	}
	if discarded < 150 || gaps < 4 {
		t.Errorf("%d of 200 streams had gaps, at most %d at once: too tame to show anything", discarded, gaps)
	}
}

// Which gaps there are follows from which records are missing, and not from
// where batches end.
func TestGapsDoNotDependOnCuts(t *testing.T) {
	for seed := range uint64(50) {
		f := newFeed(t, seed, sound)
		f.faults = 0
		f.writeAll()
		kept := slices.DeleteFunc(slices.Clone(f.log), func(aggregator.Delivery) bool { return f.chance(20) })
		f.sound(noon, kept...)
		f.look()
		if f.gaps == 0 {
			t.Errorf("seed %d: no gaps", seed)
		}
		for _, size := range []int{1, 2, 7} {
			other := newWorld(t)
			for batch := range slices.Chunk(kept, size) {
				other.sound(noon, batch...)
			}
			sameTable(t, fmt.Sprintf("seed %d, batches of %d", seed, size), dump(t, other.store), dump(t, f.store))
		}
		if t.Failed() {
			return
		}
	}
}

// Mutants of how a usage item keeps what is counted.
var usageMutants = map[string]func(*memory.Store) addUsage{
	"no gap is recorded": func(store *memory.Store) addUsage {
		return func(ctx context.Context, u table.Usage) (table.UsageResult, error) {
			for i, source := range u.Sources {
				u.Sources[i].Next = whole(source.Next)
			}
			return store.AddUsage(ctx, u)
		}
	},
	"a record in a gap is taken for a mark": func(store *memory.Store) addUsage {
		return func(ctx context.Context, u table.Usage) (table.UsageResult, error) {
			for i, source := range u.Sources {
				u.Sources[i].Next = unsplit(source)
			}
			return store.AddUsage(ctx, u)
		}
	},
	"what is before the mark is counted without a look at the gaps": func(store *memory.Store) addUsage {
		return func(ctx context.Context, u table.Usage) (table.UsageResult, error) {
			for i, source := range u.Sources {
				if source.Found != nil {
					u.Sources[i].Found = stored(store, u.Key)[source.Shard]
					u.Sources[i].Next = whole(append(slices.Clone(u.Sources[i].Found), source.Next...))
				}
			}
			result, err := store.AddUsage(ctx, u)
			for shard, runs := range result.Seen {
				result.Seen[shard] = table.SeenRecords{{First: runs[len(runs)-1].Last, Last: runs[len(runs)-1].Last}}
			}
			return result, err
		}
	},
	"totals are not compared": func(store *memory.Store) addUsage {
		return func(ctx context.Context, u table.Usage) (table.UsageResult, error) {
			for i, source := range u.Sources {
				if runs := stored(store, u.Key)[source.Shard]; source.Found == nil && runs != nil {
					u.Sources[i].Next = slices.Clone(source.Next)
					u.Sources[i].Next[0].First.Total = runs[len(runs)-1].Last.Total
				}
			}
			return store.AddUsage(ctx, u)
		}
	},
	"marks are not compared": func(store *memory.Store) addUsage {
		return func(ctx context.Context, u table.Usage) (table.UsageResult, error) {
			for i, source := range u.Sources {
				u.Sources[i].Found = stored(store, u.Key)[source.Shard]
			}
			return store.AddUsage(ctx, u)
		}
	},
}

// whole is runs without the gaps between them.
func whole(runs table.SeenRecords) table.SeenRecords {
	first := slices.MinFunc(runs, func(a, b table.Range) int { return strings.Compare(a.First.Position, b.First.Position) })
	last := slices.MaxFunc(runs, func(a, b table.Range) int { return strings.Compare(a.Last.Position, b.Last.Position) })
	return table.SeenRecords{{First: first.First, Last: last.Last}}
}

// unsplit joins each new run before the mark to the run before it.
func unsplit(source table.Source) table.SeenRecords {
	var next table.SeenRecords
	for i, run := range source.Next {
		fresh := !slices.ContainsFunc(source.Found, func(r table.Range) bool { return r.First.Position == run.First.Position })
		if fresh && i > 0 && i < len(source.Next)-1 {
			next[len(next)-1].Last = run.Last
			continue
		}
		next = append(next, run)
	}
	return next
}

// stored is what a usage item has counted.
func stored(store *memory.Store, key table.UsageKey) map[int]table.SeenRecords {
	counted, err := store.Get(key.PK(), key.SK()).SeenRecords()
	if err != nil {
		panic(err)
	}
	return counted
}

func TestUsageMutantsAreCaught(t *testing.T) {
	for name, mutant := range usageMutants {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(50) {
				if wrong := newFeed(t, seed, mutant).run(); wrong != nil {
					t.Logf("seed %d: %s", seed, wrong[0])
					return
				}
			}
			t.Error("not caught")
		})
	}
}
