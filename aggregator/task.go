package aggregator

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// task is one independent part of a batch.
type task struct {
	step  Step
	index int // place in the batch of the first record that is lost if the task is
	do    func(ctx context.Context, run *run) error
}

// each runs tasks, so many at once as the aggregator allows. A task that fails,
// or that ctx leaves no time for, fails its records and nothing else.
func (r *run) each(ctx context.Context, tasks []task) {
	var group errgroup.Group
	group.SetLimit(r.concurrency())
	for _, t := range tasks {
		group.Go(func() error {
			err := ctx.Err()
			if err == nil {
				err = t.do(ctx, r)
			}
			if err != nil {
				r.report.fail(t.index, t.step, err)
			}
			return nil
		})
	}
	_ = group.Wait()
}

func (a *Aggregator) concurrency() int {
	if a.Concurrency > 0 {
		return a.Concurrency
	}
	return DefaultConcurrency
}
