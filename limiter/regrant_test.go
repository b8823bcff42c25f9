package limiter_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/shardquota/shardquota/internal/fixture"
	. "github.com/shardquota/shardquota/limiter"
	. "github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

type attrs = fixture.Attrs

// put puts a shard of acme's, last passed at noon.
func (w *world) put(shard int, more ...attrs) {
	w.Helper()
	fixture.Replace(w.T, w.Client, fixture.Bucket(group(acme).At(shard), more...))
}

// takeAll takes so many of q at once off shard after shard until none gives any
// more, and returns how many they gave.
func (w *world) takeAll(count int, amount int64) (admitted int64) {
	w.Helper()
	for shard := range count {
		l := w.limiter(Deterministic(func(of int) int { return shard % of }))
		_, _ = l.Acquire(w.Context(), acme, model, Amounts{"q": amount * 1000}) // too much, and learns of the count
		for {
			_, err := l.Acquire(w.Context(), acme, model, Amounts{"q": amount})
			var rejection *Rejection
			if errors.As(err, &rejection) {
				break
			}
			w.noError(err)
			admitted += amount
		}
	}
	return admitted
}

// grants are the grant counts of the shards that are there.
func (w *world) grants(count int) string {
	w.Helper()
	var grants []string
	for shard := range count {
		b, err := w.Client.Read(w.Context(), group(acme).At(shard))
		w.noError(err)
		if b != nil {
			grants = append(grants, fmt.Sprint(b.Limit("q").GrantCount(b.ShardCount, b.Limit("q").Base.Capacity)))
		}
	}
	return strings.Join(grants, " ")
}

var (
	monthly     = Quota("q", 1000, "0 0 15 * *")
	replicating = attrs{"b_q_div": string(quota.Replicated)}
)

// A limit that drips holds what was granted in no period. As a quota its shards
// have their part each, whatever they held and were granted before.
func TestADrippingLimitBecomesAQuota(t *testing.T) {
	const count = 32
	for _, to := range []Limit{monthly, divided(monthly, quota.Pooled), Session("q", 1000, 5*time.Hour)} {
		t.Run(fmt.Sprintf("%v, window %v", to.Division, to.Window), func(t *testing.T) {
			everywhere(t, func(w *world) {
				w.put(0, fixture.Count(count), fixture.Drips("q", 1_000_000, 1_000_000), replicating, attrs{"b_q_gc": 1, "b_q_tu": 70_000})
				for shard := 1; shard < count; shard++ {
					w.put(shard, fixture.Count(count), fixture.Drips("q", 1_000_000, 1_000_000), replicating)
				}
				w.noError(w.limiter().SetLimits(w.Context(), ForResource(model), to))
				eq(w, "grants", w.grants(count), strings.TrimSpace(strings.Repeat("32 ", count)))
				eq(w, "admitted", w.takeAll(count, 31), 992)
				eq(w, "sold", w.sold("q"), "992 used, 8 held, 0 to grant, true")
			})
		})
	}
}

// So have those of one that was doubled just now, of which shard 0 still holds
// what it held alone.
func TestADrippingLimitThatWasJustDoubledBecomesAQuota(t *testing.T) {
	everywhere(t, func(w *world) {
		w.put(0, fixture.Count(8), fixture.Drips("q", 1_000_000, 1_000_000))
		for shard := 1; shard < 8; shard++ {
			w.put(shard, fixture.Count(8), fixture.Drips("q", 125_000, 1_000_000))
		}
		w.noError(w.limiter().SetLimits(w.Context(), ForResource(model), monthly))
		eq(w, "admitted", w.takeAll(8, 25), 1000)
		eq(w, "sold", w.sold("q"), "1000 used, 0 held, 0 to grant, true")
	})
}

