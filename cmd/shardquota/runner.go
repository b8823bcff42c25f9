package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/events/delivery"
	"github.com/shardquota/shardquota/table"
)

const (
	// batchTime is how long a batch may take before the rest of it is delivered
	// again: the deployed function's time, less its reserve.
	batchTime = 58 * time.Second
	// maxBatches bounds the batches under way, over all lanes.
	maxBatches = 8
	// saveEvery is the time between two writes of the checkpoint.
	saveEvery = time.Second
)

// runner calls the aggregator with batches of a live stream, as an event source
// mapping would.
type runner struct {
	live
	function   aggregator.Function
	config     delivery.Config
	onFailure  string // directory for batches that are given up; "" where none is given up
	checkpoint string // file; "" for none

	mapping  *delivery.Mapping
	done     chan outcome // of batches under way
	busy     int          // batches under way
	saveAt   int64        // when to write the checkpoint next, epoch ms
	records  int64        // delivered with success
	setAside int64        // records of batches that were given up
}

// outcome is the outcome of a batch.
type outcome struct {
	batch  *delivery.Batch
	answer delivery.Answer
	done   int64 // records that are not delivered again
}

// run delivers until ctx ends, or until the table's streams are over.
func (r *runner) run(ctx context.Context) error {
	r.done = make(chan outcome)
	for {
		r.mapping, r.saveAt = delivery.New(r.config), 0
		err := r.follow(ctx)
		if !errors.Is(err, errOver) {
			return err
		}
		if err = r.next(ctx); err != nil {
			return err
		}
	}
}

// follow delivers one stream. It returns errOver when all of the stream is done.
// When it returns, no batch is under way and the checkpoint is written.
func (r *runner) follow(ctx context.Context) error {
	var err error
	for err == nil && ctx.Err() == nil {
		if err = r.step(ctx, r.mapping); errors.Is(err, errOver) && !r.finished() {
			err = nil // records that were read are not delivered yet
		}
		if err == nil {
			r.deliver(ctx)
			err = r.save(false)
		}
		if err == nil {
			r.await(ctx)
		}
	}
	for r.busy > 0 {
		r.settle(<-r.done)
	}
	if ctx.Err() != nil {
		err = nil
	}
	return cmp.Or(r.save(true), err)
}

// finished reports whether every record that was read is done.
func (r *runner) finished() bool {
	for _, checkpoint := range r.mapping.Checkpoints() {
		if !checkpoint.Ended {
			return false
		}
	}
	return true
}

// await waits until there is something to do.
func (r *runner) await(ctx context.Context) {
	at := r.tail.NextStep(r.mapping)
	if wake, ok := r.mapping.Wake(r.clock.ms()); ok && r.busy < maxBatches {
		at = min(at, wake)
	}
	select {
	case <-ctx.Done():
	case o := <-r.done:
		r.settle(o)
	case <-r.clock.until(at):
	}
}

// deliver starts the batches that the mapping has. A batch that has started is
// finished even if ctx ends.
func (r *runner) deliver(ctx context.Context) {
	for r.busy < maxBatches {
		batch := r.mapping.Next(r.clock.ms())
		if batch == nil {
			return
		}
		r.busy++
		arn := r.Stream
		go func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), batchTime)
			defer cancel()
			if batch.GivenUp != "" {
				r.done <- r.giveUp(ctx, batch, arn)
				return
			}
			r.done <- r.invoke(ctx, batch)
		}()
	}
}

func (r *runner) settle(o outcome) {
	r.busy--
	r.mapping.Done(o.batch, o.answer, r.clock.ms())
	if o.batch.GivenUp == "" {
		r.records += o.done
	} else {
		r.setAside += o.done
	}
}

// save writes the checkpoint if it has changed: every saveEvery, and at the end.
func (r *runner) save(last bool) error {
	checkpoints, now := r.mapping.Checkpoints(), r.clock.ms()
	if r.checkpoint == "" || now < r.saveAt && !last || maps.Equal(checkpoints, r.Shards) {
		return nil
	}
	if len(checkpoints) == 0 && len(r.Shards) > 0 {
		return nil // the stream could not be described: its last checkpoint stays
	}
	r.saveAt = now + saveEvery.Milliseconds()
	at := r.at(checkpoints)
	if err := saveJSON(r.checkpoint, at); err != nil {
		return fmt.Errorf("write the checkpoint: %w", err)
	}
	return nil
}

// invoke delivers a batch to the aggregator.
func (r *runner) invoke(ctx context.Context, batch *delivery.Batch) outcome {
	report, timing := r.function.Process(ctx, batch.Records, r.clock.now())
	o := outcome{batch: batch, answer: answerTo(report, batch.Records, r.config.Bisect), done: int64(len(batch.Records))}
	if len(report.Failures) > 0 {
		o.done = int64(report.Failures[0].Index)
	}
	r.function.Log.InfoContext(ctx, "batch", "shard", batch.Shard, "records", report.Records, "attempt", batch.Attempt,
		"usage", len(report.Usage), "duplicates", report.Duplicates, "passes", len(report.Passes), "doublings", len(report.Doublings),
		"created", len(report.Created), "rejected", len(report.Rejected), "failures", len(report.Failures),
		"age", (time.Duration(timing.Age) * time.Millisecond).String(), "took", timing.Duration.Round(time.Millisecond).String())
	return o
}

// answerTo returns the answer to a batch, which names the lowest record that failed.
// If that is the first record and a retry does not help, the batch counts as failed
// as a whole: halving then isolates the record, and the rest gets past it.
func answerTo(report *aggregator.Report, records []events.Record, bisect bool) delivery.Answer {
	if len(report.Failures) == 0 {
		return delivery.Answer{}
	}
	lowest := report.Failures[0].Index
	if lowest > 0 || !bisect || mayPass(report) {
		return delivery.Answer{Failures: []string{records[lowest].Sequence}}
	}
	return delivery.Answer{Failed: true}
}

// mayPass reports whether a retry may help with every failure.
func mayPass(report *aggregator.Report) bool {
	for _, failure := range report.Failures {
		if !errors.Is(failure.Err, table.ErrRetry) && !errors.Is(failure.Err, context.DeadlineExceeded) {
			return false
		}
	}
	return true
}

// giveUp sets a batch aside. If that fails, the mapping tries again.
func (r *runner) giveUp(ctx context.Context, batch *delivery.Batch, arn string) outcome {
	name, err := setAside(r.onFailure, arn, batch, r.clock.now())
	attributes := []any{"shard", batch.Shard, "records", len(batch.Records), "condition", batch.GivenUp}
	if err != nil {
		r.function.Log.ErrorContext(ctx, "batch not kept aside", append(attributes, "reason", err.Error())...)
		return outcome{batch: batch, answer: delivery.Answer{Failed: true}}
	}
	r.function.Log.ErrorContext(ctx, "batch kept aside", append(attributes, slog.String("file", name))...)
	return outcome{batch: batch, done: int64(len(batch.Records))}
}
