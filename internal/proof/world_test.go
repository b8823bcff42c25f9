package proof_test

import (
	"fmt"
	"maps"
	"slices"

	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/internal/explore"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/memory"
)

// maxShards is the most shards that a world looks after.
const maxShards = quota.MaxShards

// world is a table in memory and what is known of it: its books, its stream and
// what time it is.
type world struct {
	mem    *memory.Store
	mutant mutant
	group  table.Group // whose shards these are
	above  *world      // the parent's, on the same table; nil where there is none

	now       int64
	ticks     bool // some actor moves the clock
	shards    [maxShards]*shard
	others    map[table.ItemKey]explore.Digest // items that are no shards
	users     []*user
	books     *books
	stream    stream
	consumers []*consumer
	discarded [][]*record
	windows   []events.Window // that usage is counted in
	reads     readOrder       // of siblings

	unsettled bool // allowance may be left ungranted in the end
	decoded   decoder
	tell      func(line string) // told what is done after nobody went on; may be nil
}

// decoder remembers buckets by the digest of their items: the many runs of a
// search see the same ones again and again.
type decoder map[explore.Digest]*shard

// readOrder is how siblings are read.
type readOrder int

const (
	atOnce readOrder = iota
	firstFirst
	lastFirst
)

// shard is a bucket as it is in the table. It is never changed in place.
type shard struct {
	*table.Bucket
	digest explore.Digest
}

func newWorld(m mutant, decoded decoder, now int64, items ...table.Item) *world {
	w := &world{
		mem: memory.New(), mutant: m, group: acme, now: now, books: newBooks(), decoded: decoded,
		others: map[table.ItemKey]explore.Digest{},
	}
	for _, item := range items {
		pk, sk := item.Key()
		if sk != table.StateSK {
			w.putOther(item)
			continue
		}
		w.mem.Put(item)
		key, err := table.ParseKey(pk)
		if err != nil {
			panic(err)
		}
		if key.Group != acme && w.above == nil {
			w.above = &world{mem: w.mem, mutant: m, group: key.Group, now: now, books: newBooks(), decoded: decoded}
		}
		of := w.of(key.Group)
		of.shards[key.Shard] = of.load(key.Shard)
	}
	if w.books.open(w.all()); w.above != nil {
		w.above.books.open(w.above.all())
	}
	return w
}

// of is the world of a group's shards: acme's, or its parent's.
func (w *world) of(group table.Group) *world {
	if w.above != nil && group == w.above.group {
		return w.above
	}
	return w
}

// tick moves the clock.
func (w *world) tick(to int64) {
	if w.now = to; w.above != nil {
		w.above.now = to
	}
}

func (w *world) load(i int) *shard {
	item := w.mem.Get(w.group.At(i).PK(), table.StateSK)
	if item == nil {
		return nil
	}
	digest := digestOf(item)
	known := w.decoded[digest]
	if known == nil {
		b, err := table.DecodeBucket(item)
		if err != nil {
			panic(err)
		}
		known = &shard{b, digest}
		w.decoded[digest] = known
	}
	return known
}

// at is a shard's bucket, nil where there is none. It is not to be changed.
func (w *world) at(i int) *table.Bucket {
	if w.shards[i] == nil {
		return nil
	}
	return w.shards[i].Bucket
}

// read is a shard's bucket for a reader to keep, and what the reader is told.
func (w *world) read(i int) (*table.Bucket, explore.Digest) {
	s := w.shards[i]
	if s == nil {
		return nil, 0
	}
	b := *s.Bucket
	b.Limits, b.Item = slices.Clone(b.Limits), b.Item.Clone()
	return &b, s.digest
}

func (w *world) all() (buckets []*table.Bucket) {
	for _, s := range w.shards {
		if s != nil {
			buckets = append(buckets, s.Bucket)
		}
	}
	return buckets
}

// held is what all shards hold together.
func (w *world) held() (sum int64) {
	for _, b := range w.all() {
		sum += b.Limit("q").Balance
	}
	return sum
}

// wroteShard looks at a shard after a write, and puts what changed on the stream.
func (w *world) wroteShard(i int) change {
	old := w.shards[i]
	now := w.load(i)
	if now == nil {
		return change{}
	}
	if old != nil && now.digest == old.digest {
		return change{old.Bucket, old.Bucket}
	}
	w.shards[i] = now
	w.stream.add(i, old, now, w.now-w.now%second)
	c := change{after: now.Bucket}
	if old != nil {
		c.before = old.Bucket
	}
	w.books.change(c.before, c.after, w.now-w.now%second)
	return c
}

// put writes an item of a shard.
func (w *world) put(item table.Item, i int) {
	w.mem.Put(item)
	w.wroteShard(i)
}

// putOther writes an item that is no shard.
func (w *world) putOther(item table.Item) {
	w.mem.Put(item)
	pk, sk := item.Key()
	w.others[table.ItemKey{PK: pk, SK: sk}] = digestOf(item)
}

