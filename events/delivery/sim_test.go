package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/events/delivery"
	"github.com/shardquota/shardquota/internal/traffic"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/memory"
)

const (
	second = int64(1000)
	hour   = 3600 * second
	begin  = int64(1796083200000) + 12*hour - 100*second // 100 seconds before a full hour
)

var groups = []table.Group{
	{Namespace: "ns", Entity: "acme", Resource: "gpt-4"},
	{Namespace: "ns", Entity: "acme", Resource: "embed"},
	{Namespace: "ns", Entity: "beta", Resource: "gpt-4"},
}

// simulation is clients, a table, its stream, a mapping of the stream to the
// aggregator, and all that can go wrong on the way.
type simulation struct {
	r      *rand.Rand
	table  *traffic.Table
	stream *stream
	taken  int   // of the table's records, to the stream
	exact  bool  // refunds are of all that was spent last, so that totals come again
	latest int64 // that, millitokens
	still  bool  // time does not pass while the stream is delivered

	config  delivery.Config
	mapping *delivery.Mapping
	read    map[string]int // of each stream shard
	agg     *aggregator.Aggregator
	faults  *faults
	mutant  mutant

	kept  [][]events.Record // batches that were given up
	acked map[string]bool   // records that are done or kept aside, by stream and number
	truth map[string]map[string]int64
	wrong []string
	seen  map[string]int // what happened, and how often
}

// mutant is what is done wrong. The zero value is right.
type mutant struct {
	store  func(table.Store, *memory.Store) table.Store
	batch  func([]aggregator.Delivery)                               // changes what the aggregator sees
	answer func(*aggregator.Report, delivery.Answer) delivery.Answer // changes what Lambda is told
}

func newSimulation(seed uint64, m mutant) *simulation {
	r := rand.New(rand.NewPCG(seed, 41))
	s := &simulation{
		r: r, table: traffic.NewTable(begin), stream: &stream{}, mutant: m,
		read: map[string]int{}, acked: map[string]bool{}, truth: map[string]map[string]int64{}, seen: map[string]int{},
	}
	s.config = delivery.Config{
		BatchSize: 1 + r.IntN(40), Window: time.Duration(r.IntN(3)) * time.Second, Parallel: 1 + r.IntN(3),
		Bisect: r.IntN(3) > 0, Attempts: 2 + r.IntN(4), MaxAge: time.Duration(30+r.IntN(90)) * time.Second,
		Backoff: 100 * time.Millisecond, MaxBackoff: 5 * time.Second,
	}
	s.exact = seed%2 == 1
	s.stream.begin()
	s.over(s.table)
	for _, group := range groups {
		s.table.PutFirst(group, 10,
			traffic.Limit{Name: "rpm", Capacity: 600_000, Refill: 600_000, Period: 60_000},
			traffic.Limit{Name: "day", Capacity: 5_000_000, Period: hour, Resets: "1m0"})
	}
	return s
}

// over makes a table the one that the aggregator tends to.
func (s *simulation) over(store table.Store) {
	s.faults = &faults{Store: store, r: s.r, percent: 25}
	s.agg = &aggregator.Aggregator{Store: s.faults, Windows: []events.Window{events.Hourly, events.Daily}, Concurrency: 1}
	if s.mutant.store != nil {
		s.agg.Store = s.mutant.store(s.faults, s.table.Memory)
	}
	s.restart()
}

func (s *simulation) chance(percent int) bool { return s.r.IntN(100) < percent }

// restart disables and enables the mapping, or ends its process: it forgets the
// batches under way.
func (s *simulation) restart() {
	checkpoints := map[string]delivery.Checkpoint{}
	if s.mapping != nil {
		checkpoints = s.mapping.Checkpoints()
	}
	s.mapping = delivery.New(s.config)
	for _, shard := range s.stream.shards {
		checkpoint := checkpoints[shard.ID]
		s.mapping.Open(shard.Shard, checkpoint)
		s.read[shard.ID] = shard.after(checkpoint)
	}
}

