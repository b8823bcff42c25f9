package infra_test

import (
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/jsii-runtime-go"

	"github.com/shardquota/shardquota/infra"
	"github.com/shardquota/shardquota/table/dynamo"
)

// The table that is deployed has the keys, indexes and stream of the one that
// all tests of the store run over.
func TestTableIsThatOfTheStore(t *testing.T) {
	for name, projection := range map[string]infra.Projection{"all": infra.All, "keys only": infra.KeysOnly} {
		t.Run(name, func(t *testing.T) {
			_, table := synth(t, func(_ awscdk.Stack, p *infra.Props) { p.Table.Projection = projection }).one(t, "AWS::DynamoDB::Table")
			want := dynamo.CreateTableInput("any")
			var indexes []any
			for i, index := range want.GlobalSecondaryIndexes {
				kind := string(index.Projection.ProjectionType)
				if i == 1 {
					kind = string(projection)
				}
				indexes = append(indexes, map[string]any{
					"IndexName":  *index.IndexName,
					"KeySchema":  []any{key(*index.KeySchema[0].AttributeName, "HASH"), key(*index.KeySchema[1].AttributeName, "RANGE")},
					"Projection": map[string]any{"ProjectionType": kind},
				})
			}
			var attributes []any
			for _, a := range want.AttributeDefinitions {
				attributes = append(attributes, map[string]any{"AttributeName": *a.AttributeName, "AttributeType": string(a.AttributeType)})
			}
			table.has(t, map[string]any{
				"KeySchema":              []any{key(*want.KeySchema[0].AttributeName, "HASH"), key(*want.KeySchema[1].AttributeName, "RANGE")},
				"AttributeDefinitions":   attributes,
				"GlobalSecondaryIndexes": indexes,
				"StreamSpecification":    map[string]any{"StreamViewType": string(want.StreamSpecification.StreamViewType)},
				"BillingMode":            string(want.BillingMode),
			})
		})
	}
}

func key(name, kind string) any { return map[string]any{"AttributeName": name, "KeyType": kind} }

func TestTableIsSafeByDefault(t *testing.T) {
	_, table := synth(t, nil).one(t, "AWS::DynamoDB::Table")
	table.has(t, map[string]any{
		"TableName":                        nil,
		"TimeToLiveSpecification":          map[string]any{"AttributeName": "ttl", "Enabled": true},
		"PointInTimeRecoverySpecification": map[string]any{"PointInTimeRecoveryEnabled": true},
		"DeletionProtectionEnabled":        true,
		"OnDemandThroughput":               nil,
		"SSESpecification":                 map[string]any{"SSEEnabled": false}, // the key is AWS's own
	})
	if table.DeletionPolicy != "Retain" {
		t.Errorf("deletion policy %s", table.DeletionPolicy)
	}
}

func TestTableAsChosen(t *testing.T) {
	d := synth(t, func(_ awscdk.Stack, p *infra.Props) {
		p.Table = infra.TableProps{Name: "limits", MaxReadUnits: 300, MaxWriteUnits: 4000, NoRecovery: true, Disposable: true, Encryption: infra.AWSManaged}
	})
	_, table := d.one(t, "AWS::DynamoDB::Table")
	most := map[string]any{"MaxReadRequestUnits": 300, "MaxWriteRequestUnits": 4000}
	table.has(t, map[string]any{
		"TableName":                        "limits",
		"PointInTimeRecoverySpecification": map[string]any{"PointInTimeRecoveryEnabled": false},
		"DeletionProtectionEnabled":        false,
		"OnDemandThroughput":               most,
		"SSESpecification":                 map[string]any{"SSEEnabled": true},
	})
	for _, index := range table.Properties["GlobalSecondaryIndexes"].([]any) {
		index := index.(map[string]any)
		if got := asJSON(t, index["OnDemandThroughput"]); got != asJSON(t, most) {
			t.Errorf("%s is capped at %s", index["IndexName"], got)
		}
	}
	_, bucket := d.one(t, "AWS::S3::Bucket")
	bucket.has(t, map[string]any{"BucketEncryption": map[string]any{"ServerSideEncryptionConfiguration": []any{map[string]any{
		"ServerSideEncryptionByDefault": map[string]any{"SSEAlgorithm": "aws:kms"}, // with the account's key, as the table
	}}}})
	for _, kind := range []string{"AWS::DynamoDB::Table", "AWS::S3::Bucket", "AWS::Logs::LogGroup"} {
		if _, r := d.one(t, kind); r.DeletionPolicy != "Delete" {
			t.Errorf("%s of a trial: %s", kind, r.DeletionPolicy)
		}
	}
}

