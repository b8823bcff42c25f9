package simulate

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/shardquota/shardquota/quota"
)

var update = flag.Bool("update", false, "write the record's figures anew; review each that changes")

const (
	record   = "../../../docs/adr/0016-how-a-limit-is-divided.md"
	from, to = "<!-- simulate -->\n", "<!-- /simulate -->"
)

// some are the options and workloads of these names.
func some(t *testing.T, options, workloads []string) ([]Option, []Workload) {
	t.Helper()
	o := slices.DeleteFunc(Options(), func(o Option) bool { return !slices.Contains(options, o.Name) })
	w := slices.DeleteFunc(Workloads(), func(w Workload) bool { return !slices.Contains(workloads, w.Name) })
	if len(o) != len(options) || len(w) != len(workloads) {
		t.Fatalf("%d of %v, %d of %v", len(o), options, len(w), workloads)
	}
	return o, w
}

func simulated(t *testing.T, seed uint64, options, workloads []string) *Report {
	t.Helper()
	o, w := some(t, options, workloads)
	results, err := Run(t.Context(), o, w, seed)
	if err != nil {
		t.Fatal(err)
	}
	return NewReport(seed, results)
}

// TestRecord makes the decision record's tables again.
func TestRecord(t *testing.T) {
	if raced || testing.Short() {
		t.Skip("it takes seconds: -short leaves it out, and so does the race detector, see the Makefile")
	}
	results, err := Run(t.Context(), Options(), Workloads(), 1)
	if err != nil {
		t.Fatal(err)
	}
	var figures bytes.Buffer
	if err := NewReport(1, results).WriteMarkdown(&figures); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(text), from)
	recorded, after, ends := strings.Cut(rest, to)
	if !begins || !ends {
		t.Fatalf("%s has no place for the figures", record)
	}
	if *update {
		if err := os.WriteFile(record, []byte(before+from+figures.String()+to+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	for i, line := range strings.Split(figures.String(), "\n") {
		if lines := strings.Split(recorded, "\n"); i >= len(lines) || lines[i] != line {
			t.Fatalf("line %d of the figures is not the record's; they are now:\n%s", i+1, figures.String())
		}
	}
	if recorded != figures.String() {
		t.Error("the record has more than the figures")
	}
}

// TestUndivided has one shard with the real rules admit what the arithmetic of
// one bucket says, within a token of rounding.
func TestUndivided(t *testing.T) {
	for _, r := range simulated(t, 3, []string{"undivided"}, []string{"steady", "large", "last tenth"}).Results {
		if ideal := r.Ideal[len(r.Ideal)-1]; r.Tokens-ideal > 1 || ideal-r.Tokens > 1 || r.Over > 1 || r.Shards != 1 || r.Needless != 0 {
			t.Errorf("%s: %d tokens of %d, %d over, %d shards, %d refused needlessly", r.Workload, r.Tokens, ideal, r.Over, r.Shards, r.Needless)
		}
		if r.Asked != r.Admitted+r.Wait+r.Never || r.Asked == 0 {
			t.Errorf("%s: %d asked, %d admitted, %d and %d refused", r.Workload, r.Asked, r.Admitted, r.Wait, r.Never)
		}
	}
}

// TestDivided shows the case: of 1,000 on 32 shards nobody gets 100 at
// once, and what each way to do something about it comes to.
func TestDivided(t *testing.T) {
	report := simulated(t, 1, []string{"divided", "replicated", "gathered", "capped", "debt"}, []string{"large"})
	for _, want := range []struct {
		option   string
		admitted int // of 15
		never    int
		held     float64
		shards   int
	}{
		{"divided", 0, 15, 1, 32},
		{"replicated", 15, 0, 32, 32},
		{"gathered", 15, 0, 1, 32},
		{"capped", 13, 0, 1, 8},
		{"debt", 12, 0, 1, 32},
	} {
		r := find(report.Results, "large", want.option)
		if r.LargeAsked != 15 || r.LargeAdmitted != want.admitted || r.Never != want.never || r.Held != want.held || r.Shards != want.shards {
			t.Errorf("%s: %d of %d large, %d refused for ever, %g held, %d shards", want.option, r.LargeAdmitted, r.LargeAsked, r.Never, r.Held, r.Shards)
		}
	}
	large := find(report.Results, "large", "gathered").Classes[Large]
	// A refused update, shard 0's and all shards' images, and four shards in a
	// transaction; what is refused is charged.
	if large.N != 15 || large.Trips != 4*15 || large.Requests != 4*15 || large.Read != 33*15 || large.Write != 9*15 || large.Index != 4*15 {
		t.Errorf("oversized uses that are gathered: %+v", large)
	}
	if hit := find(report.Results, "large", "divided").Classes[Hit]; hit.Requests != hit.N || hit.Write != float64(hit.N) || hit.Read != 0 || hit.Index != float64(hit.N) {
		t.Errorf("hits: %+v", hit)
	}
}

// TestGrowth lets a hot entity double by what its shards write.
func TestGrowth(t *testing.T) {
	report := simulated(t, 1, []string{"divided"}, []string{"hot"})
	r := report.Results[0]
	growth := r.Classes[Growth]
	if r.Shards != 32 || growth.N == 0 || growth.Read == 0 || r.Over > 10 || r.Rate < 0.98 || r.Rate > 1.02 {
		t.Errorf("%d shards, %+v, %d over, a rate of %g", r.Shards, growth, r.Over, r.Rate)
	}
}

func TestRepeatable(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds, which -short leaves out")
	}
	texts := map[string]uint64{}
	for _, seed := range []uint64{1, 1, 2} {
		var b bytes.Buffer
		report := simulated(t, seed, []string{"gathered"}, []string{"last tenth"})
		report.Seed = 0
		if err := report.WriteJSON(&b); err != nil {
			t.Fatal(err)
		}
		if _, again := texts[b.String()]; again != (seed == 1 && len(texts) == 1) {
			t.Errorf("seed %d: %v that it was there before", seed, again)
		}
		texts[b.String()] = seed
	}
	if len(texts) != 2 {
		t.Errorf("%d texts of two seeds", len(texts))
	}
}

// TestVerdict judges made-up figures.
func TestVerdict(t *testing.T) {
	sound := func() []Result {
		var results []Result
		for _, w := range Workloads() {
			for _, option := range []string{"undivided", "divided"} {
				results = append(results, Result{
					Workload: w.Name, Option: option, Asked: 10, Held: 1, Rate: 1, Tokens: 90, Ideal: []int64{100},
					Classes: [classes]Cost{Hit: {N: 10, Write: 12, Read: 3}},
				})
				switch last := &results[len(results)-1]; w.Name {
				case "large":
					last.LargeAsked, last.LargeAdmitted = 4, 4
				case "last tenth":
					last.Held = 0.1
				}
			}
		}
		return results
	}
	for name, c := range map[string]struct {
		workload string
		change   func(*Result)
		failing  func(Verdict) bool
	}{
		"ceiling":      {"bursty", func(r *Result) { r.Held = 1.03 }, func(v Verdict) bool { return !v.KeepsCeiling && v.Resting == 1.03 }},
		"quota's":      {"last tenth", func(r *Result) { r.Held = 1.1 }, func(v Verdict) bool { return !v.KeepsCeiling && v.Resting == 2 }},
		"rate":         {"hot", func(r *Result) { r.Rate = 1.03 }, func(v Verdict) bool { return !v.KeepsRate }},
		"over":         {"steady", func(r *Result) { r.Over = 51 }, func(v Verdict) bool { return !v.KeepsTotal && v.Over == 51 }},
		"large":        {"large", func(r *Result) { r.LargeAdmitted = 3 }, func(v Verdict) bool { return !v.AdmitsLarge && v.Large == 0.75 }},
		"over, excuse": {"steady", func(r *Result) { r.Over = 50 }, func(v Verdict) bool { return v.KeepsTotal && v.Over == 50 }},
		"growing":      {"hot", func(r *Result) { r.Held = 1.5 }, func(v Verdict) bool { return v.KeepsCeiling && v.Growing == 1.5 }},
		"nothing": {"hot", func(*Result) {}, func(v Verdict) bool {
			return v.KeepsCeiling && v.KeepsRate && v.KeepsTotal && v.AdmitsLarge && v.Tenth == 0.9 && v.Burst == 0.9 && v.Writes == 1.2 && v.Reads == 0.3
		}},
	} {
		results := sound()
		c.change(find(results, c.workload, "divided"))
		verdicts := Verdicts(results)
		if len(verdicts) != 2 || !c.failing(verdicts[1]) {
			t.Errorf("%s: %+v", name, verdicts)
		}
	}
	if verdicts := Verdicts(sound()[1:]); len(verdicts) != 0 {
		t.Errorf("without all workloads: %+v", verdicts)
	}
}

// TestForms writes one small report in each form.
func TestForms(t *testing.T) {
	report := simulated(t, 1, []string{"divided"}, []string{"last tenth"})
	var text, marked bytes.Buffer
	if err := errors.Join(report.WriteText(&text), report.WriteMarkdown(&marked)); err != nil {
		t.Fatal(err)
	}
	for form, lines := range map[string][]string{
		text.String(): {
			"Last tenth\n", "  option     tokens  of one bucket", "\n  divided *     850         85.0 %      195", "What a use costs\n",
			"\nWhat the columns are\n  *              is offered", "\n  needlessly     of those refused: one bucket ",
		},
		marked.String(): {
			"### Last tenth\n\na quota of 10,000", "| option | tokens | of one bucket |", "|---|---|", "| divided | 850 | 85.0 % | 195 |", "| divided | 1, 1 w, 0 r | - |",
		},
	} {
		for _, line := range lines {
			if !strings.Contains(form, line) {
				t.Errorf("no %q in\n%s", line, form)
			}
		}
	}
	if strings.Contains(marked.String(), "What the columns") || strings.Contains(marked.String(), " * ") {
		t.Errorf("the markdown has the legend or its marks:\n%s", marked.String())
	}
	if got := wrapped("one two three four", 9); got != "one two\nthree\nfour" {
		t.Errorf("wrapped: %q", got)
	}
}

// TestLegend knows every column of a workload, and the options that are marked are
// the divisions that a limit can have.
func TestLegend(t *testing.T) {
	report := &Report{}
	for _, w := range Workloads() {
		report.Results = append(report.Results, Result{Workload: w.Name, Option: "divided", LargeAsked: 1, Asked: 1, Ideal: []int64{1}})
	}
	said := legend()
	for _, w := range Workloads() {
		for _, column := range report.workload(&w).rows[0][1:] {
			if column != "writes" && column != "reads" && !strings.Contains(said, "\n  "+column+"  ") {
				t.Errorf("%s: the column %s is not in\n%s", w.Name, column, said)
			}
		}
	}
	var offered []quota.Division
	for _, o := range Options() {
		if o.Offered {
			offered = append(offered, o.division)
		}
	}
	if want := []quota.Division{quota.Divided, quota.Replicated, quota.Pooled}; !slices.Equal(offered, want) {
		t.Errorf("offered are %q, want %q", offered, want)
	}
}

// TestChart draws a line for each result that differs, and names all options.
func TestChart(t *testing.T) {
	report := simulated(t, 1, []string{"undivided", "divided", "capped"}, []string{"steady"})
	workloads := Workloads()
	svg, err := report.Chart(&workloads[0])
	if err != nil {
		t.Fatal(err)
	}
	decoder := xml.NewDecoder(bytes.NewReader(svg))
	for err == nil {
		_, err = decoder.Token()
	}
	if !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	for _, text := range []string{"Steady: tokens admitted", "undivided: +0", "divided: -35", ">capped<", ">seconds<", ">tokens<"} {
		if !bytes.Contains(svg, []byte(text)) {
			t.Errorf("no %q in the chart", text)
		}
	}
	if curves := report.curves("steady"); len(curves) != 2 || !slices.Equal(curves[1].options, []string{"divided", "capped"}) {
		t.Errorf("curves %+v", curves)
	}
	if svg, err := report.Chart(&workloads[1]); svg != nil || err != nil {
		t.Errorf("a chart of nothing: %d bytes, %v", len(svg), err)
	}
}
