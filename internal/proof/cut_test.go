package proof_test

import (
	"fmt"
	"io"
	"testing"

	"github.com/shardquota/shardquota/aggregator/replay"
	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/internal/fixture"
	"github.com/shardquota/shardquota/table/memory"
)

// recording is a stream that was recorded.
type recording struct{ records []events.Record }

func (r *recording) Next() (events.Record, error) {
	if len(r.records) == 0 {
		return events.Record{}, io.EOF
	}
	first := r.records[0]
	r.records = r.records[1:]
	return first, nil
}

// recorded is what clients alone wrote in a storm on four shards of a quota, or
// in uses of a dripping limit beside it that no client ever refilled.
func recorded(t *testing.T, seed uint64, session, drip bool) []events.Record {
	s := newStorm(t, seed, session, count(4), drips("rpm", 1000, 60_000))
	s.alone = true
	s.stream.add(0, nil, s.shards[0], s.now-s.now%second)
	for shard := range 4 {
		s.client().create(shard)
	}
	for range 150 {
		if drip {
			s.use(s.r.IntN(4))
			s.now += s.r.Int64N(700)
		} else {
			s.step()
		}
	}
	var records []events.Record
	for _, d := range s.deliveries(s.stream.log) {
		records = append(records, fixture.Raw(t, d.Change))
	}
	return records
}

// use takes some of a dripping limit without looking whether it is there.
func (s *storm) use(shard int) {
	b, amount := s.at(shard), 300+s.r.Int64N(3000)
	l := b.Limit("rpm")
	s.put(build(b.Item, attrs{"b_rpm_tk": l.Balance - amount, "b_rpm_tc": l.Consumed + amount}), shard)
}

func replayed(t *testing.T, records []events.Record, batch int, twice bool) string {
	t.Helper()
	store := memory.New()
	run := replay.InMemory(store)
	run.BatchSize, run.Redeliver = batch, twice
	run.Aggregator.Windows = []events.Window{events.Hourly}
	run.Aggregator.Concurrency = 1
	report, err := run.Run(t.Context(), &recording{records})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range report.Ledger {
		if !row.Conserved {
			t.Errorf("batches of %d: %+v", batch, row)
		}
	}
	return fixture.Dump(t, store)
}

// What a stream does to a table does not depend on how it is cut into batches,
// nor on whether batches come twice.
func TestCutsLeaveTheSameTable(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds, which -short leaves out")
	}
	for _, kind := range []struct {
		name          string
		session, drip bool
	}{
		{"calendar", false, false}, {"session", true, false}, {"dripping", false, true},
	} {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(cuts) {
				records := recorded(t, seed, kind.session, kind.drip)
				want := replayed(t, records, 1, false)
				for _, batch := range []int{2, 3, 10, len(records)} {
					fixture.SameTable(t, fmt.Sprintf("seed %d, batches of %d", seed, batch), replayed(t, records, batch, false), want)
				}
				fixture.SameTable(t, fmt.Sprintf("seed %d, each batch twice", seed), replayed(t, records, 7, true), want)
				if t.Failed() {
					return
				}
			}
		})
	}
}
