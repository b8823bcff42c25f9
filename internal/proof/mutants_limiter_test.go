package proof_test

import (
	"context"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/memory"
)

func (u unruly) Charge(ctx context.Context, key table.Key, take table.FastCharge) (table.WriteResult, error) {
	if u.take == nil {
		return u.Client.Charge(ctx, key, take)
	}
	return u.take(u.Client, key, take)
}

func (u unruly) Use(ctx context.Context, b *table.Bucket, use *quota.Use, expires int64) (table.WriteResult, error) {
	if u.use == nil {
		return u.Client.Use(ctx, b, use, expires)
	}
	return u.use(u.Client, b, use)
}

func (u unruly) Reconcile(ctx context.Context, b *table.Bucket, corrections []quota.Adjustment) (table.WriteResult, error) {
	if u.settle == nil {
		return u.Client.Reconcile(ctx, b, corrections)
	}
	return u.settle(u.Client, b, corrections)
}

func (u unruly) PropagateWindow(ctx context.Context, key table.Key, window table.OpenedWindow) (bool, error) {
	if u.tell == nil {
		return u.Client.PropagateWindow(ctx, key, window)
	}
	return u.tell(u.Client, key, window)
}

func (u unruly) Amend(ctx context.Context, pk, sk string, amendment table.Amendment) (table.WriteResult, error) {
	if u.amend == nil {
		return u.Client.Amend(ctx, pk, sk, amendment)
	}
	return u.amend(u.Client, pk, sk, amendment)
}

// using is a table that changes a use before it is written.
func using(change func(t *memory.Client, b *table.Bucket, use *quota.Use)) func(*world) table.Client {
	return unruly{use: func(t *memory.Client, b *table.Bucket, use *quota.Use) (table.WriteResult, error) {
		pass := *use.Pass
		other := &quota.Use{Pass: &pass, Charges: append([]quota.Charge(nil), use.Charges...)}
		pass.Changes = append([]quota.Change(nil), use.Changes...)
		change(t, b, other)
		return t.Use(bg, b, other, 0)
	}}.table
}

// lifting is a table on which everything given back is lifted onto the balance
// of which it is said so.
func lifting(lifts func(c quota.Adjustment) bool) func(*world) table.Client {
	return unruly{settle: func(t *memory.Client, b *table.Bucket, corrections []quota.Adjustment) (table.WriteResult, error) {
		free := append([]quota.Adjustment(nil), corrections...)
		for i, c := range free {
			if c.Consumed < 0 && lifts(c) {
				free[i].Balance, free[i].Max = -c.Consumed, nil
			}
		}
		return t.Reconcile(bg, b, free)
	}}.table
}

