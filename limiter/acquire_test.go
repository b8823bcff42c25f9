package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/shardquota/shardquota/limiter"
	. "github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// A use is one request, but for the first of a bucket.
func TestAUseIsOneRequest(t *testing.T) {
	everywhere(t, func(w *world) {
		l := w.limiter(Default("", PerMinute("rpm", 60), Quota("calls", 1000, "0 0 * * *")))
		w.admit(l, acme, Amounts{"rpm": 1, "calls": 10})
		w.asks("take sk-live-acme 0", "items 5", "insert", "items 5", "take sk-live-acme 0")
		w.admit(l, acme, Amounts{"rpm": 1, "calls": 10})
		w.admit(l, acme, Amounts{"calls": 0})
		w.asks("take sk-live-acme 0", "take sk-live-acme 0")
		w.holds(acme, 0, "rpm", "58", "2")
		w.holds(acme, 0, "calls", "980", "20")
		w.holds(acme, 0, "wcu", "997", "3")
	})
}

// A rejection is one request that was refused; it says how much there is, and
// when there will be enough.
func TestRejection(t *testing.T) {
	everywhere(t, func(w *world) {
		l := w.limiter(Default("", PerMinute("rpm", 60), Quota("calls", 100, "0 0 * * *")))
		w.admit(l, acme, Amounts{"rpm": 59, "calls": 95})
		w.since()
		got := w.reject(l, acme, Amounts{"rpm": 2, "calls": 6})
		w.asks("take sk-live-acme 0")
		want := []Status{
			{Limit: "calls", Requested: 6, Available: 5, Capacity: 100, Ceiling: 100, RetryAfter: 12 * time.Hour},
			{Limit: "rpm", Requested: 2, Available: 1, Capacity: 60, Ceiling: 60, Refill: 60, Period: time.Minute, Window: time.Minute, RetryAfter: time.Second},
		}
		eq(w, "limits", fmt.Sprint(got.Limits), fmt.Sprint(want))
		eq(w, "error", got.Error(), "over limits of gpt-4: calls: 5 of 100 left, 6 asked for, again in 12h0m0s; rpm: 1 of 60 left, 2 asked for, again in 1s")
		wait, ok := got.RetryAfter()
		eq(w, "wait", fmt.Sprint(wait, ok), "12h0m0s true")
		w.holds(acme, 0, "rpm", "1", "59")

		// Only what is asked for is looked at.
		got = w.reject(l, acme, Amounts{"rpm": 2})
		wait, _ = got.RetryAfter()
		eq(w, "wait for rpm alone", wait, time.Second)
	})
}

// The wait of a rejection is the true one: then the use is admitted, and a
// millisecond before it is not.
func TestTheWaitPaysOff(t *testing.T) {
	for name, limits := range map[string]struct {
		limit Limit
		ask   int64
		want  time.Duration
	}{
		"drip":           {PerMinute("x", 7), 3, 25715 * time.Millisecond}, // 3/7 of a minute
		"quota":          {Quota("x", 7, "30 13 * * *"), 5, 90 * time.Minute},
		"quota in Tokyo": {Limit{Name: "x", Capacity: 7, Resets: []string{"0 0 * * *"}, Zone: "Asia/Tokyo"}, 5, 3 * time.Hour},
		"session":        {Session("x", 7, 5*time.Hour), 1, 5*time.Hour + time.Millisecond}, // the bucket is a millisecond older than its window
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			l := w.limiter(Default("", limits.limit))
			w.admit(l, acme, Amounts{"x": 7})
			wait, ok := w.reject(l, acme, Amounts{"x": limits.ask}).RetryAfter()
			eq(w, "wait", fmt.Sprint(wait, ok), fmt.Sprint(limits.want, true))
			w.now = noon.Add(wait - time.Millisecond)
			w.reject(l, acme, Amounts{"x": limits.ask})
			w.now = noon.Add(wait)
			w.admit(l, acme, Amounts{"x": limits.ask})
		})
	}
}

