package storetest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/table"
)

func (f *fixture) insert(item table.Item, want bool) {
	f.Helper()
	inserted, err := f.client().Insert(f.Context(), item)
	f.noError(err)
	check(f, "inserted", inserted, want)
}

// meta is an item that is no bucket.
func meta(entity string, more attrs) table.Item {
	return build(table.Item{}, attrs{"PK": "n5/ENTITY#" + entity, "SK": "#META", "name": "of " + entity}, more)
}

var insertCases = []testCase{
	{"an item where there is none", func(f *fixture) {
		other := meta("b", nil)
		f.raw.Put(f, other)
		f.insert(meta("a", everyType), true)
		f.has(other, meta("a", everyType))
	}},
	{"not over another", func(f *fixture) {
		for _, more := range []attrs{{"x": 1}, {"name": nil}, {"name": "other"}} {
			stored := meta("a", more)
			f.raw.Put(f, stored)
			f.insert(meta("a", nil), false)
			f.has(stored)
		}
	}},
	{"a retry is recognised as long as the item is as it was put", func(f *fixture) {
		item := bucket(first, everyType, limit(rpm, 5, 10))
		f.insert(item, true)
		f.insert(item, true)
		f.has(item)
		for _, since := range []attrs{{"b_rpm_tk": 4}, {"rf": now + 1}, {"x_unknown": 1}, {"x_wide": nil}} {
			stored := build(item, since)
			f.raw.Put(f, stored)
			f.insert(item, false)
			f.has(stored)
		}
	}},
	{"and however its numbers and sets were written", func(f *fixture) {
		item := func(number string, numbers, texts []string) table.Item {
			return meta("a", attrs{
				"n": table.N(number), "ns": &types.AttributeValueMemberNS{Value: numbers}, "ss": &types.AttributeValueMemberSS{Value: texts},
				"m": &types.AttributeValueMemberM{Value: table.Item{"n": table.N(number)}},
			})
		}
		f.insert(item("1.50", []string{"2.0", "1"}, []string{"b", "a"}), true)
		f.insert(item("1.50", []string{"2.0", "1"}, []string{"b", "a"}), true)
		f.insert(item("15e-1", []string{"1", "2"}, []string{"a", "b"}), true)
		f.insert(item("1.51", []string{"1", "2"}, []string{"a", "b"}), false)
		f.insert(item("1.5", []string{"1", "2"}, []string{"a", "c"}), false)
	}},
	{"what is put over or removed", func(f *fixture) {
		f.raw.Put(f, meta("a", attrs{"x": 1}))
		f.raw.Put(f, meta("a", everyType))
		f.raw.Put(f, meta("b", nil))
		f.has(meta("a", everyType), meta("b", nil))
		for _, there := range []bool{true, false} {
			f.remove(meta("a", nil), there)
			f.has(meta("b", nil))
		}
		f.insert(meta("a", nil), true)
	}},
}

func (f *fixture) remove(item table.Item, want bool, expect ...table.NamedValue) {
	f.Helper()
	pk, sk := item.Key()
	removed, err := f.client().Remove(f.Context(), pk, sk, expect...)
	f.noError(err)
	check(f, "removed", removed, want)
}

func (f *fixture) amend(item table.Item, amendment table.Amendment) (table.WriteResult, error) {
	pk, sk := item.Key()
	return f.client().Amend(f.Context(), pk, sk, amendment)
}

// expectation is what a write may expect of the item n = 5, text = x, on = true,
// and whether it is so.
type expectation struct {
	name   string
	expect []table.NamedValue
	holds  bool
}

var expectations = []expectation{
	{"nothing", nil, true},
	{"a number", []table.NamedValue{{Name: "n", Value: table.N("5")}}, true},
	{"a number written otherwise", []table.NamedValue{{Name: "n", Value: table.N("5.0")}}, true},
	{"another number", []table.NamedValue{{Name: "n", Value: table.N("6")}}, false},
	{"another type", []table.NamedValue{{Name: "n", Value: table.S("5")}}, false},
	{"text", []table.NamedValue{{Name: "text", Value: table.S("x")}}, true},
	{"a flag", []table.NamedValue{{Name: "on", Value: &types.AttributeValueMemberBOOL{}}}, false},
	{"nothing there", []table.NamedValue{{Name: "gone", Value: nil}}, true},
	{"nothing there, where something is", []table.NamedValue{{Name: "n", Value: nil}}, false},
	{"something, where nothing is", []table.NamedValue{{Name: "gone", Value: table.S("")}}, false},
	{"all of it", []table.NamedValue{{Name: "n", Value: table.N("5")}, {Name: "gone"}, {Name: "text", Value: table.S("y")}}, false},
}

