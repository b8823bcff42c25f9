package infra_test

import (
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssecretsmanager"
	"github.com/aws/jsii-runtime-go"

	"github.com/shardquota/shardquota/infra"
)

func TestFunction(t *testing.T) {
	d := synth(t, nil)
	table, _ := d.one(t, "AWS::DynamoDB::Table")
	logs, group := d.one(t, "AWS::Logs::LogGroup")
	role, _ := d.one(t, "AWS::IAM::Role")
	_, function := d.one(t, "AWS::Lambda::Function")
	function.has(t, map[string]any{
		"Runtime":                      "provided.al2023",
		"Architectures":                []string{"arm64"},
		"Handler":                      "bootstrap",
		"MemorySize":                   512,
		"Timeout":                      60,
		"ReservedConcurrentExecutions": nil,
		"TracingConfig":                nil,
		"Role":                         getAtt(role, "Arn"),
		"LoggingConfig":                map[string]any{"LogGroup": ref(logs)},
		"Environment": map[string]any{"Variables": map[string]any{
			"SHARDQUOTA_TABLE":       ref(table),
			"SHARDQUOTA_WINDOWS":     "hourly,daily",
			"SHARDQUOTA_USAGE_DAYS":  "90",
			"SHARDQUOTA_CONCURRENCY": "16",
			"SHARDQUOTA_LOG_LEVEL":   "INFO",
		}},
	})
	group.has(t, map[string]any{"RetentionInDays": 30})
	if group.DeletionPolicy != "RetainExceptOnCreate" {
		t.Errorf("the logs' deletion policy is %s", group.DeletionPolicy)
	}
}

func TestFunctionAsChosen(t *testing.T) {
	d := synth(t, func(stack awscdk.Stack, p *infra.Props) {
		secret := "arn:aws:secretsmanager:eu-west-1:111122223333:secret:hash-AbCdEf"
		p.Function = infra.FunctionProps{
			Code: p.Function.Code, X86: true, MemoryMB: 1024, TimeoutSeconds: 120, ReservedConcurrency: 7, Tracing: true,
			LogRetention: awslogs.RetentionDays_ONE_WEEK, LogLevel: "DEBUG", Windows: []string{"monthly"}, UsageDays: -1, Concurrency: 32,
			HashKey: awssecretsmanager.Secret_FromSecretCompleteArn(stack, jsii.String("Secret"), &secret),
		}
	})
	table, _ := d.one(t, "AWS::DynamoDB::Table")
	_, function := d.one(t, "AWS::Lambda::Function")
	function.has(t, map[string]any{
		"Architectures":                []string{"x86_64"},
		"MemorySize":                   1024,
		"Timeout":                      120,
		"ReservedConcurrentExecutions": 7,
		"TracingConfig":                map[string]any{"Mode": "Active"},
		"Environment": map[string]any{"Variables": map[string]any{
			"SHARDQUOTA_TABLE":       ref(table),
			"SHARDQUOTA_WINDOWS":     "monthly",
			"SHARDQUOTA_USAGE_DAYS":  "0",
			"SHARDQUOTA_CONCURRENCY": "32",
			"SHARDQUOTA_LOG_LEVEL":   "DEBUG",
			// The template holds where the key is, never the key.
			"SHARDQUOTA_HASH_KEY": "{{resolve:secretsmanager:arn:aws:secretsmanager:eu-west-1:111122223333:secret:hash-AbCdEf:SecretString:::}}",
		}},
	})
	_, group := d.one(t, "AWS::Logs::LogGroup")
	group.has(t, map[string]any{"RetentionInDays": 7})
}

