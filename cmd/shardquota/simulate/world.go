package simulate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/limiter"
	"github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/memory"
)

// Who uses what.
const (
	namespace = "simulation"
	entity    = "acme"
	resource  = "gpt-4"
	beside    = "gpt-4.aside" // the bucket of its own that some options have
	limitName = "tokens"
)

var group = table.Group{Namespace: namespace, Entity: entity, Resource: resource}

const (
	begin    = int64(1796126400000) // noon of 1 December 2026, epoch ms: far from where a quota is restored
	programs = 4                    // that a customer's uses come from, at random
	tick     = 250                  // ms: how often the aggregator runs and the shards are looked at
	lag      = 500                  // ms from a write to its being with the aggregator
	rest     = 10 * minute          // ms in which every shard becomes full before the beginning
)

// world is one option under one workload.
type world struct {
	option   Option
	workload Workload
	now      int64 // epoch ms
	tank     *Tank // pays for what is admitted
	result   *Result

	metered    *memory.Metered
	table      *variant
	stream     stream
	aggregator *aggregator.Aggregator
	limiters   []*limiter.Limiter
	pick       func(n int) int
	random     *rand.Rand
	asked      map[table.Key]int // writes that were asked for of each item while the rate was measured
}

func newWorld(ctx context.Context, option Option, workload Workload, seed uint64) (*world, error) {
	w := &world{
		option: option, workload: workload, now: begin - rest, asked: map[table.Key]int{},
		result: &Result{Workload: workload.Name, Option: option.Name}, metered: memory.New().Metered(),
		random: source(seed, workload.Name, "programs and shards"),
	}
	w.pick = w.random.IntN
	w.stream.seen = map[table.Key]*table.Image{}
	w.metered.Watch(func(old, new table.Item) { w.stream.write(old, new, w.now) })
	w.table = &variant{Client: w.metered, option: &w.option, most: option.most(&workload), meter: workload.Meter, asked: w.busy}
	w.aggregator = &aggregator.Aggregator{Store: w.table, Concurrency: 1}
	for range programs {
		store, err := w.open(ctx)
		if err != nil {
			return nil, err
		}
		w.limiters = append(w.limiters, limiter.New(store,
			limiter.ShardAttempts(max(1, w.option.draws)), limiter.Deterministic(func(n int) int { return w.pick(n) })))
	}
	return w, w.prepare(ctx)
}

// open opens the limits for one program.
func (w *world) open(ctx context.Context) (*limits.Store, error) {
	shards, aside := w.limits()
	return limits.Open(ctx, w.table, limits.NamespaceID(namespace), limits.Sequential(),
		limits.Clock(func() time.Time { return time.UnixMilli(w.now) }),
		limits.Default(resource, shards), limits.Default(beside, aside))
}

// limits are those of the shards and of the bucket aside.
func (w *world) limits() (shards, aside limits.Limit) {
	shards = w.workload.limit(w.option.division)
	aside = w.workload.limit(quota.Divided)
	switch w.option.aside {
	case whole:
		aside.Period *= quota.MaxShards
	case half:
		shards.Capacity, shards.Refill = shards.Capacity/2, shards.Refill/2
		aside.Capacity, aside.Refill = aside.Capacity-shards.Capacity, aside.Refill-shards.Refill
	}
	return shards, aside
}

// busy is told of each write that is asked for of an item.
func (w *world) busy(key *table.Key) {
	if w.steady(w.now) {
		w.asked[*key]++
	}
}

// steady reports whether an instant is one at which the rate is measured.
func (w *world) steady(now int64) bool {
	from := w.workload.Steady
	return from > 0 && now >= begin+from && now < begin+w.workload.Length
}

