package replay

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/memory"
)

// driver lets a recording drive a table in memory: it stands for the clients
// that wrote while the recording was made.
//
// What they consumed and what operators changed is copied. What followed from
// the rules (restores, trims, moves, the funding of a shard that appears) is
// done again on the table as it stands, which the aggregator under test has
// changed too. So the ledger closes whoever ran when the recording was made.
type driver struct {
	store   *memory.Store
	applied map[itemID]string // the mark of the last record applied, by item
}

type itemID struct{ PK, SK string }

// newDriver drives a table that may hold items already. How far the records of
// a bucket were applied to it is told by the last one that its usage has
// counted. Usage may have missed some before that; the bucket has not, so that
// they are counted and not applied.
func newDriver(store *memory.Store) *driver {
	d := &driver{store: store, applied: map[itemID]string{}}
	for _, item := range store.Items() {
		key, _, err := table.ParseUsage(item)
		if err != nil {
			continue
		}
		for shard, mark := range item.LastPositions() {
			id := itemID{key.At(shard).PK(), table.StateSK}
			d.applied[id] = max(d.applied[id], mark)
		}
	}
	return d
}

// apply applies a record to the table, unless it was applied before, and
// returns it with the images that the table now has.
func (d *driver) apply(ctx context.Context, x aggregator.Delivery) (driven aggregator.Delivery, applied bool, err error) {
	if x.Err != nil {
		return x, false, nil
	}
	id, ok := identify(x.Record)
	mark, err := events.StreamPosition(x.Record.Stream, x.Record.Sequence)
	if !ok || err != nil || mark <= d.applied[id] {
		return x, false, nil // a record that cannot be placed changes nothing here
	}
	d.applied[id] = mark
	switch {
	case x.Record.EventName == events.Remove:
		d.store.Delete(id.PK, id.SK)
	case x.Change != nil:
		x.Change, err = d.rewrite(ctx, x.Change)
	case !strings.HasPrefix(id.SK, table.UsageSK):
		d.put(id, x.Record.New)
	}
	return x, true, err
}

func identify(record events.Record) (itemID, bool) {
	keys, err := table.ParseItem(record.Keys)
	pk, sk := keys.Key()
	return itemID{pk, sk}, err == nil && pk != "" && sk != ""
}

// put stores an item that is no bucket and no usage as it was recorded. An image
// of another item than the record's keys say might be a bucket or usage after
// all, so that it is not looked at.
func (d *driver) put(id itemID, image json.RawMessage) {
	item, err := table.ParseItem(image)
	if pk, sk := item.Key(); err == nil && (itemID{pk, sk}) == id {
		d.store.Put(item)
	}
}

// rewrite applies a bucket's change to the table and returns it as the change
// that the table saw.
func (d *driver) rewrite(ctx context.Context, made *events.Change) (*events.Change, error) {
	c, err := whole(made)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", made.Position, err)
	}
	before, err := d.store.Read(ctx, c.New.Key)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", c.Position, err)
	}
	after, seen := (*table.Bucket)(nil), *made
	switch {
	case before != nil:
	case c.Old != nil:
		before = c.Old
	default:
		after, err = d.create(ctx, c)
	}
	if before != nil {
		after, err = change(before, c)
		seen.Old = asCounted(before, c.Old).Image()
	}
	if err != nil {
		return nil, fmt.Errorf("%v: %w", c.Position, err)
	}
	d.store.Put(after.Item)
	seen.New = asCounted(after, c.New).Image()
	return &seen, nil
}

// asCounted is a bucket of the table with the shard count that was recorded.
// Where the aggregator doubled the bucket since, the clients of the recording
// did not know: they go on as if it had not, and must not make it hot again.
func asCounted(b, recorded *table.Bucket) *table.Bucket {
	if recorded == nil || recorded.ShardCount >= b.ShardCount {
		return b
	}
	counted := new(*b)
	counted.ShardCount = recorded.ShardCount
	return counted
}

// create makes a shard that appears as a client would: where others are there,
// it raises them and funds the shard from them. What the shard's first use
// consumed is then taken off.
func (d *driver) create(ctx context.Context, c *recorded) (*table.Bucket, error) {
	zero, err := d.store.Read(ctx, c.New.Key.At(0))
	if err != nil || zero == nil || c.New.Broken != nil {
		return c.New, err
	}
	count, now := max(zero.ShardCount, c.New.ShardCount), c.New.RefilledAt
	if !quota.IsCount(count) {
		return c.New, nil
	}
	family, err := d.store.RaiseAndRead(ctx, c.New.Key.Group, count, now)
	if err != nil {
		return nil, err
	}
	plan := table.ShardRequest{
		Siblings: family, Shard: c.New.Key.Shard, Count: count, Now: now, Template: c.New, May: table.May{Recorded: true},
	}.Plan()
	if plan.Refused != "" {
		return c.New, nil
	}
	shard := plan.Creation.Bucket
	for i := range shard.Limits {
		limit, recorded := &shard.Limits[i], &c.New.Limits[i]
		limit.Balance -= recorded.Consumed
		limit.Consumed, limit.TopUp, limit.Window = recorded.Consumed, recorded.TopUp, recorded.Window
	}
	shard.ValidUntil = c.New.ValidUntil
	shard.Fill()
	return shard, d.debit(ctx, c.New.Key.Group, plan.Creation.Moves)
}

// debit takes what was moved off its donors.
func (d *driver) debit(ctx context.Context, group table.Group, moves []quota.Funding) error {
	for _, f := range moves {
		donor, err := d.store.Read(ctx, group.At(f.Donor))
		if err != nil {
			return err
		}
		donor.Limit(f.Limit).Balance -= f.Amount
		donor.Fill()
		d.store.Put(donor.Item)
	}
	return nil
}
