package explore_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/shardquota/shardquota/internal/explore"
)

// board is what the actors of these tests share: a text that they write to.
type board struct {
	text   string
	wrong  func(text string) bool
	actors []explore.Spec
	finish func(text string) string
}

func (b *board) system() explore.System {
	return explore.System{
		Actors: b.actors,
		State:  func() explore.Digest { return explore.Digest(0).Text(b.text) },
		Check: func() string {
			if b.wrong != nil && b.wrong(b.text) {
				return "reads " + b.text
			}
			return ""
		},
		Finish: func(func(string)) string {
			if b.finish != nil {
				return b.finish(b.text)
			}
			return ""
		},
	}
}

// writer is an actor that adds letters, one a step. It is told what it wrote.
func (b *board) writer(name, letters string) *explore.Spec {
	b.actors = append(b.actors, explore.Spec{Name: name, Run: func(a *explore.Actor) {
		for _, letter := range letters {
			_ = a.Request(func() explore.Digest {
				b.text += string(letter)
				a.Say("writes %c", letter)
				return explore.Digest(letter)
			})
		}
	}})
	return &b.actors[len(b.actors)-1]
}

func search(t *testing.T, make func(b *board), opts explore.Options) (explore.Result, []string) {
	t.Helper()
	texts := map[string]bool{}
	result := explore.Search(func() explore.System {
		b := &board{finish: func(text string) string { texts[text] = true; return "" }}
		make(b)
		return b.system()
	}, opts)
	return result, slices.Sorted(maps.Keys(texts))
}

func eq(t *testing.T, what string, got, want any) {
	t.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		t.Errorf("%s: got %s, want %s", what, g, w)
	}
}

func TestEveryOrderIsFound(t *testing.T) {
	result, texts := search(t, func(b *board) { b.writer("one", "ab"); b.writer("two", "xy") }, explore.Options{})
	eq(t, "texts on the way", texts, "[ a ab abx abxy ax axb axby axy axyb x xa xab xaby xay xayb xy xya xyab]")
	eq(t, "ends", len(result.Ends), 6)
	eq(t, "orders", result.Orders, 6)
	eq(t, "longest", result.Longest, 4)
}

// Two actors that add to a number meet in the same states whatever their order.
func TestStatesThatWereSeenAreCutOff(t *testing.T) {
	make := func(b *board) {
		for _, name := range []string{"one", "two", "three"} {
			b.actors = append(b.actors, explore.Spec{Name: name, Run: func(a *explore.Actor) {
				for range 3 {
					a.Do(func() explore.Digest { b.text = fmt.Sprint(len(b.text)); b.text = "|" + b.text; return 0 })
				}
			}})
		}
	}
	cut, _ := search(t, make, explore.Options{})
	all, _ := search(t, make, explore.Options{KeepAll: true})
	eq(t, "ends", cut.Ends, all.Ends)
	eq(t, "orders", cut.Orders, all.Orders)
	eq(t, "orders of three times three steps", all.Orders, 1680)
	if cut.States >= all.States/10 {
		t.Errorf("%d states of %d are kept", cut.States, all.States)
	}
}

// What an actor was told is part of the state: it may do other things by it.
func TestAnswersTellStatesApart(t *testing.T) {
	make := func(b *board) {
		b.writer("writer", "x")
		b.actors = append(b.actors, explore.Spec{Name: "reader", Run: func(a *explore.Actor) {
			var read string
			a.Do(func() explore.Digest { read = b.text; return explore.Digest(0).Text(read) })
			a.Do(func() explore.Digest { b.text += "(" + read + ")"; return 0 })
		}})
	}
	_, texts := search(t, make, explore.Options{})
	eq(t, "texts", texts, "[ () ()x x x() x(x)]")
}

func TestShortestScheduleIsTold(t *testing.T) {
	result, _ := search(t, func(b *board) {
		b.writer("one", "abc")
		b.writer("two", "xy")
		b.wrong = func(text string) bool { return strings.Contains(text, "xb") }
	}, explore.Options{})
	eq(t, "wrong", result.Wrong, "reads axb")
	eq(t, "schedule", strings.Join(result.Schedule, "; "), "one: writes a; two: writes x; one: writes b")
	eq(t, "lines that were right", result.Right, 2)
}

func TestFaults(t *testing.T) {
	_, texts := search(t, func(b *board) { b.writer("one", "ab").Faults = 1 }, explore.Options{})
	eq(t, "a fault", texts, "[ a ab b]") // lost, failed, and nothing after an outage
	_, texts = search(t, func(b *board) { b.writer("one", "ab").Crashes = 1 }, explore.Options{})
	eq(t, "a crash", texts, "[ a aa aab ab]")
	result, _ := search(t, func(b *board) {
		b.writer("one", "ab").Crashes = 1
		b.wrong = func(text string) bool { return text == "aa" }
	}, explore.Options{})
	eq(t, "schedule", strings.Join(result.Schedule, "; "), "one: writes a; one crashes and is started again; one: writes a")
}

func TestAwait(t *testing.T) {
	_, texts := search(t, func(b *board) {
		b.writer("one", "ab")
		b.actors = append(b.actors, explore.Spec{Name: "two", Crashes: 1, Run: func(a *explore.Actor) {
			a.Await(func() bool { return b.text == "a" }, func() explore.Digest { b.text += "x"; return 0 })
		}})
	}, explore.Options{})
	eq(t, "texts", texts, "[ a ab ax axb]")
}

func TestForgettingJoinsStates(t *testing.T) {
	states := func(forgets bool) int {
		result, _ := search(t, func(b *board) {
			b.writer("writer", "abc")
			b.actors = append(b.actors, explore.Spec{Name: "reader", Run: func(a *explore.Actor) {
				a.Do(func() explore.Digest { return explore.Digest(0).Text(b.text) })
				if forgets {
					a.Forget(1)
				}
				a.Do(func() explore.Digest { return 0 })
			}})
		}, explore.Options{})
		return result.States
	}
	eq(t, "states with what was read", states(false), 4+10+4)
	eq(t, "states without", states(true), 3*4)
}

func TestMostStates(t *testing.T) {
	result, _ := search(t, func(b *board) { b.writer("one", "abc"); b.writer("two", "xyz") }, explore.Options{Most: 4})
	eq(t, "states", result.States, 5) // those of the last one gone on from
	eq(t, "cut", result.Cut, true)
}
