package limiter

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// stampLife is how long the stamp of a soft limit or a bypassed bucket holds
// before the configuration that it is of is looked at again.
const stampLife = time.Minute

// holding is what holds for a group's buckets: what its levels say, and whose
// child the entity is.
type holding struct {
	resolved
	owner table.Item // the entity's own item, nil where it has none
}

// look resolves what holds for a group from what was stored a while ago or is
// stored now. The entity's own item is not looked at. The error wraps
// ErrUndefined or ErrLimit, or is the table's.
func (l *Limiter) look(ctx context.Context, group table.Group, now time.Time) (holding, error) {
	stored, err := l.configs.cached(ctx, levelKeys(group), now)
	if err != nil {
		return holding{}, fmt.Errorf("read limits: %w", err)
	}
	r, err := resolve(group, stored, l.coded(group.Resource))
	return holding{resolved: r}, err
}

// lookAt is look at what is stored now, and at the entity's own item.
func (l *Limiter) lookAt(ctx context.Context, group table.Group, now time.Time) (holding, error) {
	keys := levelKeys(group)
	owner := table.ItemKey{PK: entityPK(group.Namespace, group.Entity), SK: metaSK}
	items, err := l.table.Items(ctx, append(slices.Clip(keys), owner))
	if err != nil {
		return holding{}, fmt.Errorf("read limits: %w", err)
	}
	r, err := resolve(group, l.configs.take(keys, items, now), l.coded(group.Resource))
	return holding{resolved: r, owner: items[len(keys)]}, err
}

// levelKeys are the keys of the levels that decide about a group.
func levelKeys(group table.Group) []table.ItemKey {
	var keys []table.ItemKey
	for _, level := range levels(group) {
		keys = append(keys, level.key(group.Namespace))
	}
	return keys
}

// dressed is a bucket's item with the limits that hold, and everything else that
// is kept on it of what holds. Limits that it did not have get their part of the
// shard count, those that became a quota of other periods count as granted it,
// those that hold no more go. The valid-until is 0, so that the next use brings
// the balances into line.
// Where no limits hold at all, it keeps those that it has.
func (h holding) dressed(item table.Item, now time.Time) (table.Item, error) {
	next, until := item.Clone(), now.Add(stampLife).UnixMilli()
	h.admit(next, until)
	keepStamp(next, item, table.AttrBypass, now)
	h.relate(next)
	if len(h.limits) == 0 {
		return next, nil
	}
	set(next, bucketTerms(h.limits, until))
	for _, l := range h.limits {
		keepStamp(next, item, table.Attr(l.Name, table.FieldSoft), now)
	}
	if !h.coded {
		h.strip(next)
	} else if err := h.keepOthers(next, item); err != nil {
		return nil, err
	}
	next[table.AttrValidUntil] = whole(0)
	if h.own {
		delete(next, table.AttrTTL)
	} else if next[table.AttrTTL] == nil {
		next[table.AttrTTL] = whole(0) // until it is known
	}
	var added []string
	for _, l := range h.limits {
		if balance := table.Attr(l.Name, table.FieldBalance); next[balance] == nil {
			next[balance], next[table.Attr(l.Name, table.FieldConsumed)] = whole(0), whole(0)
			added = append(added, l.Name)
		}
	}
	b, err := table.DecodeBucket(next)
	if err != nil {
		return nil, err
	}
	if err := grant(b, added, now.UnixMilli()); err != nil {
		return nil, err
	}
	if err := h.regrant(b, item, now.UnixMilli()); err != nil {
		return nil, err
	}
	if item[table.AttrTTL] == nil && next[table.AttrTTL] != nil {
		next[table.AttrTTL] = whole(expiry(&b.Bucket, now.UnixMilli()))
	}
	return next, nil
}

// keepStamp leaves a stamp that holds as it was: two operators at once would
// otherwise put each other's aside for ever.
func keepStamp(next, item table.Item, name string, now time.Time) {
	if until, ok := item.Int(name); ok && next[name] != nil && until > now.UnixMilli() {
		next[name] = item[name]
	}
}

// grant gives limits that are new on a bucket their part.
func grant(b *table.Bucket, names []string, now int64) error {
	for _, name := range names {
		l := b.Limit(name)
		params, err := l.Effective(now)
		if err != nil {
			return err
		}
		b.Item[table.Attr(name, table.FieldBalance)] = whole(quota.Share(params.Capacity, b.ShardCount))
		if l.IsQuota() {
			b.Item[table.Attr(name, table.FieldGrant)] = whole(int64(b.ShardCount))
		}
	}
	return nil
}

// regrant has quotas count as granted their part that hold what was granted in no
// period of theirs. The next pass trims them to it.
func (h holding) regrant(b *table.Bucket, item table.Item, now int64) error {
	before, err := table.DecodeBucket(item)
	if err != nil {
		return err
	}
	for _, l := range h.limits {
		if b.Regrants(l.Name, &before.Bucket, now) {
			b.Item[table.Attr(l.Name, table.FieldGrant)] = whole(int64(b.ShardCount))
			delete(b.Item, table.Attr(l.Name, table.FieldTopUp))
		}
	}
	return nil
}

// set sets attributes, and removes those that are nil.
func set(item, values table.Item) {
	for name, value := range values {
		if item[name] = value; value == nil {
			delete(item, name)
		}
	}
}

// admit stamps whether the bucket is disabled or bypassed.
func (h holding) admit(item table.Item, until int64) {
	delete(item, table.AttrDisabled)
	delete(item, table.AttrBypass)
	switch h.access {
	case Disabled:
		item[table.AttrDisabled] = &types.AttributeValueMemberBOOL{Value: true}
	case Bypass:
		item[table.AttrBypass] = whole(until)
	}
}

