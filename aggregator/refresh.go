package aggregator

import (
	"context"
	"fmt"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// bucketTasks makes the tasks that look at one bucket's last image: whether it
// needs a pass, and whether shard 0 is to be doubled.
func (r *run) bucketTasks() (passes, doubles []task) {
	passes = make([]task, 0, len(r.buckets))
	for _, b := range r.buckets {
		last := b.last()
		if err := last.New.Readable(r.clock(last.Time)); err != nil {
			r.report.reject(last.index, last.Record, fmt.Errorf("bucket left alone, usage counted: %w", err))
			continue
		}
		passes = append(passes, task{StepPass, b.first, refreshTask{b}})
		if b.pressed() {
			doubles = append(doubles, task{StepDouble, b.first, double{b}})
		}
	}
	return passes, doubles
}

// refreshTask looks after one bucket.
type refreshTask struct{ *bucket }

// do writes the pass that the bucket's last image calls for. Where the item has
// moved on since, the refusal says what it is now, and it is judged once more as
// that.
//
// A restore is first tried on the balances exactly as read: what was spent
// since is most likely of the old period, and is not to be charged to the new
// one. The second time it is an addition, so that it cannot lose to spending
// for ever.
func (b refreshTask) do(ctx context.Context, r *run) error {
	last := b.last()
	now, demand := r.clock(last.Time), b.demand()
	seen, current := &last.New.Bucket, (*table.Bucket)(nil)
	for attempt := range 2 {
		pass, err := quota.PlanPass(seen, demand, now)
		if err != nil || pass == nil {
			return nil // left alone; bucketTasks names what cannot be read
		}
		pass.Exact = attempt == 0 && pass.Restores()
		if current == nil {
			if current, err = last.New.DecodeFull(); err != nil {
				return err
			}
		}
		result, err := r.Store.Pass(ctx, current, pass)
		if err != nil {
			return err
		}
		if result.Applied {
			r.report.passed(b.key, pass)
			return nil
		}
		r.report.lost()
		if current = result.Current; current == nil || current.RefilledAt >= pass.RefilledAt {
			return nil // gone, or passed as late as this one by someone whose own record is to come
		}
		seen = &current.Bucket
	}
	return nil
}

// double doubles the shards of a hot bucket.
type double struct{ *bucket }

// do sets twice the count that the hot shard 0 was last seen with, unless
// someone else has.
func (b double) do(ctx context.Context, r *run) error {
	last := b.last()
	from := last.New.ShardCount
	if err := freeze(ctx, r, b.key, quota.FrozenGrants(&last.New.Bucket, r.clock(last.Time))); err != nil {
		return err
	}
	result, err := r.Store.Double(ctx, b.key.Group, from)
	if err != nil {
		return err
	}
	if result.Applied {
		r.report.doubled(b.key.Group, from)
	}
	return nil
}
