package main

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/assertions"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/jsii-runtime-go"

	"github.com/shardquota/shardquota/infra"
)

func TestMain(m *testing.M) {
	code := m.Run()
	jsii.Close()
	os.Exit(code)
}

// withContext is an app with these context keys of ours, as the command line
// gives them.
func withContext(context map[string]any) awscdk.App {
	prefixed := map[string]any{"@aws-cdk/aws-iam:minimizePolicies": true}
	for key, value := range context {
		prefixed[prefix+key] = value
	}
	return awscdk.NewApp(&awscdk.AppProps{AnalyticsReporting: jsii.Bool(false), Context: &prefixed})
}

// Every property that can be told by a text has a context key that sets it.
func TestEveryChoice(t *testing.T) {
	c, err := readContext(withContext(map[string]any{
		"stackName": "Limits", "tags": "team=billing,stage=a=b", "alarmEmail": "a@b.c", "alarmTopicArn": "arn:topic", "expectTraffic": "true", "namespaceTag": "tenant",
		"tableArn": "arn:table", "streamArn": "arn:stream", "tableName": "limits", "projection": "KEYS_ONLY", "maxReadUnits": "1", "maxWriteUnits": 4000000,
		"noRecovery": "true", "disposable": "true", "encryption": "AWS_MANAGED", "keyArn": "arn:key", "x86": "true", "memoryMB": "3", "timeoutSeconds": "4",
		"reservedConcurrency": "5", "tracing": "true", "logRetention": "ONE_WEEK", "logLevel": "DEBUG", "windows": "hourly,monthly", "usageDays": "6",
		"concurrency": "7", "hashKeySecretArn": "arn:secret", "paused": "true", "batchSize": "8", "windowSeconds": "9", "parallel": "10", "retries": "11",
		"limits": "limits.yaml", "limitsNamespace": "team", "limitsRetain": "true",
		"maxAgeHours": "12", "keepDays": 13, // a number, as cdk.json may hold one
	}).Node())
	if err != nil {
		t.Fatal(err)
	}
	want := choices{
		Props: infra.Props{
			ExpectTraffic: true, NamespaceTag: "tenant",
			Table: infra.TableProps{
				Name: "limits", Projection: infra.KeysOnly, MaxReadUnits: 1, MaxWriteUnits: 4000000, NoRecovery: true, Disposable: true, Encryption: infra.AWSManaged,
			},
			Function: infra.FunctionProps{
				X86: true, MemoryMB: 3, TimeoutSeconds: 4, ReservedConcurrency: 5, Tracing: true, LogRetention: "ONE_WEEK", LogLevel: "DEBUG",
				Windows: []string{"hourly", "monthly"}, UsageDays: 6, Concurrency: 7,
			},
			Mapping: infra.MappingProps{Paused: true, BatchSize: 8, WindowSeconds: 9, Parallel: 10, Retries: 11, MaxAgeHours: 12, KeepDays: 13},
		},
		stackName: "Limits", tableArn: "arn:table", streamArn: "arn:stream", key: "arn:key", hashKey: "arn:secret", topic: "arn:topic", email: "a@b.c",
		tags: map[string]string{"team": "billing", "stage": "a=b"}, limits: infra.Limits{File: "limits.yaml", Namespace: "team", Retain: true},
	}
	if got, want := written(t, *c), written(t, want); got != want {
		t.Errorf("read\n%s\nnot\n%s", got, want)
	}
}

