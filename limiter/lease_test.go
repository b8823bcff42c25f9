package limiter_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/shardquota/shardquota/limiter"
	. "github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/table"
)

// A lease settles what was really used, with one request.
func TestAdjust(t *testing.T) {
	everywhere(t, func(w *world) {
		l := w.limiter(Default("", PerMinute("rpm", 60), Quota("tokens", 1000, "0 0 * * *")))
		lease := w.admit(l, acme, Amounts{"rpm": 1, "tokens": 400})
		w.since()
		w.noError(lease.Adjust(t.Context(), Amounts{"tokens": 50}))
		w.asks("settle sk-live-acme 0")
		w.holds(acme, 0, "tokens", "550", "450")
		w.noError(lease.Adjust(t.Context(), Amounts{"tokens": -200}))
		w.asks("settle sk-live-acme 0")
		w.holds(acme, 0, "tokens", "750", "250")
		w.holds(acme, 0, "rpm", "59", "1")
		w.holds(acme, 0, "wcu", "997", "3")
		eq(w, "taken", fmt.Sprint(lease.Taken()), "map[rpm:1 tokens:250]")
		eq(w, "left", fmt.Sprint(lease.Left()), "map[rpm:59 tokens:750]")
	})
}

// More is always taken, into debt if it must be, and later uses wait for it.
func TestDebt(t *testing.T) {
	w := newWorld(t)
	l := w.limiter(Default("", PerMinute("tpm", 60)))
	lease := w.admit(l, acme, Amounts{"tpm": 60})
	w.noError(lease.Adjust(t.Context(), Amounts{"tpm": 30}))
	w.holds(acme, 0, "tpm", "-30", "90")
	got := w.reject(l, acme, Amounts{"tpm": 1})
	eq(w, "available", got.Limits[0].Available, -30)
	eq(w, "wait", got.Limits[0].RetryAfter, 31*time.Second)
	w.reject(l, acme, Amounts{"tpm": 0}) // in debt nothing is admitted
}

// A limit of which nothing was taken can be charged afterwards.
func TestAdjustAnotherLimit(t *testing.T) {
	w := newWorld(t)
	l := w.limiter(Default("", PerMinute("rpm", 60), PerMinute("tpm", 1000)))
	lease := w.admit(l, acme, Amounts{"rpm": 1})
	w.noError(lease.Adjust(t.Context(), Amounts{"tpm": 250}))
	w.holds(acme, 0, "tpm", "750", "250")
	w.noError(lease.Release(t.Context()))
	w.holds(acme, 0, "tpm", "1000", "0")
	w.holds(acme, 0, "rpm", "60", "0")
}

func TestRelease(t *testing.T) {
	everywhere(t, func(w *world) {
		l := w.limiter(Default("", PerMinute("rpm", 60), Quota("calls", 1000, "0 0 * * *")))
		w.admit(l, acme, Amounts{"rpm": 5, "calls": 5})
		lease := w.admit(l, acme, Amounts{"rpm": 1, "calls": 10})
		w.noError(lease.Release(t.Context()))
		w.holds(acme, 0, "rpm", "55", "5")
		w.holds(acme, 0, "calls", "995", "5")
		for _, err := range []error{lease.Release(t.Context()), lease.Adjust(t.Context(), Amounts{"rpm": 1})} {
			if !errors.Is(err, ErrReleased) {
				t.Errorf("after the release: %v", err)
			}
		}
		eq(w, "taken", len(lease.Taken()), 0)
	})
}

// A bypassed bucket gives nothing, and gets nothing of that back. What it gave
// before, it does.
func TestAReleaseUnderABypass(t *testing.T) {
	everywhere(t, func(w *world) {
		l := w.limiter(Default("", Quota("calls", 60, "0 0 * * *")))
		before := w.admit(l, acme, Amounts{"calls": 5})
		w.noError(l.SetAccess(w.Context(), For(acme, model), Bypass))
		w.since()
		w.admit(l, acme, Amounts{"calls": 1})
		w.asks("take sk-live-acme 0", "take sk-live-acme 0")
		lease := w.admit(l, acme, Amounts{"calls": 500})
		w.asks("take sk-live-acme 0")
		w.holds(acme, 0, "calls", "55", "506")
		w.noError(lease.Adjust(w.Context(), Amounts{"calls": 20}))
		w.holds(acme, 0, "calls", "55", "526")
		w.noError(lease.Release(w.Context()))
		w.holds(acme, 0, "calls", "55", "6")
		w.noError(before.Release(w.Context()))
		w.holds(acme, 0, "calls", "60", "1")
	})
}

