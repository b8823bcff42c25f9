// Package replay runs the aggregator over recorded streams: over a table in
// memory that the recording drives, or again over a real one.
package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/memory"
)

// DefaultBatchSize is how many records are delivered at once by default.
const DefaultBatchSize = 1000

// attempts bounds how often a batch is delivered before the replay fails.
const attempts = 8

// Source gives stream records one by one, io.EOF at the end.
type Source interface {
	Next() (events.Record, error)
}

// Replay is one run over a recording.
type Replay struct {
	Aggregator aggregator.Aggregator // its Store is set by InMemory or Again
	BatchSize  int                   // 0 means DefaultBatchSize
	Redeliver  bool                  // deliver every batch twice
	DryRun     bool                  // plan every batch, write nothing
	Clock      aggregator.Clock      // nil means the recording's own time
	Progress   func(records int)     // called after every batch; may be nil
	Backoff    time.Duration         // first wait before a failed batch is delivered again, doubling
	Observe    Observe               // called with every write to a table in memory, or every recorded one to a real table; may be nil

	driver  *driver // nil when a real table is driven again
	watcher *watcher
	load    memory.Loader
	groups  *groups
	report  *Report
}

// InMemory replays over a table in memory, which the recording drives. The table
// may hold items already.
func InMemory(store *memory.Store) *Replay {
	r := &Replay{driver: newDriver(store), groups: newGroups()}
	r.Aggregator.Store = store
	r.load = func(_ context.Context, pk, sk string) (table.Item, error) { return store.Get(pk, sk), nil }
	return r
}

// Again replays over a real table, to which the recorded clients have written
// already. A second replay changes nothing more. load reads an item consistently;
// a dry run needs it.
func Again(store table.Store, load memory.Loader) *Replay {
	r := &Replay{groups: newGroups(), load: load}
	r.Aggregator.Store = store
	return r
}

// ErrNoStream says that a record does not name its stream, so that nobody can tell
// whether it was counted.
var ErrNoStream = errors.New("record names no stream (eventSourceARN), so that what was counted before cannot be told: " +
	"say it by --stream-arn if this is the output of get-records")

// Run replays a recording to its end and reports what was done. On an error the
// report holds what was done until then.
func (r *Replay) Run(ctx context.Context, source Source) (*Report, error) {
	r.report = newReport(r.DryRun)
	if r.DryRun && r.driver == nil {
		r.Aggregator.Store = memory.Over(r.load)
	}
	for {
		batch, err := r.next(source)
		if err != nil && !errors.Is(err, io.EOF) {
			return r.report, err
		}
		if len(batch) > 0 {
			if err := r.deliver(ctx, batch); err != nil {
				return r.report, err
			}
		}
		if err != nil {
			return r.report, r.close(ctx)
		}
	}
}

// next reads one batch, shorter at the end of the source.
func (r *Replay) next(source Source) ([]events.Record, error) {
	size := r.BatchSize
	if size <= 0 {
		size = DefaultBatchSize
	}
	batch := make([]events.Record, 0, size)
	for len(batch) < size {
		record, err := source.Next()
		if err != nil {
			return batch, err
		}
		if r.driver == nil && record.Err == nil && record.Stream == "" {
			return nil, fmt.Errorf("%v: %w", record.Position, ErrNoStream)
		}
		batch = append(batch, record)
	}
	return batch, nil
}

// deliver hands a batch to the aggregator, twice where asked to.
func (r *Replay) deliver(ctx context.Context, records []events.Record) error {
	batch := aggregator.Decode(records)
	deliveries := 1
	if r.Redeliver {
		deliveries = 2
	}
	for delivery := range deliveries {
		r.report.Batches++
		if err := r.once(ctx, batch, delivery == 0); err != nil {
			return err
		}
	}
	r.report.Records += len(batch)
	r.groups.see(batch, r.clock())
	if r.Progress != nil {
		r.Progress(r.report.Records)
	}
	return nil
}

// once delivers a batch once. Over a table that the recording drives, the
// aggregator maintains what each record changed before the next record is applied,
// as it does where it keeps up with the stream. So the table depends on the
// recording alone and not on where batches end. Usage is counted batch by batch.
func (r *Replay) once(ctx context.Context, batch []aggregator.Delivery, drive bool) error {
	if r.driver == nil {
		if drive {
			r.recorded(batch)
		}
		return r.process(ctx, batch, r.Aggregator.ProcessDecoded)
	}
	for i := range batch {
		if drive {
			applied, err := r.drive(ctx, &batch[i])
			if err != nil {
				return err
			}
			if !applied {
				continue
			}
		}
		r.dry()
		if err := r.process(ctx, batch[i:i+1], r.Aggregator.Maintain); err != nil {
			return err
		}
	}
	r.dry()
	return r.process(ctx, batch, r.Aggregator.Count)
}

// drive applies a record to the table and shows an observer what that did.
func (r *Replay) drive(ctx context.Context, x *aggregator.Delivery) (applied bool, err error) {
	watch := r.watch()
	if err := watch.before(*x); err != nil {
		return false, err
	}
	if *x, applied, err = r.driver.apply(ctx, *x); err != nil || !applied {
		return false, err
	}
	return true, watch.after(ctx, *x)
}

// dry, in a dry run, gives the aggregator a table that shows what the recording
// did and retains no writes.
func (r *Replay) dry() {
	if r.DryRun {
		r.Aggregator.Store = memory.Over(r.load)
	}
}

// process has the aggregator do something with a batch. It repeats what failed,
// from the first failed record on, as Lambda does.
func (r *Replay) process(ctx context.Context, batch []aggregator.Delivery, do step) error {
	wait := r.Backoff
	for attempt := 1; ; attempt++ {
		report := do(ctx, batch, r.clock())
		r.report.add(report)
		if err := r.watch().reported(ctx, report); err != nil {
			return err
		}
		if len(report.Failures) == 0 {
			return nil
		}
		first := report.Failures[0]
		if attempt == attempts || ctx.Err() != nil || !errors.Is(first.Err, table.ErrRetry) {
			return fmt.Errorf("%v: not applied: %w", batch[first.Index].Record.Position, first.Err)
		}
		batch = batch[first.Index:]
		if err := sleep(ctx, wait); err != nil {
			return err
		}
		wait *= 2
	}
}

// step is what an aggregator can do with a batch.
type step func(context.Context, []aggregator.Delivery, aggregator.Clock) *aggregator.Report

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

func (r *Replay) clock() aggregator.Clock {
	if r.Clock == nil {
		return func(written int64) int64 { return written }
	}
	return r.Clock
}

// Now is the time that the ledger is drawn up at, epoch ms: that of the newest
// record by the replay's clock.
func (r *Replay) Now() int64 { return r.groups.last }

// close draws up the ledger of every quota that the recording touched, and how
// the limits stand that are not simply divided.
func (r *Replay) close(ctx context.Context) error {
	var err error
	r.report.Ledger, r.report.Divisions, err = r.groups.audit(ctx, r.Aggregator.Store)
	return err
}
