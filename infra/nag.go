package infra

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
)

// explain tells cdk-nag why what it would complain of is so. The reasons are
// metadata of the resources, so that they travel with the template and need no
// cdk-nag here.
func (q *ShardQuota) explain() {
	accept(q.FailedBatches, finding{"AwsSolutions-S1",
		"Only Lambda writes here and only operators read. Who did is in CloudTrail's data events where an account has them; access logs would need a bucket more.", ""})
	if made, ok := q.Table.(awsdynamodb.Table); ok && q.props.Table.NoRecovery {
		accept(made, finding{"AwsSolutions-DDB3", "Whoever deploys it chose to do without point-in-time recovery.", ""})
	}
	objects := finding{"AwsSolutions-IAM5", "Lambda names the objects for failed batches; the wildcard stays within their bucket.", `FailedBatches[^/]*\/\*`}
	role := []finding{objects,
		{"AwsSolutions-IAM5", "Lambda lists the streams of the table before it reads one; the wildcard stays within this table.", `\/stream\/\*`}}
	if q.props.Function.Tracing {
		role = append(role, finding{"AwsSolutions-IAM5", "X-Ray has no resources to name.", `:\*`})
	}
	accept(q.role.Node().FindChild(jsii.String("DefaultPolicy")), role...)
	accept(q.Policies.Operate, objects)
}

// finding is a rule of cdk-nag that a resource breaks with reason: all of the
// rule, or what it says of resources that end as a regular expression says.
type finding struct{ rule, reason, ending string }

func accept(construct constructs.IConstruct, findings ...finding) {
	var rules []any
	for _, f := range findings {
		rule := map[string]any{"id": f.rule, "reason": f.reason}
		if f.ending != "" {
			rule["applies_to"] = []any{map[string]any{"regex": "/^Resource:.*" + f.ending + "$/"}}
		}
		rules = append(rules, rule)
	}
	resource := construct.Node().DefaultChild().(awscdk.CfnResource)
	resource.AddMetadata(jsii.String("cdk_nag"), map[string]any{"rules_to_suppress": rules})
}
