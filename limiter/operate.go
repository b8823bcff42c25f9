package limiter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/table"
)

// What operators do. A change is stored on its level first and then brought to
// the buckets that stand, each of which looks at its terms again at its next
// use. One that fails at some buckets is brought to all others; doing the same
// again brings it to those. Where the limits that hold cannot be read, buckets keep
// theirs, and access is brought to them all the same.

// SetLimits stores the limits of a level in place of those it had, and brings
// them to the buckets that it decides about. Of a quota that gets smaller what
// shards hold above their new part is trimmed at their next use; one that gets
// larger is so from its next period on. A limit that is left out is gone with what
// was used of it: set again in the same period it is granted in full. The error
// wraps ErrUnreadable where all is done but for buckets that cannot be read.
func (l *Limiter) SetLimits(ctx context.Context, level Level, limits ...Limit) error {
	if err := errors.Join(level.check(), checkAll(limits)); err != nil {
		return err
	}
	return l.store(ctx, level, func(item table.Item) {
		withoutLimits(item)
		configItem(item, limits)
	})
}

// Limits returns the limits that are stored on a level, sorted by name; none
// where it defines none.
func (l *Limiter) Limits(ctx context.Context, level Level) ([]Limit, error) {
	if err := level.check(); err != nil {
		return nil, err
	}
	stored, err := l.configs.fresh(ctx, []table.ItemKey{level.key(l.namespace)}, l.now())
	if err != nil {
		return nil, fmt.Errorf("read limits: %w", err)
	}
	return stored[0].limits, stored[0].invalid
}

// DeleteLimits removes the limits of a level. The buckets that it decided about
// get those of the next level that defines any; where none does they keep what
// they have, and new ones cannot be made.
func (l *Limiter) DeleteLimits(ctx context.Context, level Level) error {
	if err := level.check(); err != nil {
		return err
	}
	return l.store(ctx, level, withoutLimits)
}

// SetAccess disables or bypasses what is on a level, or lets it be used again.
// There is no access for everything in a namespace.
func (l *Limiter) SetAccess(ctx context.Context, level Level, access Access) error {
	if err := level.check(); err != nil {
		return err
	}
	if level == ForAll() {
		return fmt.Errorf("%w: access is set for an entity or a resource", ErrName)
	}
	if access < Inherit || access > Bypass {
		return fmt.Errorf("limiter: access %d is none", access)
	}
	return l.store(ctx, level, func(item table.Item) { setAccess(item, access) })
}

func setAccess(item table.Item, access Access) {
	delete(item, table.AttrDisabled)
	switch access {
	case Enabled, Disabled:
		item[table.AttrDisabled] = &types.AttributeValueMemberBOOL{Value: access == Disabled}
	case Bypass:
		item[table.AttrDisabled] = table.S(table.AttrBypass)
	}
}

// withoutLimits takes a level's limits off its item.
func withoutLimits(item table.Item) {
	for attr := range item {
		if strings.HasPrefix(attr, configPrefix) || strings.HasPrefix(attr, sessionPrefix) {
			delete(item, attr)
		}
	}
	delete(item, attrZone)
}

// says reports whether a level's item says anything.
func says(item table.Item) bool {
	for attr := range item {
		if strings.HasPrefix(attr, configPrefix) || strings.HasPrefix(attr, sessionPrefix) {
			return true
		}
	}
	return item[table.AttrDisabled] != nil || item[table.AttrCascade] != nil || item[attrOnUnavailable] != nil
}

// store changes the item of a level, and brings the change to the buckets.
func (l *Limiter) store(ctx context.Context, level Level, change func(table.Item)) error {
	if err := l.rewrite(ctx, level, change); err != nil {
		return fmt.Errorf("store limits: %w", err)
	}
	l.configs.cache.Remove(level.key(l.namespace))
	if err := l.spread(ctx, level.scope(l.namespace)); err != nil {
		return fmt.Errorf("stored, but not brought to all buckets: %w", err)
	}
	return nil
}

// rewrite changes the item of a level, whatever others change of it meanwhile.
// An item that says nothing any more goes.
func (l *Limiter) rewrite(ctx context.Context, level Level, change func(table.Item)) error {
	key := level.key(l.namespace)
	for range maxAttempts {
		items, err := l.table.Items(ctx, []table.ItemKey{key})
		if err != nil {
			return err
		}
		from, to := items[0], level.item(l.namespace)
		if from != nil {
			to = from.Clone()
		}
		change(to)
		done := false
		switch {
		case from == nil && !says(to), from != nil && says(to) && table.Equal(from, to):
			return nil
		case from == nil:
			done, err = l.enter(ctx, level, to)
		case says(to):
			to[attrConfigVersion] = nextVersion(from)
			done, err = l.put(ctx, from, to)
		default:
			done, err = l.leave(ctx, level, table.NamedValue{Name: attrConfigVersion, Value: from[attrConfigVersion]})
		}
		if done || err != nil {
			return err
		}
	}
	return ErrContended
}