// live is clients and the mapping side by side.
func (s *simulation) live(steps int) {
	for range steps {
		switch n := s.r.IntN(100); {
		case n < 50:
			s.use()
		case n < 54:
			s.table.Now += s.r.Int64N(8 * second)
		case n < 60:
			s.table.Now += s.r.Int64N(second)
		case n < 62:
			s.disturb()
		case n < 64:
			s.redrive()
		default:
			s.turn()
		}
	}
}

// use is a client that spends, refunds, creates or doubles.
func (s *simulation) use() {
	group := groups[s.r.IntN(len(groups))]
	zero := s.table.At(group.At(0))
	key := group.At(s.r.IntN(zero.ShardCount))
	c := traffic.Client{Table: s.table, Now: s.table.Now + s.r.Int64N(second) - second/2}
	limit := []string{"rpm", "day"}[s.r.IntN(2)]
	switch n := s.r.IntN(20); {
	case n == 0:
		c.Double(group, 8)
	case n == 1:
		c.Create(key)
	case n < 6:
		if b := s.table.At(key); b != nil && b.Limit(limit).Consumed > 0 {
			amount := 1 + s.r.Int64N(5000)
			if s.exact {
				amount = s.latest
			}
			amount = min(b.Limit(limit).Consumed, amount)
			c.Refund(key, limit, amount)
			s.count(group, limit, -amount)
		}
	default:
		amount := 1 + s.r.Int64N(20_000)
		if c.Spend(key, limit, amount) {
			s.latest = amount
			s.count(group, limit, amount)
		}
	}
	s.take()
}

// count keeps what clients consumed, as a usage item should have it.
func (s *simulation) count(group table.Group, limit string, amount int64) {
	for _, window := range s.agg.Windows {
		key := table.UsageKey{Group: group, Window: string(window), Start: window.StartText(s.table.Now)}
		at := key.PK() + key.SK()
		if s.truth[at] == nil {
			s.truth[at] = map[string]int64{}
		}
		s.truth[at][limit] += amount
		s.truth[at]["events"]++
	}
}

// take puts what was written on the stream.
func (s *simulation) take() {
	for _, record := range s.table.Records[s.taken:] {
		s.stream.write(record)
	}
	s.taken = len(s.table.Records)
}

// disturb is what happens to a stream and its mapping.
func (s *simulation) disturb() {
	switch n := s.r.IntN(10); {
	case n < 5:
		s.stream.roll(s.r.IntN(8), s.chance(50))
		s.seen["rolls"]++
	case n < 9:
		s.restart()
		s.seen["restarts"]++
	default:
		s.take()
		s.table.Restream(fmt.Sprintf("2026-12-0%dT00:00:00.000", 1+s.seen["streams"]))
		s.stream.begin()
		s.seen["streams"]++
	}
	for _, shard := range s.stream.shards {
		s.mapping.Open(shard.Shard, delivery.Checkpoint{})
	}
}

// turn reads on and makes what calls there are to be made. Some of a mapping's
// lanes are asked before others are answered.
func (s *simulation) turn() {
	for _, id := range s.mapping.Wants() {
		shard, from := s.stream.at(id), s.read[id]
		n := min(1+s.r.IntN(30), len(shard.records)-from)
		ended := shard.closed && from+n == len(shard.records)
		s.mapping.Read(id, shard.records[from:from+n], ended, s.table.Now)
		s.read[id] = from + n
	}
	var batches []*delivery.Batch
	for batch := s.mapping.Next(s.table.Now); batch != nil; batch = s.mapping.Next(s.table.Now) {
		batches = append(batches, batch)
		if s.chance(50) {
			break
		}
	}
	s.r.Shuffle(len(batches), func(i, j int) { batches[i], batches[j] = batches[j], batches[i] })
	for _, batch := range batches {
		answer := s.answer(batch)
		s.order(batch, answer)
		s.mapping.Done(batch, answer, s.table.Now)
		s.take()
	}
}

