package limiter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/table"
)

// ErrStale says that a level is stored otherwise than it was when it was read.
var ErrStale = errors.New("stored otherwise meanwhile")

// Rules are what one level says. The zero value says nothing.
type Rules struct {
	Limits  []Limit // sorted by name
	Access  Access
	Cascade *bool // whether a parent gives too; nil leaves it to other levels and to the entity
}

// Empty reports whether the rules say nothing.
func (r Rules) Empty() bool { return len(r.Limits) == 0 && r.Access == Inherit && r.Cascade == nil }

// Equal reports whether two rules, with limits as Normal returns them, say the same.
func (r Rules) Equal(other Rules) bool {
	same := slices.EqualFunc(r.Limits, other.Limits, func(a, b Limit) bool { return reflect.DeepEqual(a, b) })
	return same && r.Access == other.Access && reflect.DeepEqual(r.Cascade, other.Cascade)
}

// Stored is a level as it was when it was read.
type Stored struct {
	At Level
	Rules
	Owners  []string // who declares the level, sorted; Replace and SetOwners store what is here
	Invalid error    // why the limits cannot be read, of which there are none then; wraps ErrLimit
	Pending bool     // a Replace was stored, and perhaps not brought to all buckets

	item table.Item
}

// Normal returns limits as they come back once they are stored on one level:
// sorted by name, their cron expressions in numbers, their zones named. The error
// is that of SetLimits.
func Normal(limits ...Limit) ([]Limit, error) {
	if err := checkAll(limits); err != nil {
		return nil, err
	}
	item := table.Item{}
	configItem(item, limits)
	return configLimits(item)
}

// Entity is the id of the entity that the level is for, "" where it is for all.
func (l Level) Entity() string { return l.entity }

// Resource is the resource that the level is for, "" where it is for all.
func (l Level) Resource() string {
	if l.resource == anyResource {
		return ""
	}
	return l.resource
}

// Check returns what is wrong with the level's names; the error wraps ErrName.
func (l Level) Check() error { return l.check() }

// CompareLevels orders levels: the one of everything, those of resources by
// name, then entities by id, each with its own level before those of resources.
func CompareLevels(a, b Level) int {
	return cmp.Or(strings.Compare(a.entity, b.entity), strings.Compare(a.Resource(), b.Resource()))
}

// Levels are the levels of the namespace on which something is stored, in order.
// They are found by registries and an index, which may lag behind. Those of
// entities for a resource that is named like an attribute of the registry (PK, SK,
// GSI…) are in none.
func (l *Limiter) Levels(ctx context.Context) ([]Stored, error) {
	found, err := l.listed(ctx)
	if err != nil {
		return nil, fmt.Errorf("list levels: %w", err)
	}
	stored, err := l.Stored(ctx, found...)
	return slices.DeleteFunc(stored, func(s Stored) bool { return s.Empty() && s.Invalid == nil && !s.Pending }), err
}

// listed are the levels that registries and the index name, in order.
func (l *Limiter) listed(ctx context.Context) ([]Level, error) {
	pk := systemPK(l.namespace)
	registries, err := l.table.Items(ctx, []table.ItemKey{{PK: pk, SK: resourcesSK}, {PK: pk, SK: entityResourcesSK}})
	if err != nil {
		return nil, err
	}
	found := []Level{ForAll()}
	if set, ok := registries[0][attrResources].(*types.AttributeValueMemberSS); ok {
		for _, resource := range set.Value {
			found = append(found, ForResource(resource))
		}
	}
	for _, resource := range slices.Sorted(maps.Keys(registries[1])) {
		if _, counted := registries[1].Int(resource); !counted {
			continue
		}
		keys, err := l.table.FindLevels(ctx, l.namespace, resource)
		if err != nil {
			return nil, err
		}
		for _, key := range keys {
			if entity, ok := strings.CutPrefix(key.PK, entityPK(l.namespace, "")); ok {
				found = append(found, levelOf(entity, resource))
			}
		}
	}
	found = slices.DeleteFunc(found, func(level Level) bool { return level.check() != nil }) // none that this program could change
	slices.SortFunc(found, CompareLevels)
	return slices.Compact(found), nil
}

// levelOf is an entity's level as its item names the resource.
func levelOf(entity, resource string) Level {
	if resource == anyResource {
		return ForEntity(entity)
	}
	return For(entity, resource)
}

// Stored reads levels as they are now, in the order given.
func (l *Limiter) Stored(ctx context.Context, levels ...Level) ([]Stored, error) {
	keys := make([]table.ItemKey, len(levels))
	for i, level := range levels {
		if err := level.check(); err != nil {
			return nil, err
		}
		keys[i] = level.key(l.namespace)
	}
	items, err := l.table.Items(ctx, keys)
	if err != nil {
		return nil, fmt.Errorf("read limits: %w", err)
	}
	stored := make([]Stored, len(levels))
	for i, item := range items {
		c := parseConfig(item)
		rules := Rules{c.limits, c.access, c.cascade}
		if levels[i] == ForAll() {
			rules.Access, rules.Cascade = Inherit, nil
		}
		stored[i] = Stored{
			At: levels[i], Rules: rules, Owners: owners(item), Invalid: c.invalid, Pending: item[attrPending] != nil, item: item,
		}
	}
	return stored, nil
}

