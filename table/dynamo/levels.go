package dynamo

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/table"
)

// FindLevels implements table.Client, by GSI3.
func (c *Client) FindLevels(ctx context.Context, namespace, resource string) ([]table.ItemKey, error) {
	input := c.levelQuery(namespace, resource)
	hidden := secrets{}.of(input.ExpressionAttributeValues)
	var keys []table.ItemKey
	err := c.pages(ctx, "find levels", input, hidden, func(pk, sk string) { keys = append(keys, table.ItemKey{PK: pk, SK: sk}) })
	return keys, err
}

// pages makes a query of an index, page by page, and tells the keys of what it
// finds.
func (c *Client) pages(ctx context.Context, operation string, input *dynamodb.QueryInput, hidden secrets, found func(pk, sk string)) error {
	for pages := dynamodb.NewQueryPaginator(c.client, input); pages.HasMorePages(); {
		page, err := pages.NextPage(ctx, intact)
		if err != nil {
			return failure(operation, err, hidden)
		}
		hidden = hidden.of(page.LastEvaluatedKey) // which the next page is asked for by
		c.meter.read("Query", page.ConsumedCapacity)
		for _, item := range page.Items {
			found(table.Item(item).Key())
		}
	}
	return nil
}

func (c *Client) levelQuery(namespace, resource string) *dynamodb.QueryInput {
	return &dynamodb.QueryInput{
		TableName: &c.table, IndexName: new("GSI3"),
		KeyConditionExpression: new("#0 = :0 AND begins_with(#1, :1)"),
		ProjectionExpression:   new("#2, #3"),
		ExpressionAttributeNames: map[string]string{
			"#0": table.AttrGSI3PK, "#1": table.AttrGSI3SK, "#2": table.AttrPK, "#3": table.AttrSK,
		},
		ExpressionAttributeValues: table.Item{":0": table.S(table.LevelPK(namespace, resource)), ":1": table.S(table.LevelSK)},
		ReturnConsumedCapacity:    types.ReturnConsumedCapacityTotal,
	}
}
