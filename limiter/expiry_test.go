package limiter_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/events/memstream"
	. "github.com/shardquota/shardquota/limiter"
	. "github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/memory"
)

// mortal is a world in which the aggregator follows the stream, and DynamoDB deletes
// what has expired.
type mortal struct {
	*world
	store      *memory.Store
	stream     memstream.Stream
	aggregator aggregator.Aggregator
}

func newMortal(t *testing.T) *mortal {
	store := memory.New()
	m := &mortal{world: worldOf(t, store.Client()), store: store}
	m.stream.Now, m.stream.Buckets, m.stream.Label = func() int64 { return m.now.UnixMilli() }, true, "2026-12-01T00:00:00.000"
	store.Watch(m.stream.Write)
	m.aggregator = aggregator.Aggregator{Store: store, Windows: []events.Window{events.Daily}}
	return m
}

// deliver has the aggregator process what is on the stream, what it writes too, and
// then deletes the
// buckets that have expired.
func (m *mortal) deliver() {
	m.Helper()
	for records := m.stream.Take(); len(records) > 0; records = m.stream.Take() {
		if err := m.aggregator.Process(m.Context(), records, m.now.UnixMilli()).Err(); err != nil {
			m.Fatal(err)
		}
	}
	for _, item := range m.store.Items() {
		pk, sk := item.Key()
		if expires, ok := item.Int(table.AttrTTL); sk == table.StateSK && ok && expires <= m.now.Unix() {
			m.store.Delete(pk, sk)
		}
	}
}

// takes acquires up to n tokens one by one, and returns how many were given.
func (m *mortal) takes(l *program, n int) (given int) {
	m.Helper()
	for range n {
		_, err := l.Acquire(m.Context(), acme, model, Amounts{"calls": 1})
		var rejection *Rejection
		switch {
		case err == nil:
			given++
		case !errors.As(err, &rejection):
			m.Fatal(err)
		}
	}
	return given
}

// A bucket does not expire inside a period: it would come back full. It is the
// aggregator that restores it, since the customer is there around each edge.
func TestABucketOutlivesItsPeriod(t *testing.T) {
	const capacity = 64
	daily, monthly := Quota("calls", capacity, "0 0 * * *"), Quota("calls", capacity, "0 0 1 * *")
	const window = 5*time.Hour + 30*time.Minute // and a half hour of rest
	session := Session("calls", capacity, 5*time.Hour)
	for _, c := range []struct {
		name    string
		first   *Limit // before the first period; nil for the limit itself
		limit   Limit
		shards  int
		periods int
		length  time.Duration // between two periods; 0 is a month
		step    time.Duration // between two tries to get more
	}{
		{"a day", nil, daily, 1, 45, 24 * time.Hour, 3 * time.Hour},
		{"a day on 8 shards", nil, daily, 8, 45, 24 * time.Hour, 3 * time.Hour},
		{"a month", nil, monthly, 2, 14, 0, 12 * time.Hour},
		{"a window on 8 shards", nil, session, 8, 200, window, time.Hour},
		{"terms that become a day's", new(PerMinute("calls", capacity)), daily, 2, 45, 24 * time.Hour, 3 * time.Hour},
		{"terms that become a month's", new(PerMinute("calls", capacity)), monthly, 2, 14, 0, 12 * time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMortal(t)
			draws := 0
			l := m.limiter(Deterministic(func(n int) int { draws++; return draws % n }))
			declare := func(limit Limit) { m.noError(l.SetLimits(m.Context(), ForResource(model), limit)) }
			if declare(c.limit); c.first != nil {
				declare(*c.first)
			}
			for m.takes(l, 1); m.bucket(acme, 0).ShardCount < c.shards; {
				m.double(acme)
				m.takes(l, 2*c.shards)
			}
			declare(c.limit)
			begins := func(period int) time.Time {
				if c.length == 0 {
					return noon.Truncate(24*time.Hour).AddDate(0, period+1, -noon.Day()+1)
				}
				return noon.Add(12*time.Hour + time.Duration(period)*c.length)
			}
			for period := range c.periods {
				m.now = begins(period).Add(-2 * time.Second)
				m.takes(l, 1) // the record of an old period is delivered in the new one
				m.now = begins(period).Add(2 * time.Second)
				m.deliver()
				given, ends := m.takes(l, 2*capacity), begins(period+1)
				if c.length == window {
					ends = begins(period).Add(5*time.Hour - 3*time.Second)
				}
				for m.now = m.now.Add(c.step); m.now.Before(ends.Add(-3 * time.Second)); m.now = m.now.Add(c.step) {
					m.deliver()
					given += m.takes(l, c.shards)
				}
				if c.length == window {
					given++ // what opened the window
				}
				eq(m, fmt.Sprintf("given in period %d", period), given, capacity)
			}
		})
	}
}

// An expiry is lengthened by one write more, of shard 0 every four weeks and of
// another shard every week; that has shard 0 looked at, too.
func TestExtensionsAreRare(t *testing.T) {
	for shard, want := range []int{2, 16} {
		m := newMortal(t)
		l := m.limiter(Deterministic(func(n int) int { return shard % n }), Default("", Quota("calls", 1_000_000, "0 0 * * *")))
		m.admit(l, acme, Amounts{"calls": 1})
		m.double(acme)
		m.admit(l, acme, Amounts{"calls": 1})
		m.admit(l, acme, Amounts{"calls": 1})
		m.since()
		writes := 0
		for range 10 * 7 {
			m.now = m.now.Add(24 * time.Hour)
			m.admit(l, acme, Amounts{"calls": 1})
			for _, request := range m.since() {
				if strings.HasPrefix(request, "outlive") {
					writes++
				}
			}
			m.deliver()
		}
		eq(m, fmt.Sprintf("extensions for shard %d in 10 weeks", shard), writes, want)
	}
}
