// Package aggregator turns a batch of the table's stream into its effects. It
// counts usage once, brings buckets up to date, gives hot entities more shards and
// funds new shards ahead of use.
//
//	decode -> fold by bucket -> doublings -> usage | passes | pressure -> store
//
// A pure function of package quota makes each decision, and one conditional write
// of a table.Store applies it. The same records, delivered again in other batches
// or from the middle, count no usage twice and grant nothing twice.
package aggregator

import (
	"context"
	"time"

	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/table"
)

// DefaultConcurrency is how many store operations run at once by default.
const DefaultConcurrency = 16

// MaxUsageDays bounds how long usage is retained, in days. 0 days retain it for
// ever.
const MaxUsageDays = 36_500

// Aggregator processes batches against one table. It holds no state between
// batches and is safe for concurrent use.
type Aggregator struct {
	Store       table.Store
	Windows     []events.Window // the windows of time in which usage is counted
	Retention   time.Duration   // how long usage items outlive their window; 0 means for ever
	Concurrency int             // store operations at once; 0 means DefaultConcurrency
}

// Process applies a batch at now, epoch ms.
//
// It never fails as a whole. The report's Failures name what could not be done,
// because the store failed or ctx ended. The caller delivers the batch again from
// the first of them.
func (a *Aggregator) Process(ctx context.Context, records []events.Record, now int64) *Report {
	return a.ProcessDecoded(ctx, Decode(records), func(int64) int64 { return now })
}

// Clock returns the time for a bucket that was last written at a time, both epoch
// ms. In operation it returns the same time for all of a batch.
type Clock func(written int64) int64

// Delivery is one record of a batch, decoded.
type Delivery struct {
	Record events.Record
	Change *events.Change // nil where the record is no write to a bucket
	Err    error          // why it does not decode; the record is rejected alone
}

// Decode decodes a batch, record by record.
func Decode(records []events.Record) []Delivery {
	batch, decoder := make([]Delivery, len(records)), events.NewDecoder()
	for i, record := range records {
		change, err := decoder.Decode(record)
		batch[i] = Delivery{record, change, err}
	}
	return batch
}

// ProcessDecoded is Process for a decoded batch.
func (a *Aggregator) ProcessDecoded(ctx context.Context, batch []Delivery, clock Clock) *Report {
	run := a.start(batch, clock)
	run.reject()
	run.maintain(ctx, run.usageTasks())
	return run.finish()
}

// Maintain is the part of ProcessDecoded that maintains buckets and shards. It
// counts no usage, and Count reports what does not decode.
func (a *Aggregator) Maintain(ctx context.Context, batch []Delivery, clock Clock) *Report {
	run := a.start(batch, clock)
	run.maintain(ctx, nil)
	return run.finish()
}

// Count is the part of ProcessDecoded that counts usage.
func (a *Aggregator) Count(ctx context.Context, batch []Delivery, clock Clock) *Report {
	run := a.start(batch, clock)
	run.reject()
	run.each(ctx, run.usageTasks())
	return run.finish()
}

// run is one batch under way.
type run struct {
	*Aggregator
	folded
	report *Report
	clock  Clock
}

func (a *Aggregator) start(batch []Delivery, clock Clock) *run {
	return &run{Aggregator: a, folded: fold(batch), report: &Report{Records: len(batch)}, clock: clock}
}

// maintain maintains buckets and shards. The usage tasks run beside the passes.
func (r *run) maintain(ctx context.Context, usage []task) {
	// Siblings are raised before anything else that can fail: until then a sibling
	// may still be restored at its old share.
	r.each(ctx, r.doublings())
	passes, doubles := r.bucketTasks()
	r.each(ctx, append(usage, passes...))
	// A pass is sized at the count of its image. What it leaves must not depend on
	// when a double lands, so the doubles of a batch come last.
	r.each(ctx, doubles)
}

// reject reports the records that the fold rejected and dropped.
func (r *run) reject() {
	r.report.Rejected = append(r.report.Rejected, r.rejected...)
	r.report.Duplicates += r.duplicates
	r.report.InvalidDivisions = append(r.report.InvalidDivisions, r.invalidDivisions()...)
}

func (r *run) finish() *Report {
	r.report.sort()
	return r.report
}
