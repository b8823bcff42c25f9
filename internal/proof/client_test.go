package proof_test

import (
	"context"

	"github.com/shardquota/shardquota/internal/explore"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/sharding"
	"github.com/shardquota/shardquota/table"
)

// client does by the rules what another program does on the same table.
type client struct {
	w     *world
	store *requests
	skew  int64    // what its clock is ahead by, milliseconds
	op    int      // of those that it does
	place int      // in that one
	fund  fundFunc // nil is quota.Fund
}

// fundFunc plans what funds a new shard.
type fundFunc func(zero *quota.Bucket, siblings []*quota.Bucket, shard, count int, now int64) ([]quota.Funding, error)

// client is an actor that does one thing after another.
func (w *world) client(name string, skew int64, do ...func(c *client)) explore.Spec {
	return explore.Spec{Name: name, Run: func(a *explore.Actor) {
		c := &client{w: w, store: w.requests(a, name, nil), skew: skew}
		for i, op := range do {
			c.op, c.place = i, 0
			c.forget()
			op(c)
		}
	}}
}

// forget is that the client goes on to something that does not depend on what it
// has seen.
func (c *client) forget() {
	c.place++
	if a := c.store.db.a; a != nil {
		a.Forget(100*c.op + c.place)
	}
}

// Operations of clients, to be given to an actor.
func creates(shard int) func(*client)              { return func(c *client) { c.create(shard) } }
func passes(shard int) func(*client)               { return func(c *client) { c.pass(shard) } }
func spends(shard int, amount int64) func(*client) { return func(c *client) { c.spend(shard, amount) } }
func uses(shard int, amount int64) func(*client)   { return func(c *client) { c.use(shard, amount) } }
func doubles(from int) func(*client) {
	return func(c *client) { _, _ = c.store.Double(context.Background(), acme, from) }
}
func opens(shard int) func(*client) { return func(c *client) { c.open(shard) } }

// create makes a shard that the client drew, if it is not there. Where a donor
// changes twice it grants nothing this time.
func (c *client) create(shard int) {
	ctx := context.Background()
	for attempt := range 3 {
		if attempt > 0 {
			c.forget()
		}
		zero, now := c.store.look(0, c.skew)
		if zero == nil || shard >= zero.ShardCount {
			return
		}
		family, _ := c.store.RaiseAndRead(ctx, acme, zero.ShardCount, now)
		if family[0].Bucket.ShardCount != zero.ShardCount || family[shard].Bucket != nil {
			return
		}
		creation, ok := c.plan(family, shard, zero.ShardCount, now, attempt == 2)
		if !ok {
			return
		}
		if outcome, _ := c.store.Create(ctx, creation); outcome != table.DonorChanged {
			return
		}
	}
}

// plan sizes a new shard from its family; empty, it moves nothing.
func (c *client) plan(family []table.Sibling, shard, count int, now int64, empty bool) (table.Creation, bool) {
	fund := quota.Fund
	if c.fund != nil {
		fund = c.fund
	}
	for _, s := range family {
		if s.Bucket != nil {
			now = max(now, s.Bucket.RefilledAt)
		}
	}
	zero := family[0].Bucket
	fundings, err := fund(&zero.Bucket, table.Buckets(family), shard, count, now)
	if err != nil || !zero.WindowsLive(now) {
		return table.Creation{}, false
	}
	for i := range fundings {
		if empty && fundings[i].Source == quota.Move {
			fundings[i].Amount = 0
		}
	}
	return table.Creation{
		Bucket:      sharding.New(zero, shard, count, now, fundings),
		Moves:       quota.Moves(fundings),
		ConfigAttrs: zero.ConfigAttrs(),
	}, true
}

// pass brings a shard up to date where that is due, or where its fast path is
// closed.
func (c *client) pass(shard int) {
	b, now := c.store.look(shard, c.skew)
	for b != nil {
		pass, _ := quota.PlanPass(&b.Bucket, nil, now)
		if pass == nil && closed(b, now) {
			pass, _ = quota.Materialise(&b.Bucket, nil, max(now, b.RefilledAt+1))
		}
		if pass == nil {
			return
		}
		result, _ := c.store.Pass(context.Background(), b, pass)
		b = result.Current
	}
}

// closed reports whether a bucket may not be spent from before a pass.
func closed(b *table.Bucket, now int64) bool {
	return b.ValidUntil != nil && now >= *b.ValidUntil && !b.Disabled && b.WindowsLive(now)
}

// spend takes an amount on the fast path, or gives it back.
func (c *client) spend(shard int, amount int64) (ok bool) {
	c.store.step(func() explore.Digest {
		ok = c.w.spend(shard, amount, c.w.now+c.skew)
		verb := "spends"
		if amount < 0 {
			verb = "refunds"
		}
		c.store.db.say("%s %s of shard %d, %s", verb, tokens(max(amount, -amount)), shard, outcome(ok))
		return explore.Digest(flag(ok))
	})
	return ok
}

