package ideal

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/internal/traffic"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/memory"
)

// altered is a table whose passes are changed before they are written.
type altered struct {
	table.Store
	alter func(b *table.Bucket, c *quota.Change, count int)
}

func (a altered) Pass(ctx context.Context, b *table.Bucket, pass *quota.Pass) (table.PassResult, error) {
	changed := *pass
	changed.Changes = nil
	for _, c := range pass.Changes {
		a.alter(b, &c, pass.ShardCount)
		changed.Changes = append(changed.Changes, c)
	}
	return a.Store.Pass(ctx, b, &changed)
}

func alter(how func(b *table.Bucket, c *quota.Change, count int)) mutant {
	return mutant{store: func(t *traffic.Table) table.Store { return altered{t.Store, how} }}
}

// trimming is a table where no shard keeps more of a quota than a share at its
// count.
type trimming struct{ table.Store }

func (t trimming) Pass(ctx context.Context, b *table.Bucket, pass *quota.Pass) (table.PassResult, error) {
	changed := *pass
	changed.Changes = slices.Clone(pass.Changes)
	l := b.Limit(day)
	over := l.Balance - quota.Share(l.Base.Capacity, pass.ShardCount)
	if over > 0 && !slices.ContainsFunc(pass.Changes, func(c quota.Change) bool { return c.Limit == day }) {
		changed.Changes = append(changed.Changes, quota.Change{Limit: day, Read: l.Balance, Delta: -over})
	}
	return t.Store.Pass(ctx, b, &changed)
}

// uncounted is a table that passes a shard whatever its count has become.
type uncounted struct{ *memory.Store }

func (u uncounted) Pass(ctx context.Context, b *table.Bucket, pass *quota.Pass) (table.PassResult, error) {
	item := u.Get(b.Key.PK(), table.StateSK)
	count := item[table.AttrShardCount]
	u.set(b.Key, b.Item[table.AttrShardCount])
	result, err := u.Store.Pass(ctx, b, pass)
	u.set(b.Key, count)
	return result, err
}

func (u uncounted) set(key table.Key, count types.AttributeValue) {
	item := u.Get(key.PK(), table.StateSK)
	item[table.AttrShardCount] = count
	u.Put(item)
}

// unraised is a table that reads siblings and leaves them at their counts.
type unraised struct{ *memory.Store }

func (u unraised) RaiseAndRead(ctx context.Context, group table.Group, count int, _ int64) ([]table.Sibling, error) {
	siblings := make([]table.Sibling, count)
	for shard := range siblings {
		siblings[shard].Bucket, siblings[shard].Broken = u.Read(ctx, group.At(shard))
	}
	return siblings, nil
}

// unfunded is a table where a new shard's quota is not taken off a donor.
type unfunded struct{ table.Store }

func (u unfunded) Create(ctx context.Context, c table.Creation) (table.CreationOutcome, error) {
	c.Moves = nil
	return u.Store.Create(ctx, c)
}

// lavish is a table that gives whatever a balance is.
type lavish struct{ table.Client }

func (l lavish) Charge(ctx context.Context, key table.Key, take table.FastCharge) (table.WriteResult, error) {
	b, err := l.Read(ctx, key)
	if err != nil || b == nil || b.ValidUntil != nil && *b.ValidUntil <= take.Now {
		return l.Client.Charge(ctx, key, take)
	}
	var debits []quota.Adjustment
	for limit, amount := range take.Amounts {
		debits = append(debits, quota.Adjustment{Limit: limit, Consumed: amount, Balance: -amount})
	}
	return l.Reconcile(ctx, b, debits)
}

// unshared is a table on which a use restores a shard to the whole capacity.
type unshared struct{ table.Client }

func (u unshared) Use(ctx context.Context, b *table.Bucket, use *quota.Use) (table.WriteResult, error) {
	pass := *use.Pass
	pass.Changes = slices.Clone(use.Changes)
	for i, c := range pass.Changes {
		if c.Restore {
			pass.Changes[i].Delta = b.Limit(day).Base.Capacity - c.Read
		}
	}
	return u.Client.Use(ctx, b, &quota.Use{Pass: &pass, Charges: use.Charges})
}

// mutants break one rule each. A workload of a kind shows it, by what it is
// found by.
var mutants = []struct {
	name, kind string
	seed       uint64
	found      string
	mutant
}{
	{"a reset whatever the shard count has become", "true clocks", 20, "of the period", mutant{store: func(t *traffic.Table) table.Store { return uncounted{t.Memory} }}},
	{"siblings are not raised", "true clocks", 20, "of the period", mutant{store: func(t *traffic.Table) table.Store { return unraised{t.Memory} }}},
	{"a new shard's quota is not taken off its donor", "true clocks", 0, "of the period", mutant{store: func(t *traffic.Table) table.Store { return unfunded{t.Store} }}},
	{"a refund lifts a balance above its ceiling", "steady and careful", 0, "of a dripping limit", mutant{rules: traffic.Rules{Uncapped: true}}},
	{"a pass takes its writer's time, also backward", "clocks jump", 6, "of the period", mutant{rules: traffic.Rules{Backward: true}}},
	{"what dripped is rounded up", "steady and careful", 0, "of a dripping limit", alter(func(_ *table.Bucket, c *quota.Change, _ int) {
		if c.Limit == rpm && c.Delta > 0 {
			c.Delta++
		}
	})},
	{"a shard refills to the whole capacity", "true clocks", 0, "of a dripping limit", alter(func(b *table.Bucket, c *quota.Change, _ int) {
		if c.Limit == rpm && c.Delta > 0 {
			c.Delta = b.Limit(rpm).Base.Capacity - c.Read
		}
	})},
	{"a shard is restored to the whole capacity", "steady", 1, "was restored to", alter(func(b *table.Bucket, c *quota.Change, _ int) {
		if c.Restore {
			c.Delta = b.Limit(day).Base.Capacity - c.Read
		}
	})},
	{"a pass loses what dripped", "true clocks", 0, "there was room", alter(func(_ *table.Bucket, c *quota.Change, _ int) {
		if c.Limit == rpm && c.Delta > 0 {
			c.Delta = 0
		}
	})},
	{"a quota is trimmed to a share at the count of now", "true clocks", 1, "held", mutant{store: func(t *traffic.Table) table.Store { return trimming{t.Store} }}},
	{"a restore leaves out what rounding does not", "steady", 0, "was restored to", alter(func(_ *table.Bucket, c *quota.Change, _ int) {
		if c.Restore {
			c.Delta--
		}
	})},
	{"a limiter takes whatever a balance is", "limiter", 20, "of the period", mutant{over: func(t table.Client) table.Client { return lavish{t} }}},
	{"a limiter restores a shard to the whole capacity", "limiter, steady", 14, "was restored to", mutant{over: func(t table.Client) table.Client { return unshared{t} }}},
	{"a window's roll is charged what was spent before it", "session", 1, "was restored to", alter(func(b *table.Bucket, c *quota.Change, _ int) {
		if c.Restore && c.Roll != nil {
			c.Delta -= b.Limit(day).Consumed
		}
	})},
}

func TestMutantsAreCaught(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds, which -short leaves out")
	}
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			for _, k := range kinds {
				if k.name != m.kind {
					continue
				}
				steps, wrong := find(k, m.mutant, m.seed, 400)
				if !strings.Contains(wrong, m.found) {
					t.Fatalf("found %q", wrong)
				}
				t.Logf("%s\n%s", wrong, text(steps))
			}
		})
	}
}
