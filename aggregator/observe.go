package aggregator

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"log/slog"
	"time"

	"github.com/shardquota/shardquota/sharding"
	"github.com/shardquota/shardquota/table"
)

// MetricNamespace is the CloudWatch namespace of the metrics.
const MetricNamespace = "shardquota"

// Pseudonyms replaces entity ids, which are often API keys. Under one key an
// entity always has the same pseudonym. Without the key nobody can tell whose it
// is.
type Pseudonyms struct{ key []byte }

// NewPseudonyms makes pseudonyms under a key. An empty key stands for a random
// one, whose pseudonyms compare within one process only.
func NewPseudonyms(key string) Pseudonyms {
	if key != "" {
		return Pseudonyms{[]byte(key)}
	}
	random := make([]byte, sha256.Size)
	_, _ = rand.Read(random) // never fails
	return Pseudonyms{random}
}

// Of returns the pseudonym of a group's entity: 16 hexadecimal digits.
func (p Pseudonyms) Of(group table.Group) string {
	mac := hmac.New(sha256.New, p.key)
	_, _ = io.WriteString(mac, group.Namespace+"/"+group.Entity)
	return hex.EncodeToString(mac.Sum(nil)[:8])
}

// maxLoggedFailures bounds what one batch logs of failures, and of ignored
// divisions. In an outage every part of a batch fails, and all in one way.
const maxLoggedFailures = 10

// Log writes what an operator must know of a batch, by pseudonym: every rejected
// record, failure, doubling, creation and decline.
func (r *Report) Log(ctx context.Context, log *slog.Logger, names Pseudonyms) {
	for _, x := range r.Rejected {
		log.WarnContext(ctx, "record rejected", "index", x.Index, "sequence", x.Sequence, "reason", x.Err.Error())
	}
	for _, x := range r.Failures[:min(len(r.Failures), maxLoggedFailures)] {
		log.ErrorContext(ctx, "to be delivered again", "index", x.Index, "step", x.Step, "reason", x.Err.Error())
	}
	if more := len(r.Failures) - maxLoggedFailures; more > 0 {
		log.ErrorContext(ctx, "more to be delivered again", "parts", more)
	}
	of := func(group table.Group) slog.Attr {
		return slog.Group("bucket", "entity", names.Of(group), "resource", group.Resource)
	}
	for _, x := range r.InvalidDivisions[:min(len(r.InvalidDivisions), maxLoggedFailures)] {
		log.WarnContext(ctx, "division ignored", of(x.Key.Group), "shard", x.Key.Shard, "limit", x.Limit)
	}
	for _, x := range r.Doublings {
		log.InfoContext(ctx, "doubled", of(x.Group), "from", x.From, "to", x.To)
	}
	for _, x := range r.Created {
		log.InfoContext(ctx, "shard created", of(x.Key.Group), "shard", x.Key.Shard, "count", x.Count)
	}
	for _, x := range r.Declined {
		log.InfoContext(ctx, "shard declined", of(x.Key.Group), "shard", x.Key.Shard, "reason", x.Reason)
	}
}

// Timing is what a batch's metrics say of time.
type Timing struct {
	Now      int64 // epoch ms
	Age      int64 // of the batch's oldest record, milliseconds
	Duration time.Duration
}

// WriteMetrics writes the batch's metrics in CloudWatch's embedded metric format,
// one JSON object a line: one for the batch, and one for each reason of a decline.
func (r *Report) WriteMetrics(w io.Writer, tableName string, timing Timing) error {
	encoder := json.NewEncoder(w)
	err := encoder.Encode(embedded(timing.Now, map[string]string{"Table": tableName}, []metric{
		{"Records", "Count", float64(r.Records)},
		{"Rejected", "Count", float64(len(r.Rejected))},
		{"UsageWrites", "Count", float64(len(r.Usage))},
		{"Duplicates", "Count", float64(r.Duplicates)},
		{"PassesWritten", "Count", float64(len(r.Passes))},
		{"PassesLost", "Count", float64(r.PassesLost)},
		{"Doublings", "Count", float64(len(r.Doublings))},
		{"ShardsRaised", "Count", float64(len(r.Raised))},
		{"ShardsCreated", "Count", float64(len(r.Created))},
		{"ShardsDeclined", "Count", float64(len(r.Declined))},
		{"DivisionsIgnored", "Count", float64(len(r.InvalidDivisions))},
		{"Failures", "Count", float64(len(r.Failures))},
		{"IteratorAge", "Milliseconds", float64(timing.Age)},
		{"Duration", "Milliseconds", float64(timing.Duration.Microseconds()) / 1000},
	}))
	if err != nil {
		return err
	}
	byReason := map[sharding.Refusal]int{}
	for _, decline := range r.Declined {
		byReason[decline.Reason]++
	}
	for _, reason := range sharding.Refusals() {
		if byReason[reason] == 0 {
			continue
		}
		dimensions := map[string]string{"Table": tableName, "Reason": string(reason)}
		declined := []metric{{"ShardsDeclined", "Count", float64(byReason[reason])}}
		if err := encoder.Encode(embedded(timing.Now, dimensions, declined)); err != nil {
			return err
		}
	}
	return nil
}

type metric struct {
	name, unit string
	value      float64
}

// embedded builds one object of the embedded metric format, with a single set
// of dimensions.
func embedded(now int64, dimensions map[string]string, metrics []metric) map[string]any {
	type definition struct{ Name, Unit string }
	names := make([]string, 0, len(dimensions))
	object := map[string]any{}
	for _, name := range []string{"Table", "Reason"} {
		if value, ok := dimensions[name]; ok {
			names = append(names, name)
			object[name] = value
		}
	}
	definitions := make([]definition, 0, len(metrics))
	for _, m := range metrics {
		definitions = append(definitions, definition{m.name, m.unit})
		object[m.name] = m.value
	}
	object["_aws"] = map[string]any{
		"Timestamp": now,
		"CloudWatchMetrics": []any{map[string]any{
			"Namespace":  MetricNamespace,
			"Dimensions": [][]string{names},
			"Metrics":    definitions,
		}},
	}
	return object
}
