package interop

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/shardquota/shardquota/limiter"
	"github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/quota"
)

// Every kind of limit that both know, some of them together: a bucket has one
// zone.
var (
	zoned = []limits.Limit{
		{Name: "calls.day-1", Capacity: 9_000, Resets: []string{"0 0 * * *", "0 12 1 * *"}, Zone: "America/New_York"},
		{Name: "rpm", Capacity: 600, Refill: 300, Period: time.Minute, Zone: "America/New_York", Schedule: []quota.Entry{
			{Cron: "* 9-16 * * 1-5", Scale: 500},
			{Cron: "*/15 22 * 6-8 *", Capacity: 50, Refill: 10, Period: 30},
			{Cron: "* * 25 12 *", Refill: 7},
		}},
		{Name: "session", Capacity: 40, Window: 5 * time.Hour},
		{Name: "tokens_in", Capacity: 1_000_000_000_000_000, Refill: 1, Period: 1_000_000_000 * time.Second, Soft: true},
	}
	utc = []limits.Limit{
		{Name: "calls", Capacity: 1, Resets: []string{"0 0 1 1 *"}, Zone: "UTC", Soft: true, Schedule: []quota.Entry{{Cron: "* * * * 6,7", Scale: 2000}}},
		{Name: "w", Capacity: 7, Window: time.Second, Soft: true, Zone: "UTC", Schedule: []quota.Entry{{Cron: "* 1 * * *", Capacity: 3}}},
	}
	plain = []limits.Limit{limits.PerSecond("burst", 10), limits.PerDay("rpd", 1_000_000)}
)

// TestLimits: what one stores on a level the other reads, replaces and deletes.
func TestLimits(t *testing.T) {
	for _, theirsFirst := range []bool{true, false} {
		w := newWorld(t, theirsFirst)
		for _, level := range []struct{ entity, resource string }{{}, {"", "models/gpt-4.1"}, {"user:1@acme.example", ""}, {"acme", "gpt-4"}} {
			t.Run(fmt.Sprintf("theirsFirst=%v/%v", theirsFirst, level), func(t *testing.T) {
				l := levelLimits{w, levelOf(level.entity, level.resource), args{"entity": level.entity, "resource": level.resource}}
				for _, set := range [][]limits.Limit{zoned, utc, plain} {
					l.oursWrites(t, set)
					l.theyWrite(t, set)
				}
				l.theyWrite(t, zoned) // and the other order: each replaces the other's whole
				l.oursWrites(t, utc)
				l.bothDelete(t)
			})
		}
	}
}

func levelOf(entity, resource string) limits.Level {
	switch {
	case entity != "" && resource != "":
		return limits.For(entity, resource)
	case entity != "":
		return limits.ForEntity(entity)
	case resource != "":
		return limits.ForResource(resource)
	}
	return limits.ForAll()
}

// levelLimits are the limits of one level.
type levelLimits struct {
	*world
	level limits.Level
	at    args
}

func (l levelLimits) with(name string, value any) args {
	a := args{name: value}
	for name, value := range l.at {
		a[name] = value
	}
	return a
}

func (l levelLimits) oursWrites(t *testing.T, set []limits.Limit) {
	t.Helper()
	must(t, l.ours.SetLimits(t.Context(), l.level, set...))
	l.bothRead(t, "of ours", set)
}

func (l levelLimits) theyWrite(t *testing.T, set []limits.Limit) {
	t.Helper()
	l.theirs.do("set_limits", l.with("limits", wires(set)))
	l.bothRead(t, "of theirs", set)
}

func (l levelLimits) bothRead(t *testing.T, whose string, want []limits.Limit) {
	t.Helper()
	ours, err := l.ours.Limits(t.Context(), l.level)
	must(t, err)
	if got := wires(ours); !reflect.DeepEqual(got, wires(want)) {
		t.Errorf("%s, read by ours:\n got %+v\nwant %+v", whose, got, wires(want))
	}
	if got := ask[[]wire](l.theirs, "get_limits", l.at); !reflect.DeepEqual(got, wires(want)) {
		t.Errorf("%s, read by theirs:\n got %+v\nwant %+v", whose, got, wires(want))
	}
}

// bothDelete: each deletes what the other stored, and the registries follow.
func (l levelLimits) bothDelete(t *testing.T) {
	t.Helper()
	for _, deletion := range []func(){
		func() { l.theirs.do("delete_limits", l.at) },
		func() { must(t, l.ours.DeleteLimits(t.Context(), l.level)) },
	} {
		l.listed(t, true)
		deletion()
		l.bothRead(t, "of nobody", nil)
		l.listed(t, false)
		l.theyWrite(t, plain)
		l.oursWrites(t, plain)
	}
	l.theirs.do("delete_limits", l.at)
}

// listed: whether theirs finds the level's resource in the registry that both
// keep up.
func (l levelLimits) listed(t *testing.T, want bool) {
	t.Helper()
	found := ask[struct{ Defaults, Entities, Namespaces []string }](l.theirs, "listed", nil)
	name, list := l.at["resource"].(string), found.Defaults
	if l.at["entity"] != "" {
		if list = found.Entities; name == "" {
			name = "_default_"
		}
	} else if name == "" {
		return
	}
	eq(t, fmt.Sprintf("%q is listed", name), slices.Contains(list, name), want)
}

