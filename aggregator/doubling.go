package aggregator

import (
	"context"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/sharding"
	"github.com/shardquota/shardquota/table"
)

// doubling is one raise of shard 0's count that the batch saw.
type doubling struct {
	group    table.Group
	from, to int
	written  int64          // epoch ms
	zero     *quota.Bucket  // shard 0 as it was seen last
	legacy   []quota.Freeze // the grants of shard 0's legacy quotas, as read before its count rose
}

func (r *run) doublings() []task {
	var tasks []task
	for _, b := range r.buckets {
		if d, index, ok := b.doubled(); ok {
			tasks = append(tasks, task{StepShard, index, d})
		}
	}
	return tasks
}

// do raises the siblings and creates the missing shards.
func (d doubling) do(ctx context.Context, r *run) error {
	if !quota.IsCount(d.to) {
		r.report.decline(d.group, d.from, d.from, sharding.BadCount)
		return nil
	}
	if err := r.Store.Outlive(ctx, d.group, d.zero.OutliveAnother(r.clock(d.written))); err != nil {
		return err
	}
	if err := freeze(ctx, r, d.group.At(0), d.legacy); err != nil {
		return err
	}
	siblings, err := d.raise(ctx, r)
	if err != nil {
		return err
	}
	for shard := d.from; shard < d.to; shard++ {
		switch reason, err := d.ensure(ctx, r, siblings, shard); {
		case err != nil:
			return err
		case reason == sharding.ShardExists || reason == sharding.DonorLost:
			r.report.decline(d.group, shard, shard, reason)
		case reason != "":
			r.report.decline(d.group, shard, d.to-1, reason)
			return nil
		}
	}
	return nil
}

// freeze stores the grant counts of legacy quotas on shard 0. At the new count, a
// balance that is half spent would read as a smaller grant, and the rest of the
// grant would be granted again.
func freeze(ctx context.Context, r *run, zero table.Key, legacy []quota.Freeze) error {
	if len(legacy) == 0 {
		return nil
	}
	return r.Store.Freeze(ctx, zero, legacy)
}

// raise raises the siblings that lag, and returns all shards by index.
func (d doubling) raise(ctx context.Context, r *run) ([]table.Sibling, error) {
	siblings, err := r.Store.RaiseAndRead(ctx, d.group, d.to, r.clock(d.written))
	if err != nil {
		return nil, err
	}
	for shard, sibling := range siblings {
		if sibling.Raised {
			r.report.raise(d.group.At(shard), d.to)
		}
	}
	return siblings, nil
}

// ensure creates one shard unless it exists, and returns why it did not, "" where
// it did. Where a donor changed after it was read, ensure reads the siblings once
// more.
func (d doubling) ensure(ctx context.Context, r *run, siblings []table.Sibling, shard int) (sharding.Refusal, error) {
	var refused sharding.Refusal
	for attempt := range 2 {
		if attempt > 0 {
			again, err := d.raise(ctx, r)
			if err != nil {
				return "", err
			}
			copy(siblings, again)
		}
		var err error
		if refused, err = d.create(ctx, r, siblings, shard); err != nil || refused != sharding.DonorLost {
			return refused, err
		}
	}
	return refused, nil
}

// create plans and puts one shard, and returns why it did not, "" where it did. It
// adds the new shard to the siblings and takes what was moved off their balances.
func (d doubling) create(ctx context.Context, r *run, siblings []table.Sibling, shard int) (sharding.Refusal, error) {
	plan := sharding.Request{Siblings: siblings, Shard: shard, Count: d.to, Now: r.clock(d.written)}.Plan()
	if plan.Refused != "" {
		return plan.Refused, nil
	}
	outcome, err := r.Store.Create(ctx, plan.Creation)
	if err != nil || outcome != table.Created {
		return sharding.RefusalOf(outcome), err
	}
	r.report.created(d.group.At(shard), d.to, plan.Fundings)
	siblings[shard].Bucket = plan.Creation.Bucket
	for _, move := range plan.Creation.Moves {
		siblings[move.Donor].Bucket.Limit(move.Limit).Balance -= move.Amount
	}
	return "", nil
}
