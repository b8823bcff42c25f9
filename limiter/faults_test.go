package limiter_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shardquota/shardquota/internal/faultdb"
	. "github.com/shardquota/shardquota/limiter"
	. "github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/memory"
)

// Whatever fails of a table, no more is admitted than was sold, and what is left can
// be had once nothing fails any more: all but what lost answers took.
func TestNoFaultAdmitsMore(t *testing.T) {
	for name, rates := range map[string]faultdb.Rates{
		"throttled":       {Throttle: 0.3},
		"conflicts":       {Conflict: 0.3},
		"lost answers":    {Lost: 0.2},
		"unread keys":     {Unread: 0.5},
		"an index behind": {Lag: 20},
		"all of it":       {Throttle: 0.1, Conflict: 0.1, Lost: 0.1, Unread: 0.2, Lag: 5},
	} {
		t.Run(name, func(t *testing.T) {
			answers := map[string]int{}
			for seed := range uint64(10) {
				faulty(t, seed, rates, answers)
			}
			t.Log(answers)
			if name == "conflicts" {
				eq(t, "failed", answers["failed"], 0)
			}
			if answers["admitted"] == 0 || answers["rejected"] == 0 || rates.Throttle+rates.Lost > 0 && answers["failed"] == 0 {
				t.Errorf("too dull: %v", answers)
			}
		})
	}
}

func faulty(t *testing.T, seed uint64, rates faultdb.Rates, answers map[string]int) {
	const sold = 200
	r := rand.New(rand.NewPCG(seed, 4))
	db := faultdb.New(memory.New(), seed, rates)
	w := worldOf(t, &table.Table{DB: db, Reads: 6})
	calls := Quota("calls", sold, "0 0 * * *")
	calls.Division = []quota.Division{quota.Divided, quota.Pooled}[seed%2]
	db.Set(faultdb.Rates{})
	l := w.limiter(Deterministic(r.IntN), Sequential())
	w.noError(l.SetLimits(t.Context(), ForResource(model), calls))
	db.Set(rates)

	admitted := int64(0)
	acquire := func(amount int64) (enough bool) {
		_, err := l.Acquire(t.Context(), acme, model, Amounts{"calls": amount})
		var rejection *Rejection
		switch {
		case err == nil:
			admitted += amount
			answers["admitted"]++
		case errors.As(err, &rejection):
			answers["rejected"]++
			return false
		case !errors.Is(err, table.ErrRetry) && !errors.Is(err, ErrContended):
			t.Fatalf("seed %d: %v", seed, err)
		default:
			answers["failed"]++
		}
		return true
	}
	for range 60 {
		w.now = w.now.Add(time.Second)
		switch r.IntN(12) {
		case 0:
			if b, err := w.Client.Read(t.Context(), group(acme).At(0)); err == nil && b != nil && b.ShardCount < 8 {
				_, _ = w.Client.Double(t.Context(), group(acme), b.ShardCount)
			}
		case 1:
			larger := calls
			larger.Soft = false
			if err := l.SetLimits(t.Context(), ForResource(model), larger); err != nil && !errors.Is(err, table.ErrRetry) && !errors.Is(err, ErrContended) && !errors.Is(err, ErrStale) {
				t.Fatalf("seed %d: %v", seed, err)
			}
		default:
			acquire(1 + r.Int64N(10))
		}
	}
	db.Set(faultdb.Rates{})
	for range 400 {
		w.now = w.now.Add(time.Second)
		acquire(1)
	}
	books := w.sold("calls")
	if admitted > sold || !strings.HasSuffix(books, "true") {
		t.Errorf("seed %d: %d admitted of %d: %s", seed, admitted, sold, books)
	}
	if used := fmt.Sprintf("%d used, ", admitted); rates.Lost == 0 && !strings.HasPrefix(books, used) {
		t.Errorf("seed %d: %d admitted: %s", seed, admitted, books)
	}
}

// Where many callers meet while a group goes from 1 to 32 shards, transactions get in
// each other's way. No use fails for it, and no more is admitted than was sold.
func TestConflictsFailNoUse(t *testing.T) {
	const callers, each, sold = 64, 20, 3200
	everywhere(t, func(w *world) {
		w.asked.Client = &table.Table{DB: faultdb.New(w.asked.Client.(table.DB), 1, faultdb.Rates{Conflict: 0.3})}
		l := w.limiter(Default("", Quota("calls", sold, "0 0 * * *")))
		w.admit(l, acme, Amounts{"calls": 0})
		var admitted, rejected atomic.Int64
		var all sync.WaitGroup
		for caller := range callers {
			all.Go(func() {
				for use := range each {
					if caller == 0 && use%4 == 0 {
						_, _ = w.asked.Client.Double(w.Context(), group(acme), 1<<(use/4))
					}
					_, err := l.Acquire(w.Context(), acme, model, Amounts{"calls": 1})
					var rejection *Rejection
					switch {
					case err == nil:
						admitted.Add(1)
					case errors.As(err, &rejection):
						rejected.Add(1)
					default:
						t.Errorf("a use fails: %v", err)
					}
				}
			})
		}
		all.Wait()
		eq(w, "admitted or rejected", admitted.Load()+rejected.Load(), callers*each)
		eq(w, "sold", w.sold("calls"), fmt.Sprintf("%d used, %d held, 0 to grant, true", admitted.Load(), sold-admitted.Load()))
		t.Logf("%d admitted, %d rejected", admitted.Load(), rejected.Load())
	})
}
