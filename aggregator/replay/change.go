package replay

import (
	"reflect"

	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// recorded is a change with its whole images.
type recorded struct {
	*events.Change
	Old *table.Bucket // nil where the write created the bucket
	New *table.Bucket
}

func whole(c *events.Change) (*recorded, error) {
	r := &recorded{Change: c}
	var err error
	if r.New, err = c.New.DecodeFull(); err == nil && c.Old != nil {
		r.Old, err = c.Old.DecodeFull()
	}
	return r, err
}

// change returns the bucket as a recorded change leaves it.
func change(before *table.Bucket, c *recorded) (*table.Bucket, error) {
	var from table.Item
	if c.Old != nil {
		from = c.Old.Item
	}
	after, err := table.DecodeBucket(patch(before.Item, from, c.New.Item))
	if err != nil {
		return nil, err
	}
	raise(after, before, c)
	regrant(after, before, c)
	passed := pass(after, before, c)
	for i := range after.Limits {
		account(&after.Limits[i], after.RefilledAt, c)
	}
	if passed || !passRecorded(c) && !same(c.Old.ValidUntil, c.New.ValidUntil) {
		after.ValidUntil = c.New.ValidUntil
	}
	after.Fill()
	return after, nil
}

// patch returns the item with the attributes that a change set, and without those
// that it removed. It leaves the attributes that follow from the rules. A limit
// comes or goes with all its attributes.
func patch(item, from, to table.Item) table.Item {
	patched := item.Clone()
	for name, value := range to {
		if !reflect.DeepEqual(from[name], value) && (!accounted(name) || arrives(name, item)) {
			patched[name] = value
		}
	}
	for name := range from {
		if to[name] == nil && (!accounted(name) || leaves(name, to)) {
			delete(patched, name)
		}
	}
	return patched
}

// arrives reports whether an attribute belongs to a limit that the item does not
// have yet.
func arrives(name string, item table.Item) bool {
	limit, _, ok := table.SplitAttr(name)
	return ok && item[table.Attr(limit, table.FieldBalance)] == nil
}

// leaves reports whether an attribute belongs to a limit that the new image does
// not have.
func leaves(name string, to table.Item) bool {
	limit, _, ok := table.SplitAttr(name)
	return ok && to[table.Attr(limit, table.FieldBalance)] == nil
}

// accounted reports whether an attribute follows from the rules and is not copied.
func accounted(name string) bool {
	switch name {
	case table.AttrRefilledAt, table.AttrValidUntil, table.AttrShardCount:
		return true
	}
	_, field, ok := table.SplitAttr(name)
	if !ok {
		return false
	}
	switch field {
	case table.FieldBalance, table.FieldConsumed, table.FieldGrant, table.FieldTopUp,
		table.FieldStart, table.FieldApplied, table.FieldConsumedAtOpen:
		return true
	}
	return false
}

// raise sets a shard count that rises, never one that falls. It freezes a legacy
// quota's grant at its size before that.
func raise(after, before *table.Bucket, c *recorded) {
	if c.New.ShardCount <= after.ShardCount {
		return
	}
	for _, freeze := range quota.FrozenGrants(&before.Bucket, c.Time) {
		if limit := after.Limit(freeze.Limit); limit != nil {
			limit.Grant = new(freeze.Grant)
		}
	}
	after.ShardCount = c.New.ShardCount
}

// regrant stamps a quota as granted its own slot where an operator's change did:
// what the shard holds was granted in no period of its new terms.
func regrant(after, before *table.Bucket, c *recorded) {
	if passRecorded(c) {
		return
	}
	for i := range after.Limits {
		limit := &after.Limits[i]
		is := c.New.Limit(limit.Name)
		if is != nil && is.Grant != nil && *is.Grant == c.New.ShardCount && after.Regrants(limit.Name, &before.Bucket, c.Time) {
			limit.Grant, limit.TopUp = new(after.ShardCount), 0
		}
	}
}

// pass makes a recorded pass again on the table's own balances, and reports
// whether there was one that is later than the table's last. The writer of an
// earlier one would have lost the lock.
func pass(after, before *table.Bucket, c *recorded) bool {
	if c.New.RefilledAt <= after.RefilledAt || !passRecorded(c) {
		return false
	}
	for i := range after.Limits {
		reopen(&after.Limits[i], after.ShardCount, before, c)
	}
	plan, err := quota.Materialise(&after.Bucket, nil, c.New.RefilledAt)
	if err != nil {
		plan = &quota.Pass{RefilledAt: c.New.RefilledAt}
	}
	plan.Apply(&after.Bucket)
	copyDrips(after, before, c)
	return true
}

// passRecorded reports whether a change contains a pass. A creation does.
func passRecorded(c *recorded) bool { return c.Old == nil || c.Old.RefilledAt != c.New.RefilledAt }

// copyDrips copies the balance that a recorded pass left of each dripping limit,
// before its consumption. A pass of the aggregator since the recorded pass before
// credited part of the same drip. So the two tables agree again, also on a
// writer's wrong clock and on an operator's changes.
func copyDrips(after, before *table.Bucket, c *recorded) {
	if c.Old == nil || before.RefilledAt < c.Old.RefilledAt || before.ShardCount != c.Old.ShardCount {
		return
	}
	for i := range after.Limits {
		limit := &after.Limits[i]
		was, is := c.Old.Limit(limit.Name), c.New.Limit(limit.Name)
		if !limit.IsQuota() && was != nil && is != nil {
			limit.Balance = is.Balance + is.Consumed - was.Consumed
		}
	}
}

// reopen starts a quota's period where the recorded pass did so by no rule: a use
// opened a session window, or an operator restored the quota.
func reopen(limit *quota.Limit, count int, before *table.Bucket, c *recorded) {
	is := c.New.Limit(limit.Name)
	if is == nil || !limit.IsQuota() {
		return
	}
	opened := limit.Kind() == quota.Session && same(is.Window.Start, is.Window.Applied) &&
		!same(is.Window.Start, limit.Window.Start) && is.Window.Start != nil
	if opened {
		later := limit.Window.Start == nil || *is.Window.Start > *limit.Window.Start
		limit.Window.Start, limit.Window.Applied, limit.Window.ConsumedAtOpen = is.Window.Start, is.Window.Applied, is.Window.ConsumedAtOpen
		if !later {
			return // an operator ended the window: the next use opens another
		}
	}
	if !opened && !operatorReset(limit.Name, before, c) {
		return
	}
	params, err := limit.Effective(c.New.RefilledAt)
	if err != nil {
		return
	}
	limit.Balance = quota.Share(params.Capacity, count)
	limit.Grant, limit.TopUp = new(count), 0
}

// operatorReset reports whether a change counts one more operator reset of a
// calendar quota that the table does not show yet.
func operatorReset(limit string, before *table.Bucket, c *recorded) bool {
	name := table.Attr(limit, table.FieldResetCount)
	return c.Old != nil && c.New.Item[name] != nil &&
		!reflect.DeepEqual(c.Old.Item[name], c.New.Item[name]) && !reflect.DeepEqual(before.Item[name], c.New.Item[name])
}

// account applies a change to one limit: it charges what the change consumed, adds
// an operator's top-up, and copies a window start that was propagated. Where a
// quota's balance fell by anything else without a pass, that was a move, which is
// not copied.
func account(limit *quota.Limit, refilled int64, c *recorded) {
	is := c.New.Limit(limit.Name)
	if is == nil {
		return
	}
	was := quota.Limit{Name: limit.Name}
	if c.Old != nil {
		old := c.Old.Limit(limit.Name)
		if old == nil {
			return // it arrived with this change, as recorded
		}
		was = *old
	}
	consumed := is.Consumed - was.Consumed
	added := toppedUp(limit.TopUp, was.TopUp, is.TopUp)
	other := is.Balance - was.Balance + consumed - max(0, is.TopUp-was.TopUp)
	if passRecorded(c) || limit.IsQuota() && other < 0 {
		other = 0
	}
	if overtaken(limit, refilled, is, c) {
		added, other = 0, 0
	}
	limit.Balance += other + added - consumed
	limit.Consumed += consumed
	limit.TopUp += added
	if limit.Grant == nil && limit.IsQuota() {
		limit.Grant = is.Grant
	}
	propagate(&limit.Window, was.Window, is.Window, limit.Consumed-consumed)
}

// overtaken reports whether the table's quota is in a later period than the
// recorded one. An operator's additions to the recorded period have then ended.
func overtaken(limit *quota.Limit, refilled int64, is *quota.Limit, c *recorded) bool {
	switch limit.Kind() {
	case quota.Calendar:
		return !limit.Current(c.New.RefilledAt, refilled)
	case quota.Session:
		return is.Window.Start != nil && limit.Window.Start != nil && *is.Window.Start < *limit.Window.Start
	}
	return false
}

// toppedUp returns what an operator added by a change, 0 where the table shows it
// already: a recording may be replayed over the table that it left.
func toppedUp(here, was, is int64) int64 {
	if here != was && here >= is {
		return 0
	}
	return max(0, is-was)
}

// propagate copies a window start that another shard's opener wrote, and stores
// the total consumed so far, from which the roll will charge.
func propagate(window *quota.Window, was, is quota.Window, consumed int64) {
	if is.Start == nil || same(was.Start, is.Start) || window.Start != nil && *window.Start >= *is.Start {
		return
	}
	window.Start = is.Start
	if is.ConsumedAtOpen != nil {
		window.ConsumedAtOpen = &consumed
	}
}

// same reports whether both times are equal or absent.
func same(a, b *int64) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }
