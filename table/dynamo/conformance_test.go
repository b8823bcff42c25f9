package dynamo_test

import (
	"errors"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/shardquota/shardquota/internal/dynoxide"
	"github.com/shardquota/shardquota/internal/storetest"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/dynamo"
)

func TestConformance(t *testing.T) {
	client := dynoxide.Client(t)
	storetest.Run(t, func(t testing.TB) (table.Store, storetest.Raw) { return open(t, client) })
}

func TestClientConformance(t *testing.T) {
	client := dynoxide.Client(t)
	storetest.RunClient(t, func(t testing.TB) (table.Client, storetest.Raw) { return openClient(t, client) })
}

func openClient(t testing.TB, client *dynamodb.Client) (*dynamo.Store, raw) {
	name := dynoxide.NewTable(t, client)
	return dynamo.New(client, name), raw{client, name}
}

func open(t testing.TB, client *dynamodb.Client) (*dynamo.Store, raw) {
	name := dynoxide.NewTable(t, client)
	return dynamo.New(client, name), raw{client, name}
}

// raw reaches the items of a table on DynamoDB.
type raw struct {
	client *dynamodb.Client
	table  string
}

func (r raw) Put(t testing.TB, item table.Item) {
	t.Helper()
	_, err := r.client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &r.table, Item: item})
	if err != nil {
		t.Fatalf("put: %v", err)
	}
}

func (r raw) Delete(t testing.TB, pk, sk string) {
	t.Helper()
	_, err := r.client.DeleteItem(t.Context(), &dynamodb.DeleteItemInput{TableName: &r.table, Key: keyOf(pk, sk)})
	if err != nil {
		t.Fatalf("delete: %v", err)
	}
}

func (r raw) Get(t testing.TB, pk, sk string) table.Item {
	t.Helper()
	output, err := r.client.GetItem(t.Context(), &dynamodb.GetItemInput{
		TableName: &r.table, Key: keyOf(pk, sk), ConsistentRead: new(true),
	})
	if err != nil {
		t.Fatalf("get: %v", err)
	}
	return output.Item
}

func (r raw) Items(t testing.TB) []table.Item {
	t.Helper()
	var items []table.Item
	pages := dynamodb.NewScanPaginator(r.client, &dynamodb.ScanInput{TableName: &r.table, ConsistentRead: new(true)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatalf("scan: %v", err)
		}
		for _, item := range page.Items {
			items = append(items, item)
		}
	}
	return items
}

func keyOf(pk, sk string) table.Item { return table.Item{"PK": table.S(pk), "SK": table.S(sk)} }

// A missing table is something broken, and no reason to try again.
func TestMissingTable(t *testing.T) {
	store := dynamo.New(dynoxide.Client(t), dynoxide.Name())
	_, err := store.Read(t.Context(), table.Group{Namespace: "n", Entity: "e", Resource: "r"}.At(0))
	var failed *dynamo.Error
	if !errors.As(err, &failed) || failed.Code != "ResourceNotFoundException" || errors.Is(err, table.ErrRetry) {
		t.Errorf("got %v", err)
	}
}
