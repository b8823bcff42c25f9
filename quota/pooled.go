package quota

import (
	"cmp"
	"slices"
	"sort"
)

// Piece is the part of a use that one shard serves.
type Piece struct {
	Bucket *Bucket
	Demand Demand
	Use    *Use
}

// PlanPooledUse divides a use among the shards of a group where the first of them
// alone is short. Of each pooled limit it takes what the first is short of off as
// few shards as possible, those that hold most. Everything else comes off the
// first alone. The use counts only if all pieces are written at once.
//
// A shard's debt counts against the others: together they must hold the amount, as
// one bucket would. Where they hold too little, PlanPooledUse returns no pieces
// and what each enforced limit has. For a pooled limit of which the first shard is
// short, that is what all shards have.
//
// It leaves out shards that are disabled, that alone are bypassed, that cannot be
// read, or that would open a session window: two windows of one use would set the
// shards apart. The shards are distinct and at one count. Amounts are from 0 to
// MaxAmount. The errors are those of PlanUse.
func PlanPooledUse(shards []*Bucket, demand Demand, now int64) ([]Piece, []Shortage, error) {
	if err := shards[0].checkDemand(demand); err != nil {
		return nil, nil, err
	}
	able, err := ready(shards, now)
	if err != nil {
		return nil, nil, err
	}
	pieces, enough := divide(able, demand, now)
	if enough {
		enough, err = plan(pieces, now)
	}
	if err != nil || enough {
		return pieces, nil, err
	}
	have, err := shortages(able, demand, now)
	return nil, have, err
}

// prepared is a shard, and the shard as a use would find it.
type prepared struct {
	*Bucket
	after *Bucket
}

// ready brings the shards that can serve the use up to date. The first one is
// always among them.
func ready(shards []*Bucket, now int64) ([]prepared, error) {
	var able []prepared
	for i, b := range shards {
		use, _, err := PlanUse(b, nil, now)
		switch {
		case err != nil && i == 0:
			return nil, err
		case err != nil, i > 0 && (b.Disabled || now < b.Bypass || len(use.Opens()) > 0):
			continue
		}
		after := b.clone()
		use.Apply(after)
		able = append(able, prepared{b, after})
	}
	return able, nil
}

// divide splits a demand into pieces. It does not check whether the first shard
// holds enough of what it serves alone.
func divide(shards []prepared, demand Demand, now int64) (pieces []Piece, enough bool) {
	pieces = make([]Piece, len(shards))
	for i, s := range shards {
		pieces[i] = Piece{Bucket: s.Bucket, Demand: Demand{}}
	}
	for name, amount := range demand {
		has, _ := shards[0].balance(name)
		if l := shards[0].Limit(name); !l.IsPooled() || now < l.Soft || has >= amount {
			pieces[0].Demand[name] = amount
		}
	}
	first := len(pieces[0].Demand) > 0 // a use writes it anyway
	for name, amount := range demand {
		if _, alone := pieces[0].Demand[name]; alone {
			continue
		}
		if total(shards, name) < amount {
			return nil, false
		}
		for _, i := range richest(shards, name, first) {
			has, holds := shards[i].balance(name)
			if served := min(amount, has); holds && (served > 0 || served == amount) {
				pieces[i].Demand[name] = served
				if amount -= served; amount == 0 {
					break
				}
			}
		}
	}
	return slices.DeleteFunc(pieces, func(p Piece) bool { return len(p.Demand) == 0 }), true
}

// richest returns the indices of the shards by what they hold of a limit, most
// first. With first, index 0 comes before all others.
func richest(shards []prepared, name string, first bool) []int {
	places := make([]int, len(shards))
	for i := range places {
		places[i] = i
	}
	rest := places
	if first {
		rest = places[1:]
	}
	slices.SortStableFunc(rest, func(a, b int) int {
		x, _ := shards[a].balance(name)
		y, _ := shards[b].balance(name)
		return cmp.Compare(y, x)
	})
	return places
}

// balance returns what the shard holds of a limit, millitokens, and whether it has
// the limit.
func (p prepared) balance(name string) (has int64, holds bool) {
	if l := p.after.Limit(name); l != nil {
		return l.Balance, true
	}
	return 0, false
}

// total returns what the shards together hold of a limit, debts included.
func total(shards []prepared, name string) (sum int64) {
	for _, shard := range shards {
		has, _ := shard.balance(name)
		sum = addUp(sum, has)
	}
	return sum
}

// addUp adds two amounts and stays within MaxAmount.
func addUp(a, b int64) int64 { return max(-MaxAmount, min(a+b, MaxAmount)) }

