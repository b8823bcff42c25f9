package interop

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/shardquota/shardquota/limiter"
	"github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// oursDoubles has ours find shard 0 hot, and double.
func (w *world) oursDoubles(entity string, amounts limiter.Amounts) {
	w.Helper()
	from := w.bucket(entity, 0).ShardCount
	ours := w.drawing(entity, 0)
	w.heat(entity)
	use(w, ours, entity, amounts)
	w.cool(entity)
	eq(w, "ours doubles", w.bucket(entity, 0).ShardCount, 2*from)
}

// heat empties the write meter of shard 0, as a thousand writes a second since
// its last pass would.
func (w *world) heat(entity string) {
	w.Helper()
	w.meter(entity, -1000*(time.Now().UnixMilli()-w.bucket(entity, 0).RefilledAt))
}

// cool fills it. Otherwise the aggregator finds the shard hot at the new count too.
func (w *world) cool(entity string) {
	w.Helper()
	w.meter(entity, 1_000_000)
}

// meter sets the write meter of shard 0, millitokens.
func (w *world) meter(entity string, balance int64) {
	w.Helper()
	zero := table.ItemKey{PK: w.group(entity).At(0).PK(), SK: table.StateSK}
	w.change(zero, table.Item{"b_wcu_tk": table.N(strconv.FormatInt(balance, 10))})
}

// theyDouble has theirs double an entity's shards from a count.
func (w *world) theyDouble(entity string, from int) {
	w.Helper()
	eq(w, "theirs doubles", ask[int](w.theirs, "bump", args{"entity": entity, "resource": resource, "count": from}), 2*from)
}

// TestShards: each doubles and creates shards beside the other, and the quota
// stays whole to the millitoken.
func TestShards(t *testing.T) {
	w := newWorld(t, true)
	const entity, capacity = "acme", 1_001
	w.set(entity, limits.Quota("calls", capacity, farEdge(t)), slow("rpm", capacity))
	one := limiter.Amounts{"calls": 1, "rpm": 1}
	used := int64(0)
	ours := func(shard int) {
		t.Helper()
		use(t, w.drawing(entity, shard), entity, one)
		used++
	}
	theirs := func(shard int) {
		t.Helper()
		eq(t, "theirs is admitted", theyUse(w.theirs, entity, one, shard), true)
		used++
	}
	check := func(count int) {
		t.Helper()
		w.checkWhole(entity, count, 1000*capacity, 1000*used)
	}

	theirs(0)
	w.oursDoubles(entity, one)
	used++
	check(2)
	theirs(1) // creates
	check(2)
	w.theyDouble(entity, 2)
	for range 8 { // learns of shards 2 and 3, and creates what it draws
		use(t, w.ours, entity, one)
		used++
	}
	theirs(3)
	theirs(2)
	ours(0)
	check(4)
	w.oursDoubles(entity, one)
	used++
	check(8)
	w.settle() // the aggregator creates what is missing
	eq(t, "shards", len(w.shards(entity)), 8)
	for shard := range 8 {
		theirs(shard)
		use(t, w.ours, entity, one)
		used++
	}
	check(8)
	w.settle()
	check(8)
	for _, window := range []string{"hourly", "daily", "monthly"} {
		usage := ask[map[string]int64](w.theirs, "usage", args{"entity": entity, "resource": resource, "window": window})
		eq(t, window+" usage, read by theirs", fmt.Sprint(usage), fmt.Sprint(map[string]int64{"calls": used, "rpm": used}))
	}
}

// checkWhole: what the shards hold of calls and what was consumed make its
// capacity, at a count that all of them know.
func (w *world) checkWhole(entity string, count int, capacity, used int64) {
	w.Helper()
	held, consumed := int64(0), int64(0)
	var buckets []*quota.Bucket
	for _, b := range w.shards(entity) {
		eq(w, fmt.Sprintf("count of shard %d", b.Shard), b.ShardCount, count)
		held, consumed = held+b.Limit("calls").Balance, consumed+b.Limit("calls").Consumed
		buckets = append(buckets, &b.Bucket)
	}
	eq(w, "consumed", consumed, used)
	eq(w, "held and consumed", held+consumed, capacity)
	row, err := quota.Audit("calls", buckets, time.Now().UnixMilli())
	must(w, err)
	eq(w, "conserved", row.Conserved, true)
}

// TestSessions: each opens windows, tells the other's shards, joins and rolls.
func TestSessions(t *testing.T) {
	w := newWorld(t, false)
	const entity, window = "acme", 2 * time.Second
	w.theySet(entity, limits.Session("calls", 100, window))
	one := limiter.Amounts{"calls": 1}
	by := map[bool]func(shard int){
		true:  func(shard int) { eq(t, "theirs is admitted", theyUse(w.theirs, entity, one, shard), true) },
		false: func(shard int) { use(t, w.drawing(entity, shard), entity, one) },
	}
	by[true](0)
	w.oursDoubles(entity, one)
	started := w.bucket(entity, 0).Limit("calls").Window.Start
	for nth, turn := range []struct{ opens, follows bool }{{true, false}, {false, true}, {true, true}, {false, false}} {
		opener := nth % 2
		by[turn.opens](opener)
		opened := w.bucket(entity, opener).Limit("calls")
		if nth > 0 {
			eq(t, "a later window", *opened.Window.Start >= *started+window.Milliseconds(), true)
		}
		by[turn.follows](1 - opener) // creates the shard the first time, then rolls it
		by[turn.opens](1 - opener)
		started = opened.Window.Start
		held, used := int64(0), int64(0)
		for _, b := range w.shards(entity) {
			l := b.Limit("calls")
			eq(t, fmt.Sprintf("turn %d: the window of shard %d", nth, b.Shard), *l.Window.Start, *started)
			eq(t, fmt.Sprintf("turn %d: what shard %d reflects", nth, b.Shard), *l.Window.Applied, *started)
			held, used = held+l.Balance, used+l.Consumed
		}
		want := int64(97) // three uses in a window
		if nth == 0 {
			want = 95
		}
		eq(t, fmt.Sprintf("turn %d: held", nth), held, 1000*want)
		<-time.After(time.Until(time.UnixMilli(*started).Add(window))) // until it has ended
	}
	w.settle()
	usage := ask[map[string]int64](w.theirs, "usage", args{"entity": entity, "resource": resource, "window": "daily"})
	eq(t, "usage", usage["calls"], 14)
}

