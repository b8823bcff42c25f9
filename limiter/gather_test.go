package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	. "github.com/shardquota/shardquota/limiter"
	. "github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// onShard draws a shard, as far as there is one.
func onShard(shard int) Option { return Deterministic(func(n int) int { return shard % n }) }

// gatheredCalls is a limiter that draws shard 0, of four shards with 170, 180, 250
// and 230 of a quota of 1,000.
func (w *world) gatheredCalls(more ...Limit) *program {
	w.Helper()
	limits := append(more, divided(Quota("calls", 1000, "0 0 * * *"), quota.Pooled))
	l := w.limiter(Default("", limits...), onShard(0))
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
		for _, division := range []quota.Division{quota.Divided, quota.Pooled} {
			entity := acme + division.String()
			l := w.limiter(Default("", divided(Quota("tokens", 1000, "0 0 * * *"), division), PerSecond("rps", 50)))
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
			w.since()
			w.reject(l, acme, Amounts{"calls": 800})
			w.asks("take sk-live-acme 0")
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
		l := w.limiter(Default("", divided(Session("s", 1000, 5*time.Hour), quota.Pooled)), onShard(0))
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

// What is hopeless is rejected without the shards that are missing. Others get what
// those are owed, at once.
func TestHopelessBesideAShardThatIsMissing(t *testing.T) {
	everywhere(t, func(w *world) {
		l := w.gatheredCalls()
		w.remove(acme, 3)
		w.now = w.now.Add(time.Second) // it is made by another request than before
		eq(w, "hopeless", showStatus(w.reject(l, acme, Amounts{"calls": 1001}).Of("calls")), "600 of 1001, never")
		w.admit(l, acme, Amounts{"calls": 850})
		eq(w, "sold", w.sold("calls"), "850 used, 0 held, 0 to grant, true")
	})
}

// readAfter is a table of which something happens once its shards were read.
type readAfter struct {
	table.Client
	then func()
}

func (r *readAfter) RaiseAndRead(ctx context.Context, group table.Group, count int, now int64) ([]table.Sibling, error) {
	family, err := r.Client.RaiseAndRead(ctx, group, count, now)
	if then := r.then; then != nil {
		r.then = nil
		then()
	}
	return family, err
}

// What a program gives back while it looks at the shards is not forgotten for what
// they had before.
func TestGivenBackWhileShardsAreRead(t *testing.T) {
	everywhere(t, func(w *world) {
		shards := &readAfter{Client: w.Client}
		w.Client = shards
		l := w.gatheredCalls()
		lease := w.admit(l, acme, Amounts{"calls": 800})
		shards.then = func() { w.noError(lease.Release(w.Context())) }
		eq(w, "before", showStatus(w.reject(l, acme, Amounts{"calls": 300}).Of("calls")), "30 of 300, again in 11h59m59s")
		w.admit(l, acme, Amounts{"calls": 300})
		w.reject(l, acme, Amounts{"calls": 531})
		w.since()
		w.reject(l, acme, Amounts{"calls": 532})
		w.asks("take sk-live-acme 0") // it is remembered what they had after

		lease = w.admit(l, acme, Amounts{"calls": 500})
		w.asked.fail = func(request string) error {
			if strings.HasPrefix(request, "settle") { // and is to be written yet
				w.mu.Unlock()
				defer w.mu.Lock()
				w.reject(l, acme, Amounts{"calls": 530})
			}
			return nil
		}
		w.noError(lease.Release(w.Context()))
		w.admit(l, acme, Amounts{"calls": 530})
	})
}

// What shards had by other terms says nothing of what they have by these: the
// answer is that of a program that remembers nothing.
func TestTermsThatChangeWithinASecond(t *testing.T) {
	daily := divided(Quota("calls", 1000, "0 0 * * *"), quota.Pooled)
	hourly := divided(PerHour("calls", 1000), quota.Pooled)
	doubled := daily
	doubled.Schedule = []quota.Entry{{Cron: "* 0 * * *", Scale: 2000}}
	inBerlin := daily
	inBerlin.Zone = "Europe/Berlin"
	more := doubled
	more.Schedule = []quota.Entry{{Cron: "* 0 * * *", Scale: 1200}}
	from13 := hourly
	from13.Schedule = []quota.Entry{{Cron: "* 13 * * *", Scale: 2000}}
	from12 := from13 // UTC
	from12.Zone = "Europe/Berlin"
	others := divided(PerDay("others", 1000), quota.Pooled)
	for _, c := range []struct {
		name     string
		from, to Limit
		ask      int64
		was, is  string
	}{
		{"the same", daily, daily, 300, "0 of 300, again in 11h59m59s", "0 of 300, again in 11h59m58.99s"},
		{"the calendar", daily, divided(Quota("calls", 1000, "0 * * * *"), quota.Pooled), 300, "0 of 300, again in 11h59m59s", "0 of 300, again in 59m58.99s"},
		{"its zone", daily, inBerlin, 300, "0 of 300, again in 11h59m59s", "0 of 300, again in 10h59m58.99s"},
		{"the capacity", daily, divided(Quota("calls", 2000, "0 0 * * *"), quota.Pooled), 1200, "0 of 1200, never", "0 of 1200, again in 11h59m58.99s"},
		{"a schedule", daily, doubled, 1500, "0 of 1500, never", "0 of 1500, again in 11h59m58.99s"},
		{"what it says", more, doubled, 1500, "0 of 1500, never", "0 of 1500, again in 11h59m58.99s"},
		{"its zone", from13, from12, 300, "0 of 300, again in 17m59.994s", "0 of 300, again in 8m59.991s"},
		{"the refill", hourly, divided(PerMinute("calls", 1000), quota.Pooled), 300, "0 of 300, again in 17m59.994s", "0 of 300, again in 18s"},
		{"the window", divided(Session("calls", 1000, 5*time.Hour), quota.Pooled), divided(Session("calls", 1000, time.Hour), quota.Pooled), 300, "0 of 300, again in 4h59m59.001s", "0 of 300, again in 59m58.991s"},
	} {
		w := newWorld(t)
		operator := w.other()
		w.noError(operator.SetLimits(w.Context(), ForResource(model), c.from, others))
		l := w.limiter(onShard(0))
		w.split(l, 4, Amounts{"calls": 0})
		for shard := range 4 {
			w.amendShard(acme, shard)
			w.empty(shard)
		}
		ask := Amounts{"calls": c.ask, "others": 1001} // these are looked at together by any terms
		eq(w, c.name+" before", showStatus(w.reject(l, acme, ask).Of("calls")), c.was)
		w.now = w.now.Add(10 * time.Millisecond)
		w.noError(operator.SetLimits(w.Context(), ForResource(model), c.to, others))
		eq(w, c.name, showStatus(w.reject(l, acme, ask).Of("calls")), c.is)
		eq(w, c.name+", seen anew", showStatus(w.reject(w.other(onShard(0)), acme, ask).Of("calls")), c.is)
	}
}

// Nor by another division: shards that each may hold the whole make up for a debt
// of one of them, which parts of it do not.
func TestADivisionThatChangesWithinASecond(t *testing.T) {
	w := newWorld(t)
	operator, others := w.other(), divided(PerDay("others", 1000), quota.Pooled)
	w.noError(operator.SetLimits(w.Context(), ForResource(model), divided(PerHour("calls", 1000), quota.Replicated), others))
	l := w.limiter(onShard(0))
	w.split(l, 4, Amounts{"calls": 0})
	for shard := range 4 {
		w.amendShard(acme, shard)
		w.empty(shard)
	}
	_, err := w.Client.Amend(w.Context(), group(acme).At(0).PK(), table.StateSK, table.Amendment{Set: table.Item{"b_calls_tk": table.N("-200000")}})
	w.noError(err)
	ask := Amounts{"calls": 900, "others": 1001}
	eq(w, "alone", showStatus(w.reject(l, acme, ask).Of("calls")), "-200 of 900, again in 4h23m59.994s")
	w.noError(operator.SetLimits(w.Context(), ForResource(model), divided(PerHour("calls", 1000), quota.Pooled), others))
	eq(w, "together", showStatus(w.reject(l, acme, ask).Of("calls")), "-200 of 900, again in 1h23m59.994s")
}

// empty has a shard hold nothing of the calls, as of now.
func (w *world) empty(shard int) {
	w.Helper()
	_, err := w.Client.Amend(w.Context(), group(acme).At(shard).PK(), table.StateSK, table.Amendment{Set: table.Item{
		"b_calls_tk": table.N("0"), table.AttrRefilledAt: table.N(fmt.Sprint(w.now.UnixMilli())),
	}})
	w.noError(err)
}

// Where the clock steps back, a second ago is not an hour ahead.
func TestShortWhereTheClockStepsBack(t *testing.T) {
	everywhere(t, func(w *world) {
		l := w.gatheredCalls()
		lease := w.admit(l, acme, Amounts{"calls": 800})
		w.reject(l, acme, Amounts{"calls": 190})
		w.now = w.now.Add(-time.Millisecond)
		w.since()
		w.reject(l, acme, Amounts{"calls": 190})
		w.asks("take sk-live-acme 0", "read sk-live-acme 0", "raise sk-live-acme to 4")
		w.reject(l, acme, Amounts{"calls": 190})
		w.asks("take sk-live-acme 0")
		w.noError(lease.Release(w.Context()))
	})
}

// Who is rejected again and again is rejected by the same answer: the shards are
// not planned with each time. Each that is drawn has an answer of its own.
func TestARejectionIsWorkedOutOnce(t *testing.T) {
	scheduled := divided(Quota("calls", 10_000, "0 0 1 * *"), quota.Pooled)
	scheduled.Schedule = []quota.Entry{{Cron: "*/2 * * * *", Scale: 500}}
	for name, c := range map[string]struct {
		limit Limit
		ask   int64
	}{
		"again":           {divided(Quota("calls", 10_000, "0 0 1 * *"), quota.Pooled), 500},
		"never":           {divided(Quota("calls", 10_000, "0 0 1 * *"), quota.Pooled), 20_000},
		"with a schedule": {scheduled, 500},
		"drips":           {divided(PerDay("calls", 10_000), quota.Pooled), 500},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			drawn := 0
			l := w.limiter(Default("", c.limit, PerMinute("rpm", 1_000)), Deterministic(func(n int) int { drawn++; return drawn % min(n, 32) }))
			w.split(l, 32, Amounts{"calls": 0})
			for range 3 * 32 {
				w.admit(l, acme, Amounts{"calls": 0})
			}
			for shard := range 32 {
				w.empty(shard)
			}
			next := c.ask
			other := func() { next++; w.reject(l, acme, Amounts{"calls": next, "rpm": 1}) }
			same := func() { w.reject(l, acme, Amounts{"calls": c.ask, "rpm": 1}) }
			for range 32 {
				same()
			}
			again := testing.AllocsPerRun(64, same)
			anew := testing.AllocsPerRun(64, other)
			t.Logf("%v allocations, of which worked out anew %v", again, anew)
			if anew < 5*again {
				t.Errorf("%v allocations, %v where it is another demand", again, anew)
			}
		})
	}
}

