package infra_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/internal/lambdatest"
	"github.com/shardquota/shardquota/table"
)

// hot is whom the test limits. An id in the logs would be a leak.
var hot = table.Group{Namespace: "Ns-1", Entity: "sk-live-hot", Resource: "gpt-4"}

// checkUse lets a client use the deployed table and the deployed function
// follow: it counts what was consumed, and creates the second shard.
func (d *deployment) checkUse(t *testing.T) {
	if !functionsRun {
		t.Skip("functions run on Linux alone")
	}
	d.writeBucket(t)
	records := d.filtered(t, d.stream(t))
	same(t, "records", len(records), 4) // what is written besides does not pass

	f := d.startFunction(t)
	event := []byte(`{"Records":[` + strings.Join(records, ",") + `]}`)
	for _, what := range []string{"first", "again"} { // the second time changes nothing
		if a := f.Invoke(event, time.Minute); a.Failed || a.Body != `{"batchItemFailures":[]}` {
			t.Fatalf("%s: answer %s (failed: %v)\n%s", what, a.Body, a.Failed, f.Stderr())
		}
		items := d.scan(t)
		checkUsage(t, items)
		checkShards(t, items)
	}
	d.checkOutput(t, f)
}

// writeBucket does what a client does: it makes a bucket as it first consumes,
// consumes, and doubles the shards. It also writes an item that is no bucket.
func (d *deployment) writeBucket(t *testing.T) {
	t.Helper()
	name := d.output(t, "TableName")
	put := func(item table.Item) {
		if _, err := d.db().PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &name, Item: item}); err != nil {
			t.Fatalf("put: %v", err)
		}
	}
	put(table.Item{"PK": table.S(hot.Namespace + "/SYSTEM#"), "SK": table.S("#CONFIG"), "l_calls_cp": table.N("1000")})
	put(bucket())
	change := func(expression string, amounts table.Item) {
		_, err := d.db().UpdateItem(t.Context(), &dynamodb.UpdateItemInput{
			TableName: &name, Key: table.Item{"PK": table.S(hot.At(0).PK()), "SK": table.S("#STATE")},
			UpdateExpression: &expression, ExpressionAttributeValues: amounts,
		})
		if err != nil {
			t.Fatalf("%s: %v", expression, err)
		}
	}
	for _, milli := range []string{"1000", "2250"} {
		change("ADD b_calls_tk :less, b_calls_tc :more", table.Item{":less": table.N("-" + milli), ":more": table.N(milli)})
	}
	change("SET shard_count = :two", table.Item{":two": table.N("2")})
}

// bucket is a new bucket of a quota of 1000 calls, 1.5 of them consumed. It is
// restored at an hour that is as far from now as can be.
func bucket() table.Item {
	now := time.Now()
	n := func(value int64) types.AttributeValue { return table.N(strconv.FormatInt(value, 10)) }
	return table.Item{
		"PK": table.S(hot.At(0).PK()), "SK": table.S("#STATE"),
		"GSI2PK": table.S("Ns-1/RESOURCE#gpt-4"), "GSI2SK": table.S("BUCKET#sk-live-hot#0"),
		"GSI3PK": table.S("Ns-1/ENTITY#sk-live-hot"), "GSI3SK": table.S("BUCKET#gpt-4#0"),
		"GSI4PK": table.S("Ns-1"), "GSI4SK": table.S("BUCKET#sk-live-hot#gpt-4#0"),
		"entity_id": table.S(hot.Entity), "resource": table.S(hot.Resource), "shard_count": n(1),
		"rf": n(now.UnixMilli()), "vu": n(now.Add(time.Hour).UnixMilli()),
		"rsched": table.S(fmt.Sprintf("1m0h%d", (now.UTC().Hour()+12)%24)), "sched_tz": table.S("UTC"),
		"b_calls_cp": n(1_000_000), "b_calls_ra": n(0), "b_calls_rp": n(1000), "b_calls_gc": n(1),
		"b_calls_tk": n(998_500), "b_calls_tc": n(1500),
		"b_wcu_cp": n(1_000_000), "b_wcu_ra": n(1_000_000), "b_wcu_rp": n(1000), "b_wcu_tk": n(1_000_000), "b_wcu_tc": n(0),
		"b_wcu_rsched": table.S("-"),
	}
}

// streams is what its operations' names begin with.
const streams = "DynamoDBStreams_20120810."

// stream is what the table's stream holds, each record as Lambda delivers it:
// as the service writes it, and with the stream's name.
func (d *deployment) stream(t *testing.T) []map[string]any {
	t.Helper()
	arn := d.output(t, "StreamArn")
	var stream struct {
		StreamDescription struct{ Shards []struct{ ShardId string } }
	}
	d.ask(t, "dynamodb", streams+"DescribeStream", map[string]string{"StreamArn": arn}, &stream)
	var start struct{ ShardIterator string }
	d.ask(t, "dynamodb", streams+"GetShardIterator", map[string]string{
		"StreamArn": arn, "ShardId": stream.StreamDescription.Shards[0].ShardId, "ShardIteratorType": "TRIM_HORIZON",
	}, &start)
	var page struct{ Records []map[string]any }
	d.ask(t, "dynamodb", streams+"GetRecords", map[string]string{"ShardIterator": start.ShardIterator}, &page)
	for _, record := range page.Records {
		record["eventSourceARN"] = arn
	}
	return page.Records
}