// A customer's key encrypts the table and what is kept aside of it, and all who
// use the table may use it.
func TestCustomersKey(t *testing.T) {
	arn := "arn:aws:kms:eu-west-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
	d := synth(t, func(stack awscdk.Stack, p *infra.Props) {
		p.Table.Encryption = infra.CustomerManaged
		p.Table.Key = awskms.Key_FromKeyArn(stack, jsii.String("Key"), &arn)
	})
	_, table := d.one(t, "AWS::DynamoDB::Table")
	table.has(t, map[string]any{"SSESpecification": map[string]any{"SSEEnabled": true, "SSEType": "KMS", "KMSMasterKeyId": arn}})
	_, bucket := d.one(t, "AWS::S3::Bucket")
	bucket.has(t, map[string]any{"BucketEncryption": map[string]any{"ServerSideEncryptionConfiguration": []any{map[string]any{
		"BucketKeyEnabled":              true,
		"ServerSideEncryptionByDefault": map[string]any{"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": arn},
	}}}})
	use := `["kms:Decrypt","kms:DescribeKey","kms:Encrypt","kms:GenerateDataKey","kms:GenerateDataKeyWithoutPlaintext","kms:ReEncryptFrom","kms:ReEncryptTo"]`
	policies := d.all("AWS::IAM::ManagedPolicy")
	id, role := d.one(t, "AWS::IAM::Policy")
	policies[id] = role
	for id, policy := range policies {
		if got := policy.actionsOn(t, arn); got != use {
			t.Errorf("%s may do %s with the key", id, got)
		}
	}
}

// A new key rotates, and stays or goes with the table.
func TestNewCustomersKey(t *testing.T) {
	for disposable, fate := range map[bool]string{false: "Retain", true: "Delete"} {
		_, key := synth(t, func(_ awscdk.Stack, p *infra.Props) {
			p.Table.Encryption, p.Table.Disposable = infra.CustomerManaged, disposable
		}).one(t, "AWS::KMS::Key")
		key.has(t, map[string]any{"EnableKeyRotation": true})
		if key.DeletionPolicy != fate {
			t.Errorf("disposable %v: the key's deletion policy is %s", disposable, key.DeletionPolicy)
		}
	}
}

const (
	existingArn    = "arn:aws:dynamodb:eu-west-1:111122223333:table/limits"
	existingStream = existingArn + "/stream/2026-11-30T10:00:00.000"
)

func existingTable(_ awscdk.Stack, p *infra.Props) {
	p.Existing = &infra.ExistingTable{Arn: existingArn, StreamArn: existingStream}
}

// A table that is there already is only read from and written to.
func TestExistingTable(t *testing.T) {
	d := synth(t, existingTable)
	if n := len(d.all("AWS::DynamoDB::Table")); n != 0 {
		t.Errorf("%d tables made", n)
	}
	_, mapping := d.one(t, "AWS::Lambda::EventSourceMapping")
	mapping.has(t, map[string]any{"EventSourceArn": existingStream})
	_, function := d.one(t, "AWS::Lambda::Function")
	if got := function.Properties["Environment"].(map[string]any)["Variables"].(map[string]any)["SHARDQUOTA_TABLE"]; got != "limits" {
		t.Errorf("the function's table is %v", got)
	}
	_, role := d.one(t, "AWS::IAM::Policy")
	if got := role.actionsOn(t, existingArn); got != asJSON(t, dynamo.Operations) {
		t.Errorf("the function may do %s", got)
	}
}
