package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	. "github.com/shardquota/shardquota/limiter"
	. "github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/table"
)

// spoil sets an attribute of a shard's bucket, as no program of this project would.
func (w *world) spoil(entity string, shard int, attr string) {
	w.Helper()
	_, err := w.Client.Amend(w.Context(), group(entity).At(shard).PK(), table.StateSK, table.Amendment{Set: table.Item{attr: table.S("x")}})
	w.noError(err)
}

// One bucket that cannot be read keeps a change from no other, and the error says
// so, and names nobody.
func TestABucketThatCannotBeRead(t *testing.T) {
	everywhere(t, func(w *world) {
		l, entity := w.limiter(), func(i int) string { return fmt.Sprintf("sk-live-%02d", i) }
		w.noError(l.SetLimits(w.Context(), ForAll(), PerMinute("rpm", 60)))
		for i := range 20 {
			w.admit(l, entity(i), Amounts{"rpm": 1})
		}
		for _, bad := range []int{0, 5, 11, 19} {
			w.spoil(entity(bad), 0, "b_rpm_tk")
		}
		err := l.SetLimits(w.Context(), ForAll(), PerMinute("rpm", 6))
		want := "stored, but not brought to all buckets: 4 of 20 groups: shard 0: read bucket: malformed item: b_rpm_tk: not a number"
		if !errors.Is(err, ErrUnreadable) || !errors.Is(err, table.ErrItem) || fmt.Sprint(err) != want {
			w.Errorf("got %v", err)
		}
		for i := range 20 {
			if i != 0 && i != 5 && i != 11 && i != 19 {
				eq(w, "capacity of "+entity(i), w.bucket(entity(i), 0).Limit("rpm").Base.Capacity, 6_000)
			}
		}
	})
}

// Of a group with a shard that cannot be read the others get the change. That one
// gets the access: who is disabled must not go on there.
func TestAShardThatCannotBeRead(t *testing.T) {
	for bad := range 2 {
		everywhere(t, func(w *world) {
			l := w.limiter(ShardAttempts(32))
			w.noError(l.SetLimits(w.Context(), ForResource(model), PerMinute("rpm", 100)))
			w.admit(l, acme, Amounts{"rpm": 1})
			w.double(acme)
			for w.bucketOrNil(acme, 1) == nil {
				w.admit(l, acme, Amounts{"rpm": 1})
			}
			w.spoil(acme, bad, "rf")
			pk := group(acme).At(bad).PK()
			disabled := func() bool {
				items, err := w.Client.Items(w.Context(), []table.ItemKey{{PK: pk, SK: table.StateSK}})
				w.noError(err)
				return items[0].Flag(table.AttrDisabled)
			}
			for _, access := range []Access{Disabled, Enabled} {
				if err := l.SetAccess(w.Context(), ForEntity(acme), access); !errors.Is(err, ErrUnreadable) || !strings.Contains(fmt.Sprint(err), fmt.Sprintf("shard %d: ", bad)) {
					w.Errorf("got %v", err)
				}
				eq(w, "disabled", disabled(), access == Disabled)
				eq(w, "the other disabled", w.bucket(acme, 1-bad).Disabled, access == Disabled)
			}
			if err := l.SetLimits(w.Context(), ForResource(model), PerMinute("rpm", 6)); !errors.Is(err, ErrUnreadable) {
				w.Errorf("got %v", err)
			}
			if bad == 1 { // without shard 0 nobody knows the count that holds
				eq(w, "capacity", w.bucket(acme, 0).Limit("rpm").Base.Capacity, 6_000)
			}
		})
	}
}

// A request that fails is no bucket that cannot be read, and keeps a change from no
// other either.
func TestAChangeThatFailsSomewhere(t *testing.T) {
	everywhere(t, func(w *world) {
		l := w.limiter(Sequential(), Deterministic(func(int) int { return 0 }))
		w.noError(l.SetLimits(w.Context(), ForAll(), PerMinute("rpm", 60)))
		for _, entity := range []string{"a", "b", "c"} {
			w.admit(l, entity, Amounts{"rpm": 1})
		}
		w.spoil("a", 0, "b_rpm_tk")
		w.fail = func(asked string) error {
			if asked == "read b 0" {
				return fmt.Errorf("%w: too much", table.ErrThrottled)
			}
			return nil
		}
		err := l.SetLimits(w.Context(), ForAll(), PerMinute("rpm", 6))
		if errors.Is(err, ErrUnreadable) || !errors.Is(err, table.ErrThrottled) || !strings.Contains(fmt.Sprint(err), "2 of 3 groups: ") {
			w.Errorf("got %v", err)
		}
		eq(w, "capacity", w.bucket("c", 0).Limit("rpm").Base.Capacity, 6_000)

		amended := 0 // the level, and then the bucket that cannot be read, which is the first
		w.fail = func(asked string) error {
			if asked == "amend" {
				if amended++; amended == 2 {
					return table.ErrThrottled
				}
			}
			return nil
		}
		if err := l.SetLimits(w.Context(), ForAll(), PerMinute("rpm", 5)); errors.Is(err, ErrUnreadable) || !errors.Is(err, table.ErrThrottled) {
			w.Errorf("throttled: %v", err)
		}
		ctx, cancel := context.WithCancel(w.Context())
		w.fail = func(asked string) error {
			if asked == "read b 0" {
				cancel()
			}
			return nil
		}
		if err := l.SetLimits(ctx, ForAll(), PerMinute("rpm", 4)); !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnreadable) {
			w.Errorf("cancelled: %v", err)
		}
	})
}

