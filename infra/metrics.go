package infra

import (
	"fmt"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/jsii-runtime-go"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/sharding"
)

// statistic is how the values of a period become one.
type statistic string

const (
	sum     statistic = "Sum"
	highest statistic = "Maximum"
)

// everyMinute is the period of alarms and graphs: the services send their
// metrics by the minute.
func everyMinute() awscdk.Duration { return awscdk.Duration_Minutes(jsii.Number(1)) }

func metric(namespace, name string, stat statistic, period awscdk.Duration, dimensions map[string]*string) awscloudwatch.Metric {
	return awscloudwatch.NewMetric(&awscloudwatch.MetricProps{
		Namespace:     &namespace,
		MetricName:    &name,
		Statistic:     jsii.String(string(stat)),
		Period:        period,
		DimensionsMap: &dimensions,
	})
}

// lambda is a metric of the service about the function.
func (q *ShardQuota) lambda(name string, stat statistic) awscloudwatch.Metric {
	return q.lambdaEvery(name, stat, everyMinute())
}

func (q *ShardQuota) lambdaEvery(name string, stat statistic, period awscdk.Duration) awscloudwatch.Metric {
	return metric("AWS/Lambda", name, stat, period, map[string]*string{"FunctionName": q.Function.FunctionName()})
}

// mapping is a count of events by the event source mapping.
func (q *ShardQuota) mapping(name string) awscloudwatch.Metric {
	return metric("AWS/Lambda", name, sum, everyMinute(), map[string]*string{"EventSourceMappingUUID": q.Mapping.AttrId()})
}

// own is a metric that the function itself writes for each batch.
func (q *ShardQuota) own(name string, stat statistic) awscloudwatch.Metric {
	return metric(aggregator.MetricNamespace, name, stat, everyMinute(), map[string]*string{"Table": q.Table.TableName()})
}

// declinedFor counts the shards declined for one reason.
func (q *ShardQuota) declinedFor(reason sharding.Refusal) awscloudwatch.Metric {
	return metric(aggregator.MetricNamespace, "ShardsDeclined", sum, everyMinute(),
		map[string]*string{"Table": q.Table.TableName(), "Reason": jsii.String(string(reason))})
}

// declined counts the shards declined for a reason that has to be mended.
func (q *ShardQuota) declined() awscloudwatch.IMetric {
	var metrics []awscloudwatch.IMetric
	for _, reason := range broken {
		metrics = append(metrics, q.declinedFor(reason))
	}
	return total("Shards declined", metrics)
}

// table is a metric of the service about the table, or about one of its
// indexes.
func (q *ShardQuota) table(name, index string) awscloudwatch.Metric {
	dimensions := map[string]*string{"TableName": q.Table.TableName()}
	if index != "" {
		dimensions["GlobalSecondaryIndexName"] = &index
	}
	return metric("AWS/DynamoDB", name, sum, everyMinute(), dimensions)
}

// tableThrottles counts the requests that the table or an index was too busy
// for.
func (q *ShardQuota) tableThrottles() awscloudwatch.IMetric {
	metrics := []awscloudwatch.IMetric{q.table("ReadThrottleEvents", ""), q.table("WriteThrottleEvents", "")}
	for i := range q.projections() {
		metrics = append(metrics, q.table("ReadThrottleEvents", indexName(i)), q.table("WriteThrottleEvents", indexName(i)))
	}
	return total("Throttled requests", metrics)
}

// writesWithoutRuns is the write units of 15 minutes, far below 0 if the function
// ran in them. A sum takes what there is: runs that there are none of are no
// data, with which any other expression would be none either.
func (q *ShardQuota) writesWithoutRuns() awscloudwatch.IMetric {
	quarter := awscdk.Duration_Minutes(jsii.Number(15))
	return awscloudwatch.NewMathExpression(&awscloudwatch.MathExpressionProps{
		Expression: jsii.String("SUM([writes, -1000000000 * runs])"),
		UsingMetrics: &map[string]awscloudwatch.IMetric{
			"writes": metric("AWS/DynamoDB", "ConsumedWriteCapacityUnits", sum, quarter, map[string]*string{"TableName": q.Table.TableName()}),
			"runs":   q.lambdaEvery("Invocations", sum, quarter),
		},
		Label:  jsii.String("Write units without a run"),
		Period: quarter,
	})
}

// total adds metrics up. One without data in a period adds nothing.
func total(label string, metrics []awscloudwatch.IMetric) awscloudwatch.IMetric {
	using := map[string]awscloudwatch.IMetric{}
	var names []string
	for i, m := range metrics {
		name := fmt.Sprintf("m%d", i)
		using[name] = m
		names = append(names, name)
	}
	return awscloudwatch.NewMathExpression(&awscloudwatch.MathExpressionProps{
		Expression:   jsii.String("SUM([" + strings.Join(names, ",") + "])"),
		UsingMetrics: &using,
		Label:        &label,
		Period:       everyMinute(),
	})
}
