package infra_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/jsii-runtime-go"

	custom "github.com/shardquota/shardquota/cmd/limits/resource"
	"github.com/shardquota/shardquota/infra"
)

const limitsFile = "../cmd/limits/testdata/limits.yaml"

// declaring has limits declared, with a stand-in for the function's code.
func declaring(limits infra.Limits) choose {
	return func(_ awscdk.Stack, p *infra.Props) {
		limits.Code = awslambda.Code_FromAsset(jsii.String("testdata/function"), nil)
		p.Limits = &limits
	}
}

// ofLimits returns the resource of a type that belongs to the declared limits.
func (d document) ofLimits(t *testing.T, kind string) (id string, r resource) {
	t.Helper()
	for id, r := range d.all(kind) {
		if strings.HasPrefix(id, "LimitsDeclared") {
			return id, r
		}
	}
	t.Fatalf("no %s for the limits", kind)
	return "", resource{}
}

func manifestText(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(limitsFile)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The resource carries the manifest as it is, and says of which table.
func TestLimits(t *testing.T) {
	d := synth(t, declaring(infra.Limits{File: limitsFile}))
	tableID, _ := d.one(t, "AWS::DynamoDB::Table")
	functionID, function := d.ofLimits(t, "AWS::Lambda::Function")
	roleID, _ := d.ofLimits(t, "AWS::IAM::Role")
	policyID, _ := d.ofLimits(t, "AWS::IAM::Policy")
	logsID, logs := d.ofLimits(t, "AWS::Logs::LogGroup")
	_, limits := d.one(t, custom.Type)

	if got, want := asJSON(t, limits.Properties), asJSON(t, map[string]any{
		"ServiceToken": getAtt(functionID, "Arn"), "ServiceTimeout": "1500",
		"Table": ref(tableID), "Namespace": "default", "File": "limits.yaml", "Manifest": manifestText(t),
	}); got != want {
		t.Errorf("the resource is\n%s\nnot\n%s", got, want)
	}
	if limits.DeletionPolicy != "Delete" {
		t.Errorf("deletion policy %s", limits.DeletionPolicy)
	}
	// It is made after all that it takes, and so goes before.
	for _, id := range []string{tableID, functionID} {
		if !slices.Contains(limits.DependsOn, id) {
			t.Errorf("it is made after %v only", limits.DependsOn)
		}
	}
	for _, id := range []string{roleID, policyID} {
		if !slices.Contains(function.DependsOn, id) {
			t.Errorf("its function is made after %v only", function.DependsOn)
		}
	}
	function.has(t, map[string]any{
		"Runtime":       "provided.al2023",
		"Architectures": []string{"arm64"},
		"Handler":       "bootstrap",
		"Timeout":       900,
		"Role":          getAtt(roleID, "Arn"),
		"LoggingConfig": map[string]any{"LogGroup": ref(logsID)},
		"Environment":   nil,
	})
	logs.has(t, map[string]any{"RetentionInDays": 30})
}

// The function may do what storing limits takes, on what it takes it to, and
// nothing else.
func TestPermissionsToStoreLimits(t *testing.T) {
	d := synth(t, declaring(infra.Limits{File: limitsFile}))
	tableID, _ := d.one(t, "AWS::DynamoDB::Table")
	logsID, _ := d.ofLimits(t, "AWS::Logs::LogGroup")
	_, policy := d.ofLimits(t, "AWS::IAM::Policy")
	granted := 0
	for _, s := range policy.statements() {
		granted += len(list(s["Action"])) * len(list(s["Resource"]))
	}
	check := func(on any, actions []string) {
		granted -= len(actions)
		if got := policy.actionsOn(t, on); got != asJSON(t, actions) {
			t.Errorf("on %v it may do %s", on, got)
		}
	}
	check(getAtt(tableID, "Arn"), custom.Operations)
	for _, index := range custom.Indexes {
		check(joined(getAtt(tableID, "Arn"), "/index/"+index), custom.IndexOperations)
	}
	check(getAtt(logsID, "Arn"), []string{"logs:CreateLogStream", "logs:PutLogEvents"})
	if granted != 0 {
		t.Errorf("%d permissions more than the code needs", granted)
	}
	_, role := d.ofLimits(t, "AWS::IAM::Role")
	role.has(t, map[string]any{"ManagedPolicyArns": nil, "Policies": nil})
}

// A customer's key lets the function in too.
func TestLimitsUnderAKey(t *testing.T) {
	d := synth(t, func(stack awscdk.Stack, p *infra.Props) {
		declaring(infra.Limits{File: limitsFile})(stack, p)
		p.Table.Encryption = infra.CustomerManaged
	})
	keyID, _ := d.one(t, "AWS::KMS::Key")
	_, policy := d.ofLimits(t, "AWS::IAM::Policy")
	if got := policy.actionsOn(t, getAtt(keyID, "Arn")); !strings.Contains(got, "kms:Decrypt") {
		t.Errorf("with the key it may do %s", got)
	}
}

// Limits that are declared change nothing else in the template.
func TestLimitsAlone(t *testing.T) {
	without, with := synth(t, nil), synth(t, declaring(infra.Limits{File: limitsFile}))
	for id, r := range with.Resources {
		if strings.HasPrefix(id, "LimitsDeclared") {
			continue
		}
		if got, want := asJSON(t, r), asJSON(t, without.Resources[id]); got != want {
			t.Errorf("%s is\n%s\nand without limits\n%s", id, got, want)
		}
	}
	if more := len(with.Resources) - len(without.Resources); more != 5 { // the resource, its function, role, policy and logs
		t.Errorf("%d resources more", more)
	}
}

func TestLimitsAsChosen(t *testing.T) {
	text := "namespace: team\n" + manifestText(t)
	d := synth(t, func(stack awscdk.Stack, p *infra.Props) {
		existingTable(stack, p)
		declaring(infra.Limits{Manifest: text, Retain: true})(stack, p)
		p.Function.X86 = true
	})
	_, limits := d.one(t, custom.Type)
	limits.has(t, map[string]any{"Table": "limits", "Namespace": "team", "Manifest": text})
	if limits.DeletionPolicy != "Retain" {
		t.Errorf("deletion policy %s", limits.DeletionPolicy)
	}
	_, function := d.ofLimits(t, "AWS::Lambda::Function")
	function.has(t, map[string]any{"Architectures": []string{"x86_64"}})
}

// What is wrong with a manifest is told before anything is made.
func TestWrongLimits(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "broken.yaml")
	text := strings.Replace(manifestText(t), "capacity", "capacities", 1)
	if err := os.WriteFile(broken, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		limits infra.Limits
		want   string
	}{
		"none":       {infra.Limits{}, "either Limits.File or Limits.Manifest"},
		"both":       {infra.Limits{File: limitsFile, Manifest: "{}"}, "either Limits.File or Limits.Manifest"},
		"no file":    {infra.Limits{File: "testdata/nowhere.yaml"}, "the file Limits.File: open testdata/nowhere.yaml: no such file"},
		"malformed":  {infra.Limits{File: broken}, "broken.yaml:"},
		"text":       {infra.Limits{Manifest: text}, "the text Limits.Manifest:"},
		"too large":  {infra.Limits{Manifest: manifestText(t) + strings.Repeat("# a comment\n", 10_000)}, "more than the 120000 that a custom resource can be sent"},
		"two spaces": {infra.Limits{Manifest: "namespace: one\n" + manifestText(t), Namespace: "two"}, `for the namespace "one", not for "two"`},
	} {
		err := infra.Props{Limits: &c.limits}.Check()
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && strings.Contains(err.Error(), "sk-live-") {
			t.Errorf("%s: the error names an entity: %v", name, err)
		}
	}
	if err := (infra.Props{Limits: &infra.Limits{File: limitsFile}}).Check(); err != nil {
		t.Error(err)
	}
}
