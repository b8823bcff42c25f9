package aggregator_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/memory"
)

// interleave runs writers at once, one store call of one of them at a time:
// whoever is to go on, of n that wait before a call, choose says.
func interleave(choose func(n int) int, bodies ...func(gate func())) {
	type writer struct {
		step   chan struct{}
		parked chan bool // before a call, or false when it is done
	}
	var waiting []writer
	for _, body := range bodies {
		w := writer{make(chan struct{}), make(chan bool)}
		go func() {
			body(func() { w.parked <- true; <-w.step })
			w.parked <- false
		}()
		if <-w.parked {
			waiting = append(waiting, w)
		}
	}
	for len(waiting) > 0 {
		next := choose(len(waiting))
		waiting[next].step <- struct{}{}
		if !<-waiting[next].parked {
			waiting = slices.Delete(waiting, next, next+1)
		}
	}
}

// everyOrder calls run once for each sequence of choices there is, until it
// returns false. The same choices must lead to the same ones being asked for.
func everyOrder(run func(choose func(n int) int) bool) (runs int) {
	var path, width []int
	for {
		depth := 0
		runs++
		more := run(func(n int) int {
			if depth == len(path) {
				path, width = append(path, 0), append(width, n)
			}
			depth++
			return path[depth-1]
		})
		last := len(path) - 1
		for last >= 0 && path[last]+1 == width[last] {
			last--
		}
		if !more || last < 0 {
			return runs
		}
		path, width = path[:last+1], width[:last+1]
		path[last]++
	}
}

// ledger is a table that keeps the books of acme's quota q as the balances tell
// them, whatever the writers say they do. Every slot of a period may be granted
// afresh once; anything else is noted as wrong.
type ledger struct {
	table.Store // what the calls are done by: a table in memory, or a mutant over it
	mem         *memory.Store
	capacity    int64
	granted     map[int64]uint32 // slots of MaxShards granted afresh, by period
	admitted    map[int64]int64  // spent and not refunded, by period, millitokens
	charged     map[int64]int64  // granted, and neither admitted nor held, by period, millitokens
	refunded    map[int]int64    // refunds by shard, less what was trimmed since, millitokens
	wrong       []string
}

func newLedger(capacity int64, items ...table.Item) *ledger {
	mem := memory.New()
	l := &ledger{
		Store: mem, mem: mem, capacity: capacity, granted: map[int64]uint32{},
		admitted: map[int64]int64{}, charged: map[int64]int64{}, refunded: map[int]int64{},
	}
	for _, item := range items {
		mem.Put(item)
	}
	// A balance that is there in the beginning was granted by whatever covers it
	// and lies in no other's cover.
	shards := mem.Shards(acme)
	slices.SortFunc(shards, func(a, b *table.Bucket) int { return l.grantOf(a) - l.grantOf(b) })
	for _, b := range shards {
		if mask := slots(b.Shard, l.grantOf(b)); l.granted[periodOf(b)]&mask == 0 {
			l.grant(b, l.grantOf(b))
		}
	}
	return l
}

func (l *ledger) grantOf(b *table.Bucket) int { return b.Limit("q").GrantCount(b.Count, l.capacity) }

// slots are those of MaxShards that a grant of a shard at a count covers.
func slots(shard, count int) (mask uint32) {
	for slot := range quota.MaxShards {
		if quota.Covers(shard, count, slot) {
			mask |= 1 << slot
		}
	}
	return mask
}

// periodOf is the period that a shard's balance of q belongs to: the day of its
// last pass, or the start of the window it reflects.
func periodOf(b *table.Bucket) int64 {
	q := b.Limit("q")
	if q.Kind() != quota.Session {
		return b.Refilled - b.Refilled%(24*hour)
	}
	if q.Window.Applied == nil {
		return 0
	}
	return *q.Window.Applied
}

