package table

import "github.com/shardquota/shardquota/quota"

// NewShard makes the bucket of a new shard at a shard count: everything shard
// 0's item carries, also what this program does not know, but its own keys,
// the balances of its fundings, no consumption, and now (epoch ms) as the time
// of its last pass. Its quotas are granted at count and in the period that
// holds at now.
func NewShard(template *Bucket, shard, count int, now int64, fundings []quota.Funding) *Bucket {
	b := &Bucket{Key: template.Key.At(shard), Item: template.Item.Clone(), Bucket: template.Bucket}
	b.Shard, b.ShardCount, b.RefilledAt = shard, count, now
	b.Limits = append([]quota.Limit(nil), template.Limits...)
	for _, funding := range fundings {
		limit := b.Limit(funding.Limit)
		limit.Balance, limit.Consumed, limit.TopUp = funding.Amount, 0, 0
		if limit.IsQuota() {
			limit.Grant = new(count)
		}
		if limit.Kind() == quota.Session && limit.Window.Start != nil {
			limit.Window.Applied = limit.Window.Start
			b.RefilledAt = max(b.RefilledAt, *limit.Window.Start)
		}
		if limit.Window.ConsumedAtOpen != nil {
			limit.Window.ConsumedAtOpen = new(int64(0))
		}
	}
	b.ValidUntil = validFor(b, template.ValidUntil, now)
	b.Fill()
	return b
}

// validFor is the valid-until of a new shard: its next boundary. A stored 0
// stays, since an operator asked for a client's pass, and so does an absent
// one where nothing on the bucket is bound to time.
func validFor(b *Bucket, stored *int64, now int64) *int64 {
	boundary, ok := b.NextBoundary(now)
	if !ok || stored != nil && *stored == 0 {
		return stored
	}
	return &boundary
}