// What is given back lifts no balance above its ceiling (G8).
func TestAReleaseStopsAtTheCeiling(t *testing.T) {
	everywhere(t, func(w *world) {
		l := w.limiter(Default("", PerMinute("rpm", 60), Quota("calls", 1000, "0 0 * * *")))
		lease := w.admit(l, acme, Amounts{"rpm": 30, "calls": 400})
		w.now = noon.Add(20 * time.Second)
		w.admit(l, acme, Amounts{"rpm": 31}) // a pass: 50 less 31
		w.now = noon.Add(55 * time.Second)
		w.admit(l, acme, Amounts{"rpm": 20}) // a pass: 54 less 20
		w.noError(lease.Release(t.Context()))
		w.holds(acme, 0, "rpm", "60", "51")
		w.holds(acme, 0, "calls", "1000", "0")
	})
}

// What was taken of a quota in a period that is over is no allowance of this one.
func TestAReleaseStaysInItsPeriod(t *testing.T) {
	for name, c := range map[string]struct {
		limit Limit
		later time.Duration
	}{
		"calendar": {Quota("calls", 100, "0 13 * * *"), time.Hour},
		"session":  {Session("calls", 100, time.Hour), 2 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			l := w.limiter(Default("", c.limit))
			lease := w.admit(l, acme, Amounts{"calls": 40})
			w.now = noon.Add(c.later)
			w.admit(l, acme, Amounts{"calls": 30})
			w.holds(acme, 0, "calls", "70", "70")
			w.noError(lease.Release(t.Context()))
			w.holds(acme, 0, "calls", "70", "30") // counted as unused, but not given again
		})
	}
}

// A release that comes while others pass the bucket is tried again from what
// they left, and at last lifts nothing rather than too much.
func TestAReleaseAmongPasses(t *testing.T) {
	w := newWorld(t)
	l := w.limiter(Default("", PerMinute("rpm", 60)))
	lease := w.admit(l, acme, Amounts{"rpm": 60})
	settles := 0
	w.fail = func(request string) error {
		if strings.HasPrefix(request, "settle") {
			settles++
			w.mu.Unlock()
			defer w.mu.Lock()
			w.now = w.now.Add(2 * time.Second)
			w.admit(l, acme, Amounts{"rpm": 2}) // all that has dripped, which takes a pass
		}
		return nil
	}
	w.noError(lease.Release(t.Context()))
	eq(w, "attempts", settles, 16)
	w.holds(acme, 0, "rpm", "0", "32")
}

