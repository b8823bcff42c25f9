// Package demo runs a hot customer against a quota, all in one process: the
// table and its stream are in memory, clients and the aggregator are the real
// ones.
package demo

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/events/memstream"
	"github.com/shardquota/shardquota/limiter"
	"github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/memory"
)

// Who uses what.
const (
	entity   = "acme"
	resource = "gpt-4"
	limit    = "calls"
)

// Config is what a demo runs.
type Config struct {
	Quota   int64         // tokens that are sold
	Clients int           // programs that take them, one each time
	Rate    float64       // uses a second that the customer works up to
	Longest time.Duration // after which it ends though tokens are left

	// Observe is told of every write to a bucket in order; nil for nobody.
	Observe func(at int64, before, after *table.Image)
}

// Frame is how far a demo is.
type Frame struct {
	Elapsed  time.Duration
	Now      int64 // epoch ms
	Admitted int64 // uses, each of one token
	Consumed int64 // what the shards say was taken of them, millitokens
	Rejected int64
	Counted  int64    // tokens that usage items hold, millitokens
	Pending  int      // records of the stream that are not processed yet
	Asked    int64    // uses that the customer has asked for
	News     []string // what became of shards since the frame before
	Count    int      // of shards, made or not, as the news have it
	Shards   []table.Sibling
	Ledger   quota.Row
	Done     bool
}

// Demo is one run.
type Demo struct {
	config  Config
	store   *memory.Store
	limiter *limiter.Limiter
	stream  memstream.Stream
	agg     *aggregator.Aggregator
	started time.Time
	group   table.Group

	admitted, rejected atomic.Int64

	mu        sync.Mutex // of what follows
	counted   int64
	processed int // records
	news      []string
	count     int // of shards
}

// New sets a demo up.
func New(ctx context.Context, config Config) (*Demo, error) {
	store := memory.New()
	client := store.Client()
	const namespace = "demo"
	declared, err := limits.Open(ctx, client, limits.NamespaceID(namespace),
		limits.Default(resource, limits.Quota(limit, config.Quota, "0 0 1 1 *")))
	if err != nil {
		return nil, err
	}
	d := &Demo{config: config, store: store, limiter: limiter.New(declared, limiter.ShardAttempts(drawn))}
	d.stream.Label, d.stream.Buckets = "demo", true
	d.stream.Now = func() int64 { return time.Now().UnixMilli() }
	d.agg = &aggregator.Aggregator{Store: store, Windows: []events.Window{events.Hourly}}
	d.group = table.Group{Namespace: namespace, Entity: entity, Resource: resource}
	store.Watch(d.written)
	return d, nil
}

// written is told of every write of the table.
func (d *Demo) written(old, new table.Item) {
	d.stream.Write(old, new)
	key := d.group.At(0)
	if pk, sk := new.Key(); pk != key.PK() || sk != table.StateSK {
		return
	}
	count, err := new.ShardCount()
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil || count == d.count {
		return
	}
	if d.count > 0 {
		d.news = append(d.news, fmt.Sprintf("shard 0 ran hot: from %d to %s", d.count, sharded(count)))
	}
	d.count = count
}

// sharded is a number of shards.
func sharded(n int) string {
	if n == 1 {
		return "1 shard"
	}
	return fmt.Sprintf("%d shards", n)
}

const (
	drawn  = 4                      // shards that a use asks before it is rejected
	batch  = 500 * time.Millisecond // how often the aggregator gets what is there, as one batch
	redraw = 250 * time.Millisecond
)

// Run runs the demo until everything that was sold is used, and hands out a
// frame again and again.
func (d *Demo) Run(ctx context.Context, show func(Frame) error) error {
	d.started = time.Now()
	using, stop := context.WithTimeout(ctx, d.config.Longest)
	defer stop()
	uses := make(chan struct{}, d.config.Clients)
	group, using := errgroup.WithContext(using)
	group.Go(func() error { return d.ask(using, uses) })
	for range d.config.Clients {
		group.Go(func() error { return d.use(using, uses) })
	}
	processed := make(chan error, 1)
	finished := make(chan struct{})
	go func() { processed <- d.process(ctx, finished) }()
	err := d.watch(using, show, stop)
	err = errors.Join(err, group.Wait())
	close(finished)
	if err = errors.Join(err, <-processed); err != nil {
		return err
	}
	last, err := d.frame()
	last.Done = true
	return errors.Join(err, show(last))
}

