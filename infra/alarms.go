package infra

import (
	"fmt"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatchactions"
	"github.com/aws/jsii-runtime-go"

	"github.com/shardquota/shardquota/sharding"
)

// alarm says when somebody has to look, and what to do then. It goes off when
// the metric is above the threshold in `in` of the last `of` periods; a period
// without data is a good one, since nothing was to be done in it.
type alarm struct {
	id, todo string
	metric   awscloudwatch.IMetric
	above    float64
	in, of   int
}

// broken are the reasons of a decline that do not go away by themselves. The
// others are races that another writer won, or what an operator asked for.
var broken = []sharding.Refusal{
	sharding.NoShardZero, sharding.Unreadable, sharding.BadCount, sharding.BadSchedule,
}

// lagAlarm is how far behind the stream the function may be, in ms.
const lagAlarm = 5 * 60 * 1000

func (q *ShardQuota) alarmList() []alarm {
	timeout := float64(q.props.Function.TimeoutSeconds * 1000)
	patience := fmt.Sprintf("within %d hours (the mapping's age limit)", q.props.Mapping.MaxAgeHours)
	return []alarm{
		{"IteratorAge", "The function is more than 5 minutes behind the stream: usage, top-ups and doublings are late, while clients go on by themselves. " +
			"Look at errors, throttles and duration next; nothing is given up on " + patience + ".",
			q.lambda("IteratorAge", highest), lagAlarm, 3, 5},
		{"Errors", "A call of the function ended in an error or a timeout. The batch is tried again. Read the function's logs; if it began with a deployment, roll back.",
			q.lambda("Errors", sum), 0, 2, 3},
		{"Retries", "Parts of batches keep failing and are handed back to be delivered again. The logs say \"to be delivered again\" with the step and the reason: " +
			"most often the table throttles, or a permission is missing.",
			q.own("Failures", sum), 0, 3, 10},
		{"Throttles", "Calls of the function are refused for lack of concurrency. Raise its reserved concurrency, or the account's.",
			q.lambda("Throttles", sum), 0, 2, 3},
		{"FailedBatches", "A batch was given up on and kept aside in the bucket of failed batches: its usage is not counted yet. " +
			"Find the cause in the logs, mend it, then drive the batch again with `shardquota replay --table`; it is safe to do so twice.",
			q.mapping("OnFailureDestinationDeliveredEventCount"), 0, 1, 1},
		{"LostBatches", "A batch was given up on and could not be kept aside. Its records are in the stream for 24 hours after they were written: " +
			"read the stream into files now, see that the function's role may write to the bucket, then replay the files.",
			q.lambda("DestinationDeliveryFailures", sum), 0, 1, 1},
		{"Rejected", "A stream record could not be understood, and what it consumed is not counted as usage. The logs say \"record rejected\" with its sequence number and the reason. " +
			"Most often somebody else writes buckets, or a limit has a name that cannot be counted.",
			q.own("Rejected", sum), 0, 1, 1},
		{"ShardsDeclined", "A doubling could not create shards ahead of use, for a reason that does not pass by itself: the logs say \"shard declined\" with it. " +
			"Nothing is granted wrongly; clients create the shard at its first use, or are refused if the bucket itself is broken.",
			q.declined(), 0, 1, 1},
		{"TableThrottles", "DynamoDB throttles the table or an index, so users' requests wait or fail. If it is capped, raise the cap. If one entity is hot, " +
			"see whether it has doubled to 32 shards already; otherwise the load grew faster than on-demand capacity follows.",
			q.tableThrottles(), 0, 3, 5},
		{"Stopped", "The table was written to for an hour while the function did not run at all: its mapping is disabled, cannot read the stream, or reads another one. " +
			"See the mapping's state; the stream keeps what is missed for 24 hours.",
			q.writesWithoutRuns(), 900, 4, 4},
		{"Duration", "The slowest batch took over 80 % of the function's timeout. Batches that do not finish are handed back in part, which costs twice. " +
			"Raise the memory or the timeout, or make batches smaller.",
			q.lambda("Duration", highest), 0.8 * timeout, 3, 5},
	}
}

func (q *ShardQuota) addAlarms() {
	for _, a := range q.alarmList() {
		q.addAlarm(a, awscloudwatch.TreatMissingData_NOT_BREACHING, awscloudwatch.ComparisonOperator_GREATER_THAN_THRESHOLD)
	}
	if q.props.ExpectTraffic {
		q.addAlarm(alarm{"Silent", "The function has not run for an hour, though the table is never without traffic. " +
			"See whether the event source mapping is enabled, and whether clients still write to this table.",
			q.lambdaEvery("Invocations", sum, awscdk.Duration_Hours(jsii.Number(1))), 1, 1, 1},
			awscloudwatch.TreatMissingData_BREACHING, awscloudwatch.ComparisonOperator_LESS_THAN_THRESHOLD)
	}
}

func (q *ShardQuota) addAlarm(a alarm, missing awscloudwatch.TreatMissingData, comparison awscloudwatch.ComparisonOperator) {
	made := awscloudwatch.NewAlarm(q.Construct, jsii.String(a.id+"Alarm"), &awscloudwatch.AlarmProps{
		AlarmDescription:   jsii.String(fmt.Sprintf("%s (docs/operations.md, %s)", a.todo, a.id)),
		Metric:             a.metric,
		Threshold:          &a.above,
		ComparisonOperator: comparison,
		DatapointsToAlarm:  jsii.Number(a.in),
		EvaluationPeriods:  jsii.Number(a.of),
		TreatMissingData:   missing,
	})
	if topic := q.props.AlarmTopic; topic != nil {
		action := awscloudwatchactions.NewSnsAction(topic)
		made.AddAlarmAction(action)
		made.AddOkAction(action)
	}
	q.Alarms = append(q.Alarms, made)
}
