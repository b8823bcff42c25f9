package replay

import (
	"errors"
	"strings"
	"testing"
	"unicode"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// What a name in a recording would have a terminal do is not done, and no name
// begins a line or a column of its own.
func TestNamesThatATerminalObeys(t *testing.T) {
	evil := func(name string) string { return name + "\x1b]0;owned\x07\n\r\t\u202e\u009b2J" }
	group := table.Group{Namespace: "ns1", Entity: evil("entity"), Resource: evil("resource")}
	r := newReport(false)
	r.Records, r.Batches = 1, 1
	r.Rejected = []aggregator.Rejection{{Sequence: evil("sequence"), Err: errors.New(evil("reason"))}}
	r.Usage[table.UsageKey{Group: group, Window: "hourly", Start: evil("start")}] = &UsageTotal{Counters: map[string]int64{evil("counter"): 1000}, Events: 1}
	r.Doublings = []aggregator.Doubling{{Group: group, From: 1, To: 2}}
	r.Created = []aggregator.Creation{{Key: group.At(1), Count: 2, Funding: []quota.Funding{{Limit: evil("funded"), Source: quota.Move}}}}
	r.Ledger = []LedgerRow{{group, quota.Row{Limit: evil("quota"), Conserved: true}}}
	r.Divisions = []DivisionRow{{group, quota.DivisionSummary{Limit: evil("divided"), Division: quota.ParseDivision(evil("braided"))}}}
	var text strings.Builder
	if err := r.WriteText(&text, func(g table.Group) string { return g.Entity }); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"entity", "resource", "sequence", "reason", "start", "counter", "funded", "quota", "divided", "braided"} {
		if !strings.Contains(text.String(), name+"\ufffd]0;owned\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd2J") {
			t.Errorf("%s is not there, or not clean:\n%q", name, text.String())
		}
	}
	if at := strings.IndexFunc(text.String(), func(c rune) bool { return c != '\n' && !unicode.IsPrint(c) }); at >= 0 {
		t.Errorf("it holds %q", text.String()[at:])
	}
	if lines := strings.Count(text.String(), "\n"); lines != 23 {
		t.Errorf("%d lines:\n%s", lines, text.String())
	}
}
