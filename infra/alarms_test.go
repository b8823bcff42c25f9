package infra_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/jsii-runtime-go"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/infra"
	"github.com/shardquota/shardquota/sharding"
)

// alarmLine is an alarm in a line: its metrics, when it goes off, and what
// silence means.
func alarmLine(r resource) string {
	p := r.Properties
	var metrics []string
	if p["Metrics"] != nil {
		for _, m := range p["Metrics"].([]any) {
			m := m.(map[string]any)
			if m["Expression"] != nil {
				metrics = append(metrics, m["Expression"].(string))
				continue
			}
			stat := m["MetricStat"].(map[string]any)
			metrics = append(metrics, metricLine(stat["Metric"].(map[string]any), stat["Stat"], stat["Period"]))
		}
	} else {
		metrics = append(metrics, metricLine(p, p["Statistic"], p["Period"]))
	}
	return fmt.Sprintf("%s | %v %v in %v of %v | %v", strings.Join(metrics, " "),
		p["ComparisonOperator"], p["Threshold"], p["DatapointsToAlarm"], p["EvaluationPeriods"], p["TreatMissingData"])
}

func metricLine(m map[string]any, stat, period any) string {
	var dimensions []string
	for _, d := range m["Dimensions"].([]any) {
		d := d.(map[string]any)
		dimension := d["Name"].(string)
		if value, ok := d["Value"].(string); ok {
			dimension += "=" + value
		}
		dimensions = append(dimensions, dimension)
	}
	return fmt.Sprintf("%v %v{%s} %v %vs", m["Namespace"], m["MetricName"], strings.Join(dimensions, ","), stat, period)
}

func TestAlarms(t *testing.T) {
	d := synth(t, func(_ awscdk.Stack, p *infra.Props) { p.ExpectTraffic = true })
	want := map[string]string{
		"IteratorAge": "AWS/Lambda IteratorAge{FunctionName} Maximum 60s | GreaterThanThreshold 300000 in 3 of 5 | notBreaching",
		"Errors":      "AWS/Lambda Errors{FunctionName} Sum 60s | GreaterThanThreshold 0 in 2 of 3 | notBreaching",
		"Retries":     "shardquota Failures{Table} Sum 60s | GreaterThanThreshold 0 in 3 of 10 | notBreaching",
		"Throttles":   "AWS/Lambda Throttles{FunctionName} Sum 60s | GreaterThanThreshold 0 in 2 of 3 | notBreaching",
		"FailedBatches": "AWS/Lambda OnFailureDestinationDeliveredEventCount{EventSourceMappingUUID} Sum 60s" +
			" | GreaterThanThreshold 0 in 1 of 1 | notBreaching",
		"LostBatches": "AWS/Lambda DestinationDeliveryFailures{FunctionName} Sum 60s | GreaterThanThreshold 0 in 1 of 1 | notBreaching",
		"Rejected":    "shardquota Rejected{Table} Sum 60s | GreaterThanThreshold 0 in 1 of 1 | notBreaching",
		"ShardsDeclined": "SUM([m0,m1,m2,m3])" +
			" shardquota ShardsDeclined{Reason=shard 0 is gone or unreadable,Table} Sum 60s" +
			" shardquota ShardsDeclined{Reason=siblings unreadable,Table} Sum 60s" +
			" shardquota ShardsDeclined{Reason=shard count is not a power of two up to 32,Table} Sum 60s" +
			" shardquota ShardsDeclined{Reason=undecodable schedule,Table} Sum 60s | GreaterThanThreshold 0 in 1 of 1 | notBreaching",
		"TableThrottles": "SUM([m0,m1,m2,m3,m4,m5,m6,m7,m8,m9])" +
			" AWS/DynamoDB ReadThrottleEvents{TableName} Sum 60s AWS/DynamoDB WriteThrottleEvents{TableName} Sum 60s" +
			indexThrottles("GSI1") + indexThrottles("GSI2") + indexThrottles("GSI3") + indexThrottles("GSI4") +
			" | GreaterThanThreshold 0 in 3 of 5 | notBreaching",
		"Stopped": "SUM([writes, -1000000000 * runs]) AWS/Lambda Invocations{FunctionName} Sum 900s" +
			" AWS/DynamoDB ConsumedWriteCapacityUnits{TableName} Sum 900s | GreaterThanThreshold 900 in 4 of 4 | notBreaching",
		"Duration": "AWS/Lambda Duration{FunctionName} Maximum 60s | GreaterThanThreshold 48000 in 3 of 5 | notBreaching",
		"Silent":   "AWS/Lambda Invocations{FunctionName} Sum 3600s | LessThanThreshold 1 in 1 of 1 | breaching",
	}
	for id, r := range d.all("AWS::CloudWatch::Alarm") {
		name := alarmName(id)
		if got := alarmLine(r); got != want[name] {
			t.Errorf("%s is\n  %s\nnot\n  %s", name, got, want[name])
		}
		delete(want, name)
	}
	for name := range want {
		t.Errorf("no alarm %s", name)
	}
}

func indexThrottles(index string) string {
	return strings.ReplaceAll(" AWS/DynamoDB ReadThrottleEvents{GlobalSecondaryIndexName=GSI,TableName} Sum 60s"+
		" AWS/DynamoDB WriteThrottleEvents{GlobalSecondaryIndexName=GSI,TableName} Sum 60s", "=GSI", "="+index)
}

