package proof_test

import (
	"github.com/shardquota/shardquota/internal/explore"
	"github.com/shardquota/shardquota/limiter"
	"github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/table"
)

// until is when the fast path may last be used.
func until(at int64) attrs { return attrs{table.AttrValidUntil: at} }

// expiring is when the bucket may go.
func expiring(at int64) attrs { return attrs{table.AttrTTL: at / 1000} }

// u is a shard of acme's as a Limiter leaves it at noon.
func u(shard, n int, balance int64, grant int, more ...attrs) table.Item {
	return q(shard, n, balance, grant, append([]attrs{until(midnight + day)}, more...)...)
}

// old is a shard as it was an hour before midnight.
func old(shard, n int, balance int64, grant int) table.Item {
	return u(shard, n, balance, grant, refilled(midnight-hour), until(midnight))
}

// pressed is a shard whose writes are nearly used up, and that has to be looked
// at before it is used.
func pressed(shard, n int, balance int64, grant int) table.Item {
	return u(shard, n, balance, grant, hot, until(0))
}

// daily is q as a Limiter declares it.
func daily(capacity int64) limits.Limit { return limits.Quota("q", capacity, "0 0 * * *") }

// soft is a limit that is metered alone.
func soft(l limits.Limit) limits.Limit {
	l.Soft = true
	return l
}

