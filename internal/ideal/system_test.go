package ideal

import (
	"context"
	"fmt"
	"slices"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/internal/traffic"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

var acme = table.Group{Namespace: "ns1", Entity: "acme", Resource: "gpt-4"}

// system is a sharded table under a workload, beside the undivided buckets that
// pay for what it admits.
type system struct {
	kind   kind
	table  *traffic.Table
	agg    *aggregator.Aggregator
	rules  traffic.Rules
	clocks [4]int64 // how far each writer's clock is off, ms
	stale  []func() // passes that were planned, to be written
	next   int      // of the stream, to be delivered
	spent  map[string]int64
	users  []*user // the writers that use it with a Limiter, where the kind is limited

	books
	wrong string // the first thing that was
}

// mutant is a system that breaks a rule. The zero value keeps to all.
type mutant struct {
	rules traffic.Rules
	store func(*traffic.Table) table.Store
	over  func(table.Client) table.Client // of the table that Limiters use
}

// writesPerSecond is what one shard is good for before it counts as hot.
const writesPerSecond = 25

func newSystem(k kind, seed uint64, m mutant) *system {
	s := &system{kind: k, table: traffic.NewTable(begin - 1), rules: m.rules, spent: map[string]int64{}}
	s.books = newBooks(s)
	if m.store != nil {
		s.table.Store = m.store(s.table)
	}
	s.books.Store, s.table.Store = s.table.Store, &s.books
	s.table.Watch = s.watch
	day := traffic.Limit{Name: day, Capacity: dayCapacity, Period: hour, Resets: "1m0"}
	if k.session {
		day.Resets, day.Window = "", windowLen/second
	}
	writes := int64(writesPerSecond)
	if k.steady {
		writes = 1_000_000
	}
	rpm := traffic.Limit{Name: rpm, Capacity: rpmCapacity, Refill: rpmCapacity, Period: minute}
	if k.gathered {
		day.Division, rpm.Division = quota.Pooled, quota.Pooled
	}
	s.table.PutFirst(acme, writes, rpm, day)
	s.table.Now = begin
	s.agg = &aggregator.Aggregator{Store: s.table, Concurrency: 1}
	if k.steady {
		s.divide(1 << (seed % 3))
	}
	for writer := 0; k.limited && writer < 3; writer++ {
		s.users = append(s.users, s.newUser(writer, m))
	}
	return s
}

// divide brings the table to a shard count, with every dripping share full and
// none beside it.
func (s *system) divide(count int) {
	c := s.client(0)
	for n := 1; n < count; n *= 2 {
		c.Double(acme, count)
	}
	for shard := range count {
		c.Create(acme.At(shard))
		c.Refresh(acme.At(shard))
	}
	s.extra, s.next = 0, len(s.table.Records)
}

func (s *system) client(writer int) traffic.Client {
	return traffic.Client{Table: s.table, Now: s.clock(writer), Careful: s.kind.careful, Rules: s.rules}
}

// clock is what a writer takes for the time.
func (s *system) clock(writer int) int64 {
	s.lead, s.lag = max(s.lead, s.clocks[writer]), max(s.lag, -s.clocks[writer])
	return s.table.Now + s.clocks[writer]
}

func (s *system) fail(format string, args ...any) {
	if s.wrong == "" {
		s.wrong = fmt.Sprintf(format, args...)
	}
}

// run takes the steps until something is wrong, and says what.
func (s *system) run(steps []step) string {
	for i, x := range steps {
		s.step(x)
		s.check()
		if s.wrong != "" {
			return fmt.Sprintf("step %d: %s", i, s.wrong)
		}
	}
	s.settle()
	return s.wrong
}

func (s *system) step(x step) {
	key := acme.At(x.shard % s.table.At(acme.At(0)).ShardCount)
	switch limited := s.kind.limited; x.op {
	case spend:
		if limited {
			s.take(x)
			return
		}
		s.spend(x, key)
	case refund:
		if limited {
			s.giveBack(x)
			return
		}
		s.refund(x, key)
	case plan:
		s.plan(x, key)
	case write:
		if len(s.stale) > 0 {
			s.stale[0]()
			s.stale = s.stale[1:]
		}
	case create:
		s.client(x.writer).Create(key)
	case double:
		s.client(x.writer).Double(acme, quota.MaxShards)
	case deliver:
		to := min(s.next+int(x.amount), len(s.table.Records))
		s.deliver(s.next, to)
		s.next = to
	case again:
		from := max(0, s.next-3*x.shard)
		s.deliver(from, min(from+int(x.amount), s.next))
	case tick:
		s.table.Now += x.amount
	case skew:
		s.clocks[x.writer] = x.amount
	case change:
		s.change(x)
	case topUp:
		if b := s.table.At(key); b != nil {
			s.period(b).topUp += x.amount
			s.table.TopUp(key, x.limit, x.amount)
		}
	}
}

func (s *system) deliver(from, to int) {
	if err := s.agg.Process(context.Background(), s.table.Records[from:to], s.clock(3)).Err(); err != nil {
		s.fail("the aggregator: %v", err)
	}
}

// plan plans a pass, to be written later whatever happens meanwhile.
func (s *system) plan(x step, key table.Key) {
	b := s.table.At(key)
	if b == nil {
		return
	}
	if pass := s.client(x.writer).Plan(b); pass != nil {
		s.stale = append(s.stale, func() { _, _ = s.table.Pass(context.Background(), b, pass) })
	}
}

func (s *system) spend(x step, key table.Key) {
	c := s.client(x.writer)
	admitted := c.Spend(key, x.limit, x.amount)
	if !admitted {
		s.refused++
		return
	}
	s.admitted++
	s.spent[spender(key, x.limit)] += x.amount
	s.pay(key, x.limit, x.amount)
	if x.limit == day {
		s.timely(s.table.At(key), c.Now)
	}
}

func spender(key table.Key, limit string) string { return fmt.Sprint(limit, key.Shard) }

// refund gives back some of what was spent of a shard, in whichever period.
func (s *system) refund(x step, key table.Key) {
	amount := min(x.amount, s.spent[spender(key, x.limit)])
	if amount <= 0 {
		return
	}
	lost := s.client(x.writer).Refund(key, x.limit, amount)
	s.spent[spender(key, x.limit)] -= amount
	s.pay(key, x.limit, -amount)
	if x.limit == day {
		s.period(s.table.At(key)).lost += lost
	}
}

// timely checks that what was spent is of a period that holds by the spender's
// clock, or that some clock before was ahead enough to begin.
func (s *system) timely(b *table.Bucket, now int64) {
	start := s.periodOf(b)
	end := start + hour
	if s.kind.session {
		end = start + windowLen
	}
	if now >= end {
		s.fail("spent at %+d of a period that ended at %+d", now-begin, end-begin)
	}
	if start > s.table.Now+s.lead {
		s.fail("spent at %+d of a period that begins at %+d", s.table.Now-begin, start-begin)
	}
}

// capacities are what an operator changes a limit to, by the limit's own.
func capacityOf(own, choice int64) int64 {
	return []int64{own, own / 2, 2*own + 1, own - own/3}[choice]
}

func (s *system) change(x step) {
	if x.limit == day {
		s.table.Change(acme, day, capacityOf(dayCapacity, x.amount), 0)
		return
	}
	capacity := capacityOf(rpmCapacity, x.amount)
	s.retermed(capacity)
	s.table.Change(acme, rpm, capacity, capacity)
}

// settle lets a client draw every shard at a time that no clock is ahead of, and
// checks that nothing of the quota is missing that is not accounted for.
func (s *system) settle() {
	c := s.client(0)
	for _, b := range s.table.Shards(acme) {
		c.Now = max(c.Now, b.RefilledAt)
	}
	for shard := range s.table.At(acme.At(0)).ShardCount {
		c.Create(acme.At(shard))
		c.Refresh(acme.At(shard))
		s.check()
	}
	var shards []*quota.Bucket
	for _, b := range s.table.Shards(acme) {
		shards = append(shards, &b.Bucket)
	}
	s.complete(shards, c.Now)
	s.apart()
}

// complete checks the books of the period in which all shards are.
func (s *system) complete(shards []*quota.Bucket, now int64) {
	if len(shards) != shards[0].ShardCount {
		s.fail("%d shards of %d", len(shards), shards[0].ShardCount)
		return
	}
	period := s.periodOf(s.table.At(acme.At(0)))
	if !slices.ContainsFunc(shards, func(b *quota.Bucket) bool { return s.periodOf(s.table.At(acme.At(b.Shard))) != period }) {
		a := s.periods[period]
		missing := a.left() - a.lost - s.held[period]
		if !a.changed && (missing < 0 || missing >= int64(len(shards))) {
			s.fail("%d of the quota are missing: %d left, %d lost, %d held", missing, a.left(), a.lost, s.held[period])
		}
	} else if !s.kind.session {
		s.fail("shards are in several periods")
	}
	row, err := quota.Audit(day, shards, now)
	if err != nil || !row.Conserved {
		s.fail("ledger %+v, %v", row, err)
	}
}
