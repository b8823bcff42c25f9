package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	. "github.com/shardquota/shardquota/limiter"
	. "github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/table"
)

// between is a table in which something is done once before an operation.
type between struct {
	table.Client
	insert, amend, remove func()
	register              func() // amend, of the list of resources
}

// between has something done between an operator's reading and writing.
func (w *world) between() *between {
	b := &between{Client: w.Client}
	w.Client = b
	return b
}

// once calls a function that is not nil, and makes it nil before.
func once(do *func()) {
	if f := *do; f != nil {
		*do = nil
		f()
	}
}

func (b *between) Amend(ctx context.Context, pk, sk string, amendment table.Amendment) (table.WriteResult, error) {
	if sk == "#RESOURCES" {
		once(&b.register)
	} else {
		once(&b.amend)
	}
	return b.Client.Amend(ctx, pk, sk, amendment)
}

func (b *between) Insert(ctx context.Context, item table.Item) (bool, error) {
	once(&b.insert)
	return b.Client.Insert(ctx, item)
}

func (b *between) Remove(ctx context.Context, pk, sk string, expect ...table.NamedValue) (bool, error) {
	once(&b.remove)
	return b.Client.Remove(ctx, pk, sk, expect...)
}

// listed are the levels that are found.
func (w *world) listed(l *program) (at []Level) {
	w.Helper()
	stored, err := l.Levels(w.Context())
	w.noError(err)
	for _, s := range stored {
		at = append(at, s.At)
	}
	return at
}

func (w *world) lists(l *program, want ...Level) {
	w.Helper()
	if got := w.listed(l); !slices.Equal(got, want) {
		w.Errorf("listed %v, want %v", got, want)
	}
}

// says checks what a level says, and that no change of it is pending.
func (w *world) says(l *program, level Level, want Rules) {
	w.Helper()
	if got := w.stored(l, level); !reflect.DeepEqual(got.Rules, want) || got.Pending {
		w.Errorf("stored %+v, pending %v; want %+v", got.Rules, got.Pending, want)
	}
}

// What one operator stores while another takes the level away is not taken away
// with it: each of the two comes first or last, whole.
func TestStoredWhileALevelGoes(t *testing.T) {
	level, seven := For(acme, model), PerMinute("rpm", 7)
	replace := func(w *world, l *program, read Stored) error { return l.Replace(w.Context(), read, Rules{}) }
	drop := func(w *world, l *program, _ Stored) error { return l.DeleteLimits(w.Context(), level) }
	set := func(w *world, l *program) error { return l.SetLimits(w.Context(), level, seven) }
	disable := func(w *world, l *program) error { return l.SetAccess(w.Context(), level, Disabled) }
	for name, test := range map[string]struct {
		remove    func(*world, *program, Stored) error
		meanwhile func(*world, *program) error
		want      Rules
	}{
		"replaced by nothing, limits":  {replace, set, Rules{Limits: []Limit{seven}}},
		"replaced by nothing, access":  {replace, disable, Rules{Access: Disabled}},
		"its limits deleted, access":   {drop, disable, Rules{Access: Disabled}},
		"its limits deleted, limits":   {drop, set, Rules{Limits: []Limit{seven}}}, // which come after the deletion was stored
		"its limits deleted, the same": {drop, func(w *world, l *program) error { return drop(w, l, Stored{}) }, Rules{}},
	} {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(w *world) {
				l := w.limiter(Default("", PerMinute("rpm", 10)))
				w.admit(l, acme, Amounts{"rpm": 1})
				w.noError(l.SetLimits(w.Context(), level, PerMinute("rpm", 60)))
				read := w.stored(l, level)
				w.between().remove = func() { w.noError(test.meanwhile(w, l)) }
				w.noError(test.remove(w, l, read))
				w.says(l, level, test.want)
				eq(w, "disabled", w.bucket(acme, 0).Disabled, test.want.Access == Disabled)
				if test.want.Empty() {
					w.lists(l)
				} else {
					w.lists(l, level)
				}
			})
		})
	}
}

// A level that is stored between the check and the write of a Replace is left as it
// is, also where the two change different things.
func TestStoredWhileALevelIsReplaced(t *testing.T) {
	everywhere(t, func(w *world) {
		l, level := w.limiter(), ForResource(model)
		rpm, tpm := PerMinute("rpm", 60), PerMinute("tpm", 5)
		w.noError(l.SetLimits(w.Context(), level, rpm))
		read := w.stored(l, level)
		w.between().amend = func() { w.noError(l.SetLimits(w.Context(), level, rpm, tpm)) }
		if err := l.Replace(w.Context(), read, Rules{Limits: []Limit{PerMinute("rpm", 90)}}); !errors.Is(err, ErrStale) {
			w.Errorf("got %v", err)
		}
		w.says(l, level, Rules{Limits: []Limit{rpm, tpm}})
	})
}

// Two deletions of one level at once count it off once: the other levels of the
// resource are still found.
func TestALevelIsCountedOffOnce(t *testing.T) {
	everywhere(t, func(w *world) {
		l := w.limiter()
		for _, entity := range []string{"a", "b"} {
			w.noError(l.SetLimits(w.Context(), For(entity, model), PerMinute("rpm", 60)))
		}
		w.between().remove = func() { w.noError(l.DeleteLimits(w.Context(), For("a", model))) }
		w.noError(l.DeleteLimits(w.Context(), For("a", model)))
		w.lists(l, For("b", model))
	})
}

