package proof_test

import (
	"github.com/shardquota/shardquota/internal/explore"
	"github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// dripped has a shard hold the whole of a limit that drips, and is replicated.
var dripped = attrs{
	"b_come_tk": million, "b_come_tc": 0, "b_come_cp": million, "b_come_ra": million, "b_come_rp": 60_000,
	"b_come_div": string(quota.Replicated),
}

// limiterOperatorScenarios are about what an operator does meanwhile.
var limiterOperatorScenarios = []scenario{
	{
		"an operator lowers the limit while a limiter creates", noon,
		[]table.Item{u(0, 2, 800_000, 1), ownLimits},
		func(w *world) []explore.Spec {
			w.books.changed = true
			return []explore.Spec{
				w.limiter("operator", program{crashes: 1}, sets(daily(400))),
				w.limiter("limiter", program{count: 2, picks: []int{1}}, acquires(100), releases),
			}
		},
	},
	{
		"an operator lowers the limit while tokens are settled", noon,
		[]table.Item{u(0, 1, 800_000, 1), ownLimits},
		func(w *world) []explore.Spec {
			w.books.changed = true
			return []explore.Spec{
				w.limiter("operator", program{}, sets(daily(400))),
				w.limiter("limiter", program{}, acquires(300), adjusts(-100), releases),
				w.limiter("other limiter", program{}, acquires(200)),
			}
		},
	},
	{
		"two operators change the limit", noon,
		[]table.Item{u(0, 1, 800_000, 1), ownLimits},
		func(w *world) []explore.Spec {
			w.books.changed = true
			return []explore.Spec{
				w.limiter("operator", program{}, sets(soft(daily(400)))),
				w.limiter("other operator", program{skew: 7}, sets(soft(daily(300)))),
			}
		},
	},
	{
		"an operator changes the limit of a shard that is just looked at", noon,
		[]table.Item{u(0, 1, 800_000, 1, until(0)), ownLimits},
		func(w *world) []explore.Spec {
			w.books.changed = true
			return []explore.Spec{
				w.limiter("operator", program{}, sets(daily(400))),
				w.limiter("limiter", program{}, acquires(50)),
				w.limiter("other limiter", program{}, acquires(70), adjusts(-30)),
			}
		},
	},
	{
		"an operator of another program changes the limit of a shard that is just looked at", noon,
		[]table.Item{u(0, 1, 800_000, 1, until(0))},
		func(w *world) []explore.Spec {
			w.books.changed = true
			return []explore.Spec{
				w.operator("lowers q", lowers),
				w.limiter("limiter", program{}, acquires(50)),
				w.limiter("other limiter", program{}, acquires(70), adjusts(-30)),
			}
		},
	},
	{
		"a limit comes while the count doubles and a limiter creates", noon,
		[]table.Item{u(0, 2, 400_000, 2), u(1, 2, 300_000, 2), ownLimits},
		func(w *world) []explore.Spec {
			w.books.changed = true
			return []explore.Spec{
				w.limiter("operator", program{}, sets(daily(900), limits.Quota("come", 1000, "0 0 * * *"))),
				w.client("client", 0, doubles(2)),
				w.limiter("limiter", program{count: 4, picks: []int{3}}, acquires(10)),
			}
		},
	},
	{
		"a limit that drips becomes a quota while the count doubles and a limiter creates", noon,
		[]table.Item{u(0, 2, 400_000, 2, dripped), u(1, 2, 300_000, 2, dripped), ownLimits},
		func(w *world) []explore.Spec {
			w.books.changed = true
			return []explore.Spec{
				w.limiter("operator", program{}, sets(daily(1000), limits.Quota("come", 1000, "0 0 * * *"))),
				w.client("client", 0, doubles(2)),
				w.limiter("limiter", program{count: 4, picks: []int{3}}, acquires(10)),
			}
		},
	},
	{
		"an entity is first used while its limit is stored", noon,
		[]table.Item{ownLimits},
		func(w *world) []explore.Spec {
			w.books.changed = true
			return []explore.Spec{
				w.limiter("operator", program{}, stores(400), sets(daily(300))),
				w.limiter("limiter", program{}, acquires(300)),
			}
		},
	},
	{
		"an operator raises the limit while midnight passes", midnight - 5,
		[]table.Item{old(0, 2, 300_000, 2), ownLimits},
		func(w *world) []explore.Spec {
			w.books.changed, w.books.capacity = true, 2*million
			return []explore.Spec{
				w.clockwork(midnight + 5),
				w.limiter("operator", program{}, sets(daily(2000))),
				w.limiter("limiter", program{count: 2, picks: []int{1}}, acquires(100)),
			}
		},
	},
	{
		"an operator disables while a limiter creates", noon,
		[]table.Item{u(0, 2, 800_000, 1), ownLimits},
		func(w *world) []explore.Spec {
			w.unsettled = true
			return []explore.Spec{
				w.limiter("operator", program{}, access(limits.Disabled)),
				w.limiter("limiter", program{count: 2, picks: []int{1}}, acquires(100)),
				w.limiter("spender", program{count: 2}, acquires(300)),
			}
		},
	},
	{
		"a soft limit is used beyond what is there", noon,
		[]table.Item{u(0, 2, 300_000, 1, attrs{"b_q_soft": noon + hour})},
		func(w *world) []explore.Spec {
			return []explore.Spec{
				w.limiter("limiter", program{}, acquires(400), adjusts(-300), releases),
				w.limiter("other limiter", program{count: 2, picks: []int{1}}, acquires(200)),
			}
		},
	},
	{
		"a bucket is bypassed", noon,
		[]table.Item{u(0, 2, 100_000, 1, attrs{table.AttrBypass: noon + hour})},
		func(w *world) []explore.Spec {
			return []explore.Spec{
				w.limiter("limiter", program{}, acquires(100), acquires(400), adjusts(-300), releases),
				w.limiter("other limiter", program{count: 2, picks: []int{1}}, acquires(200), releases),
			}
		},
	},
}

// parent is acme's, of whose q a child's uses take too.
var parent = table.Group{Namespace: acme.Namespace, Entity: "umbrella", Resource: acme.Resource}

func parents(shard, n int, balance int64, grant int) table.Item {
	return build(u(shard, n, balance, grant), keysOf(parent.At(shard)))
}

func keysOf(key table.Key) attrs {
	a := attrs{table.AttrEntityID: key.Entity}
	for name, value := range key.Keys() {
		a[name] = value
	}
	return a
}

// child marks a shard as one of a child that cascades.
var child = attrs{table.AttrParentID: parent.Entity, table.AttrCascade: true}

// limiterCascadeScenarios are about uses that a parent gives to, too.
var limiterCascadeScenarios = []scenario{
	{
		"two limiters take the last of a parent's tokens", noon,
		[]table.Item{u(0, 1, 600_000, 1, child), parents(0, 1, 300_000, 1)},
		func(w *world) []explore.Spec {
			return []explore.Spec{
				w.limiter("limiter", program{crashes: 1}, acquires(200), releases),
				w.limiter("other limiter", program{crashes: 1}, acquires(200), releases),
			}
		},
	},
	{
		"requests fail while a child takes and its parent gives", noon,
		[]table.Item{u(0, 1, 600_000, 1, child), parents(0, 1, 300_000, 1)},
		func(w *world) []explore.Spec {
			return []explore.Spec{
				w.limiter("limiter", program{faults: 2}, acquires(200), adjusts(-100), releases),
				w.limiter("other limiter", program{}, acquires(200)),
			}
		},
	},
}
