package interop

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/shardquota/shardquota/limiter"
	"github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// slow drips nothing while a test lasts.
func slow(name string, capacity int64) limits.Limit {
	return limits.Limit{Name: name, Capacity: capacity, Refill: 1, Period: 1_000_000_000 * time.Second}
}

// kind is a kind of limit that stands on a bucket beside a quota without a
// schedule.
type kind struct {
	name  string
	limit func(capacity int64) limits.Limit
	holds int64 // of a capacity of 1,000 in force, tokens
}

func kinds(t testing.TB) []kind {
	always := []quota.Entry{{Cron: "* * * * *", Scale: 500}}
	return []kind{
		{"calendar", func(c int64) limits.Limit { return limits.Quota("it", c, farEdge(t)) }, 1000},
		{"calendar of another zone", func(c int64) limits.Limit {
			return limits.Limit{Name: "it", Capacity: c, Resets: []string{"0 0 1 1 *"}, Zone: "Asia/Kathmandu"}
		}, 1000},
		{"session", func(c int64) limits.Limit { return limits.Session("it", c, time.Hour) }, 1000},
		{"dripping", func(c int64) limits.Limit { return slow("it", c) }, 1000},
		{"scaled", func(c int64) limits.Limit { l := slow("it", c); l.Schedule = always; return l }, 500},
		{"scaled quota", func(c int64) limits.Limit { l := limits.Quota("it", c, farEdge(t)); l.Schedule = always; return l }, 500},
		{"set by a schedule", func(c int64) limits.Limit {
			l := slow("it", c)
			l.Schedule, l.Zone = []quota.Entry{{Cron: "* * * * *", Capacity: 300}}, "America/New_York"
			return l
		}, 300},
		{"soft", func(c int64) limits.Limit { l := slow("it", c); l.Soft = true; return l }, 1000},
	}
}

// TestBuckets: a bucket that one makes the other uses, on the fast path and,
// after an operator's change, on the slow one; both give back.
func TestBuckets(t *testing.T) {
	w := newWorld(t, true)
	for nth, kind := range kinds(t) {
		for _, theirsMakes := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/theirsMakes=%v", kind.name, theirsMakes), func(t *testing.T) {
				b := bucketCase{world: w, t: t, kind: kind, entity: fmt.Sprintf("kind-%d-%v", nth, theirsMakes), holds: kind.holds}
				b.set(1000, theirsMakes)
				b.use(3, theirsMakes)
				b.use(5, !theirsMakes)
				b.use(7, theirsMakes)
				b.giveBack(9, 2, theirsMakes)
				b.giveBack(9, 4, !theirsMakes)
				b.check()
				b.checkRejection()
				if kind.limit(1).Schedule == nil { // one that holds less than before is trimmed, and so is not all there
					b.set(2000, !theirsMakes)
					b.use(1, theirsMakes) // the slow path
					b.set(1000, theirsMakes)
					b.use(1, !theirsMakes)
				}
				b.check()
			})
		}
	}
}

// bucketCase is one bucket that both use.
type bucketCase struct {
	*world
	t      *testing.T
	kind   kind
	entity string
	holds  int64
	used   int64
}

func (b *bucketCase) set(capacity int64, theirs bool) {
	b.t.Helper()
	limits := []limits.Limit{b.kind.limit(capacity), slow("plain", 1_000_000)}
	if theirs {
		b.theySet(b.entity, limits...)
		return
	}
	b.world.set(b.entity, limits...)
}

func (b *bucketCase) use(n int64, theirs bool) {
	b.t.Helper()
	b.used += n
	if !theirs {
		use(b.t, b.ours, b.entity, limiter.Amounts{"it": n, "plain": n})
	} else if !theyUse(b.theirs, b.entity, limiter.Amounts{"it": n, "plain": n}, -1) {
		b.t.Errorf("theirs refused %d", n)
	}
}

// giveBack takes n tokens and gives some of them back.
func (b *bucketCase) giveBack(n, back int64, theirs bool) {
	b.t.Helper()
	b.used += n - back
	if !theirs {
		lease := use(b.t, b.ours, b.entity, limiter.Amounts{"it": n, "plain": n})
		must(b.t, lease.Adjust(b.t.Context(), limiter.Amounts{"it": -back, "plain": -back}))
		return
	}
	got := ask[limiter.Amounts](b.theirs, "acquire", args{"entity": b.entity, "resource": resource,
		"amounts": limiter.Amounts{"it": n, "plain": n}, "adjust": limiter.Amounts{"it": -back, "plain": -back}})
	eq(b.t, "theirs took", got["it"], n-back)
}

