package proof_test

import (
	"github.com/shardquota/shardquota/internal/explore"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// gathered has a shard say that q is.
var gathered = attrs{table.Attr("q", table.FieldDivision): string(quota.Pooled)}

// g is a shard of a gathered quota as a Limiter leaves it at noon.
func g(shard, n int, balance int64, grant int, more ...attrs) table.Item {
	return u(shard, n, balance, grant, append([]attrs{gathered}, more...)...)
}

// gatherScenarios are those in which uses are taken off several shards at once.
var gatherScenarios = []scenario{
	{
		"limiters gather the last tokens of two shards while others take them", noon,
		[]table.Item{g(0, 2, 200_500, 2), g(1, 2, 100_500, 2)},
		func(w *world) []explore.Spec {
			return []explore.Spec{
				w.limiter("limiter", program{count: 2, crashes: 1}, acquires(250)),
				w.limiter("other limiter", program{count: 2, picks: []int{1}}, acquires(201), releases),
				w.limiter("spender", program{count: 2}, acquires(150)),
			}
		},
	},
	{
		"a limiter gathers while the count doubles and shards are created", noon,
		[]table.Item{g(0, 2, 200_000, 1, hot)},
		func(w *world) []explore.Spec {
			w.before(0, g(0, 1, 200_000, 1), noon)
			return []explore.Spec{
				w.limiter("limiter", program{count: 2}, acquires(300)),
				w.aggregator("aggregator", consumer{polls: 1}, 0, 0),
			}
		},
	},
	{
		"a limiter gathers from shards that another creates", noon,
		[]table.Item{g(0, 2, 400_000, 1)},
		func(w *world) []explore.Spec {
			return []explore.Spec{
				w.limiter("limiter", program{count: 2}, acquires(300), releases),
				w.limiter("other limiter", program{count: 2, picks: []int{1}}, acquires(250)),
			}
		},
	},
	{
		"a limiter gathers across midnight while a sibling is restored", midnight + second,
		[]table.Item{g(0, 2, 40_000, 2, refilled(midnight-hour), until(midnight)), g(1, 2, 30_000, 2, refilled(midnight-hour), until(midnight))},
		func(w *world) []explore.Spec {
			return []explore.Spec{
				w.limiter("limiter", program{count: 2}, acquires(700), adjusts(-100)),
				w.limiter("other limiter", program{count: 2, picks: []int{1}}, acquires(100)),
			}
		},
	},
	{
		"answers are lost of gathering and giving back", noon,
		[]table.Item{g(0, 2, 200_000, 2), g(1, 2, 100_000, 2)},
		func(w *world) []explore.Spec {
			return []explore.Spec{
				w.limiter("limiter", program{count: 2, faults: 2}, acquires(250), adjusts(-150), releases),
				w.limiter("spender", program{count: 2, picks: []int{1}}, acquires(50)),
			}
		},
	},
}
