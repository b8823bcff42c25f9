package replay

import (
	"cmp"
	"context"
	"slices"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// groups remembers which buckets a recording touched, and when last.
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

// audit reads every shard of every group and draws up a row for each quota, and
// one for each limit that is not simply divided.
func (g *groups) audit(ctx context.Context, store table.Store) (rows []LedgerRow, spreads []SpreadRow, err error) {
	for group := range g.seen {
		shards, err := shardsOf(ctx, store, group)
		if err != nil {
			return nil, nil, err
		}
		spreads = append(spreads, spreadsOf(group, shards, g.last)...)
		for _, name := range quotas(shards) {
			row, err := quota.Audit(name, shards, g.last)
			if err != nil {
				continue // a schedule that cannot be read; its records are rejected by name
			}
			rows = append(rows, LedgerRow{group, row})
		}
	}
	slices.SortFunc(rows, func(a, b LedgerRow) int {
		return cmp.Or(a.Group.Compare(b.Group), cmp.Compare(a.Row.Limit, b.Row.Limit))
	})
	slices.SortFunc(spreads, func(a, b SpreadRow) int {
		return cmp.Or(a.Group.Compare(b.Group), cmp.Compare(a.DivisionSummary.Limit, b.DivisionSummary.Limit))
	})
	return rows, spreads, nil
}

func spreadsOf(group table.Group, shards []*quota.Bucket, now int64) []SpreadRow {
	var rows []SpreadRow
	for _, name := range limits(shards, func(l *quota.Limit) bool { return l.Division != quota.Divided }) {
		if spread, ok, err := quota.Summarize(name, shards, now); ok && err == nil {
			rows = append(rows, SpreadRow{group, spread})
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

func quotas(shards []*quota.Bucket) []string { return limits(shards, (*quota.Limit).IsQuota) }

// limits are the names of the limits of some kind, sorted.
func limits(shards []*quota.Bucket, of func(*quota.Limit) bool) []string {
	var names []string
	for _, b := range shards {
		for i := range b.Limits {
			limit := &b.Limits[i]
			if of(limit) && !slices.Contains(names, limit.Name) {
				names = append(names, limit.Name)
			}
		}
	}
	slices.Sort(names)
	return names
}
