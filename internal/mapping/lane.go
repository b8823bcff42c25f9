package mapping

import (
	"slices"

	"github.com/shardquota/shardquota/events"
)

// Batch is some records of one lane, in order.
type Batch struct {
	Shard   string
	Records []events.Record
	Attempt int    // from 1; splitting a batch is none
	GivenUp Reason // why it is to be kept aside and not delivered; "" where it is to be delivered

	lane *lane
}

// Reason is why a batch is given up. The texts are those of Lambda's records of
// failed batches.
type Reason string

// The reasons to give a batch up.
const (
	RetriesExhausted Reason = "RetryAttemptsExhausted"
	AgeExceeded      Reason = "RecordAgeExceeded"
)

// Answer is what became of a batch.
type Answer struct {
	Failed   bool     // the function returned an error, or nothing
	Failures []string // the sequence numbers that it named as failed, in any order
}

// lane is a sequence of batches, one at a time.
type lane struct {
	config *Config
	shard  *shard
	parts  []part   // to be delivered again, in order
	fresh  []*entry // never delivered, after all parts
	busy   bool     // parts[0] is with the caller
}

// part is what is left of a batch that was formed.
type part struct {
	entries  []*entry
	attempts int    // made so far
	due      int64  // not before, epoch ms
	givenUp  Reason // it is to be kept aside
}

// next forms a batch, or takes the next part of one.
func (l *lane) next(now int64) *Batch {
	if l.busy {
		return nil
	}
	if len(l.parts) == 0 {
		l.gather(now)
	}
	if len(l.parts) == 0 || l.parts[0].due > now {
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

// gather makes a batch of fresh records if they are enough or have waited long
// enough, or if no more will come.
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

// fits is how many fresh records one batch takes.
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

// expire gives up the records at the head that are too old by now.
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

// split makes two parts of the first, unless one of them would be empty.
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

// Done takes the answer to a batch. Of one that was given up it says whether
// it could be kept aside; where not, it comes again.
func (m *Mapping) Done(batch *Batch, answer Answer, now int64) {
	l := batch.lane
	l.busy = false
	first, whole := lowest(batch.Records, answer)
	if batch.GivenUp != "" && first < len(batch.Records) {
		first = 0 // it is kept as one, or not at all
	}
	l.complete(first)
	if first < len(batch.Records) {
		l.again(whole, now)
	}
	l.shard.advance()
}

// lowest is the place of the first record that is to come again, and whether
// the batch failed as a whole: so it does, too, where the answer names what is
// not in it.
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

// complete takes the first n records of the first part off.
func (l *lane) complete(n int) {
	first := &l.parts[0]
	for _, e := range first.entries[:n] {
		e.done = true
	}
	if first.entries = first.entries[n:]; len(first.entries) == 0 {
		l.parts = slices.Delete(l.parts, 0, 1)
	}
}

// again puts the first part off. One that failed as a whole is halved, which is
// no attempt of the halves.
func (l *lane) again(whole bool, now int64) {
	first := &l.parts[0]
	if first.givenUp == "" && whole && l.config.Bisect && len(first.entries) > 1 {
		first.due = now + l.backoff(first.attempts+1)
		l.split((len(first.entries) + 1) / 2)
		return
	}
	first.attempts++
	first.due = now + l.backoff(first.attempts)
	if first.givenUp == "" && l.config.Attempts > 0 && first.attempts >= l.config.Attempts {
		first.givenUp, first.due = RetriesExhausted, now
	}
}

// backoff is how long to wait after so many attempts, in milliseconds.
func (l *lane) backoff(attempts int) int64 {
	wait := l.config.Backoff
	for range attempts - 1 {
		if wait >= l.config.Slowest {
			break
		}
		wait *= 2
	}
	return min(wait, l.config.Slowest).Milliseconds()
}

// wake is when the lane's next batch is due; waits is false where it has none,
// or is busy.
func (l *lane) wake() (at int64, waits bool) {
	switch {
	case l.busy:
		return 0, false
	case len(l.parts) > 0:
		return l.parts[0].due, true
	case len(l.fresh) == 0:
		return 0, false
	case l.shard.ended || l.fits() < len(l.fresh) || l.fits() == l.config.BatchSize:
		return l.fresh[0].arrived, true
	}
	return l.windowEnd(), true
}