// limiterScenarios are those in which the Go client itself is run.
var limiterScenarios = []scenario{
	{
		"limiters take the last tokens while one doubles", noon,
		[]table.Item{pressed(0, 1, 300_000, 1)},
		func(w *world) []explore.Spec {
			return []explore.Spec{
				w.limiter("limiter", program{}, acquires(200), acquires(100)),
				w.limiter("other limiter", program{picks: []int{0, 1}}, acquires(150), acquires(100)),
				w.aggregator("aggregator", consumer{polls: 1}, 0, 0),
			}
		},
	},
	{
		"two limiters create the same shard while its donor is spent from", noon,
		[]table.Item{u(0, 2, 400_500, 1)},
		func(w *world) []explore.Spec {
			return []explore.Spec{
				w.limiter("limiter", program{count: 2, picks: []int{1}, crashes: 1}, acquires(300)),
				w.limiter("other limiter", program{count: 2, picks: []int{1}}, acquires(300)),
				w.limiter("spender", program{count: 2}, acquires(300)),
			}
		},
	},
	{
		"a limiter and the aggregator create the same shards", noon,
		[]table.Item{u(0, 4, 700_000, 1), u(1, 2, 300_000, 2)},
		func(w *world) []explore.Spec {
			w.before(0, u(0, 2, 700_000, 1), noon)
			return []explore.Spec{
				w.limiter("limiter", program{count: 4, picks: []int{3, 2}, crashes: 1}, acquires(200), acquires(200)),
				w.aggregator("aggregator", consumer{polls: 1}, 0, 0),
			}
		},
	},
	{
		"two limiters create different shards off one donor", noon,
		[]table.Item{u(0, 4, 400_000, 1)},
		func(w *world) []explore.Spec {
			return []explore.Spec{
				w.limiter("limiter", program{count: 4, picks: []int{2}}, acquires(200), releases),
				w.limiter("other limiter", program{count: 4, picks: []int{1}}, acquires(200)),
				w.limiter("spender", program{count: 4}, acquires(150)),
			}
		},
	},
	{
		"a limiter creates shard 1 of 2 while another doubles to 4 and creates", noon,
		[]table.Item{pressed(0, 2, 500_000, 2)},
		func(w *world) []explore.Spec {
			return []explore.Spec{
				w.limiter("limiter", program{count: 2, picks: []int{1}}, acquires(100)),
				w.limiter("other limiter", program{picks: []int{0, 3}}, acquires(100), acquires(100)),
			}
		},
	},
	{
		"limiters that ask two shards take the last tokens", noon,
		[]table.Item{u(0, 2, 300_000, 2), u(1, 2, 100_000, 2)},
		func(w *world) []explore.Spec {
			twice := []limiter.Option{limiter.ShardAttempts(2)}
			return []explore.Spec{
				w.limiter("limiter", program{count: 2, options: twice, crashes: 1}, acquires(200), acquires(100)),
				w.limiter("other limiter", program{count: 2, picks: []int{1}, options: twice}, acquires(150), acquires(100), releases),
			}
		},
	},
	{
		"the last tokens of a shard are moved off, settled and taken", noon,
		[]table.Item{u(0, 2, 300_000, 1, until(0))},
		func(w *world) []explore.Spec {
			return []explore.Spec{
				w.limiter("limiter", program{count: 2}, acquires(200), adjusts(-50)),
				w.limiter("creator", program{count: 2, picks: []int{1}}, acquires(200), adjusts(-100), releases),
				w.limiter("other limiter", program{count: 2}, acquires(100), adjusts(50)),
			}
		},
	},
	{
		"a legacy shard 0 is doubled by a limiter while others use it", noon,
		[]table.Item{u(0, 1, 400_000, 0, hot, until(0))},
		func(w *world) []explore.Spec {
			return []explore.Spec{
				w.limiter("limiter", program{picks: []int{0, 1}, crashes: 1}, acquires(100), acquires(100)),
				w.limiter("spender", program{}, acquires(150)),
			}
		},
	},
	{
		"what was taken is settled while shards are created off the shard", noon,
		[]table.Item{u(0, 2, 600_000, 1)},
		func(w *world) []explore.Spec {
			return []explore.Spec{
				w.limiter("limiter", program{}, acquires(400), adjusts(300), adjusts(-500), releases),
				w.limiter("creator", program{count: 2, picks: []int{1}}, acquires(100), adjusts(50), releases),
			}
		},
	},
	{
		"answers are lost of taking, settling and giving back", noon,
		[]table.Item{u(0, 2, 500_000, 2), u(1, 2, 100_000, 2)},
		func(w *world) []explore.Spec {
			w.counting()
			return []explore.Spec{
				w.limiter("limiter", program{faults: 2}, acquires(200), adjusts(-50), releases),
				w.limiter("other limiter", program{}, acquires(400)),
				w.aggregator("aggregator", consumer{polls: 1}, 0, 0),
			}
		},
	},
	{
		"requests fail while a limiter creates a shard", noon,
		[]table.Item{u(0, 4, 700_000, 1), u(1, 2, 300_000, 2)},
		func(w *world) []explore.Spec {
			return []explore.Spec{
				w.limiter("limiter", program{count: 4, picks: []int{3}, faults: 2}, acquires(100), acquires(100)),
				w.limiter("other limiter", program{count: 2, picks: []int{1}}, acquires(200)),
			}
		},
	},
}