// spend is what a client does on its fast path: it takes an amount, or gives
// one back that it took in this period, where the shard is there, has it, may be
// spent from and is in the period of now.
func (w *world) spend(i int, amount, now int64) bool {
	b := w.at(i)
	if b == nil || b.Disabled || b.ValidUntil != nil && now >= *b.ValidUntil || !b.Limit("q").Current(b.RefilledAt, now) {
		return false
	}
	who := spender{"", i, periodOf(b)}
	amount = max(amount, -w.books.spent[who])
	l := b.Limit("q")
	if l.Balance < amount {
		return false
	}
	w.books.spent[who] += amount
	w.books.admitted[who.period] += amount
	meter := b.Limit(quota.WriteMeter)
	w.put(build(b.Item, attrs{
		"b_q_tk": l.Balance - amount, "b_q_tc": l.Consumed + amount,
		"b_wcu_tk": meter.Balance - 1000, "b_wcu_tc": meter.Consumed + 1000,
	}), i)
	return true
}

// digest is of all that is shared.
func (w *world) digest() explore.Digest {
	d := w.books.digest().Add(uint64(w.now))
	for i, s := range w.shards {
		if s != nil {
			d = d.Add(uint64(i), uint64(s.digest))
		}
	}
	var sum explore.Digest
	for key, item := range w.others {
		sum += explore.Digest(item).Text(key.PK).Text(key.SK)
	}
	d = d.Add(uint64(sum), uint64(w.pending()))
	for _, u := range w.users {
		d = d.Add(uint64(u.claims.digest()))
	}
	if w.above != nil {
		d = d.Add(uint64(w.above.digest()))
	}
	return d
}

// check says what is wrong with the table as it is.
func (w *world) check() string {
	if wrong := w.books.check(w.all()); wrong != "" {
		return wrong
	}
	for _, u := range w.users {
		if wrong := u.claims.check(); wrong != "" {
			return u.name + wrong
		}
	}
	if w.above != nil {
		if wrong := w.above.check(); wrong != "" {
			return "of the parent's: " + wrong
		}
	}
	return ""
}

// finish lets what is on the stream be processed without disturbance, has
// clients draw every shard, and says what is wrong then. It does so in a copy of
// the world.
func (w *world) finish(tell func(line string)) string {
	was := *w
	defer func() { *w = was }()
	mem := memory.New()
	for _, item := range w.mem.Items() {
		mem.Put(item)
	}
	w.own(mem)
	w.tell = tell
	for _, phase := range []func() string{w.drain, w.outlived, w.check, w.settle, w.check, w.operated} {
		if wrong := phase(); wrong != "" {
			return wrong
		}
	}
	return ""
}

// outlived says which shard expires before what it owes is over, or shard 0 before
// the others, once the aggregator has seen them all.
func (w *world) outlived() string {
	for _, b := range w.all() {
		switch zero := w.at(0); {
		case len(b.Outlive(w.now)) > 0:
			return fmt.Sprintf("shard %d expires while it owes", b.Shard)
		case b.Shard > 0 && b.Expires != nil && zero.Expires != nil && *zero.Expires < *b.Expires+7*day/1000:
			return fmt.Sprintf("shard 0 does not outlive shard %d by a week", b.Shard)
		}
	}
	return ""
}

// own gives the world copies of all that it changes in place, and a table.
func (w *world) own(mem *memory.Store) {
	w.mem, w.books, w.others = mem, w.books.clone(), maps.Clone(w.others)
	w.consumers = slices.Clone(w.consumers)
	for i, c := range w.consumers {
		own := *c
		w.consumers[i] = &own
	}
	if w.above != nil {
		above := *w.above
		above.own(mem)
		w.above = &above
	}
}

// settle lets a client draw every shard, so that nothing is left to be granted.
func (w *world) settle() string {
	draw := w.drawn
	if len(w.users) > 0 {
		draw = w.drawnByLimiter()
	}
	for i := 0; i == 0 || i < w.at(0).ShardCount; i++ {
		if draw(i); len(w.books.wrong) > 0 {
			return w.books.wrong[0]
		}
	}
	if w.unsettled {
		return ""
	}
	period := periodOf(w.at(0))
	for i := range w.at(0).ShardCount {
		if b := w.at(i); b == nil || periodOf(b) != period || !b.Limit("q").Current(b.RefilledAt, w.now) {
			return fmt.Sprintf("shard %d is not in the period", i)
		}
	}
	if left := ^w.books.granted[period]; left != 0 {
		return slotText(left) + " is granted to no shard"
	}
	return ""
}

// drawn is that a client by the rules draws a shard.
func (w *world) drawn(i int) {
	c := &client{w: w, store: w.requests(nil, "in the end a client", nil)}
	if w.at(i) == nil {
		c.create(i)
	}
	c.pass(i)
}
