package limiter

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// Amounts are tokens by limit name.
type Amounts map[string]int64

// maxAmount bounds one use, in tokens: sums of such amounts can be read for long.
const maxAmount = 1_000_000_000_000

// Unreachable says what becomes of uses while DynamoDB cannot be reached.
type Unreachable int

// The answers to a use while DynamoDB cannot be reached.
const (
	Block Unreachable = iota // the use fails with Unavailable
	Allow                    // the use is admitted, on a lease that counts nothing
)

// Limiter takes tokens for the entities of one namespace. It is safe for
// concurrent use.
type Limiter struct {
	store *limits.Store
	table table.Client
	settings

	groups *lru.Cache[table.Group, groupCache]
	short  *lru.Cache[table.Group, *shortage]
}

// settings are what options set.
type settings struct {
	unreachable   Unreachable
	shardAttempts int
	pickOf        func(n int) int // draws one of n shards
	parallel      int             // how many requests of one use are made at once
	patience      time.Duration   // the longest pause before a request is made again
}

// An Option changes how a Limiter works.
type Option func(*settings)

// OnUnavailable says what becomes of uses while DynamoDB cannot be reached; Block by
// default. It never admits a use that DynamoDB throttles: a customer who asks too
// often would let himself in. limits.Open itself looks the namespace up, and fails
// where that is not possible; with limits.NamespaceID it need not.
func OnUnavailable(answer Unreachable) Option { return func(s *settings) { s.unreachable = answer } }

// ShardAttempts sets how many different shards a use asks at most before it is
// rejected; 1 by default. It panics where n is less. Each attempt costs a write unit,
// and spares rejections of an entity whose last tokens are on few of its shards.
func ShardAttempts(n int) Option {
	if n < 1 {
		panic(fmt.Sprintf("limiter: %d shard attempts", n))
	}
	return func(s *settings) { s.shardAttempts = n }
}

// Deterministic has a Limiter do the same wherever it is told the same. It draws
// shards by what pick returns, a number from 0 to n-1, makes one request at a time,
// and does not wait before it makes one again. It is for tests and simulations; limits.Sequential does this for the Store.
func Deterministic(pick func(n int) int) Option {
	return func(s *settings) { s.pickOf, s.parallel, s.patience = pick, 1, 0 }
}

const (
	groupsRemembered = 100_000 // how many groups' shard counts a Limiter remembers
	defaultParallel  = 8       // how many shards a window is propagated to at once

	maxConflicts    = 24                     // with other transactions, after which a use does without what meets them
	defaultPatience = 100 * time.Millisecond // the longest pause between two of them
)

// pause waits after the nth conflict of a use, at random and longer each time, so that
// those who met do not meet again. The error is the context's.
func (l *Limiter) pause(ctx context.Context, n int) error {
	longest := min(l.patience, time.Millisecond<<min(n, 10))
	if longest <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(rand.N(longest))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// New returns a Limiter that takes tokens by the limits of a Store.
func New(store *limits.Store, options ...Option) *Limiter {
	s := settings{shardAttempts: 1, pickOf: rand.IntN, parallel: defaultParallel, patience: defaultPatience}
	for _, option := range options {
		option(&s)
	}
	return &Limiter{
		store: store, table: store.Table(), settings: s,
		groups: newCache[groupCache](groupsRemembered), short: newCache[*shortage](shortRemembered),
	}
}

func newCache[V any](size int) *lru.Cache[table.Group, V] {
	cache, err := lru.New[table.Group, V](size)
	if err != nil {
		panic("limiter: " + err.Error()) // of a size below 1
	}
	return cache
}

// Acquire takes tokens of an entity's limits on a resource, all or none. Where the
// entity cascades, its parent gives the same of the limits that it has; if either
// has too little, neither gives anything. The lease reconciles what was really used.
// A use whose lease is left alone counts as it was taken.
//
// Acquire fails with
//   - a *Rejection where a limit has too little,
//   - ErrDisabled, limits.ErrUndefined, ErrAmount, limits.ErrName or
//     limits.ErrContended, which say what is wrong,
//   - an *Unavailable where the table cannot be reached and OnUnavailable is Block,
//   - any other error that keeps the table from being used, such as a missing
//     permission or a malformed item. No OnUnavailable covers those.
func (l *Limiter) Acquire(ctx context.Context, entity, resource string, amounts Amounts) (*Lease, error) {
	demand, err := checkedDemand(entity, resource, amounts)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil { // nothing is asked, so nothing is unavailable
		return nil, fmt.Errorf("acquire: %w", err)
	}
	now := l.store.Now()
	group := table.Group{Namespace: l.store.Namespace(), Entity: entity, Resource: resource}
	lease := &Lease{limiter: l, counted: true}
	own, err := l.draw(ctx, group, demand, false, now)
	if err != nil {
		return l.refused(ctx, err)
	}
	lease.charges = append(lease.charges, own)
	parent, cascades := own.parent()
	if !cascades {
		return lease, nil
	}
	group.Entity = parent
	above, err := l.draw(ctx, group, demand, true, now)
	if err != nil {
		if errors.Is(err, limits.ErrUndefined) {
			err = fmt.Errorf("the parent: %w", err)
		}
		return l.refused(ctx, errors.Join(err, lease.undo(ctx)))
	}
	if above != nil {
		lease.charges = append(lease.charges, above)
	}
	return lease, nil
}

// refused returns what becomes of a use that failed.
func (l *Limiter) refused(ctx context.Context, err error) (*Lease, error) {
	var rejection *Rejection
	switch {
	case errors.As(err, &rejection), !errors.Is(err, table.ErrRetry), errors.Is(ctx.Err(), context.Canceled):
		return nil, err
	case l.unreachable == Allow && !errors.Is(err, table.ErrThrottled):
		return &Lease{limiter: l}, nil
	}
	return nil, &Unavailable{err}
}

// checkedDemand checks what a use asks for and returns it in millitokens.
func checkedDemand(entity, resource string, amounts Amounts) (quota.Demand, error) {
	if err := limits.For(entity, resource).Check(); err != nil {
		return nil, err
	}
	if len(amounts) == 0 {
		return nil, fmt.Errorf("%w: none is asked for", ErrAmount)
	}
	demand := quota.Demand{}
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		if amount := amounts[name]; amount < 0 || amount > maxAmount {
			return nil, fmt.Errorf("%w: %.80s: %d is not within 0 and %d", ErrAmount, name, amount, int64(maxAmount))
		}
		if name == quota.WriteMeter {
			return nil, fmt.Errorf("%w: %s is the meter of an item's writes", limits.ErrUndefined, name)
		}
		demand[name] = amounts[name] * 1000
	}
	return demand, nil
}
