package infra_test

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/jsii-runtime-go"

	"github.com/shardquota/shardquota/infra"
)

// A stack of one's own, with limits, and an application that takes tokens. It is compiled
// as part of the tests, and not run.
func ExampleNewShardQuota() {
	defer jsii.Close()
	app := awscdk.NewApp(nil)
	stack := awscdk.NewStack(app, jsii.String("Api"), nil)

	limits := infra.NewShardQuota(stack, "Limits", &infra.Props{
		Table:   infra.TableProps{Projection: infra.KeysOnly},
		Mapping: infra.MappingProps{Parallel: 4},
		Limits:  &infra.Limits{File: "limits.yaml"},
	})
	api := awsiam.NewRole(stack, jsii.String("Role"), &awsiam.RoleProps{
		AssumedBy: awsiam.NewServicePrincipal(jsii.String("ecs-tasks.amazonaws.com"), nil),
	})
	api.AddManagedPolicy(limits.Policies.Acquire)

	app.Synth(nil)
}
