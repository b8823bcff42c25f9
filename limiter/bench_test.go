package limiter_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/internal/dynoxide"
	"github.com/shardquota/shardquota/internal/fixture"
	. "github.com/shardquota/shardquota/limiter"
	. "github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/dynamo"
	"github.com/shardquota/shardquota/table/memory"
)

// The benchmarks take one request and 400 tokens of one hot entity, again and
// again; docs/performance.md has figures, and says how to read them.

var (
	hotLimits = []Limit{PerMinute("requests", 1_000_000_000), Quota("tokens", 1_000_000_000_000, "0 0 1 1 *")}
	hotUse    = Amounts{"requests": 1, "tokens": 400}
	hotGroup  = table.Group{Namespace: "ns1", Entity: "acme", Resource: "gpt-4"}
)

func hotLimiter(b *testing.B, client table.Client) *Limiter {
	b.Helper()
	store, err := Open(b.Context(), client, NamespaceID(hotGroup.Namespace), Default("", hotLimits...))
	if err != nil {
		b.Fatal(err)
	}
	return New(store)
}

// heat makes an entity of so many shards, none of which ever runs out of
// anything, and a Limiter that knows of them.
func heat(b *testing.B, client table.Client, shards int) *Limiter {
	b.Helper()
	l := hotLimiter(b, client)
	take := func() {
		if _, err := l.Acquire(b.Context(), hotGroup.Entity, hotGroup.Resource, hotUse); err != nil {
			b.Fatal(err)
		}
	}
	take()
	zero, err := client.Read(b.Context(), hotGroup.At(0))
	if err != nil {
		b.Fatal(err)
	}
	for shard := range shards {
		item := zero.Item.Clone()
		for name, value := range hotGroup.At(shard).Keys() {
			item[name] = table.S(value)
		}
		item[table.AttrShardCount] = table.N(fmt.Sprint(shards))
		for _, limit := range []string{"requests", "tokens", "wcu"} {
			item[table.Attr(limit, table.FieldBalance)] = table.N("1000000000000000")
		}
		delete(item, table.AttrTTL)
		fixture.Replace(b, client, item)
	}
	take()
	if s, ok := client.(*still); ok {
		s.item = zero.Item
	}
	return l
}

// still answers every take alike and does nothing, so that what is measured is
// this package alone.
type still struct {
	table.Client
	item table.Item // nil until it is to be still
}

func (s *still) Charge(ctx context.Context, key table.Key, take table.FastCharge) (table.WriteResult, error) {
	if s.item == nil {
		return s.Client.Charge(ctx, key, take)
	}
	return table.WriteResult{Applied: true, Item: s.item}, nil
}

// withoutStream makes a table that has none: dynoxide slows down as one grows.
func withoutStream(input *dynamodb.CreateTableInput) { input.StreamSpecification = nil }

func benchTable(b *testing.B) (*dynamodb.Client, string) {
	b.Helper()
	client := dynoxide.Client(b)
	return client, dynoxide.NewTable(b, client, withoutStream)
}

func BenchmarkAcquire(b *testing.B) {
	stores := []struct {
		name string
		open func(b *testing.B) table.Client
	}{
		{"none", func(*testing.B) table.Client { return &still{Client: memory.New().Client()} }},
		{"memory", func(*testing.B) table.Client { return memory.New().Client() }},
		{"dynoxide", func(b *testing.B) table.Client { return dynamo.New(benchTable(b)) }},
	}
	for _, store := range stores {
		for _, shards := range []int{1, 4, 16} {
			b.Run(fmt.Sprintf("%s/shards=%d", store.name, shards), func(b *testing.B) {
				l := heat(b, store.open(b), shards)
				measure(b, func(ctx context.Context) error {
					_, err := l.Acquire(ctx, hotGroup.Entity, hotGroup.Resource, hotUse)
					return err
				})
			})
		}
	}
}

// BenchmarkUpdateItem is the floor: the update that a use is, through the SDK and
// nothing else.
func BenchmarkUpdateItem(b *testing.B) {
	client, name := benchTable(b)
	heat(b, dynamo.New(client, name), 1)
	recorded := &recorder{Client: client}
	l := hotLimiter(b, dynamo.New(recorded, name))
	if _, err := l.Acquire(b.Context(), hotGroup.Entity, hotGroup.Resource, hotUse); err != nil {
		b.Fatal(err)
	}
	b.Run("the same", func(b *testing.B) {
		measure(b, func(ctx context.Context) error {
			_, err := client.UpdateItem(ctx, &recorded.input)
			return err
		})
	})
	b.Run("without the item", func(b *testing.B) { // as one would count without looking at what is left
		input := recorded.input
		input.ReturnValues = types.ReturnValueNone
		measure(b, func(ctx context.Context) error {
			_, err := client.UpdateItem(ctx, &input)
			return err
		})
	})
}

// recorder keeps the last update that was asked for.
type recorder struct {
	*dynamodb.Client
	input dynamodb.UpdateItemInput
}

func (r *recorder) UpdateItem(ctx context.Context, input *dynamodb.UpdateItemInput, options ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	r.input = *input
	return r.Client.UpdateItem(ctx, input, options...)
}

// measure does something b.N times, eight at once, and reports how often a second
// and how long it took.
func measure(b *testing.B, do func(context.Context) error) {
	all, done := make([]time.Duration, b.N), atomic.Int64{}
	b.ReportAllocs()
	b.SetParallelism(4) // times GOMAXPROCS
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			began := time.Now()
			if err := do(b.Context()); err != nil {
				b.Error(err)
				return
			}
			all[done.Add(1)-1] = time.Since(began)
		}
	})
	b.StopTimer()
	slices.Sort(all)
	at := func(percent int) float64 { return float64(all[len(all)*percent/100].Nanoseconds()) / 1000 }
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "uses/s")
	b.ReportMetric(at(50), "p50-µs")
	b.ReportMetric(at(99), "p99-µs")
}
