package replay

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/sharding"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/memory"
)

// driver lets a recording drive a table in memory. It stands for the clients that
// wrote while the recording was made.
//
// The driver copies what they consumed and what operators changed. It does by the
// rules again what followed from the rules: restores, trims, moves, and the
// funding of a new shard. It does so on the table as it is, which the aggregator
// under test has changed too. So the ledger closes whichever programs ran when the
// recording was made.
type driver struct {
	store   *memory.Store
	applied map[itemID]string // the stream position of the last record applied, by item
}

type itemID struct{ PK, SK string }

// newDriver drives a table that may hold items already. The last record that a
// bucket's usage has counted tells how far the recording was applied to that
// bucket. Usage may have missed some records before it, which the bucket did not
// miss: they are counted and not applied.
func newDriver(store *memory.Store) *driver {
	d := &driver{store: store, applied: map[itemID]string{}}
	for _, item := range store.Items() {
		key, _, err := table.ParseUsage(item)
		if err != nil {
			continue
		}
		for shard, position := range item.LastPositions() {
			id := itemID{key.At(shard).PK(), table.StateSK}
			d.applied[id] = max(d.applied[id], position)
		}
	}
	return d
}

// apply applies a record to the table, unless it was applied before. It returns
// the record with the images that the table has now.
func (d *driver) apply(ctx context.Context, x aggregator.Delivery) (driven aggregator.Delivery, applied bool, err error) {
	if x.Err != nil {
		return x, false, nil
	}
	id, ok := identify(x.Record)
	position, err := events.StreamPosition(x.Record.Stream, x.Record.Sequence)
	if !ok || err != nil || position <= d.applied[id] {
		return x, false, nil // a record that cannot be placed changes nothing here
	}
	d.applied[id] = position
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

// put stores an item that is neither a bucket nor usage as it was recorded. It
// ignores an image of another item than the record's keys name, since that item
// might be a bucket or usage.
func (d *driver) put(id itemID, image json.RawMessage) {
	item, err := table.ParseItem(image)
	if pk, sk := item.Key(); err == nil && (itemID{pk, sk}) == id {
		d.store.Put(item)
	}
}

// rewrite applies a bucket's change to the table and returns the change that the
// table saw.
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

// asCounted returns a bucket of the table with the recorded shard count. Where the
// aggregator under test has doubled the bucket since, the recorded clients did not
// know. They go on as before, and must not heat the bucket again.
func asCounted(b, recorded *table.Bucket) *table.Bucket {
	if recorded == nil || recorded.ShardCount >= b.ShardCount {
		return b
	}
	counted := new(*b)
	counted.ShardCount = recorded.ShardCount
	return counted
}

// create makes a shard that appears in the recording as a client would: it raises
// the other shards and funds the new one from them. Then it charges what the first
// use consumed. It takes the shard as recorded where it cannot be funded.
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
	plan := sharding.Request{
		Siblings: family, Shard: c.New.Key.Shard, Count: count, Now: now, Template: c.New, May: sharding.May{Recorded: true},
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

// debit takes the moves off their donors.
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
