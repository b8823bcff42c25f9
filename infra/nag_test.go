package infra_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/assertions"
	"github.com/aws/aws-cdk-go/awscdk/v2/awss3"
	"github.com/aws/jsii-runtime-go"
	"github.com/cdklabs/cdk-nag-go/cdknag/v2"

	"github.com/shardquota/shardquota/infra"
)

// nag returns what cdk-nag's AWS solutions pack complains of, or nothing.
func nag(stack awscdk.Stack) (complaints string) {
	awscdk.Aspects_Of(stack).Add(cdknag.NewAwsSolutionsChecks(nil), nil)
	found := assertions.Annotations_FromStack(stack)
	defer func() { // an assertion that fails panics
		if failed := recover(); failed != nil {
			complaints = fmt.Sprint(failed)
		}
	}()
	found.HasNoError(jsii.String("*"), assertions.Match_AnyValue())
	found.HasNoWarning(jsii.String("*"), assertions.Match_AnyValue())
	return ""
}

func TestNag(t *testing.T) {
	for name, change := range map[string]choose{"default": nil, "every choice": everyChoice, "existing table": existingTable} {
		t.Run(name, func(t *testing.T) {
			stack, _ := deploy(newApp(), change)
			if complaints := nag(stack); complaints != "" {
				t.Error(complaints)
			}
		})
	}
}

// What is not accepted with a reason is found.
func TestNagFinds(t *testing.T) {
	stack, _ := deploy(newApp(), func(stack awscdk.Stack, _ *infra.Props) {
		awss3.NewBucket(stack, jsii.String("Open"), nil)
	})
	complaints := nag(stack)
	for _, rule := range []string{"AwsSolutions-S1:", "AwsSolutions-S10:"} { // no access logs, no TLS required
		if !strings.Contains(complaints, rule) {
			t.Errorf("%s is not found in %q", rule, complaints)
		}
	}
}
