package infra

import (
	"slices"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/jsii-runtime-go"
)

// Policies are for the roles of applications and people. Those scoped by
// namespace take the namespace's id from a tag of the principal
// (Props.NamespaceTag), so that one policy serves every tenant.
type Policies struct {
	Acquire awsiam.ManagedPolicy // take and give back tokens: read everything, write buckets alone
	Operate awsiam.ManagedPolicy // change any item, read the stream, the logs and the failed batches, pause the function
	Read    awsiam.ManagedPolicy // read every item

	NamespaceAcquire awsiam.ManagedPolicy
	NamespaceOperate awsiam.ManagedPolicy // a tenant's limits and entities; not the function
	NamespaceRead    awsiam.ManagedPolicy
}

// A transaction needs the permissions of its parts, and has none of its own.
// A client checks an entity's item while it makes a bucket.
var (
	byKey    = []string{"dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:Query"}
	whole    = []string{"dynamodb:DescribeTable", "dynamodb:Scan"}
	checking = []string{"dynamodb:ConditionCheckItem"}
	writing  = []string{"dynamodb:PutItem", "dynamodb:UpdateItem"}
	changing = []string{"dynamodb:BatchWriteItem", "dynamodb:ConditionCheckItem", "dynamodb:DeleteItem", "dynamodb:PutItem", "dynamodb:UpdateItem"}
)

// sharedKeys are the items outside of any namespace: the names of namespaces,
// and the versions that clients compare.
const sharedKeys = "_/*"

func (q *ShardQuota) addPolicies() {
	id := "${aws:PrincipalTag/" + q.props.NamespaceTag + "}"
	items, buckets := id+"/*", id+"/BUCKET#*"
	// reads is the same for all who are bound to a namespace. The bare id is
	// its key in GSI4; no item of the table has it.
	reads := func() awsiam.PolicyStatement { return onKeys(q.reading(byKey), id, items, sharedKeys) }
	everything := slices.Concat(byKey, whole)
	q.Policies = Policies{
		Acquire: q.policy("AcquirePolicy", "Take and give back tokens in any namespace",
			q.reading(byKey), q.onTable(checking), onKeys(q.onTable(writing), "*/BUCKET#*")),
		Operate: q.policy("OperatePolicy", "Change limits, drive batches again, pause and resume the function",
			append(q.onFunction(), q.reading(everything), q.onTable(changing))...),
		Read: q.policy("ReadPolicy", "Read every item", q.reading(everything)),
		NamespaceAcquire: q.policy("NamespaceAcquirePolicy", "Take and give back tokens in the namespace of the principal's tag",
			reads(), onKeys(q.onTable(checking), items), onKeys(q.onTable(writing), buckets)),
		NamespaceOperate: q.policy("NamespaceOperatePolicy", "Change limits and entities in the namespace of the principal's tag",
			reads(), onKeys(q.onTable(changing), items)),
		NamespaceRead: q.policy("NamespaceReadPolicy", "Read the items in the namespace of the principal's tag", reads()),
	}
}

func (q *ShardQuota) policy(id, description string, statements ...awsiam.PolicyStatement) awsiam.ManagedPolicy {
	if key := q.Table.EncryptionKey(); key != nil {
		statements = append(statements, q.useKey(key))
	}
	return awsiam.NewManagedPolicy(q.Construct, &id, &awsiam.ManagedPolicyProps{Description: &description, Statements: &statements})
}

// reading allows actions on the table and its indexes.
func (q *ShardQuota) reading(actions []string) awsiam.PolicyStatement {
	resources := []*string{q.Table.TableArn()}
	for i := range q.projections() {
		resources = append(resources, jsii.String(*q.Table.TableArn()+"/index/"+indexName(i)))
	}
	return allow(actions, resources...)
}

// onTable allows actions that indexes do not have.
func (q *ShardQuota) onTable(actions []string) awsiam.PolicyStatement {
	return allow(actions, q.Table.TableArn())
}

// onKeys narrows a statement to requests whose every partition key matches one
// of the patterns. Null keeps out what names no key at all, which would match.
func onKeys(statement awsiam.PolicyStatement, patterns ...string) awsiam.PolicyStatement {
	statement.AddCondition(jsii.String("ForAllValues:StringLike"), map[string]any{"dynamodb:LeadingKeys": patterns})
	statement.AddCondition(jsii.String("Null"), map[string]any{"dynamodb:LeadingKeys": "false"})
	return statement
}

// onFunction allows what docs/operations.md has an operator do about the
// function.
func (q *ShardQuota) onFunction() []awsiam.PolicyStatement {
	mapping := awscdk.Stack_Of(q.Construct).FormatArn(&awscdk.ArnComponents{
		Service:      jsii.String("lambda"),
		Resource:     jsii.String("event-source-mapping"),
		ResourceName: q.Mapping.AttrId(),
		ArnFormat:    awscdk.ArnFormat_COLON_RESOURCE_NAME,
	})
	return []awsiam.PolicyStatement{
		allow(readStream, q.Table.TableStreamArn()),
		allow([]string{"lambda:GetEventSourceMapping", "lambda:UpdateEventSourceMapping"}, mapping),
		allow([]string{"lambda:GetFunctionConfiguration"}, q.Function.FunctionArn()),
		allow([]string{"logs:DescribeLogStreams", "logs:FilterLogEvents", "logs:GetLogEvents"}, q.Function.LogGroup().LogGroupArn()),
		allow([]string{"s3:ListBucket"}, q.FailedBatches.BucketArn()),
		allow([]string{"s3:DeleteObject", "s3:GetObject"}, q.FailedBatches.ArnForObjects(jsii.String("*"))),
	}
}
