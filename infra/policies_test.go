package infra_test

import (
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"

	"github.com/shardquota/shardquota/infra"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/dynamo"
)

// statements are those of a policy document.
func (r resource) statements() []map[string]any {
	var statements []map[string]any
	for _, s := range r.Properties["PolicyDocument"].(map[string]any)["Statement"].([]any) {
		statements = append(statements, s.(map[string]any))
	}
	return statements
}

// list is a value that is a list of, or a single, value.
func list(value any) []any {
	if values, ok := value.([]any); ok {
		return values
	}
	return []any{value}
}

// actionsOn returns, as JSON, what a policy allows on a resource, sorted.
func (r resource) actionsOn(t *testing.T, on any) string {
	t.Helper()
	var actions []string
	for _, s := range r.statements() {
		for _, each := range list(s["Resource"]) {
			if asJSON(t, each) != asJSON(t, on) {
				continue
			}
			for _, action := range list(s["Action"]) {
				actions = append(actions, action.(string))
			}
		}
	}
	slices.Sort(actions)
	return asJSON(t, actions)
}

// The function may do what its code does, on what it does it to, and nothing
// else.
func TestFunctionsPermissions(t *testing.T) {
	d := synth(t, nil)
	tableID, _ := d.one(t, "AWS::DynamoDB::Table")
	bucketID, _ := d.one(t, "AWS::S3::Bucket")
	logsID, _ := d.one(t, "AWS::Logs::LogGroup")
	_, policy := d.one(t, "AWS::IAM::Policy")
	want := []struct {
		on      any
		actions []string
	}{
		{getAtt(tableID, "Arn"), dynamo.Operations},
		{getAtt(tableID, "StreamArn"), []string{"dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator"}},
		{joined(getAtt(tableID, "Arn"), "/stream/*"), []string{"dynamodb:ListStreams"}},
		{getAtt(bucketID, "Arn"), []string{"s3:ListBucket"}},
		{joined(getAtt(bucketID, "Arn"), "/*"), []string{"s3:PutObject"}},
		{getAtt(logsID, "Arn"), []string{"logs:CreateLogStream", "logs:PutLogEvents"}},
	}
	granted := 0
	for _, s := range policy.statements() {
		granted += len(list(s["Action"])) * len(list(s["Resource"]))
		if s["Effect"] != "Allow" || s["NotAction"] != nil || s["NotResource"] != nil {
			t.Errorf("unexpected: %v", s)
		}
	}
	for _, w := range want {
		granted -= len(w.actions)
		if got := policy.actionsOn(t, w.on); got != asJSON(t, w.actions) {
			t.Errorf("on %v it may do %s", w.on, got)
		}
	}
	if granted != 0 {
		t.Errorf("%d permissions more than the code needs", granted)
	}
	_, role := d.one(t, "AWS::IAM::Role")
	role.has(t, map[string]any{"ManagedPolicyArns": nil, "Policies": nil})
}

// With tracing it may also send traces, which have no resource of their own.
func TestPermissionToTrace(t *testing.T) {
	_, policy := synth(t, func(_ awscdk.Stack, p *infra.Props) { p.Function.Tracing = true }).one(t, "AWS::IAM::Policy")
	if got := policy.actionsOn(t, "*"); got != `["xray:PutTelemetryRecords","xray:PutTraceSegments"]` {
		t.Errorf("on everything it may do %s", got)
	}
}

// managed returns the policy to attach whose logical id begins so.
func managed(t *testing.T, d document, name string) resource {
	t.Helper()
	for id, r := range d.all("AWS::IAM::ManagedPolicy") {
		if strings.HasPrefix(id, "Limits"+name) {
			return r
		}
	}
	t.Fatalf("no policy %s", name)
	return resource{}
}

