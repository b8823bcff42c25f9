package storetest

import (
	"github.com/shardquota/shardquota/quota"
)

func (f *fixture) freeze(freezes ...quota.Freeze) {
	f.Helper()
	f.noError(f.store.Freeze(f.Context(), first, freezes))
}

var freezeCases = []testCase{
	{"grant counts where none are, and nothing else", func(f *fixture) {
		item := bucket(first, everyType, calendar(calls, 500, 1000, 0), calendar("a.b-c_d", 500, 1000, 4))
		other := bucket(group.At(1), calendar(calls, 500, 1000, 0))
		f.raw.Put(f, item)
		f.raw.Put(f, other)
		f.freeze(quota.Freeze{Limit: calls, Grant: 2}, quota.Freeze{Limit: "a.b-c_d", Grant: 1})
		f.has(build(item, attrs{"b_calls_gc": 2}), other)
	}},
	{"once", func(f *fixture) {
		item := bucket(first, calendar(calls, 500, 1000, 0))
		f.raw.Put(f, item)
		f.freeze(quota.Freeze{Limit: calls, Grant: 2})
		f.freeze(quota.Freeze{Limit: calls, Grant: 8})
		f.has(build(item, attrs{"b_calls_gc": 2}))
	}},
	{"no bucket", func(f *fixture) {
		f.freeze(quota.Freeze{Limit: calls, Grant: 2})
		f.has()
	}},
}
