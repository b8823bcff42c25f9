package proof_test

import (
	"fmt"

	"github.com/shardquota/shardquota/internal/explore"
	"github.com/shardquota/shardquota/table"
)

// claims compare what a Limiter says it holds of q with what its requests did to
// the table, millitokens: of acme's buckets, and of its parent's.
type claims struct {
	said      int64 // by what its calls returned
	low, high int64 // by which calls under way, or that failed, may have changed it
	done      [2]int64
	begun     bool // a call is under way
}

// begin is that a call begins that takes from low to high.
func (c *claims) begin(low, high int64) {
	c.low, c.high, c.begun = c.low+low, c.high+high, true
}

// end is that it has returned; known is false where it may have done anything
// of what it was to do.
func (c *claims) end(low, high int64, known bool, said int64) {
	if c.begun = false; known {
		c.low, c.high = c.low-low, c.high-high
	}
	c.said += said
}

func (c *claims) check() string {
	for i, done := range c.done {
		if i == 1 && !c.cascades() {
			continue
		}
		if done < c.said+c.low || done > c.said+c.high {
			return fmt.Sprintf(" says it took %s, and %s was taken%s", tokens(c.said), tokens(done), []string{"", " of the parent"}[i])
		}
	}
	return ""
}

func (c *claims) cascades() bool { return c.done[1] != 0 }

func (c *claims) digest() explore.Digest {
	return explore.Digest(0).Add(uint64(c.said), uint64(c.low), uint64(c.high), uint64(c.done[0]), uint64(c.done[1]), flag(c.begun))
}

// consumed notes what a request of a Limiter's consumed.
func (u *user) consumed(before, after *table.Bucket) {
	level := 0
	if after.Key.Group != acme {
		level = 1
	}
	u.claims.done[level] += after.Limit("q").Consumed - before.Limit("q").Consumed
}

// took notes what a use took of q, by a clock that says now.
func (k *books) took(u *user, before, after *table.Bucket, now int64) {
	u.consumed(before, after)
	l := after.Limit("q")
	amount := before.Limit("q").Balance - l.Balance
	if amount != 0 && !l.Current(after.RefilledAt, now) {
		k.note("shard %d was spent from at %s, which is not of its period", after.Shard, clock(now))
	}
	k.spend(u, after, amount)
	if now < l.Soft {
		k.owe(after, amount)
	}
}

func (k *books) spend(u *user, after *table.Bucket, amount int64) {
	who := spender{u.name, after.Shard, periodOf(after)}
	k.spent[who] += amount
	k.admitted[who.period] += amount
	if k.spent[who] < 0 {
		k.note("%s gave shard %d back %s more than it took of it in the period", u.name, after.Shard, tokens(-k.spent[who]))
	}
}

// owe notes what was taken though it was not there.
func (k *books) owe(after *table.Bucket, amount int64) {
	k.owed[periodOf(after)] += max(0, min(amount, -after.Limit("q").Balance))
}

// settled notes what was used beyond what was taken, or given back.
func (k *books) settled(u *user, before, after *table.Bucket) {
	u.consumed(before, after)
	amount := before.Limit("q").Balance - after.Limit("q").Balance
	if used := after.Limit("q").Consumed - before.Limit("q").Consumed; amount < 0 && amount < used {
		k.note("shard %d got %s back of %s", after.Shard, tokens(-amount), tokens(-used))
	}
	k.spend(u, after, amount)
	k.owe(after, amount)
}

// founded notes a shard 0 that was made where there was none.
func (k *books) founded(after *table.Bucket) {
	switch balance := after.Limit("q").Balance; balance {
	case 0:
	case shareOf(after, after.ShardCount):
		k.grant(after, after.ShardCount)
	default:
		k.note("shard %d of %d was made with %s", after.Shard, after.ShardCount, tokens(balance))
	}
}
