package page

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/shardquota/shardquota/cmd/shardquota/history"
	"github.com/shardquota/shardquota/cmd/shardquota/survey"
	"github.com/shardquota/shardquota/quota"
	tokens "github.com/shardquota/shardquota/table"
)

// ledger is the books of each quota.
func ledger(s *survey.Survey) []tableView {
	if len(s.Quotas) == 0 {
		return nil
	}
	t := tableView{
		Title: "Ledger of quotas, this period, in tokens",
		Head:  []string{"limit", "capacity", "granted", "grantable", "held", "topped up", ""},
	}
	for _, q := range s.Quotas {
		verdict := "conserved"
		switch {
		case q.Broken != "":
			verdict = q.Broken
		case !q.Conserved:
			verdict = "NOT CONSERVED"
		}
		t.Rows = append(t.Rows, []cell{
			text(q.Limit), amount(q.Capacity), amount(q.Granted), amount(q.Grantable), amount(q.Held), amount(q.TopUp),
			badIf(!q.Conserved, text(verdict)),
		})
	}
	return []tableView{t}
}

func faults(s *survey.Survey) []tableView {
	if len(s.Faults) == 0 {
		return nil
	}
	t := tableView{Title: "Cannot be read", Head: []string{"item", "cause"}}
	for _, fault := range s.Faults {
		t.Rows = append(t.Rows, []cell{badIf(true, text(fault.Item)), text(fault.Cause)})
	}
	return []tableView{t}
}

// stands is how everything stands at the end.
func stands(s *survey.Survey) []tableView {
	tables := []tableView{shardTable(s)}
	for _, q := range s.Quotas {
		if q.Broken == "" {
			tables = append(tables, coverage(q))
		}
	}
	if len(s.Usage) > 0 {
		tables = append(tables, usage(s))
	}
	return tables
}

func shardTable(s *survey.Survey) tableView {
	t := tableView{
		Title: "Shards at " + timeOf(s.Now) + " UTC, balances in tokens",
		Head:  []string{"shard", "count", "last pass", "fast path until", "write meter"},
	}
	for _, terms := range s.Limits {
		t.Head = append(t.Head, terms.Name)
	}
	t.Head = append(t.Head, "")
	for _, shard := range s.Shards {
		t.Rows = append(t.Rows, shardRow(s, shard))
	}
	return t
}

func shardRow(s *survey.Survey, shard survey.Shard) []cell {
	row := []cell{number(fmt.Sprint(shard.Index))}
	if shard.Presence != survey.There {
		for range 4 + len(s.Limits) {
			row = append(row, text(""))
		}
		return append(row, badIf(shard.Presence == survey.Undecodable, text(string(shard.Presence))))
	}
	row = append(row, number(fmt.Sprint(shard.Count)), text(timeOf(shard.Refilled)), text(valid(shard.Valid)), meter(shard.Meter))
	for _, terms := range s.Limits {
		row = append(row, standing(shard, terms.Name))
	}
	return append(row, badIf(shard.Broken != "", text(remarks(shard))))
}

func valid(until *int64) string {
	switch {
	case until == nil:
		return "any time"
	case *until == 0:
		return "closed"
	default:
		return timeOf(*until)
	}
}

func meter(m *survey.Meter) cell {
	if m == nil || m.Capacity <= 0 {
		return number("none")
	}
	return number(fmt.Sprintf("%d %%", 100*max(0, m.Level)/m.Capacity))
}

func standing(shard survey.Shard, name string) cell {
	for _, limit := range shard.Limits {
		if limit.Name != name {
			continue
		}
		words := tokens.Tokens(limit.Balance) + " of " + tokens.Tokens(limit.Ceiling)
		if limit.Quota {
			words += fmt.Sprintf(", grant 1/%d", limit.Grant)
		}
		if limit.Quota && !limit.Current {
			words += ", stale"
		}
		if limit.Window != nil {
			words += ", window " + string(limit.Window.State)
		}
		return text(words)
	}
	return number("–")
}

func remarks(shard survey.Shard) string {
	var words []string
	if shard.Disabled {
		words = append(words, "disabled")
	}
	if shard.Bypass > 0 {
		words = append(words, "bypassed")
	}
	if shard.Broken != "" {
		words = append(words, shard.Broken)
	}
	return strings.Join(words, ", ")
}

