package proof_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/internal/explore"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/memory"
)

// mutant is a rule left out, or nothing.
type mutant struct {
	name string
	in   string // the scenario that finds it
	says string // part of what is found wrong

	table       func(w *world) table.Client
	raise       raiseRule
	siblings    func(siblings []table.Sibling, now int64)
	mark        func(label, sequence string) (string, error)
	lastFailure bool // a batch is delivered again from its last failure
}

type raiseRule int

const (
	raisedFirst raiseRule = iota
	neverRaised
	raisedLate // images are from before the raise
	notFrozen  // legacy grants are left as they are
)

// unruly is a table that changes what is asked of it.
type unruly struct {
	*memory.Client
	pass   func(t *memory.Store, b *table.Bucket, pass *quota.Pass) (table.PassResult, error)
	create func(t *memory.Store, c table.Creation) (table.CreationOutcome, error)
	usage  func(t *memory.Store, usage table.Usage) (table.UsageResult, error)
	freeze func() error

	take   func(t *memory.Client, key table.Key, take table.FastCharge) (table.WriteResult, error)
	use    func(t *memory.Client, b *table.Bucket, use *quota.Use) (table.WriteResult, error)
	useAll func(t *memory.Client, uses []table.PlannedUse) (bool, error)
	settle func(t *memory.Client, b *table.Bucket, corrections []quota.Adjustment) (table.WriteResult, error)
	tell   func(t *memory.Client, key table.Key, window table.OpenedWindow) (bool, error)
	amend  func(t *memory.Client, pk, sk string, amendment table.Amendment) (table.WriteResult, error)
}

func (u unruly) Pass(ctx context.Context, b *table.Bucket, pass *quota.Pass) (table.PassResult, error) {
	if u.pass == nil {
		return u.Store.Pass(ctx, b, pass)
	}
	return u.pass(u.Store, b, pass)
}

func (u unruly) Create(ctx context.Context, c table.Creation) (table.CreationOutcome, error) {
	if u.create == nil {
		return u.Store.Create(ctx, c)
	}
	return u.create(u.Store, c)
}

func (u unruly) AddUsage(ctx context.Context, usage table.Usage) (table.UsageResult, error) {
	if u.usage == nil {
		return u.Store.AddUsage(ctx, usage)
	}
	return u.usage(u.Store, usage)
}

func (u unruly) Freeze(ctx context.Context, key table.Key, freezes []quota.Freeze) error {
	if u.freeze == nil {
		return u.Store.Freeze(ctx, key, freezes)
	}
	return u.freeze()
}

// table makes an unruly table a mutant's.
func (u unruly) table(w *world) table.Client {
	u.Client = w.mem.Client()
	return u
}

// as does something to a shard as if it had other attributes, and gives it back
// those it has.
func as[T any](t *memory.Store, shard int, other attrs, do func() (T, error)) (T, error) {
	item := t.Get(acme.At(shard).PK(), table.StateSK)
	back := attrs{}
	for name := range other {
		back[name] = item[name]
		if item[name] == nil {
			back[name] = nil
		}
	}
	t.Put(build(item, other))
	result, err := do()
	t.Put(build(t.Get(acme.At(shard).PK(), table.StateSK), back))
	return result, err
}

var bg = context.Background()

// Tables that several mutants have.
var (
	unpinned = unruly{create: func(t *memory.Store, c table.Creation) (table.CreationOutcome, error) {
		return as(t, 0, count(c.Bucket.ShardCount), func() (table.CreationOutcome, error) { return t.Create(bg, c) })
	}}.table
	unbound = unruly{create: func(t *memory.Store, c table.Creation) (table.CreationOutcome, error) {
		c.ConfigAttrs = nil
		return t.Create(bg, c)
	}}.table
	unfrozen = unruly{freeze: func() error { return nil }}.table
	anyGrant = unruly{create: func(t *memory.Store, c table.Creation) (table.CreationOutcome, error) {
		for i, move := range c.Moves {
			stored, _ := t.Read(bg, acme.At(move.Donor))
			c.Moves[i].Guard.Grant = *stored.Limit(move.Limit).Grant
		}
		return t.Create(bg, c)
	}}.table
)

