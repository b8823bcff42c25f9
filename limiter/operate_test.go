package limiter_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/shardquota/shardquota/limiter"
	. "github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// everyKind are limits of every kind there is, sorted by name.
func everyKind() []Limit {
	scheduled := PerMinute("tpm", 90_000)
	scheduled.Schedule = []quota.Entry{{Cron: "* 9-17 * * 1-5", Scale: 500}, {Cron: "* 0-5 * * *", Capacity: 10, Refill: 5, Period: 30}}
	scheduled.Zone = "Europe/Berlin"
	monthly := Quota("calls.month-x", 1_000_000, "0 0 1 * *", "30 12 15 * *")
	monthly.Zone = "Europe/Berlin"
	soft := PerSecond("soft", 3)
	soft.Soft = true
	return []Limit{
		monthly, {Name: "rpm", Capacity: 100, Refill: 60, Period: time.Minute},
		Session("session", 50, 5*time.Hour), soft, scheduled,
	}
}

// A zone that changes alone reaches live buckets: from a level, and from a program.
func TestAZoneThatChangesAlone(t *testing.T) {
	inZone := func(zone string) []Limit {
		daily, scheduled := Quota("calls", 10, "0 0 * * *"), PerMinute("rpm", 60)
		scheduled.Schedule = []quota.Entry{{Cron: "* 0-5 * * *", Scale: 500}}
		daily.Zone, scheduled.Zone = zone, zone
		return []Limit{daily, scheduled}
	}
	next := time.Date(2026, 12, 2, 8, 0, 0, 0, time.UTC).UnixMilli() // midnight there
	zoneIs := func(w *world, zone string, next int64) {
		w.Helper()
		b := w.bucket(acme, 0)
		at, _ := b.Limit("calls").Resets.Next(w.now.UnixMilli())
		eq(w, "zone of the quota", b.Limit("calls").Resets.Zone(), zone)
		eq(w, "zone of the schedule", b.Limit("rpm").Schedule.Zone(), zone)
		eq(w, "the next reset", at, next)
	}
	t.Run("of a level", func(t *testing.T) {
		w := newWorld(t)
		l := w.limiter()
		w.noError(l.SetLimits(t.Context(), ForResource(model), inZone("")...))
		w.admit(l, acme, Amounts{"calls": 1, "rpm": 1})
		zoneIs(w, "UTC", noon.Add(12*time.Hour).UnixMilli())
		w.noError(l.SetLimits(t.Context(), ForResource(model), inZone("America/Los_Angeles")...))
		zoneIs(w, "America/Los_Angeles", next)
	})
	t.Run("of a program", func(t *testing.T) {
		w := newWorld(t)
		w.admit(w.limiter(Default(model, inZone("")...)), acme, Amounts{"calls": 1, "rpm": 1})
		same := w.limiter(Default(model, inZone("UTC")...))
		w.admit(same, acme, Amounts{"calls": 1})
		w.asks("take sk-live-acme 0")
		w.admit(w.limiter(Default(model, inZone("America/Los_Angeles")...)), acme, Amounts{"calls": 1})
		zoneIs(w, "America/Los_Angeles", next)
		w.holds(acme, 0, "calls", "7", "3")
	})
}

// Limits come back as they were stored, from each level.
func TestLimitsAreStored(t *testing.T) {
	everywhere(t, func(w *world) {
		l := w.limiter()
		for _, level := range []Level{ForAll(), ForResource(model), ForEntity(acme), For(acme, model)} {
			w.noError(l.SetLimits(w.Context(), level, everyKind()...))
			got, err := l.Limits(w.Context(), level)
			w.noError(err)
			if want := everyKind(); !reflect.DeepEqual(got, want) {
				w.Errorf("%v:\n got %+v\nwant %+v", level, got, want)
			}
			w.noError(l.DeleteLimits(w.Context(), level))
			got, err = l.Limits(w.Context(), level)
			w.noError(err)
			eq(w, "left", len(got), 0)
		}
	})
}

