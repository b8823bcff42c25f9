package ideal

import "testing"

// The bounds of a dripping limit are no wider than they need be: each is
// reached, to the millitoken.
func TestBoundsAreReached(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds, which -short leaves out")
	}
	const c = rpmCapacity
	for _, x := range []struct {
		name  string
		kind  kind
		steps []step
		debt  int64 // what was admitted or is held beyond one bucket
	}{
		{
			// A spend that looks at no clock leaves what dripped before it to the next pass.
			"a capacity at once, and another", kind{steady: true},
			[]step{{op: tick, amount: 30 * second}, {op: spend, limit: rpm, amount: 1}, {op: tick, amount: minute},
				{op: spend, limit: rpm, amount: c - 1}, {op: spend, limit: rpm, amount: c}},
			c - 1,
		},
		{
			"half a capacity with a doubling", kind{},
			[]step{{op: spend, limit: rpm, amount: 1}, {op: double}, {op: create, shard: 1}},
			c / 2,
		},
		{
			"as much as a clock is ahead", kind{careful: true, steady: true},
			[]step{{op: spend, limit: rpm, amount: c}, {op: skew, writer: 1, amount: 2000}, {op: spend, writer: 1, limit: rpm, amount: c / 30}},
			c/30 + 1, // and the rest of a millitoken that had dripped before
		},
	} {
		t.Run(x.name, func(t *testing.T) {
			s := newSystem(x.kind, 0, mutant{})
			for _, step := range x.steps {
				s.step(step)
				s.check()
			}
			var held int64
			for _, h := range s.last {
				held += h.rpm
			}
			if debt := held - s.tank.balance; debt != x.debt || s.wrong != "" || s.refused > 0 {
				t.Errorf("%d beyond one bucket, not %d; %d refused; %s", debt, x.debt, s.refused, s.wrong)
			}
		})
	}
}

// greedy is one undivided bucket of the quota that is asked what the shards are
// asked, and says yes where it can.
type greedy struct {
	hours map[int64]*answers
	spent int64
}

// answers are what it said in an hour, millitokens.
type answers struct{ admitted, refunded, refused int64 }

func (g *greedy) step(x step, now int64) {
	hour := now - now%hour
	a := g.hours[hour]
	if a == nil {
		a = &answers{}
		g.hours[hour] = a
	}
	switch {
	case x.limit != day:
	case x.op == refund:
		amount := min(x.amount, g.spent)
		a.admitted, a.refunded, g.spent = a.admitted-amount, a.refunded+amount, g.spent-amount
	case x.op == spend && a.admitted+x.amount <= dayCapacity:
		a.admitted, g.spent = a.admitted+x.amount, g.spent+x.amount
	case x.op == spend:
		a.refused = max(a.refused, x.amount)
	}
}

// The shards admit no more of the same requests than one bucket does, but that
// one large request, which one bucket is short of, may leave room for small
// ones; and none is refused that the shards and what is not granted yet could
// not explain, which settle checks.
func TestSameRequests(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds, which -short leaves out")
	}
	seeds, n := seeds(t)
	for seed := range seeds {
		k := kind{name: "true clocks"}
		s, g := newSystem(k, seed, mutant{}), &greedy{hours: map[int64]*answers{}}
		for _, x := range k.workload(seed, n) {
			g.step(x, s.table.Now)
			s.step(x)
		}
		s.settle()
		compared := 0
		for start, a := range g.hours {
			shards := s.periods[start]
			if shards == nil {
				continue // no shard was used in that hour
			}
			compared++
			if room := a.admitted + a.refused + a.refunded; shards.net > room {
				s.fail("%d admitted in the hour from %+d, one bucket %+v", shards.net, start-begin, *a)
			}
		}
		if s.wrong != "" || compared == 0 {
			t.Fatalf("seed %d, %d hours: %s", seed, compared, s.wrong)
		}
	}
}