func (l *ledger) grant(b *table.Bucket, count int) {
	mask, period := slots(b.Shard, count), periodOf(b)
	if double := l.granted[period] & mask; double != 0 {
		l.wrong = append(l.wrong, fmt.Sprintf("shard %d at %d was granted slots %032b of period %+d again", b.Shard, count, double, period-midnight))
	}
	l.granted[period] |= mask
}

func (l *ledger) at(shard int) *table.Bucket {
	item := l.mem.Get(acme.At(shard).PK(), table.StateSK)
	if item == nil {
		return nil
	}
	b, err := table.DecodeBucket(item)
	if err != nil {
		panic(err)
	}
	return b
}

// Pass notes a restore as a fresh grant. What the new balance lacks of it was
// spent, or moved off, since the pass was planned, and is charged to the period:
// a restore adds. A refund may be trimmed off again, once, since a restore that
// was planned before it leaves less room for it.
func (l *ledger) Pass(ctx context.Context, b *table.Bucket, pass *quota.Pass) (table.PassResult, error) {
	before := l.at(b.Shard)
	result, err := l.Store.Pass(ctx, b, pass)
	if !result.Applied {
		return result, err
	}
	after := l.at(b.Shard)
	i := slices.IndexFunc(pass.Changes, func(c quota.Change) bool { return c.Limit == "q" && c.Restore })
	if i < 0 {
		fall := before.Limit("q").Balance - after.Limit("q").Balance
		if fall < 0 || fall > l.refunded[b.Shard] {
			l.wrong = append(l.wrong, fmt.Sprintf("shard %d fell by %d without a restore", b.Shard, fall))
		}
		l.charged[periodOf(after)] += fall
		l.refunded[b.Shard] -= fall
		return result, err
	}
	l.grant(after, pass.Count)
	l.charged[periodOf(after)] += l.capacity/int64(pass.Count) - after.Limit("q").Balance
	return result, err
}

// held is what all shards hold together.
func (l *ledger) held() (sum int64) {
	for shard := range quota.MaxShards {
		if n, ok := l.mem.Get(acme.At(shard).PK(), table.StateSK)["b_q_tk"].(*types.AttributeValueMemberN); ok {
			balance, _ := strconv.ParseInt(n.Value, 10, 64)
			sum += balance
		}
	}
	return sum
}

// Create notes as a fresh grant what is there in sum more than before.
func (l *ledger) Create(ctx context.Context, c table.Creation) (table.CreationOutcome, error) {
	before, there := l.held(), l.at(c.Bucket.Shard) != nil
	outcome, err := l.Store.Create(ctx, c)
	if outcome != table.Created || there {
		return outcome, err
	}
	after := l.at(c.Bucket.Shard)
	switch fresh := l.held() - before; {
	case fresh == 0:
	case fresh == l.capacity/int64(c.Bucket.Count):
		l.grant(after, c.Bucket.Count)
	default:
		l.wrong = append(l.wrong, fmt.Sprintf("shard %d of %d made %d of nothing", after.Shard, after.Count, fresh))
	}
	for _, move := range c.Moves {
		if donor := l.at(move.Donor); periodOf(donor) != periodOf(after) {
			l.wrong = append(l.wrong, fmt.Sprintf("shard %d was given %d of another period", after.Shard, move.Amount))
		}
	}
	return outcome, err
}

// spend is what a client does on its fast path: it takes an amount, or gives
// one back, where the shard is there, has it and is in the period of now.
func (l *ledger) spend(shard int, amount, now int64) bool {
	b := l.at(shard)
	if b == nil || !b.Limit("q").Current(b.Refilled, now) || b.Limit("q").Balance < amount {
		return false
	}
	b.Limit("q").Balance -= amount
	b.Limit("q").Consumed += amount
	b.Fill()
	l.mem.Put(b.Item)
	l.admitted[periodOf(b)] += amount
	l.refunded[shard] += max(0, -amount)
	return true
}

