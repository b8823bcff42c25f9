package main_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/internal/dynoxide"
	"github.com/shardquota/shardquota/internal/faultproxy"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/dynamo"
)

// batchTime is when the batch of these tests is delivered, a second after its
// records were written.
var batchTime = time.Date(2026, 11, 30, 10, 20, 0, 0, time.UTC)

// part is one part of the batch that can fail by itself, and what the table is
// asked for its sake, in order.
type part struct {
	records  []int // that it works on; the first is where to go on from if it fails
	requests []string
}

// parts are those of the batch that scene makes, in the order in which one that
// does one thing after the other comes to them: written down by hand, so that
// what the aggregator asks for and reports is compared with something else.
var parts = []part{
	{[]int{6}, []string{"freeze grown/0", "siblings grown", "raise grown/1", "create grown/2", "create grown/3"}},
	{[]int{0, 5}, []string{"usage use"}},
	{[]int{1, 8}, []string{"usage short"}},
	{[]int{3, 7, 10}, []string{"usage grown"}},
	{[]int{4, 9}, []string{"usage hot"}},
	{[]int{0, 5}, nil}, // a pass that is not needed
	{[]int{1, 8}, []string{"pass short/0"}},
	{[]int{3, 6, 10}, []string{"pass grown/0"}}, // it holds more of rpm than its share at 4
	{[]int{4, 9}, nil},
	{[]int{7}, nil},
	{[]int{4, 9}, []string{"freeze hot/0", "double hot/0"}},
}

// label says what a request is for.
func label(r faultproxy.Request) string {
	pk, sk := r.Key().PK, r.Key().SK
	if entity, ok := strings.CutPrefix(pk, namespace+"/ENTITY#"); ok && strings.HasPrefix(sk, "#USAGE#") {
		return "usage " + entity
	}
	name := strings.Split(strings.TrimPrefix(pk, namespace+"/BUCKET#"), "#")
	bucket := name[0] + "/" + name[len(name)-1]
	switch {
	case r.Operation == "BatchGetItem":
		return "siblings " + name[0]
	case r.Operation == "TransactWriteItems":
		return "create " + bucket
	case r.Operation == "UpdateItem" && r.Uses("rf"):
		return "pass " + bucket
	case r.Operation == "UpdateItem" && !r.Uses("shard_count"):
		return "freeze " + bucket
	case r.Operation == "UpdateItem" && strings.HasSuffix(bucket, "/0"):
		return "double " + bucket
	case r.Operation == "UpdateItem":
		return "raise " + bucket
	}
	return r.Operation + " " + pk
}

// labels are all requests of the batch, in order.
func labels() []string {
	var all []string
	for _, p := range parts {
		all = append(all, p.requests...)
	}
	return all
}

// scene is a table, and the batch of the writes that made it what it is: an
// entity that is used; one that ran short; one that grew from 2 shards to 4 with
// a legacy quota; one that is hot, with a legacy quota too; and a configuration.
type scene struct {
	items   map[string]item
	records []record
}

func newScene() *scene {
	s := &scene{items: map[string]item{}}
	amounts := map[string]int64{"calls": 1_250, "rpm": 500}
	s.create("use", []limit{calls, rpm}, amounts)
	s.create("short", []limit{rpm}, map[string]int64{"rpm": 400_000}, func(i item) { i["rf"] = num(batchTime.Add(-time.Hour).UnixMilli()) })
	s.put(item{"PK": table.S(namespace + "/SYSTEM#"), "SK": table.S("#CONFIG"), "l_rpm_cp": num(600)}, nil)

	s.seed("grown", 0, legacy, func(i item) { i["shard_count"] = num(2) })
	s.seed("grown", 1, func(i item) {
		i["shard_count"], i["b_calls_gc"], i["b_calls_tk"], i["b_rpm_tk"] = num(2), num(2), num(400_000), num(100_000)
	})
	s.seed("hot", 0, legacy, func(i item) { i["rf"], i["b_wcu_tk"] = num(batchTime.Add(-time.Second).UnixMilli()), num(100_000) })
	s.consume("grown", 0, amounts)
	s.consume("hot", 0, amounts)
	s.consume("use", 0, amounts)
	s.change("grown", 0, func(i item) { i["shard_count"] = num(4) })
	s.consume("grown", 1, amounts)
	s.consume("short", 0, map[string]int64{"rpm": 1_000})
	s.consume("hot", 0, amounts)
	s.consume("grown", 0, amounts)
	return s
}

