package limits

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// ErrUndefined says that no level and no default defines limits for a use, or not
// the one that is asked for.
var ErrUndefined = errors.New("no such limit is defined")

// stampLife is how long the stamp of a soft limit or a bypassed bucket holds. After
// that its configuration is looked at again.
const stampLife = time.Minute

// EffectiveConfig is what the levels together say for one group.
type EffectiveConfig struct {
	Limits  []Limit
	Default bool // no level defines limits: these are the program's own
	Access  Access

	own     bool       // the entity has limits of its own, so that its buckets do not expire
	cascade *bool      // nil leaves it to the entity
	entity  table.Item // the entity's own item, nil where it has none
}

// resolve puts the levels of a group together, the most specific first. The error
// wraps ErrUndefined or ErrLimit; Access and cascade hold then too.
func resolve(group table.Group, levels []config, defaults []Limit) (EffectiveConfig, error) {
	var e EffectiveConfig
	var invalid error
	for i, c := range levels {
		if e.Access == Inherit {
			e.Access = c.Access
		}
		if e.cascade == nil {
			e.cascade = c.Cascade
		}
		if e.Limits != nil || invalid != nil {
			continue
		}
		if invalid = c.invalid; invalid == nil && len(c.Limits) > 0 {
			e.Limits, e.own = c.Limits, i < 2
		}
	}
	if invalid != nil {
		return e, invalid
	}
	if e.Limits == nil {
		e.Limits, e.Default = defaults, true
	}
	if len(e.Limits) == 0 {
		return e, fmt.Errorf("%w for %s", ErrUndefined, group.Resource)
	}
	return e, nil
}

// Cached returns what holds for a group by levels that may be as old as the cache
// allows. It knows nothing of the entity's parent. The error wraps ErrUndefined or
// ErrLimit, or is the table's.
func (s *Store) Cached(ctx context.Context, group table.Group, now time.Time) (EffectiveConfig, error) {
	levels, err := s.configs(ctx, levelKeys(group), now)
	if err != nil {
		return EffectiveConfig{}, fmt.Errorf("read limits: %w", err)
	}
	return resolve(group, levels, s.defaultsOf(group.Resource))
}

// Effective returns what holds for a group by what is stored now, the entity's own
// item included. The error is as that of Cached; the access is right also where the
// limits cannot be read.
func (s *Store) Effective(ctx context.Context, group table.Group, now time.Time) (EffectiveConfig, error) {
	keys := levelKeys(group)
	entity := table.ItemKey{PK: entityPK(group.Namespace, group.Entity), SK: metaSK}
	items, err := s.table.Items(ctx, append(slices.Clip(keys), entity))
	if err != nil {
		return EffectiveConfig{}, fmt.Errorf("read limits: %w", err)
	}
	e, err := resolve(group, s.remember(keys, items, now), s.defaultsOf(group.Resource))
	e.entity = items[len(keys)]
	return e, err
}

func levelKeys(group table.Group) []table.ItemKey {
	var keys []table.ItemKey
	for _, level := range levelsOf(group) {
		keys = append(keys, level.key(group.Namespace))
	}
	return keys
}

// HasDefaults reports whether a bucket has every limit that the program declares,
// exactly as it does.
func (s *Store) HasDefaults(b *table.Bucket) bool {
	return !slices.ContainsFunc(s.defaultsOf(b.Key.Resource), func(l Limit) bool { return !l.isOn(b) })
}

// Equal reports whether two configurations are the same.
func (e EffectiveConfig) Equal(other EffectiveConfig) bool { return reflect.DeepEqual(e, other) }

// Has reports whether a limit holds.
func (e EffectiveConfig) Has(limit string) bool {
	return slices.ContainsFunc(e.Limits, func(l Limit) bool { return l.Name == limit })
}

// ApplyTo returns a bucket's item with what holds on it: limits, access and parent.
//
// A limit that is new on the bucket gets its share. A limit that became a quota of
// other periods counts as granted its share. A limit that holds no more goes; the
// bucket keeps its limits where none hold at all. The valid-until is 0, so that the
// next use brings the balances into line. The error wraps ErrLimit where the limits
// do not fit those of other programs.
func (e EffectiveConfig) ApplyTo(item table.Item, now time.Time) (table.Item, error) {
	next, until := item.Clone(), now.Add(stampLife).UnixMilli()
	e.stampAccess(next, until)
	keepStamp(next, item, table.AttrBypass, now)
	e.setParent(next)
	if len(e.Limits) == 0 {
		return next, nil
	}
	if err := e.setLimits(next, item, now); err != nil {
		return nil, err
	}
	next[table.AttrValidUntil] = table.Int(0)
	if e.own {
		delete(next, table.AttrTTL)
	} else if next[table.AttrTTL] == nil {
		next[table.AttrTTL] = table.Int(0) // until it is known
	}
	b, err := e.share(next, item, now.UnixMilli())
	if err != nil {
		return nil, err
	}
	if len(b.Outlive(now.UnixMilli())) > 0 {
		next[table.AttrTTL] = table.Int(b.Expiry(now.UnixMilli()))
	}
	return next, nil
}

