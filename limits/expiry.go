package limits

import "github.com/shardquota/shardquota/quota"

// Bounds of a bucket's expiry.
const (
	expiryPeriods = 7      // how many of its longest period an unused bucket outlives
	maxExpiry     = 20_000 // days
)

// Expiry returns when a bucket may expire that is used at now and not again, epoch
// seconds. By then everything on it has recovered several times over, and its debts
// are repaid.
func Expiry(b *quota.Bucket, now int64) int64 {
	longest := int64(1000)
	for i := range b.Limits {
		longest = max(longest, recovery(&b.Limits[i], now))
	}
	const most = maxExpiry * 24 * 3600 * 1000 / (expiryPeriods + 1)
	return now/1000 + (expiryPeriods*min(longest, most)+min(Repayment(b), most))/1000 + 1
}

// Repayment returns how long it takes until no dripping limit is in debt,
// milliseconds. A quota's debt is forgiven when the quota is restored.
func Repayment(b *quota.Bucket) int64 {
	var longest int64
	for i := range b.Limits {
		l := &b.Limits[i]
		if l.Kind() == quota.Dripping && l.Balance < 0 {
			debt := l.Base
			debt.Capacity = -l.Balance
			longest = max(longest, slowest(l, debt)*int64(max(1, b.ShardCount)))
		}
	}
	return longest
}

// recovery returns how long a limit takes to recover in full, milliseconds: at the
// slowest that its schedule makes it, or the longest of the periods to come.
func recovery(l *quota.Limit, now int64) int64 {
	switch l.Kind() {
	case quota.Session:
		return l.Window.Length
	case quota.Calendar:
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
func slowest(l *quota.Limit, base quota.Params) int64 {
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
func fill(p quota.Params) int64 {
	if p.Refill <= 0 {
		return 0
	}
	return int64(min(float64(p.Capacity)/float64(p.Refill)*float64(p.Period), 1e15))
}
