package proof_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/internal/explore"
	"github.com/shardquota/shardquota/table"
)

// stream is what the table's stream holds: every change of a bucket, in a queue
// for each, since the order is only kept within one.
type stream struct {
	label  int            // of the stream that the table has now
	writes [maxShards]int // since it began
	queues [maxShards][]*record
	log    []*record // all of them, in the order in which they were written
}

// record is a change of a bucket.
type record struct {
	shard    int
	old, new *shard
	at       int64 // when it was written, epoch ms
	label    int
	nth      int // write to the bucket since the stream began
}

// labels are those of the streams that the table has, one after the other.
var labels = []string{"2026-12-01T00:00:00.000", "2026-12-01T12:00:00.000"}

// sequence is the sequence number of the nth write to a bucket since the stream
// began. They rise, but not by one, nor in as many digits.
func sequence(n int) string {
	if n > 2 {
		n += 7
	}
	return strconv.Itoa(n)
}

func (s *stream) add(i int, old, new *shard, at int64) {
	s.writes[i]++
	r := &record{i, old, new, at, s.label, s.writes[i]}
	s.queues[i], s.log = append(s.queues[i], r), append(s.log, r)
}

// renew is that the table's stream is ended and another one begins, whose
// sequence numbers begin anew.
func (s *stream) renew() {
	s.label++
	clear(s.writes[:])
}

// before puts a record on the stream that was there before the world began: a
// write to a shard that left it as it is.
func (w *world) before(i int, old table.Item, at int64) {
	b, err := table.DecodeBucket(old)
	if err != nil {
		panic(err)
	}
	w.stream.add(i, &shard{b, digestOf(old)}, w.shards[i], at)
}

// deliveries are records as the aggregator gets them.
func (w *world) deliveries(batch []*record) []aggregator.Delivery {
	deliveries := make([]aggregator.Delivery, len(batch))
	mark := events.StreamPosition
	if w.mutant.mark != nil {
		mark = w.mutant.mark
	}
	for i, r := range batch {
		change := &events.Change{New: r.new.Bucket.Image(), Record: events.Record{
			EventName: events.Insert, Stream: labels[r.label], Sequence: sequence(r.nth), Time: r.at,
		}}
		if r.old != nil {
			change.EventName, change.Old = events.Modify, r.old.Bucket.Image()
		}
		change.StreamPosition, _ = mark(change.Stream, change.Sequence)
		deliveries[i] = aggregator.Delivery{Record: change.Record, Change: change}
	}
	return deliveries
}

func (r *record) digest() explore.Digest {
	d := explore.Digest(0).Add(uint64(r.shard), uint64(r.new.digest), uint64(r.at), uint64(r.label), uint64(r.nth))
	if r.old != nil {
		d = d.Add(uint64(r.old.digest))
	}
	return d
}

// pending digests what is on the stream and not processed by everyone yet.
func (w *world) pending() explore.Digest {
	if len(w.consumers) == 0 {
		return 0
	}
	d := explore.Digest(0).Add(uint64(w.stream.label))
	for i, queue := range w.stream.queues {
		if len(queue) == 0 {
			continue
		}
		d = d.Add(uint64(i), uint64(w.stream.writes[i]))
		from := len(queue)
		for _, c := range w.consumers {
			from = min(from, c.position[i])
		}
		for _, r := range queue[from:] {
			d = d.Add(uint64(r.digest()))
		}
		for _, c := range w.consumers {
			d = d.Add(uint64(c.position[i] - from))
		}
	}
	for _, c := range w.consumers {
		d = d.Add(uint64(c.polls), uint64(c.tried), uint64(c.now), uint64(digestBatches(c.todo)))
	}
	return d.Add(uint64(digestBatches(w.discarded)))
}

func digestBatches(batches [][]*record) explore.Digest {
	d := explore.Digest(0)
	for _, batch := range batches {
		d = d.Add(uint64(len(batch)))
		for _, r := range batch {
			d = d.Add(uint64(r.digest()))
		}
	}
	return d
}

// countedOnce says where the usage items differ from what was consumed.
func (w *world) countedOnce() string {
	if len(w.windows) == 0 {
		return ""
	}
	counted := map[usageOf]string{}
	for at := range w.others {
		if !strings.HasPrefix(at.SK, table.UsageSK) {
			continue
		}
		item := w.mem.Get(at.PK, at.SK)
		key, counters, err := table.ParseUsage(item)
		if err != nil {
			return err.Error()
		}
		if n, ok := item[table.AttrTotalEvents].(*types.AttributeValueMemberN); ok {
			counters[table.AttrTotalEvents] = n.Value
		}
		for limit, amount := range counters {
			counted[usageOf{startOf(key), limit}] = amount
		}
	}
	used := slices.SortedFunc(maps.Keys(w.books.consumed), func(a, b usageOf) int {
		return cmp.Or(cmp.Compare(a.hour, b.hour), cmp.Compare(a.limit, b.limit))
	})
	for _, u := range used {
		amount := w.books.consumed[u]
		if got := counted[u]; got != tokens(amount) && (amount != 0 || got != "") {
			return fmt.Sprintf("of %s %s was used in the hour of %s, and %q is counted", u.limit, tokens(amount), clock(u.hour), got)
		}
	}
	return ""
}

func startOf(key table.UsageKey) int64 {
	for at := midnight - day; at < midnight+2*day; at += hour {
		if events.Hourly.StartText(at) == key.Start {
			return at
		}
	}
	panic("a window that is not of these days")
}
