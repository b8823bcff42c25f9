package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/internal/dynoxide"
	. "github.com/shardquota/shardquota/limiter"
	. "github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/dynamo"
)

// scale weighs what a Limiter asks for: requests by operation, and the units of
// the table and of each index.
type scale struct {
	*dynamodb.Client

	mu       sync.Mutex
	requests map[string]int
	refused  int
	units    map[string]float64
}

func (s *scale) reset() { s.requests, s.refused, s.units = map[string]int{}, 0, map[string]float64{} }

func (s *scale) add(operation string, err error, consumed ...types.ConsumedCapacity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests[operation]++
	var failed *types.ConditionalCheckFailedException
	if errors.As(err, &failed) {
		s.refused++
	}
	for _, c := range consumed {
		if c.Table != nil {
			s.units["table"] += *c.Table.CapacityUnits
		}
		for index, units := range c.GlobalSecondaryIndexes {
			s.units[index] += *units.CapacityUnits
		}
	}
}

// String lists the requests, then what they consumed of writes, or of reads
// where they read.
func (s *scale) String() string {
	var requests, units []string
	for _, operation := range slices.Sorted(maps.Keys(s.requests)) {
		requests = append(requests, fmt.Sprintf("%d %s", s.requests[operation], operation))
	}
	if s.refused > 0 {
		requests = append(requests, fmt.Sprintf("%d refused", s.refused))
	}
	for _, name := range slices.Sorted(maps.Keys(s.units)) {
		if s.units[name] > 0 {
			units = append(units, fmt.Sprintf("%s %g", name, s.units[name]))
		}
	}
	if len(units) == 0 {
		units = []string{"nothing"}
	}
	return strings.Join(requests, ", ") + ": " + strings.Join(units, ", ")
}

func of(c *types.ConsumedCapacity) []types.ConsumedCapacity {
	if c == nil {
		return nil
	}
	return []types.ConsumedCapacity{*c}
}

func reads(consumed []types.ConsumedCapacity) []types.ConsumedCapacity {
	for i := range consumed {
		units := *consumed[i].CapacityUnits
		consumed[i] = types.ConsumedCapacity{GlobalSecondaryIndexes: map[string]types.Capacity{"read": {CapacityUnits: &units}}}
	}
	return consumed
}

func (s *scale) GetItem(ctx context.Context, in *dynamodb.GetItemInput, options ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	out, err := s.Client.GetItem(ctx, in, options...)
	if err == nil {
		s.add("GetItem", err, reads(of(out.ConsumedCapacity))...)
	}
	return out, err
}

func (s *scale) BatchGetItem(ctx context.Context, in *dynamodb.BatchGetItemInput, options ...func(*dynamodb.Options)) (*dynamodb.BatchGetItemOutput, error) {
	out, err := s.Client.BatchGetItem(ctx, in, options...)
	if err == nil {
		s.add("BatchGetItem", err, reads(slices.Clone(out.ConsumedCapacity))...)
	}
	return out, err
}

func (s *scale) Query(ctx context.Context, in *dynamodb.QueryInput, options ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error) {
	out, err := s.Client.Query(ctx, in, options...)
	if err == nil {
		s.add("Query", err, reads(of(out.ConsumedCapacity))...)
	}
	return out, err
}

func (s *scale) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput, options ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	in.ReturnConsumedCapacity = types.ReturnConsumedCapacityIndexes
	out, err := s.Client.UpdateItem(ctx, in, options...)
	if err != nil {
		s.add("UpdateItem", err)
		return out, err
	}
	s.add("UpdateItem", nil, of(out.ConsumedCapacity)...)
	return out, err
}

func (s *scale) PutItem(ctx context.Context, in *dynamodb.PutItemInput, options ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	in.ReturnConsumedCapacity = types.ReturnConsumedCapacityIndexes
	out, err := s.Client.PutItem(ctx, in, options...)
	if err == nil {
		s.add("PutItem", err, of(out.ConsumedCapacity)...)
	}
	return out, err
}

func (s *scale) TransactWriteItems(ctx context.Context, in *dynamodb.TransactWriteItemsInput, options ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error) {
	in.ReturnConsumedCapacity = types.ReturnConsumedCapacityIndexes
	out, err := s.Client.TransactWriteItems(ctx, in, options...)
	if err == nil {
		s.add("TransactWriteItems", err, out.ConsumedCapacity...)
	}
	return out, err
}

// priced is a table, and a Limiter on it whose clock stands still.
type priced struct {
	*testing.T
	*scale
	*program
	store *dynamo.Store
	now   time.Time
	shard int // that is drawn, if there are so many
}