// The first level that defines anything decides, and the program's own limits
// where none does.
func TestTheFirstLevelDecides(t *testing.T) {
	everywhere(t, func(w *world) {
		l := w.limiter(Default("", PerMinute("rpm", 1)), CacheFor(0))
		capacity := func() int64 {
			w.admit(l, acme, Amounts{"rpm": 0})
			return w.bucket(acme, 0).Limit("rpm").Base.Capacity / 1000
		}
		eq(w, "the program's", capacity(), 1)
		levels := []Level{ForAll(), ForResource(model), ForEntity(acme), For(acme, model)}
		for i, level := range levels {
			w.noError(l.SetLimits(w.Context(), level, PerMinute("rpm", int64(10*(i+1)))))
			eq(w, fmt.Sprint("set on level ", i), capacity(), int64(10*(i+1)))
		}
		eq(w, "expires", w.bucket(acme, 0).Item[table.AttrTTL] != nil, false)
		for i := len(levels) - 1; i > 0; i-- {
			w.noError(l.DeleteLimits(w.Context(), levels[i]))
			eq(w, fmt.Sprint("deleted from level ", i), capacity(), int64(10*i))
		}
		eq(w, "expires", w.bucket(acme, 0).Item[table.AttrTTL] != nil, true)
	})
}

// A change reaches every shard, each of which looks at its terms before it gives
// again.
func TestAChangeReachesLiveBuckets(t *testing.T) {
	everywhere(t, func(w *world) {
		l := w.limiter(ShardAttempts(32))
		w.noError(l.SetLimits(w.Context(), ForResource(model), PerMinute("rpm", 100), Quota("calls", 1000, "0 0 * * *")))
		w.admit(l, acme, Amounts{"rpm": 10, "calls": 10})
		w.double(acme)
		for w.bucketOrNil(acme, 1) == nil {
			w.admit(l, acme, Amounts{"calls": 1})
		}
		// rpm gets smaller, calls goes, and a limit comes.
		w.noError(l.SetLimits(w.Context(), ForResource(model), PerMinute("rpm", 20), Quota("images", 7, "0 0 * * *")))
		for shard := range 2 {
			b := w.bucket(acme, shard)
			eq(w, "valid until", *b.ValidUntil, 0)
			eq(w, "calls", b.Limit("calls") == nil, true)
			eq(w, "images", table.Tokens(b.Limit("images").Balance), "3.5")
			eq(w, "granted", *b.Limit("images").Grant, 2)
		}
		got := w.reject(l, acme, Amounts{"rpm": 11})
		eq(w, "ceiling", got.Limits[0].Ceiling, 10)
		w.admit(l, acme, Amounts{"rpm": 10})
		w.admit(l, acme, Amounts{"rpm": 10})
		w.reject(l, acme, Amounts{"rpm": 1})
		if _, err := l.Acquire(t.Context(), acme, model, Amounts{"calls": 1}); !errors.Is(err, ErrUndefined) {
			t.Errorf("a limit that is gone: %v", err)
		}
		w.since()
		w.noError(l.SetLimits(w.Context(), ForResource(model), PerMinute("rpm", 20), Quota("images", 7, "0 0 * * *")))
		for _, request := range w.since() {
			if strings.HasPrefix(request, "amend") {
				t.Error("the same limits are written again")
			}
		}
	})
}

