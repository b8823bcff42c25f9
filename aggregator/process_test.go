package aggregator_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/internal/fixture"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// raw is a delivery as the stream has it, to be decoded.
func raw(t testing.TB, d aggregator.Delivery) events.Record { return fixture.Raw(t, d.Change) }

// Acceptance: of 100 records one does not decode and one bears a schedule that
// cannot be read. The other 98 are counted and acted on, and the two are named.
// The usage of the one with the schedule counts too.
func TestHundredRecordsTwoBad(t *testing.T) {
	const bad, unscheduled = 31, 77
	w := newWorld(t)
	var batch []events.Record
	group := func(i int) table.Group {
		return table.Group{Namespace: "ns1", Entity: fmt.Sprintf("e%d", i), Resource: "r"}
	}
	for i := range 100 {
		item := bucketItem(group(i).At(0), drips("rpm", 1000, 60_000))
		if i == unscheduled {
			item = build(item, attrs{"b_rpm_sched": "1h9-17q5"})
		}
		d, item := w.spend(noon+1000, item, "rpm", 1000)
		w.put(item)
		batch = append(batch, raw(t, d))
	}
	batch[bad].New = json.RawMessage(strings.Replace(string(batch[bad].New), `"b_rpm_tk":{"N":"0"}`, `"b_rpm_tk":{"N":"zero"}`, 1))

	report := w.agg.Process(context.Background(), batch, noon+1000)
	if err := report.Err(); err != nil {
		t.Fatal(err)
	}
	eq(t, "records, rejected, usage, passes", fmt.Sprint(report.Records, len(report.Rejected), len(report.Usage), len(report.Passes)), "100 2 99 98")
	for i := range 100 {
		b, err := w.store.Read(t.Context(), group(i).At(0))
		if err != nil {
			t.Fatal(err)
		}
		usage, balance := "rpm 1, events 1", int64(1000)
		switch i {
		case bad:
			usage, balance = "", 0
		case unscheduled:
			balance = 0
		}
		eq(t, fmt.Sprint("usage of ", i), w.usage(group(i), "hourly", atNoon), usage)
		eq(t, fmt.Sprint("balance of ", i), b.Limit("rpm").Balance, balance)
	}
	for at, want := range []struct {
		index int
		is    error
	}{{bad, table.ErrItem}, {unscheduled, quota.ErrSchedule}} {
		r := report.Rejected[at]
		if r.Index != want.index || r.Sequence != fmt.Sprint(want.index+1) || r.Position.Index != want.index+1 || !errors.Is(r.Err, want.is) {
			t.Errorf("rejected: %+v", r)
		}
	}
}

// A record whose decoding failed has no bucket: it costs its neighbours on the
// same one nothing either.
func TestUndecodableNeighbour(t *testing.T) {
	w := newWorld(t)
	a, item := w.spend(noon, large(0), "rpm", 1000)
	b, item := w.spend(noon, item, "rpm", 2000)
	c, _ := w.spend(noon, item, "rpm", 4000)
	records := []events.Record{raw(t, a), raw(t, b), raw(t, c), {EventName: events.Modify, Sequence: "9", Err: errors.New("not a record")}}
	records[1].Old = json.RawMessage(`{"PK":`)
	report := w.agg.Process(t.Context(), records, noon)
	eq(t, "usage", w.usage(acme, "hourly", atNoon), "rpm 5, events 2")
	eq(t, "rejected", fmt.Sprint(len(report.Rejected), report.Rejected[0].Index, report.Rejected[1].Index), "2 1 3")
	eq(t, "failures", len(report.Failures), 0)
}

func TestEmptyBatch(t *testing.T) {
	w := newWorld(t)
	report := w.agg.Process(t.Context(), nil, noon)
	eq(t, "report", fmt.Sprint(report.Records, report.Err(), len(w.store.Items())), "0 <nil> 0")
}

