package terminal

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/shardquota/shardquota/cmd/shardquota/survey"
	"github.com/shardquota/shardquota/events"
)

// limit draws one limit: its terms, every shard's balance, and of a quota who
// covers what and whether that adds up.
func (p *picture) limit(s *survey.Survey, terms survey.Terms) {
	p.heading(clean(terms.Name))
	p.line("  %s", p.terms(terms))
	var rows [][]string
	quota := terms.Kind == "calendar" || terms.Kind == "session"
	for _, shard := range s.Shards {
		for _, limit := range shard.Limits {
			if limit.Name == terms.Name {
				rows = append(rows, p.balance(shard.Index, limit))
			}
		}
	}
	headers := []string{"shard", "balance", "", "of at most", "", ""}
	if quota {
		headers[4], headers[5] = "grant", map[string]string{"calendar": "period", "session": "window"}[terms.Kind]
	}
	p.table(headers, rows)
	for _, q := range s.Quotas {
		if q.Limit == terms.Name {
			p.quota(q)
		}
	}
}

func (p *picture) terms(t survey.Terms) string {
	var text string
	switch t.Kind {
	case "calendar":
		text = fmt.Sprintf("quota of %s, restored at %s", amount(t.Capacity), clean(t.Resets))
	case "session":
		text = fmt.Sprintf("quota of %s in a window of %s", amount(t.Capacity), ago(t.Length))
	default:
		text = fmt.Sprintf("%s, refilled by %s each %s", amount(t.Capacity), amount(t.Refill), ago(t.Period))
	}
	if t.Division != "" {
		text += ", " + clean(t.Division)
	}
	if t.Ignored {
		text += bad.Render(" (ignored: it is divided)")
	}
	if t.Schedule != "" {
		text += fmt.Sprintf("\n  schedule %s", clean(t.Schedule))
		if t.Base != t.Capacity {
			text += fmt.Sprintf(", in force instead of %s", amount(t.Base))
		}
	}
	if t.Next != nil {
		text += "\n  next change " + instant(*t.Next)
	}
	if t.Broken != "" {
		text += "\n  " + bad.Render(clean(t.Broken))
	}
	return text
}

func (p *picture) balance(index int, l survey.Limit) []string {
	row := []string{fmt.Sprint(index), bar(l.Balance, l.Ceiling, 16), amount(l.Balance), amount(l.Ceiling), "", p.period(l)}
	if l.Balance > l.Ceiling {
		row[2] = warn.Render(row[2])
	}
	if l.Quota {
		row[4] = fmt.Sprintf("1/%d", l.Grant)
		if l.Legacy {
			row[4] += " inferred"
		}
	}
	return row
}

// period says of a quota on a shard whether its grant still counts, and of any
// limit what is special about it.
func (p *picture) period(l survey.Limit) string {
	var words []string
	switch {
	case l.Window != nil:
		words = append(words, p.window(*l.Window))
	case l.Quota && l.Current:
		words = append(words, "current")
	case l.Quota:
		words = append(words, warn.Render("stale"))
	}
	if l.TopUp > 0 {
		words = append(words, amount(l.TopUp)+" topped up")
	}
	if l.Soft > 0 {
		words = append(words, "soft")
	}
	return strings.Join(words, ", ")
}

// window says how a session window stands on a shard, and from when to when it is.
func (p *picture) window(w survey.Window) string {
	switch w.State {
	case survey.Unopened:
		return "no window yet"
	case survey.Ended:
		return "ended " + p.clock(*w.End)
	case survey.Pending:
		return warn.Render("pending") + " " + p.clock(*w.Start) + "-" + p.clock(*w.End)
	default:
		return "applied " + p.clock(*w.Start) + "-" + p.clock(*w.End)
	}
}

// clock renders a time of day, with its date where that is not today's.
func (p *picture) clock(ms int64) string {
	if text := instant(ms); text[:10] != instant(p.now)[:10] {
		return text[5:16]
	}
	return instant(ms)[11:19]
}

