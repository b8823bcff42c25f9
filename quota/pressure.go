package quota

// pressure is the part of the write meter's capacity, in percent, below which a
// shard counts as hot.
const pressure = 20

// Pressed reports whether a bucket was hot at a write: its write meter was below
// 20 % of its capacity, dripped forward from the last pass to the time of the
// write. The stored balance shows no heat, since it only falls between passes,
// however slow the traffic.
func Pressed(b *Bucket, written int64) bool {
	meter := b.Limit(WriteMeter)
	if meter == nil || meter.Base.Capacity <= 0 {
		return false
	}
	p := meter.Base
	balance := drip(meter.Balance, p.Capacity, p.Refill, p.Period, b.RefilledAt, written)
	threshold, _ := mulDiv(p.Capacity, pressure, 100)
	return balance < threshold
}

// Doubles reports whether a bucket that was hot at a write is to get more shards.
// Only shard 0 decides. A disabled bucket stays as it is, and no count exceeds
// MaxShards.
func Doubles(b *Bucket, written int64) bool {
	return b.Shard == 0 && !b.Disabled && 2*b.ShardCount <= MaxShards && Pressed(b, written)
}
