package aggregator

import (
	"context"
	"sync"
	"sync/atomic"
)

// task is one independent part of a batch.
type task struct {
	step  Step
	index int // place in the batch of the first record that is lost if the task is
	work
}

// work is what a task does. A batch has thousands of tasks. So the types of work
// are pointers, or structs of one pointer: such a task costs no allocation.
type work interface {
	do(ctx context.Context, run *run) error
}

// each runs tasks, at most as many at once as the aggregator allows. A task fails
// alone, also where ctx leaves no time for it.
func (r *run) each(ctx context.Context, tasks []task) {
	var workers sync.WaitGroup
	var taken atomic.Int64
	for range min(r.concurrency(), len(tasks)) {
		workers.Go(func() {
			for i := taken.Add(1); i <= int64(len(tasks)); i = taken.Add(1) {
				r.attempt(ctx, tasks[i-1])
			}
		})
	}
	workers.Wait()
}

func (r *run) attempt(ctx context.Context, t task) {
	err := ctx.Err()
	if err == nil {
		err = t.do(ctx, r)
	}
	if err != nil {
		r.report.fail(t.index, t.step, err)
	}
}

func (a *Aggregator) concurrency() int {
	if a.Concurrency > 0 {
		return a.Concurrency
	}
	return DefaultConcurrency
}
