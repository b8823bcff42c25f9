package aggregator_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// storm is random traffic on acme's quota q: clients that spend, refund, pass,
// open windows, double and create shards, some of them on stale images, and an
// aggregator that gets the stream of all of it, cut and repeated at random, with
// a clock that is up to a second off.
type storm struct {
	t       testing.TB
	r       *rand.Rand
	l       *ledger
	agg     *aggregator.Aggregator
	now     int64
	session bool
	alone   bool // no aggregator

	stream *stream
	seen   map[int]table.Item
	log    []aggregator.Delivery
	next   int // of log to be delivered

	planned []func() // passes of stale images, still to be written
	spent   map[string]int64
}

func newStorm(t testing.TB, seed uint64, session bool) *storm {
	s := &storm{
		t: t, r: rand.New(rand.NewPCG(seed, 13)), now: midnight - 20*second + 137, session: session,
		stream: newStream(t), seen: map[int]table.Item{}, spent: map[string]int64{},
	}
	first := q(0, 1, million, 1, refilled(midnight-hour))
	if session {
		first = build(first, window(midnight-30*second, midnight-30*second), attrs{"b_q_rsa": 60})
	}
	s.l = newLedger(million, first)
	s.agg = over(s.l)
	s.seen[0] = first
	return s
}

// stormShards is the most that a storm grows to.
const stormShards = 8

// record puts what changed on the stream.
func (s *storm) record() {
	for shard := range stormShards {
		item := s.l.mem.Get(acme.At(shard).PK(), table.StateSK)
		if item == nil || maps.EqualFunc(item, s.seen[shard], sameValue) {
			continue
		}
		s.log = append(s.log, s.stream.write(s.now-s.now%second, s.seen[shard], item))
		s.seen[shard] = item
	}
}

func sameValue(a, b types.AttributeValue) bool {
	x, isX := a.(*types.AttributeValueMemberN)
	y, isY := b.(*types.AttributeValueMemberN)
	return a == b || isX && isY && x.Value == y.Value
}

func (s *storm) step() {
	shard := s.r.IntN(s.l.at(0).Count)
	c := client{store: s.l, now: s.now}
	switch s.r.IntN(14) {
	case 0, 1, 2, 3:
		s.spend(shard, s.r.Int64N(60_000))
	case 4:
		s.spend(shard, -s.r.Int64N(20_000))
	case 5:
		c.create(shard)
	case 6:
		s.plan(shard)
	case 7:
		if len(s.planned) > 0 {
			s.planned[0]()
			s.planned = s.planned[1:]
		}
	case 8:
		if n := s.l.at(0).Count; n < stormShards && !s.alone && s.r.IntN(2) == 0 {
			_, _ = s.l.Double(context.Background(), acme, n)
		}
	case 9, 10, 11:
		if !s.alone {
			s.deliver()
		}
	case 12:
		s.now += s.r.Int64N(3 * second)
	case 13:
		if s.r.IntN(4) == 0 {
			s.now += 10 * second
		}
	}
	s.record()
}

// spend draws a shard the way a client does: it brings the shard up to date, or
// opens a window, and then spends, or refunds of what the shard spent.
func (s *storm) spend(shard int, amount int64) {
	b := s.l.at(shard)
	if b == nil {
		client{store: s.l, now: s.now}.create(shard)
		if b = s.l.at(shard); b == nil {
			return
		}
	}
	client{store: s.l, now: s.now}.pass(shard)
	if b = s.l.at(shard); s.session && !b.Limit("q").Current(b.Refilled, s.now) {
		s.open(b)
	}
	spender := fmt.Sprint(shard, " ", periodOf(s.l.at(shard)))
	if amount < 0 {
		amount = -min(-amount, s.spent[spender])
	}
	if s.l.spend(shard, amount, s.now) {
		s.spent[spender] += amount
	}
}

// use takes some of a dripping limit without looking whether it is there.
func (s *storm) use(shard int) {
	b := s.l.at(shard)
	amount := 300 + s.r.Int64N(3000)
	b.Limit("rpm").Balance -= amount
	b.Limit("rpm").Consumed += amount
	b.Fill()
	s.l.mem.Put(b.Item)
}

// open is a client's pass that opens a window on a shard, and tells the others.
func (s *storm) open(b *table.Bucket) {
	n := b.Count
	item := build(b.Item, window(s.now, s.now), attrs{
		"b_q_rsa": 60, "b_q_tk": million / int64(n), "b_q_gc": n, table.AttrRefilled: max(s.now, b.Refilled),
	})
	s.l.mem.Put(item)
	s.l.grant(s.l.at(b.Shard), n)
	s.record()
	for shard := range stormShards {
		sibling := s.l.at(shard)
		if sibling == nil || shard == b.Shard {
			continue
		}
		w := sibling.Limit("q").Window
		if w.Start != nil && *w.Start+w.Length > s.now || w.Applied == nil && sibling.Refilled >= s.now {
			continue
		}
		s.l.mem.Put(build(sibling.Item, attrs{
			"b_q_ws": s.now, "b_q_wtc": sibling.Limit("q").Consumed, table.AttrValid: 0,
		}))
	}
	s.record()
	s.now++
}

// plan plans a pass that is to be written later.
func (s *storm) plan(shard int) {
	b := s.l.at(shard)
	if b == nil {
		return
	}
	if pass, _ := quota.PlanPass(&b.Bucket, nil, s.now); pass != nil {
		s.planned = append(s.planned, func() { _, _ = s.l.Pass(context.Background(), b, pass) })
	}
}

// deliver hands some of the stream to the aggregator: from where it is, or from
// before that again.
func (s *storm) deliver() {
	from := s.next
	if s.r.IntN(3) == 0 {
		from = s.r.IntN(s.next + 1)
	}
	to := s.next + s.r.IntN(len(s.log)-s.next+1)
	clock := s.now + s.r.Int64N(2*second) - second
	deliver(s.t, s.agg, clock, s.log[from:to]...)
	s.next = to
}

func (s *storm) run() string {
	for range 150 {
		s.step()
	}
	if s.session {
		// The shards are in one window, or will join one: let them.
		s.now += 120 * second
		client{store: s.l, now: s.now}.pass(0)
		if b := s.l.at(0); !b.Limit("q").Current(b.Refilled, s.now) {
			s.open(b)
		}
	}
	return strings.Join(s.l.settle(s.now+2*second), "; ")
}

func TestStorm(t *testing.T) {
	for _, session := range []bool{false, true} {
		t.Run(fmt.Sprint("session ", session), func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(walks / 5) {
				if wrong := newStorm(t, seed, session).run(); wrong != "" {
					t.Fatalf("seed %d: %s", seed, wrong)
				}
			}
		})
	}
}