// The answer is another for another amount, for another balance of the shard and
// once what is short has dripped.
func TestAnAnswerIsOfOneDemand(t *testing.T) {
	everywhere(t, func(w *world) {
		l := w.limiter(Default("", divided(PerSecond("calls", 1000), quota.Pooled)), onShard(0))
		w.split(l, 4, Amounts{"calls": 0})
		for shard := range 4 {
			w.amendShard(acme, shard)
			w.empty(shard)
		}
		calls := func(amount int64) string { return showStatus(w.reject(l, acme, Amounts{"calls": amount}).Of("calls")) }
		eq(w, "400", calls(400), "1 of 400, again in 400ms")
		w.since()
		eq(w, "400 again", calls(400), "1 of 400, again in 400ms")
		eq(w, "300", calls(300), "1 of 300, again in 300ms")
		w.now = w.now.Add(299 * time.Millisecond)
		eq(w, "300 later", calls(300), "1 of 300, again in 1ms")
		w.asks("take sk-live-acme 0", "take sk-live-acme 0", "take sk-live-acme 0")
		_, err := w.Client.Amend(w.Context(), group(acme).At(0).PK(), table.StateSK, table.Amendment{Set: table.Item{"b_calls_tk": table.N("-100000")}})
		w.noError(err)
		eq(w, "with a debt", calls(300), "199 of 300, again in 101ms")
		w.now = w.now.Add(100 * time.Millisecond)
		eq(w, "before it is repaid", calls(300), "199 of 300, again in 1ms")
		w.now = w.now.Add(time.Millisecond)
		w.admit(l, acme, Amounts{"calls": 300})
	})
}