func newPriced(t *testing.T, options ...dynamo.TableOption) *priced {
	t.Helper()
	client := dynoxide.Client(t)
	p := &priced{T: t, scale: &scale{Client: client}, now: time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)}
	p.reset()
	p.store = dynamo.New(p.scale, dynoxide.NewTable(t, client, options...))
	var err error
	p.program, err = newProgram(t.Context(), p.store, NamespaceID("ns1"),
		Clock(func() time.Time { return p.now }), Deterministic(func(n int) int { return min(p.shard, n-1) }),
		Default("", PerMinute("rpm", 60), Quota("calls", 1000, "0 0 * * *")), Default("chat", Session("calls", 1000, time.Hour)),
		Default("batch", divided(Quota("calls", 1000, "0 0 * * *"), quota.Pooled)))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *priced) use(entity, resource string, amounts Amounts) *Lease {
	p.Helper()
	lease, err := p.Acquire(p.Context(), entity, resource, amounts)
	if err != nil {
		p.Fatal(err)
	}
	return lease
}

// rejected asks acme's batches for what they have not.
func (p *priced) rejected(amounts Amounts) {
	p.Helper()
	var rejection *Rejection
	if _, err := p.Acquire(p.Context(), "acme", "batch", amounts); !errors.As(err, &rejection) {
		p.Error(err)
	}
}

