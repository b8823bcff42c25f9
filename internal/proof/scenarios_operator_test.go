package proof_test

import (
	"github.com/shardquota/shardquota/internal/explore"
	"github.com/shardquota/shardquota/table"
)

func lowers(*table.Bucket) attrs   { return attrs{"b_q_cp": 600_000} }
func disables(*table.Bucket) attrs { return attrs{table.AttrDisabled: true} }

// operatorScenarios are about limits that change under way.
var operatorScenarios = []scenario{
	{
		"an operator lowers the limit while shards are created", noon,
		[]table.Item{q(0, 2, 900_000, 1)},
		func(w *world) []explore.Spec {
			w.books.changed = true
			w.before(0, q(0, 1, 900_000, 1), noon)
			return []explore.Spec{
				w.operator("lowers q", lowers),
				w.aggregator("aggregator", consumer{polls: 1}, 1, 0),
				w.client("client", 0, uses(0, 300_000)),
			}
		},
	},
	{
		"an operator raises the limit while midnight passes", midnight - 5,
		[]table.Item{q(0, 4, 300_000, 1, refilled(midnight-hour)), q(1, 2, 100_000, 2, refilled(midnight-hour))},
		func(w *world) []explore.Spec {
			w.books.changed, w.books.capacity = true, 2*million
			return []explore.Spec{
				w.clockwork(midnight + 5),
				w.operator("raises q", func(*table.Bucket) attrs { return attrs{"b_q_cp": 2 * million} }),
				w.client("client", 0, creates(3), uses(1, 100_000)),
			}
		},
	},
	{
		"an operator lowers the limit while midnight passes", midnight - 5,
		[]table.Item{
			q(0, 2, 300_000, 1, refilled(midnight-hour), attrs{table.AttrValidUntil: midnight}),
			q(1, 2, 300_000, 2, refilled(midnight-hour), attrs{table.AttrValidUntil: midnight}),
		},
		func(w *world) []explore.Spec {
			w.books.changed = true
			return []explore.Spec{
				w.clockwork(midnight + 5),
				w.operator("lowers q", lowers),
				w.client("client", 0, uses(0, 200_000)),
				w.aggregator("aggregator", consumer{polls: 1}, 0, 0),
			}
		},
	},
	{
		"an operator disables the bucket while shards are created", noon,
		[]table.Item{q(0, 2, 900_000, 1, attrs{table.AttrValidUntil: noon + hour})},
		func(w *world) []explore.Spec {
			w.unsettled = true
			w.before(0, q(0, 1, 900_000, 1), noon)
			return []explore.Spec{
				w.operator("disables", disables),
				w.aggregator("aggregator", consumer{polls: 1}, 1, 0),
				w.client("client", 0, creates(1), spends(1, 100_000), spends(0, 100_000)),
			}
		},
	},
	{
		"an operator changes the limit twice", noon,
		[]table.Item{q(0, 1, 900_000, 1, attrs{table.AttrValidUntil: noon + hour})},
		func(w *world) []explore.Spec {
			w.books.changed = true
			return []explore.Spec{
				w.operator("lowers q", lowers),
				w.operator("lowers q again", func(*table.Bucket) attrs { return attrs{"b_q_cp": 500_000} }),
				w.client("client", 0, uses(0, 100_000), uses(0, 100_000)),
				w.aggregator("aggregator", consumer{polls: 1}, 0, 0),
			}
		},
	},
	{
		"an operator tops a shard up while its neighbour is created and midnight passes", midnight - 5,
		[]table.Item{q(0, 2, 100_000, 1, refilled(midnight-hour))},
		func(w *world) []explore.Spec {
			w.books.changed = true
			w.before(0, q(0, 1, 100_000, 1, refilled(midnight-hour)), midnight-second)
			return []explore.Spec{
				w.clockwork(midnight + 5),
				w.topUp(0, 300_000),
				w.aggregator("aggregator", consumer{polls: 1}, 0, 0),
				w.client("client", 0, uses(0, 250_000), creates(1)),
			}
		},
	},
}
