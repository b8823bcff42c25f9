package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	. "github.com/shardquota/shardquota/limiter"
	. "github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// split has a limiter meet an entity and brings it to a shard count.
func (w *world) split(l *program, count int, amounts Amounts) {
	w.Helper()
	w.admit(l, acme, amounts)
	for n := 1; n < count; n *= 2 {
		w.double(acme)
	}
	w.now = w.now.Add(time.Second) // and the balances are those of the new count
	w.admit(l, acme, amounts)
}

func divided(l Limit, division quota.Division) Limit {
	l.Division = division
	return l
}

// A hundred of a thousand at 32 shards: each division keeps what it promises.
func TestALargeUseOfManyShards(t *testing.T) {
	everywhere(t, func(w *world) {
		for _, c := range []struct {
			division quota.Division
			shard    int // that is drawn; the only one there is, is 0
			want     string
		}{
			{quota.Divided, 0, "never: 30 of 31"},
			{quota.Divided, 7, "never: 31 of 31"},
			{quota.Replicated, 0, "admitted"},
			{quota.Replicated, 7, "admitted"}, // made with half of what shard 0 has
			{quota.Pooled, 0, "admitted"},
			{quota.Pooled, 7, "admitted"},
		} {
			first := Deterministic(func(int) int { return 0 })
			limit := Default("", divided(PerMinute("tpm", 1000), c.division))
			l := w.limiter(limit, first)
			entity := acme + fmt.Sprint(c.division, c.shard)
			w.admit(l, entity, Amounts{"tpm": 1000})
			for range 5 {
				w.double(entity)
			}
			w.now = w.now.Add(33 * time.Minute) // of which 32 refill a shard's whole capacity
			drawn := w.limiter(limit, Deterministic(func(n int) int { return c.shard % n }))
			w.admit(drawn, entity, Amounts{"tpm": 1}) // and learns of the count
			got := "admitted"
			_, err := drawn.Acquire(w.Context(), entity, model, Amounts{"tpm": 100})
			var rejection *Rejection
			if errors.As(err, &rejection) {
				s := rejection.Of("tpm")
				got = fmt.Sprintf("in %v: %d of %d", s.RetryAfter.Truncate(time.Second), s.Available, s.Ceiling)
				if rejection.Impossible() {
					got = fmt.Sprintf("never: %d of %d", s.Available, s.Ceiling)
				}
				eq(w, "division", s.Division, c.division)
			} else if err != nil {
				got = err.Error()
			}
			eq(w, fmt.Sprintf("%v, shard %d", c.division, c.shard), got, c.want)
		}
	})
}

// What is gathered comes off as few shards as it can be, in one request, and is
// given back to those that gave it.
func TestGathering(t *testing.T) {
	everywhere(t, func(w *world) {
		l := w.limiter(Default("", divided(Quota("calls", 1000, "0 0 * * *"), quota.Pooled), PerMinute("rpm", 60)), Deterministic(func(int) int { return 0 }))
		w.split(l, 4, Amounts{"calls": 0})
		for shard := range 4 {
			w.amendShard(acme, shard)
		}
		w.since()
		lease := w.admit(l, acme, Amounts{"calls": 600, "rpm": 1})
		w.asks("take sk-live-acme 0", "read sk-live-acme 0", "raise sk-live-acme to 4", "use all 0 2 3")
		eq(w, "taken", fmt.Sprint(lease.Taken()), "map[calls:600 rpm:1]")
		eq(w, "left", fmt.Sprint(lease.Left()), "map[calls:50 rpm:14]")
		w.holds(acme, 0, "calls", "0", "170")
		w.holds(acme, 2, "calls", "0", "250")
		w.holds(acme, 3, "calls", "50", "180")
		w.noError(lease.Adjust(w.Context(), Amounts{"calls": -200}))
		w.holds(acme, 3, "calls", "230", "0")
		w.holds(acme, 2, "calls", "20", "230")
		w.noError(lease.Adjust(w.Context(), Amounts{"calls": 5, "rpm": 2}))
		w.holds(acme, 0, "calls", "-5", "175")
		w.noError(lease.Release(w.Context()))
		for shard, balance := range []string{"170", "180", "250", "230"} {
			w.holds(acme, shard, "calls", balance, "0")
		}
		eq(w, "sold", w.sold("calls"), "0 used, 830 held, 0 to grant, true")
	})
}

// amendShard makes a shard and leaves it 170, 180, 250 or 230 tokens.
func (w *world) amendShard(entity string, shard int) {
	w.Helper()
	l := w.limiter(Deterministic(func(n int) int { return shard % n }))
	w.admit(l, entity, Amounts{"calls": 0})
	w.admit(l, entity, Amounts{"calls": 0})
	b := w.bucket(entity, shard)
	_, err := w.Client.Amend(w.Context(), b.Key.PK(), table.StateSK, table.Amendment{Set: table.Item{
		table.Attr("calls", table.FieldBalance): table.N([]string{"170000", "180000", "250000", "230000"}[shard]),
		table.Attr("calls", table.FieldGrant):   table.N("4"),
	}})
	w.noError(err)
}

