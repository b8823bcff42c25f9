package quota

// A bucket that is gone comes back full, and its past is forgotten. So it must outlive
// what it owes (docs/adr/0018). All expiries here are epoch seconds, as DynamoDB
// reads them.

const (
	daySeconds  = 24 * 3600
	weekSeconds = 7 * daySeconds

	expiryPeriods = 7      // how many of its longest period an unused bucket outlives
	maxExpiry     = 20_000 // days
)

// Extension has a bucket that expires before Least expire at Expires, epoch seconds.
type Extension struct {
	Shard          int
	Least, Expires int64
}

// Outlive plans how a bucket comes to outlive what it owes at now (epoch ms), in the
// order to be written. It plans nothing where the bucket has no expiry, or one that is
// late enough. Shard 0 outlives the others, since it alone knows the count.
func (b *Bucket) Outlive(now int64) []Extension {
	if b.Expires == nil {
		return nil
	}
	least := b.owes(now)
	if *b.Expires >= least {
		return nil
	}
	expiry := b.Expiry(now)
	if b.Shard == 0 {
		return []Extension{{0, least, expiry}}
	}
	return []Extension{shardZeroBeside(expiry), {b.Shard, expiry, expiry}}
}

// OutliveAnother plans how shard 0 comes to outlive a shard that is to be created
// beside it at now (epoch ms).
func (b *Bucket) OutliveAnother(now int64) []Extension {
	if b.Expires == nil {
		return nil
	}
	e := shardZeroBeside(b.expiryBeside(now))
	if *b.Expires >= e.Least {
		return nil
	}
	return []Extension{e}
}

// shardZeroBeside has shard 0 expire a week after another shard that expires at
// expiry. It gives shard 0 so much more that few writes do.
func shardZeroBeside(expiry int64) Extension {
	return Extension{0, expiry + weekSeconds, expiry + 3*weekSeconds}
}

// Expiry returns when a bucket is to expire that is used at now (epoch ms) and not
// again. It lies so far beyond what the bucket owes that few writes move it.
func (b *Bucket) Expiry(now int64) int64 {
	expiry := b.expiryBeside(now)
	if b.Shard == 0 {
		return shardZeroBeside(expiry).Expires
	}
	return expiry
}

// expiryBeside is the expiry of another shard than 0.
func (b *Bucket) expiryBeside(now int64) int64 {
	longest := int64(weekSeconds * 1000 / expiryPeriods)
	for i := range b.Limits {
		longest = max(longest, recovery(&b.Limits[i], now))
	}
	return b.owes(now) + expiryPeriods*min(longest, most)/1000
}

// owes returns until when a bucket must be there: a day past the end of every period
// and window on it at now, and until all that drips has recovered and every debt is
// repaid.
func (b *Bucket) owes(now int64) int64 {
	periods, drips := now-daySeconds*1000, now+min(b.Repayment(), most)
	for i := range b.Limits {
		l := &b.Limits[i]
		switch l.Kind() {
		case Calendar:
			if edge, ok := l.Resets.Next(now); ok {
				periods = max(periods, edge)
			}
		case Session:
			periods = max(periods, l.Window.end(now), now+l.Window.Length) // a use may open one
		default:
			drips = max(drips, now+min(slowest(l, l.Base), most))
		}
	}
	return max(periods/1000+daySeconds, drips/1000)
}

// most is the most that a period is reckoned with, milliseconds, so that expiries
// stay in range.
const most = maxExpiry * daySeconds * 1000 / (expiryPeriods + 1)

// Repayment returns how long it takes until no dripping limit is in debt,
// milliseconds. A quota's debt is forgiven when the quota is restored.
func (b *Bucket) Repayment() int64 {
	var longest int64
	for i := range b.Limits {
		l := &b.Limits[i]
		if l.Kind() == Dripping && l.Balance < 0 {
			debt := l.Base
			debt.Capacity = -l.Balance
			longest = max(longest, slowest(l, debt)*int64(max(1, b.ShardCount)))
		}
	}
	return longest
}

// recovery returns how long a limit takes to recover in full, milliseconds: at the
// slowest that its schedule makes it, or the longest of the periods to come.
func recovery(l *Limit, now int64) int64 {
	switch l.Kind() {
	case Session:
		return l.Window.Length
	case Calendar:
		longest, at := int64(0), now
		for range 5 {
			edge, ok := l.Resets.Next(at)
			if !ok {
				break
			}
			longest, at = max(longest, edge-at), edge
		}
		return longest
	}
	return slowest(l, l.Base)
}

// slowest returns how long the capacity of base takes to drip, milliseconds, at the
// slowest that the limit's schedule makes it.
func slowest(l *Limit, base Params) int64 {
	longest := fill(base)
	for _, entry := range l.Schedule.Entries() {
		if params, err := entry.Apply(l.Base); err == nil {
			if base.Capacity != l.Base.Capacity {
				params.Capacity = base.Capacity
			}
			longest = max(longest, fill(params))
		}
	}
	return longest
}

// fill returns how long a limit takes from nothing to its capacity, milliseconds.
func fill(p Params) int64 {
	if p.Refill <= 0 {
		return 0
	}
	return int64(min(float64(p.Capacity)/float64(p.Refill)*float64(p.Period), 1e15))
}
