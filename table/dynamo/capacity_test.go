package dynamo_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/internal/dynoxide"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/dynamo"
)

// scale asks for the units of each index where a Store asks for their sum.
type scale struct {
	*dynamodb.Client
	units map[string]float64 // by index, "table" and "total"
}

func (s *scale) UpdateItem(ctx context.Context, input *dynamodb.UpdateItemInput, options ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	input.ReturnConsumedCapacity = types.ReturnConsumedCapacityIndexes
	output, err := s.Client.UpdateItem(ctx, input, options...)
	if err == nil {
		s.add(*output.ConsumedCapacity)
	}
	return output, err
}

func (s *scale) TransactWriteItems(ctx context.Context, input *dynamodb.TransactWriteItemsInput, options ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error) {
	input.ReturnConsumedCapacity = types.ReturnConsumedCapacityIndexes
	output, err := s.Client.TransactWriteItems(ctx, input, options...)
	if err == nil {
		for _, consumed := range output.ConsumedCapacity {
			s.add(consumed)
		}
	}
	return output, err
}

func (s *scale) PutItem(ctx context.Context, input *dynamodb.PutItemInput, options ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	input.ReturnConsumedCapacity = types.ReturnConsumedCapacityIndexes
	output, err := s.Client.PutItem(ctx, input, options...)
	if err == nil {
		s.add(*output.ConsumedCapacity)
	}
	return output, err
}

func (s *scale) DeleteItem(ctx context.Context, input *dynamodb.DeleteItemInput, options ...func(*dynamodb.Options)) (*dynamodb.DeleteItemOutput, error) {
	input.ReturnConsumedCapacity = types.ReturnConsumedCapacityIndexes
	output, err := s.Client.DeleteItem(ctx, input, options...)
	if err == nil {
		s.add(*output.ConsumedCapacity)
	}
	return output, err
}

func (s *scale) add(consumed types.ConsumedCapacity) {
	s.units["total"] += *consumed.CapacityUnits
	s.units["table"] += *consumed.Table.CapacityUnits
	for index, c := range consumed.GlobalSecondaryIndexes {
		s.units[index] += *c.CapacityUnits
	}
}

// String lists what cost anything.
func (s *scale) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(s.units)) {
		if s.units[name] != 0 {
			parts = append(parts, fmt.Sprintf("%s %g", name, s.units[name]))
		}
	}
	return strings.Join(parts, ", ")
}

// take takes tokens off shard 0 on a client's fast path.
func take(ctx context.Context, client dynamo.API, tableName string) error {
	_, err := client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName:           &tableName,
		Key:                 keyOf(group.At(0).PK(), table.StateSK),
		UpdateExpression:    new("ADD #t :down, #c :up, #wt :write, #wc :written"),
		ConditionExpression: new("#t >= :up AND #wt >= :written"),
		ExpressionAttributeNames: map[string]string{
			"#t": "b_calls_tk", "#c": "b_calls_tc", "#wt": "b_wcu_tk", "#wc": "b_wcu_tc",
		},
		ExpressionAttributeValues: table.Item{
			":down": table.N("-3000"), ":up": table.N("3000"), ":write": table.N("-1000"), ":written": table.N("1000"),
		},
	})
	return err
}

