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
	"github.com/shardquota/shardquota/limiter"
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
	Rate     float64  // uses a second that the customer asks for
	News     []string // what the aggregator did since the frame before
	Shards   []table.Sibling
	Ledger   quota.Row
	Done     bool
}

// Demo is one run.
type Demo struct {
	config  Config
	store   *memory.Store
	limiter *limiter.Limiter
	stream  *stream
	agg     *aggregator.Aggregator
	started time.Time
	group   table.Group

	admitted, rejected atomic.Int64

	mu      sync.Mutex // of what follows
	counted int64
	news    []string
}

// New sets a demo up.
func New(ctx context.Context, config Config) (*Demo, error) {
	store := memory.New()
	client := store.Client()
	const namespace = "demo"
	l, err := limiter.New(ctx, client, limiter.NamespaceID(namespace), limiter.Draws(drawn),
		limiter.Limits(resource, limiter.Quota(limit, config.Quota, "0 0 1 1 *")))
	if err != nil {
		return nil, err
	}
	d := &Demo{config: config, store: store, limiter: l, stream: &stream{}}
	d.agg = &aggregator.Aggregator{Store: store, Windows: []events.Window{events.Hourly}}
	d.group = table.Group{Namespace: namespace, Entity: entity, Resource: resource}
	store.Watch(d.stream.write)
	return d, nil
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
func (d *Demo) asked(elapsed time.Duration) (total, rate float64) {
	const first, doubles = 300.0, 2.0 // uses a second, seconds
	grown := doubles * math.Log2(max(1, d.config.Rate/first))
	t := elapsed.Seconds()
	growing := min(t, grown)
	total = first * doubles / math.Ln2 * (math.Exp2(growing/doubles) - 1)
	if t > grown {
		return total + d.config.Rate*(t-grown), d.config.Rate
	}
	return total, first * math.Exp2(t/doubles)
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
		total, _ := d.asked(time.Since(d.started))
		for ; made < total; made++ {
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
		records, err := d.stream.next()
		if err != nil {
			return err
		}
		d.apply(ctx, records)
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
		change := delivery.Change
		if change == nil {
			continue
		}
		if d.config.Observe != nil {
			d.config.Observe(change.Time, change.Old, change.New)
		}
		if change.New.Shard == 0 && change.Old != nil && change.Old.Count < change.New.Count {
			d.news = append(d.news, fmt.Sprintf("shard 0 ran hot: from %d to %d shards", change.Old.Count, change.New.Count))
		}
	}
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
	elapsed := time.Since(d.started)
	f := Frame{
		Elapsed: elapsed, Now: time.Now().UnixMilli(), Pending: d.stream.length(),
		Admitted: d.admitted.Load(), Rejected: d.rejected.Load(), Shards: make([]table.Sibling, quota.MaxShards),
	}
	_, f.Rate = d.asked(elapsed)
	var buckets []*quota.Bucket
	for _, b := range d.store.Shards(d.group) {
		f.Shards[b.Shard].Bucket = b
		f.Consumed += b.Limit(limit).Consumed
		buckets = append(buckets, &b.Bucket)
	}
	d.mu.Lock()
	f.Counted, f.News, d.news = d.counted, d.news, nil
	d.mu.Unlock()
	var err error
	if len(buckets) > 0 {
		f.Ledger, err = quota.Audit(limit, buckets, f.Now)
	}
	return f, err
}
