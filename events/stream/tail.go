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
	"github.com/shardquota/shardquota/internal/mapping"
	"github.com/shardquota/shardquota/table"
)

// What reading costs: a shard takes 5 requests a second, and a page is 1,000
// records or 1 MB at most.
const (
	pageSize = 1000
	// pace is between two requests of one shard.
	pace = 200 * time.Millisecond
	// idle is what pace grows to for a shard that has nothing new.
	idle = time.Second
	// quiet is how many empty answers in a row are taken for the present. One
	// alone says nothing: a page covers a stretch of the shard, which may hold
	// no records though later ones do.
	quiet = 20
	// atOnce bounds requests at one time.
	atOnce = 8
	// patience is how long one request may take, its own client's retries
	// included, before the connection is taken for dead.
	patience = 15 * time.Second
	// slowest is what waiting after failures grows to.
	slowest = 30 * time.Second
	// look is between two descriptions of a stream, and lookSoon where a shard
	// has ended whose successor is not there yet.
	look     = 30 * time.Second
	lookSoon = 5 * time.Second
)

// Start is where reading a stream begins. The zero value is its beginning.
type Start struct {
	// Positions are those of an earlier reading; nil if there was none. Shards
	// that are not among them are read from their beginning.
	Positions map[string]mapping.Position
	// Since has the reading begin at the present; 0 for not. It is that time, or a
	// little earlier since clocks differ, epoch ms: where nothing was read of a
	// shard before its place got lost, what was written before is left out.
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
	disabled   bool  // no further shards come
}

// Open returns a Tail that has read nothing yet. Each trouble that does not end
// the reading is told to notice: an error that wraps ErrLost, or table.ErrRetry
// where it is tried again.
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

// Over reports whether the stream is disabled and read to its end: nothing will
// come any more. What was read may not be done with yet.
func (t *Tail) Over() bool {
	for _, c := range t.cursors {
		if !c.ended {
			return false
		}
	}
	return t.disabled
}

// Step looks for new shards where it is time to, and reads a page of each shard
// that the consumer wants and that is due. What may pass is waited out, and a stream that
// is gone under way is over. An error ends the reading: it is ErrGone where
// nothing was read before, ErrImages, the context's, or a refusal of the service.
func (t *Tail) Step(ctx context.Context, into Consumer, now int64) error {
	if now >= t.describeAt {
		if err := t.discover(ctx, into, now); err != nil {
			return err
		}
	}
	due := t.due(into.Wants(), now)
	pages, errs := make([]page, len(due)), make([]error, len(due))
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i, c := range due {
		group.Go(func() error {
			pages[i], errs[i] = t.read(ctx, *c)
			return nil
		})
	}
	_ = group.Wait()
	for i, c := range due {
		if err := t.take(ctx, into, c, pages[i], errs[i], now); err != nil {
			return err
		}
	}
	return nil
}

func (t *Tail) due(wants []string, now int64) []*cursor {
	var due []*cursor
	for _, id := range wants {
		if c := t.cursors[id]; c != nil && c.due <= now {
			due = append(due, c)
		}
	}
	return due
}

// Due is when Step has something to do, epoch ms.
func (t *Tail) Due(into Consumer) int64 {
	at := t.describeAt
	for _, id := range into.Wants() {
		if c := t.cursors[id]; c != nil {
			at = min(at, c.due)
		}
	}
	return at
}

// take settles what became of reading a shard on.
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
		c.iterator, c.due = nil, now+pace.Milliseconds()
		c.old = c.old || c.latest && c.after == ""
		return nil
	case isTrimmed(err):
		t.notice(fmt.Errorf("shard %s: its next record is no longer on the stream: %w", c.ID, ErrLost))
		c.iterator, c.after, c.latest, c.due = nil, "", false, now+pace.Milliseconds()
		return nil
	case isGone(err):
		t.vanish(into, c, now)
		return nil
	}
	return t.retry(&c.failures, &c.due, failure("read shard "+c.ID, err), now)
}

// vanish ends a shard that the service no longer knows. If it is the stream
// that is gone, describing it says so.
func (t *Tail) vanish(into Consumer, c *cursor, now int64) {
	t.notice(lostShard(c.ID))
	c.ended, t.describeAt = true, now
	into.Read(c.ID, nil, true, now)
}

func lostShard(id string) error {
	return fmt.Errorf("shard %s is no longer on the stream and was not read to its end: %w", id, ErrLost)
}

// retry puts off what may pass, and returns what does not.
func (t *Tail) retry(failures *int, due *int64, err error, now int64) error {
	if !errors.Is(err, table.ErrRetry) {
		return err
	}
	wait := min(pace<<min(*failures, 10), slowest)
	*failures++
	*due = now + wait.Milliseconds()
	t.notice(fmt.Errorf("%w; trying again in %v", err, wait))
	return nil
}

// wanted leaves out what was written before the reading began.
func (t *Tail) wanted(c *cursor, records []events.Record) []events.Record {
	if !c.old {
		return records
	}
	return slices.DeleteFunc(records, func(r events.Record) bool { return r.Err == nil && r.Time < t.start.Since })
}