// settle lets a client draw every shard, so that nothing is left to be granted,
// and checks the books of the period: what was admitted, what was charged to it
// and what is held make up the capacity, no more and no less.
func (l *ledger) settle(now int64) []string {
	c, held, zero := client{store: l, now: now}, int64(0), l.at(0)
	for shard := range zero.Count {
		if l.at(shard) == nil {
			c.create(shard)
		}
		c.pass(shard)
	}
	period := periodOf(l.at(0))
	for shard := range zero.Count {
		b := l.at(shard)
		if b == nil || periodOf(b) != period || !b.Limit("q").Current(b.Refilled, now) {
			l.wrong = append(l.wrong, fmt.Sprintf("shard %d is not in the period", shard))
			continue
		}
		held += b.Limit("q").Balance
	}
	if sum := l.admitted[period] + l.charged[period] + held; sum != l.capacity {
		l.wrong = append(l.wrong, fmt.Sprintf("admitted %d, charged %d and held %d are %+d of the capacity",
			l.admitted[period], l.charged[period], held, sum-l.capacity))
	}
	for period, admitted := range l.admitted {
		if admitted > l.capacity {
			l.wrong = append(l.wrong, fmt.Sprintf("admitted %d in period %+d", admitted, period-midnight))
		}
	}
	return l.wrong
}

// client does by the rules what another program does on the same table.
type client struct {
	store table.Store
	now   int64
	fund  func(zero *quota.Bucket, siblings []*quota.Bucket, shard, count int, now int64) ([]quota.Funding, error)
}

// create makes a shard that the client drew, if it is not there. Where a donor
// changes twice it grants nothing this time.
func (c client) create(shard int) {
	ctx, fund := context.Background(), c.fund
	if fund == nil {
		fund = quota.Fund
	}
	for attempt := range 3 {
		zero, _ := c.store.Read(ctx, acme.At(0))
		if zero == nil || shard >= zero.Count {
			return
		}
		family, _ := c.store.RaiseAndRead(ctx, acme, zero.Count, c.now)
		if family[0].Bucket.Count != zero.Count || family[shard].Bucket != nil {
			return
		}
		now, siblings := c.now, []*quota.Bucket(nil)
		for _, s := range family {
			if s.Bucket != nil {
				now, siblings = max(now, s.Bucket.Refilled), append(siblings, &s.Bucket.Bucket)
			}
		}
		zero = family[0].Bucket
		fundings, err := fund(&zero.Bucket, siblings, shard, zero.Count, now)
		if err != nil || !zero.WindowsLive(now) {
			return
		}
		creation := table.Creation{}
		for i := range fundings {
			if attempt == 2 && fundings[i].Source == quota.Move {
				fundings[i].Amount = 0
			}
			if fundings[i].Source == quota.Move && fundings[i].Amount > 0 {
				creation.Moves = append(creation.Moves, fundings[i])
			}
		}
		creation.Bucket = table.NewShard(zero, shard, zero.Count, now, fundings)
		if outcome, _ := c.store.Create(ctx, creation); outcome != table.DonorChanged {
			return
		}
	}
}

// pass brings a shard up to date where that is due.
func (c client) pass(shard int) {
	b, _ := c.store.Read(context.Background(), acme.At(shard))
	for b != nil {
		pass, _ := quota.PlanPass(&b.Bucket, nil, c.now)
		if pass == nil {
			return
		}
		result, _ := c.store.Pass(context.Background(), b, pass)
		b = result.Current
	}
}

// steps is a table on which every request to the service is a step of its own:
// raising siblings is a read, and then an update for each.
type steps struct {
	table.Store
	mem   *memory.Store
	gate  func()
	raise string // "" as it is to be, "never", or "late": the images from before the raise count
}

func (l *ledger) steps(gate func()) *steps { return &steps{Store: l, mem: l.mem, gate: gate} }

func (s *steps) Read(ctx context.Context, key table.Key) (*table.Bucket, error) {
	s.gate()
	return s.Store.Read(ctx, key)
}

