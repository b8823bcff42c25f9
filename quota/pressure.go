package quota

// pressure is the part of the write meter's capacity, in percent, under which
// a shard counts as hot.
const pressure = 20

// Pressed reports whether a bucket was hot at a write: its write meter, dripped
// forward from the last pass to the time of the write, was below 20 % of its
// capacity. The balance as stored is no sign of heat, since between passes it
// only falls, however slow the traffic.
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

// Doubles reports whether a bucket that was hot at a write is to be sharded
// further: only shard 0 decides, a disabled bucket is left alone, and no count
// passes MaxShards.
func Doubles(b *Bucket, written int64) bool {
	return b.Shard == 0 && !b.Disabled && 2*b.ShardCount <= MaxShards && Pressed(b, written)
}
