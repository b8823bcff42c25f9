package limiter

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// DefaultNamespace is the namespace that the layout's programs use unless told.
const DefaultNamespace = "default"

// Amounts are tokens by limit name.
type Amounts map[string]int64

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
	table     table.Client
	namespace string // its id
	limits    map[string][]Limit
	fallback  []Limit
	settings

	configs configs
	seen    *lru.Cache[table.Group, sighting]
	short   *lru.Cache[table.Group, *shortage]
}

// settings are what options set.
type settings struct {
	now         func() time.Time
	unreachable Unreachable
	draws       int
	pickOf      func(n int) int // draws one of n shards
	atOnce      int             // how many requests of one call are made at once
	remember    int
	keep        time.Duration
	name        string // of the namespace
	id          string // of the namespace, if it is known
	declared    []declaration
}

type declaration struct {
	resource string // "" for all
	limits   []Limit
}

// An Option changes how a Limiter works.
type Option func(*settings)

// Namespace has the Limiter work in the namespace of a name, which is registered
// if it is not yet. Unless told it is DefaultNamespace.
func Namespace(name string) Option { return func(s *settings) { s.name = name } }

// NamespaceID has the Limiter work in the namespace of an id, and look up no name.
func NamespaceID(id string) Option { return func(s *settings) { s.id = id } }

// Limits are those of a resource where none are stored at any level; "" is every
// resource without limits of its own here. A bucket on which one is missing or
// another is given these when the Limiter first meets it, so that a new version of
// a program brings its own. Limits that other programs declare stay on it.
func Limits(resource string, limits ...Limit) Option {
	return func(s *settings) { s.declared = append(s.declared, declaration{resource, limits}) }
}

// OnUnavailable says what becomes of uses while DynamoDB cannot be reached: Block
// unless told. A use that DynamoDB throttles is never admitted by it: a customer
// who asks too often would let himself in. New itself looks the namespace up, and
// fails where that is not possible; by NamespaceID it need not.
func OnUnavailable(answer Unreachable) Option { return func(s *settings) { s.unreachable = answer } }

// ShardAttempts is how many different shards a use asks at most before it is rejected; 1
// unless told. Each costs a write unit, and an entity whose last tokens are on
// few of its shards is rejected less early.
func ShardAttempts(n int) Option { return func(s *settings) { s.draws = n } }

// Clock has the Limiter ask for the time there instead of the system.
func Clock(now func() time.Time) Option { return func(s *settings) { s.now = now } }

// Deterministic has a Limiter do the same wherever it is told the same: it draws
// shards by what pick returns, a number from 0 to n-1, and makes one request at a
// time. It is for tests and simulations.
func Deterministic(pick func(n int) int) Option {
	return func(s *settings) { s.pickOf, s.atOnce = pick, 1 }
}

// ConfigCache is how long what is stored of limits is kept; a minute unless
// told. Buckets carry their limits: only what has no bucket yet looks here.
func ConfigCache(keep time.Duration) Option { return func(s *settings) { s.keep = keep } }

// remembered is how many groups' shard counts, and how many levels' limits, a
// Limiter remembers.
const remembered = 100_000

// requestsAtOnce bounds how many shards are told of a window at once, and how
// many groups a change is brought to.
const requestsAtOnce = 8

// New returns a Limiter over a table. It looks the namespace up, unless its id
// is given.
func New(ctx context.Context, t table.Client, options ...Option) (*Limiter, error) {
	s := settings{
		now: time.Now, draws: 1, pickOf: rand.IntN, atOnce: requestsAtOnce,
		remember: remembered, keep: time.Minute, name: DefaultNamespace,
	}
	for _, option := range options {
		option(&s)
	}
	l := &Limiter{table: t, namespace: s.id, limits: map[string][]Limit{}, settings: s}
	if err := l.declare(s.declared); err != nil {
		return nil, err
	}
	if s.draws < 1 {
		return nil, fmt.Errorf("limiter: %d draws", s.draws)
	}
	l.configs = newConfigs(t, s.keep, s.remember)
	seen, err := lru.New[table.Group, sighting](s.remember)
	if err != nil {
		return nil, fmt.Errorf("limiter: %w", err)
	}
	l.seen = seen
	if l.short, err = lru.New[table.Group, *shortage](shortRemembered); err != nil {
		return nil, fmt.Errorf("limiter: %w", err)
	}
	if l.namespace == "" {
		if l.namespace, err = l.lookUp(ctx, s.name); err != nil {
			return nil, fmt.Errorf("look up the namespace: %w", err)
		}
	}
	return l, nil
}