func TestAccess(t *testing.T) {
	everywhere(t, func(w *world) {
		l := w.limiter(Default("", PerMinute("rpm", 10)), CacheFor(0))
		w.admit(l, acme, Amounts{"rpm": 4})
		disabled := func(entity string) bool {
			lease, err := l.Acquire(w.Context(), entity, model, Amounts{"rpm": 1})
			if err == nil {
				w.noError(lease.Release(w.Context()))
			} else if !errors.Is(err, ErrDisabled) {
				w.Fatal(err)
			}
			return err != nil
		}
		w.noError(l.SetAccess(w.Context(), ForResource(model), Disabled))
		eq(w, "the resource", disabled(acme), true)
		eq(w, "one without a bucket", disabled("sk-live-new"), true)
		w.noError(l.SetAccess(w.Context(), ForEntity(acme), Enabled))
		eq(w, "the entity", disabled(acme), false)
		eq(w, "another", disabled("sk-live-new"), true)
		w.noError(l.SetAccess(w.Context(), ForEntity(acme), Inherit))
		eq(w, "the entity again", disabled(acme), true)
		w.noError(l.SetAccess(w.Context(), ForResource(model), Inherit))
		eq(w, "neither", disabled(acme), false)
		w.holds(acme, 0, "rpm", "6", "4")

		w.noError(l.SetAccess(w.Context(), For(acme, model), Bypass))
		lease := w.admit(l, acme, Amounts{"rpm": 100}) // metered, not enforced
		w.holds(acme, 0, "rpm", "6", "104")
		w.noError(lease.Adjust(w.Context(), Amounts{"rpm": -90}))
		w.holds(acme, 0, "rpm", "6", "14")
		w.now = noon.Add(time.Hour) // the stamp has run out, and is renewed
		w.admit(l, acme, Amounts{"rpm": 100})
		w.noError(l.SetAccess(w.Context(), For(acme, model), Inherit))
		w.reject(l, acme, Amounts{"rpm": 100})

		if err := l.SetAccess(w.Context(), ForAll(), Disabled); !errors.Is(err, ErrName) {
			w.Error(err)
		}
		if err := l.SetAccess(w.Context(), ForEntity(acme), Access(9)); err == nil {
			w.Error("access 9 is set")
		}
	})
}

// Programs that declare different limits of a resource leave each other's alone:
// a quota that went and came again would be granted anew.
func TestTwoProgramsOfOneResource(t *testing.T) {
	everywhere(t, func(w *world) {
		admitted := 0
		for range 6 { // each time new ones, as in a deployment that rolls
			one := w.limiter(Default("", Quota("tokens", 10, "0 0 1 * *")))
			two := w.limiter(Default("", PerMinute("requests", 1000)))
			for range 4 {
				if _, err := one.Acquire(w.Context(), acme, model, Amounts{"tokens": 1}); err == nil {
					admitted++
				}
				w.admit(two, acme, Amounts{"requests": 1})
			}
		}
		eq(w, "admitted", admitted, 10)
		eq(w, "resets", w.bucket(acme, 0).Limit("requests").Resets.Empty(), true)
	})
}

// What is stored is looked up where a bucket lacks a limit, and kept for as long
// as the program says.
func TestStoredLimitsAreKeptForAWhile(t *testing.T) {
	w := newWorld(t)
	l := w.limiter(Default("", PerMinute("rpm", 10)), CacheFor(time.Minute))
	w.admit(l, acme, Amounts{"rpm": 1})
	looks := func() bool {
		w.since()
		if _, err := l.Acquire(t.Context(), acme, model, Amounts{"tpm": 1}); !errors.Is(err, ErrUndefined) {
			t.Errorf("got %v", err)
		}
		return slices.Contains(w.since(), "items 4")
	}
	w.now = noon.Add(2 * time.Minute)
	eq(w, "later", looks(), true)
	w.now = w.now.Add(time.Minute - time.Millisecond)
	eq(w, "within the minute", looks(), false)
	w.now = w.now.Add(time.Millisecond)
	eq(w, "after it", looks(), true)
}

// What is disabled is said to be, also where it has no limits.
func TestDisabledWithoutLimits(t *testing.T) {
	w := newWorld(t)
	l := w.limiter()
	if _, err := l.Acquire(t.Context(), acme, model, Amounts{"rpm": 1}); !errors.Is(err, ErrUndefined) {
		t.Errorf("without limits: %v", err)
	}
	w.noError(l.SetAccess(t.Context(), ForResource(model), Disabled))
	if _, err := l.Acquire(t.Context(), acme, model, Amounts{"rpm": 1}); !errors.Is(err, ErrDisabled) {
		t.Errorf("disabled: %v", err)
	}
}

