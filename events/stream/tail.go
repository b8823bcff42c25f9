package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/events/delivery"
	"github.com/shardquota/shardquota/table"
)

// DynamoDB takes 5 requests a second for a shard. A page is at most 1,000 records
// or 1 MB.
const (
	pageSize = 1000
	// pace is the time between two requests for one shard.
	pace = 200 * time.Millisecond
	// idle is what pace grows to while a shard has nothing new.
	idle = time.Second
	// quiet is how many empty answers in a row mean that a shard was read to the
	// present. One alone says nothing: a page covers a stretch of the shard, which
	// may be empty while a later one is not.
	quiet = 20
	// maxRequests bounds the requests under way.
	maxRequests = 8
	// requestTimeout ends one request with all retries of its client: the
	// connection is dead.
	requestTimeout = 15 * time.Second
	// maxBackoff is what the wait after failures grows to.
	maxBackoff = 30 * time.Second
	// look is the time between two descriptions of a stream. It is lookSoon while a
	// shard has ended and its child is not listed.
	look     = 30 * time.Second
	lookSoon = 5 * time.Second
)

// Start says where to begin to read a stream. The zero value is its beginning.
type Start struct {
	// Checkpoints are those of an earlier reading; nil if there was none. Shards
	// without one are read from their beginning.
	Checkpoints map[string]delivery.Checkpoint
	// Since makes the reading begin at the present; 0 for not. It is the present,
	// epoch ms, or a little earlier since clocks differ. If a shard's iterator
	// expires before its first record, the shard is read from its beginning, without
	// the records written before Since.
	Since int64
}

// Tail reads one stream as it grows. It is not safe for concurrent use.
type Tail struct {
	client       Client
	arn          string
	table, label string
	start        Start
	notice       func(error)

	cursors    map[string]*cursor
	described  bool
	describeAt int64 // epoch ms
	failures   int   // of describing, in a row
	disabled   bool  // no further shards follow
}

// Open returns a Tail that has read nothing yet. It calls notice for each failure
// that does not end the reading: with an error that wraps ErrLost, or table.ErrRetry
// where the Tail retries.
func Open(client Client, arn string, start Start, notice func(error)) (*Tail, error) {
	label, err := events.StreamLabel(arn)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", arn, err)
	}
	head, _, _ := strings.Cut(arn, "/stream/")
	_, name, _ := strings.Cut(head, ":table/")
	return &Tail{
		client: client, arn: arn, table: name, label: label, start: start, notice: notice,
		cursors: map[string]*cursor{},
	}, nil
}

// Over reports whether the stream is disabled and read to its end. The consumer
// may still be busy with its records.
func (t *Tail) Over() bool {
	for _, c := range t.cursors {
		if !c.ended {
			return false
		}
	}
	return t.disabled
}

// Step describes the stream when that is due. Then it reads a page of each shard
// that the consumer wants and whose time has come. It retries later what may pass.
// A stream that disappears while it is read is over. An error ends the reading:
// ErrGone where nothing was read yet, ErrImages, the context's, or a refusal of
// the service.
func (t *Tail) Step(ctx context.Context, into Consumer, now int64) error {
	if now >= t.describeAt {
		if err := t.discover(ctx, into, now); err != nil {
			return err
		}
	}
	ready := t.ready(into.Wants(), now)
	pages, errs := make([]page, len(ready)), make([]error, len(ready))
	var group errgroup.Group
	group.SetLimit(maxRequests)
	for i, c := range ready {
		group.Go(func() error {
			pages[i], errs[i] = t.read(ctx, *c)
			return nil
		})
	}
	_ = group.Wait()
	for i, c := range ready {
		if err := t.take(ctx, into, c, pages[i], errs[i], now); err != nil {
			return err
		}
	}
	return nil
}

func (t *Tail) ready(wants []string, now int64) []*cursor {
	var ready []*cursor
	for _, id := range wants {
		if c := t.cursors[id]; c != nil && c.readAt <= now {
			ready = append(ready, c)
		}
	}
	return ready
}

// NextStep returns when Step has something to do, epoch ms.
func (t *Tail) NextStep(into Consumer) int64 {
	at := t.describeAt
	for _, id := range into.Wants() {
		if c := t.cursors[id]; c != nil {
			at = min(at, c.readAt)
		}
	}
	return at
}

// take handles the answer to one read of a shard.
func (t *Tail) take(ctx context.Context, into Consumer, c *cursor, p page, err error, now int64) error {
	switch {
	case err == nil:
		c.advance(p, now)
		if c.ended {
			t.describeAt = now
		}
		into.Read(c.ID, t.wanted(c, p.records), c.ended, now)
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case isExpired(err):
		c.iterator, c.readAt = nil, now+pace.Milliseconds()
		c.old = c.old || c.latest && c.after == ""
		return nil
	case isTrimmed(err):
		t.notice(fmt.Errorf("shard %s: its next record is no longer on the stream: %w", c.ID, ErrLost))
		c.iterator, c.after, c.latest, c.readAt = nil, "", false, now+pace.Milliseconds()
		return nil
	case isGone(err):
		t.vanish(into, c, now)
		return nil
	}
	return t.retry(&c.failures, &c.readAt, failure("read shard "+c.ID, err), now)
}

// vanish ends a shard that the service no longer knows. If the whole stream is
// gone, the next description shows it.
func (t *Tail) vanish(into Consumer, c *cursor, now int64) {
	t.notice(lostShard(c.ID))
	c.ended, t.describeAt = true, now
	into.Read(c.ID, nil, true, now)
}

func lostShard(id string) error {
	return fmt.Errorf("shard %s is no longer on the stream and was not read to its end: %w", id, ErrLost)
}

// retry moves at to the next attempt if err may pass, and returns err otherwise.
func (t *Tail) retry(failures *int, at *int64, err error, now int64) error {
	if !errors.Is(err, table.ErrRetry) {
		return err
	}
	wait := min(pace<<min(*failures, 10), maxBackoff)
	*failures++
	*at = now + wait.Milliseconds()
	t.notice(fmt.Errorf("%w; trying again in %v", err, wait))
	return nil
}

// wanted leaves out records written before the reading began.
func (t *Tail) wanted(c *cursor, records []events.Record) []events.Record {
	if !c.old {
		return records
	}
	return slices.DeleteFunc(records, func(r events.Record) bool { return r.Err == nil && r.Time < t.start.Since })
}