func (l *Limiter) declare(declared []declaration) error {
	for _, d := range declared {
		if err := checkAll(d.limits); err != nil {
			return fmt.Errorf("limits of %q: %w", d.resource, err)
		}
		if d.resource == "" {
			l.fallback = d.limits
			continue
		}
		if !validResource(d.resource) {
			return fmt.Errorf("%w: the resource %.80q", ErrName, d.resource)
		}
		l.limits[d.resource] = d.limits
	}
	return nil
}

// coded are the limits of a resource in the program.
func (l *Limiter) coded(resource string) []Limit {
	if limits, ok := l.limits[resource]; ok {
		return limits
	}
	return l.fallback
}

// Names that are valid, those of the layout.
var (
	entityName   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.\-:@]*$`)
	resourceName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.\-/:]*$`)
)

func validEntity(id string) bool { return len(id) <= 256 && entityName.MatchString(id) }

func validResource(name string) bool { return len(name) <= 64 && resourceName.MatchString(name) }

// Acquire takes tokens of an entity's limits on a resource, all or none. Where
// the entity cascades, its parent gives the same of the limits that it has, or
// neither gives anything. The lease is there to settle what was really used;
// one that is not settled leaves what was taken as used.
//
// It fails with a *Rejection where a limit has too little, with ErrDisabled,
// ErrUndefined, ErrAmount, ErrName or ErrContended, with an *Unavailable where
// the table cannot be reached and OnUnavailable is Block, or with whatever else
// keeps the table from being used, which no OnUnavailable covers: a missing
// permission, a malformed item.
func (l *Limiter) Acquire(ctx context.Context, entity, resource string, amounts Amounts) (*Lease, error) {
	demand, err := l.demand(entity, resource, amounts)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil { // nothing is asked, so nothing is unavailable
		return nil, fmt.Errorf("acquire: %w", err)
	}
	now := l.now()
	group := table.Group{Namespace: l.namespace, Entity: entity, Resource: resource}
	lease := &Lease{limiter: l, counted: true}
	own, err := l.draw(ctx, group, demand, false, now)
	if err != nil {
		return l.refused(ctx, err)
	}
	lease.sides = append(lease.sides, own)
	parent, cascades := own.parent()
	if !cascades {
		return lease, nil
	}
	above, err := l.draw(ctx, table.Group{Namespace: l.namespace, Entity: parent, Resource: resource}, demand, true, now)
	if err != nil {
		if errors.Is(err, ErrUndefined) {
			err = fmt.Errorf("the parent: %w", err)
		}
		return l.refused(ctx, errors.Join(err, lease.undo(ctx)))
	}
	if above != nil {
		lease.sides = append(lease.sides, above)
	}
	return lease, nil
}

// refused is what becomes of a use that failed.
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

// demand checks what a use asks for and returns it in millitokens.
func (l *Limiter) demand(entity, resource string, amounts Amounts) (quota.Demand, error) {
	if !validEntity(entity) {
		return nil, fmt.Errorf("%w: the entity's id: one has up to 256 letters, digits and _ . - : @, a letter or digit first", ErrName)
	}
	if !validResource(resource) {
		return nil, fmt.Errorf("%w: the resource %.80q: one has up to 64 letters, digits and _ . - / : with a letter first", ErrName, resource)
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
			return nil, fmt.Errorf("%w: %s is the meter of an item's writes", ErrUndefined, name)
		}
		demand[name] = amounts[name] * 1000
	}
	return demand, nil
}
