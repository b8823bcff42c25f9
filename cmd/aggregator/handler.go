package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/events"
)

// handler answers Lambda's invocations with batches of the table's stream.
type handler struct {
	aggregator.Function
	reserve time.Duration // time before the deadline at which what is left is handed back
}

// response tells Lambda where to deliver the batch again from: the list is
// empty, never null, where nothing failed.
type response struct {
	BatchItemFailures []batchItemFailure `json:"batchItemFailures"`
}

type batchItemFailure struct {
	ItemIdentifier string `json:"itemIdentifier"`
}

// Invoke implements lambda.Handler, which spares the library to check and copy an
// event of megabytes before it is looked at.
func (h *handler) Invoke(ctx context.Context, event []byte) ([]byte, error) {
	answer, err := h.handle(ctx, event)
	if err != nil {
		return nil, err
	}
	return json.Marshal(answer)
}

// handle processes one event. An event that is no batch at all is an error,
// which makes Lambda try it again and in the end keep it.
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

// withReserve ends the context a little before Lambda ends the process: by the
// reserve, but never by more than half of the time there is.
func (h *handler) withReserve(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	reserve := min(h.reserve, deadline.Sub(h.Now())/2)
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