// legacy takes off a quota what it was granted at.
func legacy(i item) {
	delete(i, "b_calls_gc")
	i["b_calls_tk"], i["b_calls_tc"] = num(300_000), num(700_000)
}

// put puts an item, and, unless it was there before the batch, on the stream.
func (s *scene) put(to, from item) {
	name := "MODIFY"
	if from == nil {
		name = "INSERT"
	}
	keys := item{"PK": to["PK"], "SK": to["SK"]}
	s.items[text(to, "PK")+" "+text(to, "SK")] = to
	s.records = append(s.records, record{
		name: name, sequence: fmt.Sprint(101 + len(s.records)), written: batchTime.Add(-time.Second),
		keys: keys, old: from, new: to, arn: "arn:aws:dynamodb:us-east-1:1:table/t/stream/2026-11-30T00:00:00.000",
	})
}

func (s *scene) create(entity string, limits []limit, amounts map[string]int64, changes ...func(item)) {
	i := newBucket(batchTime.Add(-time.Second), entity, limits, amounts)
	for _, change := range changes {
		change(i)
	}
	s.put(i, nil)
}

// seed puts a shard that was there before the batch.
func (s *scene) seed(entity string, shard int, changes ...func(item)) {
	i := newBucket(batchTime.Add(-time.Minute), entity, []limit{calls, rpm}, nil)
	i["PK"] = table.S(bucketPK(entity, shard))
	for _, index := range []string{"GSI2SK", "GSI3SK", "GSI4SK"} {
		i[index] = table.S(strings.TrimSuffix(text(i, index), "0") + fmt.Sprint(shard))
	}
	for _, change := range changes {
		change(i)
	}
	s.items[bucketPK(entity, shard)+" #STATE"] = i
}

func (s *scene) change(entity string, shard int, change func(item)) {
	from := s.items[bucketPK(entity, shard)+" #STATE"]
	to := maps.Clone(from)
	change(to)
	s.put(to, from)
}

func (s *scene) consume(entity string, shard int, amounts map[string]int64) {
	s.change(entity, shard, func(i item) {
		for name, amount := range amounts {
			i["b_"+name+"_tk"] = num(number(i, "b_"+name+"_tk") - amount)
			i["b_"+name+"_tc"] = num(number(i, "b_"+name+"_tc") + amount)
		}
		i["b_wcu_tk"], i["b_wcu_tc"] = num(number(i, "b_wcu_tk")-1_000), num(number(i, "b_wcu_tc")+1_000)
	})
}

// rig delivers the batch of a scene to an aggregator that reaches a fresh table
// through a proxy, and keeps a list of what is wrong.
type rig struct {
	*testing.T
	*scene
	*faultproxy.Proxy
	client *dynamodb.Client
	table  string
	store  table.Store
	wrong  []string
}

// newRig makes one whose client makes so many attempts. mutate may be nil.
func newRig(t *testing.T, s *scene, attempts int, mutate func(table.Store) table.Store) *rig {
	t.Helper()
	r := &rig{T: t, scene: s, Proxy: faultproxy.Start(t, dynoxide.Start(t)), client: dynoxide.Client(t)}
	r.table = dynoxide.NewTable(t, r.client, func(input *dynamodb.CreateTableInput) { input.StreamSpecification = nil })
	var puts []types.WriteRequest
	for _, i := range s.items {
		puts = append(puts, types.WriteRequest{PutRequest: &types.PutRequest{Item: i}})
	}
	_, err := r.client.BatchWriteItem(t.Context(), &dynamodb.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{r.table: puts}})
	if err != nil {
		t.Fatal(err)
	}
	r.store = dynamo.New(r.Client(attempts), r.table, dynamo.Backoff(attempts, func(int) time.Duration { return 0 }), dynamo.Concurrency(1))
	if mutate != nil {
		r.store = mutate(r.store)
	}
	return r
}

