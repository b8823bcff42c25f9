package aggregator

import (
	"context"
	"fmt"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// bucketTasks makes the tasks for each bucket's last image: one that writes a pass
// if the image needs it, and one that doubles a hot shard 0.
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

// refreshTask writes the pass that one bucket needs.
type refreshTask struct{ *bucket }

// do writes the pass that the bucket's last image calls for. Where the item has
// changed since, the refused write returns it, and do plans once more from that.
//
// The first attempt restores only if the balances are exactly as read: what was
// spent since is most likely of the old period, and the new one must not pay for
// it. The second attempt adds to the balance, so that spending cannot refuse it
// for ever.
func (b refreshTask) do(ctx context.Context, r *run) error {
	last := b.last()
	now, demand := r.clock(last.Time), b.demand()
	seen, current := &last.New.Bucket, (*table.Bucket)(nil)
	if err := r.Store.Outlive(ctx, b.key.Group, seen.Outlive(now)); err != nil {
		return err
	}
	for attempt := range 2 {
		pass, err := quota.PlanPass(seen, demand, now)
		if err != nil || pass == nil {
			return nil // bucketTasks reports what cannot be read
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
			return nil // gone, or another writer passed it as late as this, whose record is still to come
		}
		seen = &current.Bucket
	}
	return nil
}

// double doubles the shards of a hot bucket.
type double struct{ *bucket }

// do doubles the count with which the hot shard 0 was last seen, unless somebody
// else has.
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