// A context that is done before the batch begins hands everything back.
func TestDeadlineBeforeTheBatch(t *testing.T) {
	w := newWorld(t, quotaZero(2))
	before := dump(t, w.store)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w.fake.calls = func(name string) { t.Errorf("%s", name) }
	spent, _ := w.spend(noon, quotaZero(1), "rpm", 100)
	batch := []aggregator.Delivery{w.other(), spent, w.doubles(noon, quotaZero(2), 1, 2)}
	report := w.agg.ProcessDecoded(ctx, batch, func(int64) int64 { return noon })
	eq(t, "failures", failed(report), "1 pass;1 usage;2 shard;")
	if !errors.Is(report.Err(), context.Canceled) {
		t.Errorf("error: %v", report.Err())
	}
	sameTable(t, "left alone", dump(t, w.store), before)
}

// A context that ends in mid-batch hands back what is left, from the lowest
// record on; what was done is done once.
func TestDeadlineInMidBatch(t *testing.T) {
	for stop := 1; stop <= 12; stop++ {
		w := newWorld(t)
		var batch []aggregator.Delivery
		for i := range 5 {
			key := table.Group{Namespace: "ns1", Entity: fmt.Sprint("e", i), Resource: "r"}.At(0)
			d, item := w.spend(noon+1000, bucketItem(key, drips("rpm", 1000, 60_000)), "rpm", 1000)
			w.put(item)
			batch = append(batch, w.other(), d)
		}
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		w.agg.Concurrency = 1
		w.fake.calls = func(string) {
			if calls++; calls == stop {
				cancel()
			}
		}
		report := w.agg.ProcessDecoded(ctx, batch, func(int64) int64 { return noon + 1000 })
		cancel()
		// Five usage updates go first, then five passes. The call during which the
		// context ends fails, and all after it.
		want := ""
		for i := range 5 {
			if stop <= i+6 {
				want += fmt.Sprintf("%d pass;", 2*i+1)
			}
			if stop <= i+1 {
				want += fmt.Sprintf("%d usage;", 2*i+1)
			}
		}
		eq(t, fmt.Sprint("stopped at call ", stop), failed(report), want)
		if len(report.Failures) > 0 {
			w.sound(noon+1000, batch[report.Failures[0].Index:]...)
		}
		for i := range 5 {
			group := batch[2*i+1].Change.New.Key.Group
			b, _ := w.store.Read(t.Context(), group.At(0))
			eq(t, fmt.Sprintf("stopped at call %d: %d", stop, i), w.usage(group, "hourly", atNoon)+fmt.Sprint(", ", b.Limit("rpm").Balance),
				"rpm 1, events 1, 1000")
		}
	}
}

// So many store operations run at once as are allowed, and as many as that.
func TestConcurrencyIsBounded(t *testing.T) {
	for _, c := range []struct{ allowed, want int64 }{{1, 1}, {3, 3}, {0, aggregator.DefaultConcurrency}, {500, 100}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			var batch []aggregator.Delivery
			for i := range 50 {
				key := table.Group{Namespace: "ns1", Entity: fmt.Sprint("e", i), Resource: "r"}.At(0)
				d, item := w.spend(noon+1000, bucketItem(key, drips("rpm", 1000, 60_000)), "rpm", 1000)
				w.put(item)
				batch = append(batch, d)
			}
			var under, most atomic.Int64
			w.agg.Concurrency = int(c.allowed)
			w.fake.calls = func(string) {
				n := under.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				time.Sleep(time.Second) // of the bubble's clock
				under.Add(-1)
			}
			w.sound(noon+1000, batch...)
			eq(t, fmt.Sprint("allowed ", c.allowed), most.Load(), c.want)
		})
	}
}

