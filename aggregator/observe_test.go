package aggregator_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/sharding"
	"github.com/shardquota/shardquota/table"
)

// embedded is an object of CloudWatch's embedded metric format.
type embedded struct {
	AWS struct {
		Timestamp         int64
		CloudWatchMetrics []struct {
			Namespace  string
			Dimensions [][]string
			Metrics    []struct{ Name, Unit string }
		}
	} `json:"_aws"`
}

// metrics reads what was written back, the way CloudWatch does: name, value,
// unit and dimensions of each metric.
func metrics(t *testing.T, text string, timestamp int64) []string {
	t.Helper()
	var found []string
	for line := range strings.Lines(text) {
		var e embedded
		members := map[string]any{}
		if err := errors.Join(json.Unmarshal([]byte(line), &e), json.Unmarshal([]byte(line), &members)); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if e.AWS.Timestamp != timestamp || len(e.AWS.CloudWatchMetrics) != 1 {
			t.Fatalf("at %d: %s", e.AWS.Timestamp, line)
		}
		directive := e.AWS.CloudWatchMetrics[0]
		if directive.Namespace != "shardquota" || len(directive.Dimensions) != 1 {
			t.Fatalf("directive: %s", line)
		}
		var dimensions []string
		for _, name := range directive.Dimensions[0] {
			value, ok := members[name].(string)
			if !ok || value == "" {
				t.Fatalf("dimension %s is no text: %s", name, line)
			}
			dimensions = append(dimensions, name+"="+value)
		}
		for _, m := range directive.Metrics {
			value, ok := members[m.Name].(float64)
			if !ok {
				t.Fatalf("metric %s is no number: %s", m.Name, line)
			}
			found = append(found, fmt.Sprintf("%s %v %s %v", m.Name, value, m.Unit, dimensions))
		}
	}
	return found
}

// busy is the report of a batch in which everything happened.
func busy(t *testing.T) *aggregator.Report {
	t.Helper()
	zero := quotaZero(4)
	w := newWorld(t, zero, bucketItem(acme.At(1), count(2), daily("tpd", 5, 1000_000, 2)), bucketItem(acme.At(3), count(4), daily("tpd", 5, 1000_000, 4)))
	other := table.Group{Namespace: "ns1", Entity: "sk-live-other", Resource: "r"}
	hot := bucketItem(other.At(0), drips("rpm", 500, 60_000), attrs{"b_wcu_tk": 1000, "b_rpm_div": "by halves"})
	a, item := w.spend(noon+1000, hot, "rpm", 500)
	b, item := w.spend(noon-1000, item, "wcu", 1000)
	w.put(item)
	gone := table.Group{Namespace: "ns1", Entity: "sk-live-gone", Resource: "r"}
	c := w.doubles(noon, bucketItem(gone.At(0)), 1, 2)
	c.Change.New.Key, c.Change.Old.Key = gone.At(0), gone.At(0)
	report := w.process(noon+1000, a, b, aggregator.Delivery{Err: errors.New("no record")}, w.doubles(noon, zero, 2, 4), c)
	report.Failures = append(report.Failures, aggregator.Failure{Index: 3, Step: aggregator.StepPass, Err: table.ErrRetry})
	return report
}