func written(t *testing.T, c choices) string {
	t.Helper()
	text, err := json.MarshalIndent([]any{c.Props, c.stackName, c.tableArn, c.streamArn, c.key, c.hashKey, c.topic, c.email, c.tags, c.limits}, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestWrongContext(t *testing.T) {
	for name, c := range map[string]struct {
		context map[string]any
		want    string
	}{
		"mistyped":          {map[string]any{"batchSise": "1"}, "context shardquota:batchSise: there is no such choice"},
		"no number":         {map[string]any{"batchSize": "many"}, `context shardquota:batchSize: "many" is not a whole number`},
		"no truth":          {map[string]any{"paused": "soon"}, `context shardquota:paused: "soon" is neither true nor false`},
		"zero":              {map[string]any{"usageDays": "0"}, "context shardquota:usageDays: 0 would mean the default, for which the key is left out; -1 stands for ever"},
		"no window":         {map[string]any{"windowSeconds": "0"}, "context shardquota:windowSeconds: 0 would mean the default, for which the key is left out; -1 stands for none"},
		"no memory":         {map[string]any{"memoryMB": "0"}, "context shardquota:memoryMB: 0 would mean the default, for which the key is left out\n"},
		"a projection":      {map[string]any{"projection": "KEYS"}, `context shardquota:projection is "KEYS", none of ["ALL" "KEYS_ONLY"]`},
		"a list of windows": {map[string]any{"windows": "weekly"}, "the list shardquota:windows: "},
		"a name and a tag":  {map[string]any{"tableName": "x", "namespaceTag": "a b"}, "context shardquota:tableName is \"x\", not as |[A-Za-z0-9_.-]{3,255}\ncontext shardquota:namespaceTag is \"a b\", not as "},
		"a list":            {map[string]any{"windows": []string{"hourly"}}, "context shardquota:windows: give it as a text"},
		"encryption of an existing table": {map[string]any{
			"tableArn": "arn:aws:dynamodb:eu-west-1:111122223333:table/t", "streamArn": "arn:aws:dynamodb:eu-west-1:111122223333:table/t/stream/1", "encryption": "AWS_MANAGED",
		}, "the properties of Table have no effect"},
		"no tag":         {map[string]any{"tags": "team"}, `context shardquota:tags: "team" is not name=value`},
		"several":        {map[string]any{"paused": "soon", "x": "y", "memoryMB": "1.5"}, "memoryMB: \"1.5\" is not a whole number\ncontext shardquota:paused"},
		"out of range":   {map[string]any{"parallel": "11"}, "context shardquota:parallel is 11, not within 1 and 10"},
		"half a table":   {map[string]any{"tableArn": "arn:aws:dynamodb:eu-west-1:111122223333:table/t"}, "go together"},
		"two ways":       {map[string]any{"alarmEmail": "a@b.c", "alarmTopicArn": "arn:aws:sns:eu-west-1:111122223333:t"}, "exclude each other"},
		"no manifest":    {map[string]any{"limits": "nowhere.yaml"}, "the file shardquota:limits: open nowhere.yaml: no such file"},
		"no limits":      {map[string]any{"limitsRetain": "true"}, "are nothing without shardquota:limits"},
		"table and more": {map[string]any{"tableArn": "arn:t", "streamArn": "arn:t/stream/1", "projection": "KEYS_ONLY"}, "the properties of Table have no effect"},
	} {
		err := build(withContext(c.context))
		if err == nil || !strings.Contains(err.Error()+"\n", c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Every property that a check names has a key by which it is told.
func TestAsTyped(t *testing.T) {
	p := infra.Props{NamespaceTag: " ", Limits: &infra.Limits{File: "nowhere"}}
	p.Table.Name, p.Table.Projection, p.Table.Encryption, p.Table.MaxReadUnits, p.Table.MaxWriteUnits = " ", "x", "x", -1, -1
	p.Function = infra.FunctionProps{
		MemoryMB: -1, TimeoutSeconds: -1, ReservedConcurrency: -1, Concurrency: -1, UsageDays: 1 << 40, LogRetention: "x", LogLevel: "x", Windows: []string{"x"},
	}
	p.Mapping = infra.MappingProps{BatchSize: -1, WindowSeconds: 301, Parallel: -1, Retries: -1, MaxAgeHours: -1, KeepDays: -1}
	keys := map[string]bool{}
	for _, s := range (&choices{}).settings() {
		keys[s.key] = true
	}
	lines := strings.Split(asTyped(p.Check()).Error(), "\n")
	if len(lines) != 21 {
		t.Errorf("%d lines: %q", len(lines), lines)
	}
	for _, line := range lines {
		_, rest, ok := strings.Cut(line, prefix)
		key := strings.FieldsFunc(rest, func(r rune) bool { return r == ' ' || r == ':' })
		if !ok || !keys[key[0]] {
			t.Errorf("%q names no key", line)
		}
	}
	if err := asTyped(nil); err != nil {
		t.Errorf("nothing is wrong: %v", err)
	}
}

// stack builds the app's stack with a stand-in for the function's code.
func stack(t *testing.T, context map[string]any) assertions.Template {
	t.Helper()
	app := withContext(context)
	c, err := readContext(app.Node())
	if err != nil {
		t.Fatal(err)
	}
	c.Function.Code = awslambda.Code_FromAsset(jsii.String("../testdata/function"), nil)
	c.limits.Code = c.Function.Code
	stack, err := c.addStack(app)
	if err != nil {
		t.Fatal(err)
	}
	return assertions.Template_FromStack(stack, nil)
}

func TestStack(t *testing.T) {
	made := stack(t, map[string]any{"alarmEmail": "pager@example.com", "tags": "team=billing"})
	outputs := slices.Sorted(maps.Keys(*made.FindOutputs(jsii.String("*"), nil)))
	want := []string{
		"AcquirePolicyArn", "DashboardName", "FailedBatchesBucket", "FunctionName", "LogGroupName", "MappingId",
		"NamespaceAcquirePolicyArn", "NamespaceOperatePolicyArn", "NamespaceReadPolicyArn", "OperatePolicyArn", "ReadPolicyArn",
		"StreamArn", "TableArn", "TableName",
	}
	if !slices.Equal(outputs, want) {
		t.Errorf("outputs: %v", outputs)
	}
	holds(t, func() {
		made.HasResourceProperties(jsii.String("AWS::SNS::Subscription"), map[string]any{"Protocol": "email", "Endpoint": "pager@example.com"})
		made.HasResourceProperties(jsii.String("AWS::DynamoDB::Table"), map[string]any{
			"Tags": []any{map[string]any{"Key": "Application", "Value": "shardquota"}, map[string]any{"Key": "team", "Value": "billing"}},
		})
		made.AllResourcesProperties(jsii.String("AWS::CloudWatch::Alarm"), map[string]any{
			"AlarmActions": assertions.Match_AnyValue(), "OKActions": assertions.Match_AnyValue(),
		})
		made.HasResourceProperties(jsii.String("AWS::SNS::TopicPolicy"), map[string]any{"PolicyDocument": map[string]any{
			"Statement": assertions.Match_ArrayWith(&[]any{assertions.Match_ObjectLike(&map[string]any{
				"Effect": "Deny", "Condition": map[string]any{"Bool": map[string]any{"aws:SecureTransport": "false"}},
			})}),
		}})
	})
}

// Limits of a file are declared with the stack.
func TestStackWithLimits(t *testing.T) {
	made := stack(t, map[string]any{"limits": "../../cmd/limits/testdata/limits.yaml", "limitsNamespace": "team", "limitsRetain": "true"})
	holds(t, func() {
		made.HasResource(jsii.String("Custom::ShardQuotaLimits"), map[string]any{
			"Properties":     map[string]any{"File": "limits.yaml", "Namespace": "team"},
			"DeletionPolicy": "Retain",
		})
	})
}

// A table of another stack, with its key.
func TestStackOnExistingTable(t *testing.T) {
	table := "arn:aws:dynamodb:eu-west-1:111122223333:table/limits"
	key := "arn:aws:kms:eu-west-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
	made := stack(t, map[string]any{"tableArn": table, "streamArn": table + "/stream/2026-11-30T10:00:00.000", "keyArn": key, "paused": "true"})
	holds(t, func() {
		made.ResourceCountIs(jsii.String("AWS::DynamoDB::Table"), jsii.Number(0))
		made.ResourceCountIs(jsii.String("AWS::KMS::Key"), jsii.Number(0))
		made.HasResourceProperties(jsii.String("AWS::Lambda::EventSourceMapping"), map[string]any{"Enabled": false, "EventSourceArn": table + "/stream/2026-11-30T10:00:00.000"})
		made.HasResourceProperties(jsii.String("AWS::S3::Bucket"), map[string]any{"BucketEncryption": map[string]any{
			"ServerSideEncryptionConfiguration": []any{map[string]any{
				"ServerSideEncryptionByDefault": map[string]any{"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": key},
			}},
		}})
	})
}

// holds turns the panic of an assertion into a failure of the test.
func holds(t *testing.T, assert func()) {
	t.Helper()
	defer func() {
		if failed := recover(); failed != nil {
			t.Error(failed)
		}
	}()
	assert()
}
