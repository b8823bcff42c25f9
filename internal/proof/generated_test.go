package proof_test

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"unicode"

	"github.com/shardquota/shardquota/internal/explore"
	"github.com/shardquota/shardquota/internal/storetest"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/memory"
)

// kindOf is a write's operation without the number of a shard.
func kindOf(w *table.Write) string {
	kind, _, _ := strings.Cut(w.Operation, " shard ")
	return kind
}

// generic is an attribute's name without a limit's name and without the number of
// a shard.
func generic(name string) string {
	if _, field, ok := table.SplitAttr(strings.Replace(name, "b__", "b_*_", 1)); ok {
		return table.Attr("*", field)
	}
	for _, source := range []string{table.PositionAttr(0), table.RangesAttr(0)} {
		prefix := strings.TrimSuffix(source, "0")
		if rest, ok := strings.CutPrefix(name, prefix); ok && strings.TrimFunc(rest, unicode.IsDigit) == "" {
			return prefix + "*"
		}
	}
	return name
}

// form is a condition of a kind of write without its values, and without the names
// of limits. The write meter is apart in a charge. All that callers expect of an
// item that they amend or remove is alike.
func form(kind string, c table.Condition) string {
	var of []string
	for _, part := range c.Of {
		of = append(of, form(kind, part))
	}
	name, expected := generic(c.Name), kind == "amend" || kind == "remove"
	switch limit, _, _ := table.SplitAttr(c.Name); {
	case expected && name != table.AttrPK:
		name = "*"
	case kind == "charge" && limit == quota.WriteMeter:
		name = c.Name
	}
	switch c.Op {
	case table.Any:
		return "(" + strings.Join(of, " or ") + ")"
	case table.All:
		return "(" + strings.Join(of, " and ") + ")"
	}
	valueless := table.Condition{Op: c.Op, OrAbsent: c.OrAbsent, Name: name, Value: table.S("")}
	return strings.ReplaceAll(valueless.String(), ` ""`, "")
}

// eachRule yields the rules of a write that can be left out, each with a name that
// says what is then done.
func eachRule(w *table.Write, yield func(rule string, leaveOut func())) {
	kind := kindOf(w)
	for i := len(w.Require) - 1; i >= 0; i-- {
		c := &w.Require[i]
		whole := form(kind, *c)
		yield(kind+": without "+whole, func() { w.Require = slices.Delete(w.Require, i, i+1) })
		eachPart(kind, c, func(part string, leaveOut func()) { yield(kind+": "+part, leaveOut) })
		if c.OrAbsent {
			yield(kind+": not where it is absent: "+whole, func() { c.OrAbsent = false })
		}
	}
	for i, set := range w.Set {
		if set.Absent {
			yield(kind+": overwrites "+generic(set.Name), func() { w.Set[i].Absent = false })
		}
	}
}

// eachPart yields the parts of a condition that is made of several.
func eachPart(kind string, c *table.Condition, yield func(rule string, leaveOut func())) {
	whole := form(kind, *c)
	c.Of = slices.Clone(c.Of)
	for i := len(c.Of) - 1; i >= 0; i-- {
		part := &c.Of[i]
		eachPart(kind, part, yield)
		yield(whole+" without "+form(kind, *part), func() { c.Of = slices.Delete(c.Of, i, i+1) })
	}
}

// leavingOut changes writes by leaving one rule out wherever they have it.
func leavingOut(left string) func(w *table.Write, _ table.Item) {
	return func(w *table.Write, _ table.Item) {
		eachRule(w, func(rule string, leaveOut func()) {
			if rule == left {
				leaveOut()
			}
		})
	}
}

// changed is a table whose writes are changed on their way.
type changed struct {
	table.DB
	write func(w *table.Write, stored table.Item)
}

func (c changed) Do(ctx context.Context, w *table.Write) (table.WriteResult, error) {
	c.write(w, nil)
	return c.DB.Do(ctx, w)
}

func (c changed) Transact(ctx context.Context, t *table.Transaction) (table.TransactResult, error) {
	for _, w := range t.Writes {
		c.write(w, nil)
	}
	return c.DB.Transact(ctx, t)
}

// recorder is a testing.TB that keeps whether a case failed.
type recorder struct {
	testing.TB
	failed atomic.Bool
}

func (r *recorder) Helper()                  {}
func (r *recorder) Errorf(string, ...any)    { r.failed.Store(true) }
func (r *recorder) Error(...any)             { r.failed.Store(true) }
func (r *recorder) Fatalf(string, ...any)    { r.fail() }
func (r *recorder) Fatal(...any)             { r.fail() }
func (r *recorder) Context() context.Context { return bg }
func (r *recorder) fail() {
	r.failed.Store(true)
	runtime.Goexit()
}

// raw is a table in memory to the conformance suite.
type raw struct{ *memory.Store }

func (r raw) Put(_ testing.TB, item table.Item)          { r.Store.Put(item) }
func (r raw) Delete(_ testing.TB, pk, sk string)         { r.Store.Delete(pk, sk) }
func (r raw) Get(_ testing.TB, pk, sk string) table.Item { return r.Store.Get(pk, sk) }
func (r raw) Items(testing.TB) []table.Item              { return r.Store.Items() }

