package aggregator_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/shardquota/shardquota/aggregator"
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

func (discarded) Pass(context.Context, *table.Bucket, *quota.Pass) (table.PassResult, error) {
	return table.PassResult{Applied: true}, nil
}

// BenchmarkPlan takes batches from their text to their plan: records of so many
// buckets, each use after the one before.
func BenchmarkPlan(b *testing.B) {
	for _, records := range []int{100, 1_000, 10_000} {
		for _, buckets := range []int{1, 100, 10_000} {
			b.Run(fmt.Sprintf("records=%d/buckets=%d", records, buckets), func(b *testing.B) {
				batch := fixture.Uses(records, buckets)
				a := &aggregator.Aggregator{Store: discarded{}, Windows: []events.Window{events.Hourly, events.Daily}}
				b.ReportAllocs()
				for b.Loop() {
					if report := a.Process(b.Context(), batch, noon+hour/2); len(report.Failures)+len(report.Rejected) > 0 {
						b.Fatalf("%+v", report)
					}
				}
				n := float64(b.N) * float64(records)
				b.ReportMetric(n/b.Elapsed().Seconds(), "records/s")
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/n, "ns/record")
			})
		}
	}
}
