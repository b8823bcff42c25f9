package replay

import (
	"context"
	"maps"
	"slices"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// groups remembers which buckets a recording touched, and the time of its newest
// record.
type groups struct {
	seen map[table.Group]bool
	last int64 // time of the newest record, epoch ms
}

func newGroups() *groups { return &groups{seen: map[table.Group]bool{}} }

func (g *groups) see(batch []aggregator.Delivery, clock aggregator.Clock) {
	for _, delivery := range batch {
		if delivery.Record.Err == nil {
			g.last = max(g.last, clock(delivery.Record.Time))
		}
		if delivery.Change != nil {
			g.seen[delivery.Change.New.Key.Group] = true
		}
	}
}

// audit reads every shard of every group, in order. It returns a row for each quota, and one
// for each limit with a division of its own.
func (g *groups) audit(ctx context.Context, store table.Store) (rows []LedgerRow, divisions []DivisionRow, err error) {
	for _, group := range slices.SortedFunc(maps.Keys(g.seen), table.Group.Compare) {
		shards, err := shardsOf(ctx, store, group)
		if err != nil {
			return nil, nil, err
		}
		divisions = append(divisions, divisionsOf(group, shards, g.last)...)
		for _, name := range quota.LimitNames(shards, (*quota.Limit).IsQuota) {
			row, err := quota.Audit(name, shards, g.last)
			if err != nil {
				continue // a schedule that cannot be read; its records are rejected by name
			}
			rows = append(rows, LedgerRow{group, row})
		}
	}
	return rows, divisions, nil
}

func divisionsOf(group table.Group, shards []*quota.Bucket, now int64) []DivisionRow {
	var rows []DivisionRow
	for _, name := range quota.LimitNames(shards, func(l *quota.Limit) bool { return l.Division != quota.Divided }) {
		if summary, ok, err := quota.Summarize(name, shards, now); ok && err == nil {
			rows = append(rows, DivisionRow{group, summary})
		}
	}
	return rows
}

func shardsOf(ctx context.Context, store table.Store, group table.Group) ([]*quota.Bucket, error) {
	var shards []*quota.Bucket
	for shard := 0; shard < quota.MaxShards; shard++ {
		b, err := store.Read(ctx, group.At(shard))
		if err != nil {
			return nil, err
		}
		if b != nil {
			shards = append(shards, &b.Bucket)
		}
		if shard == 0 && b != nil && b.ShardCount == 1 {
			break // the common case, at one read
		}
	}
	return shards, nil
}