// A soft limit meters and never rejects, also when its stamp has to be renewed.
func TestSoft(t *testing.T) {
	w := newWorld(t)
	l := w.limiter()
	soft := PerMinute("tpm", 10)
	soft.Soft = true
	w.noError(l.SetLimits(t.Context(), ForAll(), soft, PerMinute("rpm", 100)))
	w.admit(l, acme, Amounts{"tpm": 25, "rpm": 1})
	w.holds(acme, 0, "tpm", "-15", "25")
	w.now = noon.Add(3 * time.Minute)
	w.admit(l, acme, Amounts{"tpm": 25, "rpm": 1})
	w.noError(l.SetLimits(t.Context(), ForAll(), PerMinute("tpm", 10), PerMinute("rpm", 100)))
	w.reject(l, acme, Amounts{"tpm": 25, "rpm": 1})
}

// A bypassed use opens, joins and rolls no session window, and grants no quota anew:
// neither on a bucket that has expired, nor by creating a shard.
func TestBypassedUseLeavesWindows(t *testing.T) {
	everywhere(t, func(w *world) {
		l := w.limiter(CacheFor(0), Deterministic(func(n int) int { return n - 1 }))
		w.noError(l.SetLimits(t.Context(), ForResource(model), Session("chat", 100, time.Hour), Quota("calls", 100, "0 0 * * *")))
		w.admit(l, acme, Amounts{"chat": 30, "calls": 30})
		opened := *w.bucket(acme, 0).Limit("chat").Window.Start
		w.now = w.now.Add(24 * time.Hour)
		w.noError(l.SetAccess(t.Context(), ForResource(model), Bypass))
		w.admit(l, acme, Amounts{"chat": 500, "calls": 500})
		w.double(acme)
		zero := w.limiter(CacheFor(0), Deterministic(func(int) int { return 0 }))
		w.admit(zero, acme, Amounts{"chat": 1})
		one := w.limiter(CacheFor(0), Deterministic(func(n int) int { return n - 1 }))
		w.admit(one, acme, Amounts{"chat": 0}) // learns the count
		w.admit(one, acme, Amounts{"chat": 500, "calls": 500})
		for shard, balance := range []string{"70", "0"} {
			w.holds(acme, shard, "chat", balance, []string{"531", "500"}[shard])
			eq(w, "window since", *w.bucket(acme, shard).Limit("chat").Window.Start, opened)
		}
		// The next use that is no longer bypassed opens a window, of 50 on each shard.
		w.noError(l.SetAccess(t.Context(), ForResource(model), Inherit))
		w.admit(one, acme, Amounts{"chat": 50})
		w.reject(one, acme, Amounts{"chat": 1})
		w.admit(zero, acme, Amounts{"chat": 50})
		w.reject(zero, acme, Amounts{"chat": 1})
	})
}

// A soft stamp that is a plain true has run out. It is renewed where the levels say so.
func TestSoftWithoutATime(t *testing.T) {
	everywhere(t, func(w *world) {
		l := w.limiter(Default("", PerMinute("rpm", 5)), CacheFor(0))
		w.admit(l, acme, Amounts{"rpm": 5})
		plain := table.Amendment{Set: table.Item{table.Attr("rpm", table.FieldSoft): table.Bool(true)}}
		_, err := w.Amend(t.Context(), group(acme).At(0).PK(), table.StateSK, plain)
		w.noError(err)
		w.reject(l, acme, Amounts{"rpm": 1})
		soft := PerMinute("rpm", 5)
		soft.Soft = true
		w.noError(l.SetLimits(t.Context(), ForAll(), soft))
		_, err = w.Amend(t.Context(), group(acme).At(0).PK(), table.StateSK, plain)
		w.noError(err)
		w.admit(l, acme, Amounts{"rpm": 1})
		eq(w, "soft until", w.bucket(acme, 0).Limit("rpm").Soft, w.now.Add(time.Minute).UnixMilli())
	})
}