func (s *steps) Pass(ctx context.Context, b *table.Bucket, pass *quota.Pass) (table.PassResult, error) {
	s.gate()
	return s.Store.Pass(ctx, b, pass)
}

func (s *steps) Double(ctx context.Context, group table.Group, from int) (table.DoubleResult, error) {
	s.gate()
	return s.Store.Double(ctx, group, from)
}

func (s *steps) Freeze(ctx context.Context, key table.Key, freezes []quota.Freeze) error {
	s.gate()
	return s.Store.Freeze(ctx, key, freezes)
}

func (s *steps) Create(ctx context.Context, c table.Creation) (table.CreationOutcome, error) {
	s.gate()
	return s.Store.Create(ctx, c)
}

func (s *steps) RaiseAndRead(ctx context.Context, group table.Group, n int, now int64) ([]table.Sibling, error) {
	s.gate()
	siblings := make([]table.Sibling, n)
	for shard := range siblings {
		siblings[shard].Bucket, _ = s.Store.Read(ctx, group.At(shard))
	}
	for shard, sibling := range siblings {
		if b := sibling.Bucket; s.raise == "never" || b == nil || shard == 0 || b.Count >= n {
			continue
		}
		s.gate()
		raised := s.raiseOne(sibling.Bucket, n, now)
		if s.raise != "late" {
			siblings[shard] = raised
		}
	}
	return siblings, nil
}

// raiseOne is the update of one sibling, planned from an image.
func (s *steps) raiseOne(b *table.Bucket, n int, now int64) table.Sibling {
	item := s.mem.Get(b.Key.PK(), table.StateSK)
	stored, _ := table.DecodeBucket(item)
	if stored.Count >= n {
		return table.Sibling{Bucket: stored}
	}
	for _, freeze := range quota.Freezes(&b.Bucket, now) {
		if name := table.Attr(freeze.Limit, table.FieldGrant); item[name] == nil {
			item[name] = table.N(strconv.Itoa(freeze.Grant))
		}
	}
	s.mem.Put(build(item, count(n)))
	stored, _ = table.DecodeBucket(s.mem.Get(b.Key.PK(), table.StateSK))
	return table.Sibling{Bucket: stored, Raised: true}
}

// noPin is a table that creates a shard whatever shard 0's count has become.
type noPin struct{ *memory.Store }

func (m noPin) Create(ctx context.Context, c table.Creation) (outcome table.CreationOutcome, err error) {
	m.atCount(acme.At(0), c.Bucket.Count, func() { outcome, err = m.Store.Create(ctx, c) })
	return outcome, err
}

// noCount is a table that passes a shard whatever its count has become.
type noCount struct{ *memory.Store }

func (m noCount) Pass(ctx context.Context, b *table.Bucket, p *quota.Pass) (result table.PassResult, err error) {
	noPin(m).atCount(b.Key, p.Count, func() { result, err = m.Store.Pass(ctx, b, p) })
	return result, err
}

// atCount does something to a shard as if it had a count, and gives it back the
// one it has.
func (m noPin) atCount(key table.Key, n int, do func()) {
	item := m.Get(key.PK(), table.StateSK)
	m.Put(build(item, count(n)))
	do()
	m.Put(build(m.Get(key.PK(), table.StateSK), attrs{table.AttrShardCount: item[table.AttrShardCount]}))
}

func TestEveryOrder(t *testing.T) {
	var orders []string
	runs := everyOrder(func(choose func(int) int) bool {
		var order string
		write := func(text string) func(func()) {
			return func(gate func()) {
				for _, letter := range text {
					gate()
					order += string(letter)
				}
			}
		}
		interleave(choose, write("abc"), write("xy"))
		orders = append(orders, order)
		return true
	})
	slices.Sort(orders)
	eq(t, "orders of 3 and 2 steps", len(slices.Compact(orders)), 10)
	eq(t, "runs", runs, 10)
}
