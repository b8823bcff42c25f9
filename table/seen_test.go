package table_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/shardquota/shardquota/table"
)

// record is the record at a position that took its bucket from one total to another.
func record(position, before, after int) table.Range {
	bound := func(total int) table.Bound {
		return table.Bound{Position: fmt.Sprintf("%03d", position), Total: fmt.Sprint("t", total)}
	}
	return table.Range{First: bound(before), Last: bound(after)}
}

// one is a record of a bucket that takes one token a write: the total is the position.
func one(position int) table.Range { return record(position, position-1, position) }

// untotalled is a record of which no totals are known.
func untotalled(position string) table.Range {
	return table.Range{First: table.Bound{Position: position}, Last: table.Bound{Position: position}}
}

func ones(positions ...int) []table.Range {
	var records []table.Range
	for _, position := range positions {
		records = append(records, one(position))
	}
	return records
}

func texts(c table.SeenRecords) string {
	last, others := c.Texts()
	return others + " | " + last
}

// Records of a gap that is filled in by one update may consume nothing in sum,
// so that those before them go on where those after them do. What is counted
// must be readable then, whichever of them come first.
func TestSeenWithARefundInAGap(t *testing.T) {
	around := []table.Range{record(1, 0, 1), record(6, 2, 3)}
	gap := []table.Range{record(2, 1, 2), record(3, 2, 9), record(4, 9, 2)} // spent and all given back
	for _, records := range [][]table.Range{gap, {gap[1], gap[2], gap[0]}, {gap[2], gap[0], gap[1]}} {
		counted := table.SeenRecords(nil).With(around...).With(records...)
		if got, want := texts(counted), "001 t0 | 006 t3"; got != want {
			t.Errorf("%s, not %s", got, want)
		}
	}
}

func TestSeenWith(t *testing.T) {
	for _, c := range []struct {
		name    string
		records []table.Range
		want    string
	}{
		{"nothing", nil, " | "},
		{"one", ones(5), "005 t4 | 005 t5"},
		{"one after the other", ones(5, 6, 7), "005 t4 | 007 t7"},
		{"backwards", ones(7, 6, 5), "005 t4 | 007 t7"},
		{"one missing", ones(5, 7), "005 t4,005 t5,007 t6 | 007 t7"},
		{"and filled in", ones(5, 7, 6), "005 t4 | 007 t7"},
		{"three missing", ones(1, 5), "001 t0,001 t1,005 t4 | 005 t5"},
		{"of which the middle one came", ones(1, 5, 3), "001 t0,001 t1,003 t2,003 t3,005 t4 | 005 t5"},
		{"and the first", ones(1, 5, 3, 2), "001 t0,003 t3,005 t4 | 005 t5"},
		{"and the last", ones(1, 5, 3, 2, 4), "001 t0 | 005 t5"},
		{"before all", ones(5, 2), "002 t1,002 t2,005 t4 | 005 t5"},
		{"records between that consumed nothing", []table.Range{record(5, 0, 1), record(9, 1, 2)}, "005 t0 | 009 t2"},
		{"a total that came back", []table.Range{record(5, 3, 4), record(9, 4, 3), record(12, 3, 4)}, "005 t3 | 012 t4"},
		{"totals that are not known", []table.Range{untotalled("005"), untotalled("006")}, "005,005,006 | 006"},
		{"a total from elsewhere", []table.Range{record(5, 3, 4), record(9, 7, 8)}, "005 t3,005 t4,009 t7 | 009 t8"},
	} {
		got := table.SeenRecords(nil).With(c.records...)
		if texts(got) != c.want {
			t.Errorf("%s: %s, not %s", c.name, texts(got), c.want)
		}
		var apart table.SeenRecords
		for _, r := range c.records {
			apart = apart.With(r)
		}
		if !reflect.DeepEqual(apart, got) {
			t.Errorf("%s, one by one: %s, not %s", c.name, texts(apart), c.want)
		}
	}
}

func TestSeenHas(t *testing.T) {
	c := table.SeenRecords(nil).With(ones(3, 4, 7, 9)...)
	for position := range 12 {
		want := slices.Contains([]int{3, 4, 7, 9}, position)
		if got := c.Has(fmt.Sprintf("%03d", position)); got != want {
			t.Errorf("%d: %t", position, got)
		}
	}
	if table.SeenRecords(nil).Has("") || table.SeenRecords(nil).Has("1") {
		t.Error("nothing has something")
	}
}