// asked is how often the customer has asked by then: it starts slowly, and asks
// twice as often every two seconds until it asks as often as it can.
func (d *Demo) asked(elapsed time.Duration) float64 {
	const first, doubles = 300.0, 2.0 // uses a second, seconds
	grown := doubles * math.Log2(max(1, d.config.Rate/first))
	t := elapsed.Seconds()
	growing := min(t, grown)
	total := first * doubles / math.Ln2 * (math.Exp2(growing/doubles) - 1)
	if t > grown {
		total += d.config.Rate * (t - grown)
	}
	return total
}

// ask has the clients use so often as the customer asks.
func (d *Demo) ask(ctx context.Context, uses chan<- struct{}) error {
	defer close(uses)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for made := 0.0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		for total := d.asked(time.Since(d.started)); made < total; made++ {
			select {
			case uses <- struct{}{}:
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// use is one client.
func (d *Demo) use(ctx context.Context, uses <-chan struct{}) error {
	for range uses {
		_, err := d.limiter.Acquire(context.WithoutCancel(ctx), entity, resource, limiter.Amounts{limit: 1})
		var rejection *limiter.Rejection
		switch {
		case err == nil:
			d.admitted.Add(1)
		case errors.As(err, &rejection):
			d.rejected.Add(1)
		default:
			return err
		}
	}
	return nil
}

// process hands the stream to the aggregator, to its end once no client is left.
func (d *Demo) process(ctx context.Context, finished <-chan struct{}) error {
	tick := time.NewTicker(batch)
	defer tick.Stop()
	for done := false; !done; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-finished:
			done = true
		case <-tick.C:
		}
		d.apply(ctx, d.stream.Take())
	}
	return ctx.Err()
}

func (d *Demo) apply(ctx context.Context, records []events.Record) {
	deliveries := aggregator.Decode(records)
	now := time.Now().UnixMilli()
	report := d.agg.ProcessDecoded(ctx, deliveries, func(int64) int64 { return now })
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, delivery := range deliveries {
		if change := delivery.Change; change != nil && d.config.Observe != nil {
			d.config.Observe(change.Time, change.Old, change.New)
		}
	}
	d.processed += len(records)
	for _, usage := range report.Usage {
		d.counted += usage.Counters[limit]
	}
	d.news = append(d.news, news(report)...)
}

// news is which shards a batch made.
func news(report *aggregator.Report) []string {
	var lines []string
	for _, created := range report.Created {
		for _, f := range created.Funding {
			if f.Source == quota.Move {
				lines = append(lines, fmt.Sprintf("shard %d made ahead of use: %s %s moved off shard %d", created.Key.Shard, table.Tokens(f.Amount), limit, f.Donor))
			}
		}
	}
	return lines
}

// watch shows frames until everything is used, or until ctx is done.
func (d *Demo) watch(ctx context.Context, show func(Frame) error, stop func()) error {
	defer stop()
	tick := time.NewTicker(redraw)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		frame, err := d.frame()
		if err == nil {
			err = show(frame)
		}
		if err != nil || frame.Admitted >= d.config.Quota {
			return err
		}
	}
}

// frame is how far the demo is now.
func (d *Demo) frame() (Frame, error) {
	d.mu.Lock()
	f := Frame{Counted: d.counted, News: d.news, Count: d.count, Shards: make([]table.Sibling, quota.MaxShards)}
	processed := d.processed
	d.news = nil
	d.mu.Unlock()
	f.Elapsed, f.Now, f.Pending = time.Since(d.started), time.Now().UnixMilli(), d.stream.Written()-processed
	f.Admitted, f.Rejected = d.admitted.Load(), d.rejected.Load()
	f.Asked = max(int64(d.asked(f.Elapsed)), f.Admitted+f.Rejected)
	var buckets []*quota.Bucket
	for _, b := range table.ReadableShards(d.group, d.store.Get) {
		f.Shards[b.Shard].Bucket = b
		f.Consumed += b.Limit(limit).Consumed
		buckets = append(buckets, &b.Bucket)
	}
	var err error
	if len(buckets) > 0 {
		f.Ledger, err = quota.Audit(limit, buckets, f.Now)
	}
	return f, err
}
