package limiter_test

import (
	"errors"
	"fmt"
	"testing"

	. "github.com/shardquota/shardquota/limiter"
	. "github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// gathered is a lease on 600 of 830 calls: 250 off shard 2, 230 off 3, 120 off 1.
func (w *world) gathered() *Lease {
	w.Helper()
	l := w.limiter(Default("", divided(Quota("calls", 1000, "0 0 * * *"), quota.Pooled), PerMinute("rpm", 60)), Deterministic(func(int) int { return 0 }))
	w.split(l, 4, Amounts{"calls": 0})
	for shard := range 4 {
		w.amendShard(acme, shard)
	}
	lease := w.admit(l, acme, Amounts{"calls": 600})
	w.since()
	return lease
}

// What several shards gave is settled whole or refused before any of it is, and
// so the same call again gives nothing back twice.
func TestASettlementIsCheckedBeforeAnyPartOfIt(t *testing.T) {
	everywhere(t, func(w *world) {
		lease := w.gathered()
		for _, c := range []struct {
			amounts Amounts
			want    error
		}{
			{Amounts{"calls": -200, "bytes": 3}, ErrUndefined},
			{Amounts{"calls": -200, "wcu": 1}, ErrUndefined},
			{Amounts{"calls": -200, "rpm": 1_000_000_000_001}, ErrAmount},
			{Amounts{"calls": -601}, ErrAmount},
		} {
			err := lease.Adjust(w.Context(), c.amounts)
			eq(w, fmt.Sprint(c.amounts, " wraps ", c.want), errors.Is(err, c.want), true)
			eq(w, fmt.Sprint(c.amounts, " may pass"), errors.Is(err, table.ErrRetry), false)
		}
		w.asks()
		eq(w, "taken", fmt.Sprint(lease.Taken()), "map[calls:600]")
		w.noError(lease.Adjust(w.Context(), Amounts{"calls": -200}))
		eq(w, "sold", w.sold("calls"), "400 used, 430 held, 0 to grant, true")
	})
}

// Nor is anything given back where another shard has no room for what it is to
// take.
func TestASettlementThatThereIsNoRoomFor(t *testing.T) {
	w := newWorld(t)
	lease := w.gathered()
	var err error
	for range 3000 {
		if err = lease.Adjust(w.Context(), Amounts{"rpm": 1_000_000_000_000}); err != nil {
			break
		}
	}
	eq(w, "full", errors.Is(err, ErrAmount), true)
	err = lease.Adjust(w.Context(), Amounts{"calls": -200, "rpm": 1_000_000_000_000})
	eq(w, "refused", errors.Is(err, ErrAmount), true)
	eq(w, "calls", lease.Taken()["calls"], 600)
	eq(w, "sold", w.sold("calls"), "600 used, 230 held, 0 to grant, true")
}

// Whatever fails once some of it is settled says that it may be: who tries again
// looks at what the lease holds first.
func TestASettlementThatFailsHalfway(t *testing.T) {
	denied := errors.New("access denied")
	for _, cause := range []error{denied, ErrContended} {
		everywhere(t, func(w *world) {
			lease := w.gathered()
			w.asked.fail = func(request string) error {
				if request == "settle sk-live-acme 2" {
					return fmt.Errorf("%w", cause)
				}
				return nil
			}
			err := lease.Adjust(w.Context(), Amounts{"calls": -300})
			eq(w, "the cause", errors.Is(err, cause), true)
			eq(w, "may have been settled", errors.Is(err, table.ErrRetry), true)
			eq(w, "taken", lease.Taken()["calls"], 370)
			err = lease.Adjust(w.Context(), Amounts{"calls": -120})
			eq(w, "nothing was settled", errors.Is(err, cause) && !errors.Is(err, table.ErrRetry), true)
			w.asked.fail = nil
			w.noError(lease.Adjust(w.Context(), Amounts{"calls": 300 - lease.Taken()["calls"]}))
			eq(w, "sold", w.sold("calls"), "300 used, 530 held, 0 to grant, true")
		})
	}
}

// A part whose bucket is gone counts as given back, the others get theirs.
func TestAPartWhoseBucketIsGone(t *testing.T) {
	everywhere(t, func(w *world) {
		lease := w.gathered()
		w.remove(acme, 2)
		w.noError(lease.Adjust(w.Context(), Amounts{"calls": -400}))
		eq(w, "taken", lease.Taken()["calls"], 200)
		w.noError(lease.Adjust(w.Context(), Amounts{"calls": -200}))
		eq(w, "taken", lease.Taken()["calls"], 0)
		w.noError(lease.Release(w.Context()))
		eq(w, "sold", w.sold("calls"), "0 used, 580 held, 250 to grant, true")
	})
}

// So does what fails of the parent alone.
func TestASettlementThatTheParentRefuses(t *testing.T) {
	w := newWorld(t)
	lease := w.admit(family(w), acme, Amounts{"rpm": 20})
	denied := errors.New("access denied")
	w.asked.fail = func(request string) error {
		if request == "settle "+team+" 0" {
			return denied
		}
		return nil
	}
	err := lease.Adjust(w.Context(), Amounts{"rpm": -5})
	eq(w, "may have been settled", errors.Is(err, denied) && errors.Is(err, table.ErrRetry), true)
	eq(w, "taken", lease.Taken()["rpm"], 15)
	w.asked.fail = nil
	w.noError(lease.Adjust(w.Context(), Amounts{"rpm": 0}))
	w.holds(acme, 0, "rpm", "45", "15")
	w.holds(team, 0, "rpm", "85", "15")
}

// A shard 0 that is made anew beside others begins with its share of what drips;
// of what is replicated with nothing, since nobody can give it half.
func TestADrippingShardZeroIsMadeAnew(t *testing.T) {
	for division, want := range map[quota.Division]string{quota.Divided: "500", quota.Pooled: "500", quota.Replicated: "0"} {
		everywhere(t, func(w *world) {
			limits := Default("", divided(PerHour("tpm", 1000), division))
			zero, last := Deterministic(func(int) int { return 0 }), Deterministic(func(of int) int { return of - 1 })
			l := w.limiter(limits, last)
			w.admit(l, acme, Amounts{"tpm": 0})
			w.double(acme)
			for range 2 { // learns of it, and makes shard 1
				w.admit(l, acme, Amounts{"tpm": 0})
			}
			w.remove(acme, 0)
			w.admit(w.limiter(limits, zero), acme, Amounts{"tpm": 0})
			w.holds(acme, 0, "tpm", want, "0")
			eq(w, "count", w.bucket(acme, 0).ShardCount, 2)
		})
	}
}
