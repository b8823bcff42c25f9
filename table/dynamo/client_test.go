package dynamo_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/internal/dynoxide"
	"github.com/shardquota/shardquota/internal/faultproxy"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/dynamo"
)

// use takes 3000 of shard 0's quota, with a pass that stamps a valid-until.
func use() (*table.Bucket, *quota.Use) {
	b := decode(seed()[0])
	use, _, err := quota.PlanUse(&b.Bucket, quota.Demand{"calls": 3000}, now)
	if err != nil || use == nil {
		panic(err)
	}
	return b, use
}

// uses are use, and one that takes 60 of shard 1's quota.
func uses() []table.PlannedUse {
	b, first := use()
	other := decode(seed()[1])
	second, _, err := quota.PlanUse(&other.Bucket, quota.Demand{"calls": 60}, now)
	if err != nil || second == nil {
		panic(err)
	}
	return []table.PlannedUse{{Bucket: b, Use: first}, {Bucket: other, Use: second}}
}

// another is an item of an entity that has none yet.
func another() table.Item { return bucket(3, 4, "77") }

// amended is what the calls amend of shard 0.
var amended = table.Amendment{
	Set: table.Item{"parent_id": table.S("other-" + parent)}, Remove: []string{"b_calls_tc"},
	Expect: []table.NamedValue{{Name: "resource", Value: table.S("gpt-4")}, {Name: "disabled"}},
}

// clientCalls are the operations that only a Client has.
var clientCalls = []call{
	{"charge", "UpdateItem", func(ctx context.Context, c *dynamo.Store) (any, error) {
		return c.Charge(ctx, group.At(0), table.FastCharge{Amounts: map[string]int64{"calls": 3000}, Now: now})
	}},
	{"use", "UpdateItem", func(ctx context.Context, c *dynamo.Store) (any, error) {
		b, use := use()
		return c.Use(ctx, b, use)
	}},
	{"use several", "TransactWriteItems", func(ctx context.Context, c *dynamo.Store) (any, error) { return c.UseAll(ctx, uses()) }},
	{"reconcile", "UpdateItem", func(ctx context.Context, c *dynamo.Store) (any, error) {
		return c.Reconcile(ctx, decode(seed()[1]), []quota.Adjustment{
			{Limit: "calls", Consumed: -500, Balance: 500, Max: new(int64(1500))}, {Limit: "wcu", Consumed: 1000, Balance: -1000},
		})
	}},
	{"propagate window", "UpdateItem", func(ctx context.Context, c *dynamo.Store) (any, error) {
		return c.PropagateWindow(ctx, group.At(1), table.OpenedWindow{Limit: "calls", Start: now + 7200_000, Length: 7200_000})
	}},
	{"insert", "PutItem", func(ctx context.Context, c *dynamo.Store) (any, error) { return c.Insert(ctx, another()) }},
	{"amend", "UpdateItem", func(ctx context.Context, c *dynamo.Store) (any, error) {
		return c.Amend(ctx, group.At(0).PK(), table.StateSK, amended)
	}},
	{"remove", "DeleteItem", func(ctx context.Context, c *dynamo.Store) (any, error) {
		return c.Remove(ctx, group.At(1).PK(), table.StateSK)
	}},
	{"read items", "BatchGetItem", func(ctx context.Context, c *dynamo.Store) (any, error) {
		var keys []table.ItemKey
		for shard := range 4 {
			keys = append(keys, table.ItemKey{PK: group.At(shard).PK(), SK: table.StateSK})
		}
		return c.Items(ctx, keys)
	}},
	{"find buckets", "Query", func(ctx context.Context, c *dynamo.Store) (any, error) {
		return c.Find(ctx, table.Scope{Namespace: group.Namespace, Entity: entity, Resource: "gpt-4"})
	}},
	{"find levels", "Query", func(ctx context.Context, c *dynamo.Store) (any, error) {
		return c.FindLevels(ctx, group.Namespace, "gpt-4")
	}},
}

// clientCall is the call of that name.
func clientCall(name string) func(context.Context, *dynamo.Store) (any, error) {
	return clientCalls[slices.IndexFunc(clientCalls, func(c call) bool { return c.name == name })].do
}

// charges are the places in the Client that make a request which is not to be
// made again by itself.
var charges = []site{
	{method: "Charge", operation: "UpdateItem", do: clientCall("charge")},
	{method: "Use", operation: "UpdateItem", do: clientCall("use")},
	{method: "Reconcile", operation: "UpdateItem", do: clientCall("reconcile")},
}