// nextVersion makes one of two writes of an item at once fail, whatever they
// change.
func nextVersion(item table.Item) types.AttributeValue {
	last, _ := item.Int(attrConfigVersion)
	return whole(last + 1)
}

// enter makes the item of a level where there is none. It is registered first: one
// that is registered in vain, or twice, hides nothing. The name of a resource is on
// its list once: where one takes its level away while another makes it anew, each
// looks after the list again once it is done.
func (l *Limiter) enter(ctx context.Context, level Level, item table.Item) (done bool, err error) {
	if err := l.register(ctx, level, true); err != nil {
		return false, err
	}
	done, err = l.table.Insert(ctx, item)
	if done && err == nil && level.kind == forResource {
		err = l.register(ctx, level, true)
	}
	return done, err
}

// leave takes the item of a level away, if what is expected of it is so.
func (l *Limiter) leave(ctx context.Context, level Level, expect ...table.NamedValue) (done bool, err error) {
	key := level.key(l.namespace)
	if done, err = l.table.Remove(ctx, key.PK, key.SK, expect...); !done || err != nil {
		return false, err
	}
	if err := l.register(ctx, level, false); err != nil || level.kind != forResource {
		return true, err
	}
	items, err := l.table.Items(ctx, []table.ItemKey{key})
	if err == nil && items[0] != nil {
		err = l.register(ctx, level, true)
	}
	return true, err
}

// put makes one item another, nil for none, if all that it changes of it still is
// as it was read.
func (l *Limiter) put(ctx context.Context, from, to table.Item) (done bool, err error) {
	if from == nil {
		return l.table.Insert(ctx, to)
	}
	change := changed(from, to)
	if len(change.Set)+len(change.Remove) == 0 {
		return true, nil
	}
	pk, sk := to.Key()
	amended, err := l.table.Amend(ctx, pk, sk, change)
	return amended.Applied, err
}

// item is what the item of a level has beside what it says.
func (l Level) item(namespace string) table.Item {
	key := l.key(namespace)
	item := table.Item{
		table.AttrPK: table.S(key.PK), table.AttrSK: table.S(key.SK),
		table.AttrGSI4PK: table.S(namespace), table.AttrGSI4SK: table.S(key.PK),
		attrConfigVersion: whole(1),
	}
	if l.resource != "" {
		item[table.AttrResource] = table.S(l.resource)
	}
	if l.entity != "" {
		item[table.AttrEntityID] = table.S(l.entity)
		item[table.AttrGSI3PK] = table.S(namespace + "/ENTITY_CONFIG#" + l.resource)
		item[table.AttrGSI3SK] = table.S("ENTITY#" + l.entity)
	}
	return item
}

// Registries list the resources that some level names, for the layout's other
// programs.
const (
	resourcesSK       = "#RESOURCES"
	entityResourcesSK = "#ENTITY_CONFIG_RESOURCES"
	attrResources     = "resources"
)

// register keeps the registries up when a level's item comes or goes.
func (l *Limiter) register(ctx context.Context, level Level, came bool) error {
	if level == ForAll() || level.entity != "" && !countable(level.resource) {
		return nil
	}
	sk := resourcesSK
	change := func(item table.Item) { list(item, level.resource, came) }
	if level.entity != "" {
		sk, change = entityResourcesSK, func(item table.Item) { count(item, level.resource, came) }
	}
	key := table.ItemKey{PK: systemPK(l.namespace), SK: sk}
	for range maxAttempts {
		items, err := l.table.Items(ctx, []table.ItemKey{key})
		if err != nil {
			return err
		}
		from, to := items[0], table.Item{
			table.AttrPK: table.S(key.PK), table.AttrSK: table.S(sk), table.AttrGSI4PK: table.S(l.namespace), table.AttrGSI4SK: table.S(key.PK),
		}
		if from != nil {
			to = from.Clone()
		}
		change(to)
		if done, err := l.put(ctx, from, to); done || err != nil {
			return err
		}
	}
	return ErrContended
}

// countable reports whether a resource can be counted by its name: not if it is
// named like the registry's own attributes.
func countable(resource string) bool {
	return !slices.Contains([]string{table.AttrPK, table.AttrSK, table.AttrGSI4PK, table.AttrGSI4SK}, resource) && !strings.HasPrefix(resource, "GSI")
}

// list puts a name on a set of names, or takes it off.
func list(item table.Item, name string, on bool) {
	names := []string{}
	if set, ok := item[attrResources].(*types.AttributeValueMemberSS); ok {
		names = slices.DeleteFunc(slices.Clone(set.Value), func(n string) bool { return n == name })
	}
	if on {
		names = append(names, name)
	}
	slices.Sort(names)
	if delete(item, attrResources); len(names) > 0 {
		item[attrResources] = &types.AttributeValueMemberSS{Value: names}
	}
}

// count counts one more of a name, or one less.
func count(item table.Item, name string, more bool) {
	n, _ := item.Int(name)
	if n--; more {
		n += 2
	}
	if delete(item, name); n > 0 {
		item[name] = whole(n)
	}
}
