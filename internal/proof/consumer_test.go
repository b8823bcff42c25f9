package proof_test

import (
	"context"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/internal/explore"
	"github.com/shardquota/shardquota/table"
)

// consumer is Lambda with the aggregator as its function: it takes batches off
// the stream, and delivers one again that failed or whose function crashed.
type consumer struct {
	polls    int   // batches it still takes while others go on
	skew     int64 // what its clock is ahead by, milliseconds
	most     int   // records of a batch at most; 0 is any number
	attempts int   // deliveries of a batch before it is discarded; 0 is any number
	halves   bool  // a batch that is delivered again comes in two halves

	position [maxShards]int // of the stream
	todo     [][]*record    // the batch under way, or what is left of it
	tried    int
	now      int64 // when the function began
}

// over is an aggregator over a table, one request at a time.
func over(store table.Store, windows ...events.Window) *aggregator.Aggregator {
	return &aggregator.Aggregator{Store: store, Concurrency: 1, Windows: windows}
}

// aggregator is an actor that consumes the stream.
func (w *world) aggregator(name string, c consumer, crashes, faults int) explore.Spec {
	w.consumers = append(w.consumers, &c)
	return explore.Spec{Name: name, Crashes: crashes, Faults: faults, Run: func(a *explore.Actor) { c.run(w, a) }}
}

func (c *consumer) run(w *world, a *explore.Actor) {
	agg := over(w.requests(a, "", nil), w.windows...)
	if a.Restarted() && len(c.todo) > 0 {
		c.again(w, c.todo[0])
	}
	for {
		a.Forget(0)
		if len(c.todo) == 0 {
			if c.polls == 0 {
				return
			}
			a.Await(func() bool { return c.beyond(w) }, func() explore.Digest {
				c.polls--
				c.take(w)
				a.Say("takes a batch of %d records at %s", len(c.todo[0]), clock(c.now))
				return 0
			})
			a.Forget(0)
			continue
		}
		batch := c.todo[0]
		report := agg.ProcessDecoded(context.Background(), w.deliveries(batch), func(int64) int64 { return c.now })
		a.Recovered()
		a.Do(func() explore.Digest {
			c.done(w, a, batch, report)
			return 0
		})
	}
}

// beyond reports whether the stream goes on.
func (c *consumer) beyond(w *world) bool {
	for i, queue := range w.stream.queues {
		if c.position[i] < len(queue) {
			return true
		}
	}
	return false
}

// take puts together a batch of what is there.
func (c *consumer) take(w *world) {
	var batch []*record
	for i, queue := range w.stream.queues {
		n := len(queue) - c.position[i]
		if c.most > 0 {
			n = min(n, c.most-len(batch))
		}
		batch = append(batch, queue[c.position[i]:c.position[i]+n]...)
		c.position[i] += n
	}
	c.todo, c.tried, c.now = [][]*record{batch}, 0, w.now+c.skew
}

// done is that the function answered: a batch is finished, or delivered again
// from the lowest record that failed.
func (c *consumer) done(w *world, a *explore.Actor, batch []*record, report *aggregator.Report) {
	if len(report.Failures) == 0 {
		a.Say("is done with the batch")
		c.todo, c.now = c.todo[1:], w.now+c.skew
		return
	}
	first := report.Failures[0].Index
	if w.mutant.lastFailure {
		first = report.Failures[len(report.Failures)-1].Index
	}
	a.Say("has failed from record %d of %d on", first+1, len(batch))
	c.again(w, batch[first:])
}

// again delivers what failed of a batch once more, or discards it.
func (c *consumer) again(w *world, rest []*record) {
	c.tried++
	c.now = w.now + c.skew
	switch half := len(rest) / 2; {
	case c.attempts > 0 && c.tried >= c.attempts:
		w.discarded = append(w.discarded, rest)
		c.todo = c.todo[1:]
	case c.halves && half > 0:
		c.todo = append([][]*record{rest[:half], rest[half:]}, c.todo[1:]...)
	default:
		c.todo = append([][]*record{rest}, c.todo[1:]...)
	}
}

// redriver is an operator's tool that processes a discarded batch again.
func (w *world) redriver(crashes int) explore.Spec {
	return explore.Spec{Name: "redrive", Crashes: crashes, Run: func(a *explore.Actor) {
		var batch []*record
		a.Await(func() bool { return len(w.discarded) > 0 }, func() explore.Digest {
			batch = w.discarded[0]
			a.Say("begins with a discarded batch of %d records", len(batch))
			return 0
		})
		agg := over(w.requests(a, "", nil), w.windows...)
		agg.ProcessDecoded(context.Background(), w.deliveries(batch), func(int64) int64 { return batch[0].at })
		a.Do(func() explore.Digest {
			w.discarded = w.discarded[1:]
			a.Say("is done with the batch")
			return 0
		})
	}}
}

// drain processes all that is left of the stream and all that was discarded,
// without disturbance, and says what is wrong with usage then.
func (w *world) drain() string {
	agg := over(w.requests(nil, "in the end an aggregator", nil), w.windows...)
	process := func(batch []*record) string {
		report := agg.ProcessDecoded(context.Background(), w.deliveries(batch), func(int64) int64 { return w.now })
		if err := report.Err(); err != nil {
			return "an undisturbed batch fails: " + err.Error()
		}
		return ""
	}
	for range 20 {
		batches := w.discarded
		w.discarded = nil
		for _, c := range w.consumers {
			batches, c.todo = append(batches, c.todo...), nil
			if c.most = 0; c.beyond(w) {
				c.take(w)
			}
		}
		if len(batches) == 0 && !w.busy() {
			return w.countedOnce()
		}
		for _, batch := range batches {
			if wrong := process(batch); wrong != "" {
				return wrong
			}
		}
	}
	return "the stream never comes to rest"
}

func (w *world) busy() bool {
	for _, c := range w.consumers {
		if len(c.todo) > 0 {
			return true
		}
	}
	return false
}
