package infra

import (
	"strconv"

	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/jsii-runtime-go"

	"github.com/shardquota/shardquota/table"
)

// addTable makes the table, or takes the existing one.
func (q *ShardQuota) addTable() {
	if existing := q.props.Existing; existing != nil {
		q.Table = awsdynamodb.Table_FromTableAttributes(q.Construct, jsii.String("Table"), &awsdynamodb.TableAttributes{
			TableArn:       &existing.Arn,
			TableStreamArn: &existing.StreamArn,
			EncryptionKey:  existing.Key,
		})
		return
	}
	t := q.props.Table
	made := awsdynamodb.NewTable(q.Construct, jsii.String("Table"), &awsdynamodb.TableProps{
		TableName:            optional(t.Name),
		PartitionKey:         stringKey(table.AttrPK),
		SortKey:              stringKey(table.AttrSK),
		TimeToLiveAttribute:  jsii.String(table.AttrTTL),
		Stream:               awsdynamodb.StreamViewType_NEW_AND_OLD_IMAGES,
		BillingMode:          awsdynamodb.BillingMode_PAY_PER_REQUEST,
		MaxReadRequestUnits:  positive(t.MaxReadUnits),
		MaxWriteRequestUnits: positive(t.MaxWriteUnits),
		Encryption: map[Encryption]awsdynamodb.TableEncryption{
			AWSOwned:        awsdynamodb.TableEncryption_DEFAULT,
			AWSManaged:      awsdynamodb.TableEncryption_AWS_MANAGED,
			CustomerManaged: awsdynamodb.TableEncryption_CUSTOMER_MANAGED,
		}[t.Encryption],
		EncryptionKey: q.key(),
		PointInTimeRecoverySpecification: &awsdynamodb.PointInTimeRecoverySpecification{
			PointInTimeRecoveryEnabled: jsii.Bool(!t.NoRecovery),
		},
		DeletionProtection: jsii.Bool(!t.Disposable),
		RemovalPolicy:      q.removal(),
	})
	for i, projection := range q.projections() {
		name := indexName(i)
		made.AddGlobalSecondaryIndex(&awsdynamodb.GlobalSecondaryIndexProps{
			IndexName:            &name,
			PartitionKey:         stringKey(name + "PK"),
			SortKey:              stringKey(name + "SK"),
			ProjectionType:       awsdynamodb.ProjectionType(projection),
			MaxReadRequestUnits:  positive(t.MaxReadUnits),
			MaxWriteRequestUnits: positive(t.MaxWriteUnits),
		})
	}
	q.Table = made
}

// key is a customer's own, or a new one that shares the table's fate; nil where
// AWS holds the key.
func (q *ShardQuota) key() awskms.IKey {
	if t := q.props.Table; t.Key != nil || t.Encryption != CustomerManaged {
		return t.Key
	}
	return awskms.NewKey(q.Construct, jsii.String("Key"), &awskms.KeyProps{
		Description:       jsii.String("The shardquota table and its failed batches"),
		EnableKeyRotation: jsii.Bool(true),
		RemovalPolicy:     q.removal(),
	})
}

// projections are those of the indexes GSI1 to GSI4.
func (q *ShardQuota) projections() []Projection {
	return []Projection{All, q.props.Table.Projection, KeysOnly, KeysOnly}
}

func indexName(i int) string { return "GSI" + strconv.Itoa(i+1) }

func stringKey(name string) *awsdynamodb.Attribute {
	return &awsdynamodb.Attribute{Name: &name, Type: awsdynamodb.AttributeType_STRING}
}

// optional is a text that may be left out.
func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// positive is a number that 0 leaves out.
func positive(n int) *float64 {
	if n == 0 {
		return nil
	}
	return jsii.Number(n)
}
