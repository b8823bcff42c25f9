package limiter_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	. "github.com/shardquota/shardquota/limiter"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// onShard draws a shard, as far as there is one.
func onShard(shard int) Option { return Repeatable(func(n int) int { return shard % n }) }

// gatheredCalls is a limiter that draws shard 0, of four shards with 170, 180, 250
// and 230 of a quota of 1,000.
func (w *world) gatheredCalls(more ...Limit) *Limiter {
	w.Helper()
	limits := append(more, divided(Quota("calls", 1000, "0 0 * * *"), quota.Gathered))
	l := w.limiter(Limits("", limits...), onShard(0))
	w.split(l, 4, Amounts{"calls": 0})
	for shard := range 4 {
		w.amendShard(acme, shard)
	}
	return l
}

// Debts count: who settles more than was asked for gets no further with gathering
// than without, and nothing is asked of shards that owe all that others have.
func TestDebtsAreGatheredToo(t *testing.T) {
	everywhere(t, func(w *world) {
		for _, division := range []quota.Division{quota.Divided, quota.Gathered} {
			entity := acme + division.String()
			l := w.limiter(Limits("", divided(Quota("tokens", 1000, "0 0 * * *"), division), PerSecond("rps", 50)))
			w.admit(l, entity, Amounts{"tokens": 0, "rps": 0})
			w.double(entity)
			w.double(entity)
			w.now = w.now.Add(24 * time.Hour)
			used, refused := int64(0), 0
			for range 100 {
				w.now = w.now.Add(time.Second)
				lease, err := l.Acquire(w.Context(), entity, model, Amounts{"tokens": 0, "rps": 1})
				if r := new(Rejection); errors.As(err, &r) {
					refused++
					continue
				}
				w.noError(err)
				w.noError(lease.Adjust(w.Context(), Amounts{"tokens": 300}))
				used += 300
			}
			if used < 900 || used > 1200 || refused < 90 { // each shard gives once more than it has
				w.Errorf("%v: %d used of 1000, %d refused", division, used, refused)
			}
		}
	})
}

// A use of nothing is one of a shard that is not in debt, if all together are not.
func TestNothingIsGathered(t *testing.T) {
	everywhere(t, func(w *world) {
		l := w.gatheredCalls()
		w.noError(w.admit(l, acme, Amounts{"calls": 170}).Adjust(w.Context(), Amounts{"calls": 660}))
		lease := w.admit(l, acme, Amounts{"calls": 0})
		eq(w, "shard 2, the richest, gave it", w.bucket(acme, 2).Limit("calls").Balance, 250_000)
		w.noError(lease.Adjust(w.Context(), Amounts{"calls": 1}))
		w.holds(acme, 2, "calls", "249", "1")
		eq(w, "all owe a token", showStatus(w.reject(l, acme, Amounts{"calls": 0}).Of("calls")), "-1 of 0, again in 11h59m59s")
	})
}

// Where another limit is short too, what is gathered is judged by all shards
// nevertheless: it is not called impossible.
func TestShortOfSomethingElse(t *testing.T) {
	everywhere(t, func(w *world) {
		l := w.gatheredCalls(PerSecond("rps", 4))
		ask := Amounts{"calls": 400, "rps": 1}
		for admitted := true; admitted; { // shard 0 has more than its part from when it was alone
			_, err := l.Acquire(w.Context(), acme, model, Amounts{"rps": 1})
			admitted = err == nil
		}
		w.since()
		r := w.reject(l, acme, ask)
		eq(w, "calls", showStatus(r.Of("calls")), "830 of 400")
		eq(w, "rps", showStatus(r.Of("rps")), "0 of 1, again in 1s")
		w.asks("take sk-live-acme 0", "read sk-live-acme 0", "raise sk-live-acme to 4")
		w.reject(l, acme, ask)
		w.asks("take sk-live-acme 0")
		wait, ok := r.RetryAfter()
		eq(w, "can be tried again", ok, true)
		w.now = w.now.Add(wait)
		w.admit(l, acme, ask)
	})
}

// What was remembered ends with the period, and with what is given back.
func TestShortUntil(t *testing.T) {
	everywhere(t, func(w *world) {
		l := w.gatheredCalls()
		lease := w.admit(l, acme, Amounts{"calls": 800})
		w.reject(l, acme, Amounts{"calls": 190})
		w.noError(lease.Adjust(w.Context(), Amounts{"calls": -400}))
		w.admit(l, acme, Amounts{"calls": 430})
		w.now = w.now.Truncate(24 * time.Hour).Add(24*time.Hour - time.Millisecond)
		eq(w, "before midnight", showStatus(w.reject(l, acme, Amounts{"calls": 300}).Of("calls")), "0 of 300, again in 1ms")
		w.now = w.now.Add(time.Millisecond)
		w.admit(l, acme, Amounts{"calls": 1000})
	})
}