var removeCases = []testCase{
	{"what is expected", func(f *fixture) {
		item, other := meta("a", attrs{"n": 5, "text": "x", "on": true}), meta("b", nil)
		f.raw.Put(f, other)
		for _, c := range expectations {
			f.raw.Put(f, item)
			f.remove(item, c.holds, c.expect...)
			if c.holds {
				f.has(other)
			} else {
				f.has(item, other)
			}
		}
	}},
	{"nothing is removed where nothing is", func(f *fixture) {
		f.remove(meta("a", nil), false)
		f.remove(meta("a", nil), false, table.NamedValue{Name: "n"})
		f.has()
	}},
}

var amendCases = []testCase{
	{"what is set and what is removed", func(f *fixture) {
		item := meta("a", merge(everyType, attrs{"old": "x", "l_tokens.in_cp": 5}))
		f.raw.Put(f, item)
		taken, err := f.amend(item, table.Amendment{
			Set:    build(table.Item{}, attrs{"l_tokens.in_cp": 60, "l_b_x_tk_ra": 7, "on": true}),
			Remove: []string{"old", "never-there"},
		})
		f.written("amend", taken, err, build(item, attrs{"l_tokens.in_cp": 60, "l_b_x_tk_ra": 7, "on": true, "old": nil}))
	}},
	{"what is expected", func(f *fixture) {
		item := meta("a", attrs{"n": 5, "text": "x", "on": true})
		for _, c := range expectations {
			f.raw.Put(f, item)
			taken, err := f.amend(item, table.Amendment{Set: build(table.Item{}, attrs{"n": 8}), Remove: []string{"text"}, Expect: c.expect})
			if c.holds {
				f.written(c.name, taken, err, build(item, attrs{"n": 8, "text": nil}))
			} else {
				f.refused(c.name, taken, err, item)
			}
		}
	}},
	{"nothing but what is expected", func(f *fixture) {
		item := meta("a", attrs{"n": 5})
		f.raw.Put(f, item)
		taken, err := f.amend(item, table.Amendment{Expect: []table.NamedValue{{Name: "n", Value: table.N("5")}}})
		f.written("amend", taken, err, item)
	}},
	{"only removals", func(f *fixture) {
		item := meta("a", attrs{"n": 5})
		f.raw.Put(f, item)
		taken, err := f.amend(item, table.Amendment{Remove: []string{"n"}})
		f.written("amend", taken, err, meta("a", nil))
	}},
	{"no item is made", func(f *fixture) {
		for _, amendment := range []table.Amendment{{}, {Set: build(table.Item{}, attrs{"n": 8})}, {Expect: []table.NamedValue{{Name: "n"}}}} {
			taken, err := f.amend(meta("a", nil), amendment)
			f.refused("amend", taken, err, nil)
		}
	}},
}

var itemCases = []testCase{
	{"in the order of their keys, nil where there is none", func(f *fixture) {
		a, b, zero := meta("a", everyType), meta("b", nil), bucket(first, limit(rpm, 1, 2))
		for _, item := range []table.Item{a, b, zero} {
			f.raw.Put(f, item)
		}
		at := func(item table.Item) table.ItemKey {
			pk, sk := item.Key()
			return table.ItemKey{PK: pk, SK: sk}
		}
		absent := table.ItemKey{PK: "n5/ENTITY#a", SK: "#CONFIG"}
		f.items([]table.ItemKey{at(b), absent, at(zero), at(a)}, b, nil, zero, a)
		f.items([]table.ItemKey{at(a), at(b)}, a, b)
		f.items([]table.ItemKey{absent}, nil)
		f.items(nil)
		f.items([]table.ItemKey{at(a), at(b), at(a), absent, absent, at(a)}, a, b, a, nil, nil, a)
	}},
	{"more than a service reads at once", func(f *fixture) {
		var keys []table.ItemKey
		var want []table.Item
		for i := range 130 {
			item := meta(fmt.Sprintf("e%d", i), nil)
			pk, sk := item.Key()
			keys = append(keys, table.ItemKey{PK: pk, SK: sk})
			if i%13 != 0 {
				f.raw.Put(f, item)
				want = append(want, item)
			} else {
				want = append(want, nil)
			}
		}
		f.items(keys, want...)
	}},
	{"an acknowledged write is seen, and what is done to the answer is not", func(f *fixture) {
		f.insert(meta("a", attrs{"n": 1}), true)
		f.insert(meta("b", nil), true)
		keys := []table.ItemKey{{PK: "n5/ENTITY#a", SK: "#META"}, {PK: "n5/ENTITY#a", SK: "#META"}}
		items, err := f.client().Items(f.Context(), keys)
		f.noError(err)
		delete(items[0], "n")
		f.sameItem("the same item once more", items[1], meta("a", attrs{"n": 1}))
		f.has(meta("a", attrs{"n": 1}), meta("b", nil))
	}},
}

