package storetest

import (
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

var outliveCases = []testCase{
	{"what expires too early expires later, and nothing earlier", func(f *fixture) {
		for _, c := range []struct{ stored, want any }{{899, 950}, {5, 950}, {900, 900}, {951, 951}, {nil, nil}} {
			item := bucket(group.At(1), attrs{"ttl": c.stored, "shard_count": 2})
			f.put(item)
			f.noError(f.store.Outlive(f.Context(), group, []quota.Extension{{Shard: 1, Least: 900, Expires: 950}}))
			f.has(build(item, attrs{"ttl": c.want}))
		}
	}},
	{"several shards, of which one is not there", func(f *fixture) {
		items := []table.Item{bucket(first, attrs{"ttl": 5, "shard_count": 4}), bucket(group.At(2), attrs{"ttl": 6, "shard_count": 4})}
		f.put(items[0])
		f.put(items[1])
		f.noError(f.store.Outlive(f.Context(), group, []quota.Extension{
			{Shard: 0, Least: 7, Expires: 70}, {Shard: 1, Least: 7, Expires: 71}, {Shard: 2, Least: 7, Expires: 72},
		}))
		f.has(build(items[0], attrs{"ttl": 70}), build(items[1], attrs{"ttl": 72}))
	}},
}
