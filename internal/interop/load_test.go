package interop

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/shardquota/shardquota/limiter"
	"github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/table"
)

// envLoad is how long TestLoad's load lasts.
const envLoad = "SHARDQUOTA_INTEROP"

// shortLoad is how long it lasts unless told.
const shortLoad = 15 * time.Second

// patience is what a table's stream takes before dynoxide slows down, in acts of
// one client: the longer the load, the slower each acts.
const patience = 2_500

// TestLoad lets two clients of either kind, two operators and the aggregator work
// on one table at once, and then draws up the books: what was sold, what both
// kinds of client say they were given, what the shards still hold, and what was
// counted as used.
func TestLoad(t *testing.T) {
	lasts := shortLoad
	if text := os.Getenv(envLoad); text != "" {
		var err error
		if lasts, err = time.ParseDuration(text); err != nil {
			t.Fatalf("%s: %v", envLoad, err)
		}
	}
	l := newLoad(t)
	l.run(lasts)
	l.settle()
	l.report(l.audit(), lasts <= shortLoad)
}

// load is a world under load.
type load struct {
	*world
	customers []*customer
	pause     time.Duration // between two acts of a client

	mu       sync.Mutex
	consumed map[string]map[string]int64 // by entity and limit, millitokens, as the clients say
	toppedUp int64                       // of operated's calls, millitokens
	done     map[string]int              // what happened, as in "ours: admitted"
}

// did counts something that happened.
func (l *load) did(what string, times int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done[what] += times
}

// customer is an entity of the load.
type customer struct {
	entity  string
	parent  string // that gives with it
	limits  []limits.Limit
	most    int64                        // tokens of each limit in one use
	settles bool                         // uses are corrected afterwards
	moves   bool                         // its limits do: theirs then drops what it gives back of a quota, and is not to
	halves  bool                         // theirs corrects by parts of a token
	doubles bool                         // its shards do
	period  func(table.Item) (key int64) // of its calls, that an item is of; nil where none ends during the test
	lasts   int64                        // a period does, at least, in what the keys count
}

// mostShards is how many shards a customer doubles to.
const mostShards = 16

func newLoad(t *testing.T) *load {
	l := &load{world: newWorld(t, true), consumed: map[string]map[string]int64{}, done: map[string]int{}}
	l.customers = customers(t)
	must(t, l.ours.CreateEntity(t.Context(), limits.Entity{ID: "family"}))
	l.theirs.do("create_entity", args{"entity": "child", "parent": "family", "cascade": true})
	for i, c := range l.customers {
		if i%2 == 0 {
			l.set(c.entity, c.limits...)
		} else {
			l.theySet(c.entity, c.limits...)
		}
	}
	return l
}

func customers(t testing.TB) []*customer {
	far := func(n int64) limits.Limit { return limits.Quota("calls", n, farEdge(t)) }
	minutes := func(i table.Item) int64 { rf, _ := i.Int(table.AttrRefilledAt); return rf / 120_000 }
	window := func(i table.Item) int64 { wa, _ := i.Int("b_calls_wa"); return wa }
	halved := limits.PerSecond("rpm", 2_000)
	halved.Schedule = entries("1-59/2 * * * *", 500)
	edge := fmt.Sprintf("0 %d * * *", (time.Now().UTC().Hour()+14)%24)
	zoned := limits.Limit{Name: "calls", Capacity: 100_000, Resets: []string{edge}, Zone: "Asia/Kolkata"}
	return []*customer{
		{entity: "daily", limits: []limits.Limit{far(2_000_003), limits.PerSecond("rpm", 5_000)}, most: 400, settles: true, halves: true, doubles: true},
		{entity: "tight", limits: []limits.Limit{far(601), limits.PerSecond("rpm", 5_000)}, most: 5, settles: true, doubles: true},
		{entity: "minutes", limits: []limits.Limit{limits.Quota("calls", 1_001, "*/2 * * * *"), limits.PerSecond("rpm", 5_000)}, most: 9, doubles: true, period: minutes, lasts: 1},
		{entity: "session", limits: []limits.Limit{limits.Session("calls", 301, 3*time.Second)}, most: 9, doubles: true, period: window, lasts: 3_000},
		{entity: "scheduled", limits: []limits.Limit{zonedTo(halved, zoned.Zone), zoned}, most: 30, settles: true, doubles: true},
		{entity: "child", parent: "family", limits: []limits.Limit{far(50_000), limits.PerSecond("rpm", 900)}, most: 60, settles: true, doubles: true},
		{entity: "family", limits: []limits.Limit{far(30_000), limits.PerSecond("rpm", 1_900)}, most: 60, settles: true, doubles: true},
		{entity: "operated", limits: []limits.Limit{far(40_009), limits.PerSecond("rpm", 900)}, most: 20, settles: true, moves: true, doubles: true},
		{entity: "waived", limits: []limits.Limit{far(400), limits.PerSecond("rpm", 40)}, most: 9},
	}
}

func zonedTo(l limits.Limit, zone string) limits.Limit {
	l.Zone = zone
	return l
}

// run has all of them work until the time is over.
func (l *load) run(lasts time.Duration) {
	l.pause = max(20*time.Millisecond, lasts/patience)
	ctx, cancel := context.WithTimeout(l.Context(), lasts)
	defer cancel()
	var working sync.WaitGroup
	for range 2 {
		ours, first, theirs := l.counting(), l.counting(limiter.Deterministic(func(int) int { return 0 })), startZae(l, l.table, namespace, 1)
		working.Go(func() { l.repeat(ctx, l.pause, func(c *customer) error { return l.oursActs(ours, first, c) }) })
		working.Go(func() { l.repeat(ctx, l.pause, func(c *customer) error { return l.theyAct(theirs, c) }) })
	}
	operator := l.counting()
	working.Go(func() { l.repeat(ctx, 20*l.pause, func(*customer) error { return l.operate(operator) }) })
	ended := make(chan struct{})
	go func() {
		working.Wait()
		close(ended)
	}()
	l.follow(ended)
}

