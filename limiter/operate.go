package limiter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"golang.org/x/sync/errgroup"

	"github.com/shardquota/shardquota/table"
)

// What operators do. A change is stored on its level first and then brought to
// the buckets that stand, each of which looks at its terms again at its next
// use. One that fails on the way has been brought to some buckets only; doing
// the same again brings it to the others.

// SetLimits stores the limits of a level in place of those it had, and brings
// them to the buckets that it decides about. Of a quota that gets smaller what
// shards hold above their new part is trimmed at their next use; one that gets
// larger is so from its next period on. A limit that is left out is gone with what
// was used of it: set again in the same period it is granted in full.
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
	for range attempts {
		items, err := l.table.Items(ctx, []table.ItemKey{key})
		if err != nil {
			return err
		}
		from, to := items[0], level.item(l.namespace)
		if from != nil {
			to = from.Clone()
		}
		change(to)
		done := true
		switch {
		case says(to):
			done, err = l.put(ctx, from, to)
		case from != nil:
			err = l.table.Remove(ctx, key.PK, key.SK)
		}
		if err != nil {
			return err
		}
		if done {
			return l.register(ctx, level, from, to)
		}
	}
	return ErrContended
}

// put makes one item another, nil for none, if it still is the one that was read.
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
func (l *Limiter) register(ctx context.Context, level Level, from, to table.Item) error {
	came, went := from == nil && says(to), from != nil && !says(to)
	if !came && !went || level == ForAll() || level.entity != "" && !countable(level.resource) {
		return nil
	}
	sk := resourcesSK
	change := func(item table.Item) { list(item, level.resource, came) }
	if level.entity != "" {
		sk, change = entityResourcesSK, func(item table.Item) { count(item, level.resource, came) }
	}
	key := table.ItemKey{PK: systemPK(l.namespace), SK: sk}
	for range attempts {
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
	n, _ := item.Whole(name)
	if n--; more {
		n += 2
	}
	if delete(item, name); n > 0 {
		item[name] = whole(n)
	}
}

// spread brings what holds now to all buckets in a scope. It looks for them
// twice: a bucket that was being made meanwhile is found the second time, and
// its maker looks for itself.
func (l *Limiter) spread(ctx context.Context, scope table.Scope) error {
	done := map[table.Group]bool{}
	for range 2 {
		keys, err := l.table.Find(ctx, scope)
		if err != nil {
			return err
		}
		groups, ctx := errgroup.WithContext(ctx)
		groups.SetLimit(l.atOnce)
		for _, key := range keys {
			if done[key.Group] {
				continue
			}
			done[key.Group] = true
			groups.Go(func() error { return l.change(ctx, key.Group, l.now()) })
		}
		if err := groups.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// change brings what holds for a group to all of its shards. It goes over them
// until it finds nothing to change: meanwhile others may have changed what holds,
// or have made shards by what held before.
func (l *Limiter) change(ctx context.Context, group table.Group, now time.Time) error {
	for range attempts {
		changed, err := l.sweep(ctx, group, now)
		if err != nil || !changed {
			return err
		}
	}
	return ErrContended
}

// sweep brings what holds now to the shards that are there now, and reports
// whether that changed any.
func (l *Limiter) sweep(ctx context.Context, group table.Group, now time.Time) (changed bool, err error) {
	h, err := l.lookAt(ctx, group, now)
	if err != nil && !errors.Is(err, ErrUndefined) {
		return false, err
	}
	shards, err := l.shards(ctx, group, now)
	if err != nil {
		return false, err
	}
	for _, b := range shards {
		amended, err := l.amend(ctx, b, h, now)
		if err != nil {
			return false, fmt.Errorf("shard %d: %w", b.Shard, err)
		}
		changed = changed || amended
	}
	return changed, nil
}

// shards are those of a group, shard 0 first, raised to its count: a limit that
// comes is shared out at the count that holds. Where there is no shard 0 they are
// those that an index finds.
func (l *Limiter) shards(ctx context.Context, group table.Group, now time.Time) ([]*table.Bucket, error) {
	zero, err := l.table.Read(ctx, group.At(0))
	if err != nil {
		return nil, err
	}
	if zero == nil {
		return l.findable(ctx, group)
	}
	family, err := l.table.RaiseAndRead(ctx, group, zero.Count, now.UnixMilli())
	if err != nil {
		return nil, err
	}
	var shards []*table.Bucket
	for _, sibling := range family {
		if sibling.Broken != nil {
			return nil, sibling.Broken
		}
		if sibling.Bucket != nil {
			shards = append(shards, sibling.Bucket)
		}
	}
	return shards, nil
}

// findable are the shards of a group that an index finds.
func (l *Limiter) findable(ctx context.Context, group table.Group) ([]*table.Bucket, error) {
	keys, err := l.table.Find(ctx, table.Scope(group))
	if err != nil {
		return nil, err
	}
	var shards []*table.Bucket
	for _, key := range keys {
		b, err := l.table.Read(ctx, key)
		if err != nil {
			return nil, fmt.Errorf("shard %d: %w", key.Shard, err)
		}
		if b != nil {
			shards = append(shards, b)
		}
	}
	return shards, nil
}

// amend brings what holds to one bucket, whatever others do to it meanwhile, and
// reports whether that changed it.
func (l *Limiter) amend(ctx context.Context, b *table.Bucket, h holding, now time.Time) (bool, error) {
	for range attempts {
		to, err := h.dressed(b.Item, now)
		if err != nil {
			return false, err
		}
		amendment := changed(b.Item, to)
		if len(amendment.Remove) == 0 && onlyValid(amendment.Set) {
			return false, nil
		}
		amended, err := l.table.Amend(ctx, b.Key.PK(), table.StateSK, amendment)
		if err != nil || amended.Applied || amended.Item == nil {
			return amended.Applied, err
		}
		if b, err = amended.Bucket(); err != nil {
			return false, err
		}
	}
	return false, ErrContended
}

// onlyValid reports whether a change would have a bucket looked at again and
// nothing else.
func onlyValid(set table.Item) bool {
	return len(set) == 0 || len(set) == 1 && set[table.AttrValid] != nil
}
