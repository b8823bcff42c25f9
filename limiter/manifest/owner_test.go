package manifest_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/shardquota/shardquota/limiter"
	. "github.com/shardquota/shardquota/limiter/manifest"
	"github.com/shardquota/shardquota/table"
)

const (
	ours   = "stack/ours"
	theirs = "stack/theirs"
)

// owners are who declares the levels that are stored, in order.
func (w *world) owners() (owners []string) {
	w.Helper()
	stored, err := w.limiter.Levels(w.Context())
	w.noError(err)
	for _, s := range stored {
		owners = append(owners, s.Owner)
	}
	return owners
}

func (w *world) owned(what string, want ...string) {
	w.Helper()
	if got := w.owners(); !slices.Equal(got, want) {
		w.Errorf("%s: the levels are declared by %q, not %q", what, got, want)
	}
}

// What an owner's manifest does not name any more goes if it bears his mark: not
// what someone else declared, or stored, or took over since.
func TestOwnersTakeAwayTheirOwn(t *testing.T) {
	everywhere(t, func(w *world) {
		all := w.read(three)
		less := w.read("system: {limits: {rpm: 60 per minute}}")
		w.noError(w.limiter.SetAccess(w.Context(), limiter.ForEntity(acme), limiter.Disabled)) // as all declares it
		w.apply(all, Owner(ours))
		w.owned("applied", ours, ours, "", ours)
		if writes := w.apply(all, Owner(ours)); writes != 0 {
			w.Errorf("once more writes %d items", writes)
		}
		w.apply(w.read("resources: {gpt-4: {limits: {rpm: 100 per minute, tpm: {capacity: 9000, refill: 900, period: 10s}}}}"), Owner(theirs))
		w.owned("one taken over", ours, theirs, "", ours)
		w.apply(less, Owner(ours), Was(all))
		w.owned("left", ours, theirs, "")
		w.apply(w.read("system: {limits: {rpm: 61 per minute}}")) // by hand
		w.owned("changed by hand", ours, theirs, "")
		w.apply(w.read("{}"), Owner(ours), Was(all))
		w.owned("gone", theirs, "")
		w.apply(w.read("{}"), Was(all))
		w.owned("all of an earlier manifest's, for whoever bears no mark")
	})
}

// Who adopts takes for his own what bears no mark and is as it was declared.
func TestAdopt(t *testing.T) {
	everywhere(t, func(w *world) {
		all := w.read(three)
		w.apply(all)
		w.noError(w.limiter.SetLimits(w.Context(), limiter.ForResource(model), limiter.PerMinute("rpm", 3)))
		w.apply(w.read("system: {limits: {rpm: 60 per minute}}"), Owner(ours), Was(all), Adopt())
		w.owned("but for one that is otherwise", ours, "")
		w.apply(w.read("resources: {gpt-4: {limits: {rpm: 3 per minute}}}"), Owner(ours), Adopt())
		w.owned("that one too", ours, ours)
		w.apply(w.read("{}"), Owner(theirs), Was(all), Adopt())
		w.owned("no one else's", ours, ours)
	})
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
		if !errors.Is(err, limiter.ErrUnreadable) || !errors.As(err, &failed) || strings.Contains(err.Error(), acme) || !strings.HasSuffix(err.Error(), " (1 made, 1 left)") {
			w.Fatalf("got %v", err)
		}
		if failed.Failed.At != limiter.ForResource(model) || failed.Done[0].At != limiter.ForResource("other") || failed.Left[0].At != limiter.ForAll() {
			w.Errorf("got %+v", failed)
		}
		items, err := w.Client.Items(w.Context(), []table.ItemKey{{PK: at("sk-live-beta"), SK: table.StateSK}})
		w.noError(err)
		if capacity, _ := items[0].Whole("b_rpm_cp"); capacity != 7_000 || !w.export().Equal(next) {
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
