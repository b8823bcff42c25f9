package aggregator_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// large is a shard with two limits that never need a pass.
func large(shard int) table.Item {
	return bucketItem(acme.At(shard), count(2), drips("rpm", 1<<50, 1<<52), drips("tpm", 1<<50, 1<<52))
}

const atNoon = "2026-12-01T12:00:00Z"

func TestUsageIsOneUpdateAWindow(t *testing.T) {
	w := newWorld(t)
	var got []table.Usage
	w.fake.addUsage = func(_ context.Context, u table.Usage) (table.UsageResult, error) {
		got = append(got, u)
		return table.UsageResult{Applied: true}, nil
	}
	w.agg.Retention = 48 * time.Hour
	a, zero := w.spend(noon+1, large(0), "rpm", 1000)
	b, one := w.spend(noon+2, large(1), "rpm", 500)
	c, zero := w.spend(noon+3, zero, "tpm", 2500)
	d, zero := w.spend(noon+4, zero, "rpm", -300)
	e, _ := w.spend(noon+5, one, "tpm", 1)
	still := w.write(noon+6, zero, build(zero, attrs{table.AttrValidUntil: 0}))
	report := w.sound(noon+9, w.other(), a, b, c, d, still, e)

	if len(got) != 1 {
		t.Fatalf("%d updates, not one", len(got))
	}
	want := table.Usage{
		Key:      table.UsageKey{Group: acme, Window: "hourly", Start: atNoon},
		Counters: map[string]int64{"rpm": 1200, "tpm": 2501},
		Events:   5,
		Sources:  []table.Source{unread(0, a, d), unread(1, b, e)},
		Expires:  (noon+hour)/1000 + 48*3600,
	}
	eq(t, "update", got[0], want)
	eq(t, "reported", report.Usage, got)
	eq(t, "records, duplicates", fmt.Sprint(report.Records, report.Duplicates), "7 0")
}

// before is the fingerprint of what a write found.
func before(c *events.Change) string {
	if c.Old == nil {
		return table.TotalsBefore(nil, &c.New.Bucket)
	}
	return table.TotalsBefore(&c.Old.Bucket, &c.New.Bucket)
}

// unread is a source whose run goes from one record to another, and of which it
// is not known what is counted.
func unread(shard int, first, last aggregator.Delivery) table.Source {
	return table.Source{Shard: shard, Next: table.SeenRecords{{
		First: table.Bound{Position: first.Change.StreamPosition, Total: before(first.Change)},
		Last:  table.Bound{Position: last.Change.StreamPosition, Total: table.Totals(&last.Change.New.Bucket)},
	}}}
}

func TestUsageOfManyGroups(t *testing.T) {
	w := newWorld(t)
	var batch []aggregator.Delivery
	for i, names := range [][3]string{{"ns1", "a", "r"}, {"ns1", "a", "s"}, {"ns1", "b", "r"}, {"ns2", "a", "r"}} {
		group := table.Group{Namespace: names[0], Entity: names[1], Resource: names[2]}
		d, _ := w.spend(noon, bucketItem(group.At(0), drips("rpm", 1<<40, 1<<40)), "rpm", int64(1000*(i+1)))
		batch = append(batch, d)
	}
	report := w.sound(noon, batch...)
	if len(report.Usage) != 4 {
		t.Errorf("%d updates", len(report.Usage))
	}
	for i, d := range batch {
		eq(t, "usage", w.usage(d.Change.New.Key.Group, "hourly", atNoon), fmt.Sprintf("rpm %d, events 1", i+1))
	}
}

// ten is a stream of two shards, refunds and records without consumption among
// it, whose usage is rpm 6.5 and tpm -0.25 in the hour of noon.
func ten(s *stream) []aggregator.Delivery {
	zero, one := large(0), large(1)
	var batch []aggregator.Delivery
	add := func(item *table.Item, limit string, amount int64) {
		var d aggregator.Delivery
		d, *item = s.spend(noon+int64(s.seq), *item, limit, amount)
		batch = append(batch, d)
	}
	add(&zero, "rpm", 1000)
	add(&one, "rpm", 4000)
	add(&one, "tpm", 1000)
	batch = append(batch, s.write(noon, one, build(one, attrs{table.AttrValidUntil: 7})))
	add(&zero, "rpm", -500)
	add(&zero, "tpm", 500)
	add(&one, "rpm", 2000)
	batch = append(batch, s.other())
	add(&zero, "tpm", -1750)
	add(&one, "rpm", 0)
	return batch
}

