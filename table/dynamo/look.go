package dynamo

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/shardquota/shardquota/table"
)

// Latest reads the items under a partition key whose sort keys begin with a prefix:
// the last ones first, at most so many, consistently. It makes one request, which
// leaves out what is beyond 1 MB.
func (s *Store) Latest(ctx context.Context, pk, prefix string, most int32) ([]table.Item, error) {
	output, err := s.client.Query(ctx, &dynamodb.QueryInput{
		TableName:                 &s.name,
		KeyConditionExpression:    new("#0 = :0 AND begins_with(#1, :1)"),
		ExpressionAttributeNames:  map[string]string{"#0": table.AttrPK, "#1": table.AttrSK},
		ExpressionAttributeValues: table.Item{":0": table.S(pk), ":1": table.S(prefix)},
		ConsistentRead:            new(true),
		ScanIndexForward:          new(false),
		Limit:                     &most,
		ReturnConsumedCapacity:    total,
	}, intact)
	if err != nil {
		return nil, failure("read items", err, secrets{prefix}.of(table.Item{table.AttrPK: table.S(pk)}))
	}
	s.meter.read("Query", output.ConsumedCapacity)
	items := make([]table.Item, len(output.Items))
	for i, item := range output.Items {
		items[i] = item
	}
	return items, nil
}
