package aggregator

import (
	"context"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// doubling is one raise of shard 0's count that the batch saw.
type doubling struct {
	group    table.Group
	from, to int
	written  int64          // epoch ms
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

// do raises the siblings and creates the shards that are missing.
func (d doubling) do(ctx context.Context, r *run) error {
	if !quota.IsCount(d.to) {
		r.report.decline(d.group, d.from, d.from, table.BadCount)
		return nil
	}
	if err := freeze(ctx, r, d.group.At(0), d.legacy); err != nil {
		return err
	}
	family, err := d.raise(ctx, r)
	if err != nil {
		return err
	}
	for shard := d.from; shard < d.to; shard++ {
		switch reason, err := d.ensure(ctx, r, family, shard); {
		case err != nil:
			return err
		case reason == table.ShardExists || reason == table.DonorLost:
			r.report.decline(d.group, shard, shard, reason)
		case reason != "":
			r.report.decline(d.group, shard, d.to-1, reason)
			return nil
		}
	}
	return nil
}

// freeze stores the grant counts of legacy quotas on shard 0, if there are any.
// Read at its new count, a balance that is half spent would be taken for a
// smaller grant, and the rest of it be granted again.
func freeze(ctx context.Context, r *run, zero table.Key, legacy []quota.Freeze) error {
	if len(legacy) == 0 {
		return nil
	}
	return r.Store.Freeze(ctx, zero, legacy)
}

// family is all shards of a group by index, each at the doubling's count.
type family []table.Sibling

func (d doubling) raise(ctx context.Context, r *run) (family, error) {
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

// ensure creates one shard unless it is there, and says why not, "" where it
// did. Where a donor changed under the plan, the siblings are read once more.
func (d doubling) ensure(ctx context.Context, r *run, f family, shard int) (table.Refusal, error) {
	var refused table.Refusal
	for attempt := range 2 {
		if attempt > 0 {
			again, err := d.raise(ctx, r)
			if err != nil {
				return "", err
			}
			copy(f, again)
		}
		var err error
		if refused, err = d.create(ctx, r, f, shard); err != nil || refused != table.DonorLost {
			return refused, err
		}
	}
	return refused, nil
}

// create plans and puts one shard, and says why not, "" where it did. A created
// shard joins the family, and what it was moved is gone from its donors.
func (d doubling) create(ctx context.Context, r *run, f family, shard int) (table.Refusal, error) {
	plan := table.ShardRequest{Siblings: f, Shard: shard, Count: d.to, Now: r.clock(d.written)}.Plan()
	if plan.Refused != "" {
		return plan.Refused, nil
	}
	outcome, err := r.Store.Create(ctx, plan.Creation)
	if err != nil || outcome != table.Created {
		return outcome.Refusal(), err
	}
	r.report.created(d.group.At(shard), d.to, plan.Fundings)
	f[shard].Bucket = plan.Creation.Bucket
	for _, move := range plan.Creation.Moves {
		f[move.Donor].Bucket.Limit(move.Limit).Balance -= move.Amount
	}
	return "", nil
}