func TestSeenWithLeavesItself(t *testing.T) {
	c := table.SeenRecords(nil).With(ones(3, 9)...)
	was := slices.Clone(c)
	c.With(ones(4, 5, 6, 7, 8)...)
	if !reflect.DeepEqual(c, was) {
		t.Errorf("changed to %s", texts(c))
	}
}

// What is counted is the same in whatever order it came.
func TestSeenInAnyOrder(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		positions := r.Perm(40)[:1+r.IntN(30)]
		var c table.SeenRecords
		for _, position := range positions {
			if c.Has(fmt.Sprintf("%03d", position)) {
				t.Fatalf("seed %d: %d was counted before it came", seed, position)
			}
			c = c.With(one(position))
		}
		slices.Sort(positions)
		if want := table.SeenRecords(nil).With(ones(positions...)...); !reflect.DeepEqual(c, want) {
			t.Fatalf("seed %d: %s, not %s", seed, texts(c), texts(want))
		}
	}
}

// Beyond the bound the oldest gap is given up: what is in it reads as counted.
func TestSeenIsBounded(t *testing.T) {
	var c table.SeenRecords
	for i := range table.MaxRanges {
		c = c.With(one(10 * (i + 1)))
	}
	if len(c) != table.MaxRanges || c.Has("015") {
		t.Fatalf("%d ranges; has 15: %t", len(c), c.Has("015"))
	}
	c = c.With(one(500))
	if len(c) != table.MaxRanges || !c.Has("015") || c.Has("025") || c.Has("005") || !c.Has("500") {
		t.Errorf("%s", texts(c))
	}
	// A stretch that is counted at once is one run in the end, and gives up no more.
	if c = c.With(ones(1, 2, 3, 4, 5, 6, 7, 8, 9)...); len(c) != table.MaxRanges || c.Has("025") || !c.Has("001") {
		t.Errorf("%s", texts(c))
	}
}

// What is counted is read off an item as it was written.
func TestSeenOfAnItem(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 2))
		want, item := map[int]table.SeenRecords{}, table.Item{"rpm": table.N("1"), "mark": table.S("x"), "mark#x": table.S("y")}
		for range r.IntN(4) {
			shard := r.IntN(32)
			want[shard] = table.SeenRecords(nil).With(ones(r.Perm(30)[:1+r.IntN(10)]...)...)
			last, others := want[shard].Texts()
			item[table.PositionAttr(shard)], item[table.RangesAttr(shard)] = table.S(last), table.S(others)
		}
		got, err := item.SeenRecords()
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d: %v, %v; want %v", seed, got, err, want)
		}
	}
}

// A last position alone says that all up to it is counted, with a total or without.
func TestSeenWithoutRanges(t *testing.T) {
	for last, total := range map[string]string{"007": "", "007 t7": "t7"} {
		item := table.Item{"mark#0": table.S(last)}
		got, err := item.SeenRecords()
		want := table.SeenRecords{{Last: table.Bound{Position: "007", Total: total}}}
		if err != nil || !reflect.DeepEqual(got[0], want) || texts(got[0]) != " | "+last {
			t.Errorf("%q: %v, %v", last, got, err)
		}
		if !got[0].Has("000") || !got[0].Has("007") || got[0].Has("008") {
			t.Errorf("%q: %v", last, got[0])
		}
		next := got[0].With(one(8))
		if gap := len(next) == 2; gap != (total == "") {
			t.Errorf("%q and one more: %s", last, texts(next))
		}
	}
}

