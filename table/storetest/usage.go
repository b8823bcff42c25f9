package storetest

import (
	"errors"
	"fmt"
	"maps"

	"github.com/shardquota/shardquota/table"
)

var hour = table.UsageKey{Group: group, Window: "hourly", Start: "2026-12-01T01:00:00Z"}

// oneCount is the usage of one limit by shard 0's record "10".
func oneCount(limit string, milli int64) table.Usage {
	return table.Usage{
		Key:      hour,
		Counters: map[string]int64{limit: milli},
		Events:   1,
		Sources:  []table.Source{{Shard: 0, First: "10", Last: "10"}},
	}
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
		f.Fatalf("refused; marks %v", result.Marks)
	}
}

func (f *fixture) usageRefused(usage table.Usage, marks map[int]string) {
	f.Helper()
	result, err := f.store.AddUsage(f.Context(), usage)
	f.noError(err)
	if result.Applied || !maps.Equal(result.Marks, marks) {
		f.Errorf("got %+v, not a refusal with %v", result, marks)
	}
}

var usageCases = []testCase{
	{"the first usage makes the item", func(f *fixture) {
		usage := oneCount(rpm, 1500)
		usage.Counters["tpm"], usage.Events, usage.Expires = 2000, 3, 1800000000
		usage.Sources = []table.Source{{Shard: 0, First: "10", Last: "12"}, {Shard: 5, First: "03", Last: "07"}}
		f.addUsage(usage)
		f.has(usageItem(3, map[string]string{rpm: "1.5", "tpm": "2"},
			attrs{"mark#0": "12", "mark#5": "07", "ttl": 1800000000}))
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
		}, attrs{"mark#0": "10"}))
	}},
	{"a thousand small parts make a whole", func(f *fixture) {
		usage := oneCount(rpm, 1)
		for i := range 1000 {
			mark := fmt.Sprintf("%05d", i)
			usage.Sources = []table.Source{{Shard: 0, First: mark, Last: mark}}
			f.addUsage(usage)
		}
		f.has(usageItem(1000, map[string]string{rpm: "1"}, attrs{"mark#0": "00999"}))
	}},
	{"refunds count backwards", func(f *fixture) {
		usage := oneCount(rpm, -1500)
		f.addUsage(usage)
		f.has(usageItem(1, map[string]string{rpm: "-1.5"}, attrs{"mark#0": "10"}))
	}},
	{"a mark equal to the first is a duplicate", func(f *fixture) {
		f.addUsage(oneCount(rpm, 1000))
		f.usageRefused(oneCount(rpm, 1000), map[int]string{0: "10"})
		f.has(usageItem(1, map[string]string{rpm: "1"}, attrs{"mark#0": "10"}))
	}},
	{"marks compare as strings", func(f *fixture) {
		before := usageItem(1, map[string]string{rpm: "1"}, attrs{"mark#0": "9"})
		f.raw.Put(f, before)
		f.usageRefused(oneCount(rpm, 1000), map[int]string{0: "9"})
		f.has(before)
		f.raw.Put(f, usageItem(1, map[string]string{rpm: "1"}, attrs{"mark#0": "0999"}))
		f.addUsage(oneCount(rpm, 1000))
		f.has(usageItem(2, map[string]string{rpm: "2"}, attrs{"mark#0": "10"}))
	}},
	{"one source counted already refuses them all", func(f *fixture) {
		before := usageItem(4, map[string]string{rpm: "4"}, attrs{"mark#0": "09", "mark#1": "20", "mark#7": "30"})
		f.raw.Put(f, before)
		usage := oneCount(rpm, 1000)
		usage.Sources = append(usage.Sources, table.Source{Shard: 1, First: "15", Last: "25"}, table.Source{Shard: 2, First: "1", Last: "2"})
		f.usageRefused(usage, map[int]string{0: "09", 1: "20", 7: "30"})
		f.has(before)
	}},
	{"a mark that is no string refuses", func(f *fixture) {
		before := usageItem(1, nil, attrs{"mark#0": 5})
		f.raw.Put(f, before)
		f.usageRefused(oneCount(rpm, 1000), map[int]string{0: ""})
		f.has(before)
	}},
	{"an expiry is set once", func(f *fixture) {
		usage := oneCount(rpm, 1000)
		f.addUsage(usage)
		f.has(usageItem(1, map[string]string{rpm: "1"}, attrs{"mark#0": "10"}))
		for i, expires := range []int64{1800000000, 1900000000} {
			mark := fmt.Sprint(20 + i)
			usage.Expires, usage.Sources = expires, []table.Source{{Shard: 0, First: mark, Last: mark}}
			f.addUsage(usage)
		}
		f.has(usageItem(3, map[string]string{rpm: "3"}, attrs{"mark#0": "21", "ttl": 1800000000}))
	}},
	{"attributes that it does not know stay", func(f *fixture) {
		f.raw.Put(f, usageItem(1, map[string]string{rpm: "1", "other": "3.5"}, everyType))
		f.addUsage(oneCount(rpm, 1000))
		f.has(build(usageItem(2, map[string]string{rpm: "2", "other": "3.5"}, everyType), attrs{"mark#0": "10"}))
	}},
	{"limits of any name, all shards at once", func(f *fixture) {
		usage := oneCount(rpm, 1000)
		usage.Sources = nil
		want, marks := map[string]string{rpm: "1"}, attrs{}
		for i := range 32 {
			mark := fmt.Sprintf("%021d", i)
			usage.Sources = append(usage.Sources, table.Source{Shard: i, First: mark, Last: mark})
			marks[table.MarkAttr(i)] = mark
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
		for _, name := range []string{"PK", "GSI1SK", "ttl", "window", "total_events", "entity_id", "mark#0", ""} {
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