// What no shard can ever hold is refused as that.
func TestImpossible(t *testing.T) {
	everywhere(t, func(w *world) {
		// Not shard 0, which still has what it had alone.
		l := w.limiter(Default("", PerMinute("tpm", 1000)), Deterministic(func(n int) int { return 1 % n }))
		w.admit(l, acme, Amounts{"tpm": 100})
		for range 5 {
			w.double(acme)
		}
		w.reject(l, acme, Amounts{"tpm": 2000})
		w.since()
		got := w.reject(l, acme, Amounts{"tpm": 100})
		eq(w, "impossible", got.Impossible(), true)
		eq(w, "shards", got.Shards, 32)
		status := got.Limits[0]
		eq(w, "status", fmt.Sprint(status.Ceiling, status.Capacity, status.Requested, status.Never, status.RetryAfter), "31 1000 100 true 0s")
		if _, ok := got.RetryAfter(); ok {
			w.Error("it promises a time")
		}
		w.admit(l, acme, Amounts{"tpm": 31})
	})
}

// A wait that no clock has room for is one all the same.
func TestTheLongestWait(t *testing.T) {
	w := newWorld(t)
	l := w.limiter(Default("", PerDay("x", 1)))
	w.noError(w.admit(l, acme, Amounts{"x": 1}).Adjust(t.Context(), Amounts{"x": 200_000}))
	got := w.reject(l, acme, Amounts{"x": 1})
	eq(w, "short", got.Of("x").Short(), true)
	wait, ok := got.RetryAfter()
	eq(w, "wait", fmt.Sprint(wait, ok), fmt.Sprint(100*365*24*time.Hour, true))
	eq(w, "error", got.Error(), "over limits of gpt-4: x: -200000 of 1 left, 1 asked for, again in 876000h0m0s")
}

// A limit may be large enough at another time of day.
func TestTheWaitSeesTheSchedule(t *testing.T) {
	w := newWorld(t)
	night := PerMinute("tpm", 10)
	night.Schedule = []quota.Entry{{Cron: "* 22-23 * * *", Scale: 10_000}}
	l := w.limiter(Default("", night))
	got := w.reject(l, acme, Amounts{"tpm": 50})
	wait, ok := got.RetryAfter()
	eq(w, "wait", fmt.Sprint(wait, ok), "10h0m0s true")
	w.now = noon.Add(wait)
	w.admit(l, acme, Amounts{"tpm": 50})
}

// A use brings its bucket up to date in the same write, and again takes at once.
func TestAUseWithAPass(t *testing.T) {
	everywhere(t, func(w *world) {
		l := w.limiter(Default("", PerMinute("rpm", 60), Quota("calls", 100, "0 13 * * *")))
		w.admit(l, acme, Amounts{"rpm": 60, "calls": 30})
		w.since()
		w.now = noon.Add(10 * time.Second)
		w.admit(l, acme, Amounts{"rpm": 4})
		w.asks("take sk-live-acme 0", "use sk-live-acme 0")
		w.holds(acme, 0, "rpm", "6", "64")
		w.holds(acme, 0, "calls", "70", "30")

		w.now = noon.Add(time.Hour) // the quota's edge
		w.admit(l, acme, Amounts{"calls": 1})
		w.admit(l, acme, Amounts{"calls": 1})
		w.asks("take sk-live-acme 0", "use sk-live-acme 0", "take sk-live-acme 0")
		w.holds(acme, 0, "calls", "98", "32")
		w.holds(acme, 0, "rpm", "60", "64")
	})
}

// Where another program passes first, the use is a plain one.
func TestALostLock(t *testing.T) {
	w := newWorld(t)
	l, other := w.limiter(Default("", PerMinute("rpm", 60))), w.limiter(Default("", PerMinute("rpm", 60)))
	w.admit(l, acme, Amounts{"rpm": 60})
	w.now = noon.Add(30 * time.Second)
	w.since()
	done := false
	w.fail = func(request string) error {
		if strings.HasPrefix(request, "use") && !done {
			done = true
			w.mu.Unlock()
			defer w.mu.Lock()
			w.admit(other, acme, Amounts{"rpm": 1})
		}
		return nil
	}
	w.admit(l, acme, Amounts{"rpm": 2})
	w.asks("take sk-live-acme 0", "use sk-live-acme 0", "take sk-live-acme 0", "use sk-live-acme 0", "take sk-live-acme 0")
	w.holds(acme, 0, "rpm", "27", "63")
}

