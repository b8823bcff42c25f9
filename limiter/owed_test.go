package limiter_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/shardquota/shardquota/internal/fixture"
	. "github.com/shardquota/shardquota/limiter"
	. "github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/table"
)

// Other terms take nothing that a customer had coming by the old ones, though no
// use has written it yet.
func TestOtherTermsTakeNothingThatIsOwed(t *testing.T) {
	berlin := Quota("calls", 1000, "0 0 * * *")
	berlin.Zone = "Europe/Berlin"
	for name, c := range map[string]struct {
		from, to Limit
		want     int64 // left, of which all was used the evening before
	}{
		"a longer calendar":     {Quota("calls", 1000, "0 0 * * *"), Quota("calls", 30_000, "0 0 1 * *"), 1000},
		"another zone":          {Quota("calls", 1000, "0 0 * * *"), berlin, 1000},
		"weekly":                {Quota("calls", 1000, "0 0 * * *"), Quota("calls", 900, "0 0 * * 1"), 900},
		"what drips is a quota": {PerMinute("calls", 60), Quota("calls", 100_000, "0 0 1 * *"), 60},
		"it drips more slowly":  {PerMinute("calls", 1000), PerDay("calls", 1000), 1000},
		"the same calendar":     {Quota("calls", 1000, "0 0 * * *"), Quota("calls", 2000, "0 0 * * *"), 1000}, // until its next period
	} {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(w *world) {
				w.now = time.Date(2026, 12, 1, 23, 30, 0, 0, time.UTC) // a Tuesday
				l := w.limiter()
				w.noError(l.SetLimits(w.Context(), ForResource(model), c.from))
				w.admit(l, acme, Amounts{"calls": c.from.Capacity})
				w.now = w.now.Add(12*time.Hour + 30*time.Minute)
				w.noError(l.SetLimits(w.Context(), ForResource(model), c.to))
				r := w.reject(l, acme, Amounts{"calls": c.want + 1})
				eq(w, "left", r.Of("calls").Available, c.want)
				w.admit(l, acme, Amounts{"calls": c.want})
			})
		})
	}
}

// Terms that were in force by mistake count for the time that they were: put right
// at once, they give nothing, however often.
func TestTermsThatArePutRightGiveNothing(t *testing.T) {
	monthly := Quota("calls", 1000, "0 0 1 * *")
	for name, c := range map[string]struct{ right, wrong Limit }{
		"a quota, dripping":       {monthly, PerMinute("calls", 1000)},
		"another calendar":        {monthly, Quota("calls", 1000, "0 0 * * *")},
		"one more day":            {monthly, Quota("calls", 1000, "0 0 1,2 * *")},
		"another window":          {Session("calls", 1000, 24*time.Hour), Session("calls", 1000, time.Hour)},
		"a window, dripping":      {Session("calls", 1000, 24*time.Hour), PerMinute("calls", 1000)},
		"what drips, faster":      {PerDay("calls", 1000), PerMinute("calls", 1000)},
		"a quota, dripping daily": {Quota("calls", 1000, "0 0 * * *"), PerDay("calls", 1000)},
	} {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(w *world) {
				w.now = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
				l := w.limiter()
				w.noError(l.SetLimits(w.Context(), ForResource(model), c.right))
				w.admit(l, acme, Amounts{"calls": 1000})
				w.now = w.now.Add(8 * time.Hour)
				most := int64(0)
				if c.right.Period != 0 {
					most = 334 // dripped by the right terms
				}
				for range 3 {
					w.noError(l.SetLimits(w.Context(), ForResource(model), c.wrong))
					w.now = w.now.Add(time.Millisecond)
					w.noError(l.SetLimits(w.Context(), ForResource(model), c.right))
					w.now = w.now.Add(time.Millisecond)
				}
				if left := w.reject(l, acme, Amounts{"calls": 1000}).Of("calls").Available; left > most {
					w.Errorf("%d are left, want at most %d", left, most)
				}
			})
		})
	}
}

// Shards without shard 0 are brought to one count before any is granted anew.
func TestALimitBecomesAQuotaWithoutShardZero(t *testing.T) {
	w := newWorld(t)
	w.put(1, fixture.Count(2), fixture.Drips("q", 500_000, 1_000_000))
	w.put(2, fixture.Count(4), fixture.Drips("q", 250_000, 1_000_000))
	w.put(3, fixture.Count(4), fixture.Drips("q", 250_000, 1_000_000))
	w.noError(w.limiter().SetLimits(w.Context(), ForResource(model), monthly))
	eq(w, "grants", w.grants(4), "4 4 4")
	eq(w, "admitted", w.takeAll(4, 25), 1000)
}

// unread makes a shard that nobody can read.
func (w *world) unread(shard int) {
	w.Helper()
	_, err := w.Client.Amend(w.Context(), group(acme).At(shard).PK(), table.StateSK, table.Amendment{Set: table.Item{"b_calls_tk": table.S("many")}})
	w.noError(err)
}

// Where shard 0 cannot be read the others get what holds all the same.
func TestOthersThanAnUnreadableShardZero(t *testing.T) {
	everywhere(t, func(w *world) {
		l := w.limiter(onShard(1))
		w.noError(l.SetLimits(w.Context(), ForResource(model), PerMinute("calls", 1000)))
		w.split(l, 2, Amounts{"calls": 0})
		w.admit(l, acme, Amounts{"calls": 0}) // of shard 1, which it knows of by now
		w.unread(0)
		if err := l.SetLimits(w.Context(), ForResource(model), PerMinute("calls", 10)); !errors.Is(err, ErrUnreadable) {
			w.Errorf("got %v", err)
		}
		eq(w, "the capacity of shard 1", w.bucket(acme, 1).Limit("calls").Base.Capacity, 10_000)
	})
}

// Access that is stored while another change is brought to a bucket that cannot be
// read is what the bucket has in the end.
func TestAccessOfAnUnreadableBucketIsTheLast(t *testing.T) {
	everywhere(t, func(w *world) {
		l := w.limiter()
		w.noError(l.SetLimits(w.Context(), ForResource(model), PerMinute("calls", 1000)))
		w.admit(l, acme, Amounts{"calls": 1})
		w.unread(0)
		has := func(access Access) {
			w.Helper()
			items, err := w.Client.Items(w.Context(), []table.ItemKey{{PK: group(acme).At(0).PK(), SK: table.StateSK}})
			w.noError(err)
			eq(w, "disabled", items[0].Flag(table.AttrDisabled), access == Disabled)
			eq(w, "bypassed", items[0][table.AttrBypass] != nil, access == Bypass)
		}
		for _, access := range []Access{Disabled, Bypass, Enabled} {
			w.meanwhile(1, "read sk-live-acme 0", func() {
				if err := w.other().SetAccess(w.Context(), ForEntity(acme), access); err == nil || !strings.Contains(err.Error(), "malformed item") {
					w.Errorf("set access: %v", err)
				}
			})
			if err := l.SetLimits(w.Context(), ForResource(model), PerMinute("calls", 900+int64(access))); !errors.Is(err, ErrUnreadable) {
				w.Errorf("set limits: %v", err)
			}
			has(access)
		}
	})
}
