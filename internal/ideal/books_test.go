package ideal

import (
	"context"
	"maps"
	"slices"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// books compare the shards with undivided buckets after every write. They are
// a table on the way to the real one, which looks at what passes do.
type books struct {
	table.Store
	sys *system

	tank    tank
	periods map[int64]*allowance // by their start
	held    map[int64]int64      // of the quota by all shards, by period
	last    map[int]holding      // what each shard holds

	// What the shards may hold of the dripping limit beyond the tank, millitokens.
	extra    int64 // granted by creations and changes
	fastest  int64 // the largest refill that was in force
	largest  int64 // the largest capacity
	lead     int64 // how far a clock was ahead at most, ms
	lag      int64 // how far one was behind
	rounding int64 // one for each stretch of drips at one rate

	admitted, refused int
	gathered          int   // uses by several shards
	debt              int64 // the most that was held beyond the tank
}

// holding is what a shard held when it was last written.
type holding struct {
	period   int64
	day, rpm int64
}

func newBooks(s *system) books {
	return books{
		sys:     s,
		tank:    tank{rpmCapacity, rpmCapacity, minute, rpmCapacity, begin},
		fastest: rpmCapacity, largest: rpmCapacity,
		periods: map[int64]*allowance{}, held: map[int64]int64{}, last: map[int]holding{},
	}
}

// periodOf is the start of the period that a shard's quota is in: the full hour
// before its last pass, or the start of the window that it reflects.
func (s *system) periodOf(b *table.Bucket) int64 {
	if !s.kind.session {
		return b.RefilledAt - b.RefilledAt%hour
	}
	if applied := b.Limit(day).Window.Applied; applied != nil {
		return *applied
	}
	return 0
}

func (s *system) period(b *table.Bucket) *allowance {
	start, capacity := s.periodOf(b), b.Limit(day).Base.Capacity
	a := s.periods[start]
	if a == nil {
		a = &allowance{capacity: capacity}
		s.periods[start] = a
	}
	if a.capacity != capacity {
		a.capacity, a.changed = max(a.capacity, capacity), true
	}
	return a
}

// watch sees every write to a bucket.
func (s *system) watch(old, b *table.Bucket) {
	s.period(b)
	s.lead = max(s.lead, b.RefilledAt-s.table.Now)
	was, now := s.last[b.Shard], s.holding(b)
	s.held[was.period] -= was.day
	s.held[now.period] += now.day
	s.last[b.Shard] = now
	switch {
	case old == nil && b.Shard > 0:
		s.created(b)
	case old != nil && old.ShardCount < b.ShardCount:
		s.rounding++
	}
}

// holding is what a shard holds and can be spent without a pass, or after one
// where it needs that.
func (s *system) holding(b *table.Bucket) holding {
	h := holding{s.periodOf(b), b.Limit(day).Balance, b.Limit(rpm).Balance}
	if b.ValidUntil != nil && *b.ValidUntil == 0 {
		h.rpm = min(h.rpm, quota.Share(b.Limit(rpm).Base.Capacity, b.ShardCount))
	}
	return h
}

// created accounts for a new shard's share of the dripping limit, which nobody
// gives up for it. A creator whose clock is behind lets it drip from there.
func (s *system) created(b *table.Bucket) {
	l := b.Limit(rpm)
	late := max(0, s.table.Now-b.RefilledAt)
	s.extra += l.Balance + late*quota.Share(l.Base.Refill, b.ShardCount)/l.Base.Period
	s.rounding += 2
}

// retermed accounts for new terms of the dripping limit: they hold from each
// shard's last pass on.
func (s *system) retermed(capacity int64) {
	s.tank.advance(s.table.Now)
	for _, b := range s.table.Shards(acme) {
		since := max(0, s.table.Now-b.RefilledAt)
		faster := quota.Share(capacity, b.ShardCount) - quota.Share(b.Limit(rpm).Base.Refill, b.ShardCount)
		s.extra += max(0, since*faster/minute)
		s.rounding += 2
	}
	s.tank.capacity, s.tank.refill = capacity, capacity
	s.tank.balance = min(s.tank.balance, capacity)
	s.fastest, s.largest = max(s.fastest, capacity), max(s.largest, capacity)
}

// pay charges what was admitted, or refunded, to the undivided buckets.
func (s *system) pay(key table.Key, limit string, amount int64) {
	if limit == rpm {
		s.tank.advance(s.table.Now)
		s.tank.draw(amount)
		return
	}
	s.period(s.table.At(key)).net += amount
}

// allowed is what the shards may hold of the dripping limit beyond the tank. A
// client that spends without a pass leaves to the next one what dripped while
// the shard was full: at most a capacity in all. So does one whose clock is
// behind, as far as it is.
func (b *books) allowed() int64 {
	allowed := b.extra + (b.lead+b.lag)*b.fastest/minute + b.rounding + int64(len(b.last)) + 1
	if !b.sys.kind.careful {
		allowed += b.largest
	}
	return allowed
}

// check compares what the shards hold with what the undivided buckets have left.
func (s *system) check() {
	s.tank.advance(s.table.Now)
	var drips int64
	for _, h := range s.last {
		drips += h.rpm
	}
	s.debt = max(s.debt, drips-s.tank.balance)
	if s.tank.balance+s.allowed() < drips {
		s.fail("the shards hold %d of a dripping limit, one bucket would %d, and %d are allowed beyond that", drips, s.tank.balance, s.allowed())
	}
	for start, a := range s.periods {
		if left := a.left() + a.owed; left < s.held[start] {
			s.fail("the shards hold %d of the period from %+d, one bucket would %d", s.held[start], start-begin, left)
		}
	}
}

// Pass implements table.Store. It checks that a pass takes nothing but what it
// has to.
func (b *books) Pass(ctx context.Context, read *table.Bucket, pass *quota.Pass) (table.PassResult, error) {
	before := b.stored(read.Key)
	result, err := b.Store.Pass(ctx, read, pass)
	if result.Applied {
		after := b.stored(read.Key)
		b.drips(read, before, after, pass.ShardCount)
		b.quota(read, before, after, pass.ShardCount)
	}
	return result, err
}

func (b *books) stored(key table.Key) *table.Bucket {
	stored, err := b.sys.table.Memory.Read(context.Background(), key)
	if err != nil {
		b.sys.fail("shard %d: %v", key.Shard, err)
	}
	return stored
}

// drips checks that a shard gains what drips since its last pass, up to its
// ceiling as the pass read it.
func (b *books) drips(read, before, after *table.Bucket, count int) {
	l := before.Limit(rpm)
	dripped := (after.RefilledAt-before.RefilledAt)*quota.Share(l.Base.Refill, count)/l.Base.Period - 1
	room := quota.Share(l.Base.Capacity, count) - read.Limit(rpm).Balance
	if gain := after.Limit(rpm).Balance - l.Balance; gain < min(dripped, room) {
		b.sys.fail("shard %d gained %d where %d dripped and there was room for %d", read.Shard, gain, dripped, room)
	}
}

// quota checks that a shard is restored to its share, less what was spent
// between the pass's reading and its writing, or loses no more than it held
// above its ceiling. Both is accounted for.
func (b *books) quota(read, before, after *table.Bucket, count int) {
	l := read.Limit(day)
	meanwhile := l.Balance - before.Limit(day).Balance
	period := b.sys.period(after)
	if b.sys.periodOf(before) != b.sys.periodOf(after) {
		share := quota.Share(l.Base.Capacity, count)
		if l.Window.ConsumedAtOpen != nil {
			share -= max(0, l.Consumed-*l.Window.ConsumedAtOpen)
		}
		if got := after.Limit(day).Balance; got != share-meanwhile {
			b.sys.fail("shard %d was restored to %d of %d less %d", read.Shard, got, share, meanwhile)
		}
		period.lost += quota.Share(l.Base.Capacity, count) - after.Limit(day).Balance
		return
	}
	fall := before.Limit(day).Balance - after.Limit(day).Balance
	if over := l.Balance - l.Ceiling(read.ShardCount, l.Base.Capacity); fall > max(0, over) {
		b.sys.fail("shard %d lost %d, and held %d too much", read.Shard, fall, over)
	}
	period.lost += fall
}

// apart checks that windows begin a window's length apart.
func (s *system) apart() {
	starts := slices.Sorted(maps.Keys(s.periods))
	for i := range starts {
		if i > 0 && s.kind.session && starts[i]-starts[i-1] < windowLen {
			s.fail("windows begin at %+d and %+d", starts[i-1]-begin, starts[i]-begin)
		}
	}
}
