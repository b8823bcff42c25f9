package manifest_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/shardquota/shardquota/limiter"
	"github.com/shardquota/shardquota/limits"
	. "github.com/shardquota/shardquota/limits/manifest"
)

// deciding are the levels that can decide about acme's use of gpt-4, the most
// specific last.
var deciding = []limits.Level{
	limits.ForAll(), limits.ForResource(model), limits.ForEntity(acme), limits.For(acme, model),
}

// layouts are all ways in which each of the levels declares nothing, or has a rate
// alone, or a quota too, such that the one that decides has the quota.
func layouts() (all []*Manifest) {
	rate := limits.PerMinute("rpm", 60)
	quota := limits.Quota("tokens", 1000, "0 0 1 * *")
	for code := range 81 {
		m := &Manifest{Name: fmt.Sprintf("layout %04s", fmt.Sprint(code))}
		for _, at := range deciding {
			if declared := [][]limits.Limit{nil, {rate}, {rate, quota}}[code%3]; declared != nil {
				m.Levels = append(m.Levels, Level{At: at, Rules: limits.Rules{Limits: declared}})
			}
			code /= 3
		}
		if n := len(m.Levels); n > 0 && len(m.Levels[n-1].Limits) == 2 {
			all = append(all, m)
		}
	}
	return all
}

// However declared limits move between levels, a quota that holds before and after
// is the same one in between: what was used of it stays used, and whoever asks
// meanwhile finds it.
func TestAQuotaThatMovesBetweenLevelsStays(t *testing.T) {
	manifests := layouts()
	if len(manifests) != 40 {
		t.Fatalf("%d layouts, want 40", len(manifests))
	}
	for i, from := range manifests {
		for j, to := range manifests {
			if testing.Short() && (i+j)%7 != 0 {
				continue
			}
			if err := moved(t, from, to); err != nil {
				t.Fatalf("from %v to %v: %v", places(from), places(to), err)
			}
		}
	}
}

// places says for each level how many limits it declares.
func places(m *Manifest) (limits [4]int) {
	for _, level := range m.Levels {
		limits[slices.Index(deciding, level.At)] = len(level.Limits)
	}
	return limits
}

// moved applies two manifests, with 900 of 1,000 used between them and a use of
// nothing at every write.
func moved(t *testing.T, from, to *Manifest) error {
	w := worldOf(t, newMemory())
	w.apply(from)
	if _, err := w.limiter.Acquire(t.Context(), acme, model, limiter.Amounts{"tokens": 900}); err != nil {
		return err
	}
	plan := w.compare(to, Prune())
	other := worldOf(t, w.Client).limiter
	w.fail = func(string, string) error {
		_, err := other.Acquire(t.Context(), acme, model, limiter.Amounts{"tokens": 0})
		return err
	}
	if err := plan.Apply(t.Context()); err != nil {
		return err
	}
	_, err := other.Acquire(t.Context(), acme, model, limiter.Amounts{"tokens": 101})
	var r *limiter.Rejection
	if !errors.As(err, &r) || r.Of("tokens").Available != 100 {
		return fmt.Errorf("101 of the 100 that are left: %v", err)
	}
	return nil
}
