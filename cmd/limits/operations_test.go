package main

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/aws/aws-lambda-go/cfn"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go/middleware"

	"github.com/shardquota/shardquota/cmd/limits/resource"
	"github.com/shardquota/shardquota/internal/dynoxide"
	"github.com/shardquota/shardquota/limiter"
	"github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/dynamo"
)

// permissions are those that a client's calls need, by the index they are about,
// "" for the table itself.
type permissions struct {
	mu   sync.Mutex
	used map[string]map[string]bool
}

func (p *permissions) use(index, action string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used[index] == nil {
		p.used[index] = map[string]bool{}
	}
	p.used[index]["dynamodb:"+action] = true
}

func (p *permissions) note(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
	switch input := in.Parameters.(type) {
	case *dynamodb.QueryInput:
		p.use(aws.ToString(input.IndexName), "Query")
	case *dynamodb.TransactWriteItemsInput: // needs the permissions of its parts
		for _, part := range input.TransactItems {
			for action, present := range map[string]bool{
				"ConditionCheckItem": part.ConditionCheck != nil, "DeleteItem": part.Delete != nil, "PutItem": part.Put != nil, "UpdateItem": part.Update != nil,
			} {
				if present {
					p.use("", action)
				}
			}
		}
	default:
		p.use("", middleware.GetOperationName(ctx))
	}
	return next.HandleInitialize(ctx, in)
}

func (p *permissions) options(o *dynamodb.Options) {
	o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
		return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("note", p.note), middleware.Before)
	})
}

// What the resource declares that it needs, for the policy of the function, is
// what it uses over the life of a resource whose limits reach live buckets of
// several shards: no more and no less.
func TestOperations(t *testing.T) {
	client := dynoxide.Client(t)
	name := dynoxide.NewTable(t, client)
	w := worldOn(t, dynamo.New(client, name))
	noted := &permissions{used: map[string]map[string]bool{}}
	w.handler.open = func(string) table.Client { return dynamo.New(dynoxide.Client(t, noted.options), name) }

	first, second := properties(declared(t)), properties("system:\n  limits:\n    requests: 7 per second\n")
	w.succeeds(w.ask(cfn.RequestCreate, "", first, nil), id)
	for _, group := range []table.Group{{Entity: "sk-live-acme", Resource: "gpt-4"}, {Entity: "sk-live-team", Resource: "else"}, {Entity: "sk-live-any", Resource: "gpt-4"}} {
		w.uses(group)
	}
	w.succeeds(w.ask(cfn.RequestUpdate, id, second, first), id)
	w.succeeds(w.ask(cfn.RequestDelete, id, second, nil), id)

	want := map[string][]string{"": resource.Operations}
	for _, index := range resource.Indexes {
		want[index] = resource.IndexOperations
	}
	for index, actions := range want {
		if used := slices.Sorted(maps.Keys(noted.used[index])); !slices.Equal(used, actions) {
			t.Errorf("on index %q it uses %v and declares %v", index, used, actions)
		}
	}
	if used, declared := slices.Sorted(maps.Keys(noted.used)), slices.Sorted(maps.Keys(want)); !slices.Equal(used, declared) {
		t.Errorf("it uses %q and declares %q", used, declared)
	}
}

// uses takes a token, and doubles the shards of the bucket.
func (w *world) uses(group table.Group) {
	w.t.Helper()
	if _, err := limiter.New(w.limits(limits.DefaultNamespace)).Acquire(w.t.Context(), group.Entity, group.Resource, limiter.Amounts{"requests": 1}); err != nil {
		w.t.Fatal(err)
	}
	keys, err := w.table.Find(w.t.Context(), table.Scope{Namespace: w.namespace(), Entity: group.Entity, Resource: group.Resource})
	if err != nil || len(keys) != 1 {
		w.t.Fatalf("%d buckets, %v", len(keys), err)
	}
	if _, err := w.table.Double(w.t.Context(), keys[0].Group, 1); err != nil {
		w.t.Fatal(err)
	}
}

// namespace is the id of the default namespace.
func (w *world) namespace() string {
	w.t.Helper()
	items, err := w.table.Items(w.t.Context(), []table.ItemKey{limits.NamespaceKey(limits.DefaultNamespace)})
	if err != nil {
		w.t.Fatal(err)
	}
	return items[0].Text("namespace_id")
}
