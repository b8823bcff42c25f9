package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	. "github.com/shardquota/shardquota/limiter"
	. "github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// What happens here between two requests of a Limiter was found by the search of
// internal/proof, which goes through all such orders.

// meanwhile does something before the nth request of a kind.
func (w *world) meanwhile(nth int, request string, do func()) {
	w.fail = func(asked string) error {
		if asked == request {
			if nth--; nth == 0 {
				do()
			}
		}
		return nil
	}
}

// other is a program whose requests are not noted.
func (w *world) other(options ...any) *program {
	w.Helper()
	l, err := newProgram(w.Context(), w.Client, append([]any{NamespaceID("ns1"), Clock(func() time.Time { return w.now })}, options...)...)
	w.noError(err)
	return l
}

// last draws the last shard of those it may, and notes how many they are.
func last(counts *[]int) Option {
	return Deterministic(func(n int) int {
		*counts = append(*counts, n)
		return n - 1
	})
}

var calls = func(n int64) Limit { return Quota("calls", n, "0 0 * * *") }

func TestADoublingIsRememberedByWhoMadeIt(t *testing.T) {
	w := newWorld(t)
	var counts []int
	l := w.limiter(Default("", calls(100_000)), last(&counts))
	for range 1000 {
		w.admit(l, acme, Amounts{"calls": 1})
	}
	w.now, counts = noon.Add(100*time.Millisecond), nil
	w.admit(l, acme, Amounts{"calls": 1}) // doubles
	w.admit(l, acme, Amounts{"calls": 1})
	eq(w, "shards to draw from", fmt.Sprint(counts), "[1 2]")
	eq(w, "consumed of shard 1", w.bucket(acme, 1).Limit("calls").Consumed, 1000)
}

// A shard that lags would be restored at its own count, on top of the part that
// shard 0 is made with.
func TestShardsThatLagAreRaisedBeforeShardZeroIsMade(t *testing.T) {
	w := newWorld(t)
	options := []any{Default("", calls(100)), ShardAttempts(32)}
	l := w.limiter(options...)
	w.admit(l, acme, Amounts{"calls": 0})
	w.double(acme)
	w.double(acme)
	eq(w, "used", w.drain(l, "calls"), 100)
	_, err := w.Client.Amend(t.Context(), group(acme).At(2).PK(), table.StateSK, table.Amendment{Set: table.Item{table.AttrShardCount: table.N("2")}})
	w.noError(err)
	w.remove(acme, 0)
	w.now = noon.Add(24 * time.Hour)
	eq(w, "used of the next day", w.drain(w.limiter(options...), "calls"), 100)
	eq(w, "shards of shard 2", w.bucket(acme, 2).ShardCount, 4)
}

// unsettled is a table whose settlements fail before or after they are made.
type unsettled struct {
	table.Client
	landed bool
	err    error
}

func (u *unsettled) Reconcile(ctx context.Context, b *table.Bucket, corrections []quota.Adjustment) (table.WriteResult, error) {
	if u.err == nil {
		return u.Client.Reconcile(ctx, b, corrections)
	}
	if u.landed {
		_, _ = u.Client.Reconcile(ctx, b, corrections)
	}
	return table.WriteResult{}, u.err
}

// What may have been given back is not given back again: those would be the
// tokens of others.
func TestNothingIsGivenBackTwice(t *testing.T) {
	lost := fmt.Errorf("%w: connection reset", table.ErrRetry)
	for _, x := range []struct {
		name    string
		landed  bool
		err     error
		balance string // after the second try
	}{
		{"the answer was lost", true, lost, "70"},
		{"the request was lost, which looks the same", false, lost, "40"},
		{"the request was throttled", false, fmt.Errorf("%w: too much", table.ErrThrottled), "70"},
	} {
		t.Run(x.name, func(t *testing.T) {
			w := newWorld(t)
			u := &unsettled{Client: w.Client, landed: x.landed}
			w.asked.Client = u
			l := w.limiter(Default("", calls(100)))
			w.admit(l, acme, Amounts{"calls": 30})
			lease := w.admit(l, acme, Amounts{"calls": 30})
			u.err = x.err
			if err := lease.Release(t.Context()); !errors.Is(err, x.err) {
				t.Errorf("the first release: %v", err)
			}
			u.err = nil
			w.noError(lease.Release(t.Context()))
			eq(w, "balance", table.Tokens(w.bucket(acme, 0).Limit("calls").Balance), x.balance)

			lease = w.admit(l, acme, Amounts{"calls": 20})
			u.err, u.landed = lost, true
			if err := lease.Adjust(t.Context(), Amounts{"calls": -15}); !errors.Is(err, lost) {
				t.Errorf("the adjustment: %v", err)
			}
			eq(w, "taken after it", lease.Taken()["calls"], 5)
			u.err = nil
			w.noError(lease.Release(t.Context()))
			eq(w, "balance", table.Tokens(w.bucket(acme, 0).Limit("calls").Balance), x.balance)
		})
	}
}

