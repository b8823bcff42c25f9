package limiter_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	. "github.com/shardquota/shardquota/limiter"
	. "github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// allLevels are one level of each kind and some more, in order.
var allLevels = []Level{
	ForAll(), ForResource("claude"), ForResource(model),
	ForEntity("a"), For("a", "claude"), For("a", model), ForEntity("b"), For("c", model),
}

// Levels are found again, however they were stored, in order and with what they
// say; those that say nothing any more are not.
func TestLevels(t *testing.T) {
	everywhere(t, func(w *world) {
		l := w.limiter()
		expect := func(want ...Level) {
			w.Helper()
			stored, err := l.Levels(w.Context())
			w.noError(err)
			var got []Level
			for _, s := range stored {
				got = append(got, s.At)
			}
			if !slices.Equal(got, want) {
				w.Errorf("got %v, want %v", got, want)
			}
		}
		expect()
		for i, level := range slices.Backward(allLevels) {
			switch {
			case i%2 == 0:
				w.noError(l.SetLimits(w.Context(), level, PerMinute("rpm", int64(i+1))))
			case i == 3:
				w.noError(l.SetAccess(w.Context(), level, Bypass))
			default:
				w.noError(l.Replace(w.Context(), w.stored(l, level), Rules{Limits: []Limit{PerMinute("rpm", int64(i+1))}}))
			}
		}
		other := w.limiter(NamespaceID("ns2"))
		w.noError(other.SetLimits(w.Context(), ForResource("elsewhere"), PerMinute("rpm", 1)))
		expect(allLevels...)
		stored, err := l.Levels(w.Context())
		w.noError(err)
		for i, s := range stored {
			if i == 3 && s.Access != Bypass || i != 3 && (len(s.Limits) != 1 || s.Limits[0].Capacity != int64(i+1)) {
				w.Errorf("%v says %+v", s.At, s.Rules)
			}
		}
		w.noError(l.DeleteLimits(w.Context(), ForResource("claude")))
		w.noError(l.Replace(w.Context(), w.stored(l, For("a", model)), Rules{}))
		w.noError(l.Replace(w.Context(), w.stored(l, ForAll()), Rules{}))
		expect(allLevels[2], allLevels[3], allLevels[4], allLevels[6], allLevels[7])
	})
}

func (w *world) stored(l *program, level Level) Stored {
	w.Helper()
	stored, err := l.Stored(w.Context(), level)
	w.noError(err)
	return stored[0]
}

// Replace leaves the same as the other operations do, but for the version.
func TestReplaceIsAsTheOthers(t *testing.T) {
	everywhere(t, func(w *world) {
		other := newWorld(t)
		one, two := w.limiter(), other.limiter()
		for _, level := range allLevels {
			rules := Rules{Limits: everyKind()}
			w.noError(two.SetLimits(t.Context(), level, rules.Limits...))
			if level != ForAll() {
				rules.Access = Disabled
				w.noError(two.SetAccess(t.Context(), level, Disabled))
			}
			w.noError(one.Replace(w.Context(), w.stored(one, level), rules))
			if got := w.stored(one, level); !got.Rules.Equal(rules) || got.Pending || got.Invalid != nil {
				w.Errorf("%v: stored %+v", level, got)
			}
		}
		keys := []table.ItemKey{
			{PK: "ns1/SYSTEM#", SK: "#RESOURCES"}, {PK: "ns1/SYSTEM#", SK: "#ENTITY_CONFIG_RESOURCES"},
			{PK: "ns1/SYSTEM#", SK: "#CONFIG"}, {PK: "ns1/RESOURCE#claude", SK: "#CONFIG"},
			{PK: "ns1/ENTITY#a", SK: "#CONFIG#_default_"}, {PK: "ns1/ENTITY#a", SK: "#CONFIG#claude"},
		}
		same := func(what string) {
			w.Helper()
			got, err := w.Client.Items(w.Context(), keys)
			w.noError(err)
			want, err := other.Client.Items(t.Context(), keys)
			w.noError(err)
			for i := range keys {
				delete(got[i], "config_version")
				delete(want[i], "config_version")
				if got[i] == nil != (want[i] == nil) || got[i] != nil && !table.Equal(got[i], want[i]) {
					w.Errorf("%s: %v is\n%v, not\n%v", what, keys[i], got[i], want[i])
				}
			}
		}
		same("stored")
		for _, level := range allLevels {
			w.noError(two.DeleteLimits(t.Context(), level))
			if level != ForAll() {
				w.noError(two.SetAccess(t.Context(), level, Inherit))
			}
			w.noError(one.Replace(w.Context(), w.stored(one, level), Rules{}))
		}
		same("removed")
	})
}