// check compares what is on the item with what was used, and what both read.
func (b *bucketCase) check() {
	b.t.Helper()
	stored := b.bucket(b.entity, 0)
	l := stored.Limit("it")
	eq(b.t, "consumed", l.Consumed, 1000*b.used)
	eq(b.t, "holds", l.Balance, 1000*(b.holds-b.used))
	eq(b.t, "plain holds", stored.Limit("plain").Balance, 1000*(1_000_000-b.used))
	theirs := ask[map[string]struct {
		Balance, Capacity, Consumed, Window int64
		Soft                                bool
		Resets, Schedule                    int
	}](b.theirs, "buckets", args{"entity": b.entity, "resource": resource})
	read, declared := theirs["it"], b.kind.limit(1000)
	eq(b.t, "theirs reads the balance", read.Balance, l.Balance)
	eq(b.t, "theirs reads the consumption", read.Consumed, l.Consumed)
	eq(b.t, "theirs reads the capacity", read.Capacity, 1_000_000)
	eq(b.t, "theirs reads it as soft", read.Soft, declared.Soft)
	eq(b.t, "theirs reads resets", read.Resets, len(declared.Resets))
	eq(b.t, "theirs reads a schedule", read.Schedule, len(declared.Schedule))
	eq(b.t, "theirs reads the window", read.Window, int64(declared.Window/time.Second))
	eq(b.t, "theirs reads none of plain's", fmt.Sprint(theirs["plain"].Resets, theirs["plain"].Schedule), "0 0")
	available := ask[limiter.Amounts](b.theirs, "available", args{"entity": b.entity, "resource": resource})
	eq(b.t, "theirs finds available", available["it"], l.Balance/1000)
}

// checkRejection: a use of more than there is is refused by both, and ours says
// what there is. A soft limit gives it.
func (b *bucketCase) checkRejection() {
	b.t.Helper()
	if b.kind.name == "soft" {
		b.use(2000, true)
		b.use(3000, false)
		return
	}
	l := b.bucket(b.entity, 0).Limit("it")
	_, err := b.ours.Acquire(b.t.Context(), b.entity, resource, limiter.Amounts{"it": 2000, "plain": 1})
	var rejection *limiter.Rejection
	if !errors.As(err, &rejection) {
		b.t.Fatalf("2,000 asked for: %v", err)
	}
	eq(b.t, "ours reads the balance", rejection.Limits[0].Available, l.Balance/1000)
	eq(b.t, "ours reads the ceiling", rejection.Limits[0].Ceiling, b.kind.holds)
	eq(b.t, "theirs", theyUse(b.theirs, b.entity, limiter.Amounts{"it": 2000, "plain": 1}, -1), false)
}

// TestExpiry: a bucket of limits that are not the entity's own expires, one of
// its own does not, whoever sets them and whoever uses it.
func TestExpiry(t *testing.T) {
	w := newWorld(t, true)
	must(t, w.ours.SetLimits(t.Context(), limits.ForResource(resource), slow("it", 1000)))
	expires := func(entity string, want bool) {
		t.Helper()
		eq(t, entity+" expires", w.bucket(entity, 0).Item[table.AttrTTL] != nil, want)
	}
	for entity, theirs := range map[string]bool{"theirs": true, "ours": false} {
		b := bucketCase{world: w, t: t, entity: entity, kind: kind{limit: func(c int64) limits.Limit { return slow("it", c) }}}
		both := func() {
			t.Helper()
			eq(t, "theirs uses it", theyUse(w.theirs, entity, limiter.Amounts{"it": 1}, -1), true)
			use(t, w.ours, entity, limiter.Amounts{"it": 1})
		}
		if !theirs {
			use(t, w.ours, entity, limiter.Amounts{"it": 1})
		}
		both()
		expires(entity, true)
		b.set(500, !theirs)
		both()
		expires(entity, false)
		if theirs {
			must(t, w.ours.DeleteLimits(t.Context(), limits.For(entity, resource)))
		} else {
			w.theirs.do("delete_limits", args{"entity": entity, "resource": resource})
		}
		both()
		expires(entity, true)
		eq(t, entity+" has the resource's", w.bucket(entity, 0).Limit("plain") == nil, true)
	}
}