// Of what fails, the lowest record is where the batch is delivered again from.
// Done again from there, the table is as if nothing had failed.
func TestFailingAtEachStep(t *testing.T) {
	lost := fmt.Errorf("lost: %w", table.ErrRetry)
	story := func(w *world) []aggregator.Delivery {
		due := bucketItem(acme.At(0), refilled(midnight-1), drips("rpm", 1500, 60_000), daily("tpd", 400_000, 1000_000, 1))
		other := table.Group{Namespace: "ns1", Entity: "b", Resource: "r"}
		two := build(bucketItem(other.At(0), daily("tpd", 1000_000, 1000_000, 1)), count(2))
		w.put(two)
		d, spent := w.spend(noon, due, "rpm", 1000)
		e, spent := w.spend(noon, spent, "wcu", 1000)
		w.put(spent)
		return []aggregator.Delivery{w.other(), w.write(noon, build(two, count(1)), two), d, w.other(), e}
	}
	clean := newWorld(t)
	clean.sound(noon, story(clean)...)
	want := dump(t, clean.store)

	for _, c := range []struct{ call, want string }{
		{"raise", "1 shard;"}, {"create", "1 shard;"}, {"usage", "2 usage;"}, {"pass", "2 pass;"},
	} {
		for _, landed := range []bool{false, true} {
			name := fmt.Sprintf("%s, landed %t", c.call, landed)
			w := newWorld(t)
			batch := story(w)
			fail := func() error { return lost }
			w.fake.addUsage = func(ctx context.Context, u table.Usage) (r table.UsageResult, err error) {
				if c.call != "usage" || landed {
					r, err = w.store.AddUsage(ctx, u)
				}
				if c.call == "usage" {
					return table.UsageResult{}, fail()
				}
				return r, err
			}
			w.fake.pass = func(ctx context.Context, b *table.Bucket, p *quota.Pass) (r table.PassResult, err error) {
				if c.call != "pass" || landed {
					r, err = w.store.Pass(ctx, b, p)
				}
				if c.call == "pass" {
					return table.PassResult{}, fail()
				}
				return r, err
			}
			w.fake.raise = func(ctx context.Context, g table.Group, n int, now int64) (s []table.Sibling, err error) {
				if c.call != "raise" || landed {
					s, err = w.store.RaiseAndRead(ctx, g, n, now)
				}
				if c.call == "raise" {
					return nil, fail()
				}
				return s, err
			}
			w.fake.create = func(ctx context.Context, x table.Creation) (o table.CreationOutcome, err error) {
				if c.call != "create" || landed {
					o, err = w.store.Create(ctx, x)
				}
				if c.call == "create" {
					return 0, fail()
				}
				return o, err
			}
			report := w.process(noon, batch...)
			eq(t, name, failed(report), c.want)
			if !errors.Is(report.Err(), table.ErrRetry) {
				t.Errorf("%s: %v", name, report.Err())
			}
			w.agg.Store = w.store
			w.sound(noon, batch[report.Failures[0].Index:]...)
			sameTable(t, name, dump(t, w.store), want)
		}
	}
}

func TestFailingToDouble(t *testing.T) {
	for _, landed := range []bool{false, true} {
		hot := build(bucketItem(acme.At(0), drips("rpm", 1500, 60_000)), attrs{"b_wcu_tk": 5000})
		w := newWorld(t)
		a, item := w.spend(noon, hot, "rpm", 1)
		b, item := w.spend(noon, item, "wcu", 1000)
		w.put(item)
		w.fake.double = func(ctx context.Context, g table.Group, from int) (table.DoubleResult, error) {
			if landed {
				_, _ = w.store.Double(ctx, g, from)
			}
			return table.DoubleResult{}, fmt.Errorf("lost: %w", table.ErrRetry)
		}
		report := w.process(noon, w.other(), a, b)
		eq(t, fmt.Sprint("failures, landed ", landed), failed(report), "1 double;")
		w.fake.double = nil
		w.sound(noon, a, b)
		eq(t, fmt.Sprint("count, landed ", landed), w.shard(0).ShardCount, 2)
	}
}