// alarmName is the name in an alarm's logical id, "LimitsErrorsAlarm2CB703F4".
func alarmName(id string) string {
	return regexp.MustCompile(`^Limits(\w+)Alarm[0-9A-F]{8}$`).FindStringSubmatch(id)[1]
}

// Each alarm says what to do, and the handbook goes on from there.
func TestAlarmsSayWhatToDo(t *testing.T) {
	handbook, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	d := synth(t, func(_ awscdk.Stack, p *infra.Props) { p.ExpectTraffic = true })
	for id, r := range d.all("AWS::CloudWatch::Alarm") {
		name, description := alarmName(id), r.Properties["AlarmDescription"].(string)
		if !strings.HasSuffix(description, "(docs/operations.md, "+name+")") || len(description) < 120 || len(description) > 1024 {
			t.Errorf("%s: %s", name, description)
		}
		if !bytes.Contains(handbook, []byte("\n### "+name+"\n")) {
			t.Errorf("docs/operations.md has no part on %s", name)
		}
		r.has(t, map[string]any{"AlarmActions": nil, "OKActions": nil})
	}
}

func TestAlarmsTellTheTopic(t *testing.T) {
	const topic = "arn:aws:sns:eu-west-1:111122223333:pager"
	d := synth(t, func(stack awscdk.Stack, p *infra.Props) {
		p.AlarmTopic = awssns.Topic_FromTopicArn(stack, jsii.String("Topic"), jsii.String(topic))
	})
	for _, r := range d.all("AWS::CloudWatch::Alarm") {
		r.has(t, map[string]any{"AlarmActions": []string{topic}, "OKActions": []string{topic}})
	}
}

// ownMetrics are the metrics that the function writes, as it writes them.
func ownMetrics(t *testing.T) []string {
	t.Helper()
	report := aggregator.Report{}
	var written bytes.Buffer
	if err := report.WriteMetrics(&written, "any", aggregator.Timing{}); err != nil {
		t.Fatal(err)
	}
	var object struct {
		AWS struct {
			CloudWatchMetrics []struct {
				Namespace string
				Metrics   []struct{ Name string }
			}
		} `json:"_aws"`
	}
	if err := json.Unmarshal(written.Bytes(), &object); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range object.AWS.CloudWatchMetrics[0].Metrics {
		names = append(names, m.Name)
	}
	return names
}

// What alarms and dashboard show of the function, the function writes. An
// alarm on a metric that nobody writes never goes off.
func TestOwnMetricsExist(t *testing.T) {
	d := synth(t, nil)
	names := ownMetrics(t)
	_, dashboard := d.one(t, "AWS::CloudWatch::Dashboard")
	text := dashboardText(t, dashboard)
	for _, r := range d.all("AWS::CloudWatch::Alarm") {
		text += alarmLine(r)
	}
	used := regexp.MustCompile(`(?:\["shardquota","|shardquota )(\w+)`).FindAllStringSubmatch(text, -1)
	if len(used) < 15 {
		t.Fatalf("only %d uses found", len(used))
	}
	for _, match := range used {
		if !slices.Contains(names, match[1]) {
			t.Errorf("nobody writes the metric %s", match[1])
		}
	}
}

// dashboardText is a dashboard's body, with a mark for each reference.
func dashboardText(t *testing.T, r resource) string {
	t.Helper()
	var text strings.Builder
	for _, part := range r.Properties["DashboardBody"].(map[string]any)["Fn::Join"].([]any)[1].([]any) {
		if literal, ok := part.(string); ok {
			text.WriteString(literal)
			continue
		}
		text.WriteString("…")
	}
	return text.String()
}

func TestDashboard(t *testing.T) {
	d := synth(t, nil)
	_, r := d.one(t, "AWS::CloudWatch::Dashboard")
	var body struct {
		Widgets []struct {
			Type       string
			Properties struct {
				Title   string
				Alarms  []string
				Metrics []any
			}
		}
	}
	if err := json.Unmarshal([]byte(dashboardText(t, r)), &body); err != nil {
		t.Fatal(err)
	}
	if got := len(body.Widgets[0].Properties.Alarms); got != len(d.all("AWS::CloudWatch::Alarm")) {
		t.Errorf("%d alarms shown", got)
	}
	shown := asJSON(t, body.Widgets)
	for what, metrics := range map[string][]string{
		"consumption":         {"Records", "UsageWrites"},
		"lag":                 {"IteratorAge"},
		"doublings":           {"Doublings"},
		"creations":           {"ShardsCreated"},
		"declines":            {"ShardsDeclined"},
		"cost-bearing writes": {"ConsumedWriteCapacityUnits", "PassesWritten"},
	} {
		for _, metric := range metrics {
			if !strings.Contains(shown, `"`+metric+`"`) {
				t.Errorf("%s: %s is not shown", what, metric)
			}
		}
	}
	for _, reason := range sharding.Refusals() {
		if !strings.Contains(shown, `"`+string(reason)+`"`) {
			t.Errorf("declines for %q are not shown", reason)
		}
	}
}
