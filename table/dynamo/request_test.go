package dynamo_test

import (
	"context"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/internal/dynoxide"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/dynamo"
)

// grammar is everything that an expression may hold.
var grammar = regexp.MustCompile(`^(SET|ADD|REMOVE|AND|OR|attribute_exists|attribute_not_exists|if_not_exists|contains|#[0-9]+|:[0-9]+|[ ,()<>=]+)+$`)

// recorder answers every request as if it had succeeded, and keeps the
// expressions.
type recorder struct {
	expressions []string
	tokens      []string
	consistent  []bool // of each read
}

func (r *recorder) keep(expressions ...*string) {
	for _, expression := range expressions {
		if expression != nil {
			r.expressions = append(r.expressions, *expression)
		}
	}
}

func (r *recorder) client() fake {
	return fake{
		getItem: func(input *dynamodb.GetItemInput) (*dynamodb.GetItemOutput, error) {
			r.consistent = append(r.consistent, *input.ConsistentRead)
			return &dynamodb.GetItemOutput{ConsumedCapacity: units(0.5)}, nil
		},
		batchGet: func(input *dynamodb.BatchGetItemInput) (*dynamodb.BatchGetItemOutput, error) {
			r.consistent = append(r.consistent, *input.RequestItems["t"].ConsistentRead)
			output := found(seed()...)
			output.ConsumedCapacity = []types.ConsumedCapacity{*units(2)}
			return output, nil
		},
		updateItem: func(_ context.Context, input *dynamodb.UpdateItemInput) (*dynamodb.UpdateItemOutput, error) {
			r.keep(input.UpdateExpression, input.ConditionExpression)
			return &dynamodb.UpdateItemOutput{Attributes: bucket(1, 4, "1"), ConsumedCapacity: units(3)}, nil
		},
		transact: func(input *dynamodb.TransactWriteItemsInput) (*dynamodb.TransactWriteItemsOutput, error) {
			if input.ClientRequestToken != nil { // else the SDK makes one
				r.tokens = append(r.tokens, *input.ClientRequestToken)
			}
			for _, item := range input.TransactItems {
				switch {
				case item.Put != nil:
					r.keep(item.Put.ConditionExpression)
				case item.Update != nil:
					r.keep(item.Update.UpdateExpression, item.Update.ConditionExpression)
				case item.ConditionCheck != nil:
					r.keep(item.ConditionCheck.ConditionExpression)
				}
			}
			return &dynamodb.TransactWriteItemsOutput{ConsumedCapacity: []types.ConsumedCapacity{*units(8)}}, nil
		},
		putItem: func(input *dynamodb.PutItemInput) (*dynamodb.PutItemOutput, error) {
			r.keep(input.ConditionExpression)
			return &dynamodb.PutItemOutput{ConsumedCapacity: units(4)}, nil
		},
		deleteItem: func(*dynamodb.DeleteItemInput) (*dynamodb.DeleteItemOutput, error) {
			return &dynamodb.DeleteItemOutput{ConsumedCapacity: units(5)}, nil
		},
		query: func(input *dynamodb.QueryInput) (*dynamodb.QueryOutput, error) {
			r.keep(input.ProjectionExpression)
			return &dynamodb.QueryOutput{ConsumedCapacity: units(0.5)}, nil
		},
	}
}

func units(n float64) *types.ConsumedCapacity { return &types.ConsumedCapacity{CapacityUnits: &n} }

// No expression names an attribute.
func TestExpressionsHoldOnlyAliases(t *testing.T) {
	r := &recorder{}
	store := dynamo.New(r.client(), "t")
	for _, call := range calls {
		if _, err := call.do(t.Context(), store); err != nil {
			t.Fatalf("%s: %v", call.name, err)
		}
	}
	if len(r.expressions) < 10 {
		t.Errorf("only %d expressions were seen", len(r.expressions))
	}
	for _, expression := range r.expressions {
		if !grammar.MatchString(expression) {
			t.Errorf("not of aliases alone: %s", expression)
		}
	}
}

// Reads reflect every write that was acknowledged.
func TestReadsAreConsistent(t *testing.T) {
	r := &recorder{}
	store := dynamo.New(r.client(), "t")
	for _, call := range calls {
		if _, err := call.do(t.Context(), store); err != nil {
			t.Fatalf("%s: %v", call.name, err)
		}
	}
	if _, err := store.Get(t.Context(), "pk", "sk"); err != nil {
		t.Fatal(err)
	}
	if want := []bool{true, true, true, true}; !slices.Equal(r.consistent, want) {
		t.Errorf("got %v", r.consistent)
	}
}

