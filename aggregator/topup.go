package aggregator

import (
	"context"
	"fmt"
	"slices"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// bucketTasks makes the tasks that look at one bucket's last image: whether it
// needs a pass, and whether shard 0 is to be doubled.
func (r *run) bucketTasks(buckets []*bucket) (passes, doubles []task) {
	for _, b := range buckets {
		last := b.last()
		if err := last.New.Readable(r.clock(last.Time)); err != nil {
			r.report.reject(last.index, last.Record, fmt.Errorf("bucket left alone, usage counted: %w", err))
			continue
		}
		passes = append(passes, task{StepPass, b.sinceLastPass()[0].index, b.topUp})
		if b.pressed() {
			doubles = append(doubles, task{StepDouble, b.writes[0].index, b.double})
		}
	}
	return passes, doubles
}

// topUp writes the passes that the bucket's writes call for, each judged by the
// demand of the write itself. The writes are walked from the first since the
// last pass they show, and not only the last one looked at, so that what is
// done does not depend on how the stream was cut into batches.
func (b *bucket) topUp(ctx context.Context, r *run) error {
	var done []*quota.Pass
	for _, w := range b.sinceLastPass() {
		image := after(w.New, done)
		pass, err := quota.PlanPass(&image.Bucket, w.consumed, r.clock(w.Time))
		if err != nil || pass == nil {
			continue // left alone; bucketTasks names what cannot be read
		}
		result, err := r.Store.Pass(ctx, image, pass)
		if err != nil {
			return err
		}
		if !result.Applied {
			r.report.lost()
			return b.again(ctx, r, result.Current)
		}
		r.report.passed(b.key, pass)
		done = append(done, pass)
	}
	return nil
}

// again judges the bucket once more, as the refusal of a pass says that it is
// now.
func (b *bucket) again(ctx context.Context, r *run, current *table.Bucket) error {
	if current == nil {
		return nil
	}
	last := b.last()
	pass, err := quota.PlanPass(&current.Bucket, last.consumed, r.clock(last.Time))
	if err != nil || pass == nil {
		return nil //nolint:nilerr // left alone, as in topUp
	}
	result, err := r.Store.Pass(ctx, current, pass)
	switch {
	case err != nil:
		return err
	case result.Applied:
		r.report.passed(b.key, pass)
	default:
		r.report.lost()
	}
	return nil
}

// sinceLastPass is the writes from the last one on that moved the bucket's
// lock, or that changed what a pass is pinned to.
func (b *bucket) sinceLastPass() []write {
	last := &b.last().New.Bucket
	first := len(b.writes) - 1
	for first > 0 && last.SamePins(&b.writes[first-1].New.Bucket) {
		first--
	}
	return b.writes[first:]
}

// after is an image with passes applied that it does not show yet.
func after(image *table.Bucket, passes []*quota.Pass) *table.Bucket {
	if len(passes) == 0 {
		return image
	}
	applied := new(*image)
	applied.Limits = slices.Clone(image.Limits)
	for _, pass := range passes {
		pass.Apply(&applied.Bucket)
	}
	return applied
}

// double sets twice the count that the hot shard 0 was last seen with, unless
// someone else has.
func (b *bucket) double(ctx context.Context, r *run) error {
	last := b.last()
	from := last.New.Count
	if err := freeze(ctx, r, b.key, quota.Freezes(&last.New.Bucket, r.clock(last.Time))); err != nil {
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
