package page

import (
	"fmt"
	"html/template"
	"strings"
	"time"

	"github.com/shardquota/shardquota/cmd/shardquota/history"
	"github.com/shardquota/shardquota/cmd/shardquota/survey"
	"github.com/shardquota/shardquota/quota"
	tokens "github.com/shardquota/shardquota/table"
)

// view is the page as its markup has it.
type view struct {
	Page
	Palette, Sheet template.CSS
	Groups         []groupView
}

type groupView struct {
	ID, Name, Period string
	Verdicts         []Fact
	Limits           []limitView
	Tables           []tableView
}

type limitView struct {
	Name, Terms string
	Figures     []figure
}

// figure is a chart with what says the same in words and numbers.
type figure struct {
	ID, Title, Text string
	Chart           template.HTML
	Legend          []int
	Small           []small
	Data            *tableView
}

// small is the chart of one shard among those of all.
type small struct {
	Shard int
	Text  string
	Chart template.HTML
}

type tableView struct {
	ID, Title string
	Head      []string
	Rows      [][]cell
	More      string // what is left out
}

// Numbers reports whether a column is of numbers.
func (t tableView) Numbers(column int) bool { return len(t.Rows) > 0 && t.Rows[0][column].Number }

type cell struct {
	Text        string
	Number, Bad bool
}

func text(s string) cell          { return cell{Text: s} }
func number(s string) cell        { return cell{Text: s, Number: true} }
func amount(milli int64) cell     { return number(tokens.Tokens(milli)) }
func badIf(bad bool, c cell) cell { c.Bad = bad; return c }

func viewOf(p Page) (*view, error) {
	v := &view{Page: p, Palette: template.CSS(palette()), Sheet: template.CSS(sheet)}
	for i, group := range p.Groups {
		g, err := groupOf(fmt.Sprintf("g%d", i+1), group)
		if err != nil {
			return nil, err
		}
		v.Groups = append(v.Groups, g)
	}
	for i, t := range v.tables() {
		t.ID = fmt.Sprintf("t%d", i+1)
	}
	return v, nil
}

// tables are all tables of the page.
func (v *view) tables() []*tableView {
	var tables []*tableView
	for g := range v.Groups {
		for _, limit := range v.Groups[g].Limits {
			for _, f := range limit.Figures {
				if f.Data != nil {
					tables = append(tables, f.Data)
				}
			}
		}
		for t := range v.Groups[g].Tables {
			tables = append(tables, &v.Groups[g].Tables[t])
		}
	}
	return tables
}

func groupOf(id string, group Group) (groupView, error) {
	g := groupView{ID: id, Name: group.Name}
	if h := group.History; h != nil {
		g.Period = fmt.Sprintf("%s to %s UTC, %d writes, %d passes", timeOf(h.Grid.Start), instant(h.Grid, h.Grid.At(max(0, h.Grid.Slots-1))), h.Writes, sum(h.Passes))
	}
	for _, name := range limitNames(group) {
		limit, err := limitOf(fmt.Sprintf("%s-l%d", id, len(g.Limits)+1), name, group)
		if err != nil {
			return g, err
		}
		g.Limits = append(g.Limits, limit)
	}
	if s := group.Survey; s != nil {
		g.Verdicts = verdicts(s)
		g.Tables = append(g.Tables, ledger(s)...)
		g.Tables = append(g.Tables, faults(s)...)
	}
	if group.History != nil && len(group.History.Events) > 0 {
		g.Tables = append(g.Tables, happened(group.History))
	}
	if s := group.Survey; s != nil {
		g.Tables = append(g.Tables, stands(s)...)
	}
	return g, nil
}

// instant renders a time of a history: the time of day, where that says it all,
// and as finely as its slots are.
func instant(g history.Grid, ms int64) string {
	layout := "2006-01-02 15:04:05"
	if timeOf(g.Start)[:10] == timeOf(g.End() - 1)[:10] {
		layout = "15:04:05"
	}
	if g.Step < 1000 {
		layout += ".00"
	}
	return time.UnixMilli(ms).UTC().Format(layout)
}

func verdicts(s *survey.Survey) []Fact {
	var facts []Fact
	for _, q := range s.Quotas {
		fact := Fact{Value: q.Limit + " conserved"}
		if !q.Conserved {
			fact = Fact{Value: q.Limit + " NOT CONSERVED", Bad: true}
		}
		facts = append(facts, fact)
	}
	if len(s.Faults) > 0 {
		facts = append(facts, Fact{Value: fmt.Sprintf("%d unreadable", len(s.Faults)), Bad: true})
	}
	return facts
}

// limitNames are the limits of a group, quotas before what drips and the write
// meter last.
func limitNames(group Group) []string {
	var quotas, others, meter []string
	if group.History == nil {
		return nil
	}
	for _, limit := range group.History.Limits {
		switch limit.Kind {
		case quota.Calendar, quota.Session:
			quotas = append(quotas, limit.Name)
		case quota.Meter:
			meter = append(meter, limit.Name)
		default:
			others = append(others, limit.Name)
		}
	}
	return append(append(quotas, others...), meter...)
}

// drawing makes one figure of a limit.
type drawing func(id string, g *history.Group, limit *history.Limit) (figure, error)

func limitOf(id, name string, group Group) (limitView, error) {
	limit := group.History.Limit(name)
	v := limitView{Name: name, Terms: termsOf(name, group)}
	draws := []drawing{held, eachShard, consumption}
	if limit.Kind == quota.Meter {
		v.Name = "Write meter (" + name + ")"
		draws = []drawing{eachShard}
	} else if len(limit.Shards) < 2 {
		draws = []drawing{held, consumption}
	}
	if sum(limit.Consumed) == 0 && limit.Kind != quota.Meter {
		draws = draws[:len(draws)-1] // a chart of nothing
	}
	for i, draw := range draws {
		f, err := draw(fmt.Sprintf("%s-f%d", id, i+1), group.History, limit)
		if err != nil {
			return v, err
		}
		v.Figures = append(v.Figures, f)
	}
	return v, nil
}

func termsOf(name string, group Group) string {
	if name == quota.WriteMeter {
		return "What the item itself can be written, dripped to the time of each write. Under 20 % shard 0 doubles."
	}
	if group.Survey == nil {
		return ""
	}
	for _, t := range group.Survey.Limits {
		if t.Name == name {
			return describe(t)
		}
	}
	return ""
}

func describe(t survey.Terms) string {
	var words []string
	switch t.Kind {
	case "calendar":
		words = append(words, fmt.Sprintf("A quota of %s, restored at %s", tokens.Tokens(t.Capacity), t.Resets))
	case "session":
		words = append(words, fmt.Sprintf("A quota of %s in a window of %s s", tokens.Tokens(t.Capacity), tokens.Tokens(t.Length)))
	default:
		words = append(words, fmt.Sprintf("%s, refilled by %s each %s s", tokens.Tokens(t.Capacity), tokens.Tokens(t.Refill), tokens.Tokens(t.Period)))
	}
	switch {
	case t.Ignored:
		words = append(words, t.Division+", ignored: it is divided")
	case t.Division != "":
		words = append(words, t.Division)
	}
	if t.Schedule != "" {
		words = append(words, "schedule "+t.Schedule)
	}
	if t.Next != nil {
		words = append(words, "next change "+timeOf(*t.Next)+" UTC")
	}
	if t.Broken != "" {
		words = append(words, t.Broken)
	}
	return strings.Join(words, "; ") + "."
}

func sum(values []int64) (total int64) {
	for _, value := range values {
		total += value
	}
	return total
}