// Who is disabled is so also where the limits that hold for him cannot be read. His
// buckets keep those that they have.
func TestAccessWhereLimitsCannotBeRead(t *testing.T) {
	everywhere(t, func(w *world) {
		l := w.limiter(CacheFor(0))
		w.noError(l.SetLimits(w.Context(), ForAll(), Quota("calls", 10, "0 0 * * *")))
		w.admit(l, acme, Amounts{"calls": 1})
		_, err := w.Client.Amend(w.Context(), "ns1/SYSTEM#", "#CONFIG", table.Amendment{Set: table.Item{"l_calls_rsched": table.S("7nonsense")}})
		w.noError(err)
		use := func() error {
			_, err := l.Acquire(w.Context(), acme, model, Amounts{"calls": 1})
			return err
		}
		for _, level := range []Level{ForEntity(acme), For(acme, model), ForResource(model)} {
			w.noError(l.SetAccess(w.Context(), level, Disabled))
			if err := use(); !errors.Is(err, ErrDisabled) {
				w.Errorf("%v: %v", level, err)
			}
			w.noError(l.SetAccess(w.Context(), level, Inherit))
			w.noError(use())
		}
		w.holds(acme, 0, "calls", "6", "4")

		own := For(acme, model) // cannot be read, and goes before what is disabled
		w.noError(l.SetLimits(w.Context(), own, Quota("calls", 10, "0 0 * * *")))
		_, err = w.Client.Amend(w.Context(), "ns1/ENTITY#"+acme, "#CONFIG#"+model, table.Amendment{Set: table.Item{"l_calls_rsched": table.S("7nonsense")}})
		w.noError(err)
		w.noError(l.SetAccess(w.Context(), ForResource(model), Disabled))
		if err := use(); !errors.Is(err, ErrDisabled) {
			w.Errorf("with limits of its own: %v", err)
		}
		w.noError(l.SetAccess(w.Context(), ForResource(model), Inherit))
		w.noError(l.DeleteLimits(w.Context(), own))
		w.noError(l.SetLimits(w.Context(), ForResource(model), Quota("calls", 20, "0 0 * * *"))) // goes before it
		eq(w, "capacity", w.bucket(acme, 0).Limit("calls").Base.Capacity, 20_000)
	})
}

// A Replace that buckets cannot be read for stays pending, unless nothing is left of
// the level.
func TestReplaceOfWhatCannotBeRead(t *testing.T) {
	everywhere(t, func(w *world) {
		l, level := w.limiter(), ForResource(model)
		w.noError(l.SetLimits(w.Context(), level, PerMinute("rpm", 60)))
		w.admit(l, acme, Amounts{"rpm": 1})
		w.spoil(acme, 0, "b_rpm_tk")
		if err := l.Replace(w.Context(), w.stored(l, level), Rules{Limits: []Limit{PerMinute("rpm", 6)}}); !errors.Is(err, ErrUnreadable) {
			w.Errorf("got %v", err)
		}
		eq(w, "pending", w.stored(l, level).Pending, true)
		if err := l.Replace(w.Context(), w.stored(l, level), Rules{}); !errors.Is(err, ErrUnreadable) {
			w.Errorf("got %v", err)
		}
		w.says(l, level, Rules{})
		w.lists(l)
	})
}

// Nor does another program's zone, which the limits of this one cannot share, keep
// anybody enabled.
func TestAccessWhereLimitsDoNotFit(t *testing.T) {
	everywhere(t, func(w *world) {
		zoned := func(name, zone string) StoreOption {
			limit := Quota(name, 10, "0 0 * * *")
			limit.Zone = zone
			return Default("", limit)
		}
		w.admit(w.limiter(zoned("calls", "Europe/Berlin")), acme, Amounts{"calls": 1})
		l := w.limiter(zoned("tokens", "Asia/Tokyo"))
		w.noError(l.SetAccess(w.Context(), ForEntity(acme), Disabled))
		eq(w, "disabled", w.bucket(acme, 0).Disabled, true)
		w.noError(l.SetAccess(w.Context(), ForEntity(acme), Inherit))
		eq(w, "disabled again", w.bucket(acme, 0).Disabled, false)
		w.holds(acme, 0, "calls", "9", "1")
	})
}