// What each write costs, by the projection of GSI2. An index whose keys stay and
// which projects nothing that changes costs nothing.
func TestWriteUnits(t *testing.T) {
	const large = 1100 // bytes
	again := usage()
	again.Sources = []table.Source{source(table.Bound{Position: "13", Total: "b"}, table.Bound{Position: "14", Total: "c"})}
	operations := []call{{"add usage again", "UpdateItem", func(ctx context.Context, s *dynamo.Store) (any, error) {
		return s.AddUsage(ctx, again)
	}}}
	operations = append(operations, calls...)

	want := map[string][2]string{ // ALL, KEYS_ONLY
		"take tokens":        {"GSI2 1, table 1, total 2", "table 1, total 1"},
		"take tokens, large": {"GSI2 2, table 2, total 4", "table 2, total 2"},
		"write pass":         {"GSI2 1, table 1, total 2", "table 1, total 1"},
		"double":             {"GSI2 1, table 1, total 2", "table 1, total 1"},
		"freeze shard 0":     {"table 1, total 1", "table 1, total 1"},         // it is frozen: nothing changes
		"read siblings":      {"GSI2 1, table 1, total 2", "table 1, total 1"}, // and raise one
		"create shard 2":     {"GSI2 2, GSI3 1, GSI4 1, table 4, total 8", "GSI2 1, GSI3 1, GSI4 1, table 4, total 7"},
		"add usage":          {"GSI2 1, GSI4 1, table 1, total 3", "GSI2 1, GSI4 1, table 1, total 3"}, // a new item
		"add usage again":    {"GSI2 1, table 1, total 2", "table 1, total 1"},
		"read bucket":        {"", ""},

		"charge":           {"GSI2 1, table 1, total 2", "table 1, total 1"},
		"use":              {"GSI2 1, table 1, total 2", "table 1, total 1"},
		"use several":      {"GSI2 2, table 4, total 6", "table 4, total 4"}, // two: a transaction costs twice
		"reconcile":        {"GSI2 1, table 1, total 2", "table 1, total 1"},
		"propagate window": {"GSI2 1, table 1, total 2", "table 1, total 1"},
		"amend":            {"GSI2 1, table 1, total 2", "table 1, total 1"},
		"replace":          {"GSI2 1, table 1, total 2", "table 1, total 1"},
		"insert":           {"GSI2 1, GSI3 1, GSI4 1, table 1, total 4", "GSI2 1, GSI3 1, GSI4 1, table 1, total 4"},
		"remove":           {"GSI2 1, GSI3 1, GSI4 1, table 1, total 4", "GSI2 1, GSI3 1, GSI4 1, table 1, total 4"},
		"read items":       {"", ""},
		"find buckets":     {"", ""},
	}
	client := dynoxide.Client(t)
	for i, options := range [][]dynamo.TableOption{nil, {dynamo.GSI2KeysOnly}} {
		// fresh makes a table, which holds one hour's usage already if asked.
		fresh := func(padding int, counted bool) (*scale, string) {
			name := dynoxide.NewTable(t, client, options...)
			for _, item := range seed() {
				item["b_wcu_tk"], item["padding"] = table.N("1000000"), table.S(strings.Repeat("x", padding))
				raw{client, name}.Put(t, item)
			}
			if counted {
				if _, err := dynamo.New(client, name).AddUsage(t.Context(), usage()); err != nil {
					t.Fatal(err)
				}
			}
			return &scale{client, map[string]float64{}}, name
		}
		check := func(operation string, s *scale, err error) {
			t.Helper()
			if got := s.String(); err != nil || got != want[operation][i] {
				t.Errorf("%s, projection %d: %q, %v, want %q", operation, i, got, err, want[operation][i])
			}
		}
		for operation, padding := range map[string]int{"take tokens": 0, "take tokens, large": large} {
			s, name := fresh(padding, false)
			check(operation, s, take(t.Context(), s, name))
		}
		for _, c := range operations {
			counted := c.name == "add usage again"
			s, name := fresh(0, counted)
			_, err := c.do(t.Context(), dynamo.New(s, name))
			check(c.name, s, err)

			// A Store asks for the sum alone, which must be that of table and indexes.
			_, name = fresh(0, counted)
			store := dynamo.New(client, name)
			if _, err := c.do(t.Context(), store); err != nil || store.Units().Write != s.units["total"] {
				t.Errorf("%s, projection %d: the Store counts %g, %v, want %g", c.name, i, store.Units().Write, err, s.units["total"])
			}
			if read := store.Units().Read; c.operation == "UpdateItem" && read != 0 {
				t.Errorf("%s, projection %d: a write reads %g", c.name, i, read)
			}
		}
	}
}