func (p *picture) quota(q survey.Quota) {
	if q.Broken != "" {
		return // said with the terms
	}
	p.coverage(q)
	verdict := good.Render("conserved")
	if !q.Conserved {
		verdict = shouts.Render("NOT CONSERVED")
	}
	p.line("  ledger    granted %s + grantable %s of %s, held %s", amount(q.Granted), amount(q.Grantable), amount(q.Capacity), amount(q.Held))
	if q.TopUp > 0 {
		p.line("            %s topped up", amount(q.TopUp))
	}
	p.line("            %s", verdict)
}

// perLine is how many slots fit a line of 80 columns.
const perLine = 16

// coverage draws the slots, each over the shard whose grant it is in.
func (p *picture) coverage(q survey.Quota) {
	for chunk := range slices.Chunk(q.Slots, perLine) {
		var slots, shards strings.Builder
		for _, slot := range chunk {
			fmt.Fprintf(&slots, "%4d", slot.Slot)
			shards.WriteString(p.holder(slot))
		}
		p.line("  slot      %s", slots.String())
		p.line("  shard     %s", shards.String())
	}
	p.uncovered(q)
	p.wide(q)
}

func (p *picture) holder(slot survey.Slot) string {
	switch {
	case slot.Overlaps():
		return shouts.Render("  !!")
	case len(slot.Covers) == 0:
		return warn.Render("  --")
	default:
		return fmt.Sprintf("%4d", slot.Covers[0])
	}
}

func (p *picture) uncovered(q survey.Quota) {
	free := 0
	for _, slot := range q.Slots {
		if len(slot.Covers) == 0 {
			free++
		}
		if slot.Overlaps() {
			p.line("  %s slot %d was granted to shards %s", shouts.Render("OVERLAP"), slot.Slot, list(slot.Covers))
		}
	}
	if free > 0 {
		p.line("  %s", warn.Render(plural(free, "slot")+" (--) not granted to anybody this period"))
	}
}

// wide lists the grants that cover more than their own slot.
func (p *picture) wide(q survey.Quota) {
	for _, g := range q.Grants {
		switch {
		case !g.Current:
			p.line("  grant     shard %d at 1/%d is stale and covers nothing", g.Shard, g.Count)
		case len(g.Covers) > 1:
			p.line("  grant     shard %d at 1/%d covers %s, keeps %s", g.Shard, g.Count, list(g.Covers), list(g.Keeps))
		}
	}
}

// list renders numbers; many of them as how many they are.
func list(numbers []int) string {
	if len(numbers) == 0 {
		return "none"
	}
	if len(numbers) > 8 {
		return fmt.Sprintf("%d slots", len(numbers))
	}
	texts := make([]string, len(numbers))
	for i, n := range numbers {
		texts[i] = fmt.Sprint(n)
	}
	return strings.Join(texts, " ")
}

// recent is how many windows of each length are shown.
const recent = 3

func (p *picture) usage(s *survey.Survey) {
	p.heading("Usage, in tokens")
	var rows [][]string
	shown := map[string]int{}
	for _, u := range s.Usage {
		if shown[u.Window]++; shown[u.Window] <= recent {
			rows = append(rows, []string{clean(u.Window), clean(u.Start), clean(counters(u)), clean(u.Events) + " writes"})
		}
	}
	if len(rows) == 0 {
		p.line("  none was counted")
		return
	}
	slices.SortStableFunc(rows, func(a, b []string) int { return events.Window(a[0]).Compare(events.Window(b[0])) })
	p.table([]string{"window", "from", "consumed", ""}, rows)
}

func counters(u survey.Usage) string {
	var texts []string
	for _, limit := range slices.Sorted(maps.Keys(u.Counters)) {
		texts = append(texts, u.Counters[limit]+" "+limit)
	}
	return strings.Join(texts, ", ")
}