// filtered keeps the records that the deployed mapping lets through to the
// function.
func (d *deployment) filtered(t *testing.T, records []map[string]any) []string {
	t.Helper()
	var pattern any
	if err := json.Unmarshal([]byte(*d.mapping(t).FilterCriteria.Filters[0].Pattern), &pattern); err != nil {
		t.Fatal(err)
	}
	var kept []string
	for _, record := range records {
		passes, err := matches(pattern, record)
		if err != nil {
			t.Fatal(err)
		}
		if passes {
			kept = append(kept, asJSON(t, record))
		}
	}
	return kept
}

// startFunction runs the deployed code with the deployed settings.
func (d *deployment) startFunction(t *testing.T) *lambdatest.Function {
	t.Helper()
	environment := maps.Clone(d.function(t).Environment.Variables)
	environment["AWS_ENDPOINT_URL"] = d.endpoint
	return lambdatest.Start(t, d.downloadCode(t), environment)
}

// downloadCode returns the path of the function's binary, taken from where the
// CDK put it.
func (d *deployment) downloadCode(t *testing.T) string {
	t.Helper()
	archive := d.code(t, d.codeAsset(t))
	sum := sha256.Sum256(archive)
	same(t, "SHA-256 of the code", base64.StdEncoding.EncodeToString(sum[:]), *d.function(t).CodeSha256)
	return unzip(t, archive)
}

// codeAsset is the path of the code in S3, as the deployed template has it.
func (d *deployment) codeAsset(t *testing.T) string {
	t.Helper()
	var template document
	if err := json.Unmarshal([]byte(d.template(t)), &template); err != nil {
		t.Fatal(err)
	}
	for id, function := range template.all("AWS::Lambda::Function") {
		if strings.HasPrefix(id, "LimitsFunction") {
			code := function.Properties["Code"].(map[string]any)
			return fmt.Sprintf("cdk-hnb659fds-assets-%s-%s/%s", account, region, code["S3Key"])
		}
	}
	t.Fatal("the template has no function for the stream")
	return ""
}

// scan reads the whole table, by "PK SK".
func (d *deployment) scan(t *testing.T) map[string]table.Item {
	t.Helper()
	name := d.output(t, "TableName")
	page, err := d.db().Scan(t.Context(), &dynamodb.ScanInput{TableName: &name})
	if err != nil {
		t.Fatal(err)
	}
	items := map[string]table.Item{}
	for _, item := range page.Items {
		pk, sk := table.Item(item).Key()
		items[pk+" "+sk] = item
	}
	return items
}

// checkUsage sums the usage items of each kind of window, of which there are
// two should the hour have ended meanwhile.
func checkUsage(t *testing.T, items map[string]table.Item) {
	t.Helper()
	type sum struct {
		calls  float64
		events float64
	}
	sums := map[string]sum{}
	for key, item := range items {
		if strings.HasPrefix(key, "Ns-1/ENTITY#sk-live-hot #USAGE#gpt-4#") {
			window := item["window"].(*types.AttributeValueMemberS).Value
			sums[window] = sum{sums[window].calls + number(t, item, "calls"), sums[window].events + number(t, item, "total_events")}
		}
	}
	want := sum{calls: 1.5 + 1 + 2.25, events: 3}
	if !maps.Equal(sums, map[string]sum{"hourly": want, "daily": want, "monthly": want}) {
		t.Errorf("usage is %v, want %v by hour, day and month", sums, want)
	}
}

// checkShards looks for the half of the quota that the doubling moves.
func checkShards(t *testing.T, items map[string]table.Item) {
	t.Helper()
	for shard, want := range []map[string]float64{
		{"shard_count": 2, "b_calls_gc": 1, "b_calls_tk": 1_000_000 - 4_750 - 500_000, "b_calls_tc": 4_750},
		{"shard_count": 2, "b_calls_gc": 2, "b_calls_tk": 500_000, "b_calls_tc": 0},
	} {
		item, ok := items[hot.At(shard).PK()+" #STATE"]
		if !ok {
			t.Fatalf("no shard %d", shard)
		}
		for name, value := range want {
			if got := number(t, item, name); got != value {
				t.Errorf("shard %d: %s is %v, want %v", shard, name, got, value)
			}
		}
	}
}

func number(t *testing.T, item table.Item, name string) float64 {
	t.Helper()
	text, ok := item[name].(*types.AttributeValueMemberN)
	if !ok {
		t.Errorf("no number %s in %v", name, slices.Sorted(maps.Keys(item)))
		return 0
	}
	value, err := strconv.ParseFloat(text.Value, 64)
	if err != nil {
		t.Errorf("%s: %v", name, err)
	}
	return value
}

// checkOutput looks at what the function printed: its metrics are about the
// deployed table, and the entity is not named.
func (d *deployment) checkOutput(t *testing.T, f *lambdatest.Function) {
	t.Helper()
	metrics, logs := string(f.Stdout()), string(f.Stderr())
	if !strings.Contains(metrics, `"Table":"`+d.output(t, "TableName")+`"`) {
		t.Errorf("metrics: %s", metrics)
	}
	if strings.Contains(metrics+logs, hot.Entity) || strings.Contains(logs, `"ERROR"`) {
		t.Errorf("logs: %s", logs)
	}
}