// clientSites are the others.
var clientSites = []site{
	{method: "PropagateWindow", operation: "UpdateItem", do: clientCall("propagate window"), again: func(t *testing.T, answer any, items raw) {
		if answer != false {
			t.Error("told twice")
		}
		numbers(t, items, group.At(1).PK(), table.StateSK, map[string]string{"vu": "0", "b_calls_wtc": "0"})
	}},
	{method: "Insert", operation: "PutItem", do: clientCall("insert"), again: func(t *testing.T, answer any, items raw) {
		if answer != true {
			t.Error("it is not recognised")
		}
		numbers(t, items, group.At(3).PK(), table.StateSK, map[string]string{"b_calls_tk": "77"})
	}},
	{method: "Amend", operation: "UpdateItem", do: clientCall("amend"), again: func(t *testing.T, answer any, _ raw) {
		if got := answer.(table.WriteResult); !got.Applied || got.Item["b_calls_tc"] != nil {
			t.Errorf("got %+v", got)
		}
	}},
	{method: "Remove", operation: "DeleteItem", do: clientCall("remove"), again: func(t *testing.T, _ any, items raw) {
		if item := items.Get(t, group.At(1).PK(), table.StateSK); item != nil {
			t.Errorf("still there: %v", item)
		}
	}},
	{method: "UseAll", operation: "TransactWriteItems", do: clientCall("use several"), again: func(t *testing.T, _ any, items raw) {
		numbers(t, items, group.At(0).PK(), table.StateSK, map[string]string{"b_calls_tk": "5000"})
		numbers(t, items, group.At(1).PK(), table.StateSK, map[string]string{"b_calls_tk": "40"})
	}},
	{method: "Items", operation: "BatchGetItem", do: clientCall("read items")},
	{method: "Find", operation: "Query", do: clientCall("find buckets")},
	{method: "FindLevels", operation: "Query", do: clientCall("find levels")},
}

// refusals are the faults by which the service has done nothing for sure.
var refusals = []faultproxy.Fault{faultproxy.Throughput, faultproxy.Throttled, faultproxy.RequestLimit, faultproxy.Conflict}

// A transaction that others' writes to its items were in the way of has done
// nothing, and the caller looks at the items again.
func TestAConflictIsAnAnswer(t *testing.T) {
	w := newWire(t)
	before := w.dump(t)
	w.spoil("UseAll", faultproxy.CancelledConflict, 1)
	applied, err := w.client(attempts).UseAll(t.Context(), uses())
	if applied || err != nil || w.requests("UseAll") != 1 {
		t.Errorf("%d requests: %v, %v", w.requests("UseAll"), applied, err)
	}
	same(t, "afterwards", w.dump(t), before)
}

// What takes something off a balance and cannot be recognised is never made
// again unless the first try is known not to have landed.
func TestChargesAreMadeOnce(t *testing.T) {
	for _, s := range charges {
		t.Run(s.method, func(t *testing.T) {
			t.Parallel()
			want := s.undisturbed(t)
			ambiguous, refused := 0, 0
			for _, fault := range faultproxy.Befalling(s.operation) {
				t.Run(fault.Name, func(t *testing.T) {
					if slices.ContainsFunc(refusals, fault.Is) {
						refused++
						s.madeAgain(t, fault, want)
						return
					}
					ambiguous++
					s.madeOnce(t, fault, want)
				})
			}
			if refused != len(refusals) || ambiguous < 12 {
				t.Errorf("%d refusals, %d faults of another kind", refused, ambiguous)
			}
		})
	}
}

// madeOnce: whether or not it landed, one request was all, and the error says
// that it may have.
func (s site) madeOnce(t *testing.T, fault faultproxy.Fault, want []string) {
	w := newWire(t)
	before := w.dump(t)
	w.spoil(s.method, fault, 1)
	_, err := s.do(t.Context(), w.client(attempts))
	if n := w.requests(s.method); n != 1 || !errors.Is(err, table.ErrRetry) || strings.Contains(err.Error(), entity) {
		t.Errorf("%d requests: %v", n, err)
	}
	if fault.Lands {
		before = want
	}
	same(t, "afterwards", w.dump(t), before)
}

// madeAgain: until it is made, or the client gives up.
func (s site) madeAgain(t *testing.T, fault faultproxy.Fault, want []string) {
	w := newWire(t)
	before := w.dump(t)
	w.spoil(s.method, fault, attempts)
	_, err := s.do(t.Context(), w.client(attempts))
	if n := w.requests(s.method); n != attempts || !errors.Is(err, table.ErrRetry) {
		t.Errorf("until the client gives up: %d requests: %v", n, err)
	}
	same(t, "given up", w.dump(t), before)
	w.spoil(s.method, fault, attempts-1)
	if _, err := s.do(t.Context(), w.client(attempts)); err != nil || w.requests(s.method) != attempts {
		t.Errorf("%d requests: %v", w.requests(s.method), err)
	}
	same(t, "in the end", w.dump(t), want)
}

