package infra_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/assertions"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/jsii-runtime-go"

	"github.com/shardquota/shardquota/infra"
)

// The tests share one jsii process, which is not made for concurrent use: none
// of them is parallel.
func TestMain(m *testing.M) {
	code := m.Run()
	jsii.Close()
	os.Exit(code)
}

// newApp is an app without what differs from one version of the CDK, or from
// one checkout, to the next.
func newApp() awscdk.App {
	return awscdk.NewApp(&awscdk.AppProps{
		AnalyticsReporting: jsii.Bool(false),
		Context: &map[string]any{
			"@aws-cdk/aws-iam:minimizePolicies": true,
			"aws:cdk:enable-path-metadata":      false,
			"aws:cdk:enable-asset-metadata":     false,
		},
	})
}

// choose sets properties; what they take as constructs is made in the stack.
type choose func(stack awscdk.Stack, props *infra.Props)

// deploy puts a ShardQuota into a stack of its own. A small file stands in for
// the function's code.
func deploy(app awscdk.App, change choose) (awscdk.Stack, *infra.ShardQuota) {
	stack := awscdk.NewStack(app, jsii.String("Test"), nil)
	props := infra.Props{Function: infra.FunctionProps{Code: awslambda.Code_FromAsset(jsii.String("testdata/function"), nil)}}
	if change != nil {
		change(stack, &props)
	}
	q := infra.NewShardQuota(stack, "Limits", &props)
	q.AddOutputs(stack)
	return stack, q
}

// document is a template as CloudFormation reads it.
type document struct {
	Resources map[string]resource
	Outputs   map[string]output
}

type resource struct {
	Type           string
	Properties     map[string]any
	DependsOn      []string
	DeletionPolicy string
}

type output struct {
	Description string
	Value       any
}

// synth returns the template of a ShardQuota with changed properties.
func synth(t *testing.T, change choose) document {
	t.Helper()
	stack, _ := deploy(newApp(), change)
	text, err := json.Marshal(assertions.Template_FromStack(stack, nil).ToJSON())
	if err != nil {
		t.Fatal(err)
	}
	var d document
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// all returns the resources of a type by logical id.
func (d document) all(kind string) map[string]resource {
	found := map[string]resource{}
	for id, r := range d.Resources {
		if r.Type == kind {
			found[id] = r
		}
	}
	return found
}

// one returns the only resource of a type, and its logical id.
func (d document) one(t *testing.T, kind string) (id string, r resource) {
	t.Helper()
	found := d.all(kind)
	if len(found) != 1 {
		t.Fatalf("%d resources are %s", len(found), kind)
	}
	for id, r = range found {
	}
	return id, r
}

// getAtt refers to an attribute of a resource.
func getAtt(id, attribute string) any {
	return map[string]any{"Fn::GetAtt": []any{id, attribute}}
}

func ref(id string) any { return map[string]any{"Ref": id} }

// joined is a text that begins with a reference.
func joined(start any, rest string) any {
	return map[string]any{"Fn::Join": []any{"", []any{start, rest}}}
}

// has checks some properties of a resource, each against the value as JSON
// decodes it.
func (r resource) has(t *testing.T, want map[string]any) {
	t.Helper()
	for name, value := range want {
		if got, want := asJSON(t, r.Properties[name]), asJSON(t, value); got != want {
			t.Errorf("%s: %s is\n  %s\nnot\n  %s", r.Type, name, got, want)
		}
	}
}

func asJSON(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