// prepare brings the shards to the count that the workload begins with, all of
// them there and full, and uses what was used before.
func (w *world) prepare(ctx context.Context) error {
	if err := w.touch(ctx, resource, 0); err != nil {
		return err
	}
	for from := 1; from < w.workload.Shards; from *= 2 {
		if _, err := w.table.Double(ctx, group, from); err != nil {
			return err
		}
	}
	for shard := range w.shards() {
		if err := w.touch(ctx, resource, shard); err != nil {
			return err
		}
	}
	if w.option.aside != none {
		if err := w.touch(ctx, beside, 0); err != nil {
			return err
		}
	}
	if err := w.deliver(ctx, w.now); err != nil {
		return err
	}
	w.now = begin - 2*tick
	for _, b := range w.buckets() {
		pass, err := quota.Materialise(&b.Bucket, nil, w.now)
		if err == nil {
			_, err = w.table.Pass(ctx, b, pass)
		}
		if err != nil {
			return fmt.Errorf("fill shard %d: %w", b.Shard, err)
		}
	}
	if err := w.use(ctx); err != nil {
		return err
	}
	if err := w.deliver(ctx, w.now); err != nil {
		return err
	}
	w.result.clear()
	w.now = begin
	w.tank = NewTank(w.workload.Capacity, w.workload.Refill, begin)
	w.tank.Pay(w.workload.Used, begin)
	return w.stream.err
}

// touch takes nothing off a shard by each program, so that it is there and known.
func (w *world) touch(ctx context.Context, resource string, shard int) error {
	pick := w.pick
	defer func() { w.pick = pick }()
	w.pick = func(n int) int { return min(shard, n-1) }
	for _, l := range w.limiters {
		if _, err := l.Acquire(ctx, entity, resource, limiter.Amounts{limitName: 0}); err != nil {
			return err
		}
	}
	return nil
}

// use uses what was used before the beginning, in amounts of 5 tokens.
func (w *world) use(ctx context.Context) error {
	const amount, tries = 5, 10
	w.tank = NewTank(w.workload.Used, 0, w.now)
	for tried := int64(0); w.tank.Has(amount, w.now); tried++ {
		if tried > tries*w.workload.Used/amount {
			return errors.New("what is to be used before the beginning is not given")
		}
		if err := w.ask(ctx, amount); err != nil {
			return err
		}
	}
	return nil
}

// shards is shard 0's count.
func (w *world) shards() int {
	if zero := w.stream.seen[group.At(0)]; zero != nil {
		return zero.ShardCount
	}
	return 1
}

// buckets are all there are, the bucket aside last.
func (w *world) buckets() []*table.Bucket {
	other := group
	other.Resource = beside
	var all []*table.Bucket
	for _, g := range []table.Group{group, other} {
		for shard := range quota.MaxShards {
			if image := w.stream.seen[g.At(shard)]; image != nil {
				if b, err := image.DecodeFull(); err == nil {
					all = append(all, b)
				}
			}
		}
	}
	return all
}

// deliver hands to the aggregator what was written up to an instant.
func (w *world) deliver(ctx context.Context, written int64) error {
	batch := w.stream.take(written)
	if len(batch) == 0 {
		return w.stream.err
	}
	w.metered.Reset()
	report := w.aggregator.Maintain(ctx, batch, func(int64) int64 { return w.now })
	w.result.Aggregator.add(w.metered.Units())
	return errors.Join(report.Err(), w.stream.err)
}

// held is the most that can be taken off all shards together, millitokens. A
// shard's debt takes nothing off what another holds.
func (w *world) held() int64 {
	sum := int64(0)
	for _, b := range w.buckets() {
		balance := b.Limit(limitName).Balance
		if after, _, err := current(b, w.now); err == nil {
			balance = max(balance, after.Limit(limitName).Balance)
		}
		sum += max(0, balance)
	}
	return sum
}

// current is a bucket brought up to date, and the use that would do that.
func current(b *table.Bucket, now int64) (*quota.Bucket, *quota.Use, error) {
	use, _, err := quota.PlanUse(&b.Bucket, nil, now)
	if err != nil {
		return nil, nil, err
	}
	after := b.Bucket
	after.Limits = slices.Clone(after.Limits)
	use.Apply(&after)
	return &after, use, nil
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }
