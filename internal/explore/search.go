// Package explore goes through every order in which actors can take their
// steps.
//
// The actors run real code in goroutines, of which one moves at a time: each
// stops before every step it takes at what they share, and the search says who
// goes on. Such a program cannot be copied half way, so that a schedule is run
// from the beginning each time. But since an actor depends on nothing but what
// its steps told it, what is shared and a digest of what each actor was told
// identify a state, and a state that was seen before is not gone into again.
//
// The search is breadth first: what it finds wrong comes with a shortest
// schedule that leads there. A search that expects to find nothing goes depth
// first, which takes half the runs.
package explore

// System is a fresh beginning: actors and what they share. Every call that makes
// one must make the same.
type System struct {
	Actors []Spec

	// State digests all that is shared and that anything still depends on,
	// what is checked included.
	State func() Digest

	// Check says what is wrong, after every step; "" where nothing is.
	Check func() string

	// Finish says what is wrong if the actors that are not done stop for good. It
	// is asked in every state, and leaves all that is shared as it was. tell is
	// nil unless somebody reads what is done to finish.
	Finish func(tell func(line string)) string
}

// Options change how a search is made.
type Options struct {
	KeepAll bool // go into states that were seen before: a search of every order, one by one
	Deep    bool // depth first: what is found wrong is not told by a shortest schedule
	Most    int  // states after which the search ends; 0 is any number
}

// Result is what a search found.
type Result struct {
	States    int     // distinct ones, the beginning included
	Schedules int     // runs that were made
	Orders    float64 // how many complete schedules they stand for; 0 where it was cut
	Cut       bool    // the search ended before it had been everywhere
	Longest   int     // steps of the longest schedule that was run
	Ends      map[Digest]bool

	Wrong    string   // what is wrong first; the search ends there
	Schedule []string // a shortest way to it, a line a step
	Right    int      // lines of Schedule after which nothing was wrong yet
}

// choice is who goes on, and how.
type choice struct {
	actor uint8
	fault fault
}

// node is a state.
type node struct {
	next   []*node
	orders float64 // complete schedules from here on; 0 where it is not known yet
}

// visit is a state to be gone on from.
type visit struct {
	*node
	path    []choice
	choices []choice
}

type search struct {
	begin  func() System
	opts   Options
	nodes  map[Digest]*node
	queue  []visit
	result Result
}

// Search runs a system in every order, until something is wrong.
func Search(begin func() System, opts Options) Result {
	s := &search{begin: begin, opts: opts, nodes: map[Digest]*node{}, result: Result{Ends: map[Digest]bool{}}}
	var root *node
	if opts.Deep {
		root = s.deepen(s.run(nil, nil), nil)
	} else {
		root = s.try(nil)
		s.widen()
	}
	if !s.result.Cut {
		s.result.Orders = root.count()
	}
	return s.result
}

// over reports whether the search goes no further.
func (s *search) over() bool {
	full := s.opts.Most > 0 && s.result.States >= s.opts.Most
	s.result.Cut = s.result.Cut || full || s.result.Wrong != ""
	return s.result.Cut
}

// widen goes on from the states in the queue, breadth first.
func (s *search) widen() {
	for len(s.queue) > 0 && !s.over() {
		from := s.queue[0]
		s.queue = s.queue[1:]
		for _, c := range from.choices {
			next := s.try(from.then(c))
			if s.result.Wrong != "" {
				break
			}
			from.next = append(from.next, next)
		}
	}
}

// try runs one schedule, looks at the state it leads to, and queues it if it is
// new.
func (s *search) try(path []choice) *node {
	r := s.run(path, nil)
	defer r.stop()
	at, fresh := s.arrive(r, path)
	if fresh {
		s.queue = append(s.queue, at)
	}
	return at.node
}

// deepen looks at the state that a run has come to. If it is new, the run itself
// goes on with the first choice, and another run with each of the others.
func (s *search) deepen(r *run, path []choice) *node {
	at, fresh := s.arrive(r, path)
	for i, c := range at.choices {
		if !fresh || s.over() {
			break
		}
		if i > 0 {
			r = s.run(path, nil)
		}
		r.take([]choice{c})
		at.next = append(at.next, s.deepen(r, at.then(c)))
	}
	r.stop()
	return at.node
}

// then is the schedule that goes on with a choice.
func (v visit) then(c choice) []choice { return append(v.path[:len(v.path):len(v.path)], c) }

// arrive looks at the state that a schedule led to, and reports whether it is new.
func (s *search) arrive(r *run, path []choice) (at visit, fresh bool) {
	s.result.Schedules++
	s.result.Longest = max(s.result.Longest, len(path))
	shared := r.State()
	digest := r.digest(shared)
	if s.opts.KeepAll {
		digest = Digest(s.result.Schedules)
	}
	if known := s.nodes[digest]; known != nil {
		return visit{node: known}, false
	}
	at = visit{&node{}, path, r.choices()}
	s.nodes[digest] = at.node
	s.result.States++
	if len(at.choices) == 0 {
		s.result.Ends[shared] = true
	}
	if r.wrong(nil) != "" {
		s.tell(path)
	}
	return at, true
}

// tell runs a schedule again, for its steps to be read.
func (s *search) tell(path []choice) {
	result, last := &s.result, max(0, len(path)-1)
	say := func(line string) { result.Schedule = append(result.Schedule, line) }
	r := s.run(path[:last], say)
	defer r.stop()
	result.Right = len(result.Schedule)
	r.take(path[last:])
	result.Wrong = r.wrong(say)
}

// run is a system under way.
type run struct {
	System
	actors []*Actor
}

func (s *search) run(path []choice, say func(string)) *run {
	r := &run{System: s.begin()}
	for _, spec := range r.Actors {
		r.actors = append(r.actors, start(spec, say))
	}
	r.take(path)
	return r
}

func (r *run) take(path []choice) {
	for _, c := range path {
		r.actors[c.actor].take(c.fault)
	}
}

func (r *run) stop() {
	for _, a := range r.actors {
		a.stop()
	}
}

// wrong checks the state, and then what comes of it when nobody goes on.
func (r *run) wrong(tell func(string)) string {
	if wrong := r.Check(); wrong != "" {
		return wrong
	}
	for _, a := range r.actors {
		if a.waiting && tell != nil {
			tell(a.spec.Name + " stops for good")
		}
	}
	if wrong := r.Finish(tell); wrong != "" {
		return "once nobody goes on: " + wrong
	}
	return ""
}

func (r *run) choices() []choice {
	var all []choice
	for i, a := range r.actors {
		for _, f := range a.faults() {
			all = append(all, choice{uint8(i), f})
		}
	}
	return all
}

// digest identifies a state.
func (r *run) digest(shared Digest) Digest {
	for _, a := range r.actors {
		shared = shared.Add(uint64(a.digest()))
	}
	return shared
}

// count returns how many complete schedules there are from a state on. Every
// step brings some actor further, so that no state is reached from itself.
func (n *node) count() float64 {
	if n.orders == 0 {
		for _, next := range n.next {
			n.orders += next.count()
		}
		n.orders = max(n.orders, 1)
	}
	return n.orders
}