// Replace is brought to live buckets, cascade among it.
func TestReplaceReachesLiveBuckets(t *testing.T) {
	everywhere(t, func(w *world) {
		l := w.limiter(Default("", PerMinute("rpm", 10)), CacheFor(0))
		w.noError(l.CreateEntity(w.Context(), Entity{ID: acme, Parent: team, Cascade: true}))
		w.admit(l, acme, Amounts{"rpm": 1})
		w.holds(team, 0, "rpm", "9", "1")
		w.noError(l.Replace(w.Context(), w.stored(l, For(acme, model)), Rules{Cascade: new(false), Limits: []Limit{PerMinute("rpm", 50)}}))
		eq(w, "capacity", w.bucket(acme, 0).Limit("rpm").Base.Capacity, 50_000)
		w.admit(l, acme, Amounts{"rpm": 1})
		w.holds(team, 0, "rpm", "9", "1")
		w.noError(l.Replace(w.Context(), w.stored(l, For(acme, model)), Rules{Cascade: new(true)}))
		w.admit(l, acme, Amounts{"rpm": 1})
		w.holds(team, 0, "rpm", "8", "2")
	})
}

// What a level cannot say, or has come to say meanwhile, is not replaced.
func TestReplaceRefuses(t *testing.T) {
	w := newWorld(t)
	l := w.limiter()
	for _, test := range []struct {
		level Level
		rules Rules
		want  error
	}{
		{ForAll(), Rules{Access: Disabled}, ErrName},
		{ForAll(), Rules{Cascade: new(true)}, ErrName},
		{ForResource(model), Rules{Limits: []Limit{PerMinute("rpm", 0)}}, ErrLimit},
		{ForResource(model), Rules{Access: 9}, nil},
	} {
		err := l.Replace(t.Context(), w.stored(l, test.level), test.rules)
		if err == nil || test.want != nil && !errors.Is(err, test.want) {
			t.Errorf("%+v: got %v", test.rules, err)
		}
	}
	if err := l.Replace(t.Context(), Stored{}, Rules{}); !errors.Is(err, ErrName) {
		t.Errorf("of no level: %v", err)
	}
	if _, err := l.Stored(t.Context(), For("a/b", model)); !errors.Is(err, ErrName) {
		t.Errorf("of no entity: %v", err)
	}
	read := w.stored(l, ForEntity(acme))
	w.noError(l.SetAccess(t.Context(), ForEntity(acme), Disabled))
	w.since()
	if err := l.Replace(t.Context(), read, Rules{Access: Enabled}); !errors.Is(err, ErrStale) || fmt.Sprint(err) != "store limits: stored otherwise meanwhile" {
		t.Errorf("got %v", err)
	}
	w.asks("items 1")
}

// Normal limits are as they come back.
func TestNormal(t *testing.T) {
	limit := Quota("b", 5, "0 0 1 JAN SUN")
	got, err := Normal(limit, PerMinute("a", 1))
	w := newWorld(t)
	w.noError(err)
	want := Quota("b", 5, "0 0 1 1 7")
	want.Zone = "UTC"
	if !reflect.DeepEqual(got, []Limit{PerMinute("a", 1), want}) {
		t.Errorf("got %+v", got)
	}
	again, err := Normal(got...)
	w.noError(err)
	if !reflect.DeepEqual(again, got) {
		t.Errorf("twice: %+v", again)
	}
	if _, err := Normal(Limit{Name: "x", Capacity: 5, Window: 1e9, Schedule: []quota.Entry{{Cron: "* * * * *"}}}); !errors.Is(err, ErrLimit) {
		t.Errorf("got %v", err)
	}
}