// plan plans the use of each piece. Several pieces make a transaction, which
// writes each item twice.
func plan(pieces []Piece, now int64) (enough bool, err error) {
	for i := range pieces {
		p := &pieces[i]
		use, _, err := PlanUse(p.Bucket, p.Demand, now)
		if err != nil || use == nil {
			return false, err
		}
		for j := range use.Charges {
			if charge := &use.Charges[j]; charge.Limit == WriteMeter && len(pieces) > 1 {
				charge.Consumed, charge.Debit = 2*WriteCost, 2*WriteCost
			}
		}
		p.Use = use
	}
	return true, nil
}

// shortages returns what the enforced limits of the demand have.
func shortages(shards []prepared, demand Demand, now int64) ([]Shortage, error) {
	first := shards[0]
	_, have, err := PlanUse(first.Bucket, demand, now)
	if err != nil {
		return nil, err
	}
	for i := range have {
		if s := &have[i]; s.Short() && first.Limit(s.Limit).IsPooled() {
			s.together(shards, now)
		}
	}
	return have, nil
}

// lookAgain is when a client retries that found too few shards able to serve,
// milliseconds. Nobody can tell when the others will be.
const lookAgain = 1000

// together turns one shard's shortage into that of all shards.
func (s *Shortage) together(shards []prepared, now int64) {
	var limits []holder
	for _, shard := range shards {
		if l := shard.Limit(s.Limit); l != nil {
			limits = append(limits, holder{shard.Bucket, l})
		}
	}
	first := shards[0]
	s.Available, s.Ceiling = total(shards, s.Limit), Share(s.Capacity, first.ShardCount)*int64(first.ShardCount)
	if s.At, s.Never = now, false; !s.Short() {
		return
	}
	if s.Never = !first.Together(s.Limit, s.Requested); s.Never {
		return
	}
	switch at, ok := admitTogether(limits, s.Requested, now); {
	case ok:
		s.At = at
	case len(limits) < first.ShardCount:
		s.At = now + lookAgain
	default:
		s.Never = true
	}
}

// holder is a shard that has a limit.
type holder struct {
	*Bucket
	limit *Limit
}

// have returns what uses at an instant would find on all shards, debts included.
func have(limits []holder, at int64) (sum int64) {
	for _, g := range limits {
		use := g.useTime(at)
		opened := g.limit.opened(use)
		change, _, _, err := opened.materialise(g.Bucket, 0, use)
		if err == nil {
			sum = addUp(sum, g.limit.Balance+change.Delta)
		}
	}
	return sum
}

// Closed reports whether a use at an instant would open a session window of the
// bucket.
func (b *Bucket) Closed(now int64) bool {
	at := b.useTime(now)
	return slices.ContainsFunc(b.Limits, func(l Limit) bool { return l.Kind() == Session && !l.Window.Live(at) })
}

// Opening returns copies of the shards with every session window opened that is
// not live.
func Opening(shards []*Bucket, now int64) []*Bucket {
	at := now
	for _, b := range shards {
		at = max(at, b.useTime(now))
	}
	opening := make([]*Bucket, len(shards))
	for i, b := range shards {
		opening[i] = b.Opened(at)
	}
	return opening
}

// Together reports whether all shards of the bucket's count can ever hold an
// amount of a limit together.
func (b *Bucket) Together(limit string, amount int64) bool {
	l := b.Limit(limit)
	return l != nil && amount <= Share(l.Schedule.most(l.Base), b.ShardCount)*int64(b.ShardCount)
}

// admitTogether is Bucket.admits for all shards of a group, which share a
// schedule. Between two turns of the schedule or of a period, the shards together
// only gain. The shards must be able to hold the amount. The search ends sooner
// the more shards there are.
func admitTogether(limits []holder, amount, now int64) (at int64, ok bool) {
	first, from := limits[0], now
	for range maxStretches / len(limits) {
		until, turns := from+maxAhead, false
		if turn, ok := first.limit.Schedule.NextChange(from); ok && turn < until {
			until, turns = turn, true
		}
		for _, g := range limits {
			if restore, ok := g.restore(from); ok && restore < until {
				until, turns = restore, true
			}
		}
		if have(limits, until-1) >= amount {
			after := sort.Search(int(until-1-from), func(ms int) bool { return have(limits, from+int64(ms)) >= amount })
			return from + int64(after), true
		}
		if from = until; !turns || from-now > maxAhead {
			return 0, false
		}
	}
	return from, true
}

// restore returns the first instant after from at which the limit is restored.
func (g holder) restore(from int64) (at int64, ok bool) {
	switch g.limit.Kind() {
	case Calendar:
		at, ok = g.limit.Resets.Next(from)
	case Session:
		at, ok = g.limit.Window.end(from), g.limit.Window.Live(from)
	}
	return at, ok && at > from
}
