package aggregator_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/internal/fixture"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// discarded is a table that says yes to everything and keeps nothing, so that
// what is measured is a batch from its text to its plan.
type discarded struct{ table.Store }

func (discarded) AddUsage(context.Context, table.Usage) (table.UsageResult, error) {
	return table.UsageResult{Applied: true}, nil
}

func (discarded) Outlive(context.Context, table.Group, []quota.Extension) error { return nil }

func (discarded) Pass(context.Context, *table.Bucket, *quota.Pass) (table.PassResult, error) {
	return table.PassResult{Applied: true}, nil
}

// BenchmarkPlan takes batches from their text to their plan: records of so many
// buckets, each use after the one before.
func BenchmarkPlan(b *testing.B) {
	for _, records := range []int{100, 1_000, 10_000} {
		for _, buckets := range []int{1, 100, 10_000} {
			b.Run(fmt.Sprintf("records=%d/buckets=%d", records, buckets), func(b *testing.B) {
				batch, a := fixture.Uses(records, buckets), planner()
				plan := func() {
					if report := a.Process(b.Context(), batch, noon+hour/2); len(report.Failures)+len(report.Rejected) > 0 {
						b.Fatalf("%+v", report)
					}
				}
				perRecord(b, records, plan)
			})
		}
	}
}

// BenchmarkEvent is BenchmarkPlan from the event as Lambda delivers it.
func BenchmarkEvent(b *testing.B) {
	for _, buckets := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprintf("records=1000/buckets=%d", buckets), func(b *testing.B) {
			event, a := fixture.Event(fixture.Uses(1000, buckets)), planner()
			b.SetBytes(int64(len(event)))
			perRecord(b, 1000, func() {
				records, err := events.DecodeEvent(event)
				if err != nil {
					b.Fatal(err)
				}
				if report := a.Process(b.Context(), records, noon+hour/2); len(report.Failures)+len(report.Rejected) > 0 {
					b.Fatalf("%+v", report)
				}
			})
		})
	}
}

// perRecord measures what is done with so many records, and what of it is the
// process's own time on any processor, the collector's included.
func perRecord(b *testing.B, records int, do func()) {
	b.ReportAllocs()
	do() // the first one finds nothing warm
	began := spent()
	for b.Loop() {
		do()
	}
	cpu := spent() - began
	n := float64(b.N) * float64(records)
	b.ReportMetric(n/b.Elapsed().Seconds(), "records/s")
	b.ReportMetric(float64(cpu.Microseconds())/1000/float64(b.N), "cpu-ms/batch")
	b.ReportMetric(testing.AllocsPerRun(1, do)/float64(records), "allocs/record")
}
