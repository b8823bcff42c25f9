package proof_test

import (
	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/internal/explore"
	"github.com/shardquota/shardquota/table"
)

// counting is a world in which usage is counted.
func (w *world) counting() { w.windows = []events.Window{events.Hourly} }

// usageScenarios are about usage that is counted once.
var usageScenarios = []scenario{
	{
		"a batch is delivered again, in halves", noon,
		[]table.Item{q(0, 2, 400_000, 2), q(1, 2, 400_000, 2)},
		func(w *world) []explore.Spec {
			w.counting()
			return []explore.Spec{
				w.client("spender", 0, spends(0, 1000), spends(1, 2000), spends(0, 4000)),
				w.aggregator("aggregator", consumer{polls: 2, halves: true}, 1, 2),
			}
		},
	},
	{
		"two aggregators have the same batch", noon,
		[]table.Item{q(0, 2, 400_000, 2), q(1, 2, 400_000, 2)},
		func(w *world) []explore.Spec {
			w.counting()
			return []explore.Spec{
				w.client("spender", 0, spends(0, 1000), spends(1, 2000), spends(0, 4000)),
				w.aggregator("aggregator", consumer{polls: 2}, 1, 1),
				w.aggregator("its twin", consumer{polls: 1}, 0, 0),
			}
		},
	},
	{
		"a batch is discarded and driven again later", noon,
		[]table.Item{q(0, 1, 400_000, 1)},
		func(w *world) []explore.Spec {
			w.counting()
			return []explore.Spec{
				w.client("spender", 0, spends(0, 1000), spends(0, 2000), spends(0, 4000)),
				w.aggregator("aggregator", consumer{polls: 3, attempts: 1}, 1, 2),
				w.redriver(1),
			}
		},
	},
	{
		"the stream is made anew", noon,
		[]table.Item{q(0, 1, 400_000, 1)},
		func(w *world) []explore.Spec {
			w.counting()
			return []explore.Spec{
				w.client("client", 0, spends(0, 1000), spends(0, 2000), renews, spends(0, 4000)),
				w.aggregator("aggregator", consumer{polls: 2}, 1, 0),
			}
		},
	},
	{
		"an hour ends while the table is down", noon + hour - 5,
		[]table.Item{q(0, 2, 400_000, 2), q(1, 2, 400_000, 2)},
		func(w *world) []explore.Spec {
			w.counting()
			return []explore.Spec{
				w.clockwork(noon + hour + 5),
				w.client("spender", 0, spends(0, 1000), spends(1, 2000), spends(0, 4000)),
				w.aggregator("aggregator", consumer{polls: 2, most: 2}, 0, 2),
			}
		},
	},
	{
		"shards are created, spent from and counted", noon,
		[]table.Item{q(0, 1, 400_000, 1)},
		func(w *world) []explore.Spec {
			w.counting()
			return []explore.Spec{
				w.client("client", 0, spends(0, 1000), doubles(1), creates(1), uses(1, 2000), spends(1, -500)),
				w.aggregator("aggregator", consumer{polls: 2}, 1, 1),
			}
		},
	},
}