func (r *rig) complain(format string, values ...any) {
	r.wrong = append(r.wrong, fmt.Sprintf(format, values...))
}

// deliver delivers the batch from a record on, and returns the record that it is
// to be delivered from again, the number of records where there is none.
func (r *rig) deliver(ctx context.Context, concurrency, from int) int {
	r.Helper()
	records, err := events.DecodeEvent(event(r, r.records[from:]))
	if err != nil {
		r.Fatal(err)
	}
	a := aggregator.Aggregator{
		Store: r.store, Windows: []events.Window{events.Hourly}, Retention: 24 * time.Hour, Concurrency: concurrency,
	}
	report := a.Process(ctx, records, batchTime.UnixMilli())
	if len(report.Rejected) != 0 {
		r.Fatalf("rejected: %v", report.Rejected)
	}
	if len(report.Failures) == 0 {
		return len(r.records)
	}
	return from + report.Failures[0].Index
}

// lines is the whole table.
func (r *rig) lines() []string { return scan(r, r.client, r.table).lines(r) }

// asked counts the requests that the proxy has seen, by label.
func (r *rig) asked() map[string]int {
	counts := map[string]int{}
	for _, passed := range r.Seen() {
		counts[label(passed.Request)]++
	}
	return counts
}

// compare complains where the table is not as wanted.
func (r *rig) compare(when string, want []string) {
	if got := r.lines(); !slices.Equal(got, want) {
		for _, line := range got {
			if !slices.Contains(want, line) {
				r.complain("%s: %s", when, line)
			}
		}
		r.complain("%s: the table is not as without faults", when)
	}
}

// due is the record that a part fails at, of a batch delivered from a record on.
func (p part) due(from int) int {
	for _, r := range p.records {
		if r >= from {
			return r
		}
	}
	return 1 << 30
}

// undisturbed is the table after the batch where nothing goes wrong. It checks
// that the requests made for it are those of parts, each once, and in order.
func undisturbed(t *testing.T, s *scene) []string {
	t.Helper()
	r := newRig(t, s, 1, nil)
	if failed := r.deliver(t.Context(), 1, 0); failed != len(s.records) {
		t.Fatalf("without faults it fails at record %d", failed)
	}
	var got []string
	for _, passed := range r.Seen() {
		got = append(got, label(passed.Request))
	}
	if !slices.Equal(got, labels()) {
		t.Fatalf("the requests are\n%q, not\n%q", got, labels())
	}
	checkUsageOnce(t, scan(t, r.client, r.table))
	return r.lines()
}

// checkUsageOnce compares the usage with what the batch consumed, summed by hand.
func checkUsageOnce(t *testing.T, s snapshot) {
	t.Helper()
	want := map[string]map[string]string{
		"use":   {"calls": "2.5", "rpm": "1", "total_events": "2"},
		"short": {"rpm": "401", "total_events": "2"},
		"grown": {"calls": "3.75", "rpm": "1.5", "total_events": "3"},
		"hot":   {"calls": "2.5", "rpm": "1", "total_events": "2"},
	}
	for entity, numbers := range want {
		got := numbersOf(s[namespace+"/ENTITY#"+entity+" #USAGE#"+resource+"#2026-11-30T10:00:00Z#hourly"])
		delete(got, "ttl")
		if !maps.Equal(got, numbers) {
			t.Errorf("usage of %s: %v, want %v", entity, got, numbers)
		}
	}
}
