package proof_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardquota/shardquota/internal/explore"
	"github.com/shardquota/shardquota/table"
)

// scenario is a table and the actors that meet on it, small enough to be gone
// through in every order.
type scenario struct {
	name   string
	now    int64
	items  []table.Item
	actors func(w *world) []explore.Spec
}

// Those that take longest begin first.
var scenarios = [][]scenario{
	limiterOperatorScenarios, shardScenarios, edgeScenarios, windowScenarios, operatorScenarios, usageScenarios,
	limiterScenarios, limiterEdgeScenarios, limiterWindowScenarios, limiterCascadeScenarios, gatherScenarios,
	tornScenarios(firstFirst, "in order"), tornScenarios(lastFirst, "in reverse order"),
}

// tornScenarios are those in which siblings are read, with each of them read on
// its own: a batch read is no snapshot.
func tornScenarios(reads readOrder, order string) (torn []scenario) {
	for _, x := range []scenario{shardScenarios[0], shardScenarios[1], edgeScenarios[0], windowScenarios[3]} {
		actors := x.actors
		x.name += ", siblings read " + order
		x.actors = func(w *world) []explore.Spec {
			w.reads = reads
			return actors(w)
		}
		torn = append(torn, x)
	}
	return torn
}

// system is the scenario's beginning under a mutant.
func (x scenario) system(m mutant, decoded decoder) explore.System {
	w := newWorld(m, decoded, x.now, x.items...)
	return explore.System{Actors: x.actors(w), State: w.digest, Check: w.check, Finish: w.finish}
}

func (x scenario) search(m mutant, opts explore.Options) explore.Result {
	decoded := decoder{}
	return explore.Search(func() explore.System { return x.system(m, decoded) }, opts)
}

// story renders what is wrong, and how it comes to that: the longest order that
// worked, and the step too many.
func story(r explore.Result) string {
	lines := slices.Clone(r.Schedule)
	if r.Right > 0 {
		lines = slices.Insert(lines, r.Right, "-- up to here all is right, whoever stops --")
	}
	return r.Wrong + "\n  " + strings.ReplaceAll(strings.Join(lines, "\n"), "\n", "\n  ")
}

// Whatever the order, the books are right after every step.
func TestSearch(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds, which -short leaves out")
	}
	var report lines
	t.Run("scenarios", func(t *testing.T) {
		for _, x := range allScenarios() {
			line := report.add()
			t.Run(x.name, func(t *testing.T) {
				t.Parallel()
				begun := time.Now()
				r := x.search(mutant{}, explore.Options{Most: states, Deep: true})
				if r.Wrong != "" {
					t.Fatal(story(x.search(mutant{}, explore.Options{Most: states})))
				}
				orders := fmt.Sprintf("%.3g orders", r.Orders)
				if r.Cut {
					orders = "not all"
				}
				*line = fmt.Sprintf("%-88s %6d states %6d schedules %15s, up to %2d steps %5.1f s",
					x.name, r.States, r.Schedules, orders, r.Longest, time.Since(begun).Seconds())
			})
		}
	})
	t.Log(report.String())
}

func allScenarios() []scenario { return slices.Concat(scenarios...) }

// lines are a report, to be filled in in any order.
type lines []*string

func (l *lines) add() *string {
	line := new(string)
	*l = append(*l, line)
	return line
}

func (l *lines) String() string {
	text := ""
	for _, line := range *l {
		if *line != "" {
			text += "\n" + *line
		}
	}
	return text
}

// Where states that were seen before are not cut off, the same ends are reached
// by the same orders.
func TestSearchOneByOne(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds, which -short leaves out")
	}
	for _, name := range []string{
		"a shard is created at 2 while the count doubles to 4",
		"the stream is made anew",
		"a sibling is restored while its slot is created",
		"two clients open windows",
		"limiters that ask two shards take the last tokens",
		"what was taken is settled while shards are created off the shard",
		"a first window is opened on shard 0 and on one that is created",
		"a limiter whose clock is behind midnight, and one that is past it",
		"clocks hours apart open windows",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := scenarioOf(t, name)
			cut, all := x.search(mutant{}, explore.Options{}), x.search(mutant{}, explore.Options{KeepAll: true})
			if !maps.Equal(cut.Ends, all.Ends) {
				t.Errorf("%d ends, and %d one by one", len(cut.Ends), len(all.Ends))
			}
			eq(t, "orders", cut.Orders, all.Orders)
			t.Logf("%d states for %d, %d ends", cut.States, all.States, len(all.Ends))
		})
	}
}

func scenarioOf(t *testing.T, name string) scenario {
	t.Helper()
	for _, x := range allScenarios() {
		if x.name == name {
			return x
		}
	}
	t.Fatalf("there is no scenario %q", name)
	return scenario{}
}