func (f *fixture) items(keys []table.ItemKey, want ...table.Item) {
	f.Helper()
	got, err := f.client().Items(f.Context(), keys)
	f.noError(err)
	if len(got) != len(want) {
		f.Fatalf("%d items, not %d", len(got), len(want))
	}
	for i := range want {
		f.sameItem(fmt.Sprintf("item %d", i), got[i], want[i])
	}
}

func (f *fixture) find(scope table.Scope, want ...string) {
	f.Helper()
	keys, err := f.client().Find(f.Context(), scope)
	f.noError(err)
	var got []string
	for _, key := range keys {
		got = append(got, key.PK())
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		f.Errorf("%+v: found %q, not %q", scope, got, want)
	}
}

// findable are the buckets of findCases, by their partition keys.
var findable = []string{
	"n5/BUCKET#a#gpt#0", "n5/BUCKET#a#gpt#1", "n5/BUCKET#a#gpt-4#0", "n5/BUCKET#a#models/gpt#0",
	"n5/BUCKET#ab#gpt#0", "n5/BUCKET#b#gpt-4#31", "n6/BUCKET#a#gpt#0", "n55/BUCKET#a#gpt#7",
}

var findCases = []testCase{
	{"by what they are of", func(f *fixture) {
		for _, pk := range findable {
			key, err := table.ParseKey(pk)
			f.noError(err)
			f.raw.Put(f, bucket(key, limit(rpm, 1, 2)))
		}
		// Other items of these indexes, and one in them without being a bucket's.
		f.raw.Put(f, usageItem(1, nil, attrs{"GSI2PK": "n5/RESOURCE#gpt"}))
		f.raw.Put(f, meta("a", attrs{"GSI3PK": "n5/ENTITY#a", "GSI3SK": "BUCKET#gpt#9", "GSI2PK": "n5/RESOURCE#gpt", "GSI2SK": "BUCKET#x", "GSI4PK": "n5", "GSI4SK": "BUCKET#x"}))
		of := func(prefixes ...string) []string {
			return slices.DeleteFunc(slices.Clone(findable), func(pk string) bool {
				return !slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(pk, prefix) })
			})
		}
		f.find(table.Scope{Namespace: "n5"}, of("n5/")...)
		f.find(table.Scope{Namespace: "n55"}, of("n55/")...)
		f.find(table.Scope{Namespace: "n"})
		f.find(table.Scope{Namespace: "n5", Entity: "a"}, of("n5/BUCKET#a#")...)
		f.find(table.Scope{Namespace: "n5", Entity: "c"})
		f.find(table.Scope{Namespace: "n5", Entity: "a", Resource: "gpt"}, of("n5/BUCKET#a#gpt#")...)
		f.find(table.Scope{Namespace: "n5", Entity: "a", Resource: "models/gpt"}, of("n5/BUCKET#a#models/gpt#")...)
		f.find(table.Scope{Namespace: "n5", Entity: "a", Resource: "gp"})
		f.find(table.Scope{Namespace: "n5", Resource: "gpt"}, of("n5/BUCKET#a#gpt#", "n5/BUCKET#ab#gpt#")...)
		f.find(table.Scope{Namespace: "n5", Resource: "gpt-4"}, of("n5/BUCKET#a#gpt-4#", "n5/BUCKET#b#gpt-4#")...)
		f.find(table.Scope{Namespace: "n6", Resource: "gpt-4"})
	}},
	{"none", func(f *fixture) {
		f.find(table.Scope{Namespace: "n5"})
		f.find(table.Scope{Namespace: "n5", Entity: "a", Resource: "gpt"})
	}},
}
