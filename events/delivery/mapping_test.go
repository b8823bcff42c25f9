package delivery_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/events/delivery"
)

// records are changes of one item at times (epoch ms), numbered from first.
func records(first int, times ...int64) []events.Record {
	var all []events.Record
	for i, at := range times {
		all = append(all, events.Record{
			Sequence: strconv.Itoa(first + i), Time: at, EventName: events.Modify,
			Keys: json.RawMessage(`{"PK":{"S":"a"},"SK":{"S":"b"}}`),
		})
	}
	return all
}

// text renders a batch: its records, which attempt it is, why it is given up.
func text(b *delivery.Batch) string {
	if b == nil {
		return "none"
	}
	var sequences []string
	for _, r := range b.Records {
		sequences = append(sequences, r.Sequence)
	}
	line := strings.Join(sequences, ",") + " #" + strconv.Itoa(b.Attempt)
	if b.GivenUp != "" {
		line += " " + string(b.GivenUp)
	}
	return line
}

func eq(t testing.TB, what string, got, want any) {
	t.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		t.Fatalf("%s:\n got %s\nwant %s", what, g, w)
	}
}

func failed(sequences ...string) delivery.Answer { return delivery.Answer{Failures: sequences} }

var crashed = delivery.Answer{Failed: true}

// one is a mapping with one shard, of which some records were read at 0.
func one(config delivery.Config, all []events.Record) *delivery.Mapping {
	m := delivery.New(config)
	m.Open(delivery.Shard{ID: "s"}, delivery.Checkpoint{})
	m.Read("s", all, false, 0)
	return m
}

// Each answer leads to the batches that follow: an answer is "ok", "crash", or
// the sequence numbers that it names. All times are 0.
func TestAnswers(t *testing.T) {
	for _, x := range []struct {
		name    string
		config  delivery.Config
		answers string
		want    string
	}{
		{"all done", delivery.Config{}, "ok", "1,2,3,4,5,6 #1"},
		{"again from the lowest failure", delivery.Config{}, "5+3+6 ok", "1,2,3,4,5,6 #1; 3,4,5,6 #2"},
		{"an empty name fails all", delivery.Config{}, "4+_ ok", "1,2,3,4,5,6 #1; 1,2,3,4,5,6 #2"},
		{"an unknown number fails all", delivery.Config{}, "4+99 ok", "1,2,3,4,5,6 #1; 1,2,3,4,5,6 #2"},
		{"an error fails all", delivery.Config{}, "crash ok", "1,2,3,4,5,6 #1; 1,2,3,4,5,6 #2"},
		{"halved to the record", delivery.Config{Bisect: true, Attempts: 2}, "crash ok crash crash crash crash ok ok ok",
			"1,2,3,4,5,6 #1; 1,2,3 #1; 4,5,6 #1; 4,5 #1; 4 #1; 4 #2; 4 #3 RetryAttemptsExhausted; 5 #1; 6 #1"},
		{"a named failure is not halved", delivery.Config{Bisect: true}, "1 2 ok", "1,2,3,4,5,6 #1; 1,2,3,4,5,6 #2; 2,3,4,5,6 #3"},
		{"attempts bound what is left of a batch", delivery.Config{Attempts: 2}, "3 5 ok", "1,2,3,4,5,6 #1; 3,4,5,6 #2; 5,6 #3 RetryAttemptsExhausted"},
		{"in batches", delivery.Config{BatchSize: 4}, "3 ok ok", "1,2,3,4 #1; 3,4 #2; 5,6 #1"},
		{"what cannot be kept aside comes again", delivery.Config{Attempts: 1, BatchSize: 3}, "crash crash 2 ok ok",
			"1,2,3 #1; 1,2,3 #2 RetryAttemptsExhausted; 1,2,3 #3 RetryAttemptsExhausted; 1,2,3 #4 RetryAttemptsExhausted; 4,5,6 #1"},
	} {
		t.Run(x.name, func(t *testing.T) {
			m := one(x.config, records(1, 0, 0, 0, 0, 0, 0))
			var got []string
			for answer := range strings.FieldsSeq(x.answers) {
				batch := m.Next(0)
				got = append(got, text(batch))
				if batch == nil {
					break
				}
				if m.Next(0) != nil {
					t.Fatal("two batches of one lane at once")
				}
				m.Done(batch, parse(answer), 0)
			}
			eq(t, "batches", strings.Join(got, "; "), x.want)
			eq(t, "left", text(m.Next(0)), "none")
			eq(t, "checkpoint", m.Checkpoints()["s"], delivery.Checkpoint{After: "6"})
		})
	}
}

