package faultproxy_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/internal/dynoxide"
	"github.com/shardquota/shardquota/internal/faultproxy"
	"github.com/shardquota/shardquota/table"
)

func itemOf(name string) table.Item { return table.Item{"PK": table.S(name), "SK": table.S("#STATE")} }

// A fault lands or does not as it says, and without one the answer is the
// service's.
func TestFaultsLandAsTheySay(t *testing.T) {
	p := faultproxy.Start(t, dynoxide.Start(t))
	direct := dynoxide.Client(t)
	name := dynoxide.NewTable(t, direct)
	all := append([]faultproxy.Fault{faultproxy.None}, faultproxy.Befalling("PutItem")...)
	for _, fault := range all {
		p.Spoil(func(faultproxy.Request) faultproxy.Fault { return fault })
		_, err := p.Client(1).PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &name, Item: itemOf(fault.Name)})
		// What the service's own client makes of an empty body is a success.
		hollow := fault.Is(faultproxy.Empty) || fault.Is(faultproxy.Hollow)
		if failed := err != nil; failed != (fault.Name != "none" && !hollow) {
			t.Errorf("%s: %v", fault, err)
		}
		found, err := direct.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: &name, Key: itemOf(fault.Name)})
		if err != nil {
			t.Fatal(err)
		}
		if landed := found.Item != nil; landed != fault.Lands {
			t.Errorf("%s: landed: %t", fault, landed)
		}
	}
}

// A judge sees the keys and the attributes of every kind of request.
func TestJudgeSees(t *testing.T) {
	p := faultproxy.Start(t, dynoxide.Start(t))
	client := p.Client(1)
	name := dynoxide.NewTable(t, dynoxide.Client(t))
	a, b := itemOf("a"), itemOf("b")
	one := table.Item{":one": table.N("1")}
	write := []types.TransactWriteItem{
		{Put: &types.Put{TableName: &name, Item: a}},
		{Update: &types.Update{
			TableName: &name, Key: b, UpdateExpression: new("ADD #n :one"),
			ExpressionAttributeNames: map[string]string{"#n": "count"}, ExpressionAttributeValues: one,
		}},
	}
	if _, err := client.TransactWriteItems(t.Context(), &dynamodb.TransactWriteItemsInput{TransactItems: write}); err != nil {
		t.Fatal(err)
	}
	keys := types.KeysAndAttributes{Keys: []map[string]types.AttributeValue{b, a}}
	read := map[string]types.KeysAndAttributes{name: keys}
	if _, err := client.BatchGetItem(t.Context(), &dynamodb.BatchGetItemInput{RequestItems: read}); err != nil {
		t.Fatal(err)
	}
	seen := p.Seen()
	if len(seen) != 2 || p.Spoilt() != 0 {
		t.Fatalf("%d requests seen, %d spoilt", len(seen), p.Spoilt())
	}
	keyA, keyB := faultproxy.Key{PK: "a", SK: "#STATE"}, faultproxy.Key{PK: "b", SK: "#STATE"}
	if w := seen[0]; w.Operation != "TransactWriteItems" || !slices.Equal(w.Keys, []faultproxy.Key{keyA, keyB}) || !w.Uses("count") {
		t.Errorf("the transaction is seen as %+v", w.Request)
	}
	if r := seen[1]; r.Operation != "BatchGetItem" || !slices.Equal(r.Keys, []faultproxy.Key{keyB, keyA}) || r.Uses("count") {
		t.Errorf("the batch read is seen as %+v", r.Request)
	}
}

// Of what a batch read asks for, half is read, and what is left is asked for.
func TestPartly(t *testing.T) {
	p := faultproxy.Start(t, dynoxide.Start(t))
	direct := dynoxide.Client(t)
	name := dynoxide.NewTable(t, direct)
	var keys []map[string]types.AttributeValue
	for _, pk := range []string{"a", "b", "c"} {
		keys = append(keys, itemOf(pk))
		if _, err := direct.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &name, Item: itemOf(pk)}); err != nil {
			t.Fatal(err)
		}
	}
	p.Spoil(func(faultproxy.Request) faultproxy.Fault { return faultproxy.Partly })
	output, err := p.Client(1).BatchGetItem(t.Context(), &dynamodb.BatchGetItemInput{
		RequestItems: map[string]types.KeysAndAttributes{name: {Keys: keys}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if read, left := len(output.Responses[name]), len(output.UnprocessedKeys[name].Keys); read != 2 || left != 1 {
		t.Errorf("%d read and %d left of 3", read, left)
	}
}

// A deadline passes when it is told to.
func TestDeadline(t *testing.T) {
	d := faultproxy.NewDeadline(t.Context())
	if d.Err() != nil {
		t.Errorf("at first: %v", d.Err())
	}
	d.Pass()
	<-d.Done()
	if !errors.Is(d.Err(), context.DeadlineExceeded) {
		t.Errorf("passed: %v", d.Err())
	}
}