// What others gave back to another shard is seen a second later, what a doubling
// changed at once.
func TestAnAnswerIsOfWhatWasSeen(t *testing.T) {
	everywhere(t, func(w *world) {
		l := w.gatheredCalls()
		calls := func() string { return showStatus(w.reject(l, acme, Amounts{"calls": 900}).Of("calls")) }
		calls()
		eq(w, "seen", calls(), "830 of 900, again in 11h59m59s")
		w.empty(3)
		eq(w, "remembered", calls(), "830 of 900, again in 11h59m59s")
		w.now = w.now.Add(time.Second)
		calls()
		w.since()
		eq(w, "seen anew", calls(), "600 of 900, again in 11h59m58s")
		w.asks("take sk-live-acme 0")
		w.double(acme)
		calls()
		eq(w, "at the new count", slices.Contains(w.since(), "raise sk-live-acme to 8"), true)
	})
}

// Many ask at once, of a few amounts and for different shards, and each is told of
// what he asked for.
func TestManyAreRejectedAtOnce(t *testing.T) {
	w := newWorld(t)
	l := w.limiter(Default("", divided(Quota("calls", 1000, "0 0 * * *"), quota.Pooled)))
	w.split(l, 4, Amounts{"calls": 0})
	lease := w.admit(l, acme, Amounts{"calls": 1000})
	var programs sync.WaitGroup
	for program := range int64(8) {
		programs.Go(func() {
			for n := range int64(100) {
				ask := 1 + (program+n)%3
				_, err := l.Acquire(w.Context(), acme, model, Amounts{"calls": ask})
				r := new(Rejection)
				if !errors.As(err, &r) || r.Of("calls").Requested != ask || r.Of("calls").Available != 0 {
					t.Errorf("%d: %v", ask, err)
				}
				if program > 0 {
					continue
				}
				if err := lease.Adjust(w.Context(), Amounts{"calls": 0}); err != nil { // counts as given back
					t.Error(err)
				}
			}
		})
	}
	programs.Wait()
	w.noError(lease.Release(w.Context()))
	w.admit(l, acme, Amounts{"calls": 1000})
}
