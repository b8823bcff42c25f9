package dynamo_test

import (
	"fmt"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/shardquota/shardquota/internal/dynoxide"
	"github.com/shardquota/shardquota/internal/fixture"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/dynamo"
)

// Looking at a group raises no shard, names what cannot be read, and finds the
// newest usage of its own resource alone.
func TestLooking(t *testing.T) {
	client := dynoxide.Client(t)
	name := dynoxide.NewTable(t, client)
	put := func(item table.Item) {
		t.Helper()
		if _, err := client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &name, Item: item}); err != nil {
			t.Fatal(err)
		}
	}
	put(fixture.Bucket(fixture.Acme.At(0), fixture.Count(4)))
	put(fixture.Bucket(fixture.Acme.At(1), fixture.Count(2)))
	put(fixture.Bucket(fixture.Acme.At(3), fixture.Attrs{"rf": "noon"}))
	for hour := range 5 {
		put(usageItem(fixture.Acme, fmt.Sprintf("2026-12-01T0%d:00:00Z", hour)))
	}
	other := fixture.Acme
	other.Resource = "gpt-4o"
	put(usageItem(other, "2026-12-01T09:00:00Z"))

	shards, err := dynamo.New(client, name).Shards(t.Context(), fixture.Acme, 32)
	if err != nil {
		t.Fatal(err)
	}
	fixture.Eq(t, "shards", len(shards), 32)
	fixture.Eq(t, "counts", []int{shards[0].Bucket.ShardCount, shards[1].Bucket.ShardCount}, []int{4, 2})
	fixture.Eq(t, "shard 2 is missing", shards[2], table.Sibling{})
	fixture.Eq(t, "shard 3", shards[3].Broken, "malformed item: rf: not a number")

	usage, err := dynamo.New(client, name).Latest(t.Context(), table.UsageKey{Group: fixture.Acme}.PK(), table.UsageSK+fixture.Acme.Resource+"#", 3)
	if err != nil {
		t.Fatal(err)
	}
	var starts []string
	for _, item := range usage {
		key, _, err := table.ParseUsage(item)
		if err != nil {
			t.Fatal(err)
		}
		starts = append(starts, key.Resource+" "+key.Start)
	}
	fixture.Eq(t, "usage", starts, []string{"gpt-4 2026-12-01T04:00:00Z", "gpt-4 2026-12-01T03:00:00Z", "gpt-4 2026-12-01T02:00:00Z"})
}

func usageItem(group table.Group, start string) table.Item {
	key := table.UsageKey{Group: group, Window: "hourly", Start: start}
	item := table.Item{table.AttrPK: table.S(key.PK()), table.AttrSK: table.S(key.SK()), "rpm": table.N("7")}
	for _, label := range key.Labels() {
		item[label[0]] = table.S(label[1])
	}
	return item
}