func TestSeenThatCannotBeRead(t *testing.T) {
	for _, x := range [][2]string{ // last position and ranges
		{"", "005 t4"}, {"007 ", "005 t4"}, {"007 t7", "005 t4,006 t6"}, {"007 t7", "008 t4"}, {"007 t7", "005 t4,004 t4,006 t6"},
		{"007 t7", "001 t1,005 t4,005 t4"}, {"007 t7", "005 "}, {"007 t7", ",,006 t5"}, {"001,007 t7", "005 t4"}, {"007 t7", "unreadable"},
	} {
		item := table.Item{"mark#0": table.S(x[0]), "runs#0": table.S(x[1])}
		if got, err := item.SeenRecords(); !errors.Is(err, table.ErrItem) || strings.Contains(err.Error(), "007") {
			t.Errorf("%q: %v, %v", x, got, err)
		}
	}
	for name, item := range map[string]table.Item{
		"a number for a position": {"mark#0": table.N("7")}, "a number for ranges": {"mark#0": table.S("007 t7"), "runs#0": table.N("5")},
		"empty ranges": {"mark#0": table.S("007 t7"), "runs#0": table.S("")},
	} {
		if got, err := item.SeenRecords(); !errors.Is(err, table.ErrItem) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// What usage counts changes the fingerprint, and nothing else does.
func TestTotals(t *testing.T) {
	bucket := func(consumed map[string]int, more ...string) *table.Bucket {
		item := table.Item{"PK": table.S(key.PK()), "SK": table.S("#STATE"), "b_rpm_tk": table.N("5"), "b_rpm_cp": table.N("9")}
		for limit, total := range consumed {
			item["b_"+limit+"_tk"], item["b_"+limit+"_cp"] = table.N("1"), table.N("1")
			item["b_"+limit+"_tc"] = table.N(strconv.Itoa(total))
		}
		for _, name := range more {
			item[name] = table.N("17")
		}
		b, err := table.DecodeBucket(item)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	of := func(consumed map[string]int, more ...string) string {
		return table.Totals(&bucket(consumed, more...).Bucket)
	}
	unused := of(nil)
	if !regexp.MustCompile(`^[A-Za-z0-9_-]{11}$`).MatchString(unused) {
		t.Errorf("%q", unused)
	}
	for name, got := range map[string]string{
		"no consumption": of(nil), "the write meter": of(map[string]int{"wcu": 1000}),
		"a limit that no counter can be named like": of(map[string]int{"window": 5}), "another attribute": of(nil, "rf", "b_rpm_tk"),
	} {
		if got != unused {
			t.Errorf("%s: %s, not %s", name, got, unused)
		}
	}
	seen := map[string]string{unused: "unused", of(map[string]int{"tpm": 0}): "a new limit"}
	if len(seen) != 2 {
		t.Error("a limit that comes is not seen")
	}
	for _, consumed := range []map[string]int{
		{"rpm": 1}, {"rpm": -1}, {"rpm": 2}, {"tpm": 1}, {"rpm": 1, "tpm": 1}, {"rpm": 1, "tpm": 2}, {"rpm": 2, "tpm": 1}, {"rpm": 11}, {"rpm": 12}, {"rpm": 1, "a.b-c": 2},
	} {
		got := of(consumed)
		if other, ok := seen[got]; ok {
			t.Errorf("%v has the fingerprint of %s", consumed, other)
		}
		seen[got] = fmt.Sprint(consumed)
	}
}

func TestTotalsBefore(t *testing.T) {
	item := table.Item{"PK": table.S(key.PK()), "SK": table.S("#STATE"), "b_rpm_tk": table.N("5"), "b_rpm_cp": table.N("9")}
	unused, err := table.DecodeBucket(item)
	if err != nil {
		t.Fatal(err)
	}
	used := unused.Bucket
	used.Limits = slices.Clone(unused.Limits)
	used.Limits[0].Consumed = 4
	if got := table.TotalsBefore(nil, &used); got != table.Totals(&unused.Bucket) {
		t.Errorf("before an insert: %s", got)
	}
	if got := table.TotalsBefore(&used, &unused.Bucket); got != table.Totals(&used) {
		t.Errorf("before a modification: %s", got)
	}
}

// Only one run, of which it is known where it begins, can follow what is not
// read.
func TestSourceFollows(t *testing.T) {
	for name, source := range map[string]table.Source{
		"two ranges": {Next: table.SeenRecords(nil).With(ones(1, 3)...)}, "no total": {Next: table.SeenRecords{untotalled("001")}},
		"what is counted was read": {Found: table.SeenRecords(nil).With(one(1)), Next: table.SeenRecords(nil).With(ones(1, 2)...)}, "nothing": {},
	} {
		if first, ok := source.Follows(); ok {
			t.Errorf("%s: follows %v", name, first)
		}
	}
	source := table.Source{Next: table.SeenRecords(nil).With(ones(4, 5)...)}
	if first, ok := source.Follows(); !ok || first != one(4).First {
		t.Errorf("one run: %v, %t", first, ok)
	}
}
