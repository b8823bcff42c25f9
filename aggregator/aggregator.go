// Package aggregator turns a batch of the table's stream into its effects:
// usage counted once, buckets brought up to date, hot entities sharded further
// and new shards funded ahead of use.
//
//	decode -> fold by bucket -> doublings -> usage | passes | pressure -> store
//
// Each step decides by a pure function of package quota and applies the
// decision by one conditional write of a table.Store. Delivering the same
// records again, in other batches or from the middle, leaves the same table.
package aggregator

import (
	"context"
	"time"

	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/table"
)

// DefaultConcurrency is how many store operations run at once unless asked
// otherwise.
const DefaultConcurrency = 16

// Aggregator processes batches against one table. It keeps nothing between
// batches and is safe for concurrent use.
type Aggregator struct {
	Store       table.Store
	Windows     []events.Window // the windows of time that usage is counted in
	Retention   time.Duration   // how long usage items outlive their window; 0 means for ever
	Concurrency int             // store operations at once; 0 means DefaultConcurrency
}

// Process applies a batch at now, epoch ms. The records of one bucket must be
// in the order of their writes.
//
// It never fails as a whole: what could not be done, because the store failed
// or ctx ended, is in the report's Failures, and the batch is to be delivered
// again from the first of them.
func (a *Aggregator) Process(ctx context.Context, records []events.Record, now int64) *Report {
	return a.ProcessDecoded(ctx, Decode(records), func(int64) int64 { return now })
}

// Clock tells what time it is for a bucket that was last written at a time,
// both epoch ms. In operation it is the same for all of a batch.
type Clock func(written int64) int64

// Delivery is one record of a batch, decoded.
type Delivery struct {
	Record events.Record
	Change *events.Change // nil where the record is no write to a bucket
	Err    error          // why it does not decode; the record is rejected alone
}

// Decode decodes a batch, record by record.
func Decode(records []events.Record) []Delivery {
	batch := make([]Delivery, len(records))
	for i, record := range records {
		change, err := events.Decode(record)
		batch[i] = Delivery{record, change, err}
	}
	return batch
}

// ProcessDecoded is Process for a batch that is decoded already.
func (a *Aggregator) ProcessDecoded(ctx context.Context, batch []Delivery, clock Clock) *Report {
	report := &Report{Records: len(batch)}
	buckets := fold(batch, report)
	run := &run{Aggregator: a, report: report, clock: clock}

	// Raising siblings comes before anything else that can fail: until it is
	// done, a sibling may still be restored at its old share.
	run.each(ctx, doublings(buckets))
	passes, doubles := run.bucketTasks(buckets)
	run.each(ctx, append(run.usageTasks(buckets), passes...))

	// A pass is sized at the count that its image shows. Doubled before it or
	// after it, a bucket would end up different.
	run.each(ctx, doubles)

	report.sort()
	return report
}

// run is one batch under way.
type run struct {
	*Aggregator
	report *Report
	clock  Clock
}