func (p *priced) fine(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

// shards has an entity have so many shards, all of which exist.
func (p *priced) shards(entity, resource string, amounts Amounts, count int) {
	p.Helper()
	p.use(entity, resource, amounts)
	group := table.Group{Namespace: "ns1", Entity: entity, Resource: resource}
	for from := 1; from < count; from *= 2 {
		_, err := p.store.Double(p.Context(), group, from)
		p.fine(err)
	}
	p.shard = 0
	p.use(entity, resource, amounts)
	for p.shard = range count {
		p.use(entity, resource, amounts)
	}
	p.shard = 0
}

// operations are what a program does, each with what is made ready for it.
var operations = []struct {
	name  string
	ready func(p *priced) (do func())
	costs [2]string // by the projection of GSI2: ALL, KEYS_ONLY
}{
	{"first use", func(p *priced) func() {
		return func() { p.use("acme", "gpt-4", Amounts{"rpm": 1, "calls": 1}) }
	}, [2]string{
		"2 BatchGetItem, 1 PutItem, 1 Query, 2 UpdateItem, 1 refused: GSI2 2, GSI3 1, GSI4 1, read 10.5, table 2",
		"2 BatchGetItem, 1 PutItem, 1 Query, 2 UpdateItem, 1 refused: GSI2 1, GSI3 1, GSI4 1, read 10.5, table 2",
	}},
	{"use", func(p *priced) func() {
		p.use("acme", "gpt-4", Amounts{"rpm": 1})
		return func() { p.use("acme", "gpt-4", Amounts{"rpm": 1, "calls": 1}) }
	}, [2]string{
		"1 UpdateItem: GSI2 1, table 1",
		"1 UpdateItem: table 1",
	}},
	{"use with a pass", func(p *priced) func() {
		p.use("acme", "gpt-4", Amounts{"rpm": 60})
		p.now = p.now.Add(5 * time.Second)
		return func() { p.use("acme", "gpt-4", Amounts{"rpm": 1, "calls": 1}) }
	}, [2]string{
		"2 UpdateItem, 1 refused: GSI2 1, table 1",
		"2 UpdateItem, 1 refused: table 1",
	}},
	{"rejection", func(p *priced) func() {
		p.use("acme", "gpt-4", Amounts{"rpm": 60})
		return func() {
			var rejection *Rejection
			if _, err := p.Acquire(p.Context(), "acme", "gpt-4", Amounts{"rpm": 1}); !errors.As(err, &rejection) {
				p.Error(err)
			}
		}
	}, [2]string{
		"1 UpdateItem, 1 refused: nothing",
		"1 UpdateItem, 1 refused: nothing",
	}},
	{"adjustment", func(p *priced) func() {
		lease := p.use("acme", "gpt-4", Amounts{"rpm": 1, "calls": 9})
		return func() { p.fine(lease.Adjust(p.Context(), Amounts{"calls": -4})) }
	}, [2]string{
		"1 UpdateItem: GSI2 1, table 1",
		"1 UpdateItem: table 1",
	}},
	{"release", func(p *priced) func() {
		lease := p.use("acme", "gpt-4", Amounts{"rpm": 1, "calls": 9})
		return func() { p.fine(lease.Release(p.Context())) }
	}, [2]string{
		"1 UpdateItem: GSI2 1, table 1",
		"1 UpdateItem: table 1",
	}},
	{"gathered use, of 2 shards of 4", func(p *priced) func() {
		p.shards("acme", "batch", Amounts{"calls": 1}, 4)
		return func() { p.use("acme", "batch", Amounts{"calls": 400}) }
	}, [2]string{
		"1 BatchGetItem, 1 GetItem, 1 TransactWriteItems, 1 UpdateItem, 1 refused: GSI2 2, read 5, table 4",
		"1 BatchGetItem, 1 GetItem, 1 TransactWriteItems, 1 UpdateItem, 1 refused: read 5, table 4",
	}},
	{"rejection of what is gathered, from 4 shards", func(p *priced) func() {
		p.shards("acme", "batch", Amounts{"calls": 1}, 4)
		return func() { p.rejected(Amounts{"calls": 1000}) }
	}, [2]string{
		"1 BatchGetItem, 1 GetItem, 1 UpdateItem, 1 refused: read 5",
		"1 BatchGetItem, 1 GetItem, 1 UpdateItem, 1 refused: read 5",
	}},
	{"the same within a second", func(p *priced) func() {
		p.shards("acme", "batch", Amounts{"calls": 1}, 4)
		p.use("acme", "batch", Amounts{"calls": 990})
		p.rejected(Amounts{"calls": 20})
		return func() { p.rejected(Amounts{"calls": 20}) }
	}, [2]string{
		"1 UpdateItem, 1 refused: nothing",
		"1 UpdateItem, 1 refused: nothing",
	}},
	{"first use of another shard", func(p *priced) func() {
		p.use("acme", "gpt-4", Amounts{"rpm": 1, "calls": 1})
		_, err := p.store.Double(p.Context(), table.Group{Namespace: "ns1", Entity: "acme", Resource: "gpt-4"}, 1)
		p.fine(err)
		p.use("acme", "gpt-4", Amounts{"rpm": 1, "calls": 1})
		p.shard = 1
		return func() { p.use("acme", "gpt-4", Amounts{"rpm": 1, "calls": 1}) }
	}, [2]string{
		"1 BatchGetItem, 1 GetItem, 1 TransactWriteItems, 2 UpdateItem, 1 refused: GSI2 3, GSI3 1, GSI4 1, read 3, table 5",
		"1 BatchGetItem, 1 GetItem, 1 TransactWriteItems, 2 UpdateItem, 1 refused: GSI2 1, GSI3 1, GSI4 1, read 3, table 5",
	}},
	{"use that doubles, from 2 shards", func(p *priced) func() {
		p.shards("acme", "gpt-4", Amounts{"rpm": 1, "calls": 1}, 2)
		_, err := p.store.Amend(p.Context(), table.Key{Group: table.Group{Namespace: "ns1", Entity: "acme", Resource: "gpt-4"}}.PK(), table.StateSK,
			table.Amendment{Set: table.Item{table.Attr("wcu", table.FieldBalance): table.N("0")}})
		p.fine(err)
		return func() { p.use("acme", "gpt-4", Amounts{"rpm": 1, "calls": 1}) }
	}, [2]string{
		"1 BatchGetItem, 4 UpdateItem, 1 refused: GSI2 3, read 4, table 3",
		"1 BatchGetItem, 4 UpdateItem, 1 refused: read 4, table 3",
	}},
	{"use that opens a window, of 4 shards", func(p *priced) func() {
		p.shards("acme", "chat", Amounts{"calls": 1}, 4)
		p.now = p.now.Add(2 * time.Hour)
		return func() { p.use("acme", "chat", Amounts{"calls": 1}) }
	}, [2]string{
		"5 UpdateItem, 1 refused: GSI2 4, table 4",
		"5 UpdateItem, 1 refused: table 4",
	}},
	{"use that cascades", func(p *priced) func() {
		p.fine(p.CreateEntity(p.Context(), Entity{ID: "acme"}))
		p.fine(p.CreateEntity(p.Context(), Entity{ID: "web", Parent: "acme", Cascade: true}))
		p.use("web", "gpt-4", Amounts{"rpm": 1, "calls": 1})
		return func() { p.use("web", "gpt-4", Amounts{"rpm": 1, "calls": 1}) }
	}, [2]string{
		"2 UpdateItem: GSI2 2, table 2",
		"2 UpdateItem: table 2",
	}},
}

// TestWhatItCosts weighs everything that a program does. docs/performance.md has
// the figures.
func TestWhatItCosts(t *testing.T) {
	for i, options := range [][]dynamo.TableOption{nil, {dynamo.GSI2KeysOnly}} {
		for _, operation := range operations {
			p := newPriced(t, options...)
			do := operation.ready(p)
			p.reset()
			do()
			got := p.String()
			t.Logf("%-40s projection %d: %s", operation.name, i, got)
			if got != operation.costs[i] {
				t.Errorf("%s, projection %d:\n got %s\nwant %s", operation.name, i, got, operation.costs[i])
			}
		}
	}
}