// TestOperators: what each changes of limits that stand on two shards, the other
// uses; a top-up of theirs lasts through all of it.
func TestOperators(t *testing.T) {
	w := newWorld(t, true)
	const entity = "acme"
	calls := func(n int64) limits.Limit { return limits.Quota("calls", n, farEdge(t)) }
	w.theySet(entity, calls(1000), slow("rpm", 1000))
	eq(t, "theirs is admitted", theyUse(w.theirs, entity, limiter.Amounts{"calls": 1, "rpm": 1}, 0), true)
	w.theyDouble(entity, 1)
	use(t, w.drawing(entity, 0), entity, limiter.Amounts{"calls": 1, "rpm": 1})
	eq(t, "theirs is admitted", theyUse(w.theirs, entity, limiter.Amounts{"calls": 1, "rpm": 1}, 1), true)

	w.theirs.do("top_up", args{"entity": entity, "resource": resource, "amounts": limiter.Amounts{"calls": 100}})
	w.both(entity, limiter.Amounts{"calls": 10, "rpm": 1})
	w.holds(entity, "calls", 1000+100-3-40)
	w.holds(entity, "rpm", 1000-1-4) // shard 0 was trimmed to its half after its first uses

	w.set(entity, calls(1000), slow("tpm", 600)) // one goes, one comes
	w.both(entity, limiter.Amounts{"calls": 1, "tpm": 5})
	w.holds(entity, "calls", 1100-43-4)
	w.holds(entity, "tpm", 600-20)
	eq(t, "rpm is gone", w.bucket(entity, 1).Limit("rpm") == nil, true)

	w.theySet(entity, calls(500), slow("tpm", 60)) // both get smaller: trimmed to half of it each, and the top-up
	w.both(entity, limiter.Amounts{"calls": 1, "tpm": 1})
	w.holds(entity, "tpm", 60-4)
	w.theySet(entity, calls(500), slow("tpm", 60), slow("rpm", 80))
	w.both(entity, limiter.Amounts{"rpm": 1, "calls": 1})
	w.holds(entity, "rpm", 80-4)

	w.theirs.do("reset", args{"entity": entity, "resource": resource})
	w.holds(entity, "calls", 500)
	w.both(entity, limiter.Amounts{"calls": 1})
	w.holds(entity, "calls", 500-4)

	lease := use(t, w.drawing(entity, 0), entity, limiter.Amounts{"calls": 100})
	w.theirs.do("reset", args{"entity": entity, "resource": resource})
	must(t, lease.Release(t.Context())) // of a period that is over
	w.holds(entity, "calls", 500)
}

// both has both use both shards.
func (w *world) both(entity string, amounts limiter.Amounts) {
	w.Helper()
	for shard := range 2 {
		use(w, w.drawing(entity, shard), entity, amounts)
		eq(w, "theirs is admitted", theyUse(w.theirs, entity, amounts, shard), true)
	}
}

// holds: all shards together hold so many tokens of a limit.
func (w *world) holds(entity, limit string, tokens int64) {
	w.Helper()
	held := int64(0)
	for _, b := range w.shards(entity) {
		held += b.Limit(limit).Balance
	}
	eq(w, limit+" held", held, 1000*tokens)
}

// TestWithoutVersionRecord: theirs stores no session limits on a table whose
// functions it knows nothing of, but uses those that ours has stored.
func TestWithoutVersionRecord(t *testing.T) {
	w := newWorld(t, true)
	other := startZae(t, w.table, "other", 0)
	_, err := w.client.DeleteItem(t.Context(), &dynamodb.DeleteItemInput{
		TableName: &w.table, Key: table.Item{table.AttrPK: table.S("_/SYSTEM#"), table.AttrSK: table.S("#VERSION")},
	})
	must(t, err)
	session, soft := limits.Session("calls", 10, time.Hour), slow("rpm", 10)
	soft.Soft = true
	refusal := other.try("set_limits", args{"entity": "acme", "resource": resource, "limits": wires([]limits.Limit{session})}, nil)
	eq(t, "it refuses", refusal != nil, true)
	ours, err := newOurs(t.Context(), w.store, "other")
	must(t, err)
	must(t, ours.SetLimits(t.Context(), limits.For("acme", resource), session, soft))
	fresh := startZae(t, w.table, "other", 0)
	eq(t, "it uses", theyUse(fresh, "acme", limiter.Amounts{"calls": 4, "rpm": 20}, -1), true)
	eq(t, "it refuses what is too much", theyUse(fresh, "acme", limiter.Amounts{"calls": 7, "rpm": 1}, -1), false)
	use(t, ours, "acme", limiter.Amounts{"calls": 6, "rpm": 20})
}
