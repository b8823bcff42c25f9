package manifest_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/shardquota/shardquota/limiter"
	"github.com/shardquota/shardquota/limits"
	. "github.com/shardquota/shardquota/limits/manifest"
	"github.com/shardquota/shardquota/table"
)

const (
	ours   = "stack/ours"
	theirs = "stack/theirs"
)

// owners are who declares the levels that are stored, in order, and those of one
// level apart by a space.
func (w *world) owners() (owners []string) {
	w.Helper()
	stored, err := w.store.Levels(w.Context())
	w.noError(err)
	for _, s := range stored {
		owners = append(owners, strings.Join(s.Owners, " "))
	}
	return owners
}

func (w *world) owned(what string, want ...string) {
	w.Helper()
	if got := w.owners(); !slices.Equal(got, want) {
		w.Errorf("%s: the levels are declared by %q, not %q", what, got, want)
	}
}

// What an owner's manifest does not name any more goes with its last owner: not
// where someone else declares it too, nor what an operator has stored.
func TestOwners(t *testing.T) {
	everywhere(t, func(w *world) {
		all := w.read(three)
		less := w.read("system: {limits: {rpm: 60 per minute}}")
		both := ours + " " + theirs
		w.noError(w.store.SetAccess(w.Context(), limits.ForEntity(acme), limits.Disabled)) // as all declares it
		w.apply(all, Owner(ours))
		w.owned("applied", ours, ours, "", ours)
		if writes := w.apply(all, Owner(ours)); writes != 0 {
			w.Errorf("once more writes %d items", writes)
		}
		w.apply(w.read("resources: {gpt-4: {limits: {rpm: 101 per minute}}}"), Owner(theirs))
		w.owned("one in other words", ours, both, "", ours)
		w.apply(less, Owner(theirs))
		w.owned("one in the same", both, both, "", ours)
		w.apply(w.read("system: {limits: {rpm: 61 per minute}}")) // by hand
		w.owned("changed by hand", both, both, "", ours)
		w.apply(less, Owner(ours), Was(all))
		w.owned("left", both, theirs, "")
		w.apply(w.read("{}"), Owner(ours), Was(all))
		w.owned("all left", theirs, theirs, "")
		w.apply(w.read("{}"), Owner(theirs), Was(all))
		w.owned("by the last, too", "")
		w.apply(all, Owner(ours))
		w.apply(w.read("{}"), Prune()) // by hand
		w.owned("pruned, whoever's they are")
	})
}

// A change of owners alone is one write, which a plan without an Owner does not
// show. It leaves what the level says, also what cannot be read.
func TestOwnersAlone(t *testing.T) {
	everywhere(t, func(w *world) {
		m := w.read("system: {limits: {rpm: 60 per minute}}")
		w.apply(m, Owner(ours))
		if writes := w.apply(m, Owner(theirs)); writes != 1 {
			w.Errorf("one owner more writes %d items", writes)
		}
		w.shows(w.compare(m), "0 to add, 0 to change, 0 to remove, 1 unchanged\n")
		_, err := w.Client.Amend(w.Context(), "ns1/SYSTEM#", "#CONFIG", table.Amendment{Set: table.Item{"l_rpm_cp": table.N("0")}})
		w.noError(err)
		if writes := w.apply(w.read("{}"), Owner(ours), Was(m)); writes != 1 {
			w.Errorf("one owner less writes %d items", writes)
		}
		w.owned("left", theirs)
		if stored, err := w.store.Stored(w.Context(), limits.ForAll()); err != nil || stored[0].Invalid == nil {
			w.Errorf("the level says %+v, %v", stored, err)
		}
		w.noError(w.store.SetLimits(w.Context(), limits.ForAll(), limits.PerMinute("rpm", 60)))
		plan := w.compare(m, Owner(ours))
		w.noError(w.store.SetLimits(w.Context(), limits.ForAll(), limits.PerMinute("rpm", 3)))
		if err := plan.Apply(w.Context()); !errors.Is(err, limits.ErrStale) {
			w.Errorf("on a level that changed meanwhile: %v", err)
		}
		w.owned("stale", theirs)
	})
}

// Who adds himself to a level that is not on all buckets yet brings it there. Who
// leaves one of which only the mark of a removal is left does the removal.
func TestOwnersOfWhatIsPending(t *testing.T) {
	w := worldOf(t, newMemory())
	m := w.read("system: {limits: {rpm: 60 per minute}}")
	cut := func(m *Manifest, options ...Option) {
		t.Helper()
		writes := 0
		w.fail = func(string, string) error {
			if writes++; writes == 2 { // the level, and the end of its mark
				return errors.New("out of order")
			}
			return nil
		}
		if err := w.compare(m, options...).Apply(t.Context()); err == nil {
			t.Fatal("it was applied")
		}
		w.fail = nil
	}
	cut(m, Owner(ours))
	w.apply(m, Owner(theirs))
	w.owned("brought to all buckets", ours+" "+theirs)
	if !w.compare(m).Empty() {
		t.Error("it is pending still")
	}
	cut(w.read("{}"), Prune())
	w.apply(w.read("{}"), Owner(ours), Was(m))
	w.owned("removed")
	cut(m)
	w.apply(m, Owner(ours))
	w.owned("an operator's", "")
}

// Buckets that cannot be read keep no level from the rest of the plan. It is told,
// and what could not be brought to them is still to be done.
func TestAppliedPastBucketsThatCannotBeRead(t *testing.T) {
	everywhere(t, func(w *world) {
		w.apply(w.read("system: {limits: {rpm: 60 per minute}}"))
		for _, entity := range []string{acme, "sk-live-beta"} {
			_, err := w.limiter.Acquire(w.Context(), entity, model, limiter.Amounts{"rpm": 1})
			w.noError(err)
		}
		at := func(entity string) string {
			return table.Group{Namespace: "ns1", Entity: entity, Resource: model}.At(0).PK()
		}
		spoil := func(balance string) {
			_, err := w.Client.Amend(w.Context(), at(acme), table.StateSK, table.Amendment{Set: table.Item{"b_rpm_tk": table.N(balance)}})
			w.noError(err)
		}
		spoil("1.5")
		next := w.read("system: {limits: {rpm: 6 per minute}}\nresources: {gpt-4: {limits: {rpm: 7 per minute}}, other: {access: disabled}}")
		err := w.compare(next).Apply(w.Context())
		var failed *ApplyError
		if !errors.Is(err, limits.ErrUnreadable) || !errors.As(err, &failed) || strings.Contains(err.Error(), acme) || !strings.HasSuffix(err.Error(), " (1 made, 1 left)") {
			w.Fatalf("got %v", err)
		}
		if failed.Failed.At != limits.ForResource(model) || failed.Done[0].At != limits.ForResource("other") || failed.Left[0].At != limits.ForAll() {
			w.Errorf("got %+v", failed)
		}
		items, err := w.Client.Items(w.Context(), []table.ItemKey{{PK: at("sk-live-beta"), SK: table.StateSK}})
		w.noError(err)
		if capacity, _ := items[0].Int("b_rpm_cp"); capacity != 7_000 || !w.export().Equal(next) {
			w.Errorf("the other bucket's capacity is %d", capacity)
		}
		if n := w.compare(next).Count(Changed); n != 2 {
			w.Errorf("%d levels are still to be brought to all buckets, not 2", n)
		}
		spoil("1000") // mended
		w.apply(next)
		if !w.compare(next).Empty() {
			w.Error("it is not done")
		}
	})
}
