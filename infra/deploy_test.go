package infra_test

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	lambdatypes "github.com/aws/aws-sdk-go-v2/service/lambda/types"

	"github.com/shardquota/shardquota/infra"
	"github.com/shardquota/shardquota/table/dynamo"
)

// TestDeploy takes the app through its life with the CDK's own command line,
// on moto: it is deployed, what it names in its outputs is there, the function
// does its work as it was deployed, a second deployment finds nothing to do,
// and nothing is left of it in the end.
//
// The limits that it declares are stored as CloudFormation makes their resource:
// moto has the test call the function.
//
// What moto does not do is not seen here. It checks no permission; it ignores a
// table's time to live and recovery, a function's log group, all of a bucket but
// its name and encryption, and bucket policies; its mappings neither filter nor
// deliver, which the test does; and it forgets the outputs of what a change set
// made, so that deployments are direct.
func TestDeploy(t *testing.T) {
	c := newCloud(t)
	c.bootstrap(t)
	d := newDeployment(t, c)

	t.Run("table", d.checkTable)
	t.Run("function", d.checkFunction)
	t.Run("mapping", d.checkMapping)
	t.Run("bucket", d.checkBucket)
	t.Run("policies", d.checkPolicies)
	t.Run("alarms", d.checkAlarms)
	t.Run("limits", d.checkLimits)
	t.Run("use", d.checkUse)
	t.Run("outputs", d.checkOutputs)
	t.Run("again", d.checkAgain)
	t.Run("destroy", d.checkDestroy)
}

// deployment is the app's stack in a cloud.
type deployment struct {
	*cloud
	assembly string // the directory of what was synthesised
	outputs  map[string]string
	resolved map[string]bool // of the outputs
}

// newDeployment synthesises the app and deploys it.
func newDeployment(t *testing.T, c *cloud) *deployment {
	t.Helper()
	d := &deployment{cloud: c, assembly: t.TempDir(), resolved: map[string]bool{}}
	file := filepath.Join(t.TempDir(), "outputs.json")
	d.cdk(t, ".", append([]string{"deploy", "--require-approval", "never", "--method", "direct", "--outputs-file", file}, appArgs(d.assembly)...)...)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var stacks map[string]map[string]string
	if err := json.Unmarshal(text, &stacks); err != nil {
		t.Fatal(err)
	}
	d.outputs = stacks["ShardQuota"]
	return d
}

// functionsRun says that the deployed functions can be called here.
const functionsRun = runtime.GOOS == "linux"

// appArgs have the app synthesised into a directory, for a function that can
// run here, with some choices that are no defaults.
func appArgs(assembly string) []string {
	args := []string{"--output", assembly}
	for _, choice := range []string{
		"disposable=true", "x86=" + strconv.FormatBool(processor() == lambdatypes.ArchitectureX8664), "windows=hourly,daily,monthly",
		"logRetention=ONE_WEEK", "batchSize=500", "windowSeconds=3", "retries=7", "maxAgeHours=6",
	} {
		args = append(args, "--context", "shardquota:"+choice)
	}
	if functionsRun {
		args = append(args, "--context", "shardquota:limits="+limitsFile)
	}
	return args
}

// output is a value that the stack names.
func (d *deployment) output(t *testing.T, name string) string {
	t.Helper()
	value := d.outputs[name]
	if value == "" {
		t.Fatalf("the stack has no output %s: %v", name, slices.Sorted(maps.Keys(d.outputs)))
	}
	d.resolved[name] = true
	return value
}

// checkOutputs comes after what resolves the outputs.
func (d *deployment) checkOutputs(t *testing.T) {
	for name, value := range d.outputs {
		if !d.resolved[name] {
			t.Errorf("output %s, %s, was not resolved", name, value)
		}
	}
}

func (d *deployment) db() *dynamodb.Client { return dynamodb.NewFromConfig(d.sdk()) }

