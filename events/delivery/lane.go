package delivery

import (
	"slices"

	"github.com/shardquota/shardquota/events"
)

// Batch is records of one lane, in order.
type Batch struct {
	Shard   string
	Records []events.Record
	Attempt int    // from 1; halving a batch is no attempt
	GivenUp Reason // why to set it aside; "" where it is to be delivered

	lane *lane
}

// Reason says why a batch is given up, in the words that Lambda uses where it
// stores a failed batch.
type Reason string

// The reasons to give a batch up.
const (
	RetriesExhausted Reason = "RetryAttemptsExhausted"
	AgeExceeded      Reason = "RecordAgeExceeded"
)

// Answer is the function's answer to a batch.
type Answer struct {
	Failed   bool     // it returned an error, or nothing
	Failures []string // sequence numbers of the records that failed, in any order
}

// lane delivers batches one after another.
type lane struct {
	config *Config
	shard  *shard
	parts  []part   // to deliver, in order
	fresh  []*entry // follow the parts; in no batch yet
	busy   bool     // parts[0] is being delivered
}

// part is a batch, or what is left of one after an answer.
type part struct {
	entries   []*entry
	attempts  int    // made so far
	notBefore int64  // epoch ms
	givenUp   Reason // "" while it is to be delivered
}

// next returns the lane's next batch, nil where there is none at now.
func (l *lane) next(now int64) *Batch {
	if l.busy {
		return nil
	}
	if len(l.parts) == 0 {
		l.gather(now)
	}
	if len(l.parts) == 0 || l.parts[0].notBefore > now {
		return nil
	}
	l.expire(now)
	first := &l.parts[0]
	batch := &Batch{Shard: l.shard.ID, Attempt: first.attempts + 1, GivenUp: first.givenUp, lane: l}
	for _, e := range first.entries {
		batch.Records = append(batch.Records, e.Record)
	}
	l.busy = true
	return batch
}

// gather makes a batch of fresh records once they fill one, the window is over,
// or the shard has ended.
func (l *lane) gather(now int64) {
	n := l.fits()
	if n == 0 {
		return
	}
	full := n < len(l.fresh) || n == l.config.BatchSize
	if !full && !l.shard.ended && now < l.windowEnd() {
		return
	}
	l.parts = append(l.parts, part{entries: l.fresh[:n:n]})
	l.fresh = l.fresh[n:]
}

func (l *lane) windowEnd() int64 { return l.fresh[0].arrived + l.config.Window.Milliseconds() }

// fits returns how many fresh records one batch takes.
func (l *lane) fits() int {
	bytes := 0
	for i, e := range l.fresh[:min(len(l.fresh), l.config.BatchSize)] {
		bytes += len(e.Keys) + len(e.Old) + len(e.New)
		if i > 0 && bytes > l.config.Bytes {
			return i
		}
	}
	return min(len(l.fresh), l.config.BatchSize)
}

// expire gives up the records at the head that are older than MaxAge.
func (l *lane) expire(now int64) {
	first := l.parts[0]
	if l.config.MaxAge == 0 || first.givenUp != "" {
		return
	}
	oldest := now - l.config.MaxAge.Milliseconds()
	n := slices.IndexFunc(first.entries, func(e *entry) bool { return e.Time >= oldest || e.Err != nil })
	if n < 0 {
		n = len(first.entries)
	}
	l.split(n)
	if n > 0 {
		l.parts[0].givenUp = AgeExceeded
	}
}

// split cuts the first part in two after n records, unless one would be empty.
func (l *lane) split(n int) {
	first := l.parts[0]
	if n == 0 || n == len(first.entries) {
		return
	}
	rest := first
	rest.entries = first.entries[n:]
	l.parts[0].entries = first.entries[:n:n]
	l.parts = slices.Insert(l.parts, 1, rest)
}

// Done takes the answer to a batch. For a batch that was given up, the answer
// says whether it was set aside. If that failed, Next returns it again.
func (m *Mapping) Done(batch *Batch, answer Answer, now int64) {
	l := batch.lane
	l.busy = false
	first, whole := lowest(batch.Records, answer)
	if batch.GivenUp != "" && first < len(batch.Records) {
		first = 0 // it is set aside whole or not at all
	}
	l.complete(first)
	if first < len(batch.Records) {
		l.again(whole, now)
	}
	l.shard.advance()
}

// lowest returns the index of the first record to deliver again, and whether the
// batch failed as a whole. It did if the answer names a record that it lacks.
func lowest(records []events.Record, answer Answer) (first int, whole bool) {
	if answer.Failed {
		return 0, true
	}
	first = len(records)
	for _, sequence := range answer.Failures {
		at := slices.IndexFunc(records, func(r events.Record) bool { return r.Sequence == sequence })
		if at < 0 || sequence == "" {
			return 0, true
		}
		first = min(first, at)
	}
	return first, false
}

// complete marks the first n records of the first part as done.
func (l *lane) complete(n int) {
	first := &l.parts[0]
	for _, e := range first.entries[:n] {
		e.done = true
	}
	if first.entries = first.entries[n:]; len(first.entries) == 0 {
		l.parts = slices.Delete(l.parts, 0, 1)
	}
}

// again schedules the next attempt at the first part. If it failed as a whole it
// is halved, which does not count as an attempt at either half.
func (l *lane) again(whole bool, now int64) {
	first := &l.parts[0]
	if first.givenUp == "" && whole && l.config.Bisect && len(first.entries) > 1 {
		first.notBefore = now + l.backoff(first.attempts+1)
		l.split((len(first.entries) + 1) / 2)
		return
	}
	first.attempts++
	first.notBefore = now + l.backoff(first.attempts)
	if first.givenUp == "" && l.config.Attempts > 0 && first.attempts >= l.config.Attempts {
		first.givenUp, first.notBefore = RetriesExhausted, now
	}
}

// backoff returns how long to wait after so many attempts, in milliseconds.
func (l *lane) backoff(attempts int) int64 {
	wait := l.config.Backoff
	for range attempts - 1 {
		if wait >= l.config.MaxBackoff {
			break
		}
		wait *= 2
	}
	return min(wait, l.config.MaxBackoff).Milliseconds()
}

// wake returns when the lane's next batch can be delivered; waits is false where
// it has none, or is busy.
func (l *lane) wake() (at int64, waits bool) {
	switch {
	case l.busy:
		return 0, false
	case len(l.parts) > 0:
		return l.parts[0].notBefore, true
	case len(l.fresh) == 0:
		return 0, false
	case l.shard.ended || l.fits() < len(l.fresh) || l.fits() == l.config.BatchSize:
		return l.fresh[0].arrived, true
	}
	return l.windowEnd(), true
}