// What a dripping limit holds more than its part as a quota is not given to
// shards that are made before a pass has trimmed it.
func TestADrippingLimitBecomesAQuotaThatDoubles(t *testing.T) {
	everywhere(t, func(w *world) {
		for shard := range 4 {
			w.put(shard, fixture.Count(4), fixture.Drips("q", 1_000_000, 1_000_000), replicating)
		}
		w.noError(w.limiter().SetLimits(w.Context(), ForResource(model), monthly))
		w.double(acme)
		four := w.limiter(Deterministic(func(of int) int { return of / 2 }))
		for range 2 { // learns of the count, and makes shard 4
			_, _ = four.Acquire(w.Context(), acme, model, Amounts{"q": 1001})
		}
		w.holds(acme, 4, "q", "125", "0")
		w.holds(acme, 0, "q", "125", "0")
		w.holds(acme, 3, "q", "1000", "0") // until it is passed
		eq(w, "admitted", w.takeAll(8, 25), 1000)
		eq(w, "sold", w.sold("q"), "1000 used, 0 held, 0 to grant, true")
	})
}

// Of a quota that gets other periods a grant that was over by the old ones does
// not go on beside those that were given since. One that was not over goes on.
func TestAQuotaGetsOtherPeriods(t *testing.T) {
	yesterday := fixture.Refilled(fixture.Midnight - fixture.Hour)
	today := fixture.Daily("q", 500_000, 1_000_000, 2)
	window := func(grant int, balance, began int64) attrs {
		return fixture.Hourly("q", balance, 1_000_000, grant, fixture.Noon-began)
	}
	for _, c := range []struct {
		name   string
		to     Limit
		shards [][]attrs
		grants string
		want   int64 // admitted
	}{
		{"a grant of yesterday", monthly, [][]attrs{{fixture.Daily("q", 1_000_000, 1_000_000, 1), attrs{"b_q_tu": 50_000}, yesterday}, {today}}, "2 2", 1000},
		{"a grant of today", monthly, [][]attrs{{fixture.Daily("q", 300_000, 1_000_000, 1)}}, "1", 300},
		{"a grant that the new calendar ends", Quota("q", 1000, "0 11 * * *"), [][]attrs{{fixture.Daily("q", 1_000_000, 1_000_000, 1), yesterday}, {today}}, "2 2", 1000},
		{"a window that is over becomes a month", monthly, [][]attrs{{window(1, 1_000_000, 2*fixture.Hour)}, {window(2, 500_000, 1)}}, "2 2", 1000},
		{"a window that is not", monthly, [][]attrs{{window(1, 300_000, 1)}}, "1", 300},
		{"a window that is over is longer", Session("q", 1000, 5*time.Hour), [][]attrs{{window(1, 1_000_000, 2*fixture.Hour)}, {window(2, 500_000, 1)}}, "2 2", 1000},
		{"a window of long ago goes on", Session("q", 1000, 5*time.Hour), [][]attrs{
			{fixture.Daily("q", 1_000_000, 1_000_000, 1), yesterday, attrs{"b_q_ws": fixture.Noon - fixture.Hour, "b_q_wa": fixture.Noon - fixture.Hour}},
			{today, attrs{"b_q_ws": fixture.Noon - fixture.Hour, "b_q_wa": fixture.Noon - fixture.Hour}},
		}, "2 2", 1000},
		{"a calendar that could not be read", monthly, [][]attrs{{fixture.Daily("q", 300_000, 1_000_000, 1), attrs{"b_q_rsched": "?"}}}, "1", 300},
		{"another capacity alone", Quota("q", 1200, "0 0 * * *"), [][]attrs{{fixture.Daily("q", 1_000_000, 1_000_000, 1), yesterday}, {today}}, "2 2", 1000},
	} {
		t.Run(c.name, func(t *testing.T) {
			everywhere(t, func(w *world) {
				for shard, more := range c.shards {
					w.put(shard, append([]attrs{fixture.Count(2)}, more...)...)
				}
				w.noError(w.limiter().SetLimits(w.Context(), ForResource(model), c.to))
				eq(w, "grants", w.grants(2), c.grants)
				if _, added := w.bucket(acme, 0).Item[table.Attr("q", table.FieldTopUp)]; added {
					t.Error("what was added to a period that is over counts on")
				}
				eq(w, "admitted", w.takeAll(2, 50), c.want)
			})
		})
	}
}