// meddling changes the table between a batch read and what follows it.
type meddling struct {
	*dynamodb.Client
	meddle func()
}

func (m meddling) BatchGetItem(ctx context.Context, input *dynamodb.BatchGetItemInput, options ...func(*dynamodb.Options)) (*dynamodb.BatchGetItemOutput, error) {
	output, err := m.Client.BatchGetItem(ctx, input, options...)
	m.meddle()
	return output, err
}

// What someone else did between the read and the raise stands, and is seen in
// the image that is returned.
func TestRaiseAfterSomeoneElse(t *testing.T) {
	client := dynoxide.Client(t)
	name := dynoxide.NewTable(t, client)
	items := raw{client, name}
	for _, item := range seed() {
		items.Put(t, item)
	}
	frozen := bucket(1, 4, "77") // a reset at 4 and a raise to 4, while ours is to 8
	frozen["b_calls_gc"] = table.N("4")
	store := dynamo.New(meddling{client, func() { items.Put(t, frozen) }}, name)
	for _, want := range []struct {
		count  int
		raised bool
	}{{8, true}, {4, false}} {
		items.Put(t, seed()[1])
		siblings, err := store.RaiseAndRead(t.Context(), group, want.count, now)
		if err != nil {
			t.Fatal(err)
		}
		got := siblings[1]
		if got.Raised != want.raised || got.Bucket.ShardCount != want.count {
			t.Errorf("to %d: %+v", want.count, got)
		}
		if calls := got.Bucket.Limit("calls"); calls.Balance != 77 || calls.Grant == nil || *calls.Grant != 4 {
			t.Errorf("to %d: %+v", want.count, calls)
		}
	}
}

func TestUnits(t *testing.T) {
	store := dynamo.New((&recorder{}).client(), "t")
	before := store.Units()
	for _, call := range calls {
		if _, err := call.do(t.Context(), store); err != nil {
			t.Fatalf("%s: %v", call.name, err)
		}
	}
	want := dynamo.Units{
		Read: 0.5 + 2*2 + 2*0.5, Write: 10*3 + 2*8 + 4 + 5,
		Requests: map[string]int{
			"GetItem": 1, "BatchGetItem": 2, "UpdateItem": 10, "TransactWriteItems": 2, "PutItem": 1, "DeleteItem": 1, "Query": 2,
		},
	}
	if got := store.Units(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
	if !reflect.DeepEqual(before, dynamo.Units{}) {
		t.Errorf("a snapshot changed: %+v", before)
	}
}

// The service does not say what a refused request consumed.
func TestUnitsOfRefusedRequests(t *testing.T) {
	store := dynamo.New(fake{
		updateItem: func(context.Context, *dynamodb.UpdateItemInput) (*dynamodb.UpdateItemOutput, error) {
			return nil, &types.ConditionalCheckFailedException{Item: bucket(0, 8, "1")}
		},
		transact: func(*dynamodb.TransactWriteItemsInput) (*dynamodb.TransactWriteItemsOutput, error) {
			return nil, &types.TransactionCanceledException{CancellationReasons: reasons("ConditionalCheckFailed", nil)}
		},
	}, "t")
	if _, err := store.Double(t.Context(), group, 4); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Create(t.Context(), creation()); err != nil {
		t.Fatal(err)
	}
	want := dynamo.Units{Refused: 2, Requests: map[string]int{"UpdateItem": 1, "TransactWriteItems": 1}}
	if got := store.Units(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
}

// What the service reports is what is counted.
func TestUnitsOfTheService(t *testing.T) {
	store, items := openClient(t, dynoxide.Client(t))
	for _, item := range seed() {
		items.Put(t, item)
	}
	for _, call := range calls {
		if _, err := call.do(t.Context(), store); err != nil {
			t.Fatalf("%s: %v", call.name, err)
		}
	}
	got := store.Units()
	want := map[string]int{
		"GetItem": 1, "BatchGetItem": 2, "UpdateItem": 10, "TransactWriteItems": 2, "PutItem": 1, "DeleteItem": 1, "Query": 2,
	}
	if !maps.Equal(got.Requests, want) || got.Read < 3 || got.Write < 8 {
		t.Errorf("got %+v", got)
	}
}

// Equal creations have equal tokens, others do not.
func TestTokens(t *testing.T) {
	r := &recorder{}
	store := dynamo.New(r.client(), "t")
	create := func(change func(*table.Creation)) string {
		made := creation()
		change(&made)
		if _, err := store.Create(t.Context(), made); err != nil {
			t.Fatal(err)
		}
		return r.tokens[len(r.tokens)-1]
	}
	same := create(func(*table.Creation) {})
	if len(same) == 0 || len(same) > 36 {
		t.Errorf("a token of %d characters", len(same))
	}
	for range 20 { // maps have another order each time
		if again := create(func(*table.Creation) {}); again != same {
			t.Fatal("an equal creation has another token")
		}
	}
	for name, change := range map[string]func(*table.Creation){
		"time":        func(c *table.Creation) { c.Bucket.RefilledAt++; c.Bucket.Fill() },
		"shard":       func(c *table.Creation) { c.Bucket.Key.Shard++ },
		"count":       func(c *table.Creation) { c.Bucket.ShardCount *= 2 },
		"amount":      func(c *table.Creation) { c.Moves[0].Amount++ },
		"donor":       func(c *table.Creation) { c.Moves[0].Donor = 1 },
		"guard":       func(c *table.Creation) { c.Moves[0].Guard.Grant = 2 },
		"type":        func(c *table.Creation) { c.Bucket.Item["x"] = table.N("1") },
		"other type":  func(c *table.Creation) { c.Bucket.Item["x"] = table.S("1") },
		"nested":      func(c *table.Creation) { c.Bucket.Item["x"] = &types.AttributeValueMemberM{Value: seed()[0]} },
		"other table": func(c *table.Creation) { store = dynamo.New(r.client(), "u") },
	} {
		if create(change) == same {
			t.Errorf("another %s has the same token", name)
		}
	}
}

// Raises run at once, but not more of them than allowed.
func TestConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var items []table.Item
		for shard := range 16 {
			items = append(items, bucket(shard, 8, "1"))
		}
		var running, most atomic.Int64
		client := fake{
			batchGet: func(*dynamodb.BatchGetItemInput) (*dynamodb.BatchGetItemOutput, error) { return found(items...), nil },
			updateItem: func(context.Context, *dynamodb.UpdateItemInput) (*dynamodb.UpdateItemOutput, error) {
				most.Store(max(most.Load(), running.Add(1)))
				time.Sleep(time.Second) // of the bubble's time: all that can run are running
				running.Add(-1)
				return &dynamodb.UpdateItemOutput{Attributes: bucket(1, 16, "1")}, nil
			},
		}
		began := time.Now()
		if _, err := dynamo.New(client, "t", dynamo.Concurrency(5)).RaiseAndRead(t.Context(), group, 16, now); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); most.Load() != 5 || took != 3*time.Second {
			t.Errorf("%d at once, %v for 15 raises", most.Load(), took)
		}
	})
}

