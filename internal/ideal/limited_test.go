package ideal

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/shardquota/shardquota/limiter"
	"github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// user is a writer that uses the table with the real Limiter.
type user struct {
	*limiter.Limiter
	shard  int // that it draws, as far as there is one
	leases []*limiter.Lease
}

func (s *system) newUser(writer int, m mutant) *user {
	u, t := &user{}, s.table.Limited()
	if m.over != nil {
		t = m.over(t)
	}
	store, err := limits.Open(context.Background(), limited{t, s}, limits.NamespaceID(acme.Namespace), limits.Sequential(),
		limits.Clock(func() time.Time { return time.UnixMilli(s.clock(writer)) }))
	if err != nil {
		panic(err)
	}
	u.Limiter = limiter.New(store, limiter.Deterministic(func(n int) int { return u.shard % n }))
	return u
}

// take is a use by a Limiter, of whole tokens.
func (s *system) take(x step) {
	u := s.users[x.writer]
	u.shard = x.shard
	lease, err := u.Acquire(context.Background(), acme.Entity, acme.Resource, limiter.Amounts{x.limit: 1 + x.amount/1000})
	if err != nil {
		s.refused++
		s.excuse(err)
		return
	}
	s.admitted++
	u.leases = append(u.leases, lease)
}

// giveBack settles one of a writer's leases with less or more than it took, or
// releases it.
func (s *system) giveBack(x step) {
	u := s.users[x.writer]
	if len(u.leases) == 0 {
		return
	}
	at := x.shard % len(u.leases)
	lease := u.leases[at]
	used := max(x.amount%41-30, -lease.Taken()[x.limit])
	if x.amount%2 == 0 {
		u.leases = slices.Delete(u.leases, at, at+1)
		s.excuse(lease.Release(context.Background()))
		return
	}
	s.excuse(lease.Adjust(context.Background(), limiter.Amounts{x.limit: used}))
}

// excuse fails for what no call of a Limiter may end in here.
func (s *system) excuse(err error) {
	var rejection *limiter.Rejection
	if err != nil && !errors.As(err, &rejection) {
		s.fail("a limiter: %v", err)
	}
}

// limited is the table to a Limiter. What it takes and gives back is paid by the
// undivided buckets, and its passes are checked like others.
type limited struct {
	table.Client
	sys *system
}

// Charge implements table.Client.
func (l limited) Charge(ctx context.Context, key table.Key, take table.FastCharge) (table.WriteResult, error) {
	before := l.sys.table.At(key)
	taken, err := l.Client.Charge(ctx, key, take)
	if taken.Applied {
		l.sys.charge(before, l.sys.table.At(key), take.Now)
	}
	return taken, err
}

// Use implements table.Client.
func (l limited) Use(ctx context.Context, read *table.Bucket, use *quota.Use) (table.WriteResult, error) {
	before := l.sys.table.At(read.Key)
	taken, err := l.Client.Use(ctx, read, use)
	if taken.Applied {
		l.used(read, before, use)
	}
	return taken, err
}

// UseAll implements table.Client.
func (l limited) UseAll(ctx context.Context, uses []table.PlannedUse) (bool, error) {
	var before []*table.Bucket
	for _, u := range uses {
		before = append(before, l.sys.table.At(u.Bucket.Key))
	}
	applied, err := l.Client.UseAll(ctx, uses)
	if applied {
		l.sys.gathered++
		for i, u := range uses {
			l.used(u.Bucket, before[i], u.Use)
		}
	}
	return applied, err
}

// used checks the pass of a use that was written, and charges what was taken.
func (l limited) used(read, before *table.Bucket, use *quota.Use) {
	after := l.sys.table.At(read.Key)
	passed := l.sys.table.At(read.Key)
	for _, take := range use.Charges {
		limit := passed.Limit(take.Limit)
		limit.Balance, limit.Consumed = limit.Balance+take.Debit, limit.Consumed-take.Consumed
	}
	if len(use.Opens()) > 0 {
		read.Limit(day).Window.ConsumedAtOpen = nil // an opened window owes nothing
	}
	l.sys.drips(read, before, passed, use.ShardCount)
	l.sys.quota(read, before, passed, use.ShardCount)
	l.sys.charge(passed, after, use.RefilledAt)
}

// Reconcile implements table.Client.
func (l limited) Reconcile(ctx context.Context, b *table.Bucket, corrections []quota.Adjustment) (table.WriteResult, error) {
	before := l.sys.table.At(b.Key)
	settled, err := l.Client.Reconcile(ctx, b, corrections)
	if settled.Applied {
		l.sys.charge(before, l.sys.table.At(b.Key), 0)
	}
	return settled, err
}

// charge charges what a write took to the undivided buckets. now is by whose
// clock it was taken, 0 where that does not matter.
func (s *system) charge(before, after *table.Bucket, now int64) {
	for _, name := range limitNames {
		was, is := before.Limit(name), after.Limit(name)
		amount := is.Consumed - was.Consumed
		s.pay(after.Key, name, amount)
		if name != day {
			continue
		}
		p := s.period(after)
		p.lost += was.Balance - is.Balance - amount
		switch {
		case amount > 0 && now > 0:
			s.timely(after, now)
		case amount > 0:
			p.owed += max(0, min(amount, -is.Balance))
		}
	}
}