func TestUsageExactlyOnce(t *testing.T) {
	const want = "rpm 6.5, tpm -0.25, events 7"
	for _, c := range []struct {
		name       string
		deliveries [][2]int // from and to
		duplicates int
	}{
		{"once", [][2]int{{0, 10}}, 0},
		{"twice", [][2]int{{0, 10}, {0, 10}}, 7},
		{"three times", [][2]int{{0, 10}, {0, 10}, {0, 10}}, 14},
		{"halves", [][2]int{{0, 5}, {5, 10}}, 0},
		{"whole, then halves", [][2]int{{0, 10}, {0, 5}, {5, 10}}, 7},
		{"halves, then whole", [][2]int{{0, 5}, {5, 10}, {0, 10}}, 7},
		{"again from the middle", [][2]int{{0, 10}, {4, 10}}, 4},
		{"again from the last", [][2]int{{0, 10}, {8, 10}}, 1},
		{"overlapping", [][2]int{{0, 6}, {2, 8}, {6, 10}}, 4},
		{"first half twice", [][2]int{{0, 5}, {0, 5}, {5, 10}, {5, 10}}, 7},
		{"one by one", [][2]int{{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}, {5, 6}, {6, 7}, {7, 8}, {8, 9}, {9, 10}}, 0},
	} {
		w := newWorld(t)
		batch, duplicates := ten(w.stream), 0
		for _, d := range c.deliveries {
			duplicates += w.sound(noon, batch[d[0]:d[1]]...).Duplicates
		}
		eq(t, c.name, w.usage(acme, "hourly", atNoon), want)
		eq(t, c.name+": duplicates", duplicates, c.duplicates)
	}
}

// Any sequence of deliveries that leaves no gap counts every record once.
func TestUsageExactlyOnceInAnyCut(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 5))
		w := newWorld(t)
		batch := ten(w.stream)
		for done := 0; done < len(batch); {
			from := r.IntN(done + 1)
			to := done + 1 + r.IntN(len(batch)-done)
			w.sound(noon, batch[from:to]...)
			done = to
		}
		if got := w.usage(acme, "hourly", atNoon); got != "rpm 6.5, tpm -0.25, events 7" {
			t.Fatalf("seed %d: %s", seed, got)
		}
	}
}

func TestUsageDeliveredTwiceInOneBatch(t *testing.T) {
	w := newWorld(t)
	batch := ten(w.stream)
	report := w.sound(noon, append(slices.Clone(batch), batch...)...)
	eq(t, "usage", w.usage(acme, "hourly", atNoon), "rpm 6.5, tpm -0.25, events 7")
	if report.Duplicates < 7 {
		t.Errorf("%d duplicates", report.Duplicates)
	}
}

// What one shard's position says is nothing to another shard's records.
func TestUsagePositionsAreIndependent(t *testing.T) {
	w := newWorld(t)
	late, one := w.spend(noon, large(1), "rpm", 1000)
	early, _ := w.spend(noon, large(0), "rpm", 2000)
	later, _ := w.spend(noon, one, "rpm", 4000)
	w.sound(noon, early)
	eq(t, "shard 0", w.usage(acme, "hourly", atNoon), "rpm 2, events 1")
	w.sound(noon, late)
	eq(t, "and 1, written before", w.usage(acme, "hourly", atNoon), "rpm 3, events 2")
	// One source of the update is counted already, the other is not.
	report := w.sound(noon, late, early, later)
	eq(t, "and 1 again", w.usage(acme, "hourly", atNoon), "rpm 7, events 3")
	eq(t, "duplicates", report.Duplicates, 2)
	next := unread(1, late, later)
	next.Found = unread(1, late, late).Next
	eq(t, "sources", report.Usage[0].Sources, []table.Source{next})
}

// A table whose stream was switched off and on has a stream of a later label,
// and numbers that may begin anywhere.
func TestUsageOfANewStream(t *testing.T) {
	w := newWorld(t)
	w.seq = 500
	old, zero := w.spend(noon, large(0), "rpm", 1000)
	later := &stream{t: t, label: "2026-12-01T12:00:00.000"}
	first, zero := later.spend(noon, zero, "rpm", 2000)
	second, _ := later.spend(noon, zero, "rpm", 4000)
	w.sound(noon, old)
	w.sound(noon, first)
	w.sound(noon, old, first, second)
	w.sound(noon, first)
	eq(t, "usage", w.usage(acme, "hourly", atNoon), "rpm 7, events 3")
}

