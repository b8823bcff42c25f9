package storetest

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/table"
)

var hour = table.UsageKey{Group: group, Window: "hourly", Start: "2026-12-01T01:00:00Z"}

// oneCount is the usage of one limit by shard 0's record "10", which took its
// total from a to b.
func oneCount(limit string, milli int64) table.Usage {
	return counting(limit, milli, fresh(0, run("10 a", "10 b")))
}

// counting is the usage of one limit.
func counting(limit string, milli int64, sources ...table.Source) table.Usage {
	return table.Usage{Key: hour, Counters: map[string]int64{limit: milli}, Events: 1, Sources: sources}
}

// oneCounted is what oneCount leaves on the item.
var oneCounted = attrs{"mark#0": "10 b", "runs#0": "10 a"}

// run is a run of records between two edges, each a mark and a total.
func run(first, last string) table.Range { return table.Range{First: edge(first), Last: edge(last)} }

func edge(text string) table.Bound {
	mark, total, _ := strings.Cut(text, " ")
	return table.Bound{Position: mark, Total: total}
}

// fresh is a source of which it is not known what is counted.
func fresh(shard int, records ...table.Range) table.Source { return found(shard, nil, records...) }

// found is a source of which it is.
func found(shard int, counted table.SeenRecords, records ...table.Range) table.Source {
	return table.Source{Shard: shard, Found: counted, Next: counted.With(records...)}
}

// usageItem is the usage item of hour with the given counters, as text, and
// marks and so on.
func usageItem(events int, counters map[string]string, more attrs) table.Item {
	item := build(table.Item{}, attrs{
		"PK": "n5/ENTITY#sk-live-4242", "SK": "#USAGE#models/embed-3#2026-12-01T01:00:00Z#hourly",
		"entity_id": "sk-live-4242", "resource": "models/embed-3",
		"window": "hourly", "window_start": "2026-12-01T01:00:00Z",
		"GSI2PK": "n5/RESOURCE#models/embed-3", "GSI2SK": "USAGE#2026-12-01T01:00:00Z#sk-live-4242",
		"GSI4PK": "n5", "GSI4SK": "n5/ENTITY#sk-live-4242",
		"total_events": events,
	})
	for limit, decimal := range counters {
		item[limit] = table.N(decimal)
	}
	return build(item, more)
}

func (f *fixture) addUsage(usage table.Usage) {
	f.Helper()
	result, err := f.store.AddUsage(f.Context(), usage)
	f.noError(err)
	if !result.Applied {
		f.Fatalf("refused; counted %v", result.Seen)
	}
}

func (f *fixture) usageRefused(usage table.Usage, counted map[int]table.SeenRecords) {
	f.Helper()
	result, err := f.store.AddUsage(f.Context(), usage)
	f.noError(err)
	if result.Applied || !reflect.DeepEqual(result.Seen, counted) {
		f.Errorf("got %+v, not a refusal with %v", result, counted)
	}
}

// of0 is what shard 0 has counted, and no other has anything.
func of0(runs ...table.Range) map[int]table.SeenRecords { return map[int]table.SeenRecords{0: runs} }

