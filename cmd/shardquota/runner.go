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
	// batchTime is how long a batch may take before what is left of it comes
	// again: what the deployed function has, less its reserve.
	batchTime = 58 * time.Second
	// batchesAtOnce bounds batches of all lanes under way at one time.
	batchesAtOnce = 8
	// saveEvery is between two writes of the checkpoint.
	saveEvery = time.Second
)

// runner calls the aggregator with the batches of a live stream, by the rules of
// an event source mapping.
type runner struct {
	live
	function   aggregator.Function
	config     delivery.Config
	aside      string // directory of batches that are given up; "" where none is
	checkpoint string // "" for none

	mapping *delivery.Mapping
	done    chan outcome // of batches under way
	busy    int          // their number
	saveAt  int64        // not to be saved before, epoch ms
	records int64        // delivered with success
	kept    int64        // kept aside
}

// outcome is a batch that was delivered, and what became of it.
type outcome struct {
	batch  *delivery.Batch
	answer delivery.Answer
	done   int64 // records that need not come again
}

// run delivers until it is told to end, or until there is nothing left for ever.
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

// follow delivers one stream. It returns errOver when all of that is done with,
// and at any end with no batch under way and the checkpoint written.
func (r *runner) follow(ctx context.Context) error {
	var err error
	for err == nil && ctx.Err() == nil {
		if err = r.step(ctx, r.mapping); errors.Is(err, errOver) && !r.finished() {
			err = nil // what was read is still to be delivered
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

// finished reports whether everything that was read is done with.
func (r *runner) finished() bool {
	for _, position := range r.mapping.Checkpoints() {
		if !position.Ended {
			return false
		}
	}
	return true
}

// await waits until there is something to do.
func (r *runner) await(ctx context.Context) {
	at := r.tail.NextStep(r.mapping)
	if wake, ok := r.mapping.Wake(r.clock.ms()); ok && r.busy < batchesAtOnce {
		at = min(at, wake)
	}
	select {
	case <-ctx.Done():
	case o := <-r.done:
		r.settle(o)
	case <-r.clock.until(at):
	}
}

// deliver starts the batches that are due. Once started a batch is finished,
// even if the command is told to end.
func (r *runner) deliver(ctx context.Context) {
	for r.busy < batchesAtOnce {
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
		r.kept += o.done
	}
}

// save writes the checkpoint where there is something new, now and then and at
// the end.
func (r *runner) save(last bool) error {
	positions, now := r.mapping.Checkpoints(), r.clock.ms()
	if r.checkpoint == "" || now < r.saveAt && !last || maps.Equal(positions, r.Shards) {
		return nil
	}
	if len(positions) == 0 && len(r.Shards) > 0 {
		return nil // the stream could not be looked at: what is known of it stays
	}
	r.saveAt = now + saveEvery.Milliseconds()
	at := r.at(positions)
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

// answerTo is what a mapping is told of a batch: the lowest record that failed.
// Where that is the first one and trying again does not help, halving finds
// what fails and lets the rest pass it; the batch then counts as failed whole.
func answerTo(report *aggregator.Report, records []events.Record, bisect bool) delivery.Answer {
	if len(report.Failures) == 0 {
		return delivery.Answer{}
	}
	lowest := report.Failures[0].Index
	if lowest > 0 || !bisect || passing(report) {
		return delivery.Answer{Failures: []string{records[lowest].Sequence}}
	}
	return delivery.Answer{Failed: true}
}

// passing reports whether all that failed may pass.
func passing(report *aggregator.Report) bool {
	for _, failure := range report.Failures {
		if !errors.Is(failure.Err, table.ErrRetry) && !errors.Is(failure.Err, context.DeadlineExceeded) {
			return false
		}
	}
	return true
}

// giveUp keeps a batch aside. Where that fails it is to be kept again.
func (r *runner) giveUp(ctx context.Context, batch *delivery.Batch, arn string) outcome {
	name, err := keepAside(r.aside, arn, batch, r.clock.now())
	attributes := []any{"shard", batch.Shard, "records", len(batch.Records), "condition", batch.GivenUp}
	if err != nil {
		r.function.Log.ErrorContext(ctx, "batch not kept aside", append(attributes, "reason", err.Error())...)
		return outcome{batch: batch, answer: delivery.Answer{Failed: true}}
	}
	r.function.Log.ErrorContext(ctx, "batch kept aside", append(attributes, slog.String("file", name))...)
	return outcome{batch: batch, done: int64(len(batch.Records))}
}