// A use that read the old terms may stamp the bucket as looked at between an
// operator's reading and writing.
func TestAChangeIsAlwaysLookedAt(t *testing.T) {
	w := newWorld(t)
	l := w.limiter()
	w.noError(l.SetLimits(t.Context(), ForResource(model), calls(1000)))
	w.admit(l, acme, Amounts{"calls": 0})
	w.noError(l.SetLimits(t.Context(), ForResource(model), calls(400)))
	w.meanwhile(2, "amend", func() { w.admit(w.other(), acme, Amounts{"calls": 50}) })
	w.noError(l.SetLimits(t.Context(), ForResource(model), calls(300)))
	w.fail = nil
	eq(w, "valid until", *w.bucket(acme, 0).ValidUntil, 0)
	w.reject(l, acme, Amounts{"calls": 301})
}

func TestTheLastChangeHolds(t *testing.T) {
	w := newWorld(t)
	l := w.limiter()
	w.noError(l.SetLimits(t.Context(), ForResource(model), calls(1000)))
	w.admit(l, acme, Amounts{"calls": 0})
	w.meanwhile(2, "amend", func() { w.noError(w.other().SetLimits(t.Context(), ForResource(model), calls(300))) })
	w.noError(l.SetLimits(t.Context(), ForResource(model), calls(400)))
	eq(w, "capacity", w.bucket(acme, 0).Limit("calls").Base.Capacity, 300_000)
}

func TestAChangeReachesShardsThatAreMadeMeanwhile(t *testing.T) {
	w := newWorld(t)
	l := w.limiter()
	w.noError(l.SetLimits(t.Context(), ForResource(model), calls(1000)))
	w.admit(l, acme, Amounts{"calls": 0})
	var counts []int
	drawer := w.other(last(&counts))
	w.meanwhile(2, "amend", func() {
		w.double(acme)
		w.admit(drawer, acme, Amounts{"calls": 1})
		w.admit(drawer, acme, Amounts{"calls": 1})
	})
	w.noError(l.SetLimits(t.Context(), ForResource(model), calls(400)))
	for shard := range 2 {
		eq(w, fmt.Sprint("capacity of shard ", shard), w.bucket(acme, shard).Limit("calls").Base.Capacity, 400_000)
	}
}

// The stamp of a soft limit is a time. Each of two operators would put the
// other's aside, again and again.
func TestTwoOperatorsLeaveAStampThatHolds(t *testing.T) {
	w := newWorld(t)
	l := w.limiter()
	soft := calls(1000)
	soft.Soft = true
	w.noError(l.SetLimits(t.Context(), ForResource(model), soft))
	w.admit(l, acme, Amounts{"calls": 0})
	stamp := w.bucket(acme, 0).Limit("calls").Soft
	w.now = noon.Add(10 * time.Second)
	soft.Capacity = 400
	w.noError(l.SetLimits(t.Context(), ForResource(model), soft))
	eq(w, "soft until", w.bucket(acme, 0).Limit("calls").Soft, stamp)
	w.now = noon.Add(2 * time.Minute)
	soft.Capacity = 300
	w.noError(l.SetLimits(t.Context(), ForResource(model), soft))
	eq(w, "soft until, once that had run out", w.bucket(acme, 0).Limit("calls").Soft, w.now.Add(time.Minute).UnixMilli())
}

// A shard is made also where the count doubles under its maker again and again.
func TestAShardIsMadeWhileTheCountDoubles(t *testing.T) {
	w := newWorld(t)
	var counts []int
	l := w.limiter(Default("", calls(100)), last(&counts))
	w.admit(l, acme, Amounts{"calls": 0})
	w.double(acme)
	w.admit(l, acme, Amounts{"calls": 0})
	doubled := 0
	w.fail = func(asked string) error {
		if asked == "create sk-live-acme 1" && doubled < 4 {
			doubled++
			w.double(acme)
		}
		return nil
	}
	w.admit(l, acme, Amounts{"calls": 1})
	eq(w, "shards", w.bucket(acme, 1).ShardCount, 32)
	w.holds(acme, 1, "calls", "2", "1")
}