func parse(answer string) delivery.Answer {
	switch answer {
	case "ok":
		return delivery.Answer{}
	case "crash":
		return crashed
	}
	return failed(strings.Split(strings.ReplaceAll(answer, "_", ""), "+")...)
}

func TestWindowAndSize(t *testing.T) {
	m := one(delivery.Config{BatchSize: 3, Window: 5 * time.Second}, records(1, 0, 0))
	eq(t, "gathering", text(m.Next(4999)), "none")
	at, ok := m.Wake(0)
	eq(t, "wake", fmt.Sprint(at, ok), "5000 true")
	m.Read("s", records(3, 0, 0), false, 4000)
	batch := m.Next(4000)
	eq(t, "full", text(batch), "1,2,3 #1")
	_, ok = m.Wake(4000)
	eq(t, "wakes while busy", ok, false)
	m.Done(batch, delivery.Answer{}, 4000)
	eq(t, "gathering again", text(m.Next(8999)), "none")
	batch = m.Next(9000)
	eq(t, "window over", text(batch), "4 #1")
	m.Done(batch, delivery.Answer{}, 9000)
	_, ok = m.Wake(9000)
	eq(t, "wakes for nothing", ok, false)

	m.Read("s", records(5, 0), false, 9000)
	m.Read("s", nil, true, 9000)
	eq(t, "at the end of the shard", text(m.Next(9000)), "5 #1")
}

func TestBytes(t *testing.T) {
	all := records(1, 0, 0, 0, 0)
	for i := range all {
		all[i].New = json.RawMessage(strings.Repeat("x", 60))
	}
	all[2].New = json.RawMessage(strings.Repeat("x", 1000))
	m := one(delivery.Config{Bytes: 200, Window: time.Hour}, all)
	var got []string
	for batch := m.Next(0); batch != nil; batch = m.Next(0) {
		got = append(got, text(batch))
		m.Done(batch, delivery.Answer{}, 0)
	}
	eq(t, "batches", got, "[1,2 #1 3 #1]")
}

func TestBackoff(t *testing.T) {
	m := one(delivery.Config{Backoff: time.Second, MaxBackoff: 3 * time.Second}, records(1, 0))
	now, waits := int64(0), []int64(nil)
	for range 4 {
		m.Done(m.Next(now), crashed, now)
		eq(t, "not yet", text(m.Next(now)), "none")
		at, _ := m.Wake(now)
		waits, now = append(waits, at-now), at
	}
	eq(t, "waits", waits, "[1000 2000 3000 3000]")
}

func TestAge(t *testing.T) {
	m := one(delivery.Config{MaxAge: time.Second, Bisect: true}, records(1, 0, 0, 900, 1200))
	eq(t, "none too old", text(m.Next(1000)), "1,2,3,4 #1")
	m = one(delivery.Config{MaxAge: time.Second, Bisect: true}, records(1, 0, 0, 900, 1200))
	batch := m.Next(1500)
	eq(t, "too old before any attempt", text(batch), "1,2 #1 RecordAgeExceeded")
	m.Done(batch, delivery.Answer{}, 1500)
	batch = m.Next(1500)
	eq(t, "the rest", text(batch), "3,4 #1")
	m.Done(batch, failed("4"), 2500)
	eq(t, "too old after one", text(m.Next(2500)), "4 #2 RecordAgeExceeded")

	broken := []events.Record{{Sequence: "1", Err: events.ErrRecord}}
	eq(t, "of unknown age", text(one(delivery.Config{MaxAge: time.Second}, broken).Next(9000)), "1 #1")
}

