// Package manifest declares the limits of a namespace in a file: it reads and
// writes the file, compares it with what is stored, and stores the difference.
package manifest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/shardquota/shardquota/limits"
)

// ErrManifest says that a manifest is malformed.
var ErrManifest = errors.New("malformed manifest")

// Manifest is what some levels of a namespace shall say. A level that it does
// not name is none of its business.
type Manifest struct {
	Name      string  // of the file, for errors; "" where there is none
	Namespace string  // by name; "" leaves it to whoever applies the manifest
	Levels    []Level // in the order of limits.CompareLevels, none of them twice, none Empty
}

// Level is what one level shall say, all of it.
type Level struct {
	At           limits.Level
	limits.Rules     // limits as limits.Normal returns them
	Line         int // where the manifest that was read names it; 0 elsewhere
}

// Equal reports whether two manifests declare the same, in whatever file.
func (m *Manifest) Equal(other *Manifest) bool {
	return m.Namespace == other.Namespace && slices.EqualFunc(m.Levels, other.Levels, func(a, b Level) bool {
		return a.At == b.At && a.Rules.Equal(b.Rules)
	})
}

// Export returns what is stored in the store's namespace; name is that of the
// namespace, as the manifest shall have it. Comparing it with the table then finds
// no change. It fails where the limits of a level cannot be read, or could not be
// declared: other programs store some that this one refuses. The error wraps
// limits.ErrLimit and names all such levels, entities' by their resource alone.
func Export(ctx context.Context, store *limits.Store, name string) (*Manifest, error) {
	stored, err := store.Levels(ctx)
	if err != nil {
		return nil, fmt.Errorf("export: %w", err)
	}
	m := &Manifest{Namespace: name}
	var faults []error
	for _, s := range stored {
		rules, err := normal(s)
		if err != nil {
			faults = append(faults, fmt.Errorf("export: %s: %w", discreet(s.At), err))
			continue
		}
		if !rules.Empty() {
			m.Levels = append(m.Levels, Level{At: s.At, Rules: rules})
		}
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return m, nil
}

// normal is what a level says, its limits as a manifest has them.
func normal(s limits.Stored) (limits.Rules, error) {
	rules := s.Rules
	if s.Invalid != nil || len(s.Limits) == 0 {
		return rules, s.Invalid
	}
	var err error
	rules.Limits, err = limits.Normal(s.Limits...)
	return rules, err
}

// discreet names a level without an entity's id.
func discreet(level limits.Level) string {
	return levelName(level, func(string) string { return "" })
}
