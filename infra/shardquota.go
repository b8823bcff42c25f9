// Package infra deploys shardquota on AWS by CDK: the table, its stream, the
// function that consumes it, and what an operator needs around them.
//
// ShardQuota is a construct for any stack. The program in app is a stack of its
// own that takes the properties from CDK context.
package infra

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awss3"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
)

// ShardQuota is a table of limits, the function that keeps it, and the policies,
// alarms and dashboard that belong to them.
type ShardQuota struct {
	Construct     constructs.Construct // the node of the tree that holds all the rest: what tags and dependencies go to
	Table         awsdynamodb.ITable
	Function      awslambda.Function
	Mapping       awslambda.CfnEventSourceMapping
	FailedBatches awss3.Bucket // whole batches that were given up on
	Policies      Policies     // to attach to applications and operators
	Alarms        []awscloudwatch.Alarm
	Dashboard     awscloudwatch.Dashboard
	Limits        awscdk.CustomResource // stores the declared limits, for what has to come after; nil where none are

	props Props // with all defaults
	role  awsiam.Role
}

// NewShardQuota makes the construct. It panics where Props.Check returns an
// error, or where the function cannot be built.
func NewShardQuota(scope constructs.Construct, id string, props *Props) *ShardQuota {
	if props == nil {
		props = &Props{}
	}
	if err := props.Check(); err != nil {
		panic("infra: " + err.Error())
	}
	q := &ShardQuota{Construct: constructs.NewConstruct(scope, &id), props: props.withDefaults()}
	awscdk.Tags_Of(q.Construct).Add(jsii.String("Application"), jsii.String("shardquota"), nil)
	q.addTable()
	q.addFailedBatches()
	q.addFunction()
	q.addMapping()
	q.addPolicies()
	q.addLimits()
	q.addAlarms()
	q.addDashboard()
	q.explain()
	return q
}

// removal is what becomes of data when the stack goes.
func (q *ShardQuota) removal() awscdk.RemovalPolicy {
	if q.props.Table.Disposable {
		return awscdk.RemovalPolicy_DESTROY
	}
	return awscdk.RemovalPolicy_RETAIN
}

// removalOfRecords is what becomes of logs and failed batches: the same, but
// nothing stays of a first deployment that failed.
func (q *ShardQuota) removalOfRecords() awscdk.RemovalPolicy {
	if q.props.Table.Disposable {
		return awscdk.RemovalPolicy_DESTROY
	}
	return awscdk.RemovalPolicy_RETAIN_ON_UPDATE_OR_DELETE
}

// AddOutputs names what applications and operators need to know, as outputs of
// the scope's stack. Their names are plain where the scope is the stack itself.
func (q *ShardQuota) AddOutputs(scope constructs.Construct) {
	p := q.Policies
	for _, output := range []struct {
		name, description string
		value             *string
	}{
		{"TableName", "The table, for clients and tools", q.Table.TableName()},
		{"TableArn", "The table", q.Table.TableArn()},
		{"StreamArn", "The table's stream", q.Table.TableStreamArn()},
		{"FunctionName", "The function that consumes the stream", q.Function.FunctionName()},
		{"LogGroupName", "The function's logs", q.Function.LogGroup().LogGroupName()},
		{"MappingId", "The event source mapping, to pause and resume the function", q.Mapping.AttrId()},
		{"FailedBatchesBucket", "Whole batches that were given up on, to be driven again", q.FailedBatches.BucketName()},
		{"DashboardName", "The dashboard", q.Dashboard.DashboardName()},
		{"AcquirePolicyArn", "For applications: take and give back tokens", p.Acquire.ManagedPolicyArn()},
		{"OperatePolicyArn", "For operators: change limits, drive batches again, pause the function", p.Operate.ManagedPolicyArn()},
		{"ReadPolicyArn", "For reports: read everything, change nothing", p.Read.ManagedPolicyArn()},
		{"NamespaceAcquirePolicyArn", "As AcquirePolicyArn, within the namespace of the principal's tag", p.NamespaceAcquire.ManagedPolicyArn()},
		{"NamespaceOperatePolicyArn", "For a tenant's operators: its limits, within the namespace of the principal's tag", p.NamespaceOperate.ManagedPolicyArn()},
		{"NamespaceReadPolicyArn", "As ReadPolicyArn, within the namespace of the principal's tag", p.NamespaceRead.ManagedPolicyArn()},
	} {
		awscdk.NewCfnOutput(scope, &output.name, &awscdk.CfnOutputProps{Value: output.value, Description: &output.description})
	}
}