// Sequence numbers compare as numbers, also where they grow by a digit.
func TestUsagePositionsGrowByADigit(t *testing.T) {
	w := newWorld(t)
	w.seq = 98
	a, zero := w.spend(noon, large(0), "rpm", 1000)
	b, _ := w.spend(noon, zero, "rpm", 2000)
	w.sound(noon, a)
	w.sound(noon, b)
	w.sound(noon, a)
	eq(t, "usage", w.usage(acme, "hourly", atNoon), "rpm 3, events 2")
}

func TestUsageThatNetsToNothing(t *testing.T) {
	w := newWorld(t)
	old := large(0)
	both := build(old, attrs{"b_rpm_tc": 1500, "b_tpm_tc": -1500})
	back := build(both, attrs{"b_rpm_tc": 0})
	w.sound(noon, w.write(noon, old, both), w.write(noon, both, back))
	eq(t, "usage", w.usage(acme, "hourly", atNoon), "rpm 0, tpm -1.5, events 2")
}

func TestUsageOfAnInsert(t *testing.T) {
	w := newWorld(t)
	item := build(large(3), attrs{"b_rpm_tc": 1250})
	w.sound(noon, w.write(noon, nil, item))
	eq(t, "usage", w.usage(acme, "hourly", atNoon), "rpm 1.25, events 1")
	w.sound(noon, w.write(noon, nil, large(4)))
	eq(t, "a shard that was created unused", w.usage(acme, "hourly", atNoon), "rpm 1.25, events 1")
}

func TestUsageOfLimitsThatComeAndGo(t *testing.T) {
	w := newWorld(t)
	old := large(0)
	added := build(old, drips("new", 5, 10), attrs{"b_new_tc": 750})
	gone := maps.Clone(added)
	maps.DeleteFunc(gone, func(name string, _ types.AttributeValue) bool {
		limit, _, _ := table.SplitAttr(name)
		return limit == "new"
	})
	w.sound(noon, w.write(noon, old, added), w.write(noon, added, gone))
	eq(t, "usage", w.usage(acme, "hourly", atNoon), "new 0.75, events 1")
}

func TestUsageWindows(t *testing.T) {
	w := newWorld(t)
	w.agg.Windows = []events.Window{events.Hourly, events.Daily, events.Monthly}
	item, batch := large(0), []aggregator.Delivery{}
	for _, x := range []struct{ at, amount int64 }{
		{midnight - 1, 1000}, {midnight, 2000}, {midnight + hour - 1, 4000}, {midnight + hour, 8000}, {midnight + 24*hour, 16_000},
	} {
		// The window is that of the write, not of the last pass or of now.
		item = build(item, refilled(noon-48*hour))
		var d aggregator.Delivery
		d, item = w.spend(x.at, item, "rpm", x.amount)
		batch = append(batch, d)
	}
	w.sound(midnight+80*hour, batch...)
	for _, x := range []struct{ window, start, want string }{
		{"hourly", "2026-11-30T23:00:00Z", "rpm 1, events 1"},
		{"hourly", "2026-12-01T00:00:00Z", "rpm 6, events 2"},
		{"hourly", "2026-12-01T01:00:00Z", "rpm 8, events 1"},
		{"hourly", "2026-12-02T00:00:00Z", "rpm 16, events 1"},
		{"daily", "2026-11-30T00:00:00Z", "rpm 1, events 1"},
		{"daily", "2026-12-01T00:00:00Z", "rpm 14, events 3"},
		{"daily", "2026-12-02T00:00:00Z", "rpm 16, events 1"},
		{"monthly", "2026-11-01T00:00:00Z", "rpm 1, events 1"},
		{"monthly", "2026-12-01T00:00:00Z", "rpm 30, events 4"},
	} {
		eq(t, x.window+" "+x.start, w.usage(acme, x.window, x.start), x.want)
	}
	if items := len(w.store.Items()); items != 9 {
		t.Errorf("%d usage items, not 9", items)
	}
}