func TestManagedPolicies(t *testing.T) {
	d := synth(t, nil)
	id, _ := d.one(t, "AWS::DynamoDB::Table")
	reads := `"dynamodb:BatchGetItem","dynamodb:GetItem","dynamodb:Query"`
	for _, p := range []struct{ name, onTable, onIndex string }{
		{"AcquirePolicy",
			`["dynamodb:BatchGetItem","dynamodb:ConditionCheckItem","dynamodb:GetItem","dynamodb:PutItem","dynamodb:Query","dynamodb:UpdateItem"]`,
			"[" + reads + "]"},
		{"OperatePolicy",
			`["dynamodb:BatchGetItem","dynamodb:BatchWriteItem","dynamodb:ConditionCheckItem","dynamodb:DeleteItem","dynamodb:DescribeTable",` +
				`"dynamodb:GetItem","dynamodb:PutItem","dynamodb:Query","dynamodb:Scan","dynamodb:UpdateItem"]`,
			`["dynamodb:BatchGetItem","dynamodb:DescribeTable","dynamodb:GetItem","dynamodb:Query","dynamodb:Scan"]`},
		{"ReadPolicy",
			`["dynamodb:BatchGetItem","dynamodb:DescribeTable","dynamodb:GetItem","dynamodb:Query","dynamodb:Scan"]`,
			`["dynamodb:BatchGetItem","dynamodb:DescribeTable","dynamodb:GetItem","dynamodb:Query","dynamodb:Scan"]`},
		{"NamespaceAcquirePolicy",
			`["dynamodb:BatchGetItem","dynamodb:ConditionCheckItem","dynamodb:GetItem","dynamodb:PutItem","dynamodb:Query","dynamodb:UpdateItem"]`,
			"[" + reads + "]"},
		{"NamespaceOperatePolicy",
			`["dynamodb:BatchGetItem","dynamodb:BatchWriteItem","dynamodb:ConditionCheckItem","dynamodb:DeleteItem",` +
				`"dynamodb:GetItem","dynamodb:PutItem","dynamodb:Query","dynamodb:UpdateItem"]`,
			"[" + reads + "]"},
		{"NamespaceReadPolicy", "[" + reads + "]", "[" + reads + "]"},
	} {
		policy := managed(t, d, p.name)
		if got := policy.actionsOn(t, getAtt(id, "Arn")); got != p.onTable {
			t.Errorf("%s on the table: %s", p.name, got)
		}
		for _, index := range []string{"GSI1", "GSI2", "GSI3", "GSI4"} {
			if got := policy.actionsOn(t, joined(getAtt(id, "Arn"), "/index/"+index)); got != p.onIndex {
				t.Errorf("%s on %s: %s", p.name, index, got)
			}
		}
	}
}

// An operator may do what docs/operations.md asks of one.
func TestOperatorsPermissions(t *testing.T) {
	d := synth(t, nil)
	tableID, _ := d.one(t, "AWS::DynamoDB::Table")
	bucketID, _ := d.one(t, "AWS::S3::Bucket")
	logsID, _ := d.one(t, "AWS::Logs::LogGroup")
	functionID, _ := d.one(t, "AWS::Lambda::Function")
	mappingID, _ := d.one(t, "AWS::Lambda::EventSourceMapping")
	policy := managed(t, d, "OperatePolicy")
	for _, p := range []struct {
		on      any
		actions string
	}{
		{getAtt(tableID, "StreamArn"), `["dynamodb:DescribeStream","dynamodb:GetRecords","dynamodb:GetShardIterator"]`},
		{getAtt(bucketID, "Arn"), `["s3:ListBucket"]`},
		{joined(getAtt(bucketID, "Arn"), "/*"), `["s3:DeleteObject","s3:GetObject"]`},
		{getAtt(logsID, "Arn"), `["logs:DescribeLogStreams","logs:FilterLogEvents","logs:GetLogEvents"]`},
		{getAtt(functionID, "Arn"), `["lambda:GetFunctionConfiguration"]`},
		{map[string]any{"Fn::Join": []any{"", []any{
			"arn:", ref("AWS::Partition"), ":lambda:", ref("AWS::Region"), ":", ref("AWS::AccountId"), ":event-source-mapping:", getAtt(mappingID, "Id"),
		}}}, `["lambda:GetEventSourceMapping","lambda:UpdateEventSourceMapping"]`},
	} {
		if got := policy.actionsOn(t, p.on); got != p.actions {
			t.Errorf("on %v: %s", p.on, got)
		}
	}
}

// allowedKeys reports whether IAM lets a principal of a namespace do an action
// on items with these partition keys, as the policy's conditions on leading
// keys say.
func allowedKeys(r resource, namespace, action string, keys ...string) bool {
	return slices.ContainsFunc(r.statements(), func(s map[string]any) bool {
		if !slices.Contains(list(s["Action"]), any(action)) {
			return false
		}
		condition, _ := s["Condition"].(map[string]any)
		if condition == nil {
			return true
		}
		patterns := list(condition["ForAllValues:StringLike"].(map[string]any)["dynamodb:LeadingKeys"])
		for _, key := range keys {
			if !slices.ContainsFunc(patterns, func(p any) bool { return like(p.(string), namespace, key) }) {
				return false
			}
		}
		null := condition["Null"].(map[string]any)["dynamodb:LeadingKeys"] == "false"
		return len(keys) > 0 || !null
	})
}