// limiterEdgeScenarios are those in which a period ends meanwhile.
var limiterEdgeScenarios = []scenario{
	{
		"a limiter restores a sibling while another creates its slot", midnight + 5,
		[]table.Item{old(0, 4, 300_000, 1), old(1, 2, 200_000, 2)},
		func(w *world) []explore.Spec {
			return []explore.Spec{
				w.limiter("limiter", program{count: 4, picks: []int{3}, crashes: 1}, acquires(100)),
				w.limiter("other limiter", program{count: 2, picks: []int{1, 0}}, acquires(100), acquires(250)),
			}
		},
	},
	{
		"midnight passes while limiters create and use shards", midnight - 5,
		[]table.Item{build(old(0, 2, 300_000, 1), drips("rpm", 10_000, 600_000))},
		func(w *world) []explore.Spec {
			return []explore.Spec{
				w.clockwork(midnight + 5),
				w.limiter("limiter", program{count: 2, picks: []int{1}}, acquires(100), acquires(100)),
				w.limiter("other limiter", program{count: 2}, acquires(250)),
			}
		},
	},
	{
		"a limiter whose clock is behind midnight, and one that is past it", midnight + 5,
		[]table.Item{old(0, 4, 300_000, 1), old(1, 2, 100_000, 2)},
		func(w *world) []explore.Spec {
			return []explore.Spec{
				w.limiter("limiter", program{skew: -505, count: 4, picks: []int{3, 1}}, acquires(20), acquires(60), releases),
				w.limiter("other limiter", program{count: 4, picks: []int{1, 0}}, acquires(100), acquires(200)),
			}
		},
	},
	{
		"limiters whose clocks are hours apart", midnight - 5,
		[]table.Item{old(0, 2, 300_000, 1)},
		func(w *world) []explore.Spec {
			w.unsettled = true
			return []explore.Spec{
				w.limiter("limiter", program{skew: 2 * hour, count: 2, picks: []int{1, 0}}, acquires(100), acquires(100), releases),
				w.limiter("other limiter", program{skew: -2 * hour, count: 2, picks: []int{0, 1}}, acquires(250), adjusts(100)),
				w.aggregator("aggregator", consumer{polls: 1}, 0, 0),
			}
		},
	},
	{
		"what was taken before midnight is settled after it", midnight - 5,
		[]table.Item{old(0, 1, 600_000, 1)},
		func(w *world) []explore.Spec {
			return []explore.Spec{
				w.clockwork(midnight + 5),
				w.limiter("limiter", program{}, acquires(400), adjusts(-100), adjusts(150), releases),
				w.limiter("other limiter", program{}, acquires(600)),
			}
		},
	},
	{
		"shard 0 has expired, and a sibling is restored while it is made", midnight + 5,
		[]table.Item{old(1, 4, 100_000, 4), old(2, 2, 200_000, 2), resourceLimits},
		func(w *world) []explore.Spec {
			return []explore.Spec{
				w.limiter("limiter", program{}, acquires(100)),
				w.limiter("other limiter", program{count: 4, picks: []int{2, 0}}, acquires(200), acquires(200)),
			}
		},
	},
	{
		"shard 0 has expired, and two limiters make it", noon,
		[]table.Item{u(1, 4, 100_000, 2), u(2, 4, 200_000, 2), resourceLimits},
		func(w *world) []explore.Spec {
			return []explore.Spec{
				w.limiter("limiter", program{crashes: 1, faults: 1}, acquires(100)),
				w.limiter("other limiter", program{picks: []int{0, 3}}, acquires(200), acquires(100)),
			}
		},
	},
}

// resourceLimits are q as it is stored for all entities.
var resourceLimits = build(table.Item{}, attrs{
	table.AttrPK: "ns1/RESOURCE#gpt-4", table.AttrSK: "#CONFIG",
	"l_q_cp": 1000, "l_q_ra": 0, "l_q_rp": 60, "l_q_rsched": "1m0h0", "sched_tz": "UTC", "config_version": 1,
})

// sessionLimits are what makes a stored q a session quota.
var sessionLimits = attrs{
	"l_q_cp": nil, "l_q_ra": nil, "l_q_rp": nil, "l_q_rsched": nil, "sched_tz": nil,
	"w_q_cp": 1000, "w_q_ra": 0, "w_q_rp": 60, "w_q_rsa": 3600,
}

// ownLimits are q as it is stored for acme.
var ownLimits = build(resourceLimits, attrs{table.AttrPK: configPK, table.AttrSK: configSK})

// joined is a shard in a window, until it ends.
func joined(shard, n int, balance int64, grant int, start int64) table.Item {
	return q(shard, n, balance, grant, refilled(start), window(start, start), until(start+hour))
}

