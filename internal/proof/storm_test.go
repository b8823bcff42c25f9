package proof_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/shardquota/shardquota/quota"
)

// storm is random traffic on acme's quota q: clients that spend, refund, pass,
// open windows, double and create shards, some of them on stale images, and an
// aggregator that gets the stream of all of it, cut and repeated at random, with
// a clock that is up to a second off.
type storm struct {
	*world
	t       testing.TB
	r       *rand.Rand
	session bool
	alone   bool  // no aggregator
	user    *user // who draws with the real Limiter; nil where clients of these tests do

	next    int      // of the stream to be delivered
	planned []func() // passes of stale images, still to be written
}

func newStorm(t testing.TB, seed uint64, session bool, more ...attrs) *storm {
	first := q(0, 1, million, 1, append([]attrs{refilled(midnight - hour)}, more...)...)
	if session {
		first = build(first, window(midnight-30*second, midnight-30*second), attrs{"b_q_rsa": 60})
	}
	w := newWorld(mutant{}, decoder{}, midnight-20*second+137, first)
	return &storm{world: w, t: t, r: rand.New(rand.NewPCG(seed, 13)), session: session}
}

// stormShards is the most that a storm grows to.
const stormShards = 8

// limited has the real Limiter draw shards.
func (s *storm) limited() {
	s.user = &user{w: s.world, name: "limiter", claims: &claims{}}
	s.user.start(s.requests(nil, "", s.user))
	s.users = append(s.users, s.user)
	end := midnight
	if s.session {
		end += 30 * second
	}
	s.put(build(s.at(0).Item, until(end)), 0)
}

// take takes of a shard with the Limiter, or settles and gives back.
func (s *storm) take(shard int, amount int64) {
	s.user.picks = []int{shard}
	switch {
	case amount > 0:
		acquires(amount / 1000)(s.user)
	case s.r.IntN(2) == 0:
		releases(s.user)
	default:
		adjusts(s.r.Int64N(30) - 10)(s.user)
	}
}

func (s *storm) client() *client { return &client{w: s.world, store: s.requests(nil, "", nil)} }

func (s *storm) step() {
	shard := s.r.IntN(s.at(0).ShardCount)
	switch s.r.IntN(14) {
	case 0, 1, 2, 3:
		s.draw(shard, s.r.Int64N(60_000))
	case 4:
		s.draw(shard, -s.r.Int64N(20_000))
	case 5:
		s.client().create(shard)
	case 6:
		s.plan(shard)
	case 7:
		if len(s.planned) > 0 {
			s.planned[0]()
			s.planned = s.planned[1:]
		}
	case 8:
		if n := s.at(0).ShardCount; n < stormShards && !s.alone && s.r.IntN(2) == 0 {
			s.double(n)
		}
	case 9, 10, 11:
		if !s.alone {
			s.deliverSome()
		}
	case 12:
		s.now += s.r.Int64N(3 * second)
	case 13:
		if s.r.IntN(4) == 0 {
			s.now += 10 * second
		}
	}
}

// draw uses a shard the way a client does: it creates it or brings it up to
// date, or opens a window, and then spends, or refunds of what the shard spent.
func (s *storm) draw(shard int, amount int64) {
	if s.user != nil {
		s.take(shard, amount)
		return
	}
	if s.at(shard) == nil {
		s.client().create(shard)
	}
	b := s.at(shard)
	if b == nil {
		return
	}
	s.client().pass(shard)
	if b = s.at(shard); s.session && !b.Limit("q").Current(b.RefilledAt, s.now) {
		s.client().open(shard)
		s.now++
	}
	s.spend(shard, amount, s.now)
}

// plan plans a pass that is to be written later.
func (s *storm) plan(shard int) {
	b, _ := s.read(shard)
	if b == nil {
		return
	}
	if pass, _ := quota.PlanPass(&b.Bucket, nil, s.now); pass != nil {
		s.planned = append(s.planned, func() { _, _ = s.requests(nil, "", nil).Pass(context.Background(), b, pass) })
	}
}

// deliverSome hands some of the stream to the aggregator: from where it is, or from
// before that again.
func (s *storm) deliverSome() {
	from, log := s.next, s.stream.log
	if s.r.IntN(3) == 0 {
		from = s.r.IntN(s.next + 1)
	}
	to := s.next + s.r.IntN(len(log)-s.next+1)
	s.deliver(s.t, s.now+s.r.Int64N(2*second)-second, log[from:to]...)
	s.next = to
}

func (s *storm) run() string {
	for range 150 {
		s.step()
		if wrong := s.check(); wrong != "" {
			return wrong
		}
	}
	if s.session {
		// The shards are in one window, or will join one: let them.
		s.now += 120 * second
		s.client().pass(0)
		s.client().open(0)
	}
	s.now += 2 * second
	return s.settle() + s.check()
}

func TestStorm(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds, which -short leaves out")
	}
	for _, kind := range []struct{ session, limited bool }{{}, {session: true}, {limited: true}, {true, true}} {
		t.Run(fmt.Sprintf("%+v", kind), func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(walks / 5) {
				s := newStorm(t, seed, kind.session)
				if kind.limited {
					s.limited()
				}
				if wrong := s.run(); wrong != "" {
					t.Fatalf("seed %d: %s", seed, wrong)
				}
			}
		})
	}
}