// use spends, if need be after a pass.
func (c *client) use(shard int, amount int64) {
	if !c.spend(shard, amount) {
		c.forget()
		c.pass(shard)
		c.forget()
		c.spend(shard, amount)
	}
}

// open opens a session window on a shard whose own has ended (W1), and tells
// the others of its start alone (W2).
func (c *client) open(shard int) {
	b, now := c.store.look(shard, c.skew)
	if b == nil || b.Disabled {
		return
	}
	w := b.Limit("q").Window
	if w.Start != nil && *w.Start+w.Length > now {
		return
	}
	opened := false
	c.store.step(func() explore.Digest {
		opened = c.w.open(b, now)
		c.store.db.say("opens a window on shard %d at %s, %s", shard, clock(now), outcome(opened))
		return explore.Digest(flag(opened))
	})
	if !opened {
		return
	}
	for sibling := range b.ShardCount {
		if sibling == shard {
			continue
		}
		c.store.step(func() explore.Digest {
			told := c.w.propagate(sibling, now)
			c.store.db.say("tells shard %d of the window, %s", sibling, outcome(told))
			return 0
		})
	}
}

// open is the pass that opens a window, planned from an image.
func (w *world) open(image *table.Bucket, now int64) bool {
	b := w.at(image.Shard)
	if b.RefilledAt != image.RefilledAt || b.ShardCount != image.ShardCount || b.Limit("q").Balance != image.Limit("q").Balance {
		return false
	}
	w.books.expired[periodOf(b)] += b.Limit("q").Balance
	w.put(build(b.Item, attrs{
		"b_q_ws": now, "b_q_wa": now, "b_q_tk": shareOf(b, b.ShardCount), "b_q_gc": b.ShardCount,
		table.AttrRefilledAt: max(now, b.RefilledAt), table.AttrValidUntil: nil,
	}), b.Shard)
	w.books.grant(w.at(b.Shard), b.ShardCount)
	return true
}

// propagate tells a shard of a window: one whose own has ended by its start.
func (w *world) propagate(i int, start int64) bool {
	b := w.at(i)
	if b == nil {
		return false
	}
	l := b.Limit("q")
	if l.Window.Start != nil && *l.Window.Start+l.Window.Length > start || l.Window.Applied == nil && b.RefilledAt >= start {
		return false
	}
	w.put(build(b.Item, attrs{"b_q_ws": start, "b_q_wtc": l.Consumed, table.AttrValidUntil: 0}), i)
	return true
}

// clockwork is an actor that moves the clock.
func (w *world) clockwork(times ...int64) explore.Spec {
	w.ticks = true
	return explore.Spec{Name: "clock", Run: func(a *explore.Actor) {
		for _, at := range times {
			a.Do(func() explore.Digest {
				w.tick(at)
				a.Say("it is %s", clock(at))
				return 0
			})
		}
	}}
}

// operator changes every shard of acme's, shard 0 first: what is created
// meanwhile is made by its terms, or is on the list that is drawn up after it.
func (w *world) operator(name string, change func(b *table.Bucket) attrs) explore.Spec {
	return explore.Spec{Name: "operator", Run: func(a *explore.Actor) {
		c := &client{w: w, store: w.requests(a, "operator", nil)}
		set := func(i int) {
			c.store.step(func() explore.Digest {
				b := w.at(i)
				w.put(build(b.Item, attrs{table.AttrValidUntil: 0}, change(b)), i)
				a.Say("%s on shard %d", name, i)
				return 0
			})
		}
		set(0)
		var there []int
		c.store.step(func() explore.Digest {
			d := explore.Digest(0)
			for _, b := range w.all() {
				there = append(there, b.Shard)
				d = d.Add(uint64(b.Shard))
			}
			a.Say("lists %d shards", len(there))
			return d
		})
		for _, i := range there[1:] {
			set(i)
		}
	}}
}

// topUp is an operator that adds to what a shard has this period.
func (w *world) topUp(i int, amount int64) explore.Spec {
	return explore.Spec{Name: "operator", Run: func(a *explore.Actor) {
		a.Do(func() explore.Digest {
			b := w.at(i)
			l := b.Limit("q")
			w.books.added[periodOf(b)] += amount
			w.put(build(b.Item, attrs{"b_q_tk": l.Balance + amount, "b_q_tu": l.TopUp + amount}), i)
			a.Say("adds %s to shard %d", tokens(amount), i)
			return 0
		})
	}}
}

// renews is that the table is given another stream.
func renews(c *client) {
	c.store.step(func() explore.Digest {
		c.w.stream.renew()
		c.store.db.say("gives the table another stream")
		return 0
	})
}