// A new version of a program brings its limits to the buckets that it meets.
func TestANewVersionBringsItsLimits(t *testing.T) {
	w := newWorld(t)
	old := w.limiter(Default("", PerMinute("rpm", 10)))
	w.admit(old, acme, Amounts{"rpm": 1})
	w.double(acme)
	w.admit(old, acme, Amounts{"rpm": 0})
	next := w.limiter(Default("", PerMinute("rpm", 50), Quota("calls", 100, "0 0 * * *")), Deterministic(func(int) int { return 0 }))
	w.admit(next, acme, Amounts{"rpm": 1}) // by the old ones, and then
	eq(w, "capacity", w.bucket(acme, 0).Limit("rpm").Base.Capacity, 50_000)
	w.admit(next, acme, Amounts{"rpm": 1, "calls": 1})
	w.since()
	w.admit(next, acme, Amounts{"calls": 1})
	w.asks("take sk-live-acme 0")

	// A limit that was never there is brought by the first use of it, too.
	third := w.limiter(Default("", PerMinute("rpm", 50), Quota("calls", 100, "0 0 * * *"), PerHour("images", 5)))
	w.admit(third, acme, Amounts{"images": 1})

	// What is stored goes before what is in a program.
	w.noError(next.SetLimits(t.Context(), ForAll(), PerMinute("rpm", 7)))
	w.admit(w.limiter(Default("", PerMinute("rpm", 50))), acme, Amounts{"rpm": 1})
	eq(w, "capacity", w.bucket(acme, 0).Limit("rpm").Base.Capacity, 7_000)
}

func TestBadLimits(t *testing.T) {
	w := newWorld(t)
	l := w.limiter()
	scheduled := func(cron string) Limit {
		limit := PerMinute("x", 1)
		limit.Schedule = []quota.Entry{{Cron: cron, Scale: 500}}
		return limit
	}
	tokyo := Quota("y", 1, "0 0 * * *")
	tokyo.Zone = "Asia/Tokyo"
	dripping := Quota("x", 1, "0 0 * * *")
	dripping.Schedule = []quota.Entry{{Cron: "* 1 * * *", Refill: 5}}
	for says, limits := range map[string][]Limit{
		"in a schedule neither":       {dripping},
		"none is given":               {},
		"a name is a letter":          {PerMinute("1x", 1)},
		"reserved":                    {PerMinute("wcu", 1)},
		"could not count it":          {PerMinute("ttl", 1)},
		"the capacity 0":              {PerMinute("x", 0)},
		"the refill -1":               {{Name: "x", Capacity: 1, Refill: -1, Period: time.Second}},
		"neither a Refill":            {{Name: "x", Capacity: 1}},
		"has no Refill":               {{Name: "x", Capacity: 1, Refill: 1, Period: time.Second, Window: time.Hour}},
		"not both":                    {{Name: "x", Capacity: 1, Resets: []string{"0 0 * * *"}, Window: time.Hour}},
		"the period 1.5s":             {{Name: "x", Capacity: 1, Refill: 1, Period: 1500 * time.Millisecond}},
		"the window 500ms":            {Session("x", 1, 500*time.Millisecond)},
		"declared twice":              {PerMinute("x", 1), PerHour("x", 2)},
		"61":                          {Quota("x", 1, "61 0 * * *")},
		"\"Mars/Olympus\" is unknown": {{Name: "x", Capacity: 1, Resets: []string{"0 0 * * *"}, Zone: "Mars/Olympus"}},
		"a bucket has one zone":       {Quota("x", 1, "0 0 * * *"), tokyo},
		"more than 50":                {{Name: "x", Capacity: 1, Resets: make([]string, 51)}},
		"schedule entry 0":            {scheduled("* * * *")},
		"is not within 1 and 1000000000000000 tokens": {PerMinute("x", 1_000_000_000_000_001)},
	} {
		err := l.SetLimits(t.Context(), ForAll(), limits...)
		if !errors.Is(err, ErrLimit) || !strings.Contains(fmt.Sprint(err), says) {
			t.Errorf("%s: got %v", says, err)
		}
		if _, err := Open(t.Context(), w.asked, NamespaceID("n"), Default("", limits...)); !errors.Is(err, ErrLimit) {
			t.Errorf("%s, in a program: got %v", says, err)
		}
	}
	for _, level := range []Level{
		ForResource("gpt#4"), ForEntity("a/b"), For(acme, "9"),
		ForResource(""), ForEntity(""), For("", model), For(acme, ""), For("", ""), {}, // never a wider one
	} {
		if err := l.SetLimits(t.Context(), level, PerMinute("x", 1)); !errors.Is(err, ErrName) || strings.Contains(fmt.Sprint(err), acme) {
			t.Errorf("level %v: %v", level, err)
		}
	}
}

