package proof_test

import (
	"github.com/shardquota/shardquota/internal/explore"
	"github.com/shardquota/shardquota/table"
)

// rolling are shards of a session quota: 1 was told of the window that 0 opened,
// has not rolled yet, and knows nothing of the doubling to 4.
var rolling = []table.Item{
	q(0, 4, 400_000, 2, window(noon-1000, noon-1000)),
	q(1, 2, 77_000, 2, refilled(noon-3*hour), window(noon-1000, noon-3*hour), attrs{"b_q_wtc": 0}),
}

// ended are shards of a session quota whose window ends at noon.
var ended = []table.Item{
	q(0, 2, 400_000, 1, window(noon-hour, noon-hour)),
	q(1, 2, 300_000, 2, window(noon-hour, noon-hour)),
}

// unopened are shards of a session quota that nobody has used.
func unopened(n int) table.Item {
	return q(0, n, 1_000_000, 1, attrs{"b_q_rsched": nil, "b_q_rsa": 3600})
}

// windowScenarios are about session quotas.
var windowScenarios = []scenario{
	{
		"a first window is opened while a shard is created", noon,
		[]table.Item{unopened(2)},
		func(w *world) []explore.Spec {
			w.unsettled = true
			w.before(0, unopened(1), noon)
			return []explore.Spec{
				w.client("opener", 0, opens(0), spends(0, 100_000)),
				w.aggregator("aggregator", consumer{polls: 2}, 0, 0),
				w.client("client", 0, creates(1), opens(1)),
			}
		},
	},
	{
		"a shard is told of a window, and spent from before it rolls", noon, ended,
		func(w *world) []explore.Spec {
			w.unsettled = true
			return []explore.Spec{
				w.client("opener", 0, opens(0), uses(0, 50_000)),
				w.client("spender", -5, spends(1, 100_000), uses(1, 100_000)),
				w.client("client", 0, doubles(2), creates(3)),
			}
		},
	},
	{
		"a shard from before the layout marked windows rolls", noon,
		[]table.Item{
			q(0, 2, 400_000, 2, window(noon-1000, noon-1000)),
			q(1, 2, 77_000, 0, refilled(noon-3*hour), window(noon-1000, 0), attrs{"b_q_wa": nil, "b_q_wtc": 0}),
		},
		func(w *world) []explore.Spec {
			return []explore.Spec{
				w.client("client", 0, doubles(2), creates(3)),
				w.aggregator("aggregator", consumer{polls: 1}, 0, 0),
				w.client("roller", 0, passes(1)),
			}
		},
	},
	{
		"a window rolls while shards join it", noon, rolling,
		func(w *world) []explore.Spec {
			w.before(0, build(rolling[0], count(2)), noon)
			return []explore.Spec{
				w.aggregator("aggregator", consumer{polls: 2}, 1, 0),
				w.client("client", 0, passes(1), spends(1, 200_000)),
			}
		},
	},
	{
		"a window rolls while shards of two clients join it", noon, rolling,
		func(w *world) []explore.Spec {
			return []explore.Spec{
				w.client("client", 0, creates(3)),
				w.client("roller", 0, passes(1)),
				w.client("other client", 0, creates(2)),
			}
		},
	},
	{
		"a window is opened and told of while the count doubles", noon, ended,
		func(w *world) []explore.Spec {
			w.unsettled = true
			return []explore.Spec{
				w.client("opener", 0, opens(0)),
				w.aggregator("aggregator", consumer{polls: 1}, 0, 0),
				w.client("client", 0, doubles(2), creates(3)),
			}
		},
	},
	{
		"two clients open windows", noon, ended,
		func(w *world) []explore.Spec {
			w.unsettled = true
			return []explore.Spec{
				w.client("opener", 0, opens(0), uses(0, 100_000)),
				w.client("other opener", 3, opens(1), uses(1, 100_000)),
				w.aggregator("aggregator", consumer{polls: 1}, 0, 0),
			}
		},
	},
	{
		"a window ends while shards are created in it", noon - 5, ended,
		func(w *world) []explore.Spec {
			w.unsettled = true
			return []explore.Spec{
				w.clockwork(noon + 5),
				w.client("client", 0, doubles(2), creates(2)),
				w.aggregator("aggregator", consumer{polls: 1}, 0, 0),
				w.client("opener", 0, opens(0)),
			}
		},
	},
}