// A rejection of what is gathered speaks of all shards: what they have together,
// when they will have enough, and what they never will.
func TestARejectionOfAllShards(t *testing.T) {
	everywhere(t, func(w *world) {
		l := w.limiter(Default("", divided(PerMinute("tpm", 1200), quota.Pooled), PerMinute("rpm", 4)), ShardAttempts(3), Deterministic(func(int) int { return 0 }))
		w.split(l, 4, Amounts{"tpm": 600})
		w.now = w.now.Add(time.Minute)
		w.admit(l, acme, Amounts{"tpm": 1200})
		w.since()
		r := w.reject(l, acme, Amounts{"tpm": 400, "rpm": 1})
		s := r.Of("tpm")
		eq(w, "status", fmt.Sprint(s.Available, s.Ceiling, s.Capacity, s.RetryAfter.Round(10*time.Millisecond), s.Never), "0 1200 1200 20s false")
		if asked := w.since(); len(asked) != 3 || !strings.HasPrefix(asked[0], "take") {
			w.Errorf("asked more than one shard of what all do not have: %q", asked)
		}
		w.now = w.now.Add(s.RetryAfter - time.Millisecond)
		eq(w, "a millisecond before", w.reject(l, acme, Amounts{"tpm": 400}).Of("tpm").Available, 399)
		// What a shard can hold waits for one shard, as it does where all is divided.
		eq(w, "small", w.reject(l, acme, Amounts{"tpm": 300}).Of("tpm").Available, 100)
		w.now = w.now.Add(time.Millisecond)
		w.admit(l, acme, Amounts{"tpm": 400})
		r = w.reject(l, acme, Amounts{"tpm": 1201})
		eq(w, "more than there ever is", r.Impossible(), true)
		if want := "over limits of gpt-4: tpm: 1201 is more than all 4 shards can ever hold: 1200 now"; r.Error() != want {
			w.Errorf("%q, not %q", r.Error(), want)
		}
		// One that is divided beside it stays what it is.
		eq(w, "too much of rpm", w.reject(l, acme, Amounts{"tpm": 400, "rpm": 2}).Impossible(), true)
	})
}

// Who is out of tokens asks most: for a second nobody reads all shards again for
// more than they had. Less than that is still looked for, and one shard that has
// it all gives it in a plain use.
func TestShardsThatAreShortAreRemembered(t *testing.T) {
	everywhere(t, func(w *world) {
		l := w.limiter(Default("", divided(Quota("calls", 1000, "0 0 * * *"), quota.Pooled)), Deterministic(func(n int) int { return 1 % n }))
		w.split(l, 4, Amounts{"calls": 0})
		for shard := range 4 {
			w.amendShard(acme, shard)
		}
		w.admit(l, acme, Amounts{"calls": 800}) // leaves 30 on shard 0
		read := []string{"take sk-live-acme 1", "read sk-live-acme 0", "raise sk-live-acme to 4"}
		for _, c := range []struct {
			after  time.Duration
			amount int64
			want   string
			asks   []string
		}{
			{0, 31, "30 of 31, again in 11h59m59s", read},
			{0, 1001, "30 of 1001, never", read[:1]}, // more than there ever is
			{999 * time.Millisecond, 31, "30 of 31, again in 11h59m58.001s", read[:1]},
			{0, 7, "", append(read[:3:3], "use sk-live-acme 0")},
			{time.Millisecond, 31, "23 of 31, again in 11h59m58s", read},
		} {
			w.now = w.now.Add(c.after)
			w.since()
			if c.want == "" {
				w.admit(l, acme, Amounts{"calls": c.amount})
			} else {
				r := w.reject(l, acme, Amounts{"calls": c.amount})
				eq(w, "available", showStatus(r.Of("calls")), c.want)
				eq(w, "of all shards", r.Together, true)
			}
			w.asks(c.asks...)
		}
	})
}

func showStatus(s Status) string {
	text := fmt.Sprintf("%d of %d", s.Available, s.Requested)
	switch {
	case s.Never:
		return text + ", never"
	case s.Short():
		return fmt.Sprintf("%s, again in %v", text, s.RetryAfter)
	}
	return text
}

// A hundred programs gather while the shards double: exactly what was sold.
func TestExactlyWhatWasSoldIsGathered(t *testing.T) {
	everywhere(t, func(w *world) {
		limit := Default("", divided(Quota("calls", 1000, "0 0 * * *"), quota.Pooled))
		w.admit(w.limiter(limit), acme, Amounts{"calls": 0})
		var admitted atomic.Int64
		var group errgroup.Group
		for range 16 {
			l := w.limiter(limit)
			group.Go(func() error { return takeAll(w.Context(), l, 37, &admitted) })
		}
		for range 3 {
			w.double(acme)
		}
		w.noError(group.Wait())
		// What is left is less than one of them asks for.
		eq(w, "admitted", admitted.Load(), 1000/37*37)
		w.admit(w.limiter(limit), acme, Amounts{"calls": 1000 % 37})
		if sold := w.sold("calls"); sold != "1000 used, 0 held, 0 to grant, true" {
			w.Error(sold)
		}
	})
}