func TestMapping(t *testing.T) {
	d := synth(t, nil)
	table, _ := d.one(t, "AWS::DynamoDB::Table")
	function, _ := d.one(t, "AWS::Lambda::Function")
	bucket, _ := d.one(t, "AWS::S3::Bucket")
	policy, _ := d.one(t, "AWS::IAM::Policy")
	_, mapping := d.one(t, "AWS::Lambda::EventSourceMapping")
	mapping.has(t, map[string]any{
		"FunctionName":                   ref(function),
		"EventSourceArn":                 getAtt(table, "StreamArn"),
		"Enabled":                        true,
		"StartingPosition":               "TRIM_HORIZON",
		"FilterCriteria":                 map[string]any{"Filters": []any{map[string]any{"Pattern": infra.FilterPattern()}}},
		"BatchSize":                      1000,
		"MaximumBatchingWindowInSeconds": 5,
		"ParallelizationFactor":          1,
		"FunctionResponseTypes":          []string{"ReportBatchItemFailures"},
		"BisectBatchOnFunctionError":     true,
		"MaximumRetryAttempts":           100,
		"MaximumRecordAgeInSeconds":      12 * 3600,
		"DestinationConfig":              map[string]any{"OnFailure": map[string]any{"Destination": getAtt(bucket, "Arn")}},
		"MetricsConfig":                  map[string]any{"Metrics": []string{"EventCount"}},
	})
	if role, _ := d.one(t, "AWS::IAM::Role"); asJSON(t, mapping.DependsOn) != asJSON(t, []string{policy, role}) {
		t.Errorf("made after %v only", mapping.DependsOn)
	}
}

func TestMappingAsChosen(t *testing.T) {
	_, mapping := synth(t, func(_ awscdk.Stack, p *infra.Props) {
		p.Mapping = infra.MappingProps{Paused: true, BatchSize: 10000, WindowSeconds: -1, Parallel: 10, Retries: 3, MaxAgeHours: 1}
	}).one(t, "AWS::Lambda::EventSourceMapping")
	mapping.has(t, map[string]any{
		"Enabled":                        false,
		"BatchSize":                      10000,
		"MaximumBatchingWindowInSeconds": 0,
		"ParallelizationFactor":          10,
		"MaximumRetryAttempts":           3,
		"MaximumRecordAgeInSeconds":      3600,
	})
}

func TestFailedBatches(t *testing.T) {
	d := synth(t, func(_ awscdk.Stack, p *infra.Props) { p.Mapping.KeepDays = 400 })
	id, bucket := d.one(t, "AWS::S3::Bucket")
	bucket.has(t, map[string]any{
		"PublicAccessBlockConfiguration": map[string]any{
			"BlockPublicAcls": true, "BlockPublicPolicy": true, "IgnorePublicAcls": true, "RestrictPublicBuckets": true,
		},
		"OwnershipControls": map[string]any{"Rules": []any{map[string]any{"ObjectOwnership": "BucketOwnerEnforced"}}},
		"BucketEncryption": map[string]any{"ServerSideEncryptionConfiguration": []any{map[string]any{
			"ServerSideEncryptionByDefault": map[string]any{"SSEAlgorithm": "AES256"},
		}}},
		"LifecycleConfiguration": map[string]any{"Rules": []any{map[string]any{
			"Status": "Enabled", "ExpirationInDays": 400, "AbortIncompleteMultipartUpload": map[string]any{"DaysAfterInitiation": 1},
		}}},
	})
	if bucket.DeletionPolicy != "RetainExceptOnCreate" {
		t.Errorf("deletion policy %s", bucket.DeletionPolicy)
	}
	_, policy := d.one(t, "AWS::S3::BucketPolicy")
	policy.has(t, map[string]any{"Bucket": ref(id)})
	var denied []any
	for _, s := range policy.statements() {
		if s["Effect"] == "Deny" {
			denied = append(denied, s["Condition"])
		}
	}
	want := []any{
		map[string]any{"Bool": map[string]any{"aws:SecureTransport": "false"}},
		map[string]any{"NumericLessThan": map[string]any{"s3:TlsVersion": 1.2}},
	}
	if asJSON(t, denied) != asJSON(t, want) {
		t.Errorf("refused: %v", denied)
	}
}
