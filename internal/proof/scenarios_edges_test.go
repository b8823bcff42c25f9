package proof_test

import (
	"github.com/shardquota/shardquota/internal/explore"
	"github.com/shardquota/shardquota/table"
)

// edgeScenarios are about a period that ends meanwhile.
var edgeScenarios = []scenario{
	{
		"a sibling is restored while its slot is created", midnight + 5,
		[]table.Item{q(0, 4, 300_000, 1, stale), q(1, 2, 200_000, 2, stale)},
		func(w *world) []explore.Spec {
			w.before(0, q(0, 2, 300_000, 1, stale), midnight)
			return []explore.Spec{
				w.aggregator("aggregator", consumer{polls: 2}, 1, 0),
				w.client("client", 0, passes(1)),
			}
		},
	},
	{
		"1 to 4 while a restored shard 0 is spent from", midnight + 5,
		[]table.Item{q(0, 1, 20_000, 1, stale)},
		func(w *world) []explore.Spec {
			return []explore.Spec{
				w.client("client", 0, doubles(1), doubles(2)),
				w.aggregator("aggregator", consumer{polls: 2}, 1, 0),
				w.client("spender", 0, uses(0, 150_000)),
			}
		},
	},
	{
		"midnight passes while shards are created and used", midnight - 5,
		[]table.Item{q(0, 4, 300_000, 1, refilled(midnight-hour)), q(1, 4, 100_000, 2, refilled(midnight-hour))},
		func(w *world) []explore.Spec {
			w.before(0, q(0, 2, 300_000, 1, refilled(midnight-hour)), midnight-second)
			return []explore.Spec{
				w.clockwork(midnight + 5),
				w.aggregator("aggregator", consumer{polls: 1}, 1, 0),
				w.client("client", 0, uses(1, 60_000), uses(0, 250_000)),
			}
		},
	},
	{
		"a batch from before the edge and a client after it", midnight + 5,
		[]table.Item{q(0, 4, 300_000, 1, refilled(midnight-hour)), q(1, 4, 100_000, 2, refilled(midnight-hour))},
		func(w *world) []explore.Spec {
			w.before(0, q(0, 2, 300_000, 1, refilled(midnight-hour)), midnight-second)
			return []explore.Spec{
				w.aggregator("aggregator", consumer{polls: 1, skew: -second}, 1, 0),
				w.client("client", 0, passes(1), passes(0), spends(0, 250_000)),
			}
		},
	},
	{
		"a client before the edge and an aggregator that is ahead of it", midnight + 5,
		[]table.Item{q(0, 4, 300_000, 1, refilled(midnight-hour)), q(1, 2, 100_000, 2, refilled(midnight-hour))},
		func(w *world) []explore.Spec {
			w.before(0, q(0, 2, 300_000, 1, refilled(midnight-hour)), midnight-second)
			return []explore.Spec{
				w.aggregator("aggregator", consumer{polls: 1, skew: 200}, 1, 0),
				w.client("client", -505, spends(1, 60_000), creates(3), passes(0)),
			}
		},
	},
	{
		"refunds and spending on both sides of midnight", midnight - 5,
		[]table.Item{q(0, 2, 400_000, 1, refilled(midnight-hour)), q(1, 2, 300_000, 2, refilled(midnight-hour), drips("rpm", 5_000, 60_000))},
		func(w *world) []explore.Spec {
			return []explore.Spec{
				w.clockwork(midnight + 5),
				w.aggregator("aggregator", consumer{polls: 1}, 0, 1),
				w.client("spender", 0, spends(0, 150_000), spends(0, -100_000), uses(0, 300_000), spends(0, -50_000)),
				w.client("other spender", 0, uses(1, 200_000)),
			}
		},
	},
	{
		"a dripping limit beside a quota that is restored", midnight + 5,
		[]table.Item{q(0, 4, 10_000, 1, stale, drips("rpm", 10_000, 600_000)), q(1, 2, 20_000, 2, stale, drips("rpm", 10_000, 600_000))},
		func(w *world) []explore.Spec {
			w.before(0, q(0, 2, 10_000, 1, stale, drips("rpm", 10_000, 600_000)), midnight)
			w.before(1, q(1, 2, 25_000, 2, stale, drips("rpm", 10_000, 600_000)), midnight)
			return []explore.Spec{
				w.clockwork(midnight + 10_000),
				w.aggregator("aggregator", consumer{polls: 1}, 0, 0),
				w.client("client", 0, uses(0, 100_000)),
			}
		},
	},
}