// takeAll takes until nothing is left.
func takeAll(ctx context.Context, l *program, amount int64, admitted *atomic.Int64) error {
	for {
		_, err := l.Acquire(ctx, acme, model, Amounts{"calls": amount})
		var rejection *Rejection
		switch {
		case errors.As(err, &rejection):
			return nil
		case errors.Is(err, ErrContended):
			continue
		case err != nil:
			return err
		}
		admitted.Add(amount)
	}
}

// A quota cannot be replicated, and one that says so is divided.
func TestAReplicatedQuota(t *testing.T) {
	everywhere(t, func(w *world) {
		wrong := divided(Quota("calls", 1000, "0 0 * * *"), quota.Replicated)
		_, err := Open(w.Context(), w.asked, NamespaceID("ns1"), Default("", wrong))
		if want := `limits of "": malformed limit "calls": a quota is not replicated: each shard would be granted the whole allowance`; err == nil || err.Error() != want {
			w.Errorf("%v, not %q", err, want)
		}
		draws := 0
		l := w.limiter(Default("", Quota("calls", 1000, "0 0 * * *")), Deterministic(func(n int) int { draws++; return draws % n }))
		w.admit(l, acme, Amounts{"calls": 0})
		_, err = w.Client.Amend(w.Context(), group(acme).At(0).PK(), table.StateSK, table.Amendment{Set: table.Item{"b_calls_div": table.S("replicated")}})
		w.noError(err)
		w.double(acme)
		for range 2 {
			w.admit(l, acme, Amounts{"calls": 0})
		}
		eq(w, "said", w.bucket(acme, 1).Limit("calls").Division, quota.Replicated)
		w.holds(acme, 1, "calls", "500", "0")
		r := w.reject(l, acme, Amounts{"calls": 1001})
		eq(w, "division", r.Of("calls").Division, quota.Divided)
		eq(w, "sold", w.sold("calls"), "0 used, 1000 held, 0 to grant, true")
	})
}

// A change of the division reaches the buckets there are, and their balances.
func TestADivisionIsChanged(t *testing.T) {
	everywhere(t, func(w *world) {
		l := w.limiter(Deterministic(func(int) int { return 0 }))
		set := func(division quota.Division) {
			w.noError(l.SetLimits(w.Context(), ForResource(model), divided(PerMinute("tpm", 1000), division)))
		}
		set(quota.Replicated)
		w.split(l, 4, Amounts{"tpm": 0})
		eq(w, "replicated", w.reject(l, acme, Amounts{"tpm": 1001}).Of("tpm").Ceiling, 1000)
		set(quota.Divided)
		if _, stored := w.bucket(acme, 0).Item["b_tpm_div"]; stored {
			w.Error("the default is stored")
		}
		eq(w, "divided", w.reject(l, acme, Amounts{"tpm": 1000}).Of("tpm").Ceiling, 250)
		w.admit(l, acme, Amounts{"tpm": 250})
		eq(w, "nothing is left", w.reject(l, acme, Amounts{"tpm": 1}).Of("tpm").Available, 0)
		set(quota.Pooled)
		limits, err := l.Limits(w.Context(), ForResource(model))
		w.noError(err)
		eq(w, "stored", limits[0].Division, quota.Pooled)
		w.admit(l, acme, Amounts{"tpm": 750})
		eq(w, "gathered", w.reject(l, acme, Amounts{"tpm": 251}).Of("tpm").Ceiling, 1000)
	})
}

// Stored limits that say a division they cannot have, or one of a later program,
// serve as divided, and the buckets say it on, where it is counted.
func TestAStoredDivisionThatIsNone(t *testing.T) {
	everywhere(t, func(w *world) {
		operator := w.limiter()
		w.noError(operator.SetLimits(w.Context(), ForResource(model), Quota("calls", 1000, "0 0 * * *"), PerMinute("rpm", 60)))
		_, err := w.Client.Amend(w.Context(), "ns1/RESOURCE#"+model, "#CONFIG", table.Amendment{
			Set: table.Item{"l_calls_div": table.S("replicated"), "l_rpm_div": table.S("braided")},
		})
		w.noError(err)
		l := w.limiter()
		limits, err := l.Limits(w.Context(), ForResource(model))
		w.noError(err)
		eq(w, "stored", fmt.Sprint(limits[0].Division, " ", limits[1].Division), "replicated braided")
		w.admit(l, acme, Amounts{"calls": 10, "rpm": 1})
		for _, name := range []string{"calls", "rpm"} {
			eq(w, name+" is misdivided", w.bucket(acme, 0).Limit(name).InvalidDivision(), true)
		}
		r := w.reject(l, acme, Amounts{"calls": 991, "rpm": 1})
		eq(w, "divisions", fmt.Sprint(r.Of("calls").Division, " ", r.Of("rpm").Division), "divided divided")
		eq(w, "sold", w.sold("calls"), "10 used, 990 held, 0 to grant, true")
		err = operator.SetLimits(w.Context(), ForResource(model), limits...)
		eq(w, "declared again", errors.Is(err, ErrLimit), true)
	})
}
