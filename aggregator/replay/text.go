package replay

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// WriteText writes the report for people: what was consumed, what was written and
// why, a line for each doubling, raise, creation and decline, and last the ledger.
func (r *Report) WriteText(w io.Writer, name Naming) error {
	t := &text{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0), name}
	t.line("%s in %s", records(r.Records), count(r.Batches, "batch", "batches"))
	t.rejected(r)
	t.usage(r)
	t.writes(r)
	t.shards(r)
	t.ledger(r)
	t.divisions(r)
	return t.out.Flush()
}

// text renders into columns. A failed write surfaces at the Flush.
type text struct {
	out  *tabwriter.Writer
	name Naming
}

// line writes a line. All its text but the format may come from a recording: it
// can neither break the columns nor control a terminal.
func (t *text) line(format string, args ...any) {
	for i, arg := range args {
		switch arg.(type) {
		case string, error, fmt.Stringer:
			args[i] = table.Printable(fmt.Sprint(arg))
		}
	}
	fmt.Fprintf(t.out, format+"\n", args...)
}

func records(n int) string { return count(n, "record", "records") }

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func (t *text) heading(title string) { t.line("\n%s", title) }

func (t *text) bucket(group table.Group) string { return t.name(group) + " " + group.Resource }

func (t *text) rejected(r *Report) {
	if len(r.Rejected) == 0 {
		return
	}
	t.heading("Rejected")
	for _, x := range r.Rejected {
		t.line("  %v\tsequence %s\t%v", x.Position, x.Sequence, x.Err)
	}
}

func (t *text) usage(r *Report) {
	t.heading("Consumed")
	if len(r.Usage) == 0 {
		t.line("  nothing")
	}
	for _, key := range r.usageKeys() {
		total := r.Usage[key]
		var counters []string
		for _, limit := range slices.Sorted(maps.Keys(total.Counters)) {
			counters = append(counters, table.Tokens(total.Counters[limit])+" "+limit)
		}
		t.line("  %s\t%s %s\t%s\tin %s", t.bucket(key.Group), key.Window, key.Start, strings.Join(counters, ", "), count(int(total.Events), "write", "writes"))
	}
	if r.Duplicates > 0 {
		t.line("  %s counted before, not again", records(r.Duplicates))
	}
}

// passReasons says what a pass of each reason is written for.
var passReasons = []struct {
	reason quota.Reason
	text   string
}{
	{quota.Short, "because a limit held less than was just asked of it"},
	{quota.Over, "because a balance was over its ceiling"},
	{quota.Reset, "because a calendar edge had passed"},
	{quota.Rolled, "because a session window had opened"},
}

// heading is the title of what was written, or would have been.
func (r *Report) heading() string {
	if r.Dry {
		return "Would be written"
	}
	return "Written"
}

func (t *text) writes(r *Report) {
	t.heading(r.heading())
	t.line("  %s", count(len(r.Usage), "usage item", "usage items"))
	t.line("  %s, %d lost to another writer", count(r.Written, "pass", "passes"), r.Lost)
	for _, x := range passReasons {
		if r.Passes[x.reason] > 0 {
			t.line("    %d %s", r.Passes[x.reason], x.text)
		}
	}
}

func (t *text) shards(r *Report) {
	if len(r.Doublings)+len(r.Raised)+len(r.Created)+len(r.Declined) == 0 {
		return
	}
	t.heading("Shards")
	for _, x := range r.Doublings {
		t.line("  %s\tdoubled\t%d to %d", t.bucket(x.Group), x.From, x.To)
	}
	for _, x := range r.Raised {
		t.line("  %s\tshard %d raised\tto %d shards", t.bucket(x.Key.Group), x.Key.Shard, x.To)
	}
	for _, x := range r.Created {
		var funding []string
		for _, f := range x.Funding {
			funding = append(funding, fund(f))
		}
		t.line("  %s\tshard %d created\tat %d shards: %s", t.bucket(x.Key.Group), x.Key.Shard, x.Count, strings.Join(funding, "; "))
	}
	for _, x := range r.Declined {
		t.line("  %s\tshard %d declined\t%s", t.bucket(x.Key.Group), x.Key.Shard, x.Reason)
	}
}

func fund(f quota.Funding) string {
	switch f.Source {
	case quota.Move:
		return fmt.Sprintf("%s %s moved off shard %d", table.Tokens(f.Amount), f.Limit, f.Donor)
	case quota.Mint:
		return fmt.Sprintf("%s %s granted fresh", table.Tokens(f.Amount), f.Limit)
	default:
		return fmt.Sprintf("%s %s", table.Tokens(f.Amount), f.Limit)
	}
}

func (t *text) ledger(r *Report) {
	if len(r.Ledger) == 0 {
		return
	}
	t.heading("Ledger of quotas, this period, in tokens")
	t.line("  \tlimit\tcapacity\tgranted\tgrantable\theld")
	for _, x := range r.Ledger {
		verdict := "conserved"
		if x.TopUp > 0 {
			verdict += ", " + table.Tokens(x.TopUp) + " topped up"
		}
		if !x.Conserved {
			verdict = "NOT CONSERVED"
		}
		t.line("  %s\t%s\t%s\t%s\t%s\t%s\t%s", t.bucket(x.Group), x.Limit, table.Tokens(x.Capacity),
			table.Tokens(x.Granted), table.Tokens(x.Grantable), table.Tokens(x.Held), verdict)
	}
}

// divisions lists the limits with a division of their own.
func (t *text) divisions(r *Report) {
	if len(r.Divisions) == 0 {
		return
	}
	t.heading("Divisions, in tokens")
	t.line("  \tlimit\tdivision\tcapacity\tshards\tmost of one use\theld")
	for _, x := range r.Divisions {
		division := x.Division.String()
		if x.Ignored {
			division += ", IGNORED: it is divided"
		}
		t.line("  %s\t%s\t%s\t%s\t%d\t%s\t%s", t.bucket(x.Group), x.Limit, division, table.Tokens(x.Capacity),
			x.Shards, table.Tokens(x.Most), table.Tokens(x.Held))
	}
}
