package aggregator_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/internal/dynoxide"
	"github.com/shardquota/shardquota/internal/fixture"
	"github.com/shardquota/shardquota/table/dynamo"
)

// BenchmarkBatch takes an event of a thousand records to its last answer, and in
// turn makes the very updates that this came to, ready-made, in a plain loop: so
// many at once as the aggregator does, each on a table of its own. What the batch
// takes longer is this program's own part.
func BenchmarkBatch(b *testing.B) {
	for _, idle := range []int{10, 16} { // connections kept open: the SDK's usual number, and the function's
		for _, buckets := range []int{1, 100, 1000} {
			b.Run(fmt.Sprintf("idle=%d/buckets=%d", idle, buckets), func(b *testing.B) {
				client := dynoxide.Client(b, func(o *dynamodb.Options) { o.HTTPClient = keeping(idle) })
				event := fixture.Event(fixture.Uses(1000, buckets))
				var batch, plain []time.Duration
				for b.Loop() {
					for range 5 { // of which the median tells more than of one or two
						calls := &recorder{Client: client}
						batch = append(batch, processed(b, calls, dynoxide.NewTable(b, client, withoutStream), event))
						plain = append(plain, replayed(b, client, dynoxide.NewTable(b, client, withoutStream), calls.inputs))
					}
				}
				ms := func(all []time.Duration) float64 {
					slices.Sort(all)
					return float64(all[len(all)/2].Microseconds()) / 1000
				}
				b.ReportMetric(0, "ns/op") // would be of both
				b.ReportMetric(ms(batch), "batch-ms")
				b.ReportMetric(ms(plain), "plain-ms")
				b.ReportMetric(ms(batch)/ms(plain), "times-plain")
			})
		}
	}
}

// keeping is the SDK's HTTP client with so many connections kept open.
func keeping(idle int) *awshttp.BuildableClient {
	return awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) { t.MaxIdleConnsPerHost = idle })
}

// recorder keeps the updates that are asked for.
type recorder struct {
	*dynamodb.Client
	mu     sync.Mutex
	inputs []*dynamodb.UpdateItemInput
}

func (r *recorder) UpdateItem(ctx context.Context, input *dynamodb.UpdateItemInput, options ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	r.mu.Lock()
	r.inputs = append(r.inputs, input)
	r.mu.Unlock()
	return r.Client.UpdateItem(ctx, input, options...)
}

func processed(b *testing.B, calls *recorder, table string, event []byte) time.Duration {
	a := planner()
	a.Store = dynamo.New(calls, table)
	began := time.Now()
	records, err := events.DecodeEvent(event)
	if err != nil {
		b.Fatal(err)
	}
	report := a.Process(b.Context(), records, noon+second)
	took := time.Since(began)
	if len(report.Failures) > 0 || len(report.Usage) != len(calls.inputs) {
		b.Fatalf("%v; %d of %d updates", report.Err(), len(report.Usage), len(calls.inputs))
	}
	return took
}

func replayed(b *testing.B, client *dynamodb.Client, table string, inputs []*dynamodb.UpdateItemInput) time.Duration {
	for _, input := range inputs {
		input.TableName = &table
	}
	var workers sync.WaitGroup
	var taken atomic.Int64
	began := time.Now()
	for range aggregator.DefaultConcurrency {
		workers.Go(func() {
			for i := taken.Add(1); i <= int64(len(inputs)); i = taken.Add(1) {
				if _, err := client.UpdateItem(b.Context(), inputs[i-1]); err != nil {
					b.Error(err)
				}
			}
		})
	}
	workers.Wait()
	return time.Since(began)
}