// coverage is who covers which slots of a quota.
func coverage(q survey.Quota) tableView {
	t := tableView{
		Title: "Coverage of " + q.Limit + ": who was granted which slots this period",
		Head:  []string{"shard", "grant", "covers slots", "keeps"},
	}
	for _, g := range q.Grants {
		covers := text("nothing: the grant is stale")
		if g.Current {
			covers = text(list(g.Covers))
		}
		overlap := slices.ContainsFunc(q.Slots, func(s survey.Slot) bool { return s.Overlaps() && slices.Contains(s.Covers, g.Shard) })
		keeps := text(list(g.Keeps))
		if overlap {
			keeps = badIf(true, text(list(g.Keeps)+" OVERLAP"))
		}
		t.Rows = append(t.Rows, []cell{number(fmt.Sprint(g.Shard)), number(fmt.Sprintf("1/%d", g.Count)), covers, keeps})
	}
	var free []int
	for _, slot := range q.Slots {
		if len(slot.Covers) == 0 {
			free = append(free, slot.Slot)
		}
	}
	if len(free) > 0 {
		t.More = "Granted to nobody this period: slots " + list(free) + "."
	}
	return t
}

func list(numbers []int) string {
	if len(numbers) == 0 {
		return "none"
	}
	texts := make([]string, len(numbers))
	for i, n := range numbers {
		texts[i] = fmt.Sprint(n)
	}
	return strings.Join(texts, " ")
}

func usage(s *survey.Survey) tableView {
	t := tableView{Title: "Usage by window, in tokens", Head: []string{"window", "from", "consumed", "writes"}}
	for _, u := range s.Usage {
		var counters []string
		for _, limit := range slices.Sorted(maps.Keys(u.Counters)) {
			counters = append(counters, u.Counters[limit]+" "+limit)
		}
		t.Rows = append(t.Rows, []cell{text(u.Window), text(u.Start), text(strings.Join(counters, ", ")), number(u.Events)})
	}
	return t
}

// eventRows is how many lines of events are listed.
const eventRows = 250

// happened lists the events. What happened alike to several shards at a time,
// as it does after a doubling, is on one line.
func happened(h *history.Group) tableView {
	t := tableView{Title: "What happened", Head: []string{"time", "what", "shards"}}
	events := slices.Clone(h.Events)
	slices.SortStableFunc(events, func(a, b history.Event) int { return cmp.Compare(a.Time, b.Time) })
	more := h.Dropped
	lines := map[string]int{}
	for _, e := range events {
		when, what, shard := instant(h.Grid, e.Time), said(e), fmt.Sprint(e.Shard)
		line, ok := lines[when+what]
		switch {
		case ok:
			t.Rows[line][2].Text += " " + shard
		case len(t.Rows) == eventRows:
			more++
		default:
			lines[when+what] = len(t.Rows)
			t.Rows = append(t.Rows, []cell{text(when), text(what), text(shard)})
		}
	}
	if more > 0 {
		t.More = fmt.Sprintf("And %d more events.", more)
	}
	return t
}

func said(e history.Event) string {
	switch e.Kind {
	case history.Doubled:
		return fmt.Sprintf("doubled from %s to %d", shards(e.From), e.To)
	case history.Raised:
		return fmt.Sprintf("told of %d shards", e.To)
	case history.Created:
		return fmt.Sprintf("created at %s%s", shards(e.To), funding(e.Funding))
	case history.Moved:
		return fmt.Sprintf("gave %s %s to a sibling", tokens.Tokens(e.Amount), e.Limit)
	case history.Reset:
		return fmt.Sprintf("%s restored to %s", e.Limit, tokens.Tokens(e.Amount))
	case history.Opened:
		return fmt.Sprintf("opened a window of %s with %s", e.Limit, tokens.Tokens(e.Amount))
	case history.Rolled:
		return fmt.Sprintf("rolled into the window of %s with %s", e.Limit, tokens.Tokens(e.Amount))
	case history.Trimmed:
		return fmt.Sprintf("%s trimmed by %s", e.Limit, tokens.Tokens(e.Amount))
	case history.Operator:
		return "operator: " + e.What
	default:
		return string(e.Kind)
	}
}

func funding(fundings []quota.Funding) string {
	var words []string
	for _, f := range fundings {
		switch amount := tokens.Tokens(f.Amount); f.Source {
		case quota.Move:
			words = append(words, fmt.Sprintf("%s %s moved off shard %d", amount, f.Limit, f.Donor))
		case quota.Mint:
			words = append(words, fmt.Sprintf("%s %s granted fresh", amount, f.Limit))
		default:
			words = append(words, fmt.Sprintf("%s %s", amount, f.Limit))
		}
	}
	if len(words) == 0 {
		return ""
	}
	return ": " + strings.Join(words, "; ")
}
