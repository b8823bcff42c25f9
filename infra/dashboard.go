package infra

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/interfaces/interfacesawscloudwatch"
	"github.com/aws/jsii-runtime-go"

	"github.com/shardquota/shardquota/sharding"
)

// graph is one picture of the dashboard, half a row wide.
type graph struct {
	title       string
	left, right []awscloudwatch.IMetric
}

func (q *ShardQuota) graphs() []graph {
	type metrics = []awscloudwatch.IMetric
	var reasons metrics
	for _, reason := range sharding.Refusals() {
		reasons = append(reasons, q.declinedFor(reason))
	}
	units := metrics{q.table("ConsumedWriteCapacityUnits", "")}
	for i := range q.projections() {
		units = append(units, named(q.table("ConsumedWriteCapacityUnits", indexName(i)), indexName(i)))
	}
	return []graph{
		{"Consumption: records and what they were counted into",
			metrics{q.own("Records", sum), q.own("UsageWrites", sum)}, metrics{q.own("Duplicates", sum), q.own("Rejected", sum), q.own("DivisionsIgnored", sum)}},
		{"Lag behind the stream", metrics{q.lambda("IteratorAge", highest)}, metrics{q.own("IteratorAge", highest)}},
		{"Doublings and shards", metrics{q.own("Doublings", sum), q.own("ShardsCreated", sum), q.own("ShardsRaised", sum)}, nil},
		{"Shards declined, by reason", reasons, nil},
		{"Write units, by the table and each index: what the bill follows", units, metrics{q.table("ConsumedReadCapacityUnits", "")}},
		{"Writes of the function",
			metrics{q.own("UsageWrites", sum), q.own("PassesWritten", sum), q.own("PassesLost", sum), q.own("ShardsCreated", sum), q.own("ShardsRaised", sum)}, nil},
		{"Calls of the function", metrics{q.lambda("Invocations", sum)}, metrics{q.lambda("Duration", highest), q.own("Duration", highest)}},
		{"What went wrong", metrics{q.lambda("Errors", sum), q.lambda("Throttles", sum), q.own("Failures", sum)},
			metrics{q.mapping("OnFailureDestinationDeliveredEventCount"), q.tableThrottles()}},
	}
}

// named gives a metric another label than its name.
func named(m awscloudwatch.Metric, label string) awscloudwatch.IMetric {
	return m.With(&awscloudwatch.MetricOptions{Label: &label})
}

func (q *ShardQuota) addDashboard() {
	q.Dashboard = awscloudwatch.NewDashboard(q.Construct, jsii.String("Dashboard"), &awscloudwatch.DashboardProps{
		DefaultInterval: awscdk.Duration_Hours(jsii.Number(3)),
	})
	var alarms []interfacesawscloudwatch.IAlarmRef
	for _, a := range q.Alarms {
		alarms = append(alarms, a)
	}
	q.Dashboard.AddWidgets(awscloudwatch.NewAlarmStatusWidget(&awscloudwatch.AlarmStatusWidgetProps{
		Title: jsii.String("Alarms"), Width: jsii.Number(24), Alarms: &alarms,
	}))
	for _, g := range q.graphs() {
		q.Dashboard.AddWidgets(awscloudwatch.NewGraphWidget(&awscloudwatch.GraphWidgetProps{
			Title: &g.title, Width: jsii.Number(12), Left: &g.left, Right: &g.right,
		}))
	}
}
