package proof_test

import (
	"fmt"
	"maps"
	"slices"

	"github.com/shardquota/shardquota/internal/explore"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// books are kept of acme's quota q as its balances tell them, whatever the
// writers say they do. All amounts are millitokens, by period.
type books struct {
	capacity int64 // the largest that was in force
	changed  bool  // an operator changed the capacity or added to it

	granted  map[int64]uint32 // slots of MaxShards granted afresh: each once
	fresh    map[int64]int64  // what was granted afresh
	added    map[int64]int64  // what an operator added
	admitted map[int64]int64  // spent and not refunded
	expired  map[int64]int64  // held by shards when they went on to the next period
	charged  map[int64]int64  // lost to restores and trims: see restored and passed

	owed map[int64]int64 // admitted though it was not there: what was used beyond what was taken, and soft limits

	over     map[int]int64 // what a shard holds above its ceiling: see restored
	spent    map[spender]int64
	consumed map[usageOf]int64

	wrong []string
}

// spender is who spent of a shard in a period.
type spender struct {
	who    string // "" is any client
	shard  int
	period int64
}

// usageOf is a limit in an hour, by its start. The number of writes that used
// anything is kept like a limit.
type usageOf struct {
	hour  int64
	limit string
}

func newBooks() *books {
	return &books{
		capacity: million,
		granted:  map[int64]uint32{}, fresh: map[int64]int64{}, added: map[int64]int64{}, admitted: map[int64]int64{},
		expired: map[int64]int64{}, charged: map[int64]int64{}, owed: map[int64]int64{}, over: map[int]int64{},
		spent: map[spender]int64{}, consumed: map[usageOf]int64{},
	}
}

func (k *books) clone() *books {
	own := *k
	for _, amounts := range []*map[int64]int64{&own.fresh, &own.added, &own.admitted, &own.expired, &own.charged, &own.owed} {
		*amounts = maps.Clone(*amounts)
	}
	own.granted, own.over = maps.Clone(own.granted), maps.Clone(own.over)
	own.spent, own.consumed = maps.Clone(own.spent), maps.Clone(own.consumed)
	return &own
}

func (k *books) note(format string, args ...any) {
	k.wrong = append(k.wrong, fmt.Sprintf(format, args...))
}

func shareOf(b *table.Bucket, count int) int64 {
	return quota.Share(b.Limit("q").Base.Capacity, count)
}

func grantOf(b *table.Bucket) int {
	return b.Limit("q").GrantCount(b.ShardCount, b.Limit("q").Base.Capacity)
}

// open takes over what is there in the beginning. A balance was granted by
// whatever covers it and lies in no other's cover; what is missing was spent.
func (k *books) open(shards []*table.Bucket) {
	shards = slices.Clone(shards)
	slices.SortStableFunc(shards, func(a, b *table.Bucket) int { return grantOf(a) - grantOf(b) })
	for _, b := range shards {
		period := periodOf(b)
		if k.granted[period]&slots(b.Shard, grantOf(b)) == 0 {
			k.grant(b, grantOf(b))
			k.admitted[period] += shareOf(b, grantOf(b))
		}
		k.admitted[period] -= b.Limit("q").Balance
	}
}

// grant notes that a shard was granted its share at a count afresh.
func (k *books) grant(b *table.Bucket, count int) {
	mask, period := slots(b.Shard, count), periodOf(b)
	if double := k.granted[period] & mask; double != 0 {
		k.note("shard %d at %d was granted %s of the period of %s again", b.Shard, count, slotText(double), clock(period))
	}
	k.granted[period] |= mask
	k.fresh[period] += shareOf(b, count)
}

// change notes what every write may and may not do.
func (k *books) change(before, after *table.Bucket, written int64) {
	if before != nil && after.RefilledAt < before.RefilledAt {
		k.note("rf of shard %d fell from %s to %s", after.Shard, clock(before.RefilledAt), clock(after.RefilledAt))
	}
	if before != nil && after.ShardCount < before.ShardCount {
		k.note("the count of shard %d fell from %d to %d", after.Shard, before.ShardCount, after.ShardCount)
	}
	hour, used := written-written%hour, false
	for i := range after.Limits {
		l := &after.Limits[i]
		consumed := l.Consumed
		if before != nil && before.Limit(l.Name) != nil {
			consumed -= before.Limit(l.Name).Consumed
		}
		if consumed != 0 && l.Name != quota.WriteMeter {
			k.consumed[usageOf{hour, l.Name}] += consumed
			used = true
		}
	}
	if used {
		k.consumed[usageOf{hour, table.AttrTotalEvents}] += 1000
	}
}

// passed notes a pass, which was planned from an image.
func (k *books) passed(image, before, after *table.Bucket, pass *quota.Pass) {
	k.dripped(image, before, after)
	i := slices.IndexFunc(pass.Changes, func(c quota.Change) bool { return c.Limit == "q" && c.Restore })
	if i >= 0 {
		k.restored(image, before, after, pass.ShardCount, pass.Changes[i])
		return
	}
	fall := before.Limit("q").Balance - after.Limit("q").Balance
	if fall < 0 || fall > k.over[after.Shard] && !k.changed {
		k.note("shard %d fell by %s without a restore", after.Shard, tokens(fall))
	}
	k.charged[periodOf(after)] += fall
	k.over[after.Shard] = max(0, k.over[after.Shard]-fall)
}

// restored notes a restore as a fresh grant. What the new balance lacks of it
// was spent, or moved off, since the pass was planned, and is charged to the
// new period: a restore adds.
//
// There is one way above a ceiling: a refund lands between the image and a
// restore that takes something away. A condition on the balance could only keep
// such a restore from being written, for as long as refunds come. The next pass
// trims it off.
func (k *books) restored(image, before, after *table.Bucket, count int, c quota.Change) {
	share, balance := shareOf(after, count), after.Limit("q").Balance
	want, read := share, image.Limit("q")
	if read.Window.ConsumedAtOpen != nil && c.Roll != nil {
		want -= max(0, read.Consumed-*read.Window.ConsumedAtOpen)
	}
	if grant := grantOf(after); grant != count {
		k.note("shard %d was restored at %d, and its grant is of %d", after.Shard, count, grant)
	}
	if begun := periodOf(after) - periodOf(before); read.Kind() == quota.Session && begun < read.Window.Length {
		k.note("a window of shard %d was ended early, after %d ms", after.Shard, begun)
	}
	if want -= read.Balance - before.Limit("q").Balance; balance != want {
		k.note("shard %d was restored to %s, not to %s", after.Shard, tokens(balance), tokens(want))
	}
	k.expired[periodOf(before)] += before.Limit("q").Balance
	k.grant(after, count)
	k.charged[periodOf(after)] += share - balance
	k.over[after.Shard] = 0
	if c.Delta <= 0 {
		k.over[after.Shard] = max(0, balance-share)
	}
}

// dripped notes a pass that moved the time all limits refill from and kept
// something of what a dripping one had gained by then. What was spent or moved off
// since the image may be missing, where the image made the limit full.
func (k *books) dripped(image, before, after *table.Bucket) {
	for i := range before.Limits {
		l := &before.Limits[i]
		if l.Kind() != quota.Dripping {
			continue
		}
		full := *before
		full.Bucket.Limits = []quota.Limit{*l}
		due, err := quota.Materialise(&full.Bucket, nil, after.RefilledAt)
		if err != nil {
			continue
		}
		want := l.Balance
		for _, c := range due.Changes {
			want += c.Delta
		}
		was := image.Limit(l.Name)
		since := max(0, l.Consumed-was.Consumed, was.Balance-l.Balance)
		if lost := want - since - after.Limit(l.Name).Balance; lost > 0 && want > l.Balance {
			k.note("a pass of shard %d lost %s of what %s had gained", after.Shard, tokens(lost), l.Name)
		}
	}
}

// created notes a new shard: with allowance that was not there before, which is
// a fresh grant, or with what others gave.
func (k *books) created(zero *table.Bucket, c table.Creation, put change, donors []change) {
	after := put.after
	fresh := after.Limit("q").Balance
	for _, donor := range donors {
		fresh += donor.after.Limit("q").Balance - donor.before.Limit("q").Balance
	}
	switch share := shareOf(after, c.Bucket.ShardCount); {
	case fresh == 0:
	case fresh == share:
		k.grant(after, c.Bucket.ShardCount)
	case fresh > 0 || !k.trimmed(after, -fresh, c):
		k.note("shard %d of %d made %s of nothing", after.Shard, after.ShardCount, tokens(fresh))
	}
	for _, d := range donors {
		switch donor, l := d.after, d.after.Limit("q"); {
		case periodOf(donor) == periodOf(after):
		case l.Kind() == quota.Session && l.Current(donor.RefilledAt, after.RefilledAt):
			k.joined(donor, after, c)
		default:
			k.note("shard %d was given something of another period", after.Shard)
		}
	}
	if !sameTerms(zero, after) {
		k.note("shard %d was created with other terms than shard 0 has", after.Shard)
	}
}

// trimmed notes what a creation took off a donor beyond what it moved, and
// reports whether the donor was so much above its ceiling.
func (k *books) trimmed(after *table.Bucket, fall int64, c table.Creation) bool {
	for _, move := range c.Moves {
		if move.Limit == "q" && (k.changed || fall <= k.over[move.Donor]) {
			k.charged[periodOf(after)] += fall
			k.over[move.Donor] = max(0, k.over[move.Donor]-fall)
			return true
		}
	}
	return false
}

// joined notes a shard that was given something of one window and joins another
// one, where clients have opened two that overlap. To the one it is lost, to the
// other it is all there is of the grant.
func (k *books) joined(donor, after *table.Bucket, c table.Creation) {
	moved := c.Moves[0].Amount
	k.charged[periodOf(donor)] += moved
	k.grant(after, c.Bucket.ShardCount)
	k.charged[periodOf(after)] += shareOf(after, c.Bucket.ShardCount) - moved
}

// whole notes that a Limiter moved a part of a token.
func (k *books) whole(c table.Creation) {
	for _, move := range c.Moves {
		if move.Limit == "q" && move.Amount%1000 != 0 {
			k.note("shard %d was given a part of a token, %s", c.Bucket.Shard, tokens(move.Amount))
		}
	}
}

// sameTerms compares what an operator sets.
func sameTerms(a, b *table.Bucket) bool {
	asked := func(b *table.Bucket) bool { return b.ValidUntil != nil && *b.ValidUntil == 0 }
	return a.Disabled == b.Disabled && asked(a) == asked(b) && a.Limit("q").Base == b.Limit("q").Base
}

// check compares the books with the table, and says what is wrong first.
func (k *books) check(shards []*table.Bucket) string {
	if len(k.wrong) > 0 {
		return k.wrong[0]
	}
	held := map[int64]int64{}
	for _, b := range shards {
		l := b.Limit("q")
		held[periodOf(b)] += l.Balance
		if ceiling := l.Ceiling(b.ShardCount, l.Base.Capacity); l.Balance > ceiling+k.over[b.Shard] && !isZero(b.ValidUntil) {
			return fmt.Sprintf("shard %d holds %s, and its ceiling is %s", b.Shard, tokens(l.Balance), tokens(ceiling))
		}
	}
	for _, period := range slices.Sorted(maps.Keys(k.granted)) {
		if wrong := k.balance(period, k.granted[period], held[period]); wrong != "" {
			return wrong
		}
	}
	return ""
}

func isZero(n *int64) bool { return n != nil && *n == 0 }

// balance checks one period: what was granted and added is admitted, held, or
// accounted for otherwise; with what is still to be granted it is the capacity.
func (k *books) balance(period int64, granted uint32, held int64) string {
	in := k.fresh[period] + k.added[period]
	out := k.admitted[period] + held + k.expired[period] + k.charged[period]
	grantable := int64(0)
	for slot := range quota.MaxShards {
		if granted&(1<<slot) == 0 {
			grantable += k.capacity / quota.MaxShards
		}
	}
	whole := k.fresh[period] + grantable
	switch {
	case in != out:
		return fmt.Sprintf("of the period of %s %s was granted, and %s is there or was used", clock(period), tokens(in), tokens(out))
	case whole > k.capacity || whole < k.capacity && !k.changed:
		return fmt.Sprintf("of the period of %s %s was granted and %s can be", clock(period), tokens(k.fresh[period]), tokens(grantable))
	case k.admitted[period] > k.capacity+k.added[period]+k.owed[period]:
		return fmt.Sprintf("%s was admitted in the period of %s", tokens(k.admitted[period]), clock(period))
	}
	return ""
}

// digest is of all that is checked later.
func (k *books) digest() explore.Digest {
	d := explore.Digest(0).Add(uint64(k.capacity), uint64(len(k.wrong)))
	for _, amounts := range []map[int64]int64{k.fresh, k.added, k.admitted, k.expired, k.charged, k.owed} {
		d = d.Add(uint64(digestAll(amounts)))
	}
	d = d.Add(uint64(digestAll(k.over)))
	var sum explore.Digest
	for period, mask := range k.granted {
		sum += explore.Digest(0).Add(1, uint64(period), uint64(mask))
	}
	for s, amount := range k.spent {
		sum += explore.Digest(0).Add(2, uint64(s.shard), uint64(s.period), uint64(amount)).Text(s.who)
	}
	for u, amount := range k.consumed {
		sum += explore.Digest(0).Add(uint64(u.hour), uint64(amount)).Text(u.limit)
	}
	return d.Add(uint64(sum))
}