// The table is that which all tests of the store run over.
func (d *deployment) checkTable(t *testing.T) {
	name := d.output(t, "TableName")
	found, err := d.db().DescribeTable(t.Context(), &dynamodb.DescribeTableInput{TableName: &name})
	if err != nil {
		t.Fatal(err)
	}
	table, want := found.Table, dynamo.CreateTableInput(name)
	same(t, "ARN", *table.TableArn, d.output(t, "TableArn"))
	same(t, "stream", *table.LatestStreamArn, d.output(t, "StreamArn"))
	same(t, "keys", table.KeySchema, want.KeySchema)
	same(t, "attributes", table.AttributeDefinitions, want.AttributeDefinitions)
	same(t, "view of the stream", table.StreamSpecification, want.StreamSpecification)
	same(t, "billing", table.BillingModeSummary.BillingMode, want.BillingMode)
	same(t, "protected", *table.DeletionProtectionEnabled, false)
	if len(table.GlobalSecondaryIndexes) != len(want.GlobalSecondaryIndexes) {
		t.Fatalf("%d indexes", len(table.GlobalSecondaryIndexes))
	}
	for i, index := range table.GlobalSecondaryIndexes {
		index := types.GlobalSecondaryIndex{IndexName: index.IndexName, KeySchema: index.KeySchema, Projection: index.Projection}
		same(t, *index.IndexName, index, want.GlobalSecondaryIndexes[i])
	}
}

func (d *deployment) checkFunction(t *testing.T) {
	f := d.function(t)
	same(t, "runtime", f.Runtime, lambdatypes.RuntimeProvidedal2023)
	same(t, "processor", f.Architectures, []lambdatypes.Architecture{processor()})
	same(t, "handler", *f.Handler, "bootstrap")
	same(t, "table", f.Environment.Variables["SHARDQUOTA_TABLE"], d.output(t, "TableName"))

	role := (*f.Role)[strings.LastIndex(*f.Role, "/")+1:]
	if _, err := iam.NewFromConfig(d.sdk()).GetRole(t.Context(), &iam.GetRoleInput{RoleName: &role}); err != nil {
		t.Errorf("role: %v", err)
	}
	if groups := d.logGroups(t); !slices.Contains(groups, logGroup{d.output(t, "LogGroupName"), 7}) {
		t.Errorf("log groups: %v", groups)
	}
}

// processor is that of this machine, where the function is to run.
func processor() lambdatypes.Architecture {
	if runtime.GOARCH == "amd64" {
		return lambdatypes.ArchitectureX8664
	}
	return lambdatypes.ArchitectureArm64
}

type logGroup struct {
	LogGroupName    string
	RetentionInDays int
}

func (d *deployment) logGroups(t *testing.T) []logGroup {
	t.Helper()
	var all struct{ LogGroups []logGroup }
	d.ask(t, "logs", "Logs_20140328.DescribeLogGroups", nil, &all)
	return all.LogGroups
}

