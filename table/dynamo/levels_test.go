package dynamo_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go"

	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/dynamo"
)

// An answer of the index in pages is read to its end.
func TestFindLevelsReadsAllPages(t *testing.T) {
	answers := [][]string{{"n5/ENTITY#a", "n5/ENTITY#b"}, {}, {"n5/ENTITY#c"}}
	page := 0
	client := fake{query: func(input *dynamodb.QueryInput) (*dynamodb.QueryOutput, error) {
		asked := *input.IndexName + " " + text(input.ExpressionAttributeValues[":0"]) + " " + text(input.ExpressionAttributeValues[":1"])
		if asked != "GSI3 n5/ENTITY_CONFIG#gpt-4 ENTITY#" || page > 0 && text(input.ExclusiveStartKey["PK"]) != "last" {
			t.Errorf("page %d: asked %s after %v", page, asked, input.ExclusiveStartKey)
		}
		output := &dynamodb.QueryOutput{ConsumedCapacity: units(0.5)}
		for _, pk := range answers[page] {
			output.Items = append(output.Items, keyOf(pk, "#CONFIG#gpt-4"))
		}
		if page++; page < len(answers) {
			output.LastEvaluatedKey = keyOf("last", "")
		}
		return output, nil
	}}
	store := dynamo.New(client, "t")
	got, err := store.FindLevels(t.Context(), "n5", "gpt-4")
	want := []table.ItemKey{{PK: "n5/ENTITY#a", SK: "#CONFIG#gpt-4"}, {PK: "n5/ENTITY#b", SK: "#CONFIG#gpt-4"}, {PK: "n5/ENTITY#c", SK: "#CONFIG#gpt-4"}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	if units := store.Units(); units.Read != 1.5 || units.Requests["Query"] != 3 {
		t.Errorf("got %+v", units)
	}
}

// The key that a page begins after is sent, and holds an id.
func TestFindLevelsHidesIDs(t *testing.T) {
	client := fake{query: func(input *dynamodb.QueryInput) (*dynamodb.QueryOutput, error) {
		if input.ExclusiveStartKey == nil {
			return &dynamodb.QueryOutput{LastEvaluatedKey: table.Item{
				"PK": table.S("n5/ENTITY#" + entity), "SK": table.S("#CONFIG#gpt-4"), "GSI3SK": table.S("ENTITY#" + entity),
			}}, nil
		}
		return nil, &smithy.GenericAPIError{Code: "ValidationException", Message: "n5/ENTITY#" + entity + " of " + entity + " in n5/ENTITY_CONFIG#gpt-4"}
	}}
	_, err := dynamo.New(client, "t").FindLevels(t.Context(), "n5", "gpt-4")
	if err == nil || !strings.Contains(err.Error(), "ValidationException: *** of *** in ***") {
		t.Errorf("got %v", err)
	}
}
