package table_test

import (
	"errors"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

var hour = table.UsageKey{Group: key.Group, Window: "hourly", Start: "2026-11-30T10:00:00Z"}

func TestTokens(t *testing.T) {
	for milli, want := range map[int64]string{
		0: "0", 1: "0.001", 10: "0.01", 100: "0.1", 999: "0.999", 1000: "1", 1500: "1.5", 1_000_001: "1000.001",
		-1: "-0.001", -1500: "-1.5", -1000: "-1",
		math.MaxInt64: "9223372036854775.807", math.MinInt64: "-9223372036854775.808",
	} {
		if got := table.Tokens(milli); got != want {
			t.Errorf("%d is %s, not %s", milli, got, want)
		}
	}
}

func TestUsageKey(t *testing.T) {
	if hour.PK() != "n5/ENTITY#sk-live-4242" || hour.SK() != "#USAGE#models/embed-3#2026-11-30T10:00:00Z#hourly" {
		t.Errorf("got %s, %s", hour.PK(), hour.SK())
	}
}

// Of all numbers on a usage item the counters are those that are no attribute
// of the layout's.
func TestParseUsage(t *testing.T) {
	item := table.Item{
		"PK": table.S(hour.PK()), "SK": table.S(hour.SK()), "ttl": table.N("1"), "total_events": table.N("3"),
		"tokens.in": table.N("1.5"), "rpm": table.N("-2"), "mark#3": table.S("0007 t"), "runs#3": table.S("0005 s"), "note": table.S("x"),
	}
	for _, label := range hour.Labels() {
		item[label[0]] = table.S(label[1])
	}
	got, counters, err := table.ParseUsage(item)
	if err != nil || got != hour {
		t.Errorf("got %+v, %v", got, err)
	}
	if want := map[string]string{"tokens.in": "1.5", "rpm": "-2"}; !maps.Equal(counters, want) {
		t.Errorf("counters %v", counters)
	}
	if want := map[int]string{3: "0007"}; !maps.Equal(item.LastPositions(), want) {
		t.Errorf("marks %v", item.LastPositions())
	}
	if _, _, err := table.ParseUsage(table.Item{"PK": table.S(key.PK()), "SK": table.S("#STATE")}); !errors.Is(err, table.ErrKey) {
		t.Errorf("a bucket: %v", err)
	}
}

// Nothing that this package writes on a usage item may be taken for a counter.
func TestNoLabelCanCount(t *testing.T) {
	names := []string{"PK", "SK", "ttl", "total_events", table.PositionAttr(0), table.PositionAttr(31), table.RangesAttr(0), ""}
	for _, label := range hour.Labels() {
		names = append(names, label[0])
	}
	for _, name := range names {
		if table.CanCount(name) {
			t.Errorf("%q can be a counter", name)
		}
		usage := table.Usage{Key: hour, Counters: map[string]int64{name: 1}}
		if err := usage.Check(); !errors.Is(err, table.ErrItem) {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"rpm", "tokens.in", "calls-day", "a_b", "TTL"} {
		if !table.CanCount(name) {
			t.Errorf("%q cannot be a counter", name)
		}
	}
}

func TestDonorsGroupMoves(t *testing.T) {
	creation := table.Creation{Moves: []quota.Funding{
		{Limit: "c", Donor: 3}, {Limit: "b", Donor: 0}, {Limit: "a", Donor: 3}, {Limit: "d", Donor: 0},
	}}
	var got []string
	for _, donor := range creation.Donors() {
		for _, move := range donor.Moves {
			if move.Donor != donor.Shard {
				t.Errorf("a move off %d stands under %d", move.Donor, donor.Shard)
			}
			got = append(got, move.Limit)
		}
	}
	if want := []string{"b", "d", "a", "c"}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	if got := creation.Moves[0].Limit; got != "c" {
		t.Errorf("the creation's own moves were reordered: %s first", got)
	}
}