// answer is what becomes of a batch.
func (s *simulation) answer(batch *delivery.Batch) delivery.Answer {
	if batch.GivenUp == "" {
		return s.invoke(batch.Records)
	}
	if s.chance(s.faults.percent) {
		return delivery.Answer{Failed: true} // the destination cannot be reached
	}
	s.seen[string(batch.GivenUp)]++
	s.kept = append(s.kept, batch.Records)
	return delivery.Answer{}
}

// invoke calls the function. It may run out of time, end before its answer, or
// not get to the end of the batch.
func (s *simulation) invoke(records []events.Record) delivery.Answer {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if s.chance(s.faults.percent / 2) {
		s.faults.deadline(s.r.IntN(6), cancel)
		defer s.faults.deadline(-1, nil)
	}
	crashed := s.chance(s.faults.percent / 2)
	if crashed {
		records = records[:s.r.IntN(len(records)+1)]
	}
	batch := aggregator.Decode(records)
	if s.mutant.batch != nil {
		s.mutant.batch(batch)
	}
	now := s.table.Now
	report := s.agg.ProcessDecoded(ctx, batch, func(int64) int64 { return now })
	answer := delivery.Answer{Failed: crashed}
	for _, failure := range report.Failures {
		if !errors.Is(failure.Err, table.ErrRetry) && ctx.Err() == nil {
			s.fail("%v", failure.Err)
		}
		answer.Failures = append(answer.Failures, records[failure.Index].Sequence)
	}
	slices.Reverse(answer.Failures)
	if s.mutant.answer != nil {
		answer = s.mutant.answer(report, answer)
	}
	return answer
}

func (s *simulation) fail(format string, args ...any) {
	s.wrong = append(s.wrong, fmt.Sprintf(format, args...))
}

func id(r events.Record) string { return r.Stream + "/" + r.Sequence }

// order checks that nothing of an item is delivered before what came earlier in
// its stream shard or in a parent of it is done or kept aside.
func (s *simulation) order(batch *delivery.Batch, answer delivery.Answer) {
	first := slices.IndexFunc(s.stream.at(batch.Shard).records, func(r events.Record) bool { return r.Sequence == batch.Records[0].Sequence })
	for _, record := range batch.Records {
		if wrong := s.unacked(batch, record, first); wrong != "" {
			s.fail("%s was delivered before %s", id(record), wrong)
		}
	}
	done := len(batch.Records)
	for i, record := range batch.Records {
		if slices.Contains(answer.Failures, record.Sequence) {
			done = min(done, i)
		}
	}
	if answer.Failed || batch.GivenUp != "" && done < len(batch.Records) {
		done = 0
	}
	for _, record := range batch.Records[:done] {
		s.acked[id(record)] = true
	}
}

// unacked is a record of the same item before the batch that is still to come.
func (s *simulation) unacked(batch *delivery.Batch, record events.Record, first int) string {
	shard := s.stream.at(batch.Shard)
	for _, earlier := range shard.records[:first] {
		if string(earlier.Keys) == string(record.Keys) && !s.acked[id(earlier)] {
			return id(earlier)
		}
	}
	for _, parent := range s.stream.shards {
		if parent.ID != shard.Parent {
			continue
		}
		for _, earlier := range parent.records {
			if !s.acked[id(earlier)] {
				return id(earlier)
			}
		}
	}
	return ""
}

// redrive drives a kept batch again, or two together, and keeps what fails.
func (s *simulation) redrive() {
	if len(s.kept) == 0 {
		return
	}
	s.r.Shuffle(len(s.kept), func(i, j int) { s.kept[i], s.kept[j] = s.kept[j], s.kept[i] })
	n := min(1+s.r.IntN(2), len(s.kept))
	batch := slices.Concat(s.kept[:n]...)
	s.kept = slices.Clone(s.kept[n:])
	answer := s.invoke(batch)
	first := len(batch)
	for i, record := range batch {
		if slices.Contains(answer.Failures, record.Sequence) {
			first = min(first, i)
		}
	}
	if answer.Failed {
		first = 0
	}
	if first < len(batch) {
		s.kept = append(s.kept, batch[first:])
	}
	s.take()
}

