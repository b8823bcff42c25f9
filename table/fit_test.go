package table

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/shardquota/shardquota/quota"
)

// kinds are what a limit can be, by what it stores.
var kinds = map[string]Item{
	"drip":            {"cp": Int(1000), "ra": Int(1000), "rp": Int(60_000)},
	"scheduled drip":  {"cp": Int(1000), "ra": Int(1000), "rp": Int(60_000), "sched": S("1h9-17w1-5s500")},
	"replicated drip": {"cp": Int(1000), "ra": Int(1000), "rp": Int(60_000), "div": S("replicated")},
	"calendar":        {"cp": Int(100_000), "ra": Int(0), "rp": Int(1000), "rsched": S("1m0h0")},
	"session":         {"cp": Int(100_000), "ra": Int(0), "rp": Int(1000), "rsa": Int(3600)},
	"pooled calendar": {"cp": Int(100_000), "ra": Int(0), "rp": Int(1000), "rsched": S("1m0h0"), "div": S("gathered"), "sched": S("1h9-17w1-5s500")},
}

// manyLimits is a bucket of so many limits of a kind, whose names have at least so
// many bytes.
func manyLimits(t testing.TB, n, bytes int, kind Item) *Bucket {
	t.Helper()
	key := Group{"n", "e", "r"}.At(0)
	item := Item{AttrShardCount: Int(1), AttrRefilledAt: Int(1)}
	for name, value := range key.Keys() {
		item[name] = S(value)
	}
	add := func(limit string, terms Item) {
		item[Attr(limit, FieldBalance)], item[Attr(limit, FieldConsumed)] = Int(10), Int(0)
		for field, value := range terms {
			item[Attr(limit, Field(field))] = value
		}
	}
	add(quota.WriteMeter, kinds["drip"])
	for i := range n {
		name := fmt.Sprintf("limit%02d", i)
		add(name+strings.Repeat("x", max(0, bytes-len(name))), kind)
	}
	b, err := DecodeBucket(item)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// roomOf is how many limits of a kind fit each write at its largest, at most 60.
func roomOf(t *testing.T, kind Item, bytes int) map[string]int {
	room := map[string]int{}
	for n := 1; n <= 60; n++ {
		b, full := manyLimits(t, n, bytes, kind), map[string]bool{"create": largestCreation(manyLimits(t, n, bytes, kind)).Check() != nil}
		for _, w := range largest(b) {
			full[w.Operation] = full[w.Operation] || w.Check() != nil
		}
		for operation, full := range full {
			if !full && room[operation] == n-1 {
				room[operation] = n
			}
		}
	}
	return room
}

// How many limits one bucket has room for, by the write that has least. One more is
// refused, that limit named. The names' length does not matter: an expression holds
// aliases alone.
func TestRoomForLimits(t *testing.T) {
	for kind, want := range map[string]int{
		"drip": 34, "scheduled drip": 24, "replicated drip": 17, "calendar": 17, "session": 17, "pooled calendar": 17,
	} {
		for _, bytes := range []int{1, 64} {
			room := roomOf(t, kinds[kind], bytes)
			var columns []string
			for _, operation := range slices.Sorted(maps.Keys(room)) {
				columns = append(columns, fmt.Sprintf("%s %d", operation, room[operation]))
			}
			t.Logf("%-15s, names of %2d bytes: %s", kind, bytes, strings.Join(columns, ", "))
			if least := slices.Min(slices.Collect(maps.Values(room))); least != want {
				t.Errorf("%s: room for %d, not %d", kind, least, want)
			}
			if err := CheckLimits(manyLimits(t, want, bytes, kinds[kind])); err != nil {
				t.Errorf("%d limits that are %s: %v", want, kind, err)
			}
		}
		err := CheckLimits(manyLimits(t, want+3, 0, kinds[kind]))
		if want := fmt.Sprintf("no room for limit limit%02d, the %d. of %d on one bucket: ", want, want+1, want+4); !errors.Is(err, ErrRequest) || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%s: not %q: %v", kind, want, err)
		}
		t.Log(err)
	}
}

// Schedules take room on the item: all shards of a group may be written at once.
func TestCheckLimitsOfLongSchedules(t *testing.T) {
	long := maps.Clone(kinds["calendar"])
	long["sched"] = S("1" + strings.Repeat("m0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30h1s500;", 49) + "m0s500")
	if err := CheckLimits(manyLimits(t, 5, 64, long)); err != nil {
		t.Error(err)
	}
	err := CheckLimits(manyLimits(t, 40, 64, long))
	t.Log(err)
	if !errors.Is(err, ErrRequest) {
		t.Error(err)
	}
}
