package aggregator

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/shardquota/shardquota/events"
)

// Function processes the batches of one table and reports on them. Lambda calls
// it, or the operator's tool.
type Function struct {
	Aggregator *Aggregator
	Table      string
	Names      Pseudonyms
	Log        *slog.Logger
	Metrics    io.Writer // nil for none
	Now        func() time.Time
}

// Process applies a batch that came at start, logs it and writes its metrics. The
// report's Failures name what could not be done.
func (f *Function) Process(ctx context.Context, records []events.Record, start time.Time) (*Report, Timing) {
	report := f.Aggregator.Process(ctx, records, start.UnixMilli())
	report.Log(ctx, f.Log, f.Names)
	timing := Timing{Now: start.UnixMilli(), Age: age(records, start), Duration: f.Now().Sub(start)}
	if f.Metrics != nil {
		if err := report.WriteMetrics(f.Metrics, f.Table, timing); err != nil {
			f.Log.ErrorContext(ctx, "metrics not written", "reason", err.Error())
		}
	}
	return report, timing
}

// age returns how long ago the oldest record of a batch was written, milliseconds,
// never negative.
func age(records []events.Record, now time.Time) int64 {
	var oldest int64
	for _, record := range records {
		if record.Err == nil {
			oldest = max(oldest, now.UnixMilli()-record.Time)
		}
	}
	return oldest
}