// relate stamps whose child the entity is, and whether the parent is to give too.
func (h holding) relate(item table.Item) {
	cascade := h.owner.Flag(table.AttrCascade)
	if h.cascade != nil {
		cascade = *h.cascade
	}
	item[table.AttrCascade] = &types.AttributeValueMemberBOOL{Value: cascade}
	set(item, table.Item{table.AttrParentID: nil})
	if h.owner == nil {
		return
	}
	setText(item, table.AttrParentID, h.owner.Text(table.AttrParentID))
	for _, name := range []string{attrParentGeneration, attrIncarnation} {
		if value := h.owner[name]; value != nil {
			item[name] = value
		}
	}
}

// keepOthers keeps limits on an item that a program does not declare: they may be
// another program's, or another version's, and one that came again would be
// granted anew. What they have by the item's defaults, which go, becomes their
// own. The error wraps ErrLimit.
func (h holding) keepOthers(next, item table.Item) error {
	scheduled := false
	for attr := range item {
		limit, field, ok := table.SplitAttr(attr)
		if !ok || field != table.FieldBalance || limit == quota.WriteMeter || h.has(limit) {
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
	case !equal(theirs, ours):
		return fmt.Errorf("%w: a bucket has one zone, and has a limit of another program in another", ErrLimit)
	}
	return nil
}

func (h holding) has(limit string) bool {
	return slices.ContainsFunc(h.limits, func(l Limit) bool { return l.Name == limit })
}

// strip takes limits off that hold no more.
func (h holding) strip(item table.Item) {
	for attr := range maps.Clone(item) {
		limit, _, ok := table.SplitAttr(attr)
		if !ok || limit == quota.WriteMeter {
			continue
		}
		if !h.has(limit) {
			delete(item, attr)
		}
	}
}

// changed is what makes one item another, as long as it says of all that is
// changed what it said, but for the valid-until, and has the shard count that
// parts were taken at. A valid-until of 0 is written also where it was 0: a use
// that looked at the old terms may have stamped another meanwhile.
func changed(from, to table.Item) table.Amendment {
	a := table.Amendment{Set: table.Item{}}
	expect := func(name string) {
		if name != table.AttrValidUntil && name != table.AttrShardCount {
			a.Expect = append(a.Expect, table.NamedValue{Name: name, Value: from[name]})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(to)) {
		if !equal(from[name], to[name]) || name == table.AttrValidUntil && equal(to[name], whole(0)) {
			a.Set[name] = to[name]
			expect(name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(from)) {
		if to[name] == nil {
			a.Remove = append(a.Remove, name)
			expect(name)
		}
	}
	if count := from[table.AttrShardCount]; count != nil {
		a.Expect = append(a.Expect, table.NamedValue{Name: table.AttrShardCount, Value: count})
	}
	return a
}

func equal(a, b types.AttributeValue) bool {
	return a != nil && table.Equal(table.Item{"": a}, table.Item{"": b})
}

// Bounds of a bucket's expiry.
const (
	expiryPeriods = 7      // how many of its longest period an unused bucket outlives
	maxExpiry     = 20_000 // days
)

// expiry is when a bucket that is used at now may go if it is not used again,
// epoch seconds: after everything on it would have recovered several times over,
// and its debts are repaid.
func expiry(b *quota.Bucket, now int64) int64 {
	longest := int64(1000)
	for i := range b.Limits {
		longest = max(longest, recovery(&b.Limits[i], now))
	}
	const most = maxExpiry * 24 * 3600 * 1000 / (expiryPeriods + 1)
	return now/1000 + (expiryPeriods*min(longest, most)+min(repaid(b), most))/1000 + 1
}

// repaid is how long it takes until no limit that drips is in debt, milliseconds.
// A quota's debt is forgiven when it is restored.
func repaid(b *quota.Bucket) int64 {
	var longest int64
	for i := range b.Limits {
		l := &b.Limits[i]
		if l.Kind() == quota.Dripping && l.Balance < 0 {
			owed := l.Base
			owed.Capacity = -l.Balance
			longest = max(longest, slowest(l, owed)*int64(max(1, b.ShardCount)))
		}
	}
	return longest
}

// recovery is how long a limit takes to recover in full, milliseconds: at the
// slowest that its schedule makes it, or the longest of the periods to come.
func recovery(l *quota.Limit, now int64) int64 {
	switch l.Kind() {
	case quota.Session:
		return l.Window.Length
	case quota.Calendar:
		longest, at := int64(0), now
		for range 5 {
			edge, ok := l.Resets.Next(at)
			if !ok {
				break
			}
			longest, at = max(longest, edge-at), edge
		}
		return longest
	}
	return slowest(l, l.Base)
}

// slowest is how long an amount of a limit takes to drip at the slowest that the
// limit's schedule makes it, milliseconds; the amount is the capacity of base.
func slowest(l *quota.Limit, base quota.Params) int64 {
	longest := fill(base)
	for _, entry := range l.Schedule.Entries() {
		if params, err := entry.Apply(l.Base); err == nil {
			if base.Capacity != l.Base.Capacity {
				params.Capacity = base.Capacity
			}
			longest = max(longest, fill(params))
		}
	}
	return longest
}

// fill is how long a limit takes from nothing to its capacity, milliseconds.
func fill(p quota.Params) int64 {
	if p.Refill <= 0 {
		return 0
	}
	return int64(min(float64(p.Capacity)/float64(p.Refill)*float64(p.Period), 1e15))
}
