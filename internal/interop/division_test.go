package interop

import (
	"fmt"
	"testing"

	"github.com/shardquota/shardquota/limiter"
	"github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/quota"
)

// TestDivisions: theirs knows of no divisions. It reads such limits, takes of
// such buckets, and what it writes over them never admits more than was sold.
func TestDivisions(t *testing.T) {
	w := newWorld(t, true)
	const entity, capacity = "acme", 1_000
	calls, rpm := limits.Quota("calls", capacity, farEdge(t)), slow("rpm", capacity)
	calls.Division, rpm.Division = quota.Pooled, quota.Replicated
	w.set(entity, calls, rpm)
	one := limiter.Amounts{"calls": 1, "rpm": 1}
	eq(t, "read by theirs", fmt.Sprint(ask[[]wire](w.theirs, "get_limits", args{"entity": entity, "resource": resource})), fmt.Sprint(wires([]limits.Limit{calls, rpm})))

	eq(t, "theirs makes shard 0", theyUse(w.theirs, entity, one, 0), true)
	_, said := w.bucket(entity, 0).Item["b_rpm_div"]
	eq(t, "and says no division on it", said, false)
	must(t, w.ours.SetLimits(t.Context(), limits.For(entity, resource), calls, rpm))
	eq(t, "ours does", w.bucket(entity, 0).Limit("calls").Division, quota.Pooled)
	w.oursDoubles(entity, one)
	eq(t, "theirs makes shard 1", theyUse(w.theirs, entity, one, 1), true)
	w.settle()
	stored, err := w.ours.Stored(t.Context(), limits.For(entity, resource)) // in one write, as a manifest is applied
	must(t, err)
	must(t, w.ours.Replace(t.Context(), stored[0], limits.Rules{Limits: []limits.Limit{calls, rpm}, Access: limits.Enabled}))
	eq(t, "read by theirs again", len(ask[[]wire](w.theirs, "get_limits", args{"entity": entity, "resource": resource})), 2)
	for shard := range 2 {
		b := w.bucket(entity, shard)
		eq(t, fmt.Sprint("rpm on ", shard), b.Limit("rpm").Division, quota.Replicated)
		eq(t, fmt.Sprint("calls on ", shard), b.Limit("calls").Division, quota.Pooled)
	}
	w.checkWhole(entity, 2, 1000*capacity, 3000)

	use(t, w.drawing(entity, 1), entity, limiter.Amounts{"calls": 700}) // more than either has
	w.checkWhole(entity, 2, 1000*capacity, 703_000)
	eq(t, "theirs goes on", theyUse(w.theirs, entity, one, 0) || theyUse(w.theirs, entity, one, 1), true)
	w.checkWhole(entity, 2, 1000*capacity, 704_000)
	for shard := range 2 {
		eq(t, "theirs leaves the division", w.bucket(entity, shard).Limit("calls").Division, quota.Pooled)
	}
}