// The layout's table as the service understood it.
func TestCreateTableInput(t *testing.T) {
	for projection, options := range map[string][]dynamo.TableOption{"ALL": nil, "KEYS_ONLY": {dynamo.GSI2KeysOnly}} {
		t.Run(projection, func(t *testing.T) { testCreateTableInput(t, projection, options) })
	}
}

func testCreateTableInput(t *testing.T, projection string, options []dynamo.TableOption) {
	client := dynoxide.Client(t)
	name := dynoxide.NewTable(t, client, options...)
	output, err := client.DescribeTable(t.Context(), &dynamodb.DescribeTableInput{TableName: &name})
	if err != nil {
		t.Fatal(err)
	}
	described := output.Table
	var got []string
	for _, index := range described.GlobalSecondaryIndexes {
		got = append(got, strings.Join([]string{
			*index.IndexName, *index.KeySchema[0].AttributeName, *index.KeySchema[1].AttributeName,
			string(index.Projection.ProjectionType),
		}, " "))
	}
	slices.Sort(got)
	want := []string{"GSI1 GSI1PK GSI1SK ALL", "GSI2 GSI2PK GSI2SK " + projection, "GSI3 GSI3PK GSI3SK KEYS_ONLY", "GSI4 GSI4PK GSI4SK KEYS_ONLY"}
	if !slices.Equal(got, want) {
		t.Errorf("indexes: %q", got)
	}
	if *described.KeySchema[0].AttributeName != "PK" || *described.KeySchema[1].AttributeName != "SK" {
		t.Errorf("keys: %v", described.KeySchema)
	}
	stream := described.StreamSpecification
	if stream == nil || !*stream.StreamEnabled || stream.StreamViewType != types.StreamViewTypeNewAndOldImages {
		t.Errorf("stream: %+v", stream)
	}
}