// Never is what all shards of the count can never hold; one that gives nothing for
// now is looked at again.
func TestAShardThatIsLeftOut(t *testing.T) {
	for name, change := range map[string]table.Amendment{
		"bypassed":   {Set: table.Item{table.AttrBypass: table.N("9999999999999")}},
		"disabled":   {Set: table.Item{table.AttrDisabled: &types.AttributeValueMemberBOOL{Value: true}}},
		"without it": {Remove: []string{"b_calls_tk", "b_calls_cp"}},
		"unreadable": {Set: table.Item{"b_calls_tk": table.S("many")}},
	} {
		everywhere(t, func(w *world) {
			l := w.gatheredCalls()
			_, err := w.Client.Amend(w.Context(), group(acme).At(3).PK(), table.StateSK, change)
			w.noError(err)
			eq(w, name, showStatus(w.reject(l, acme, Amounts{"calls": 800}).Of("calls")), "600 of 800, again in 1s")
			eq(w, name, showStatus(w.reject(l, acme, Amounts{"calls": 700}).Of("calls")), "600 of 700, again in 11h59m59s")
			eq(w, name, showStatus(w.reject(l, acme, Amounts{"calls": 1001}).Of("calls")), "600 of 1001, never")
			w.admit(l, acme, Amounts{"calls": 600})
		})
	}
}

// Beside a shard that cannot be read none can be made: those that are there give.
func TestAMissingShardBesideOneThatCannotBeRead(t *testing.T) {
	everywhere(t, func(w *world) {
		l := w.gatheredCalls()
		w.remove(acme, 3)
		_, err := w.Client.Amend(w.Context(), group(acme).At(2).PK(), table.StateSK, table.Amendment{Set: table.Item{"b_calls_tk": table.S("many")}})
		w.noError(err)
		eq(w, "short", showStatus(w.reject(l, acme, Amounts{"calls": 351}).Of("calls")), "350 of 351, again in 11h59m59s")
		w.admit(l, acme, Amounts{"calls": 350})
	})
}

// A session window is opened for a use that is then admitted, on all shards; one
// that was not told of it is told before its tokens are called missing.
func TestWindowsOfWhatIsGathered(t *testing.T) {
	everywhere(t, func(w *world) {
		l := w.limiter(Limits("", divided(Session("s", 1000, 5*time.Hour), quota.Gathered)), onShard(0))
		w.split(l, 4, Amounts{"s": 10})
		for shard := range 4 {
			other := w.limiter(onShard(shard))
			w.admit(other, acme, Amounts{"s": 0})
			w.admit(other, acme, Amounts{"s": 0})
		}
		w.now = w.now.Add(6 * time.Hour)
		before := *w.bucket(acme, 0).Limit("s").Window.Start
		r := w.reject(l, acme, Amounts{"s": 1001})
		eq(w, "more than there ever is", showStatus(r.Of("s")), "1000 of 1001, never")
		eq(w, "the window", *w.bucket(acme, 0).Limit("s").Window.Start, before)

		w.asked.fail = func(request string) error {
			if request == "tell sk-live-acme 2" {
				return fmt.Errorf("%w: lost", table.ErrRetry)
			}
			return nil
		}
		w.admit(l, acme, Amounts{"s": 10})
		w.asked.fail = nil
		w.admit(l, acme, Amounts{"s": 900})
		start := *w.bucket(acme, 0).Limit("s").Window.Start
		eq(w, "opened now", start >= w.now.UnixMilli(), true)
		for shard := range 4 {
			eq(w, "started on all", *w.bucket(acme, shard).Limit("s").Window.Start, start)
		}
		eq(w, "sold", w.sold("s"), "930 used, 90 held, 0 to grant, true")
		w.reject(l, acme, Amounts{"s": 91})
	})
}

// Access that is set between the look at one shard and that at all of them holds.
func TestAccessThatChangesWhileShardsAreRead(t *testing.T) {
	for access, want := range map[Access]error{Disabled: ErrDisabled, Bypass: nil} {
		everywhere(t, func(w *world) {
			l := w.gatheredCalls()
			operator := w.other()
			w.meanwhile(1, "raise sk-live-acme to 4", func() {
				w.noError(operator.SetAccess(w.Context(), ForResource(model), access))
			})
			_, err := l.Acquire(w.Context(), acme, model, Amounts{"calls": 600})
			eq(w, fmt.Sprint("access ", access), errors.Is(err, want), true)
			w.holds(acme, 2, "calls", "250", "0")
		})
	}
}
