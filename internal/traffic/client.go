package traffic

import (
	"context"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/sharding"
	"github.com/shardquota/shardquota/table"
)

// Client is a program that uses the table, with a clock of its own.
type Client struct {
	Table   *Table
	Now     int64 // what its clock says, epoch ms
	Careful bool  // it brings a bucket up to date before every use
	Rules   Rules
}

// Rules are the rules that a client can be made to break. The zero value keeps
// them all.
type Rules struct {
	Uncapped bool // a refund may lift a balance above its ceiling
	Backward bool // a pass takes the client's time, also where that is before the last pass
}

var background = context.Background()

// Spend takes an amount of a limit off a shard, and reports whether it could. It
// refreshes the bucket first where the bucket must not be used without, or holds
// too little.
func (c Client) Spend(key table.Key, limit string, amount int64) bool {
	b := c.Table.At(key)
	if b == nil {
		c.Create(key)
		if b = c.Table.At(key); b == nil {
			return false
		}
	}
	if valid := b.ValidUntil == nil || *b.ValidUntil > c.Now; c.Careful || !valid || b.Limit(limit).Balance < amount {
		c.Refresh(key)
		b = c.Table.At(key)
	}
	l := b.Limit(limit)
	if l.Balance < amount || l.IsQuota() && !l.Current(b.RefilledAt, c.Now) {
		return false
	}
	l.Balance -= amount
	l.Consumed += amount
	c.write(b)
	return true
}

// Refund gives back what was spent of a shard. It returns how much is lost, since
// a balance may not exceed its ceiling.
func (c Client) Refund(key table.Key, limit string, amount int64) (lost int64) {
	b := c.Table.At(key)
	l := b.Limit(limit)
	params, err := l.Effective(c.Now)
	if err != nil {
		panic(err)
	}
	given := amount
	if !c.Rules.Uncapped {
		given = max(0, min(amount, l.Ceiling(b.ShardCount, params.Capacity)-l.Balance))
	}
	l.Balance += given
	l.Consumed -= amount
	c.write(b)
	return amount - given
}

// write stores what a client spent or gave back, and charges the write meter.
func (c Client) write(b *table.Bucket) {
	meter := b.Limit(quota.WriteMeter)
	meter.Balance -= 1000
	meter.Consumed += 1000
	b.Fill()
	c.Table.Put(b.Item)
}

// Refresh brings a shard up to date: it opens a window where none is live, and
// writes the pass.
func (c Client) Refresh(key table.Key) {
	b := c.Table.At(key)
	if b != nil && c.opens(b) {
		c.open(b)
		return
	}
	for range 3 {
		if b == nil {
			return
		}
		pass := c.Plan(b)
		if pass == nil {
			return
		}
		result, _ := c.Table.Pass(background, b, pass)
		if result.Applied {
			return
		}
		b = result.Current
	}
}

// Plan returns the pass that a client would write of a bucket, nil for none. Like
// the aggregator's it always moves the bucket's time.
func (c Client) Plan(b *table.Bucket) *quota.Pass {
	if c.opens(b) {
		return nil
	}
	pass := materialise(b, c.Now)
	if pass.RefilledAt == pass.ExpectRefilledAt {
		if len(pass.Changes) == 0 && pass.ValidUntil == nil {
			return nil
		}
		pass = materialise(b, b.RefilledAt+1)
	}
	if c.Rules.Backward && c.Now < b.RefilledAt {
		return c.Table.backward(b, c.Now)
	}
	return pass
}

func materialise(b *table.Bucket, now int64) *quota.Pass {
	pass, err := quota.Materialise(&b.Bucket, nil, now)
	if err != nil {
		panic(err)
	}
	return pass
}

// backward moves the time of a bucket's last pass back, which no client may do.
func (t *Table) backward(b *table.Bucket, now int64) *quota.Pass {
	b.Item[table.AttrRefilledAt] = number(now)
	t.Put(b.Item)
	b.RefilledAt = now
	return materialise(b, now)
}

// opens reports whether a use of the bucket has to open a window.
func (c Client) opens(b *table.Bucket) bool {
	for i := range b.Limits {
		l := &b.Limits[i]
		if l.Kind() == quota.Session && (l.Window.Start == nil || *l.Window.Start+l.Window.Length <= c.Now) {
			return true
		}
	}
	return false
}

// open opens a window on a shard and propagates it to the others whose own has
// ended. It is a pass of the whole item.
func (c Client) open(b *table.Bucket) {
	for i := range b.Limits {
		if l := &b.Limits[i]; l.Kind() == quota.Session {
			l.Window.Start, l.Window.ConsumedAtOpen = new(c.Now), new(l.Consumed)
		}
	}
	materialise(b, c.Now).Apply(&b.Bucket)
	b.Fill()
	c.Table.Put(b.Item)
	for shard := range quota.MaxShards {
		if sibling := c.Table.At(b.Key.At(shard)); sibling != nil && shard != b.Shard {
			c.propagate(sibling)
		}
	}
}

// propagate stores the start of a window, now, and moves no tokens.
func (c Client) propagate(b *table.Bucket) {
	propagated := false
	for i := range b.Limits {
		l := &b.Limits[i]
		if l.Kind() != quota.Session || l.Window.Start != nil && *l.Window.Start+l.Window.Length > c.Now ||
			l.Window.Applied == nil && b.RefilledAt >= c.Now {
			continue
		}
		l.Window.Start, l.Window.ConsumedAtOpen = new(c.Now), new(l.Consumed)
		propagated = true
	}
	if propagated {
		b.ValidUntil = new(int64(0))
		b.Fill()
		c.Table.Put(b.Item)
	}
}

// Create makes a shard that the client drew, unless it exists. Where a donor
// changes twice, the shard gets nothing off it.
func (c Client) Create(key table.Key) {
	for attempt := range 3 {
		zero := c.Table.At(key.At(0))
		if zero == nil || key.Shard >= zero.ShardCount {
			return
		}
		if c.opens(zero) {
			c.open(zero)
		} else if !zero.WindowsLive(c.Now) {
			c.Refresh(key.At(0))
		}
		if c.try(key, zero.ShardCount, attempt == 2) != table.DonorChanged {
			return
		}
	}
}

func (c Client) try(key table.Key, count int, last bool) table.CreationOutcome {
	family, err := c.Table.RaiseAndRead(background, key.Group, count, c.Now)
	if err != nil {
		return table.PinMoved
	}
	plan := sharding.Request{
		Siblings: family, Shard: key.Shard, Count: count, Now: c.Now, May: sharding.May{MoveNothing: last},
	}.Plan()
	if plan.Refused != "" {
		return table.PinMoved
	}
	outcome, _ := c.Table.Create(background, plan.Creation)
	return outcome
}

// Double doubles a group's shard count, up to a limit. The next creation raises
// the siblings.
func (c Client) Double(group table.Group, limit int) {
	zero := c.Table.At(group.At(0))
	if zero.ShardCount >= limit {
		return
	}
	_, _ = c.Table.Double(background, group, zero.ShardCount)
}
