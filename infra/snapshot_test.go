package infra_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssecretsmanager"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/jsii-runtime-go"

	"github.com/shardquota/shardquota/infra"
)

var update = flag.Bool("update", false, "write the templates as they are now to testdata/templates")

// everyChoice makes every choice other than by default.
func everyChoice(stack awscdk.Stack, p *infra.Props) {
	p.AlarmTopic = awssns.NewTopic(stack, jsii.String("Pager"), &awssns.TopicProps{EnforceSSL: jsii.Bool(true)})
	p.ExpectTraffic, p.NamespaceTag = true, "tenant"
	p.Table = infra.TableProps{
		Name: "limits", Projection: infra.KeysOnly, MaxReadUnits: 1000, MaxWriteUnits: 5000, NoRecovery: true, Disposable: true, Encryption: infra.CustomerManaged,
	}
	p.Function = infra.FunctionProps{
		Code: p.Function.Code, X86: true, MemoryMB: 1024, TimeoutSeconds: 120, ReservedConcurrency: 10, Tracing: true,
		LogRetention: awslogs.RetentionDays_ONE_WEEK, LogLevel: "WARN", Windows: []string{"hourly", "daily", "monthly"}, UsageDays: 400, Concurrency: 32,
		HashKey: awssecretsmanager.Secret_FromSecretCompleteArn(stack, jsii.String("HashKey"),
			jsii.String("arn:aws:secretsmanager:eu-west-1:111122223333:secret:hash-AbCdEf")),
	}
	p.Mapping = infra.MappingProps{Paused: true, BatchSize: 500, WindowSeconds: 60, Parallel: 4, Retries: 20, MaxAgeHours: 6, KeepDays: 30}
	p.Limits = &infra.Limits{File: limitsFile, Namespace: "team", Retain: true, Code: p.Function.Code}
}

// template is a synthesized template as it is written to disk.
func template(t *testing.T, change choose) []byte {
	t.Helper()
	app := newApp()
	deploy(app, change)
	text, err := os.ReadFile(filepath.Join(*app.Synth(nil).Directory(), "Test.template.json"))
	if err != nil {
		t.Fatal(err)
	}
	return append(text, '\n')
}

// A template changes only on purpose: what changes a deployed stack is seen in
// the difference of these files, and may replace a table. After a change on
// purpose, run `go test -update -run TestTemplates .`.
func TestTemplates(t *testing.T) {
	for name, change := range map[string]choose{"default": nil, "every-choice": everyChoice, "existing-table": existingTable} {
		t.Run(name, func(t *testing.T) {
			file, got := filepath.Join("testdata", "templates", name+".json"), template(t, change)
			if *update {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%s is not what is made now: see its difference after `go test -update -run TestTemplates .`", file)
			}
		})
	}
}

func TestSynthIsDeterministic(t *testing.T) {
	first := template(t, everyChoice)
	for range 3 {
		if again := template(t, everyChoice); !bytes.Equal(first, again) {
			t.Fatal("the same choices made two templates")
		}
	}
}

func TestOutputs(t *testing.T) {
	d := synth(t, nil)
	for _, name := range []string{
		"TableName", "TableArn", "StreamArn", "FunctionName", "LogGroupName", "MappingId", "FailedBatchesBucket", "DashboardName",
		"AcquirePolicyArn", "OperatePolicyArn", "ReadPolicyArn",
		"NamespaceAcquirePolicyArn", "NamespaceOperatePolicyArn", "NamespaceReadPolicyArn",
	} {
		if out := d.Outputs[name]; out.Value == nil || out.Description == "" {
			t.Errorf("%s: %+v", name, out)
		}
	}
	if len(d.Outputs) != 14 {
		t.Errorf("%d outputs", len(d.Outputs))
	}
}

func TestTags(t *testing.T) {
	tagged := 0
	for id, r := range synth(t, nil).Resources {
		switch r.Type {
		case "AWS::IAM::Policy", "AWS::IAM::ManagedPolicy", "AWS::S3::BucketPolicy", "AWS::CloudWatch::Dashboard": // have no tags
			continue
		}
		tagged++
		if got := asJSON(t, r.Properties["Tags"]); got != `[{"Key":"Application","Value":"shardquota"}]` {
			t.Errorf("%s %s: %s", r.Type, id, got)
		}
	}
	if tagged < 16 {
		t.Errorf("only %d resources looked at", tagged)
	}
}