// Configuration that cannot be read costs a clear error where it is needed, and
// nothing where it is not.
func TestConfigurationThatCannotBeRead(t *testing.T) {
	w := newWorld(t)
	l := w.limiter()
	w.noError(l.SetLimits(t.Context(), ForAll(), Quota("calls", 10, "0 0 * * *")))
	w.admit(l, acme, Amounts{"calls": 1})
	_, err := w.Client.Amend(t.Context(), "ns1/SYSTEM#", "#CONFIG", table.Amendment{Set: table.Item{"l_calls_rsched": table.S("7nonsense")}})
	w.noError(err)
	w.admit(l, acme, Amounts{"calls": 1})
	if _, err := l.Acquire(t.Context(), "sk-live-new", model, Amounts{"calls": 1}); !errors.Is(err, ErrLimit) || !strings.Contains(err.Error(), "calls") {
		t.Errorf("got %v", err)
	}
	if _, err := l.Limits(t.Context(), ForAll()); !errors.Is(err, ErrLimit) {
		t.Errorf("got %v", err)
	}
}

func TestEntities(t *testing.T) {
	everywhere(t, func(w *world) {
		l := w.limiter()
		e := Entity{ID: acme, Name: "Acme Inc.", Parent: team, Cascade: true}
		w.noError(l.CreateEntity(w.Context(), e))
		got, ok, err := l.Entity(w.Context(), acme)
		w.noError(err)
		eq(w, "entity", fmt.Sprint(got, ok), fmt.Sprint(e, true))
		_, ok, err = l.Entity(w.Context(), team)
		w.noError(err)
		eq(w, "one that was never created", ok, false)
		if err := l.CreateEntity(w.Context(), e); !errors.Is(err, ErrExists) {
			w.Error(err)
		}
		for _, bad := range []Entity{{ID: "#"}, {ID: "a", Parent: "#"}, {ID: "a", Parent: "a"}, {ID: "a", Cascade: true}} {
			if err := l.CreateEntity(w.Context(), bad); !errors.Is(err, ErrName) {
				w.Errorf("%v: %v", bad, err)
			}
		}
	})
}

// An entity that is created after it was used brings its parent to its buckets.
func TestAnEntityCreatedLate(t *testing.T) {
	w := newWorld(t)
	l := w.limiter(Default("", PerMinute("rpm", 10)))
	w.admit(l, acme, Amounts{"rpm": 1})
	w.noError(l.CreateEntity(t.Context(), Entity{ID: acme, Parent: team, Cascade: true}))
	w.admit(l, acme, Amounts{"rpm": 1})
	w.holds(team, 0, "rpm", "9", "1")
}

// Programs that name the same namespace share it.
func TestNamespaces(t *testing.T) {
	everywhere(t, func(w *world) {
		limits := Default("", Quota("calls", 10, "0 0 * * *"))
		open := func(options ...any) *program {
			l, err := newProgram(w.Context(), w.asked, append(options, limits)...)
			w.noError(err)
			return l
		}
		w.admit(open(), acme, Amounts{"calls": 6})
		w.reject(open(Namespace("default")), acme, Amounts{"calls": 5})
		w.admit(open(Namespace("other")), acme, Amounts{"calls": 5})
		if _, err := Open(w.Context(), w.asked, Namespace("#")); !errors.Is(err, ErrName) {
			w.Error(err)
		}
	})
}
