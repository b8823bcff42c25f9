package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/memory"
)

func TestFailuresAreNeverNull(t *testing.T) {
	answer := failures(&aggregator.Report{}, nil)
	if text := marshal(t, answer); text != `{"batchItemFailures":[]}` {
		t.Errorf("answer %s", text)
	}
}

func TestFailuresNameTheLowest(t *testing.T) {
	records := []events.Record{{Sequence: "101"}, {Sequence: "102"}, {Sequence: "103"}}
	report := &aggregator.Report{Failures: []aggregator.Failure{
		{Index: 1, Step: aggregator.StepUsage}, {Index: 1, Step: aggregator.StepPass}, {Index: 2, Step: aggregator.StepUsage},
	}}
	if text := marshal(t, failures(report, records)); text != `{"batchItemFailures":[{"itemIdentifier":"102"}]}` {
		t.Errorf("answer %s", text)
	}
}

func marshal(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestWithReserve(t *testing.T) {
	start := time.Now()
	h := &handler{aggregator.Function{Now: func() time.Time { return start }}, 2 * time.Second}

	ctx, cancel := h.withReserve(t.Context())
	if deadline, ok := ctx.Deadline(); ok {
		t.Errorf("deadline %v where Lambda set none", deadline)
	}
	cancel()
	if t.Context().Err() != nil {
		t.Error("the parent was cancelled")
	}

	end := start.Add(time.Hour)
	parent, cancelParent := context.WithDeadline(t.Context(), end)
	defer cancelParent()
	ctx, cancel = h.withReserve(parent)
	if deadline, ok := ctx.Deadline(); !ok || !deadline.Equal(end.Add(-2*time.Second)) {
		t.Errorf("deadline %v, want 2 s before %v", deadline, end)
	}
	cancel()
	if !errors.Is(ctx.Err(), context.Canceled) {
		t.Errorf("after cancel: %v", ctx.Err())
	}

	// With less time than the reserve, half of what there is remains for work.
	brief, cancelBrief := context.WithDeadline(t.Context(), start.Add(3*time.Second))
	defer cancelBrief()
	ctx, cancel = h.withReserve(brief)
	defer cancel()
	if deadline, ok := ctx.Deadline(); !ok || !deadline.Equal(start.Add(1500*time.Millisecond)) {
		t.Errorf("deadline %v, want 1.5 s after %v", deadline, start)
	}
}

// brokenUsage is a store that cannot write the usage of some entity.
type brokenUsage struct {
	table.Store
	entity string
}

func (b brokenUsage) AddUsage(ctx context.Context, usage table.Usage) (table.UsageResult, error) {
	if usage.Key.Entity == b.entity {
		return table.UsageResult{}, fmt.Errorf("add usage: %w", table.ErrRetry)
	}
	return b.Store.AddUsage(ctx, usage)
}

// clock ticks once a look.
func clock(start time.Time, tick time.Duration) func() time.Time {
	next := start
	return func() time.Time {
		now := next
		next = next.Add(tick)
		return now
	}
}

// started is when the handler of these tests is invoked.
var started = time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)

func testHandler(store table.Store, log, metrics io.Writer) *handler {
	return &handler{Function: aggregator.Function{
		Aggregator: &aggregator.Aggregator{Store: store, Windows: []events.Window{events.Daily}},
		Table:      "limits",
		Names:      aggregator.NewPseudonyms("key"),
		Log:        slog.New(slog.NewJSONHandler(log, nil)),
		Metrics:    metrics,
		Now:        clock(started, 1500*time.Microsecond),
	}}
}

