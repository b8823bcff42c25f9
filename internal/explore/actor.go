package explore

import (
	"errors"
	"fmt"
	"runtime"
)

// ErrFault is what a request returns where the search lets it fail.
var ErrFault = errors.New("fault")

// Spec is one actor of a system: a program that does nothing to what is shared
// but in its steps. Run is called in a goroutine of its own. What it does next
// may depend only on what its steps have told it.
type Spec struct {
	Name string
	Run  func(a *Actor)

	// Crashes is how often the actor may stop for good before a step, to be
	// started again: Run is called anew. An actor that is not started again
	// needs none, since the search looks at every state as if nobody went on.
	Crashes int

	// Faults is how many of its requests may fail.
	Faults int
}

// fault is what happens to an actor in place of its next step, or to that step.
type fault uint8

const (
	none   fault = iota
	crash        // the actor is gone
	fail         // the request does nothing and fails
	lose         // the request is done, and yet fails
	outage       // the request fails, and so do all that follow until Recovered
)

var faultTexts = map[fault]string{
	fail: " fails", lose: " and the answer is lost", outage: " fails, and so does every request after it",
}

// Actor is how one run of a Spec takes its steps.
type Actor struct {
	spec    Spec
	say     func(line string) // nil where nobody reads it
	resume  chan fault
	parked  chan bool // whether it waits before a step, or is gone
	waiting bool
	ready   func() bool // nil where it always is
	request bool        // the step it waits before may fail

	history       Digest // what it was told since it last forgot
	starts        int
	crashes, left int // faults it may still have
	dead, down    bool
	line          string
}

// start runs the actor up to its first step.
func start(spec Spec, say func(string)) *Actor {
	a := &Actor{spec: spec, say: say, crashes: spec.Crashes, left: spec.Faults}
	a.launch()
	return a
}

func (a *Actor) launch() {
	a.resume, a.parked = make(chan fault), make(chan bool)
	a.dead, a.down, a.history = false, false, 0
	parked := a.parked
	go func() {
		defer func() { parked <- false }()
		a.spec.Run(a)
	}()
	a.waiting = <-a.parked
}

// Restarted reports whether an earlier run of the actor crashed.
func (a *Actor) Restarted() bool { return a.starts > 0 }

// Request is a step at something that may fail: a call of a service. It returns
// ErrFault where the search let it fail. do returns a digest of what it tells
// the actor.
func (a *Actor) Request(do func() Digest) error { return a.step(nil, true, do) }

// Do is a step that cannot fail.
func (a *Actor) Do(do func() Digest) { _ = a.step(nil, false, do) }

// Await is a step that cannot be taken before ready.
func (a *Actor) Await(ready func() bool, do func() Digest) { _ = a.step(ready, false, do) }

// Forget declares that what the actor does from here on does not depend on what
// it was told so far, but for a place in its program.
func (a *Actor) Forget(place int) { a.history = Digest(0).Add(uint64(place)) }

// Recovered ends an outage.
func (a *Actor) Recovered() { a.down = false }

// Say describes the step that is being taken, for a schedule to be read.
func (a *Actor) Say(format string, args ...any) {
	if a != nil && a.say != nil {
		a.line = fmt.Sprintf(format, args...)
	}
}

// Told reports whether anybody reads what is said.
func (a *Actor) Told() bool { return a.say != nil }

// Live ends the goroutine that calls it if the actor has crashed, in a step that
// another of its goroutines was to take.
func (a *Actor) Live() {
	if a.dead {
		runtime.Goexit()
	}
}

func (a *Actor) step(ready func() bool, request bool, do func() Digest) error {
	a.Live()
	if a.down {
		return ErrFault
	}
	a.ready, a.request, a.line = ready, request, ""
	a.parked <- true
	f := <-a.resume
	if f == crash {
		a.dead = true
		runtime.Goexit()
	}
	answer := Digest(f)
	if f == none || f == lose {
		answer = answer.Add(uint64(do()))
	}
	a.down = f == outage
	if a.say != nil {
		a.say(a.spec.Name + ": " + a.describe(f))
	}
	if f != none {
		a.history = a.history.Add(uint64(f))
		return ErrFault
	}
	a.history = a.history.Add(uint64(answer))
	return nil
}

func (a *Actor) describe(f fault) string {
	if f == fail || f == outage {
		return "a request" + faultTexts[f]
	}
	return a.line + faultTexts[f]
}

// take lets the actor take its step, or a fault befall it.
func (a *Actor) take(f fault) {
	if !a.waiting {
		panic("explore: " + a.spec.Name + " does not do the same when it is told the same")
	}
	switch f {
	case none:
	case crash:
		a.crashes--
	default:
		a.left--
	}
	a.resume <- f
	a.waiting = <-a.parked
	if f != crash {
		return
	}
	if a.say != nil {
		a.say(a.spec.Name + " crashes and is started again")
	}
	a.starts++
	a.launch()
}

// stop ends the actor's goroutine.
func (a *Actor) stop() {
	if a.waiting {
		a.resume <- crash
		a.waiting = <-a.parked
	}
}

// faults are what can become of the actor's next step, nothing where it waits
// for others.
func (a *Actor) faults() []fault {
	if !a.waiting || a.ready != nil && !a.ready() {
		return nil
	}
	all := []fault{none}
	if a.crashes > 0 && a.ready == nil {
		all = append(all, crash)
	}
	if a.left > 0 && a.request {
		all = append(all, fail, lose, outage)
	}
	return all
}

// digest identifies what the actor will do, whatever it is told.
func (a *Actor) digest() Digest {
	if !a.waiting {
		return 0
	}
	return a.history.Add(uint64(a.crashes), uint64(a.left), uint64(min(a.starts, 1)))
}