// drain delivers all there is, with nothing that goes wrong any more.
func (s *simulation) drain() {
	s.faults.percent = 0
	for range 3000 {
		s.turn()
		s.redrive()
		if !s.still {
			s.table.Now += second / 2
		}
		if s.idle() || len(s.wrong) > 0 {
			return
		}
	}
	s.fail("deliveries do not end")
}

func (s *simulation) idle() bool {
	checkpoints := s.mapping.Checkpoints()
	for _, shard := range s.stream.shards {
		if len(shard.records) > 0 && checkpoints[shard.ID].After != shard.records[len(shard.records)-1].Sequence {
			return false
		}
	}
	return len(s.kept) == 0
}

// faults is a table whose requests fail, before they are done or after.
type faults struct {
	table.Store
	r       *rand.Rand
	percent int
	left    int    // requests before the deadline; negative for none
	cancel  func() // the deadline
}

func (f *faults) deadline(requests int, cancel func()) { f.left, f.cancel = requests, cancel }

func (f *faults) fails() bool {
	if f.left--; f.left == -1 && f.cancel != nil {
		f.cancel()
	}
	return f.r.IntN(100) < f.percent
}

// attempt does a request, unless it fails before or its answer is lost.
func attempt[T any](f *faults, do func() (T, error)) (T, error) {
	var none T
	if f.fails() {
		return none, table.ErrRetry
	}
	result, err := do()
	if f.fails() {
		return none, table.ErrRetry
	}
	return result, err
}

func (f *faults) AddUsage(ctx context.Context, u table.Usage) (table.UsageResult, error) {
	return attempt(f, func() (table.UsageResult, error) { return f.Store.AddUsage(ctx, u) })
}

func (f *faults) Pass(ctx context.Context, b *table.Bucket, pass *quota.Pass) (table.PassResult, error) {
	return attempt(f, func() (table.PassResult, error) { return f.Store.Pass(ctx, b, pass) })
}

func (f *faults) Double(ctx context.Context, group table.Group, from int) (table.DoubleResult, error) {
	return attempt(f, func() (table.DoubleResult, error) { return f.Store.Double(ctx, group, from) })
}

func (f *faults) RaiseAndRead(ctx context.Context, group table.Group, count int, now int64) ([]table.Sibling, error) {
	return attempt(f, func() ([]table.Sibling, error) { return f.Store.RaiseAndRead(ctx, group, count, now) })
}

func (f *faults) Create(ctx context.Context, c table.Creation) (table.CreationOutcome, error) {
	return attempt(f, func() (table.CreationOutcome, error) { return f.Store.Create(ctx, c) })
}

// usage are the usage items as the table has them, by key.
func (s *simulation) usage() map[string]table.Item {
	items := map[string]table.Item{}
	for _, item := range s.table.Memory.Items() {
		if pk, sk := item.Key(); strings.HasPrefix(sk, table.UsageSK) {
			items[pk+sk] = item
		}
	}
	return items
}

// counted compares usage with what clients consumed, and looks for gaps.
func (s *simulation) counted() {
	items := s.usage()
	if got, want := slices.Sorted(maps.Keys(items)), slices.Sorted(maps.Keys(s.truth)); !slices.Equal(got, want) {
		s.fail("usage items %v, not %v", got, want)
		return
	}
	for at, item := range items {
		_, counters, err := table.ParseUsage(item)
		if err != nil {
			s.fail("%v", err)
		}
		for limit, amount := range s.truth[at] {
			if limit != "events" && counters[limit] != table.Tokens(amount) {
				s.fail("%s: %s %s, not %s", at, limit, counters[limit], table.Tokens(amount))
			}
		}
		// Writes that consumed nothing in sum may go unseen (docs/adr/0004).
		if got, want := number(item[table.AttrTotalEvents]), s.truth[at]["events"]; got > want || got < want && !s.exact {
			s.fail("%s: events %d, not %d", at, got, want)
		}
		runs, err := item.SeenRecords()
		for shard, counted := range runs {
			if len(counted) != 1 {
				s.fail("%s: %d gaps of shard %d", at, len(counted)-1, shard)
			}
		}
		if err != nil {
			s.fail("%v", err)
		}
	}
}