func TestMetrics(t *testing.T) {
	var out bytes.Buffer
	timing := aggregator.Timing{Now: noon, Age: 1234, Duration: 56789 * time.Microsecond}
	if err := busy(t).WriteMetrics(&out, "limits", timing); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"Records 5 Count [Table=limits]",
		"Rejected 1 Count [Table=limits]",
		"UsageWrites 1 Count [Table=limits]",
		"Duplicates 0 Count [Table=limits]",
		"PassesWritten 1 Count [Table=limits]",
		"PassesLost 0 Count [Table=limits]",
		"Doublings 1 Count [Table=limits]",
		"ShardsRaised 1 Count [Table=limits]",
		"ShardsCreated 1 Count [Table=limits]",
		"ShardsDeclined 2 Count [Table=limits]",
		"DivisionsIgnored 1 Count [Table=limits]",
		"Failures 1 Count [Table=limits]",
		"IteratorAge 1234 Milliseconds [Table=limits]",
		"Duration 56.789 Milliseconds [Table=limits]",
		"ShardsDeclined 1 Count [Table=limits Reason=shard 0 is gone or unreadable]",
		"ShardsDeclined 1 Count [Table=limits Reason=already there]",
	}
	got := metrics(t, out.String(), noon)
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// Every reason there is has a metric of its own, or a decline would go unseen.
func TestMetricsOfEveryReason(t *testing.T) {
	reasons := []sharding.Refusal{
		sharding.NoShardZero, sharding.Unreadable, sharding.BadCount, sharding.Overtaken, sharding.CountChanged,
		sharding.BadSchedule, sharding.GroupDisabled, sharding.NoWindow, sharding.DonorLost, sharding.ShardExists,
	}
	report := &aggregator.Report{}
	for i, reason := range reasons {
		for range i + 1 {
			report.Declined = append(report.Declined, aggregator.Decline{Key: acme.At(i), Reason: reason})
		}
	}
	var out bytes.Buffer
	if err := report.WriteMetrics(&out, "limits", aggregator.Timing{Now: noon}); err != nil {
		t.Fatal(err)
	}
	got := metrics(t, out.String(), noon)
	for i, reason := range reasons {
		if want := fmt.Sprintf("ShardsDeclined %d Count [Table=limits Reason=%s]", i+1, reason); !slices.Contains(got, want) {
			t.Errorf("no %q", want)
		}
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("full") }

func TestMetricsNotWritten(t *testing.T) {
	if err := (&aggregator.Report{}).WriteMetrics(brokenWriter{}, "limits", aggregator.Timing{}); err == nil {
		t.Error("no error")
	}
}

func TestLog(t *testing.T) {
	var out bytes.Buffer
	names := aggregator.NewPseudonyms("key")
	busy(t).Log(t.Context(), slog.New(slog.NewJSONHandler(&out, nil)), names)
	text := out.String()
	if strings.Contains(text, "sk-live") {
		t.Errorf("an entity id is in the log:\n%s", text)
	}
	var got []string
	for line := range strings.Lines(text) {
		var entry map[string]any
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatal(err)
		}
		delete(entry, "time")
		entry["bucket"] = fmt.Sprint(entry["bucket"])
		got = append(got, fmt.Sprint(entry))
	}
	bucket := func(entity, resource string) string {
		group := table.Group{Namespace: "ns1", Entity: entity, Resource: resource}
		return fmt.Sprintf("map[bucket:map[entity:%s resource:%s] ", names.Of(group), resource)
	}
	want := []string{
		"map[bucket:<nil> index:2 level:WARN msg:record rejected reason:no record sequence:]",
		"map[bucket:<nil> index:3 level:ERROR msg:to be delivered again reason:may pass if retried step:pass]",
		bucket("sk-live-other", "r") + "level:WARN limit:rpm msg:division ignored shard:0]",
		bucket("sk-live-other", "r") + "from:1 level:INFO msg:doubled to:2]",
		bucket("sk-live-acme", "gpt-4") + "count:4 level:INFO msg:shard created shard:2]",
		bucket("sk-live-acme", "gpt-4") + "level:INFO msg:shard declined reason:already there shard:3]",
		bucket("sk-live-gone", "r") + "level:INFO msg:shard declined reason:shard 0 is gone or unreadable shard:1]",
	}
	if a, b := strings.Join(got, "\n"), strings.Join(want, "\n"); a != b {
		t.Errorf("got\n%s\nwant\n%s", a, b)
	}
}

func TestPseudonyms(t *testing.T) {
	a, same, other := aggregator.NewPseudonyms("a"), aggregator.NewPseudonyms("a"), aggregator.NewPseudonyms("b")
	name := a.Of(acme)
	if !regexp.MustCompile(`^[0-9a-f]{16}$`).MatchString(name) {
		t.Errorf("pseudonym %q", name)
	}
	eq(t, "under the same key", same.Of(acme), name)
	eq(t, "of another resource", a.Of(table.Group{Namespace: acme.Namespace, Entity: acme.Entity, Resource: "x"}), name)
	for what, got := range map[string]string{
		"another key":       other.Of(acme),
		"another entity":    a.Of(table.Group{Namespace: acme.Namespace, Entity: "x", Resource: acme.Resource}),
		"another namespace": a.Of(table.Group{Namespace: "x", Entity: acme.Entity, Resource: acme.Resource}),
		"no key":            aggregator.NewPseudonyms("").Of(acme),
	} {
		if got == name {
			t.Errorf("%s: the same pseudonym", what)
		}
	}
	random := aggregator.NewPseudonyms("")
	eq(t, "in one process", random.Of(acme), random.Of(acme))
	if random.Of(acme) == aggregator.NewPseudonyms("").Of(acme) {
		t.Error("random keys are equal")
	}
}