// Wherever storing a level is cut short, doing it again and taking it away again
// leaves the others of the resource found.
func TestALevelThatIsCutShortHidesNoOther(t *testing.T) {
	for cut := 1; cut <= 3; cut++ {
		everywhere(t, func(w *world) {
			l, vip := w.limiter(), For("vip", model)
			w.noError(l.SetLimits(w.Context(), For("other", model), PerMinute("rpm", 60)))
			for _, request := range []string{"items 1", "insert", "amend"} {
				left := cut
				w.fail = func(asked string) error {
					if asked != request {
						return nil
					}
					if left--; left == 0 {
						return fmt.Errorf("%w: too much", table.ErrThrottled)
					}
					return nil
				}
				_ = l.SetLimits(w.Context(), vip, PerMinute("rpm", 6000))
				w.fail = nil
				w.noError(l.SetLimits(w.Context(), vip, PerMinute("rpm", 6000)))
				w.lists(l, For("other", model), vip)
				w.noError(l.DeleteLimits(w.Context(), vip))
				w.lists(l, For("other", model))
			}
		})
	}
}

// A resource whose level goes and comes at once is found: its name is on the list
// once for both. Here it is made anew before its name is taken off.
func TestAResourceThatGoesAndComes(t *testing.T) {
	everywhere(t, func(w *world) {
		l, level := w.limiter(), ForResource(model)
		w.noError(l.SetLimits(w.Context(), level, PerMinute("rpm", 60)))
		w.between().register = func() { w.noError(l.SetLimits(w.Context(), level, PerMinute("rpm", 7))) }
		w.noError(l.DeleteLimits(w.Context(), level))
		w.says(l, level, Rules{Limits: []Limit{PerMinute("rpm", 7)}})
		w.lists(l, level)
	})
}

// And here its name is still there when it is about to be made anew, and taken off
// just before it is.
func TestAResourceThatComesAndGoes(t *testing.T) {
	everywhere(t, func(w *world) {
		l, level := w.limiter(), ForResource(model)
		w.noError(l.SetLimits(w.Context(), level, PerMinute("rpm", 60)))
		b, removed, looked, gone := w.between(), make(chan bool), make(chan bool), make(chan error)
		b.register = func() { removed <- true; <-looked }
		go func() { gone <- l.DeleteLimits(w.Context(), level) }()
		<-removed
		b.insert = func() { looked <- true; w.noError(<-gone) }
		w.noError(l.SetLimits(w.Context(), level, PerMinute("rpm", 7)))
		w.says(l, level, Rules{Limits: []Limit{PerMinute("rpm", 7)}})
		w.lists(l, level)
	})
}

// The owners of a level stay when others change what it says, and go with it.
func TestOwners(t *testing.T) {
	everywhere(t, func(w *world) {
		l, level := w.limiter(), ForResource(model)
		owned := func(want ...string) {
			w.Helper()
			eq(w, "owners", strings.Join(w.stored(l, level).Owners, " "), strings.Join(want, " "))
		}
		by := func(owners ...string) Stored {
			read := w.stored(l, level)
			read.Owners = owners
			return read
		}
		w.noError(l.Replace(w.Context(), by("stack/one"), Rules{Limits: []Limit{PerMinute("rpm", 5)}}))
		owned("stack/one")
		w.noError(l.SetLimits(w.Context(), level, PerMinute("rpm", 6)))
		w.noError(l.SetAccess(w.Context(), level, Disabled))
		w.noError(l.Replace(w.Context(), w.stored(l, level), Rules{Access: Bypass}))
		owned("stack/one")
		w.noError(l.Replace(w.Context(), by("stack/two", "stack/three"), Rules{Access: Disabled}))
		owned("stack/three", "stack/two")
		w.noError(l.Replace(w.Context(), by(), Rules{Access: Disabled}))
		owned()
		w.noError(l.Replace(w.Context(), by("stack/two"), Rules{Access: Enabled}))
		w.noError(l.SetAccess(w.Context(), level, Inherit))
		w.noError(l.SetAccess(w.Context(), level, Disabled))
		owned()
	})
}

// SetOwners stores owners and nothing else, unless the level has changed since it
// was read.
func TestSetOwners(t *testing.T) {
	everywhere(t, func(w *world) {
		l, level := w.limiter(), ForResource(model)
		w.noError(l.SetOwners(w.Context(), Stored{At: level, Owners: []string{"stack/one"}})) // not stored
		eq(w, "owners of nothing", len(w.stored(l, level).Owners), 0)
		w.noError(l.SetLimits(w.Context(), level, PerMinute("rpm", 5)))
		read := w.stored(l, level)
		read.Owners = []string{"stack/one", "stack/two"}
		w.noError(l.SetOwners(w.Context(), read))
		if err := l.SetOwners(w.Context(), read); !errors.Is(err, ErrStale) {
			w.Errorf("once more of what was read before: %v", err)
		}
		w.says(l, level, Rules{Limits: []Limit{PerMinute("rpm", 5)}})
		now := w.stored(l, level)
		eq(w, "owners", strings.Join(now.Owners, " "), "stack/one stack/two")
		w.noError(l.SetLimits(w.Context(), level, PerMinute("rpm", 6)))
		if now.Owners = nil; !errors.Is(l.SetOwners(w.Context(), now), ErrStale) {
			w.Error("it changes a level that someone has changed")
		}
		eq(w, "owners still", strings.Join(w.stored(l, level).Owners, " "), "stack/one stack/two")
	})
}
