package limits

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/shardquota/shardquota/table"
)

// Rules are what one level says. The zero value says nothing.
type Rules struct {
	Limits  []Limit // sorted by name
	Access  Access
	Cascade *bool // whether a use takes of the parent too; nil leaves it to other levels and to the entity
}

// Empty reports whether the rules say nothing.
func (r Rules) Empty() bool { return len(r.Limits) == 0 && r.Access == Inherit && r.Cascade == nil }

// Equal reports whether two rules say the same. Their limits must be as Normal
// returns them.
func (r Rules) Equal(other Rules) bool {
	same := slices.EqualFunc(r.Limits, other.Limits, func(a, b Limit) bool { return reflect.DeepEqual(a, b) })
	return same && r.Access == other.Access && reflect.DeepEqual(r.Cascade, other.Cascade)
}

func (r Rules) check(at Level) error {
	switch {
	case at == ForAll() && (r.Access != Inherit || r.Cascade != nil):
		return fmt.Errorf("%w: access and cascade are set for an entity or a resource", ErrName)
	case r.Access < Inherit || r.Access > Bypass:
		return fmt.Errorf("limits: access %d is none", r.Access)
	case len(r.Limits) > 0:
		return checkAll(r.Limits)
	}
	return nil
}

// Normal returns limits as they read back once they are stored on one level: sorted
// by name, cron expressions in numbers, zones named. The error is that of SetLimits.
func Normal(limits ...Limit) ([]Limit, error) {
	if err := checkAll(limits); err != nil {
		return nil, err
	}
	item := table.Item{}
	setLimits(item, limits)
	return limitsOn(item)
}

// Stored is a level as it was when it was read.
type Stored struct {
	At Level
	Rules
	Owners  []string // who declares the level, sorted; Replace and SetOwners store what is here
	Invalid error    // why the limits cannot be read; Limits is empty then. It wraps ErrLimit
	Pending bool     // a change was stored, and may not have reached all buckets

	item table.Item
}

// Levels returns the levels of the namespace on which something is stored, in the
// order of CompareLevels. It finds them by registries and an index, which may lag.
// The registries do not hold levels of entities for a resource that is named like
// one of their own attributes (PK, SK, GSI…).
func (s *Store) Levels(ctx context.Context) ([]Stored, error) {
	registered, err := s.registered(ctx)
	if err != nil {
		return nil, fmt.Errorf("list levels: %w", err)
	}
	stored, err := s.Stored(ctx, registered...)
	return slices.DeleteFunc(stored, func(s Stored) bool { return s.Empty() && s.Invalid == nil && !s.Pending }), err
}

// registered returns the levels that the registries and the index name, in order.
func (s *Store) registered(ctx context.Context) ([]Level, error) {
	pk := systemPK(s.namespace)
	registries, err := s.table.Items(ctx, []table.ItemKey{{PK: pk, SK: resourcesSK}, {PK: pk, SK: entityResourcesSK}})
	if err != nil {
		return nil, err
	}
	levels := []Level{ForAll()}
	for _, resource := range registries[0].Strings(attrResources) {
		levels = append(levels, ForResource(resource))
	}
	for _, resource := range slices.Sorted(maps.Keys(registries[1])) {
		if _, counted := registries[1].Int(resource); !counted {
			continue
		}
		keys, err := s.table.FindLevels(ctx, s.namespace, resource)
		if err != nil {
			return nil, err
		}
		for _, key := range keys {
			entity, ok := strings.CutPrefix(key.PK, entityPK(s.namespace, ""))
			switch {
			case ok && resource == anyResource:
				levels = append(levels, ForEntity(entity))
			case ok:
				levels = append(levels, For(entity, resource))
			}
		}
	}
	levels = slices.DeleteFunc(levels, func(level Level) bool { return level.Check() != nil }) // this program could change none
	slices.SortFunc(levels, CompareLevels)
	return slices.Compact(levels), nil
}

// Stored reads levels as they are now, in the order given.
func (s *Store) Stored(ctx context.Context, levels ...Level) ([]Stored, error) {
	keys := make([]table.ItemKey, len(levels))
	for i, level := range levels {
		if err := level.Check(); err != nil {
			return nil, err
		}
		keys[i] = level.key(s.namespace)
	}
	items, err := s.table.Items(ctx, keys)
	if err != nil {
		return nil, fmt.Errorf("read limits: %w", err)
	}
	stored := make([]Stored, len(levels))
	for i, item := range items {
		rules, invalid := rulesOn(item)
		if levels[i] == ForAll() {
			rules.Access, rules.Cascade = Inherit, nil
		}
		stored[i] = Stored{
			At: levels[i], Rules: rules, Owners: ownersOn(item), Invalid: invalid, Pending: item[attrPending] != nil, item: item,
		}
	}
	return stored, nil
}

// Limits returns the limits that are stored on a level, sorted by name. It returns
// none where the level defines none.
func (s *Store) Limits(ctx context.Context, level Level) ([]Limit, error) {
	stored, err := s.Stored(ctx, level)
	if err != nil {
		return nil, err
	}
	return stored[0].Limits, stored[0].Invalid
}