func TestBadSettlements(t *testing.T) {
	w := newWorld(t)
	l := w.limiter(Default("", PerMinute("rpm", 60)))
	lease := w.admit(l, acme, Amounts{"rpm": 5})
	for name, c := range map[string]struct {
		amounts Amounts
		want    error
	}{
		"gives back too much": {Amounts{"rpm": -6}, ErrAmount},
		"too large":           {Amounts{"rpm": 1_000_000_000_000_001}, ErrAmount},
		"unknown":             {Amounts{"tpm": 1}, ErrUndefined},
		"the write meter":     {Amounts{"wcu": 1}, ErrUndefined},
	} {
		if err := lease.Adjust(t.Context(), c.amounts); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	w.holds(acme, 0, "rpm", "55", "5")
	w.noError(lease.Adjust(t.Context(), nil))
	w.holds(acme, 0, "rpm", "55", "5")
}

// What there is no room for in a bucket is refused before it is written.
func TestADebtTooLargeToBeRead(t *testing.T) {
	w := newWorld(t)
	l := w.limiter(Default("", PerMinute("rpm", 60)))
	lease := w.admit(l, acme, Amounts{"rpm": 5})
	const most = 1_000_000_000_000
	var err error
	adjusted := int64(0)
	for ; err == nil && adjusted < 3000; adjusted++ {
		err = lease.Adjust(t.Context(), Amounts{"rpm": most})
	}
	if !errors.Is(err, ErrAmount) || adjusted != 2306 { // 2^61 millitokens and some
		t.Errorf("after %d: %v", adjusted, err)
	}
	w.holds(acme, 0, "rpm", "-2304999999999945", "2305000000000005")
	w.reject(l, acme, Amounts{"rpm": 1})
}

// A soft limit goes into debt only as far as its bucket can be read again.
func TestASoftDebtTooLargeToBeRead(t *testing.T) {
	everywhere(t, func(w *world) {
		soft := PerMinute("tpm", 60)
		soft.Soft = true
		l := w.limiter()
		w.noError(l.SetLimits(w.Context(), ForAll(), soft, PerMinute("rpm", 60)))
		w.admit(l, acme, Amounts{"tpm": 0, "rpm": 1})
		_, err := w.Client.Amend(w.Context(), group(acme).At(0).PK(), table.StateSK, table.Amendment{Set: table.Item{"b_tpm_tk": table.N("-2305843009213693000")}})
		w.noError(err)
		if _, err := l.Acquire(w.Context(), acme, model, Amounts{"tpm": 1}); err == nil {
			w.Error("admitted")
		}
		w.admit(l, acme, Amounts{"rpm": 1})
		w.holds(acme, 0, "tpm", "-2305843009213693", "0")
	})
}

// A bucket in debt outlives it.
func TestADebtIsNotForgottenWithItsBucket(t *testing.T) {
	w := newWorld(t)
	l := w.limiter(Default("", PerMinute("tpm", 1000)))
	lease := w.admit(l, acme, Amounts{"tpm": 1})
	expires := func() int64 {
		at, _ := w.bucket(acme, 0).Item.Int(table.AttrTTL)
		return at - noon.Unix()
	}
	eq(w, "expires", expires(), 60+4*7*24*3600)
	w.noError(lease.Adjust(t.Context(), Amounts{"tpm": 1_000_000}))
	wait, _ := w.reject(l, acme, Amounts{"tpm": 1}).RetryAfter()
	if expires() < int64(wait/time.Second) {
		t.Errorf("gone in %d s, repaid in %v", expires(), wait)
	}
	w.now = noon.Add(wait)
	w.admit(l, acme, Amounts{"tpm": 1})
}

// A bucket that is gone has nothing to be settled with.
func TestSettlingWithABucketThatIsGone(t *testing.T) {
	w := newWorld(t)
	l := w.limiter(Default("", PerMinute("rpm", 60)))
	lease := w.admit(l, acme, Amounts{"rpm": 5})
	w.remove(acme, 0)
	w.noError(lease.Adjust(t.Context(), Amounts{"rpm": 5}))
	eq(w, "more is not taken", lease.Taken()["rpm"], 5)
	w.noError(lease.Adjust(t.Context(), Amounts{"rpm": -3}))
	eq(w, "what is given back is", lease.Taken()["rpm"], 2)
	if b := w.bucketOrNil(acme, 0); b != nil {
		t.Errorf("a bucket is made: %v", b.Item)
	}
}

const team = "team-7"

// family is a limiter of a child and its parent, who cascades.
func family(w *world) *program {
	l := w.limiter()
	w.noError(l.CreateEntity(w.Context(), Entity{ID: team}))
	w.noError(l.CreateEntity(w.Context(), Entity{ID: acme, Parent: team, Cascade: true}))
	w.noError(l.SetLimits(w.Context(), ForEntity(acme), PerMinute("rpm", 60), PerMinute("tpm", 500)))
	w.noError(l.SetLimits(w.Context(), ForEntity(team), PerMinute("rpm", 100)))
	w.since()
	return l
}

// Both give, or neither; the parent of those limits that it has.
func TestACascade(t *testing.T) {
	everywhere(t, func(w *world) {
		l := family(w)
		w.admit(l, acme, Amounts{"rpm": 10, "tpm": 100})
		w.since()
		lease := w.admit(l, acme, Amounts{"rpm": 40, "tpm": 10})
		w.asks("take sk-live-acme 0", "take team-7 0")
		w.holds(team, 0, "rpm", "50", "50")

		w.admit(l, team, Amounts{"rpm": 45}) // the team is used by others too
		w.since()
		got := w.reject(l, acme, Amounts{"rpm": 6})
		w.asks("take sk-live-acme 0", "take team-7 0", "settle sk-live-acme 0")
		eq(w, "the parent rejects", got.Parent, true)
		eq(w, "error", got.Error(), "over the parent's limits of gpt-4: rpm: 5 of 100 left, 6 asked for, again in 600ms")
		w.holds(acme, 0, "rpm", "10", "50")

		got = w.reject(l, acme, Amounts{"rpm": 11})
		w.asks("take sk-live-acme 0")
		eq(w, "the child rejects", got.Parent, false)

		w.noError(lease.Adjust(t.Context(), Amounts{"rpm": -20, "tpm": 5}))
		w.holds(acme, 0, "rpm", "30", "30")
		w.holds(team, 0, "rpm", "25", "75")
		w.noError(lease.Release(t.Context()))
		w.holds(acme, 0, "rpm", "50", "10")
		w.holds(team, 0, "rpm", "45", "55")
	})
}

// An adjustment that reached the child alone is made up for by the next.
func TestAnAdjustmentThatMissedTheParent(t *testing.T) {
	w := newWorld(t)
	l := family(w)
	lease := w.admit(l, acme, Amounts{"rpm": 1})
	w.fail = func(request string) error {
		if strings.HasPrefix(request, "settle "+team) {
			return fmt.Errorf("%w: rate exceeded", table.ErrThrottled)
		}
		return nil
	}
	if err := lease.Adjust(t.Context(), Amounts{"rpm": 50}); !errors.Is(err, table.ErrThrottled) {
		t.Errorf("got %v", err)
	}
	w.fail = nil
	w.noError(lease.Adjust(t.Context(), Amounts{"rpm": -50}))
	w.holds(acme, 0, "rpm", "59", "1")
	w.holds(team, 0, "rpm", "99", "1")
}

// A release that failed halfway goes on where it is tried again. Until then nothing
// is settled: the parent has its part back already.
func TestAnAdjustmentAfterHalfARelease(t *testing.T) {
	everywhere(t, func(w *world) {
		lease := w.admit(family(w), acme, Amounts{"rpm": 20})
		denied := errors.New("access denied")
		w.asked.fail = func(request string) error {
			if request == "settle "+acme+" 0" {
				return denied
			}
			return nil
		}
		eq(w, "cause", errors.Is(lease.Release(w.Context()), denied), true)
		w.asked.fail = nil
		for _, amount := range []int64{5, 0, -5} {
			eq(w, "released", lease.Adjust(w.Context(), Amounts{"rpm": amount}), ErrReleased)
		}
		eq(w, "taken", lease.Taken()["rpm"], 20)
		w.holds(acme, 0, "rpm", "40", "20")
		w.holds(team, 0, "rpm", "100", "0")
		w.noError(lease.Release(w.Context()))
		w.holds(acme, 0, "rpm", "60", "0")
		w.holds(team, 0, "rpm", "100", "0")
		eq(w, "again", lease.Release(w.Context()), ErrReleased)
	})
}

// Where the parent cannot be asked, the child gets back what it gave.
func TestAParentThatCannotBeReached(t *testing.T) {
	w := newWorld(t)
	l := family(w)
	w.admit(l, acme, Amounts{"rpm": 1})
	w.fail = func(request string) error {
		if strings.HasPrefix(request, "take "+team) {
			return fmt.Errorf("%w: down", table.ErrRetry)
		}
		return nil
	}
	var unavailable *Unavailable
	if _, err := l.Acquire(t.Context(), acme, model, Amounts{"rpm": 5}); !errors.As(err, &unavailable) {
		t.Errorf("got %v", err)
	}
	w.holds(acme, 0, "rpm", "59", "1")
}
