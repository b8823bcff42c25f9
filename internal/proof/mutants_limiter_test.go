package proof_test

import (
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// timeless are the changes that have a use's pass written whatever passes came
// before it.
var timeless = each(
	dropping("use", table.AttrRefilledAt, table.AttrValidUntil),
	on("use", func(w *table.Write, stored table.Item) {
		dropAtMost(w)
		risingTime(w, stored)
	}))

// dropAtMost drops what a write requires balances not to exceed.
func dropAtMost(w *table.Write) {
	var kept []table.Condition
	for _, c := range w.Require {
		if c.Op != table.AtMost || !mentions(c, []string{string(table.FieldBalance)}) {
			kept = append(kept, c)
		}
	}
	w.Require = kept
}

// lifting is that everything given back is lifted onto the balance of which it is
// said so.
func lifting(lifts func(a quota.Adjustment) bool) func([]quota.Adjustment) {
	return func(adjustments []quota.Adjustment) {
		for i, a := range adjustments {
			if a.Consumed < 0 && lifts(a) {
				adjustments[i].Balance, adjustments[i].Max = -a.Consumed, nil
			}
		}
	}
}

// limiterMutants are rules that the Go client goes by, left out.
var limiterMutants = []mutant{
	{
		name: "a limiter's creation: no pin on the count", says: "was granted slot",
		in: "a limiter creates shard 1 of 2 while another doubles to 4 and creates", write: unpinned,
	},
	{
		name: "a limiter's creation: no pin on the terms", says: "other terms",
		in: "an operator lowers the limit while a limiter creates", creation: unbound,
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
		creation: func(c *table.Creation) {
			for i := range c.Moves {
				c.Moves[i].Amount += 500
				c.Bucket.Limit(c.Moves[i].Limit).Balance += 500
			}
			c.Bucket.Fill()
		},
	},
	{
		name: "a limiter's move: the donor's guard", says: "another period",
		in: "a limiter whose clock is behind midnight, and one that is past it", write: anyGrant,
	},
	{
		name: "a take whatever the balance is", says: "was admitted",
		in: "limiters take the last tokens while one doubles", write: dropping("charge", string(table.FieldBalance)),
	},
	{
		name: "a use whatever the balance has become", says: "was admitted",
		in:    "the last tokens of a shard are moved off, settled and taken",
		write: on("use", dropAtLeast),
	},
	{
		name: "a use without a condition on rf", says: "was granted slot",
		in: "what was taken before midnight is settled after it", write: timeless,
	},
	{
		name: "a use without its count condition", says: "was granted slot",
		in: "a limiter restores a sibling while another creates its slot", write: dropping("use", table.AttrShardCount),
	},
	{
		name: "a use without a condition on vu and terms", says: "its ceiling",
		in:    "an operator of another program changes the limit of a shard that is just looked at",
		write: keeping("use", table.AttrRefilledAt, table.AttrShardCount, string(table.FieldBalance)),
	},
	{
		name: "given back whatever period it was taken in", says: "more than it took",
		in:     "what was taken before midnight is settled after it",
		adjust: lifting(func(a quota.Adjustment) bool { return a.Balance == 0 }),
	},
	{
		name: "given back whatever the last pass has become", says: "more than it took",
		in:    "what was taken before midnight is settled after it",
		write: keeping("reconcile", string(table.FieldBalance)),
	},
	{
		name: "given back above the ceiling", says: "its ceiling",
		in:     "an operator lowers the limit while tokens are settled",
		adjust: lifting(func(quota.Adjustment) bool { return true }),
	},
	{
		name: "no grant stamped where a window is opened", says: "its grant is of",
		in:    "two limiters open a window on two shards",
		write: unset("use", func(name string) bool { return name == table.Attr("q", table.FieldGrant) }),
	},
	{
		name: "told of a window whatever the own one is", says: "is there or was used",
		in:    "two limiters open a window on two shards",
		write: dropping("propagate window", string(table.FieldStart)),
	},
	{
		name: "a limiter's doubling: no grant frozen", says: "was granted slot",
		in: "a legacy shard 0 is doubled by a limiter while others use it", write: unfrozen,
	},
	{
		name: "nothing given back where the parent gives nothing", says: "says it took",
		in: "two limiters take the last of a parent's tokens",
		write: on("reconcile", func(w *table.Write, _ table.Item) {
			w.Require, w.Add = w.Require[:1], nil
		}),
	},
	{
		name: "no grant stamped where a limit becomes a quota", says: "is held",
		in:    "a limit that drips becomes a quota while the count doubles and a limiter creates",
		write: unset("amend", func(name string) bool { return name == table.Attr("come", table.FieldGrant) }),
	},
	{
		name: "a donor keeps what it holds above its ceiling", says: "is held",
		in: "a limit that drips becomes a quota while the count doubles and a limiter creates",
		creation: func(c *table.Creation) {
			for i, move := range c.Moves {
				c.Moves[i].Amount = c.Bucket.Limit(move.Limit).Balance
			}
		},
	},
}

// dropAtLeast drops what a write requires balances to be at least.
func dropAtLeast(w *table.Write, _ table.Item) {
	var kept []table.Condition
	for _, c := range w.Require {
		if c.Op != table.AtLeast {
			kept = append(kept, c)
		}
	}
	w.Require = kept
}

// gatherMutants are rules of gathering, left out.
var gatherMutants = []mutant{
	{
		name: "what is gathered is taken shard by shard", says: "is there or was used",
		in: "limiters gather the last tokens of two shards while others take them", piecemeal: true,
	},
	{
		name: "gathered whatever the balances have become", says: "was admitted",
		in: "limiters gather the last tokens of two shards while others take them", write: on("use", dropAtLeast),
	},
	{
		name: "gathered without a condition on rf", says: "was granted slot",
		in: "a limiter gathers across midnight while a sibling is restored", write: timeless,
	},
}
