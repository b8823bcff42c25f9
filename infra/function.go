package infra

import (
	"os"
	"strconv"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"github.com/shardquota/shardquota/table/dynamo"
)

// addFunction makes the function and what it runs as.
func (q *ShardQuota) addFunction() {
	f := q.props.Function
	logs := q.logs(q.Construct)
	q.role = q.roleOf(q.Construct, "What the shardquota aggregator may do", logs, allow(dynamo.Operations, q.Table.TableArn()))
	code, architecture, discard := q.code(Aggregator, f.Code)
	defer discard()
	q.Function = awslambda.NewFunction(q.Construct, jsii.String("Function"), &awslambda.FunctionProps{
		Description:                  jsii.String("shardquota: keeps the sharded limits of a table by its stream"),
		Runtime:                      awslambda.Runtime_PROVIDED_AL2023(),
		Architecture:                 architecture,
		Handler:                      jsii.String("bootstrap"),
		Code:                         code,
		Role:                         q.role,
		LogGroup:                     logs,
		MemorySize:                   jsii.Number(f.MemoryMB),
		Timeout:                      awscdk.Duration_Seconds(jsii.Number(f.TimeoutSeconds)),
		ReservedConcurrentExecutions: positive(f.ReservedConcurrency),
		Tracing:                      q.tracing(),
		Environment:                  q.environment(),
	})
}

// logs makes the group of a function's logs.
func (q *ShardQuota) logs(scope constructs.Construct) awslogs.LogGroup {
	return awslogs.NewLogGroup(scope, jsii.String("Logs"), &awslogs.LogGroupProps{
		Retention:     q.props.Function.LogRetention,
		RemovalPolicy: q.removalOfRecords(),
	})
}

// roleOf makes what a function runs as: it may do what the statements say with
// the table, and write its logs. It has no policy of AWS: those reach every log
// group and every stream.
func (q *ShardQuota) roleOf(scope constructs.Construct, description string, logs awslogs.LogGroup, onTable ...awsiam.PolicyStatement) awsiam.Role {
	role := awsiam.NewRole(scope, jsii.String("Role"), &awsiam.RoleProps{
		AssumedBy:   awsiam.NewServicePrincipal(jsii.String("lambda.amazonaws.com"), nil),
		Description: &description,
	})
	statements := append(onTable, allow([]string{"logs:CreateLogStream", "logs:PutLogEvents"}, logs.LogGroupArn()))
	if key := q.Table.EncryptionKey(); key != nil {
		statements = append(statements, q.useKey(key))
	}
	for _, statement := range statements {
		role.AddToPrincipalPolicy(statement)
	}
	return role
}

// useKey allows what DynamoDB and S3 do with a customer's key in the name of who
// reads and writes, by way of them alone.
func (q *ShardQuota) useKey(key awskms.IKey) awsiam.PolicyStatement {
	statement := allow([]string{
		"kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey", "kms:GenerateDataKeyWithoutPlaintext", "kms:ReEncryptFrom", "kms:ReEncryptTo",
	}, key.KeyArn())
	region := *awscdk.Stack_Of(q.Construct).Region()
	statement.AddCondition(jsii.String("StringLike"), map[string]any{
		"kms:ViaService": []string{"dynamodb." + region + ".*", "s3." + region + ".*"},
	})
	return statement
}

// readStream is what reading a stream takes.
var readStream = []string{"dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator"}

// allow lets the function do actions on a resource.
func (q *ShardQuota) allow(actions []string, resource *string) {
	q.role.AddToPrincipalPolicy(allow(actions, resource))
}

// allow is a statement that allows actions on resources.
func allow(actions []string, resources ...*string) awsiam.PolicyStatement {
	return awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
		Actions:   jsii.Strings(actions...),
		Resources: &resources,
	})
}

// code returns a function's code, the one given or what is built of a program,
// and what is to be called once it was staged.
func (q *ShardQuota) code(program string, given awslambda.Code) (code awslambda.Code, architecture awslambda.Architecture, discard func()) {
	architecture, goarch := awslambda.Architecture_ARM_64(), "arm64"
	if q.props.Function.X86 {
		architecture, goarch = awslambda.Architecture_X86_64(), "amd64"
	}
	if given != nil {
		return given, architecture, func() {}
	}
	dir, err := Build(program, goarch)
	if err != nil {
		panic("infra: " + err.Error())
	}
	return awslambda.Code_FromAsset(&dir, nil), architecture, func() { _ = os.RemoveAll(dir) }
}

func (q *ShardQuota) tracing() awslambda.Tracing {
	if q.props.Function.Tracing {
		return awslambda.Tracing_ACTIVE
	}
	return awslambda.Tracing_DISABLED
}

// environment is the function's settings, as cmd/aggregator reads them.
func (q *ShardQuota) environment() *map[string]*string {
	f := q.props.Function
	settings := map[string]*string{
		"SHARDQUOTA_TABLE":       q.Table.TableName(),
		"SHARDQUOTA_WINDOWS":     jsii.String(strings.Join(f.Windows, ",")),
		"SHARDQUOTA_USAGE_DAYS":  jsii.String(strconv.Itoa(max(0, f.UsageDays))),
		"SHARDQUOTA_CONCURRENCY": jsii.String(strconv.Itoa(f.Concurrency)),
		"SHARDQUOTA_LOG_LEVEL":   &f.LogLevel,
	}
	if f.HashKey != nil {
		settings["SHARDQUOTA_HASH_KEY"] = f.HashKey.SecretValue().UnsafeUnwrap()
	}
	return &settings
}