// The sums of the recording "refunds": in tokens, to the millitoken.
func TestUsageIsExact(t *testing.T) {
	w := newWorld(t)
	item, batch := large(0), []aggregator.Delivery{}
	for range 8000 {
		var d aggregator.Delivery
		d, item = w.spend(noon, item, "tpm", 22_350)
		batch = append(batch, d)
	}
	d, item := w.spend(noon, item, "tpm", -1_875)
	batch = append(batch, d)
	for part := range slices.Chunk(batch, 700) {
		w.sound(noon, part...)
	}
	eq(t, "usage", w.usage(acme, "hourly", atNoon), "tpm 178798.125, events 8001")
	d, _ = w.spend(noon, item, "tpm", quota.MaxAmount/4)
	w.sound(noon, d)
	eq(t, "large", w.usage(acme, "hourly", atNoon), "tpm 576460752482221.613, events 8002")
}

func TestUsageCountsNoWriteMeter(t *testing.T) {
	w := newWorld(t)
	d, _ := w.spend(noon, large(0), quota.WriteMeter, 1000)
	w.sound(noon, d)
	eq(t, "items", len(w.store.Items()), 0)
}

// A limit that is named like an attribute of usage items cannot be counted. It
// is named as rejected, and costs the limit beside it nothing.
func TestUsageOfAReservedName(t *testing.T) {
	w := newWorld(t)
	for i, name := range []string{"window", "total_events", "ttl", "entity_id"} {
		old := build(bucketItem(acme.At(0)), drips(name, 1<<40, 1<<40), drips("rpm", 1<<40, 1<<40))
		new := build(old, attrs{table.Attr(name, table.FieldConsumed): 1000, "b_rpm_tc": 1000})
		report := w.sound(noon, w.write(noon, old, new))
		eq(t, name, w.usage(acme, "hourly", atNoon), fmt.Sprintf("rpm %d, events %d", i+1, i+1))
		eq(t, name+": rejected", len(report.Rejected), 1)
	}
}

// An expiry is set once, by whoever creates the item.
func TestUsageExpires(t *testing.T) {
	w := newWorld(t)
	w.agg.Retention = 24 * time.Hour
	a, item := w.spend(noon, large(0), "rpm", 1000)
	b, _ := w.spend(noon, item, "rpm", 1000)
	w.sound(noon, a)
	w.agg.Retention = time.Hour
	w.sound(noon, b)
	key := table.UsageKey{Group: acme, Window: "hourly", Start: atNoon}
	ttl, _ := w.store.Get(key.PK(), key.SK())[table.AttrTTL].(*types.AttributeValueMemberN)
	if ttl == nil || ttl.Value != strconv.FormatInt(noon/1000+3600+86400, 10) {
		t.Errorf("expires at %v", ttl)
	}
}

// Another writer that is ahead each time an update is tried, without what this
// batch has, is no reason to lose anything: the records fail and come again.
func TestUsageRefusedAgainAndAgain(t *testing.T) {
	w := newWorld(t)
	tries := 0
	w.fake.addUsage = func(context.Context, table.Usage) (table.UsageResult, error) {
		tries++
		return table.UsageResult{}, nil
	}
	batch := ten(w.stream)
	report := w.process(noon, append([]aggregator.Delivery{w.other(), w.other()}, batch...)...)
	eq(t, "failures", failed(report), "2 usage;")
	if err := report.Err(); !errors.Is(err, table.ErrRetry) {
		t.Errorf("not to be retried: %v", err)
	}
	if tries < 2 || tries > 10 {
		t.Errorf("%d tries", tries)
	}
	w.fake.addUsage = nil
	w.sound(noon, batch...)
	eq(t, "usage", w.usage(acme, "hourly", atNoon), "rpm 6.5, tpm -0.25, events 7")
}

// A refusal that shows part of the batch counted is folded again without it.
func TestUsageLandedBehindALostAnswer(t *testing.T) {
	w := newWorld(t)
	batch := ten(w.stream)
	lose := true
	w.fake.addUsage = func(ctx context.Context, u table.Usage) (table.UsageResult, error) {
		result, err := w.store.AddUsage(ctx, u)
		if lose {
			lose = false
			return table.UsageResult{}, fmt.Errorf("add usage: %w", table.ErrRetry)
		}
		return result, err
	}
	report := w.process(noon, batch[:6]...)
	eq(t, "failures", failed(report), "0 usage;")
	report = w.sound(noon, batch...)
	eq(t, "usage", w.usage(acme, "hourly", atNoon), "rpm 6.5, tpm -0.25, events 7")
	eq(t, "duplicates", report.Duplicates, 5)
}
