package dynamo

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/table"
)

// Querier is what RecentUsage needs of the service's client. The function that
// processes batches has no use for it, nor permission.
type Querier interface {
	Query(context.Context, *dynamodb.QueryInput, ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error)
}

// RecentUsage reads the usage items of a group, newest first and at most so
// many, consistently. It makes one request, so that what is beyond 1 MB is left
// out.
func RecentUsage(ctx context.Context, client Querier, tableName string, group table.Group, most int32) ([]table.Item, error) {
	pk := table.S(table.UsageKey{Group: group}.PK())
	output, err := client.Query(ctx, &dynamodb.QueryInput{
		TableName:                &tableName,
		KeyConditionExpression:   new("#p = :p AND begins_with(#s, :s)"),
		ExpressionAttributeNames: map[string]string{"#p": table.AttrPK, "#s": table.AttrSK},
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":p": pk, ":s": table.S(table.UsageSK + group.Resource + "#"),
		},
		ConsistentRead:   new(true),
		ScanIndexForward: new(false),
		Limit:            &most,
	}, intact)
	if err != nil {
		return nil, failure("read usage", err, secrets{}.of(table.Item{table.AttrPK: pk}))
	}
	items := make([]table.Item, len(output.Items))
	for i, item := range output.Items {
		items[i] = item
	}
	return items, nil
}
