package infra

import (
	"encoding/json"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awss3"
	"github.com/aws/jsii-runtime-go"

	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/table"
)

// FilterPattern is what a stream record must match to reach the function: the
// insert or the modification of a bucket item. What is filtered out costs no
// call.
func FilterPattern() string {
	pattern, _ := json.Marshal(map[string]any{ // cannot fail: strings all
		"eventName": []string{events.Insert, events.Modify},
		"dynamodb":  map[string]any{"Keys": map[string]any{table.AttrSK: map[string]any{"S": []string{table.StateSK}}}},
	})
	return string(pattern)
}

// addFailedBatches makes the bucket for whole batches that the mapping gives up
// on. Its objects hold entity ids, so they are as private as the table.
func (q *ShardQuota) addFailedBatches() {
	bucket := awss3.BucketProps{
		BlockPublicAccess: awss3.BlockPublicAccess_BLOCK_ALL(),
		ObjectOwnership:   awss3.ObjectOwnership_BUCKET_OWNER_ENFORCED,
		EnforceSSL:        jsii.Bool(true),
		MinimumTLSVersion: jsii.Number(1.2),
		Encryption:        awss3.BucketEncryption_S3_MANAGED,
		LifecycleRules: &[]*awss3.LifecycleRule{{
			Expiration:                          awscdk.Duration_Days(jsii.Number(q.props.Mapping.KeepDays)),
			AbortIncompleteMultipartUploadAfter: awscdk.Duration_Days(jsii.Number(1)),
		}},
		RemovalPolicy: q.removalOfRecords(),
	}
	switch key := q.Table.EncryptionKey(); {
	case key != nil:
		bucket.Encryption, bucket.EncryptionKey = awss3.BucketEncryption_KMS, key
		bucket.BucketKeyEnabled = jsii.Bool(true)
	case q.props.Table.Encryption == AWSManaged:
		bucket.Encryption = awss3.BucketEncryption_KMS_MANAGED
	}
	q.FailedBatches = awss3.NewBucket(q.Construct, jsii.String("FailedBatches"), &bucket)
}

// addMapping lets the stream call the function.
func (q *ShardQuota) addMapping() {
	m := q.props.Mapping
	stream := q.Table.TableStreamArn()
	q.allow(readStream, stream)
	// The mapping lists the table's streams before it reads this one.
	q.allow([]string{"dynamodb:ListStreams"}, jsii.String(*q.Table.TableArn()+"/stream/*"))
	q.allow([]string{"s3:ListBucket"}, q.FailedBatches.BucketArn())
	q.allow([]string{"s3:PutObject"}, q.FailedBatches.ArnForObjects(jsii.String("*")))

	q.Mapping = awslambda.NewCfnEventSourceMapping(q.Construct, jsii.String("Mapping"), &awslambda.CfnEventSourceMappingProps{
		FunctionName:     q.Function.FunctionName(),
		EventSourceArn:   stream,
		Enabled:          jsii.Bool(!m.Paused),
		StartingPosition: jsii.String("TRIM_HORIZON"), // nothing written before the function is missed
		FilterCriteria: &awslambda.CfnEventSourceMapping_FilterCriteriaProperty{
			Filters: []any{&awslambda.CfnEventSourceMapping_FilterProperty{Pattern: jsii.String(FilterPattern())}},
		},
		BatchSize:                      jsii.Number(m.BatchSize),
		MaximumBatchingWindowInSeconds: jsii.Number(max(0, m.WindowSeconds)),
		ParallelizationFactor:          jsii.Number(m.Parallel),
		FunctionResponseTypes:          jsii.Strings("ReportBatchItemFailures"),
		BisectBatchOnFunctionError:     jsii.Bool(true),
		MaximumRetryAttempts:           jsii.Number(m.Retries),
		MaximumRecordAgeInSeconds:      jsii.Number(m.MaxAgeHours * 3600),
		DestinationConfig: &awslambda.CfnEventSourceMapping_DestinationConfigProperty{
			OnFailure: &awslambda.CfnEventSourceMapping_OnFailureProperty{Destination: q.FailedBatches.BucketArn()},
		},
		// Without these nobody is told that a batch was kept aside.
		MetricsConfig: &awslambda.CfnEventSourceMapping_MetricsConfigProperty{Metrics: jsii.Strings("EventCount")},
	})
	// Lambda tries the role out when it makes the mapping.
	q.Mapping.Node().AddDependency(q.role)
}