const (
	// attrPending is on the item of a level from when a Replace is stored to when
	// all buckets have it, so that one that is cut short is seen.
	attrPending = "spread_pending"
	// attrOwners is the set of those who declare a level. It stays when others change
	// the level.
	attrOwners = "declared_by"
)

// owners are those who declare the level of an item, sorted.
func owners(item table.Item) []string {
	set, ok := item[attrOwners].(*types.AttributeValueMemberSS)
	if !ok {
		return nil
	}
	return slices.Sorted(slices.Values(set.Value))
}

func setOwners(item table.Item, owners []string) {
	if delete(item, attrOwners); len(owners) > 0 {
		item[attrOwners] = &types.AttributeValueMemberSS{Value: owners}
	}
}

// Replace stores rules on a level in place of all that it said when it was read,
// in one write, and brings them to the buckets that it decides about. Empty rules
// take away what the level says. It fails with ErrStale, and changes nothing, where
// the level is stored otherwise by now. What becomes of used quotas is as with
// SetLimits. Where it fails after it stored them, the level is Pending until it is
// read and replaced again; but not where empty rules reached all buckets that can
// be read, so that nothing is left of the level.
func (l *Limiter) Replace(ctx context.Context, read Stored, rules Rules) error {
	if err := errors.Join(read.At.check(), rules.check(read.At)); err != nil {
		return err
	}
	if read.item == nil && rules.Empty() {
		return nil
	}
	to := l.restated(read, rules)
	if err := l.restate(ctx, read, to); err != nil {
		return fmt.Errorf("store limits: %w", err)
	}
	l.configs.cache.Remove(read.At.key(l.namespace))
	spread := l.spread(ctx, read.At.scope(l.namespace))
	if spread == nil || errors.Is(spread, ErrUnreadable) && rules.Empty() {
		if err := l.finish(ctx, read.At, to); err != nil {
			return fmt.Errorf("stored and brought to all buckets, but not marked so: %w", err)
		}
	}
	if spread != nil {
		return fmt.Errorf("stored, but not brought to all buckets: %w", spread)
	}
	return nil
}

// SetOwners stores the owners of a level that was read, and leaves what it says, so
// that no bucket has to know. It fails with ErrStale, and changes nothing, where the
// level is stored otherwise by now. A level that is not stored has no owners.
func (l *Limiter) SetOwners(ctx context.Context, read Stored) error {
	if read.item == nil {
		return read.At.check()
	}
	to := read.item.Clone()
	setOwners(to, read.Owners)
	to[attrConfigVersion] = nextVersion(read.item)
	if err := l.restate(ctx, read, to); err != nil {
		return fmt.Errorf("store owners: %w", err)
	}
	return nil
}

func (r Rules) check(at Level) error {
	switch {
	case at == ForAll() && (r.Access != Inherit || r.Cascade != nil):
		return fmt.Errorf("%w: access and cascade are set for an entity or a resource", ErrName)
	case r.Access < Inherit || r.Access > Bypass:
		return fmt.Errorf("limiter: access %d is none", r.Access)
	case len(r.Limits) > 0:
		return checkAll(r.Limits)
	}
	return nil
}

// restate writes the item of a level, if it still is as it was read.
func (l *Limiter) restate(ctx context.Context, read Stored, to table.Item) error {
	now, err := l.table.Items(ctx, []table.ItemKey{read.At.key(l.namespace)})
	if err != nil {
		return err
	}
	if !sameItem(now[0], read.item) {
		return ErrStale
	}
	done := false
	if read.item == nil {
		done, err = l.enter(ctx, read.At, to)
	} else {
		done, err = l.put(ctx, read.item, to)
	}
	if err == nil && !done {
		err = ErrStale
	}
	return err
}

// restated is the item of a level with other rules, marked as pending.
func (l *Limiter) restated(read Stored, rules Rules) table.Item {
	to, version := read.At.item(l.namespace), whole(1)
	if read.item != nil {
		to, version = read.item.Clone(), nextVersion(read.item)
	}
	withoutLimits(to)
	configItem(to, rules.Limits)
	setAccess(to, rules.Access)
	if delete(to, table.AttrCascade); rules.Cascade != nil {
		to[table.AttrCascade] = &types.AttributeValueMemberBOOL{Value: *rules.Cascade}
	}
	setOwners(to, read.Owners)
	to[attrConfigVersion], to[attrPending] = version, version
	return to
}

// finish takes the mark off a level's item that all buckets have, or the item away
// that says nothing any more. One that someone has changed again is left to him.
func (l *Limiter) finish(ctx context.Context, level Level, stored table.Item) error {
	key, pending := level.key(l.namespace), table.NamedValue{Name: attrPending, Value: stored[attrPending]}
	if !says(stored) {
		version := table.NamedValue{Name: attrConfigVersion, Value: stored[attrConfigVersion]}
		if done, err := l.leave(ctx, level, pending, version); done || err != nil {
			return err
		}
	}
	_, err := l.table.Amend(ctx, key.PK, key.SK, table.Amendment{Remove: []string{attrPending}, Expect: []table.NamedValue{pending}})
	return err
}

// sameItem reports whether two items are the same, nil for none.
func sameItem(a, b table.Item) bool { return a == nil && b == nil || table.Equal(a, b) }
