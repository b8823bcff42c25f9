package dynamo

import (
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/table"
)

// A TableOption changes the table that CreateTableInput asks for.
type TableOption func(*dynamodb.CreateTableInput)

// GSI2KeysOnly leaves everything but keys out of the index by resource. That
// halves the write units of a bucket's update, which changes no key. But who
// reads other attributes off the index finds none: to zae-limiter a resource
// then has no capacity and no usage, and its provisioner cannot tell which
// buckets are disabled. Another projection takes a new index.
func GSI2KeysOnly(input *dynamodb.CreateTableInput) {
	input.GlobalSecondaryIndexes[1].Projection = &types.Projection{ProjectionType: types.ProjectionTypeKeysOnly}
}

// CreateTableInput is the request that creates a table of the layout: its keys, its
// four indexes and its stream, paid by request. Expiry by table.AttrTTL is
// switched on by another request, once the table is active.
func CreateTableInput(name string, options ...TableOption) *dynamodb.CreateTableInput {
	input := &dynamodb.CreateTableInput{
		TableName:   &name,
		BillingMode: types.BillingModePayPerRequest,
		KeySchema:   keySchema(table.AttrPK, table.AttrSK),
		StreamSpecification: &types.StreamSpecification{
			StreamEnabled:  aws.Bool(true),
			StreamViewType: types.StreamViewTypeNewAndOldImages,
		},
		AttributeDefinitions: []types.AttributeDefinition{stringKey(table.AttrPK), stringKey(table.AttrSK)},
	}
	projections := []types.ProjectionType{
		types.ProjectionTypeAll, types.ProjectionTypeAll, types.ProjectionTypeKeysOnly, types.ProjectionTypeKeysOnly,
	}
	for i, projection := range projections {
		index := "GSI" + strconv.Itoa(i+1)
		pk, sk := index+"PK", index+"SK"
		input.AttributeDefinitions = append(input.AttributeDefinitions, stringKey(pk), stringKey(sk))
		input.GlobalSecondaryIndexes = append(input.GlobalSecondaryIndexes, types.GlobalSecondaryIndex{
			IndexName:  &index,
			KeySchema:  keySchema(pk, sk),
			Projection: &types.Projection{ProjectionType: projection},
		})
	}
	for _, option := range options {
		option(input)
	}
	return input
}

func stringKey(name string) types.AttributeDefinition {
	return types.AttributeDefinition{AttributeName: &name, AttributeType: types.ScalarAttributeTypeS}
}

func keySchema(pk, sk string) []types.KeySchemaElement {
	return []types.KeySchemaElement{
		{AttributeName: &pk, KeyType: types.KeyTypeHash},
		{AttributeName: &sk, KeyType: types.KeyTypeRange},
	}
}
