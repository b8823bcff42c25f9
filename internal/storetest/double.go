package storetest

import "github.com/shardquota/shardquota/table"

func (f *fixture) double(from int, want table.DoubleResult) {
	f.Helper()
	got, err := f.store.Double(f.Context(), group, from)
	f.noError(err)
	check(f, "result", got, want)
}

var doubleCases = []testCase{
	{"shard 0's count, and nothing else", func(f *fixture) {
		item := bucket(first, limit(rpm, 1, 2), everyType, attrs{"shard_count": 4})
		other := bucket(group.At(1), limit(rpm, 1, 2), attrs{"shard_count": 4})
		f.raw.Put(f, item)
		f.raw.Put(f, other)
		f.double(4, table.DoubleResult{Applied: true, Count: 8})
		f.has(build(item, attrs{"shard_count": 8}), other)
	}},
	{"an absent count is 1", func(f *fixture) {
		item := bucket(first, limit(rpm, 1, 2), attrs{"shard_count": nil})
		f.raw.Put(f, item)
		f.double(2, table.DoubleResult{Count: 1})
		f.has(item)
		f.double(1, table.DoubleResult{Applied: true, Count: 2})
		f.has(build(item, attrs{"shard_count": 2}))
	}},
	{"a count below 1 is 1", func(f *fixture) {
		item := bucket(first, limit(rpm, 1, 2), attrs{"shard_count": 0})
		f.raw.Put(f, item)
		f.double(1, table.DoubleResult{Applied: true, Count: 2})
		f.has(build(item, attrs{"shard_count": 2}))
	}},
	{"another count", func(f *fixture) {
		item := bucket(first, limit(rpm, 1, 2), attrs{"shard_count": 8})
		f.raw.Put(f, item)
		for _, from := range []int{1, 2, 4, 16} {
			f.double(from, table.DoubleResult{Count: 8})
		}
		f.has(item)
	}},
	{"once", func(f *fixture) {
		item := bucket(first, limit(rpm, 1, 2))
		f.raw.Put(f, item)
		f.double(1, table.DoubleResult{Applied: true, Count: 2})
		f.double(1, table.DoubleResult{Count: 2})
		f.has(build(item, attrs{"shard_count": 2}))
	}},
	{"no shard 0", func(f *fixture) {
		other := bucket(group.At(1), limit(rpm, 1, 2))
		f.raw.Put(f, other)
		f.double(1, table.DoubleResult{})
		f.double(2, table.DoubleResult{})
		f.has(other)
	}},
}