// A child is not read before its parent is done; one whose parent the stream
// has forgotten is.
func TestLineage(t *testing.T) {
	m := delivery.New(delivery.Config{})
	m.Open(delivery.Shard{ID: "left", Parent: "root"}, delivery.Checkpoint{})
	m.Open(delivery.Shard{ID: "root", Parent: "forgotten"}, delivery.Checkpoint{})
	m.Open(delivery.Shard{ID: "right", Parent: "root"}, delivery.Checkpoint{})
	eq(t, "first", m.Wants(), "[root]")
	m.Read("root", records(1, 0, 0), true, 0)
	eq(t, "ended but not done", m.Wants(), "[]")
	batch := m.Next(0)
	m.Done(batch, failed("2"), 0)
	eq(t, "done in part", m.Wants(), "[]")
	m.Done(m.Next(0), delivery.Answer{}, 0)
	eq(t, "done", m.Wants(), "[left right]")
	m.Forget(func(string) bool { return false })
	eq(t, "the parent forgotten", m.Wants(), "[left right]")
	eq(t, "checkpoints", m.Checkpoints(), "map[left:{ false} right:{ false}]")
}

// A mapping that goes on from another's checkpoints delivers again whatever came
// after a record that was not done.
func TestCheckpoints(t *testing.T) {
	all := records(1, 0, 0, 0, 0, 0)
	for i, pk := range []string{"a", "d", "a", "d", "d"} {
		all[i].Keys = json.RawMessage(`{"PK":{"S":"` + pk + `"},"SK":{"S":"b"}}`)
	}
	m := one(delivery.Config{Parallel: 2}, all)
	second, first := m.Next(0), m.Next(0)
	eq(t, "lanes", text(first)+"; "+text(second), "2,4,5 #1; 1,3 #1")
	m.Done(first, failed("4"), 0)
	eq(t, "checkpoint", m.Checkpoints()["s"].After, "")
	m.Done(second, delivery.Answer{}, 0)
	eq(t, "checkpoint", m.Checkpoints()["s"].After, "3")
	m.Done(m.Next(0), delivery.Answer{}, 0)
	eq(t, "checkpoint", m.Checkpoints()["s"].After, "5")

	again := delivery.New(delivery.Config{})
	again.Open(delivery.Shard{ID: "s"}, delivery.Checkpoint{After: "3"})
	again.Open(delivery.Shard{ID: "gone"}, delivery.Checkpoint{After: "9", Ended: true})
	eq(t, "to be read", again.Wants(), "[s]")
}

func TestFilter(t *testing.T) {
	odd := func(r events.Record) bool { n, _ := strconv.Atoi(r.Sequence); return n%2 == 1 }
	m := one(delivery.Config{Filter: odd, BatchSize: 2}, records(1, 0, 0, 0, 0))
	m.Open(delivery.Shard{ID: "other"}, delivery.Checkpoint{})
	m.Read("other", records(2, 0), true, 0)
	eq(t, "nothing to deliver", m.Checkpoints()["other"], delivery.Checkpoint{After: "2", Ended: true})
	batch := m.Next(0)
	eq(t, "batch", text(batch), "1,3 #1")
	m.Done(batch, delivery.Answer{}, 0)
	eq(t, "checkpoint", m.Checkpoints()["s"].After, "4")
}

// No lane waits for ever behind others that always have something.
func TestLanesTakeTurns(t *testing.T) {
	m := delivery.New(delivery.Config{BatchSize: 1})
	for _, id := range []string{"a", "b", "c"} {
		m.Open(delivery.Shard{ID: id}, delivery.Checkpoint{})
		m.Read(id, records(1, 0, 0), false, 0)
	}
	var turns []string
	for batch := m.Next(0); batch != nil; batch = m.Next(0) {
		turns = append(turns, batch.Shard)
		m.Done(batch, delivery.Answer{}, 0)
	}
	eq(t, "turns", turns, "[a b c a b c]")
	if !slices.Equal(m.Wants(), []string{"a", "b", "c"}) {
		t.Errorf("wants %v", m.Wants())
	}
}
