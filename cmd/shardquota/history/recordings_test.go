package history_test

import (
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/shardquota/shardquota/aggregator/replay"
	"github.com/shardquota/shardquota/cmd/shardquota/history"
	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/internal/fixture"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table/memory"
)

// watched replays a recording in memory and returns what the builder made of
// it, with the report.
func watched(t *testing.T, recording string, builder *history.Builder) *replay.Report {
	t.Helper()
	file, err := os.Open("../../../testdata/" + recording + ".jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	plain, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	run := replay.InMemory(memory.New())
	run.Aggregator.Windows = []events.Window{events.Hourly}
	run.Observe = builder.Observe
	report, err := run.Run(context.Background(), events.NewReader(plain, recording))
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// A quota of 40,000 goes from 1 shard to 8: what the history says of doublings,
// creations and moves is what the aggregator did and what the recording is
// known to hold, and at its end the shards hold what was not consumed.
func TestQuotaWalk(t *testing.T) {
	var builder history.Builder
	report := watched(t, "quota-walk", &builder)
	groups := builder.Histories()
	if len(groups) != 1 {
		t.Fatalf("%d groups, want 1", len(groups))
	}
	g := groups[0]
	fixture.Eq(t, "grid", g.Grid, history.Grid{Start: 1796036291000, Step: 1000, Slots: 55})
	fixture.Eq(t, "doublings", [2]int{g.Count(history.Doubled), g.Count(history.Created)}, [2]int{3, 8})
	calls := g.Limit("calls")
	last := g.Grid.Slots - 1
	var held, used int64
	var ceilings []int64 // of what each was granted, before later shards took theirs off it
	for _, shard := range calls.Shards {
		held += shard.Balance[last]
		ceilings = append(ceilings, shard.Ceiling[last]/1_000_000)
	}
	fixture.Eq(t, "ceilings", ceilings, []int64{40, 20, 10, 10, 5, 5, 5, 5})
	for _, n := range calls.Consumed {
		used += n
	}
	fixture.Eq(t, "held and consumed", [2]int64{held, used}, [2]int64{35_113_000, 4_887_000})
	fixture.Eq(t, "held as the ledger has it", held, report.Ledger[0].Held)
	fixture.Eq(t, "shard 7 before it was", calls.Shards[7].Balance[0], int64(history.None))
	asFunded(t, g, report)
}

// asFunded checks that where a new shard's balance came from is told by the same
// rule that the aggregator funded it by.
func asFunded(t *testing.T, g *history.Group, report *replay.Report) {
	t.Helper()
	told := map[int]string{}
	for _, event := range g.Events {
		if event.Kind == history.Created {
			told[event.Shard] = brief(event.Funding)
		}
	}
	if len(report.Created) != 7 {
		t.Fatalf("the aggregator created %d shards, want 7", len(report.Created))
	}
	for _, created := range report.Created {
		fixture.Eq(t, fmt.Sprintf("shard %d", created.Key.Shard), told[created.Key.Shard], brief(created.Funding))
	}
	fixture.Eq(t, "shard 0", told[0], "calls mint 40000000 off 0, wcu share 1000000 off 0, ")
}

func brief(fundings []quota.Funding) (text string) {
	for _, f := range fundings {
		text += fmt.Sprintf("%s %s %d off %d, ", f.Limit, f.Source, f.Amount, f.Donor)
	}
	return text
}

// A window that one shard opens is taken over by the other.
func TestSessionWindows(t *testing.T) {
	var builder history.Builder
	watched(t, "session", &builder)
	var told []string
	for _, e := range builder.Histories()[0].Events {
		if e.Kind == history.Opened || e.Kind == history.Rolled {
			told = append(told, fmt.Sprintf("%s %d", e.Kind, e.Shard))
		}
	}
	fixture.Eq(t, "windows", told, []string{"opened 0", "rolled 1", "opened 1", "rolled 0"})
}

// What an operator changes is named with both values, what is topped up with
// the amount, on each shard that it reaches.
func TestOperatorChanges(t *testing.T) {
	for recording, want := range map[string][]string{
		"limit-change": {
			"calls capacity 20000 to 30000, rpm capacity 60000 to 120000, rpm refill 60000 each 60 s to 120000 each 60 s",
			"calls capacity 30000 to 8000, rpm capacity 120000 to 6000, rpm refill 120000 each 60 s to 6000 each 60 s",
			"calls capacity 8000 to 9000, rpm capacity 6000 to 50000, rpm refill 6000 each 60 s to 50000 each 60 s, tpm removed",
			"tpm added",
		},
		"operator": operatorsDoing,
	} {
		var builder history.Builder
		watched(t, recording, &builder)
		var told []string
		for _, g := range builder.Histories() {
			for _, e := range g.Events {
				if e.Kind == history.Operator {
					told = append(told, e.What)
				}
			}
		}
		slices.Sort(told)
		fixture.Eq(t, recording, strings.Join(slices.Compact(told), "\n"), strings.Join(want, "\n"))
	}
}

var operatorsDoing = []string{
	"bypass off", "bypass on", "calls restored", "calls topped up by 167", "calls topped up by 334",
	"disabled", "enabled", "sess topped up by 33", "sess topped up by 67",
}
