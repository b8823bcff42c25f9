package dynamo_test

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/shardquota/shardquota/internal/dynoxide"
	"github.com/shardquota/shardquota/internal/storetest"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/dynamo"
)

// permissions is a client that notes which IAM actions its calls need.
type permissions struct {
	dynamo.API
	mu   sync.Mutex
	used map[string]bool
}

func (p *permissions) use(actions ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, action := range actions {
		p.used["dynamodb:"+action] = true
	}
}

func (p *permissions) GetItem(ctx context.Context, in *dynamodb.GetItemInput, o ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	p.use("GetItem")
	return p.API.GetItem(ctx, in, o...)
}

func (p *permissions) BatchGetItem(ctx context.Context, in *dynamodb.BatchGetItemInput, o ...func(*dynamodb.Options)) (*dynamodb.BatchGetItemOutput, error) {
	p.use("BatchGetItem")
	return p.API.BatchGetItem(ctx, in, o...)
}

func (p *permissions) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput, o ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	p.use("UpdateItem")
	return p.API.UpdateItem(ctx, in, o...)
}

func (p *permissions) PutItem(ctx context.Context, in *dynamodb.PutItemInput, o ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	p.use("PutItem")
	return p.API.PutItem(ctx, in, o...)
}

func (p *permissions) DeleteItem(ctx context.Context, in *dynamodb.DeleteItemInput, o ...func(*dynamodb.Options)) (*dynamodb.DeleteItemOutput, error) {
	p.use("DeleteItem")
	return p.API.DeleteItem(ctx, in, o...)
}

func (p *permissions) Query(ctx context.Context, in *dynamodb.QueryInput, o ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error) {
	p.use("Query")
	return p.API.Query(ctx, in, o...)
}

// A transaction needs the actions of its parts.
func (p *permissions) TransactWriteItems(ctx context.Context, in *dynamodb.TransactWriteItemsInput, o ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error) {
	for _, part := range in.TransactItems {
		for action, present := range map[string]bool{
			"ConditionCheckItem": part.ConditionCheck != nil, "DeleteItem": part.Delete != nil, "PutItem": part.Put != nil, "UpdateItem": part.Update != nil,
		} {
			if present {
				p.use(action)
			}
		}
	}
	return p.API.TransactWriteItems(ctx, in, o...)
}

// What a Store declares that it needs, for the policy of the function, is what
// it uses over the whole conformance suite: no more and no less.
func TestOperations(t *testing.T) {
	client := dynoxide.Client(t)
	noted := &permissions{API: client, used: map[string]bool{}}
	t.Run("suite", func(t *testing.T) {
		storetest.Run(t, func(t testing.TB) (table.Store, storetest.Raw) {
			name := dynoxide.NewTable(t, client)
			return dynamo.New(noted, name), raw{client, name}
		})
	})
	if used := slices.Sorted(maps.Keys(noted.used)); !slices.Equal(used, dynamo.Operations) {
		t.Errorf("declared %v, used %v", dynamo.Operations, used)
	}
}

// What a Client declares is what a Store does, and what its own suite uses.
func TestClientOperations(t *testing.T) {
	client := dynoxide.Client(t)
	noted := &permissions{API: client, used: map[string]bool{}}
	t.Run("suite", func(t *testing.T) {
		storetest.RunClient(t, func(t testing.TB) (table.Client, storetest.Raw) {
			name := dynoxide.NewTable(t, client, streamless)
			return dynamo.New(noted, name), raw{client, name}
		})
	})
	for _, action := range dynamo.Operations {
		noted.used[action] = true
	}
	if used := slices.Sorted(maps.Keys(noted.used)); !slices.Equal(used, dynamo.ClientOperations) {
		t.Errorf("declared %v, used %v", dynamo.ClientOperations, used)
	}
}