// insert is the record of a bucket's first use.
func insert(entity, sequence string, written time.Time) string {
	return fmt.Sprintf(`{"eventName":"INSERT","eventSourceARN":"arn:aws:dynamodb:x:1:table/limits/stream/s1","dynamodb":{
		"ApproximateCreationDateTime":%d,"SequenceNumber":%q,
		"Keys":{"PK":{"S":"n/BUCKET#%[3]s#api#0"},"SK":{"S":"#STATE"}},
		"NewImage":{"PK":{"S":"n/BUCKET#%[3]s#api#0"},"SK":{"S":"#STATE"},"shard_count":{"N":"1"},"rf":{"N":"%[4]d"},
			"b_rpm_tk":{"N":"9000"},"b_rpm_tc":{"N":"1500"},"b_rpm_cp":{"N":"10000"},"b_rpm_ra":{"N":"10000"},"b_rpm_rp":{"N":"60000"}}}}`,
		written.Unix(), sequence, entity, written.UnixMilli())
}

func TestHandle(t *testing.T) {
	var log, metrics bytes.Buffer
	store := memory.New()
	h := testHandler(brokenUsage{store, "broken"}, &log, &metrics)
	batch := `{"Records":[` + strings.Join([]string{
		insert("sound", "11", started.Add(-3*time.Second)),
		`{"eventName":"INSERT"}`,
		insert("broken", "13", started.Add(-2*time.Second)),
		insert("sound", "14", started.Add(-time.Second)),
	}, ",") + `]}`

	answer, err := h.handle(t.Context(), json.RawMessage(batch))
	if err != nil {
		t.Fatal(err)
	}
	if text := marshal(t, answer); text != `{"batchItemFailures":[{"itemIdentifier":"13"}]}` {
		t.Errorf("answer %s", text)
	}

	var measured map[string]any
	if err := json.Unmarshal(metrics.Bytes(), &measured); err != nil {
		t.Fatalf("metrics: %v: %s", err, metrics.String())
	}
	for name, want := range map[string]any{
		"Table": "limits", "Records": 4.0, "Rejected": 1.0, "UsageWrites": 1.0, "Failures": 1.0,
		"IteratorAge": 3000.0, "Duration": 1.5,
	} {
		if measured[name] != want {
			t.Errorf("metric %s is %v, want %v", name, measured[name], want)
		}
	}
	if stamp := measured["_aws"].(map[string]any)["Timestamp"]; stamp != float64(started.UnixMilli()) {
		t.Errorf("timestamp %v, want %d", stamp, started.UnixMilli())
	}
	for _, line := range []string{`"msg":"record rejected","index":1,`, `"msg":"to be delivered again","index":2,"step":"usage"`} {
		if !strings.Contains(log.String(), line) {
			t.Errorf("not logged: %s\n%s", line, log.String())
		}
	}
}

func TestHandleNoEvent(t *testing.T) {
	var log, metrics bytes.Buffer
	h := testHandler(memory.New(), &log, &metrics)
	answer, err := h.handle(t.Context(), json.RawMessage(`{"detail":"sk-live-1"}`))
	if err == nil || !strings.HasPrefix(err.Error(), "decode event: ") || strings.Contains(err.Error(), "sk-live-1") {
		t.Errorf("error %v, want one of decoding that does not quote the event", err)
	}
	if answer.BatchItemFailures != nil || metrics.Len() != 0 {
		t.Errorf("answer %+v and metrics %q beside the error", answer, metrics.String())
	}
}

// broken is a writer that takes nothing.
type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("closed") }

// TestHandleWithoutMetrics: that nobody takes the metrics costs the batch nothing.
func TestHandleWithoutMetrics(t *testing.T) {
	var log bytes.Buffer
	h := testHandler(memory.New(), &log, broken{})
	answer, err := h.handle(t.Context(), json.RawMessage(`{"Records":[`+insert("sound", "11", started)+`]}`))
	if err != nil {
		t.Fatal(err)
	}
	if text := marshal(t, answer); text != `{"batchItemFailures":[]}` {
		t.Errorf("answer %s", text)
	}
	if !strings.Contains(log.String(), `"msg":"metrics not written","reason":"closed"`) {
		t.Errorf("not logged: %s", log.String())
	}
}
