package infra_test

import (
	"fmt"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/assertions"
	"github.com/aws/aws-cdk-go/awscdk/v2/awss3"
	"github.com/aws/aws-cdk-go/awscdk/v2/cxapi"
	"github.com/aws/jsii-runtime-go"
	"github.com/cdklabs/cdk-nag-go/cdknag/v2"

	"github.com/shardquota/shardquota/infra"
)

// nag returns what cdk-nag's AWS solutions pack complains of.
func nag(stack awscdk.Stack) []string {
	awscdk.Aspects_Of(stack).Add(cdknag.NewAwsSolutionsChecks(nil), nil)
	found := assertions.Annotations_FromStack(stack)
	var complaints []string
	for _, find := range []func(*string, any) *[]*cxapi.SynthesisMessage{found.FindError, found.FindWarning} {
		for _, m := range *find(jsii.String("*"), assertions.Match_AnyValue()) {
			complaints = append(complaints, *m.Id+": "+fmt.Sprint(m.Entry.Data))
		}
	}
	return complaints
}

func TestNag(t *testing.T) {
	for name, change := range map[string]choose{"default": nil, "every choice": everyChoice, "existing table": existingTable} {
		t.Run(name, func(t *testing.T) {
			stack, _ := deploy(newApp(), change)
			for _, complaint := range nag(stack) {
				t.Error(complaint)
			}
		})
	}
}

// What is not accepted with a reason is found.
func TestNagFinds(t *testing.T) {
	stack, _ := deploy(newApp(), func(stack awscdk.Stack, _ *infra.Props) {
		awss3.NewBucket(stack, jsii.String("Open"), nil)
	})
	if got := len(nag(stack)); got != 2 { // no access logs, no TLS required
		t.Errorf("%d complaints about a bare bucket", got)
	}
}
