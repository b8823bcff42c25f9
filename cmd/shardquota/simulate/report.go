package simulate

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Report is everything that a simulation shows.
type Report struct {
	Seed     uint64    `json:"seed"`
	Verdicts []Verdict `json:"verdicts"` // of options that have met all workloads
	Results  []Result  `json:"results"`
}

// NewReport sums results up.
func NewReport(seed uint64, results []Result) *Report {
	for i := range results {
		r := &results[i]
		r.Costs = nil
		for class, cost := range r.Classes {
			if cost.N > 0 {
				r.Costs = append(r.Costs, ClassCost{Class(class).String(), cost})
			}
		}
	}
	return &Report{seed, Verdicts(results), results}
}

// WriteJSON writes all figures.
func (r *Report) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}

// WriteText writes the tables for a terminal, and below them what their columns
// mean.
func (r *Report) WriteText(w io.Writer) error {
	if err := r.write(w, starred); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n"+legend())
	return err
}

// starred is a sheet in columns, with the options marked that are offered.
func starred(s *sheet) string {
	marked := *s
	marked.rows = slices.Clone(s.rows)
	for i, row := range marked.rows {
		if slices.ContainsFunc(Options(), func(o Option) bool { return o.Offered && o.Name == row[0] }) {
			marked.rows[i] = append([]string{row[0] + " *"}, row[1:]...)
		}
	}
	return aligned(&marked)
}

// terms are what the columns of workloads mean.
var terms = [][2]string{
	{"*", "is offered: a limit can be declared so, as its division. The others are what it was chosen from."},
	{"tokens", "that were admitted"},
	{"of one bucket", "of the tokens that one bucket admits which drips at every instant. A bucket in the table, \"undivided\" too, drips when it falls short: " +
		"what it held since is spent, and then all that has dripped meanwhile is there, up to its capacity. After a pause that is more than 100 %, " +
		"and never above two capacities and the refill."},
	{"refused", "uses that were not admitted"},
	{"needlessly", "of those refused: one bucket that had admitted the same until then had enough"},
	{"for ever", "of those refused: larger than all that a shard can hold, so that waiting does not help"},
	{"held", "the most that all shards held at once, of the capacity"},
	{"over", "the most that was admitted at any time beyond one bucket, tokens"},
	{"requests", "for a use in the mean, with all that is done for it; so are writes and reads, in units of DynamoDB"},
	{"rate", "admitted in the last seconds, of the refill, less what was held before"},
	{"busiest", "writes of the item that was written most often in that time, of those that it takes"},
	{"oversized", "uses of more than a 32nd of the capacity that were admitted"},
}

func legend() string {
	var b strings.Builder
	b.WriteString("What the columns are\n")
	for _, term := range terms {
		says := strings.ReplaceAll(wrapped(term[1], 100), "\n", "\n"+strings.Repeat(" ", 17))
		fmt.Fprintf(&b, "  %-13s  %s\n", term[0], says)
	}
	return b.String()
}

// WriteMarkdown writes the tables as docs/adr/0016 has them.
func (r *Report) WriteMarkdown(w io.Writer) error { return r.write(w, markdown) }

func (r *Report) write(w io.Writer, form func(*sheet) string) error {
	var parts []string
	for _, s := range r.sheets() {
		parts = append(parts, form(s))
	}
	_, err := io.WriteString(w, strings.Join(parts, "\n"))
	return err
}

// sheet is one table: a row for each option, its name first.
type sheet struct {
	title, says string
	rows        [][]string // the first is the head
}

func (r *Report) sheets() []*sheet {
	var sheets []*sheet
	if len(r.Verdicts) > 0 {
		sheets = append(sheets, r.verdicts())
	}
	for _, workload := range Workloads() {
		if s := r.workload(&workload); s != nil {
			sheets = append(sheets, s)
		}
	}
	return append(sheets, r.prices())
}

func (r *Report) verdicts() *sheet {
	s := &sheet{
		title: "All workloads",
		says: "Held at most, of the capacity: at rest, and while shards double. Rate: of the refill, while more is asked for, less what was held before. Over: tokens " +
			"admitted beyond one bucket, the worst workload. Oversized: admitted of those asked for. Burst, last tenth: tokens admitted, of what one " +
			"bucket admits. Units: for a use of the hot workload, all that is done for it included. no: it does not keep that.",
		rows: [][]string{{"option", "at rest", "doubling", "rate", "over", "oversized", "burst", "last tenth", "writes", "reads"}},
	}
	for _, v := range r.Verdicts {
		tenth := "-"
		if v.Tenth > 0 {
			tenth = percent(v.Tenth)
		}
		s.rows = append(s.rows, []string{
			v.Option, judged(fixed(v.Resting, 2), v.KeepsCeiling), fixed(v.Growing, 2), judged(fixed(v.Rate, 2), v.KeepsRate),
			judged(strconv.FormatInt(v.Over, 10), v.KeepsTotal), judged(percent(v.Large), v.AdmitsLarge), percent(v.Burst), tenth,
			fixed(v.Writes, 2), fixed(v.Reads, 2),
		})
	}
	return s
}

