package proof_test

import (
	"github.com/shardquota/shardquota/internal/explore"
	"github.com/shardquota/shardquota/table"
)

// shardScenarios are about shards that are created and doubled within a period.
var shardScenarios = []scenario{
	{
		"a shard is created at 2 while the count doubles to 4", noon,
		[]table.Item{q(0, 2, 500_000, 2)},
		func(w *world) []explore.Spec {
			return []explore.Spec{
				w.client("client", 0, creates(1)),
				w.client("other client", 0, doubles(2), creates(3)),
			}
		},
	},
	{
		"the aggregator and a client create the same shards", noon,
		[]table.Item{q(0, 4, 700_000, 1), q(1, 2, 300_000, 2)},
		func(w *world) []explore.Spec {
			w.before(0, q(0, 2, 700_000, 1), noon)
			return []explore.Spec{
				w.aggregator("aggregator", consumer{polls: 1}, 1, 0),
				w.client("client", 0, creates(3), creates(2)),
			}
		},
	},
	{
		"donors are spent from while shards are created", noon,
		[]table.Item{q(0, 4, 300_000, 1)},
		func(w *world) []explore.Spec {
			w.before(0, q(0, 1, 300_000, 1), noon)
			return []explore.Spec{
				w.aggregator("aggregator", consumer{polls: 1}, 1, 0),
				w.client("spender", 0, spends(0, 120_000), spends(0, -40_000), spends(0, 220_000), spends(0, 100_000)),
			}
		},
	},
	{
		"a hot shard 0 goes from 1 to 4 while a client spends and creates", noon,
		[]table.Item{q(0, 1, 1_000_000, 1, hot)},
		func(w *world) []explore.Spec {
			return []explore.Spec{
				w.aggregator("aggregator", consumer{polls: 4}, 0, 0),
				w.client("client", 0, uses(0, 200_000), uses(0, 200_000), creates(1), uses(1, 100_000)),
			}
		},
	},
	{
		"shards that expire today are doubled, passed and used", noon,
		[]table.Item{u(0, 4, 400_000, 2, expiring(noon+hour)), u(1, 4, 300_000, 2, until(0), expiring(noon+hour))},
		func(w *world) []explore.Spec {
			w.before(0, u(0, 2, 400_000, 2, expiring(noon+hour)), noon)
			w.before(1, u(1, 4, 300_000, 2, until(0), expiring(noon+hour)), noon)
			return []explore.Spec{
				w.aggregator("aggregator", consumer{polls: 1}, 1, 0),
				w.limiter("limiter", program{count: 4, picks: []int{2}}, acquires(20)),
			}
		},
	},
	{
		"1 to 4 by a client, with two aggregators on the same stream", noon,
		[]table.Item{q(0, 1, 800_000, 1)},
		func(w *world) []explore.Spec {
			return []explore.Spec{
				w.client("client", 0, doubles(1), doubles(2)),
				w.aggregator("aggregator", consumer{polls: 2}, 0, 0),
				w.aggregator("its twin", consumer{polls: 1}, 0, 0),
			}
		},
	},
	{
		"the aggregator's requests fail while it creates shards", noon,
		[]table.Item{q(0, 4, 700_000, 1), q(1, 2, 300_000, 2)},
		func(w *world) []explore.Spec {
			w.before(0, q(0, 2, 700_000, 1), noon)
			return []explore.Spec{
				w.aggregator("aggregator", consumer{polls: 1}, 1, 2),
				w.client("client", 0, creates(3), uses(3, 100_000)),
			}
		},
	},
	{
		"a legacy shard 0, half spent, is doubled", noon,
		[]table.Item{q(0, 1, 400_000, 0, attrs{"b_wcu_tk": 4000})},
		func(w *world) []explore.Spec {
			w.before(0, q(0, 1, 400_000, 0, attrs{"b_wcu_tk": 5000}), noon)
			return []explore.Spec{
				w.aggregator("aggregator", consumer{polls: 2}, 1, 1),
				w.client("client", 0, creates(1)),
				w.client("spender", 0, spends(0, 150_000)),
			}
		},
	},
	{
		"legacy siblings are raised", noon,
		[]table.Item{q(0, 4, 250_000, 2), q(1, 2, 350_000, 0)},
		func(w *world) []explore.Spec {
			w.before(0, q(0, 2, 250_000, 2), noon)
			return []explore.Spec{
				w.aggregator("aggregator", consumer{polls: 1}, 1, 0),
				w.client("client", 0, creates(3)),
				w.client("spender", 0, spends(1, 180_000)),
			}
		},
	},
}