// setLimits puts the limits that hold on an item, in place of others of this
// program; before is the item as it was.
func (e EffectiveConfig) setLimits(next, before table.Item, now time.Time) error {
	next.Set(configAttrs(e.Limits, now.Add(stampLife).UnixMilli()))
	for _, l := range e.Limits {
		keepStamp(next, before, table.Attr(l.Name, table.FieldSoft), now)
	}
	if e.Default {
		return e.keepOthers(next, before)
	}
	e.dropLimits(next)
	return nil
}

// share grants limits that are new on a bucket their share; before is the item as it
// was. A quota counts as granted its share, too, where what it holds was granted in no
// period of its own: the next pass trims it to that share.
func (e EffectiveConfig) share(next, before table.Item, now int64) (*table.Bucket, error) {
	for _, l := range e.Limits {
		if balance := table.Attr(l.Name, table.FieldBalance); next[balance] == nil {
			next[balance], next[table.Attr(l.Name, table.FieldConsumed)] = table.Int(0), table.Int(0)
		}
	}
	b, err := table.DecodeBucket(next)
	if err != nil {
		return nil, err
	}
	was, err := table.DecodeBucket(before)
	if err != nil {
		return nil, err
	}
	for _, limit := range e.Limits {
		l, balance := b.Limit(limit.Name), table.Attr(limit.Name, table.FieldBalance)
		granted := b.Regrants(l.Name, &was.Bucket, now)
		if before[balance] == nil {
			params, err := l.Effective(now)
			if err != nil {
				return nil, err
			}
			next[balance], granted = table.Int(quota.Share(params.Capacity, b.ShardCount)), l.IsQuota()
		}
		if granted {
			next[table.Attr(l.Name, table.FieldGrant)] = table.Int(int64(b.ShardCount))
			delete(next, table.Attr(l.Name, table.FieldTopUp))
		}
	}
	return b, nil
}

// keepStamp leaves a stamp that still holds as it was. Two operators at once would
// otherwise replace each other's stamp for ever.
func keepStamp(next, item table.Item, name string, now time.Time) {
	if until, ok := item.Int(name); ok && next[name] != nil && until > now.UnixMilli() {
		next[name] = item[name]
	}
}

// stampAccess stamps whether the bucket is disabled or bypassed.
func (e EffectiveConfig) stampAccess(item table.Item, until int64) {
	delete(item, table.AttrDisabled)
	delete(item, table.AttrBypass)
	switch e.Access {
	case Disabled:
		item[table.AttrDisabled] = table.Bool(true)
	case Bypass:
		item[table.AttrBypass] = table.Int(until)
	}
}

// setParent stamps whose child the entity is, and whether a use cascades.
func (e EffectiveConfig) setParent(item table.Item) {
	cascade := e.entity.Flag(table.AttrCascade)
	if e.cascade != nil {
		cascade = *e.cascade
	}
	item[table.AttrCascade] = table.Bool(cascade)
	delete(item, table.AttrParentID)
	if e.entity == nil {
		return
	}
	setText(item, table.AttrParentID, e.entity.Text(table.AttrParentID))
	for _, name := range []string{attrParentGeneration, attrIncarnation} {
		if value := e.entity[name]; value != nil {
			item[name] = value
		}
	}
}

// keepOthers keeps limits on an item that this program does not declare. They may be
// another program's, or another version's; one that came back would be granted anew.
// The item's default schedules go, and such a limit gets its own copy of them. The
// error wraps ErrLimit.
func (e EffectiveConfig) keepOthers(next, item table.Item) error {
	scheduled := false
	for attr := range item {
		limit, field, ok := table.SplitAttr(attr)
		if !ok || field != table.FieldBalance || limit == quota.WriteMeter || e.Has(limit) {
			continue
		}
		for name, field := range map[string]table.Field{table.AttrSchedule: table.FieldSchedule, table.AttrResets: table.FieldResets} {
			own := table.Attr(limit, field)
			if next[own] == nil && item[name] != nil {
				next[own] = item[name]
			}
			scheduled = scheduled || next[own] != nil
		}
	}
	switch theirs, ours := item[table.AttrZone], next[table.AttrZone]; {
	case !scheduled || theirs == nil:
	case ours == nil:
		next[table.AttrZone] = theirs
	case !table.SameValue(theirs, ours):
		return fmt.Errorf("%w: a bucket has one zone, and has a limit of another program in another", ErrLimit)
	}
	return nil
}

// dropLimits removes limits from an item that hold no more.
func (e EffectiveConfig) dropLimits(item table.Item) {
	maps.DeleteFunc(item, func(attr string, _ table.Value) bool {
		limit, _, ok := table.SplitAttr(attr)
		return ok && limit != quota.WriteMeter && !e.Has(limit)
	})
}

// RenewStamps returns the change that stamps a bucket as bypassed again, or limits
// of a demand as soft, where that still holds; ok is false where it does not.
func (e EffectiveConfig) RenewStamps(b *table.Bucket, demand quota.Demand, now time.Time) (renewal table.Amendment, ok bool) {
	soft := slices.ContainsFunc(e.Limits, func(l Limit) bool { _, demanded := demand[l.Name]; return l.Soft && demanded })
	if e.Access != Bypass && !soft {
		return renewal, false
	}
	to, until := b.Item.Clone(), now.Add(stampLife).UnixMilli()
	e.stampAccess(to, until)
	for _, l := range e.Limits {
		if name := table.Attr(l.Name, table.FieldSoft); l.Soft && to[name] != nil {
			to[name] = table.Int(until)
		}
	}
	return difference(b.Item, to), true
}
