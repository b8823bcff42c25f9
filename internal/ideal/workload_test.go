package ideal

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

const (
	second = int64(1000)
	minute = 60 * second
	hour   = 60 * minute

	// The clock begins 20 seconds before a full hour, at which the quota of a
	// calendar workload is restored.
	begin = int64(1796083200000) - 20*second + 137
)

// op is what happens in a step.
type op string

const (
	spend   op = "spend"
	refund  op = "refund"
	plan    op = "plan"    // a pass is planned, to be written later
	write   op = "write"   // the oldest of those
	create  op = "create"  // a client draws a shard that may not be there
	double  op = "double"  // a client doubles the shard count
	deliver op = "deliver" // the aggregator gets some of the stream
	again   op = "again"   // and some that it had before
	tick    op = "tick"    // time passes
	skew    op = "skew"    // a writer's clock is set
	change  op = "change"  // an operator changes a limit
	topUp   op = "top up"
)

// Names of the limits: a dripping one, and a quota.
const (
	rpm = "rpm"
	day = "day"
)

// step is one step. What its numbers mean beyond the table as it is then is
// reduced to it, so that a workload still means something with steps left out.
type step struct {
	op     op
	writer int // 0 to 2 are clients, 3 is the aggregator
	shard  int
	limit  string
	amount int64
}

func (s step) String() string {
	switch s.op {
	case spend, refund, topUp:
		return fmt.Sprintf("%s %d %s of shard %d by %d", s.op, s.amount, s.limit, s.shard, s.writer)
	case change:
		return fmt.Sprintf("change %s to %d", s.limit, s.amount)
	case skew, tick:
		return fmt.Sprintf("%s %+d ms of %d", s.op, s.amount, s.writer)
	}
	return fmt.Sprintf("%s %d, shard %d by %d", s.op, s.amount, s.shard, s.writer)
}

// kind is a family of workloads.
type kind struct {
	name     string
	session  bool  // the quota has session windows, and no calendar
	skew     int64 // how far a clock is off, ms either way; 0 for true clocks
	jumps    bool  // a clock may be off by more than an hour
	operated bool  // an operator changes limits and tops up
	careful  bool  // clients pass a bucket before every use
	gathered bool  // limiters gather what one shard is short of
	limited  bool  // clients spend and refund with the real Limiter
	steady   bool  // 1, 2 or 4 shards, full from the beginning, and no more
}

// Capacities in millitokens; none is divided by 32 without a rest. The dripping
// limit refills to its capacity in a minute.
const (
	rpmCapacity = 600_077
	dayCapacity = 1_000_019
	windowLen   = 5 * minute
)

// workload is a random list of steps.
func (k kind) workload(seed uint64, n int) []step {
	r := rand.New(rand.NewPCG(seed, 31))
	steps := make([]step, n)
	for i := range steps {
		steps[i] = k.step(r)
	}
	return steps
}

var limitNames = []string{rpm, day}

func (k kind) step(r *rand.Rand) step {
	s := step{writer: r.IntN(3), shard: r.IntN(32), limit: limitNames[r.IntN(2)]}
	switch n := r.IntN(1000); {
	case n < 460:
		s.op, s.amount = spend, 1+r.Int64N(30_000)
		if r.IntN(10) == 0 {
			s.amount *= 8
		}
	case n < 540:
		s.op, s.amount = refund, 1+r.Int64N(20_000)
	case n < 580:
		s.op = plan
	case n < 620:
		s.op = write
	case n < 660:
		s.op = create
	case n < 664 && !k.steady:
		s.op = double
	case n < 740:
		s.op, s.writer, s.amount = deliver, 3, 1+r.Int64N(40)
	case n < 770:
		s.op, s.writer, s.amount = again, 3, 1+r.Int64N(20)
	case n < 970:
		s.op, s.amount = tick, k.pause(r)
	case n < 990:
		s.op, s.writer, s.amount = skew, r.IntN(4), k.offset(r)
	case k.operated && n < 995:
		s.op, s.amount = change, r.Int64N(4)
	case k.operated:
		s.op, s.limit, s.amount = topUp, day, 1+r.Int64N(100_000)
	default:
		s.op, s.amount = tick, 1
	}
	return s
}

// pause is how much time passes: mostly little, sometimes enough for an edge.
func (k kind) pause(r *rand.Rand) int64 {
	switch n := r.IntN(200); {
	case n < 2:
		return r.Int64N(40 * minute)
	case n < 12:
		return r.Int64N(minute)
	}
	return r.Int64N(400)
}

func (k kind) offset(r *rand.Rand) int64 {
	if k.skew == 0 {
		return 0
	}
	if k.jumps && r.IntN(8) == 0 {
		return r.Int64N(5*hour) - 5*hour/2
	}
	return r.Int64N(2*k.skew+1) - k.skew
}

func text(steps []step) string {
	var lines []string
	for _, s := range steps {
		lines = append(lines, s.String())
	}
	return strings.Join(lines, "\n")
}

// shrink leaves out of a failing workload what it fails without: ever smaller
// pieces, until no single step can go.
func shrink(steps []step, fails func([]step) bool) []step {
	for size := len(steps) / 2; size > 0; {
		shorter := steps
		for at := 0; at < len(shorter); {
			rest := append(shorter[:at:at], shorter[min(at+size, len(shorter)):]...)
			if fails(rest) {
				shorter = rest
			} else {
				at += size
			}
		}
		if len(shorter) == len(steps) || size > 1 {
			size /= 2
		}
		steps = shorter
	}
	return steps
}