// limiterWindowScenarios are about session quotas.
var limiterWindowScenarios = []scenario{
	{
		"two limiters open a window on two shards", noon,
		[]table.Item{joined(0, 2, 400_000, 1, noon-hour), build(joined(1, 2, 300_000, 2, noon-hour), attrs{"b_q_tc": 200_000, "b_q_wtc": 50_000})},
		func(w *world) []explore.Spec {
			w.unsettled = true
			return []explore.Spec{
				w.limiter("opener", program{count: 2, crashes: 1}, acquires(400), acquires(100)),
				w.limiter("other opener", program{skew: 3, count: 2, picks: []int{1}}, acquires(400), releases),
				w.aggregator("aggregator", consumer{polls: 1}, 0, 0),
			}
		},
	},
	{
		"a first window is opened on shard 0 and on one that is created", noon,
		[]table.Item{build(unopened(2), until(0))},
		func(w *world) []explore.Spec {
			w.unsettled = true
			return []explore.Spec{
				w.limiter("opener", program{count: 2}, acquires(400)),
				w.limiter("creator", program{skew: 3, count: 2, picks: []int{1}}, acquires(400), acquires(100)),
			}
		},
	},
	{
		"a window is opened on a shard that is created after the last one ended", noon,
		[]table.Item{joined(0, 4, 400_000, 2, noon-hour), joined(1, 2, 300_000, 2, noon-hour)},
		func(w *world) []explore.Spec {
			w.unsettled = true
			return []explore.Spec{
				w.limiter("creator", program{count: 4, picks: []int{3}, crashes: 1}, acquires(200)),
				w.limiter("opener", program{skew: 3, count: 2, picks: []int{1}}, acquires(200)),
			}
		},
	},
	{
		"a shard is created beside windows that began apart", noon,
		[]table.Item{joined(0, 4, 400_000, 2, noon-hour), joined(1, 4, 300_000, 2, noon-hour+5000)},
		func(w *world) []explore.Spec {
			w.unsettled = true
			return []explore.Spec{
				w.limiter("creator", program{count: 4, picks: []int{3}}, acquires(200)),
				w.limiter("opener", program{skew: 3, count: 4, picks: []int{0, 1}}, acquires(200), acquires(100)),
			}
		},
	},
	{
		"a window is told of while the old one is used, settled and rolled", noon - 5,
		[]table.Item{joined(0, 2, 400_000, 2, noon-hour), joined(1, 2, 300_000, 2, noon-hour)},
		func(w *world) []explore.Spec {
			return []explore.Spec{
				w.clockwork(noon + 5),
				w.limiter("opener", program{count: 2}, acquires(300)),
				w.limiter("user", program{count: 2, picks: []int{1}}, acquires(200), adjusts(150), releases),
			}
		},
	},
	{
		"shard 0 of a session has expired, and two limiters make it", noon,
		[]table.Item{joined(1, 2, 300_000, 1, noon-1000), build(resourceLimits, sessionLimits)},
		func(w *world) []explore.Spec {
			w.unsettled = true
			return []explore.Spec{
				w.limiter("limiter", program{}, acquires(100)),
				w.limiter("other limiter", program{count: 2, picks: []int{1, 0}}, acquires(200), acquires(100)),
			}
		},
	},
	{
		"clocks hours apart open windows", noon,
		[]table.Item{joined(0, 2, 400_000, 1, noon-hour), joined(1, 2, 300_000, 2, noon-hour)},
		func(w *world) []explore.Spec {
			w.unsettled = true
			return []explore.Spec{
				w.limiter("opener", program{skew: 2 * hour, count: 2, picks: []int{1, 0}}, acquires(200), acquires(100), releases),
				w.limiter("other opener", program{skew: -2 * hour, count: 2}, acquires(200), releases, acquires(300)),
			}
		},
	},
	{
		"a shard was told of a window: it is rolled, settled and moved from", noon,
		[]table.Item{
			joined(0, 4, 400_000, 2, noon-1000),
			build(joined(1, 2, 100_000, 2, noon-3*hour), window(noon-1000, noon-3*hour), attrs{"b_q_tc": 400_000, "b_q_wtc": 400_000}, until(0)),
		},
		func(w *world) []explore.Spec {
			return []explore.Spec{
				w.limiter("creator", program{count: 4, picks: []int{3}}, acquires(200), releases),
				w.limiter("roller", program{count: 2, picks: []int{1}}, acquires(200), adjusts(250), releases),
				w.aggregator("aggregator", consumer{polls: 1}, 0, 0),
			}
		},
	},
}
