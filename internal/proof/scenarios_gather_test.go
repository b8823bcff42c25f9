package proof_test

import (
	"context"

	"github.com/shardquota/shardquota/internal/explore"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/memory"
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

func (u unruly) UseAll(ctx context.Context, uses []table.PlannedUse) (bool, error) {
	if u.useAll == nil {
		return u.Client.UseAll(ctx, uses)
	}
	return u.useAll(u.Client, uses)
}

// gatherMutants are rules of gathering, left out.
var gatherMutants = []mutant{
	{
		name: "what is gathered is taken shard by shard", says: "is there or was used",
		in: "limiters gather the last tokens of two shards while others take them",
		table: unruly{useAll: func(t *memory.Client, uses []table.PlannedUse) (bool, error) {
			for _, u := range uses {
				if taken, err := t.Use(bg, u.Bucket, u.Use, u.Expires); !taken.Applied || err != nil {
					return false, err
				}
			}
			return true, nil
		}}.table,
	},
	{
		name: "gathered whatever the balances have become", says: "was admitted",
		in: "limiters gather the last tokens of two shards while others take them",
		table: unruly{useAll: func(t *memory.Client, uses []table.PlannedUse) (bool, error) {
			return t.UseAll(bg, changedUses(t, uses, func(_ *table.Bucket, use *quota.Use) {
				for i := range use.Charges {
					use.Charges[i].Least = nil
				}
			}))
		}}.table,
	},
	{
		name: "gathered without a condition on rf", says: "was granted slot",
		in: "a limiter gathers across midnight while a sibling is restored",
		table: unruly{useAll: func(t *memory.Client, uses []table.PlannedUse) (bool, error) {
			return t.UseAll(bg, changedUses(t, uses, func(now *table.Bucket, use *quota.Use) {
				use.ExpectRefilledAt, use.ExpectValidUntil = now.RefilledAt, now.ValidUntil
				use.RefilledAt = max(use.RefilledAt, now.RefilledAt+1)
				for i := range use.Changes {
					use.Changes[i].Max = nil
				}
			}))
		}}.table,
	},
}

// changedUses are uses that are changed before they are written; change is given
// each bucket as it is.
func changedUses(t *memory.Client, uses []table.PlannedUse, change func(now *table.Bucket, use *quota.Use)) []table.PlannedUse {
	var others []table.PlannedUse
	for _, u := range uses {
		pass := *u.Use.Pass
		pass.Changes = append([]quota.Change(nil), u.Use.Changes...)
		use := &quota.Use{Pass: &pass, Charges: append([]quota.Charge(nil), u.Use.Charges...)}
		now, _ := t.Read(bg, u.Bucket.Key)
		change(now, use)
		others = append(others, table.PlannedUse{Bucket: u.Bucket, Use: use, Expires: u.Expires})
	}
	return others
}