// workload is what the options made of one workload, nil where none met it.
func (r *Report) workload(w *Workload) *sheet {
	s := &sheet{
		title: strings.ToUpper(w.Name[:1]) + w.Name[1:], says: w.Says + ".",
		rows: [][]string{{"option", "tokens", "of one bucket", "refused", "needlessly", "for ever", "held", "over", "requests", "writes", "reads"}},
	}
	for i := range r.Results {
		result := &r.Results[i]
		if result.Workload != w.Name {
			continue
		}
		sum, uses := result.Sum(), float64(result.Asked)
		row := []string{
			result.Option, strconv.FormatInt(result.Tokens, 10), percent(result.OfIdeal()), strconv.Itoa(result.Wait + result.Never),
			strconv.Itoa(result.Needless), strconv.Itoa(result.Never), fixed(result.Held, 2), strconv.FormatInt(result.Over, 10),
			fixed(float64(sum.Requests)/uses, 2), fixed(sum.Write/uses, 2), fixed(sum.Read/uses, 2),
		}
		if w.Meter > 0 {
			row = append(row, fixed(result.Rate, 2), fixed(result.Busiest, 1))
		}
		if result.LargeAsked > 0 {
			row = append(row, fmt.Sprintf("%d of %d", result.LargeAdmitted, result.LargeAsked))
		}
		s.rows = append(s.rows, row)
	}
	if len(s.rows) == 1 {
		return nil
	}
	if w.Meter > 0 {
		s.rows[0] = append(s.rows[0], "rate", "busiest")
	} else if len(s.rows[1]) > len(s.rows[0]) {
		s.rows[0] = append(s.rows[0], "oversized")
	}
	return s
}

// prices are what a use of each class costs, over all workloads.
func (r *Report) prices() *sheet {
	s := &sheet{
		title: "What a use costs",
		says: "Requests one after another, write units of the table, what refused requests are charged included, and read units; means over all " +
			"workloads. GSI2 with every attribute adds a write unit for each write that is made, a transaction's too. What the aggregator and the " +
			"evening out cost is in the tables above.",
		rows: [][]string{{"option"}},
	}
	for class := range classes {
		s.rows[0] = append(s.rows[0], class.String())
	}
	for _, option := range Options() {
		var costs [classes]Cost
		for _, result := range r.Results {
			if result.Option == option.Name {
				for class := range costs {
					costs[class].sum(result.Classes[class])
				}
			}
		}
		row := []string{option.Name}
		for _, c := range costs {
			row = append(row, c.mean())
		}
		if slices.ContainsFunc(costs[:], func(c Cost) bool { return c.N > 0 }) {
			s.rows = append(s.rows, row)
		}
	}
	return s
}

// mean is what one of them cost: round trips, write units, read units.
func (c Cost) mean() string {
	if c.N == 0 {
		return "-"
	}
	n := float64(c.N)
	return fmt.Sprintf("%s, %s w, %s r", short(float64(c.Trips)/n), short(c.Write/n), short(c.Read/n))
}

func short(x float64) string { return strings.TrimSuffix(fixed(x, 1), ".0") }

func fixed(x float64, digits int) string { return strconv.FormatFloat(x, 'f', digits, 64) }

func percent(x float64) string { return fixed(100*x, 1) + " %" }

// judged is a figure, and a no where it is not what the limit says.
func judged(figure string, keeps bool) string {
	if keeps {
		return figure
	}
	return figure + " no"
}

func markdown(s *sheet) string {
	var b strings.Builder
	fmt.Fprintf(&b, "### %s\n\n%s\n\n", s.title, s.says)
	for i, row := range s.rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			fmt.Fprintf(&b, "|%s\n", strings.Repeat("---|", len(row)))
		}
	}
	return b.String()
}

// aligned is a sheet in columns, figures to the right.
func aligned(s *sheet) string {
	widths := make([]int, len(s.rows[0]))
	for _, row := range s.rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s\n", s.title, wrapped(s.says, 120))
	for _, row := range s.rows {
		for i, cell := range row {
			space := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				b.WriteString("  " + cell + space)
			} else {
				b.WriteString("  " + space + cell)
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

// wrapped breaks a text into lines of at most so many characters.
func wrapped(text string, width int) string {
	var b strings.Builder
	column := 0
	for _, word := range strings.Fields(text) {
		switch {
		case column == 0:
		case column+1+len(word) > width:
			b.WriteString("\n")
			column = 0
		default:
			b.WriteString(" ")
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String()
}