// gathers is how long a batch does.
const gathers = 400 * time.Millisecond

// follow delivers what is written until the load has ended.
func (l *load) follow(ended <-chan struct{}) {
	batch := time.NewTicker(gathers)
	defer batch.Stop()
	for {
		select {
		case <-ended:
			return
		case <-batch.C:
			l.deliver()
		}
	}
}

// repeat acts for customers by chance until the context ends.
func (l *load) repeat(ctx context.Context, pause time.Duration, act func(*customer) error) {
	next := time.NewTicker(pause)
	defer next.Stop()
	for {
		if err := act(l.customers[rand.IntN(len(l.customers))]); err != nil {
			l.Errorf("an act: %v", err)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
	}
}

// counting is a client of ours that counts what it creates and doubles.
func (l *load) counting(options ...limiter.Option) *ours {
	l.Helper()
	ours, err := newOurs(l.Context(), &counted{l.store, l.did}, namespace, append([]limiter.Option{limiter.ShardAttempts(2)}, options...)...)
	must(l, err)
	return ours
}

// amounts is a use of a customer: now and then one that is much too large.
func (c *customer) amounts() limiter.Amounts {
	amounts := limiter.Amounts{}
	for _, limit := range c.limits {
		amounts[limit.Name] = 1 + rand.Int64N(c.most)
	}
	if rand.IntN(40) == 0 {
		amounts["calls"] = 3_000_000
	}
	return amounts
}

// oursActs is what a client of ours does once; first is one that draws shard 0.
func (l *load) oursActs(ours, first *ours, c *customer) error {
	if c.doubles && rand.IntN(60) == 0 {
		return l.oursHeats(first, c)
	}
	_, err := l.oursUses(ours, c)
	return err
}

// oursUses takes, and corrects what was taken.
func (l *load) oursUses(ours *ours, c *customer) (admitted bool, err error) {
	ctx, amounts := l.Context(), c.amounts()
	lease, err := ours.Acquire(ctx, c.entity, resource, amounts)
	var rejection *limiter.Rejection
	if errors.As(err, &rejection) || errors.Is(err, limiter.ErrDisabled) {
		l.did("ours: refused", 1)
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("ours, %s: %w", c.entity, err)
	}
	l.did("ours: admitted", 1)
	l.book(c, millitokens(amounts))
	if !c.settles || rand.IntN(3) > 0 {
		return true, nil
	}
	l.did("ours: corrected", 1)
	if rand.IntN(3) == 0 {
		l.book(c, negative(millitokens(amounts)))
		return true, lease.Release(ctx)
	}
	correction := limiter.Amounts{}
	for name, amount := range amounts {
		correction[name] = rand.Int64N(2*amount+1) - amount
	}
	l.book(c, millitokens(correction))
	return true, lease.Adjust(ctx, correction)
}

// oursHeats empties shard 0's write meter, which a use of ours finds then. Now and
// then it stays low, and the aggregator doubles too.
func (l *load) oursHeats(first *ours, c *customer) error {
	zero, err := l.store.Read(l.Context(), l.group(c.entity).At(0))
	if err != nil || zero == nil || zero.ShardCount >= mostShards {
		return err
	}
	l.heat(c.entity)
	if _, err := l.oursUses(first, c); err != nil || rand.IntN(4) == 0 {
		return err
	}
	l.cool(c.entity)
	return nil
}

// theyAct is what a client of theirs does once.
func (l *load) theyAct(theirs *zae, c *customer) error {
	if c.doubles && rand.IntN(60) == 0 {
		return l.theyHeat(theirs, c)
	}
	amounts, a := c.amounts(), args{"entity": c.entity, "resource": resource}
	a["amounts"] = amounts
	if c.settles && !c.moves && rand.IntN(3) == 0 {
		l.did("theirs: corrected", 1)
		if a["abandon"] = rand.IntN(3) == 0; a["abandon"] == false {
			a["adjust"] = c.theirCorrection(amounts)
		}
	}
	var took map[string]float64
	if err := theirs.try("acquire", a, &took); err != nil {
		return fmt.Errorf("theirs, %s: %w", c.entity, err)
	}
	if took == nil {
		l.did("theirs: refused", 1)
		return nil
	}
	l.did("theirs: admitted", 1)
	l.book(c, thousandfold(took))
	return nil
}

func (c *customer) theirCorrection(amounts limiter.Amounts) map[string]float64 {
	correction := map[string]float64{}
	for name, amount := range amounts {
		correction[name] = float64(rand.Int64N(2*amount+1) - amount)
		if c.halves && name == "calls" {
			correction[name] += float64(rand.Int64N(8)) / 8
		}
	}
	return correction
}

func (l *load) theyHeat(theirs *zae, c *customer) error {
	zero, err := l.store.Read(l.Context(), l.group(c.entity).At(0))
	if err != nil || zero == nil || zero.ShardCount >= mostShards {
		return err
	}
	l.did("theirs: doubled", 1)
	return theirs.try("bump", args{"entity": c.entity, "resource": resource, "count": zero.ShardCount}, nil)
}

// book books what a client says was consumed, millitokens, also of the parent.
func (l *load) book(c *customer, amounts map[string]int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, entity := range []string{c.entity, c.parent} {
		if entity == "" {
			continue
		}
		if l.consumed[entity] == nil {
			l.consumed[entity] = map[string]int64{}
		}
		for name, amount := range amounts {
			l.consumed[entity][name] += amount
		}
	}
}