// conforms runs the cases of the conformance suite and of this package that are
// asked for, but for races, over a table whose writes are changed, and returns the
// first that fails.
func conforms(write func(w *table.Write, stored table.Item), asked func(name string) bool) (failed string) {
	try := func(name string, run func(t testing.TB)) {
		if failed == "" && !strings.HasPrefix(name, "Race/") && asked(name) && fails(run) {
			failed = name
		}
	}
	storetest.Each(func(testing.TB) (table.Client, storetest.Raw) {
		mem := memory.New()
		return &table.Table{DB: changed{mem, write}}, raw{mem}
	}, try)
	for _, c := range heldCases {
		mem := memory.New()
		try("Held/"+c.name, func(t testing.TB) { c.run(t, mem, changed{mem, write}) })
	}
	return failed
}

// fails reports whether a case fails, or does not come to its end.
func fails(run func(t testing.TB)) bool {
	r, ended := &recorder{}, make(chan bool)
	go func() {
		finished := false
		defer func() {
			_ = recover()
			ended <- finished
		}()
		run(r)
		finished = true
	}()
	return !<-ended || r.failed.Load()
}

// redundant are the rules that can be left out, and why they are there.
var redundant = map[string]string{
	"charge: without PK exists":           "without an item there is no write meter either, which is required next",
	"debit: without PK exists":            "without an item there is no balance either, which is required to be at least the move",
	"pin: without PK exists":              "without an item the count reads as 1, and a new shard needs one of at least 2",
	"propagate window: without PK exists": "without an item neither the window that it reflects nor rf is there, of which one is required",
}

// survey collects rules.
type survey struct {
	cases     map[string][]string // of the conformance suite that have a rule, by its name
	scenarios map[string][]string
	applied   map[string]bool // redundant rules without which something would be made of nothing
}

// see notes the rules of a write that a case or a scenario makes.
func (s survey) see(w *table.Write, of map[string][]string, name string) {
	eachRule(w, func(rule string, _ func()) {
		if names := of[rule]; !slices.Contains(names, name) {
			of[rule] = append(names, name)
		}
	})
	for i := range w.Require {
		if rule := kindOf(w) + ": without " + form(kindOf(w), w.Require[i]); redundant[rule] != "" && !s.applied[rule] {
			without := *w
			without.Require = slices.Delete(slices.Clone(w.Require), i, i+1)
			result, err := memory.New().Do(bg, &without)
			s.applied[rule] = result.Applied || err != nil
		}
	}
}

// looks is how many states of a scenario a survey looks at.
const looks = 20

func surveyed(t *testing.T) survey {
	s := survey{map[string][]string{}, map[string][]string{}, map[string]bool{}}
	current := ""
	failed := conforms(
		func(w *table.Write, _ table.Item) { s.see(w, s.cases, current) },
		func(name string) bool { current = name; return true })
	if failed != "" {
		t.Fatal("fails with nothing left out: ", failed)
	}
	for _, x := range allScenarios() {
		see := func(w *table.Write, _ table.Item) { s.see(w, s.scenarios, x.name) }
		x.search(mutant{write: see}, explore.Options{Most: looks})
	}
	for rule := range s.scenarios {
		if _, known := s.cases[rule]; !known {
			s.cases[rule] = nil // no case of the suite writes it
		}
	}
	return s
}

// Every condition of every write is needed: the conformance suite, a case of this
// package or the search fails without it. Those that are redundant are listed.
func TestGeneratedMutants(t *testing.T) {
	s, table := surveyed(t), ""
	for _, rule := range slices.Sorted(maps.Keys(s.cases)) {
		found, reason := s.find(rule), redundant[rule]
		switch {
		case reason != "" && (found != "" || s.applied[rule]):
			t.Errorf("%s: listed as redundant, and it is not: %s", rule, found)
		case reason != "":
			found = "redundant: " + reason
		case found == "":
			t.Errorf("%s: not found, and no reason is listed", rule)
		}
		table += fmt.Sprintf("\n%-75s %s", rule, found)
	}
	for rule := range redundant {
		if _, there := s.cases[rule]; !there {
			t.Errorf("%s: listed as redundant, and no write has it", rule)
		}
	}
	t.Log(table)
}

// find leaves a rule out and says what fails then, "" where nothing does. What is
// redundant is not searched.
func (s survey) find(rule string) string {
	failed := conforms(leavingOut(rule), func(name string) bool { return slices.Contains(s.cases[rule], name) })
	if failed != "" || redundant[rule] != "" {
		return failed
	}
	return s.search(rule)
}

func (s survey) search(rule string) string {
	for _, x := range allScenarios() {
		if !slices.Contains(s.scenarios[rule], x.name) {
			continue
		}
		if r := x.search(mutant{write: leavingOut(rule)}, explore.Options{Most: states}); r.Wrong != "" {
			return fmt.Sprintf("search, %d schedules: %s", r.Schedules, x.name)
		}
	}
	return ""
}
