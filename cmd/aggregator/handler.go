package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/events"
)

// handler answers Lambda's invocations with batches of the table's stream.
type handler struct {
	aggregator *aggregator.Aggregator
	table      string
	reserve    time.Duration // time before the deadline at which what is left is handed back
	names      aggregator.Pseudonyms
	log        *slog.Logger
	metrics    io.Writer
	now        func() time.Time
}

// response tells Lambda where to deliver the batch again from: the list is
// empty, never null, where nothing failed.
type response struct {
	BatchItemFailures []batchItemFailure `json:"batchItemFailures"`
}

type batchItemFailure struct {
	ItemIdentifier string `json:"itemIdentifier"`
}

// handle processes one event. An event that is no batch at all is an error,
// which makes Lambda try it again and in the end keep it.
func (h *handler) handle(ctx context.Context, event json.RawMessage) (response, error) {
	start := h.now()
	records, err := events.DecodeEvent(event)
	if err != nil {
		return response{}, fmt.Errorf("decode event: %w", err)
	}
	ctx, cancel := h.withReserve(ctx)
	defer cancel()

	report := h.aggregator.Process(ctx, records, start.UnixMilli())

	report.Log(ctx, h.log, h.names)
	timing := aggregator.Timing{Now: start.UnixMilli(), Age: age(records, start), Duration: h.now().Sub(start)}
	if err := report.WriteMetrics(h.metrics, h.table, timing); err != nil {
		h.log.ErrorContext(ctx, "metrics not written", "reason", err.Error())
	}
	return failures(report, records), nil
}

// withReserve ends the context a little before Lambda ends the process: by the
// reserve, but never by more than half of the time there is.
func (h *handler) withReserve(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	reserve := min(h.reserve, deadline.Sub(h.now())/2)
	return context.WithDeadline(ctx, deadline.Add(-reserve))
}

// failures names the lowest record that failed: Lambda delivers everything
// from it on again. A failed record without a sequence number cannot be named,
// so that the whole batch is asked for again.
func failures(report *aggregator.Report, records []events.Record) response {
	if len(report.Failures) == 0 {
		return response{BatchItemFailures: []batchItemFailure{}}
	}
	sequence := records[report.Failures[0].Index].Sequence
	return response{BatchItemFailures: []batchItemFailure{{ItemIdentifier: sequence}}}
}

// age is how long ago the oldest record of a batch was written, milliseconds,
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