// detour is an HTTP client whose first so many tries go to a port where nobody
// listens.
type detour struct {
	refused  string
	times    int
	attempts int
}

func (d *detour) Do(request *http.Request) (*http.Response, error) {
	d.attempts++
	if d.times--; d.times >= 0 {
		request = request.Clone(request.Context())
		request.URL.Host = d.refused
	}
	return http.DefaultClient.Do(request)
}

// A connection that was never made has carried nothing.
func TestChargesAreMadeAgainWhereNobodyListened(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	for _, s := range charges {
		want := s.undisturbed(t)
		w := newWire(t)
		d := &detour{refused: listener.Addr().String(), times: attempts}
		client := dynamo.New(over(dynoxide.Start(t), attempts, d), w.table)
		if _, err := s.do(t.Context(), client); !errors.Is(err, table.ErrRetry) || d.attempts != attempts {
			t.Errorf("%s: %d attempts: %v", s.method, d.attempts, err)
		}
		d.times, d.attempts = attempts-1, 0
		if _, err := s.do(t.Context(), client); err != nil || d.attempts != attempts {
			t.Errorf("%s: %d attempts: %v", s.method, d.attempts, err)
		}
		same(t, s.method, w.dump(t), want)
	}
}

// client is a Client over the proxy that waits for nothing.
func (w wire) client(attempts int) *dynamo.Store {
	return dynamo.New(sited{w.Client(attempts)}, w.table, patience(attempts))
}

func (c sited) PutItem(ctx context.Context, input *dynamodb.PutItemInput, options ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	return c.Client.PutItem(ctx, input, append(options, atSite())...)
}

func (c sited) DeleteItem(ctx context.Context, input *dynamodb.DeleteItemInput, options ...func(*dynamodb.Options)) (*dynamodb.DeleteItemOutput, error) {
	return c.Client.DeleteItem(ctx, input, append(options, atSite())...)
}

func (c sited) Query(ctx context.Context, input *dynamodb.QueryInput, options ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error) {
	return c.Client.Query(ctx, input, append(options, atSite())...)
}

// text is a string value, "" for any other.
func text(value types.AttributeValue) string { return table.Item{"": value}.Text("") }

// An answer of the index in pages is read to its end, and what it is asked is
// what the scope says.
func TestFindReadsAllPages(t *testing.T) {
	key := func(shard int) table.Item { return keyOf(group.At(shard).PK(), table.StateSK) }
	var asked []string
	pages := 0
	client := fake{query: func(input *dynamodb.QueryInput) (*dynamodb.QueryOutput, error) {
		asked = append(asked, *input.IndexName+" "+text(input.ExpressionAttributeValues[":0"])+" "+text(input.ExpressionAttributeValues[":1"]))
		if got := text(table.Item(input.ExclusiveStartKey)["PK"]); len(asked) <= 4 && pages > 0 && got != text(key(pages - 1)["PK"]) {
			t.Errorf("page %d begins after %q", pages, got)
		}
		output := &dynamodb.QueryOutput{ConsumedCapacity: units(0.5)}
		if pages != 1 { // the second is empty, and yet not the last
			output.Items = append(output.Items, key(pages), table.Item{"PK": table.S("n5/ENTITY#x"), "SK": table.S("#META")})
		}
		if pages < 3 {
			output.LastEvaluatedKey = key(pages)
		}
		pages++
		return output, nil
	}}
	store := dynamo.New(client, "t")
	keys, err := store.Find(t.Context(), table.Scope{Namespace: "n5", Entity: entity})
	if want := []table.Key{group.At(0), group.At(2), group.At(3)}; err != nil || !slices.Equal(keys, want) {
		t.Errorf("got %v, %v", keys, err)
	}
	if units := store.Units(); units.Read != 2 || units.Requests["Query"] != 4 {
		t.Errorf("got %+v", units)
	}
	for _, scope := range []table.Scope{{Namespace: "n5", Entity: entity, Resource: "r"}, {Namespace: "n5", Resource: "r"}, {Namespace: "n5"}} {
		pages = 3
		if _, err := store.Find(t.Context(), scope); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"GSI3 n5/ENTITY#" + entity + " BUCKET#r#", "GSI2 n5/RESOURCE#r BUCKET#", "GSI4 n5 BUCKET#"}
	if got := asked[4:]; !slices.Equal(got, want) {
		t.Errorf("asked %q", got)
	}
}
