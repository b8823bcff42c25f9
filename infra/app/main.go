// Command app is a stack that holds one ShardQuota. Its choices come from CDK
// context: `cdk deploy -c shardquota:projection=KEYS_ONLY`, or the context of
// cdk.json. docs/operations.md lists the keys.
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/jsii-runtime-go"

	"github.com/shardquota/shardquota/infra"
)

func main() {
	os.Exit(run())
}

// run keeps jsii's own process from outliving this one, whichever way it ends.
// The CDK panics over what it does not like, a name or an ARN say: its first
// line tells what that is.
func run() (code int) {
	defer jsii.Close()
	defer func() {
		if failed := recover(); failed != nil {
			line, _, _ := strings.Cut(fmt.Sprint(failed), "\n")
			fmt.Fprintln(os.Stderr, line)
			code = 1
		}
	}()
	app := awscdk.NewApp(nil)
	if err := build(app); err != nil {
		fmt.Fprintf(os.Stderr, "%v\n", err)
		return 1
	}
	app.Synth(nil)
	return 0
}

// build adds the stack that the app's context asks for.
func build(app awscdk.App) error {
	choices, err := readContext(app.Node())
	if err != nil {
		return err
	}
	_, err = choices.addStack(app)
	return err
}

func (c *choices) addStack(app awscdk.App) (awscdk.Stack, error) {
	stack := awscdk.NewStack(app, jsii.String("ShardQuota"), &awscdk.StackProps{
		StackName:   &c.stackName,
		Description: jsii.String("Sharded rate limits and quotas on DynamoDB, kept exact"),
	})
	props, err := c.props(stack)
	if err != nil {
		return nil, err
	}
	infra.NewShardQuota(stack, "Limits", props).AddOutputs(stack)
	return stack, nil
}
