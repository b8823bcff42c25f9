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

// roomy are the writes of a bucket that CheckLimits leaves out, as large as they can
// become.
func roomy(b *Bucket) []*Write {
	b = untold(b)
	counters, refunds := map[string]int64{}, []quota.Adjustment{}
	for i := range b.Limits {
		name := b.Limits[i].Name
		refunds = append(refunds, quota.Adjustment{Limit: name, Consumed: -1, Balance: 1, Max: new(int64)})
		if name != quota.WriteMeter {
			counters[name] = 1
		}
	}
	return []*Write{
		passWrite("inexact pass", b, largestPass(b, false), nil),
		reconcileWrite(b, refunds),
		raiseWrite(b, quota.MaxShards, 1),
		chargeWrite(b.Key, FastCharge{Amounts: counters, Now: 1, Free: true}),
		usageWrite(largestUsage(b, counters, true)),
		usageWrite(largestUsage(b, counters, false)),
	}
}

// largestUsage is of every shard at once, and of all limits.
func largestUsage(b *Bucket, counters map[string]int64, read bool) Usage {
	usage := Usage{Key: UsageKey{Group: b.Key.Group}, Counters: counters, Events: 1, Expires: 1}
	run := Range{Bound{"1", "1"}, Bound{"2", "2"}}
	for shard := range quota.MaxShards {
		source := Source{Shard: shard, Next: SeenRecords{run}}
		if read {
			source.Found = SeenRecords{run}
		}
		usage.Sources = append(usage.Sources, source)
	}
	return usage
}

// roomOf is how many limits of a kind fit each write at its largest, at most 60.
func roomOf(t *testing.T, kind Item, bytes int) map[string]int {
	room := map[string]int{}
	for n := 1; n <= 60; n++ {
		b, full := manyLimits(t, n, bytes, kind), map[string]bool{"create": largestCreation(manyLimits(t, n, bytes, kind)).Check() != nil}
		for _, w := range slices.Concat(largest(b), roomy(b)) {
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
			if least := slices.Min(slices.Collect(maps.Values(room))); least != want || least < fewLimits {
				t.Errorf("%s: room for %d, not %d", kind, least, want)
			}
			for _, w := range roomy(manyLimits(t, 50, bytes, kinds[kind])) {
				if err := w.Check(); err != nil && w.Operation != "charge" {
					t.Errorf("50 limits that are %s: %s: %v", kind, w.Operation, err)
				}
			}
			if err := CheckLimits(manyLimits(t, want, bytes, kinds[kind])); err != nil {
				t.Errorf("%d limits that are %s: %v", want, kind, err)
			}
		}
		err := CheckLimits(manyLimits(t, want+3, 0, kinds[kind]))
		if want := fmt.Sprintf("limit limit%02d is one too many for one bucket: ", want); !errors.Is(err, ErrRequest) || !strings.Contains(fmt.Sprint(err), want) {
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

func BenchmarkCheckLimits(b *testing.B) {
	for _, n := range []int{1, 3, 17} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			bucket := manyLimits(b, n, 0, kinds["calendar"])
			for b.Loop() {
				if err := CheckLimits(bucket); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