// like is IAM's StringLike for patterns whose only wildcard is *, which stands
// for any text: path.Match stops it at a slash, so slashes are put away first.
func like(pattern, namespace, key string) bool {
	pattern = strings.ReplaceAll(pattern, "${aws:PrincipalTag/"+infra.DefaultNamespaceTag+"}", namespace)
	plain := strings.NewReplacer("/", "\x00")
	matched, err := path.Match(plain.Replace(pattern), plain.Replace(key))
	return err == nil && matched
}

func TestPoliciesByKey(t *testing.T) {
	d := synth(t, nil)
	bucket := table.Key{Group: table.Group{Namespace: "ns1", Entity: "a@b.c", Resource: "models/x"}, Shard: 3}
	usage := table.UsageKey{Group: bucket.Group, Window: "hourly", Start: "2026-11-30T10:00:00Z"}
	const (
		get, put, update = "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem"
		query, check     = "dynamodb:Query", "dynamodb:ConditionCheckItem"
	)
	for _, c := range []struct {
		policy, action string
		key            string
		allowed        bool
	}{
		{"AcquirePolicy", update, bucket.PK(), true},
		{"AcquirePolicy", put, usage.PK(), false},
		{"AcquirePolicy", put, "ns1/SYSTEM#", false},
		{"AcquirePolicy", check, usage.PK(), true},
		{"AcquirePolicy", get, "ns1/SYSTEM#", true},
		{"NamespaceAcquirePolicy", update, bucket.PK(), true},
		{"NamespaceAcquirePolicy", update, "ns12/BUCKET#a#r#0", false},
		{"NamespaceAcquirePolicy", update, "other/BUCKET#a#r#0", false},
		{"NamespaceAcquirePolicy", update, usage.PK(), false},
		{"NamespaceAcquirePolicy", check, usage.PK(), true},
		{"NamespaceAcquirePolicy", get, "ns1/RESOURCE#models/x", true},
		{"NamespaceAcquirePolicy", get, "ns12/RESOURCE#models/x", false},
		{"NamespaceAcquirePolicy", get, "_/SYSTEM#", true},
		{"NamespaceAcquirePolicy", update, "_/SYSTEM#", false},
		{"NamespaceAcquirePolicy", get, "_x/SYSTEM#", false},
		{"NamespaceAcquirePolicy", query, "ns1", true},
		{"NamespaceAcquirePolicy", query, "ns12", false},
		{"NamespaceOperatePolicy", put, "ns1/ENTITY#a", true},
		{"NamespaceOperatePolicy", put, "ns12/ENTITY#a", false},
		{"NamespaceOperatePolicy", put, "_/SYSTEM#", false},
		{"NamespaceReadPolicy", get, usage.PK(), true},
		{"NamespaceReadPolicy", get, "ns2/ENTITY#a", false},
		{"NamespaceReadPolicy", update, bucket.PK(), false},
	} {
		if got := allowedKeys(managed(t, d, c.policy), "ns1", c.action, c.key); got != c.allowed {
			t.Errorf("%s: %s of %s allowed: %v", c.policy, c.action, c.key, got)
		}
	}
	// A request for several items is refused whole for one of another
	// namespace, and one without any key is refused.
	scoped := managed(t, d, "NamespaceReadPolicy")
	if allowedKeys(scoped, "ns1", "dynamodb:BatchGetItem", bucket.PK(), "ns2/ENTITY#a") || allowedKeys(scoped, "ns1", query) {
		t.Error("too much is allowed")
	}
}

func TestNamespaceTag(t *testing.T) {
	d := synth(t, func(_ awscdk.Stack, p *infra.Props) { p.NamespaceTag = "zael_namespace_id" })
	if text := asJSON(t, managed(t, d, "NamespaceReadPolicy").Properties); !strings.Contains(text, "${aws:PrincipalTag/zael_namespace_id}/*") {
		t.Errorf("the policy is %s", text)
	}
}
