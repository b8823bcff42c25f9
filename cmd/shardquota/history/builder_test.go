package history_test

import (
	"fmt"
	"testing"

	"github.com/shardquota/shardquota/cmd/shardquota/history"
	"github.com/shardquota/shardquota/internal/fixture"
	"github.com/shardquota/shardquota/table"
)

func bucket(t testing.TB, key table.Key, more ...fixture.Attrs) *table.Image {
	t.Helper()
	b, err := table.DecodeBucket(fixture.Bucket(key, more...))
	if err != nil {
		t.Fatal(err)
	}
	return b.Image()
}

// told renders the events of the only group.
func told(b *history.Builder) (lines []string) {
	for _, e := range b.Histories()[0].Events {
		lines = append(lines, fmt.Sprintf("%s %d %s %d", e.Kind, e.Shard, e.Limit, e.Amount))
	}
	return lines
}

// What leaves a quota by a pass is a trim only where it ends at the ceiling; a
// move that a pass came with is a move.
func TestTrimOrMove(t *testing.T) {
	key := fixture.Acme.At(0)
	daily := func(balance int64) fixture.Attrs { return fixture.Daily("calls", balance, 2_000_000, 2) }
	later := fixture.Refilled(fixture.Noon + 5)
	before := bucket(t, key, daily(1_500_000))
	for _, test := range []struct {
		name string
		to   *table.Image
		want string
	}{
		{"a move", bucket(t, key, daily(900_000)), "[moved 0 calls 600000]"},
		{"a move with a pass", bucket(t, key, daily(900_000), later), "[moved 0 calls 600000]"},
		{"a trim", bucket(t, key, daily(1_000_000), later), "[trimmed 0 calls 500000]"},
		{"use", bucket(t, key, daily(1_400_000), fixture.Attrs{"b_calls_tc": 100_000}), "[]"},
		{"a trim and use", bucket(t, key, daily(900_000), later, fixture.Attrs{"b_calls_tc": 100_000}), "[trimmed 0 calls 500000]"},
		{"a pass alone", bucket(t, key, daily(1_500_000), later), "[]"},
	} {
		var b history.Builder
		b.Observe(fixture.Noon, before, test.to)
		fixture.Eq(t, test.name, told(&b), test.want)
	}
}

// A calendar quota that a pass restores after midnight is told from one that it
// only brings up to date.
func TestReset(t *testing.T) {
	key := fixture.Acme.At(0)
	before := bucket(t, key, fixture.Daily("calls", 5_000, 2_000_000, 1), fixture.Refilled(fixture.Midnight-1000))
	after := bucket(t, key, fixture.Daily("calls", 1_999_000, 2_000_000, 1), fixture.Refilled(fixture.Midnight+1000), fixture.Attrs{"b_calls_tc": 1_000})
	var b history.Builder
	b.Observe(fixture.Midnight+1000, before, after)
	fixture.Eq(t, "events", told(&b), "[reset 0 calls 2000000]")
	fixture.Eq(t, "passes", b.Histories()[0].Passes, "[1]")
}

// A shard that is removed ends, and counts again from nothing when it comes back.
func TestRemoved(t *testing.T) {
	key := fixture.Acme.At(1)
	one := bucket(t, key, fixture.Daily("calls", 700_000, 2_000_000, 2), fixture.Attrs{"b_calls_tc": 50_000})
	var b history.Builder
	b.Observe(fixture.Noon, one, one)
	b.Observe(fixture.Noon+2000, one, nil)
	b.Observe(fixture.Noon+4000, nil, one)
	g := b.Histories()[0]
	fixture.Eq(t, "balance", g.Limit("calls").Shards[0].Balance, []int64{700_000, 700_000, history.None, history.None, 700_000})
	fixture.Eq(t, "consumed", g.Limit("calls").Consumed, "[0 0 0 0 50000]")
	fixture.Eq(t, "kinds", []int{g.Count(history.Removed), g.Count(history.Created)}, "[1 1]")
}

// Twenty thousand writes of twenty groups keep no more than the bounds
// allow: slots, groups and events.
func TestBounds(t *testing.T) {
	b := history.Builder{Slots: 16, Groups: 3}
	group := fixture.Acme
	var images [2]*table.Image
	for n := range 20_000 {
		if n%1000 == 0 {
			group.Entity = fmt.Sprintf("e%d", n/1000)
			for i := range images {
				images[i] = bucket(t, group.At(0), fixture.Daily("calls", int64(1000-i), 2000, 1), fixture.Attrs{"disabled": i == 0})
			}
		}
		b.Observe(fixture.Noon+int64(n)*977, images[n%2], images[(n+1)%2])
	}
	groups := b.Histories()
	fixture.Eq(t, "groups and what is left out", []int{len(groups), b.Skipped}, "[3 17000]")
	for _, g := range groups {
		if g.Grid.Slots > 16 || g.Grid.Slots < 8 {
			t.Errorf("%d slots, want 8 to 16", g.Grid.Slots)
		}
		fixture.Eq(t, "events kept and dropped", []int{len(g.Events), g.Dropped}, "[200 800]")
	}
}

// A record without a time is put where the one before it was.
func TestNoTime(t *testing.T) {
	b := history.Builder{}
	one := bucket(t, fixture.Acme.At(0), fixture.Daily("calls", 1000, 2000, 1))
	b.Observe(fixture.Noon, nil, one)
	b.Observe(0, one, one)
	b.Observe(fixture.Noon+1000, one, one)
	fixture.Eq(t, "grid", b.Histories()[0].Grid, history.Grid{Start: fixture.Noon, Step: 1000, Slots: 2})
}

// The level of the write meter is that of the moment, not the stored one.
func TestMeterLevel(t *testing.T) {
	b := bucket(t, fixture.Acme.At(0), fixture.Daily("calls", 1000, 2000, 1), fixture.Attrs{"b_wcu_tk": 200_000})
	for after, want := range map[int64]int64{0: 200_000, 300: 500_000, 5000: 1_000_000} {
		fixture.Eq(t, "level", history.MeterLevel(&b.Bucket, fixture.Noon+after), want)
	}
}

// Where a history began in the middle, a shard's donor may be one that was never
// seen; then nothing is said rather than something wrong.
func TestFundingUnknown(t *testing.T) {
	four := fixture.Count(4)
	one := bucket(t, fixture.Acme.At(1), four, fixture.Daily("calls", 1_000_000, 2_000_000, 2))
	zero := bucket(t, fixture.Acme.At(0), four, fixture.Daily("calls", 1_000_000, 2_000_000, 1))
	three := bucket(t, fixture.Acme.At(3), four, fixture.Daily("calls", 500_000, 2_000_000, 4))
	for _, test := range []struct {
		name  string
		begin func(*history.Builder)
		want  string
	}{
		{"nobody seen", func(*history.Builder) {}, "[]"},
		{"shard 0 alone seen", func(b *history.Builder) { b.Observe(fixture.Noon, zero, zero) }, "[]"},
		{"the donor seen", func(b *history.Builder) { b.Observe(fixture.Noon, one, one) }, "[calls: 500000 moved off shard 1 wcu: 1000000 (share)]"},
		{"all seen from the first", func(b *history.Builder) { b.Observe(fixture.Noon, nil, zero) }, "[calls: 500000 moved off shard 0 wcu: 1000000 (share)]"},
	} {
		var b history.Builder
		test.begin(&b)
		b.Observe(fixture.Noon, nil, three)
		events := b.Histories()[0].Events
		fixture.Eq(t, test.name, events[len(events)-1].Funding, test.want)
	}
}