// TestAccess: a level that one disables or bypasses is so for the other, on
// buckets that stand and as it is stored.
func TestAccess(t *testing.T) {
	w := newWorld(t, true)
	for _, level := range []struct{ entity, resource string }{{"", resource}, {"acme", ""}, {"acme", resource}} {
		w.set("acme", limits.Quota("calls", 10, farEdge(w)))
		at := args{"entity": level.entity, "resource": level.resource}
		for _, access := range []limits.Access{limits.Disabled, limits.Bypass, limits.Enabled, limits.Inherit} {
			for who, set := range map[string]func(){
				"ours": func() { must(t, w.ours.SetAccess(t.Context(), levelOf(level.entity, level.resource), access)) },
				"theirs": func() {
					w.theirs.do("set_access", args{"entity": level.entity, "resource": level.resource, "access": accessWords[access]})
				},
			} {
				set()
				what := fmt.Sprintf("%v is %s by %s", level, accessWords[access], who)
				eq(t, what+": stored", ask[string](w.theirs, "access", at), accessWords[access])
				w.checkAccess(what, access)
			}
		}
		w.theirs.do("set_access", args{"entity": level.entity, "resource": level.resource, "access": "inherit"})
	}
}

// checkAccess: what both say to a use that the limits would admit, and to one
// that they would not.
func (w *world) checkAccess(what string, access limits.Access) {
	w.Helper()
	for calls, wants := range map[int64]bool{0: access != limits.Disabled, 1_000: access == limits.Bypass} {
		_, err := w.ours.Acquire(w.Context(), "acme", resource, limiter.Amounts{"calls": calls})
		var rejection *limiter.Rejection
		if refused := errors.As(err, &rejection) || errors.Is(err, limiter.ErrDisabled); refused == wants || !refused && err != nil {
			w.Errorf("%s: ours, %d calls: %v", what, calls, err)
		}
		if calls > 0 { // theirs asks for something at least
			eq(w, fmt.Sprintf("%s: theirs admits %d calls", what, calls), theyUse(w.theirs, "acme", limiter.Amounts{"calls": calls}, -1), wants)
		}
	}
}

// farEdge is the cron of a daily reset that is hours away.
func farEdge(t testing.TB) string {
	t.Helper()
	return fmt.Sprintf("0 %d * * *", (time.Now().UTC().Hour()+12)%24)
}

// TestEntities: an entity that one creates the other reads, and its parent is
// charged by both.
func TestEntities(t *testing.T) {
	w := newWorld(t, false)
	must(t, w.ours.CreateEntity(t.Context(), limits.Entity{ID: "acme"}))
	w.theirs.do("create_entity", args{"entity": "globex", "name": "Globex Inc."})
	must(t, w.ours.CreateEntity(t.Context(), limits.Entity{ID: "acme-web", Name: "web", Parent: "globex", Cascade: true}))
	w.theirs.do("create_entity", args{"entity": "acme-batch", "parent": "acme", "cascade": true})
	want := map[string]limits.Entity{
		"acme":       {ID: "acme", Name: "acme"},
		"globex":     {ID: "globex", Name: "Globex Inc."},
		"acme-web":   {ID: "acme-web", Name: "web", Parent: "globex", Cascade: true},
		"acme-batch": {ID: "acme-batch", Name: "acme-batch", Parent: "acme", Cascade: true},
	}
	for id, entity := range want {
		got, ok, err := w.ours.Entity(t.Context(), id)
		eq(t, "read by ours: "+id, fmt.Sprint(got, ok, err), fmt.Sprint(entity, true, nil))
		theirs := ask[struct {
			Name, Parent string
			Cascade      bool
		}](w.theirs, "entity", args{"entity": id})
		eq(t, "read by theirs: "+id, limits.Entity{ID: id, Name: theirs.Name, Parent: theirs.Parent, Cascade: theirs.Cascade}, entity)
	}
	eq(t, "children", fmt.Sprint(ask[[]string](w.theirs, "children", args{"parent": "globex"})), "[acme-web]")
	eq(t, "ours again", fmt.Sprint(w.ours.CreateEntity(t.Context(), limits.Entity{ID: "globex"})), limits.ErrExists.Error())
	err := w.theirs.try("create_entity", args{"entity": "acme-web"}, nil)
	var refused *raised
	eq(t, "theirs again", errors.As(err, &refused) && refused.class == "EntityExistsError", true)

	for id := range want {
		w.set(id, limits.Quota("calls", 100, farEdge(t)))
	}
	for _, child := range []string{"acme-web", "acme-batch"} {
		use(t, w.ours, child, limiter.Amounts{"calls": 3})
		eq(t, "theirs", theyUse(w.theirs, child, limiter.Amounts{"calls": 5}, -1), true)
		eq(t, "theirs beyond the parent's", theyUse(w.theirs, child, limiter.Amounts{"calls": 1_000}, -1), false)
	}
	for _, id := range []string{"acme", "globex", "acme-web", "acme-batch"} {
		b := w.bucket(id, 0)
		eq(t, id+" consumed", b.Limit("calls").Consumed, 8_000)
		eq(t, id+" holds", b.Limit("calls").Balance, 92_000)
	}
	w.theirs.do("move", args{"entity": "acme-web", "parent": "acme"})
	use(t, w.ours, "acme-web", limiter.Amounts{"calls": 1})
	eq(t, "the new parent", w.bucket("acme", 0).Limit("calls").Consumed, 9_000)
	eq(t, "the old parent", w.bucket("globex", 0).Limit("calls").Consumed, 8_000)
}