var usageCases = []testCase{
	{"the first usage makes the item", func(f *fixture) {
		usage := oneCount(rpm, 1500)
		usage.Counters["tpm"], usage.Events, usage.Expires = 2000, 3, 1800000000
		usage.Sources = []table.Source{fresh(0, run("10 a", "12 c")), fresh(5, run("03 a", "07 x"))}
		f.addUsage(usage)
		f.has(usageItem(3, map[string]string{rpm: "1.5", "tpm": "2"}, attrs{
			"mark#0": "12 c", "runs#0": "10 a", "mark#5": "07 x", "runs#5": "03 a", "ttl": 1800000000,
		}))
	}},
	{"counters add up exactly", func(f *fixture) {
		f.raw.Put(f, usageItem(7, map[string]string{
			"a": "0.1", "b": "2.5", "c": "0.001", "d": "9007199254740993", "e": "1234567890123456789012345.678", "f": "-1.25",
		}, nil))
		usage := oneCount("a", 200)
		maps.Copy(usage.Counters, map[string]int64{"b": -2500, "c": -3, "d": 1, "e": 322, "f": 1250, "g": 0})
		f.addUsage(usage)
		f.has(usageItem(8, map[string]string{
			"a": "0.3", "b": "0", "c": "-0.002", "d": "9007199254740993.001", "e": "1234567890123456789012346", "f": "0", "g": "0",
		}, oneCounted))
	}},
	{"a thousand small parts make a whole", func(f *fixture) {
		usage := oneCount(rpm, 1)
		for i := range 1000 {
			usage.Sources = []table.Source{fresh(0, run(fmt.Sprintf("%05d %04d", i, i), fmt.Sprintf("%05d %04d", i, i+1)))}
			f.addUsage(usage)
		}
		f.has(usageItem(1000, map[string]string{rpm: "1"}, attrs{"mark#0": "00999 1000", "runs#0": "00000 0000"}))
	}},
	{"refunds count backwards", func(f *fixture) {
		usage := oneCount(rpm, -1500)
		f.addUsage(usage)
		f.has(usageItem(1, map[string]string{rpm: "-1.5"}, oneCounted))
	}},
	{"a record counted already is refused", func(f *fixture) {
		f.addUsage(oneCount(rpm, 1000))
		f.usageRefused(oneCount(rpm, 1000), of0(run("10 a", "10 b")))
		f.usageRefused(counting(rpm, 1000, fresh(0, run("10 b", "11 c"))), of0(run("10 a", "10 b")))
		f.has(usageItem(1, map[string]string{rpm: "1"}, oneCounted))
	}},
	{"marks compare as strings", func(f *fixture) {
		before := usageItem(1, map[string]string{rpm: "1"}, attrs{"mark#0": "9 a", "runs#0": "8 x"})
		f.raw.Put(f, before)
		f.usageRefused(oneCount(rpm, 1000), of0(run("8 x", "9 a")))
		f.has(before)
		f.raw.Put(f, usageItem(1, map[string]string{rpm: "1"}, attrs{"mark#0": "0999 a", "runs#0": "08 x"}))
		f.addUsage(oneCount(rpm, 1000))
		f.has(usageItem(2, map[string]string{rpm: "2"}, attrs{"mark#0": "10 b", "runs#0": "08 x"}))
	}},
	{"records that go on lengthen the last run", func(f *fixture) {
		f.raw.Put(f, usageItem(4, nil, attrs{"mark#0": "08 a", "runs#0": "02 x,03 y,06 z"}))
		f.addUsage(oneCount(rpm, 1000))
		f.has(usageItem(5, map[string]string{rpm: "1"}, attrs{"mark#0": "10 b", "runs#0": "02 x,03 y,06 z"}))
	}},
	{"records that do not go on are refused", func(f *fixture) {
		for _, stored := range []attrs{
			{"mark#0": "08 z", "runs#0": "05 x"}, // something was consumed in between
			{"mark#0": "11 a", "runs#0": "05 x"}, // later than the records
			{"mark#0": "10 a", "runs#0": "05 x"}, // one of them
			{"mark#0": "08", "runs#0": "05 x"},   // it is not known after what total
		} {
			before := usageItem(4, nil, stored)
			f.raw.Put(f, before)
			f.usageRefused(oneCount(rpm, 1000), of0(run("05 x", stored["mark#0"].(string))))
			f.has(before)
		}
	}},
	{"without runs all up to the mark is counted, and stays so", func(f *fixture) {
		for mark, want := range map[string]attrs{
			"08":   {"mark#0": "10 b", "runs#0": ",08,10 a"},
			"08 z": {"mark#0": "10 b", "runs#0": ",08 z,10 a"},
			"08 a": {"mark#0": "10 b"},
		} {
			f.raw.Put(f, usageItem(4, nil, attrs{"mark#0": mark}))
			all := table.SeenRecords{run("", mark)}
			f.usageRefused(oneCount(rpm, 1000), of0(all...))
			f.addUsage(counting(rpm, 1000, found(0, all, run("10 a", "10 b"))))
			f.has(usageItem(5, map[string]string{rpm: "1"}, want))
		}
	}},
	{"records in a gap, before the first run and after the last", func(f *fixture) {
		f.raw.Put(f, usageItem(4, nil, attrs{"mark#0": "30 h", "runs#0": "10 b,10 c,30 g"}))
		counted := table.SeenRecords{run("10 b", "10 c"), run("30 g", "30 h")}
		for _, step := range []struct {
			record     table.Range
			mark, runs string
		}{
			{run("40 i", "40 j"), "40 j", "10 b,10 c,30 g,30 h,40 i"},
			{run("20 d", "20 e"), "40 j", "10 b,10 c,20 d,20 e,30 g,30 h,40 i"}, // splits it
			{run("11 c", "19 d"), "40 j", "10 b,20 e,30 g,30 h,40 i"},           // fills one up
			{run("21 e", "21 f"), "40 j", "10 b,21 f,30 g,30 h,40 i"},           // narrows one
			{run("05 a", "05 b"), "40 j", "05 a,21 f,30 g,30 h,40 i"},
			{run("35 h", "35 i"), "40 j", "05 a,21 f,30 g"},
			{run("29 f", "29 g"), "40 j", "05 a"},
		} {
			f.addUsage(counting(rpm, 0, found(0, counted, step.record)))
			counted = counted.With(step.record)
			item := f.raw.Items(f)[0]
			check(f, "mark", item["mark#0"].(*types.AttributeValueMemberS).Value, step.mark)
			check(f, "runs", item["runs#0"].(*types.AttributeValueMemberS).Value, step.runs)
		}
		f.has(usageItem(11, map[string]string{rpm: "0"}, attrs{"mark#0": "40 j", "runs#0": "05 a"}))
	}},
	{"what is counted is no more as it was found", func(f *fixture) {
		counted := table.SeenRecords{run("10 b", "10 c"), run("30 g", "30 h")}
		for _, now := range []attrs{
			{"mark#0": "31 i", "runs#0": "10 b,10 c,30 g"},           // more at the end
			{"mark#0": "30 h", "runs#0": "10 b,20 d,30 g"},           // more in the gap
			{"mark#0": "30 h", "runs#0": "09 a,10 c,30 g"},           // more before
			{"mark#0": "30 h", "runs#0": "10 b,10 c,15 d,15 e,30 g"}, // a run in the gap
			{"mark#0": "30 h"},
		} {
			before := usageItem(4, nil, now)
			f.raw.Put(f, before)
			stored, err := before.SeenRecords()
			f.noError(err)
			f.usageRefused(counting(rpm, 1000, found(0, counted, run("20 e", "20 f"))), stored)
			f.usageRefused(counting(rpm, 1000, found(0, counted, run("40 i", "40 j"))), stored)
			f.has(before)
		}
		f.raw.Put(f, usageItem(4, nil, nil))
		f.usageRefused(counting(rpm, 1000, found(0, counted, run("20 e", "20 f"))), map[int]table.SeenRecords{})
		f.raw.Put(f, usageItem(4, nil, attrs{"mark#0": "30 h", "runs#0": "10 b"}))
		f.usageRefused(counting(rpm, 1000, found(0, table.SeenRecords{run("", "30 h")}, run("40 i", "40 j"))), of0(run("10 b", "30 h")))
	}},
	{"several runs at once need to know what is counted", func(f *fixture) {
		f.addUsage(counting(rpm, 1000, fresh(0, run("10 a", "11 b"), run("15 d", "16 e"))))
		want := usageItem(1, map[string]string{rpm: "1"}, attrs{"mark#0": "16 e", "runs#0": "10 a,11 b,15 d"})
		f.has(want)
		f.usageRefused(counting(rpm, 1000, fresh(0, run("17 e", "18 f"), run("20 x", "20 y"))), of0(run("10 a", "11 b"), run("15 d", "16 e")))
		f.has(want)
	}},
	{"one source counted already refuses them all", func(f *fixture) {
		before := usageItem(4, map[string]string{rpm: "4"}, attrs{
			"mark#0": "09 a", "runs#0": "01 x", "mark#1": "20 m", "runs#1": "02 y", "mark#7": "30 k", "runs#7": "03 z",
		})
		f.raw.Put(f, before)
		counted, err := before.SeenRecords()
		f.noError(err)
		usage := oneCount(rpm, 1000)
		usage.Sources = append(usage.Sources, fresh(1, run("15 l", "25 n")), fresh(2, run("1 o", "2 p")))
		f.usageRefused(usage, counted)
		f.has(before)
		usage.Sources = []table.Source{found(0, counted[0], run("10 a", "10 b")), found(1, counted[1], run("21 m", "25 n")), usage.Sources[2]}
		f.addUsage(usage)
		f.has(build(before, attrs{
			"mark#0": "10 b", "mark#1": "25 n", "mark#2": "2 p", "runs#2": "1 o", "total_events": 5, rpm: 5,
		}))
	}},
	{"what is counted cannot be read", func(f *fixture) {
		for _, broken := range []attrs{
			{"mark#0": 5}, {"mark#0": ""}, {"mark#0": "12 a", "runs#0": 7}, {"mark#0": "12 a", "runs#0": ""},
			{"mark#0": "12 a", "runs#0": "06 a,05 b,09 c"}, {"mark#0": "12 a", "runs#0": "05 a,06 b"},
			{"mark#0": "12 a", "runs#0": "13 a"}, {"mark#0": "12 a", "runs#0": "05 "}, {"mark#0": "12 a", "runs#0": "05 a,,,06 b"},
		} {
			before := usageItem(1, nil, broken)
			f.raw.Put(f, before)
			_, err := f.store.AddUsage(f.Context(), oneCount(rpm, 1000))
			if !errors.Is(err, table.ErrItem) || errors.Is(err, table.ErrRetry) || strings.Contains(err.Error(), group.Entity) {
				f.Errorf("%v: %v", broken, err)
			}
			f.has(before)
		}
	}},
	{"an expiry is set once", func(f *fixture) {
		usage := oneCount(rpm, 1000)
		f.addUsage(usage)
		f.has(usageItem(1, map[string]string{rpm: "1"}, oneCounted))
		for i, expires := range []int64{1800000000, 1900000000} {
			mark := fmt.Sprint(20 + i)
			usage.Expires, usage.Sources = expires, []table.Source{fresh(0, run(mark+" b", mark+" b"))}
			f.addUsage(usage)
		}
		f.has(usageItem(3, map[string]string{rpm: "3"}, attrs{"mark#0": "21 b", "runs#0": "10 a", "ttl": 1800000000}))
	}},
	{"attributes that it does not know stay", func(f *fixture) {
		f.raw.Put(f, usageItem(1, map[string]string{rpm: "1", "other": "3.5"}, everyType))
		f.addUsage(oneCount(rpm, 1000))
		f.has(build(usageItem(2, map[string]string{rpm: "2", "other": "3.5"}, everyType), oneCounted))
	}},
	{"limits of any name, all shards at once", func(f *fixture) {
		usage := oneCount(rpm, 1000)
		usage.Sources = nil
		want, marks := map[string]string{rpm: "1"}, attrs{}
		for i := range 32 {
			mark := fmt.Sprintf("%021d", i)
			usage.Sources = append(usage.Sources, fresh(i, run(mark+" a", mark+" b")))
			marks[table.PositionAttr(i)], marks[table.RangesAttr(i)] = mark+" b", mark+" a"
		}
		for i, name := range awkward {
			usage.Counters[name], want[name] = int64(i), table.Tokens(int64(i))
		}
		for i := range 40 {
			name := fmt.Sprintf("limit.%d", i)
			usage.Counters[name], want[name] = 1000, "1"
		}
		f.addUsage(usage)
		f.has(usageItem(1, want, marks))
	}},
	{"a counter named like an attribute of the item", func(f *fixture) {
		for _, name := range []string{"PK", "GSI1SK", "ttl", "window", "total_events", "entity_id", "mark#0", "runs#0", ""} {
			_, err := f.store.AddUsage(f.Context(), oneCount(name, 1000))
			if !errors.Is(err, table.ErrItem) || errors.Is(err, table.ErrRetry) {
				f.Errorf("%s: %v", name, err)
			}
		}
		f.has()
	}},
	{"a stored counter that is no number", func(f *fixture) {
		before := usageItem(1, nil, attrs{rpm: "many"})
		f.raw.Put(f, before)
		_, err := f.store.AddUsage(f.Context(), oneCount(rpm, 1000))
		if err == nil || errors.Is(err, table.ErrRetry) {
			f.Errorf("got %v", err)
		}
		f.has(before)
	}},
}