func (d *deployment) function(t *testing.T) *lambda.GetFunctionConfigurationOutput {
	t.Helper()
	name := d.output(t, "FunctionName")
	f, err := lambda.NewFromConfig(d.sdk()).GetFunctionConfiguration(t.Context(), &lambda.GetFunctionConfigurationInput{FunctionName: &name})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (d *deployment) checkMapping(t *testing.T) {
	m := d.mapping(t)
	same(t, "stream", *m.EventSourceArn, d.output(t, "StreamArn"))
	same(t, "function", *m.FunctionArn, *d.function(t).FunctionArn)
	same(t, "state", *m.State, "Enabled")
	same(t, "filters", m.FilterCriteria.Filters, []lambdatypes.Filter{{Pattern: aws.String(infra.FilterPattern())}})
	same(t, "batch size", *m.BatchSize, 500)
	same(t, "window", *m.MaximumBatchingWindowInSeconds, 3)
	same(t, "answer", m.FunctionResponseTypes, []lambdatypes.FunctionResponseType{lambdatypes.FunctionResponseTypeReportBatchItemFailures})
	same(t, "halves", *m.BisectBatchOnFunctionError, true)
	same(t, "attempts", *m.MaximumRetryAttempts, 7)
	same(t, "age", *m.MaximumRecordAgeInSeconds, 6*3600)
	same(t, "kept aside in", *m.DestinationConfig.OnFailure.Destination, "arn:aws:s3:::"+d.output(t, "FailedBatchesBucket"))
}

func (d *deployment) mapping(t *testing.T) *lambda.GetEventSourceMappingOutput {
	t.Helper()
	id := d.output(t, "MappingId")
	m, err := lambda.NewFromConfig(d.sdk()).GetEventSourceMapping(t.Context(), &lambda.GetEventSourceMappingInput{UUID: &id})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (d *deployment) checkBucket(t *testing.T) {
	status, _ := d.s3(t, d.output(t, "FailedBatchesBucket"))
	same(t, "status", status, http.StatusOK)
}

// The policies can be attached, and each is about the table.
func (d *deployment) checkPolicies(t *testing.T) {
	client := iam.NewFromConfig(d.sdk())
	count := 0
	for name := range d.outputs {
		if !strings.HasSuffix(name, "PolicyArn") {
			continue
		}
		count++
		arn := d.output(t, name)
		version, err := client.GetPolicyVersion(t.Context(), &iam.GetPolicyVersionInput{PolicyArn: &arn, VersionId: aws.String("v1")})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		document, err := url.QueryUnescape(*version.PolicyVersion.Document)
		if err != nil || !strings.Contains(document, `"`+d.output(t, "TableArn")+`"`) {
			t.Errorf("%s does not name the table (%v): %s", name, err, document)
		}
	}
	same(t, "policies", count, 6)
}

// The dashboard shows every alarm, and each alarm watches something that was
// deployed.
func (d *deployment) checkAlarms(t *testing.T) {
	var dashboard struct{ DashboardBody string }
	d.ask(t, "monitoring", cloudWatch+"GetDashboard", map[string]string{"DashboardName": d.output(t, "DashboardName")}, &dashboard)
	alarms := d.alarms(t)
	if len(alarms) == 0 {
		t.Error("no alarms")
	}
	deployed := []string{d.output(t, "TableName"), d.output(t, "FunctionName"), d.output(t, "MappingId")}
	for _, alarm := range alarms {
		if !strings.Contains(dashboard.DashboardBody, alarm.AlarmArn) {
			t.Errorf("the dashboard does not show %s", alarm.AlarmArn)
		}
		for _, dimension := range alarm.Dimensions {
			if !slices.Contains(deployed, dimension.Value) {
				t.Errorf("%s watches %s %s", alarm.AlarmArn, dimension.Name, dimension.Value)
			}
		}
	}
}

// cloudWatch is what its operations' names begin with.
const cloudWatch = "GraniteServiceVersion20100801."

type alarm struct {
	AlarmArn   string
	Dimensions []struct{ Name, Value string }
}

func (d *deployment) alarms(t *testing.T) []alarm {
	t.Helper()
	var all struct{ MetricAlarms []alarm }
	d.ask(t, "monitoring", cloudWatch+"DescribeAlarms", nil, &all)
	return all.MetricAlarms
}

// The same source makes the same template and the same code, so that there is
// nothing to deploy a second time.
func (d *deployment) checkAgain(t *testing.T) {
	assembly := t.TempDir()
	d.cdk(t, ".", append([]string{"diff", "--fail", "--method", "template"}, appArgs(assembly)...)...)
	printed := d.cdk(t, ".", "deploy", "--require-approval", "never", "--method", "direct", "--app", assembly)
	if !strings.Contains(printed, "(no changes)") {
		t.Errorf("the second deployment changes something:\n%s", printed)
	}
}

// A disposable stack leaves nothing behind. moto keeps the managed policies,
// which it cannot delete with a stack.
func (d *deployment) checkDestroy(t *testing.T) {
	d.cdk(t, ".", "destroy", "--force", "--app", d.assembly)
	name := d.output(t, "TableName")
	_, err := d.db().DescribeTable(t.Context(), &dynamodb.DescribeTableInput{TableName: &name})
	if gone := new(types.ResourceNotFoundException); !errors.As(err, &gone) {
		t.Errorf("the table is there: %v", err)
	}
	status, _ := d.s3(t, d.output(t, "FailedBatchesBucket"))
	same(t, "status of the bucket", status, http.StatusNotFound)
	d.checkNothingLeft(t)
}

func (d *deployment) checkNothingLeft(t *testing.T) {
	t.Helper()
	client := lambda.NewFromConfig(d.sdk())
	functions, err := client.ListFunctions(t.Context(), &lambda.ListFunctionsInput{})
	if err != nil {
		t.Fatal(err)
	}
	mappings, err := client.ListEventSourceMappings(t.Context(), &lambda.ListEventSourceMappingsInput{})
	if err != nil {
		t.Fatal(err)
	}
	same(t, "functions", len(functions.Functions), 0)
	same(t, "mappings", len(mappings.EventSourceMappings), 0)
	same(t, "alarms", len(d.alarms(t)), 0)
	same(t, "log groups", len(d.logGroups(t)), 0)
}

func same[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %v, want %v", what, asJSON(t, got), asJSON(t, want))
	}
}