func TestBadUses(t *testing.T) {
	w := newWorld(t)
	l := w.limiter(Default(model, PerMinute("rpm", 60)))
	long := strings.Repeat("a", 257)
	for name, c := range map[string]struct {
		entity, resource string
		amounts          Amounts
		want             error
		says             string
	}{
		"no entity":         {"", model, Amounts{"rpm": 1}, ErrName, "the entity's id"},
		"long entity":       {long, model, Amounts{"rpm": 1}, ErrName, "256"},
		"entity with #":     {"a#b", model, Amounts{"rpm": 1}, ErrName, "the entity's id"},
		"resource with #":   {acme, "gpt#4", Amounts{"rpm": 1}, ErrName, `"gpt#4"`},
		"no amounts":        {acme, model, nil, ErrAmount, "none"},
		"negative":          {acme, model, Amounts{"rpm": -1}, ErrAmount, "rpm: -1"},
		"too large":         {acme, model, Amounts{"rpm": 1_000_000_000_000_001}, ErrAmount, "rpm"},
		"the write meter":   {acme, model, Amounts{"wcu": 1}, ErrUndefined, "wcu"},
		"unknown limit":     {acme, model, Amounts{"tpm": 1}, ErrUndefined, "tpm on gpt-4"},
		"unknown resource":  {acme, "gpt-5", Amounts{"rpm": 1}, ErrUndefined, "gpt-5"},
		"one limit unknown": {acme, model, Amounts{"rpm": 1, "tpm": 1}, ErrUndefined, "tpm"},
	} {
		_, err := l.Acquire(t.Context(), c.entity, c.resource, c.amounts)
		if !errors.Is(err, c.want) || !strings.Contains(fmt.Sprint(err), c.says) || strings.Contains(fmt.Sprint(err), acme) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	w.holds(acme, 0, "rpm", "60", "0")
}

// While the table cannot be reached the caller's choice holds.
func TestUnreachable(t *testing.T) {
	down := fmt.Errorf("%w: connection refused", table.ErrRetry)
	w := newWorld(t)
	block, allow := w.limiter(Default("", PerMinute("rpm", 60))), w.limiter(Default("", PerMinute("rpm", 60)), OnUnavailable(Allow))
	w.fail = func(string) error { return down }

	_, err := block.Acquire(t.Context(), acme, model, Amounts{"rpm": 1})
	var unavailable *Unavailable
	if !errors.As(err, &unavailable) || !errors.Is(err, table.ErrRetry) {
		t.Errorf("blocked with %v", err)
	}

	lease, err := allow.Acquire(t.Context(), acme, model, Amounts{"rpm": 1})
	if err != nil || lease.Counted() {
		t.Fatalf("got %v, %v", lease, err)
	}
	w.noError(lease.Adjust(t.Context(), Amounts{"rpm": 5}))
	w.noError(lease.Release(t.Context()))

	w.fail = func(string) error { return fmt.Errorf("%w: rate exceeded", table.ErrThrottled) }
	if _, err := allow.Acquire(t.Context(), acme, model, Amounts{"rpm": 1}); !errors.As(err, &unavailable) {
		t.Errorf("a use that is throttled: %v", err)
	}
	w.fail = func(string) error { return down }
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := allow.Acquire(ctx, acme, model, Amounts{"rpm": 1}); err == nil {
		t.Error("a use that its caller gave up is admitted")
	}
	ctx, cancel = context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	if _, err := allow.Acquire(ctx, acme, model, Amounts{"rpm": 1}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a use whose time was over before it began: %v", err)
	}
	w.fail = func(string) error { return errors.New("AccessDeniedException") }
	if _, err := allow.Acquire(t.Context(), acme, model, Amounts{"rpm": 1}); err == nil || errors.As(err, &unavailable) {
		t.Errorf("a missing permission: %v", err)
	}
}

// A use whose answer is lost is not made again by itself: it may have been taken.
func TestALostAnswer(t *testing.T) {
	w := newWorld(t)
	l := w.limiter(Default("", PerMinute("rpm", 60)))
	w.admit(l, acme, Amounts{"rpm": 1})
	w.since()
	w.lose = func(string) error { return fmt.Errorf("%w: connection reset", table.ErrRetry) }
	var unavailable *Unavailable
	if _, err := l.Acquire(t.Context(), acme, model, Amounts{"rpm": 1}); !errors.As(err, &unavailable) {
		t.Errorf("got %v", err)
	}
	w.asks("take sk-live-acme 0")
	w.holds(acme, 0, "rpm", "58", "2")
}
