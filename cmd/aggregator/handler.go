package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/events"
)

// handler handles Lambda's invocations with batches of the table's stream.
type handler struct {
	aggregator.Function
	reserve time.Duration // of the invocation's time, kept for handing back the rest of the batch
}

// response tells Lambda from which record to deliver the batch again. The list is
// empty, never null, where nothing failed.
type response struct {
	BatchItemFailures []batchItemFailure `json:"batchItemFailures"`
}

type batchItemFailure struct {
	ItemIdentifier string `json:"itemIdentifier"`
}

// Invoke implements lambda.Handler. The library then neither checks nor copies an
// event of megabytes.
func (h *handler) Invoke(ctx context.Context, event []byte) ([]byte, error) {
	answer, err := h.handle(ctx, event)
	if err != nil {
		return nil, err
	}
	return json.Marshal(answer)
}

// handle processes one event. An event that is not a batch is an error: Lambda
// retries it and in the end sets it aside.
func (h *handler) handle(ctx context.Context, event json.RawMessage) (response, error) {
	start := h.Now()
	records, err := events.DecodeEvent(event)
	if err != nil {
		return response{}, fmt.Errorf("decode event: %w", err)
	}
	ctx, cancel := h.withReserve(ctx)
	defer cancel()
	report, _ := h.Process(ctx, records, start)
	return failures(report, records), nil
}

// withReserve ends the context before Lambda ends the process: earlier by the
// reserve, but at most by half of the time left.
func (h *handler) withReserve(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	reserve := min(h.reserve, deadline.Sub(h.Now())/2)
	return context.WithDeadline(ctx, deadline.Add(-reserve))
}

// failures names the lowest record that failed. Lambda delivers that record and
// all after it again. If the record has no sequence number, the empty name makes
// Lambda deliver the whole batch again.
func failures(report *aggregator.Report, records []events.Record) response {
	if len(report.Failures) == 0 {
		return response{BatchItemFailures: []batchItemFailure{}}
	}
	sequence := records[report.Failures[0].Index].Sequence
	return response{BatchItemFailures: []batchItemFailure{{ItemIdentifier: sequence}}}
}