// mutants are the rules that the search has to miss when they are left out.
var mutants = []mutant{
	{
		name: "no pin on shard 0's count", in: "a shard is created at 2 while the count doubles to 4", says: "was granted slot",
		table: unpinned,
	},
	{
		name: "no pin on shard 0's terms", in: "an operator lowers the limit while shards are created", says: "other terms",
		table: unbound,
	},
	{
		name: "no raise", in: "a sibling is restored while its slot is created", says: "was granted slot",
		raise: neverRaised,
	},
	{
		name: "siblings read before they are raised", in: "a sibling is restored while its slot is created", says: "was granted slot",
		raise: raisedLate,
	},
	{
		name: "legacy grants not frozen by a raise", in: "legacy siblings are raised", says: "was granted slot",
		raise: notFrozen,
	},
	{
		name: "shard 0's legacy grant not frozen", in: "a legacy shard 0, half spent, is doubled", says: "was granted slot",
		table: unfrozen,
	},
	{
		name: "a pass without a condition on rf", in: "midnight passes while shards are created and used", says: "was granted slot",
		table: unruly{pass: func(t *memory.Store, b *table.Bucket, pass *quota.Pass) (table.PassResult, error) {
			stored, _ := t.Read(bg, b.Key)
			free := *pass
			free.Exact, free.ExpectRefilledAt = false, stored.RefilledAt
			free.RefilledAt = max(pass.RefilledAt, stored.RefilledAt+1)
			return t.Pass(bg, b, &free)
		}}.table,
	},
	{
		name: "a reset without its count condition", in: "a sibling is restored while its slot is created", says: "was granted slot",
		table: unruly{pass: func(t *memory.Store, b *table.Bucket, pass *quota.Pass) (table.PassResult, error) {
			return as(t, b.Shard, count(pass.ShardCount), func() (table.PassResult, error) { return t.Pass(bg, b, pass) })
		}}.table,
	},
	{
		name: "a pass without a condition on the balance", in: "refunds and spending on both sides of midnight", says: "without a restore",
		table: unruly{pass: func(t *memory.Store, b *table.Bucket, pass *quota.Pass) (table.PassResult, error) {
			free := *pass
			free.Exact, free.Changes = false, nil
			for _, c := range pass.Changes {
				c.Max = nil
				free.Changes = append(free.Changes, c)
			}
			return t.Pass(bg, b, &free)
		}}.table,
	},
	{
		name: "a pass without a condition on vu and terms", in: "an operator changes the limit twice", says: "its ceiling",
		table: unruly{pass: func(t *memory.Store, b *table.Bucket, pass *quota.Pass) (table.PassResult, error) {
			free := *pass
			stored, _ := t.Read(bg, b.Key)
			free.ExpectValidUntil = stored.ValidUntil
			return t.Pass(bg, stored, &free)
		}}.table,
	},
	{
		name: "rf moved without materialising all limits", in: "a dripping limit beside a quota that is restored", says: "of what rpm had gained",
		table: unruly{pass: func(t *memory.Store, b *table.Bucket, pass *quota.Pass) (table.PassResult, error) {
			some := *pass
			some.Changes = nil
			for _, c := range pass.Changes {
				if c.Restore {
					some.Changes = append(some.Changes, c)
				}
			}
			return t.Pass(bg, b, &some)
		}}.table,
	},
	{
		name: "a stale donor", in: "midnight passes while shards are created and used", says: "another period",
		siblings: func(siblings []table.Sibling, now int64) {
			for _, s := range siblings {
				if s.Bucket != nil {
					s.Bucket.RefilledAt = max(s.Bucket.RefilledAt, now)
				}
			}
		},
		table: unruly{create: func(t *memory.Store, c table.Creation) (table.CreationOutcome, error) {
			for i := range c.Moves {
				c.Moves[i].Guard.RefilledAt = 0
			}
			return t.Create(bg, c)
		}}.table,
	},
	{
		name: "a donor's grant not compared", in: "a batch from before the edge and a client after it", says: "another period",
		table: anyGrant,
	},
	{
		name: "a mint beside a donor", in: "the aggregator and a client create the same shards", says: "was granted slot",
		table: unruly{create: func(t *memory.Store, c table.Creation) (table.CreationOutcome, error) {
			c.Moves = nil
			return t.Create(bg, c)
		}}.table,
	},
	{
		name: "a restore of half", in: "a sibling is restored while its slot is created", says: "was restored to",
		table: unruly{pass: func(t *memory.Store, b *table.Bucket, pass *quota.Pass) (table.PassResult, error) {
			half := *pass
			half.Changes = slices.Clone(pass.Changes)
			for i := range half.Changes {
				if half.Changes[i].Restore {
					half.Changes[i].Delta /= 2
				}
			}
			return t.Pass(bg, b, &half)
		}}.table,
	},
	{
		name: "a new shard with a token too much", in: "a shard is created at 2 while the count doubles to 4", says: "of nothing",
		table: unruly{create: func(t *memory.Store, c table.Creation) (table.CreationOutcome, error) {
			c.Bucket.Limit("q").Balance += 1000
			c.Bucket.Fill()
			return t.Create(bg, c)
		}}.table,
	},
	{
		name: "rf put back by a creation", in: "a shard is created at 2 while the count doubles to 4", says: "rf of shard 0 fell",
		table: unruly{create: func(t *memory.Store, c table.Creation) (table.CreationOutcome, error) {
			outcome, err := t.Create(bg, c)
			zero, _ := t.Read(bg, acme.At(0))
			t.Put(build(zero.Item, refilled(zero.RefilledAt-1)))
			return outcome, err
		}}.table,
	},
	{
		name: "a count put down by a creation", in: "a shard is created at 2 while the count doubles to 4", says: "is not in the period",
		table: unruly{create: func(t *memory.Store, c table.Creation) (table.CreationOutcome, error) {
			outcome, err := t.Create(bg, c)
			t.Put(build(t.Get(acme.At(0).PK(), table.StateSK), count(1)))
			return outcome, err
		}}.table,
	},
	{
		name: "no mark set", in: "a batch is delivered again, in halves", says: "is counted",
		table: unruly{usage: func(t *memory.Store, usage table.Usage) (table.UsageResult, error) {
			result, err := t.AddUsage(bg, usage)
			item := t.Get(usage.Key.PK(), usage.Key.SK())
			for _, source := range usage.Sources {
				delete(item, table.PositionAttr(source.Shard))
				delete(item, table.RangesAttr(source.Shard))
			}
			t.Put(item)
			return result, err
		}}.table,
	},
	{
		name: "a mark without the stream, a number", in: "the stream is made anew", says: "is counted",
		mark: func(_, sequence string) (string, error) { return events.StreamPosition("", sequence) },
	},
	{
		name: "a mark that is not padded", in: "a batch is discarded and driven again later", says: "is counted",
		mark: func(label, sequence string) (string, error) { return label + "/" + sequence, nil },
	},
	{
		name: "the lowest failure not reported", in: "an hour ends while the table is down", says: "is counted",
		lastFailure: true,
	},
	{
		name: "the gap of a discarded batch not kept", in: "a batch is discarded and driven again later", says: "is counted",
		table: unruly{usage: func(t *memory.Store, usage table.Usage) (table.UsageResult, error) {
			for i := range usage.Sources {
				next := usage.Sources[i].Next
				usage.Sources[i].Next = table.SeenRecords{{First: next[0].First, Last: next[len(next)-1].Last}}
			}
			return t.AddUsage(bg, usage)
		}}.table,
	},
}

// Each rule is needed: without it some order is found to be wrong.
func TestMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds, which -short leaves out")
	}
	table, stories := "", ""
	for _, m := range slices.Concat(mutants, limiterMutants, gatherMutants) {
		r := scenarioOf(t, m.in).search(m, explore.Options{})
		if r.Wrong == "" || !strings.Contains(r.Wrong, m.says) {
			t.Errorf("%s: not found in %d schedules: %s", m.name, r.Schedules, story(r))
			continue
		}
		table += fmt.Sprintf("\n%-50s found after %4d schedules, by %2d lines in: %s", m.name, r.Schedules, len(r.Schedule), m.in)
		stories += fmt.Sprintf("\n\n%s: %s", m.name, story(r))
	}
	t.Log(table + stories)
}