// limiterMutants are rules that the Go client goes by, left out.
var limiterMutants = []mutant{
	{
		name: "a limiter's creation: no pin on the count", says: "was granted slot",
		in: "a limiter creates shard 1 of 2 while another doubles to 4 and creates", table: unpinned,
	},
	{
		name: "a limiter's creation: no pin on the terms", says: "other terms",
		in: "an operator lowers the limit while a limiter creates", table: unbound,
	},
	{
		name: "a limiter's creation: no raise", says: "was granted slot",
		in: "a limiter restores a sibling while another creates its slot", raise: neverRaised,
	},
	{
		name: "a limiter's creation: read before the raise", says: "was granted slot",
		in: "a limiter restores a sibling while another creates its slot", raise: raisedLate,
	},
	{
		name: "shard 0 made anew beside siblings that lag", says: "was granted slot",
		in: "shard 0 has expired, and a sibling is restored while it is made", raise: neverRaised,
	},
	{
		name: "a limiter's move: parts of tokens", says: "a part of a token",
		in: "two limiters create the same shard while its donor is spent from",
		table: unruly{create: func(t *memory.Store, c table.Creation) (table.CreationOutcome, error) {
			for i, move := range c.Moves {
				donor, _ := t.Read(bg, acme.At(move.Donor))
				l := donor.Limit(move.Limit)
				c.Moves[i].Amount = min(quota.Share(l.Base.Capacity, c.Bucket.ShardCount), l.Balance)
				c.Bucket.Limit(move.Limit).Balance = c.Moves[i].Amount
			}
			c.Bucket.Fill()
			return t.Create(bg, c)
		}}.table,
	},
	{
		name: "a limiter's move: the donor's guard", says: "another period",
		in: "a limiter whose clock is behind midnight, and one that is past it", table: anyGrant,
	},
	{
		name: "a take whatever the balance is", says: "was admitted",
		in: "limiters take the last tokens while one doubles",
		table: unruly{take: func(t *memory.Client, key table.Key, take table.FastCharge) (table.WriteResult, error) {
			if t.Get(key.PK(), table.StateSK) == nil {
				return t.Charge(bg, key, take)
			}
			return as(t.Store, key.Shard, attrs{"b_q_soft": noon + hour}, func() (table.WriteResult, error) { return t.Charge(bg, key, take) })
		}}.table,
	},
	{
		name: "a use whatever the balance has become", says: "was admitted",
		in: "the last tokens of a shard are moved off, settled and taken",
		table: using(func(_ *memory.Client, _ *table.Bucket, use *quota.Use) {
			for i := range use.Charges {
				use.Charges[i].Least = nil
			}
		}),
	},
	{
		name: "a use without a condition on rf", says: "was granted slot",
		in: "what was taken before midnight is settled after it",
		table: using(func(t *memory.Client, b *table.Bucket, use *quota.Use) {
			now, _ := t.Read(bg, b.Key)
			use.ExpectRefilledAt, use.ExpectValidUntil = now.RefilledAt, now.ValidUntil
			use.RefilledAt = max(use.RefilledAt, now.RefilledAt+1)
			for i := range use.Changes {
				use.Changes[i].Max = nil
			}
		}),
	},
	{
		name: "a use without its count condition", says: "was granted slot",
		in: "a limiter restores a sibling while another creates its slot",
		table: unruly{use: func(t *memory.Client, b *table.Bucket, use *quota.Use) (table.WriteResult, error) {
			return as(t.Store, b.Shard, count(use.ShardCount), func() (table.WriteResult, error) { return t.Use(bg, b, use, 0) })
		}}.table,
	},
	{
		name: "a use without a condition on vu and terms", says: "its ceiling",
		in: "an operator of another program changes the limit of a shard that is just looked at",
		table: unruly{use: func(t *memory.Client, b *table.Bucket, use *quota.Use) (table.WriteResult, error) {
			now, _ := t.Read(bg, b.Key)
			other := *use.Pass
			other.ExpectValidUntil = now.ValidUntil
			return t.Use(bg, now, &quota.Use{Pass: &other, Charges: use.Charges}, 0)
		}}.table,
	},
	{
		name: "given back whatever period it was taken in", says: "more than it took",
		in:    "what was taken before midnight is settled after it",
		table: lifting(func(c quota.Adjustment) bool { return c.Balance == 0 }),
	},
	{
		name: "given back whatever the last pass has become", says: "more than it took",
		in: "what was taken before midnight is settled after it",
		table: unruly{settle: func(t *memory.Client, b *table.Bucket, corrections []quota.Adjustment) (table.WriteResult, error) {
			now, _ := t.Read(bg, b.Key)
			return t.Reconcile(bg, now, corrections)
		}}.table,
	},
	{
		name: "given back above the ceiling", says: "its ceiling",
		in:    "an operator lowers the limit while tokens are settled",
		table: lifting(func(quota.Adjustment) bool { return true }),
	},
	{
		name: "no grant stamped where a window is opened", says: "its grant is of",
		in: "two limiters open a window on two shards",
		table: unruly{use: func(t *memory.Client, b *table.Bucket, use *quota.Use) (table.WriteResult, error) {
			taken, err := t.Use(bg, b, use, 0)
			if taken.Applied && len(use.Opens()) > 0 {
				t.Put(build(taken.Item, attrs{"b_q_gc": b.Item["b_q_gc"]}))
			}
			return taken, err
		}}.table,
	},
	{
		name: "told of a window whatever the own one is", says: "is there or was used",
		in: "two limiters open a window on two shards",
		table: unruly{tell: func(t *memory.Client, key table.Key, window table.OpenedWindow) (bool, error) {
			if item := t.Get(key.PK(), table.StateSK); item != nil {
				t.Put(build(item, attrs{"b_q_ws": nil}))
			}
			return t.PropagateWindow(bg, key, window)
		}}.table,
	},
	{
		name: "a limiter's doubling: no grant frozen", says: "was granted slot",
		in: "a legacy shard 0 is doubled by a limiter while others use it", table: unfrozen,
	},
	{
		name: "nothing given back where the parent gives nothing", says: "says it took",
		in: "two limiters take the last of a parent's tokens",
		table: unruly{settle: func(t *memory.Client, b *table.Bucket, _ []quota.Adjustment) (table.WriteResult, error) {
			return table.WriteResult{Applied: true, Item: b.Item}, nil
		}}.table,
	},
	{
		name: "no grant stamped where a limit becomes a quota", says: "is held",
		in: "a limit that drips becomes a quota while the count doubles and a limiter creates",
		table: unruly{amend: func(t *memory.Client, pk, sk string, amendment table.Amendment) (table.WriteResult, error) {
			amendment.Set = build(amendment.Set, attrs{"b_come_gc": nil})
			return t.Amend(bg, pk, sk, amendment)
		}}.table,
	},
	{
		name: "a donor keeps what it holds above its ceiling", says: "is held",
		in: "a limit that drips becomes a quota while the count doubles and a limiter creates",
		table: unruly{create: func(t *memory.Store, c table.Creation) (table.CreationOutcome, error) {
			for i, move := range c.Moves {
				c.Moves[i].Amount = c.Bucket.Limit(move.Limit).Balance
			}
			return t.Create(bg, c)
		}}.table,
	},
}
