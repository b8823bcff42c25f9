package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"time"

	"github.com/shardquota/shardquota/events/delivery"
	"github.com/shardquota/shardquota/events/stream"
)

// clock is a command's time.
type clock struct {
	now   func() time.Time
	after func(time.Duration) <-chan time.Time
}

var wallClock = clock{time.Now, time.After}

func (c clock) ms() int64 { return c.now().UnixMilli() }

// until returns a channel that receives at a time, epoch ms.
func (c clock) until(at int64) <-chan time.Time {
	return c.after(time.Duration(max(0, at-c.ms())) * time.Millisecond)
}

// Values of --from.
const (
	fromBeginning = "beginning"
	fromNow       = "now"
)

func checkFrom(from string) error {
	if from != fromBeginning && from != fromNow {
		return fmt.Errorf("--from: %q is neither %s nor %s", from, fromBeginning, fromNow)
	}
	return nil
}

// place is where a reading of a table's streams goes on.
type place struct {
	Table  string                         `json:"table"`
	Stream string                         `json:"stream"`          // its ARN
	Since  int64                          `json:"since,omitempty"` // records written before are left out, epoch ms
	Shards map[string]delivery.Checkpoint `json:"shards"`
}

// skew is how far this machine's clock may be ahead of DynamoDB's.
const skew = time.Minute

// live follows a table's stream. When that is disabled and another is enabled, it
// follows the other.
type live struct {
	place
	tables  stream.Tables
	streams stream.Client
	clock   clock
	notice  func(error)

	tail *stream.Tail
	lost int // how often the tail reported lost records
}

// errOver ends the reading of a stream that is disabled and has nothing left.
var errOver = errors.New("the table's stream is disabled and was read to its end")

// errLost ends a command that could not read every record.
var errLost = errors.New("records were lost: they left the stream before they were read")

// begin finds the stream and opens it where saved says, or at from if saved is nil.
func (l *live) begin(ctx context.Context, saved *place, from string) error {
	arn, err := stream.Find(ctx, l.tables, l.Table)
	if saved != nil && errors.Is(err, stream.ErrNoStream) {
		arn, err = saved.Stream, nil // disabled, but DynamoDB may still have it
	}
	if err != nil {
		return err
	}
	if saved != nil {
		return l.resume(*saved, arn)
	}
	l.Stream = arn
	if from == fromNow {
		l.Since = l.clock.now().Add(-skew).UnixMilli()
	}
	return l.open(nil)
}

// resume opens the stream that was read before, even if it is not the latest: it
// may hold records that were not read.
func (l *live) resume(saved place, latest string) error {
	was, _, _ := strings.Cut(saved.Stream, "/stream/")
	is, _, _ := strings.Cut(latest, "/stream/")
	if was != is {
		return fmt.Errorf("the position is of another table, %s, and not of %s", was, is)
	}
	l.place = saved
	if l.Shards == nil {
		l.Shards = map[string]delivery.Checkpoint{}
	}
	return l.open(l.Shards)
}

func (l *live) open(checkpoints map[string]delivery.Checkpoint) (err error) {
	l.tail, err = stream.Open(l.streams, l.Stream, stream.Start{Checkpoints: checkpoints, Since: l.Since}, l.noticed)
	return err
}

func (l *live) noticed(err error) {
	if errors.Is(err, stream.ErrLost) {
		l.lost++
	}
	l.notice(err)
}

// step reads on. It returns errOver when the stream is over.
func (l *live) step(ctx context.Context, into stream.Consumer) error {
	err := l.tail.Step(ctx, into, l.clock.ms())
	if err == nil && l.tail.Over() {
		return errOver
	}
	return err
}

// next opens the stream that was enabled after this one. It returns errOver where
// there is none.
func (l *live) next(ctx context.Context) error {
	arn, err := stream.Find(ctx, l.tables, l.Table)
	if errors.Is(err, stream.ErrNoStream) || arn == l.Stream {
		return errOver
	}
	if err != nil {
		return err
	}
	l.Stream, l.Shards = arn, map[string]delivery.Checkpoint{}
	return l.open(l.Shards)
}

// at returns the place where a reading with these checkpoints goes on.
func (l *live) at(checkpoints map[string]delivery.Checkpoint) place {
	l.Shards = checkpoints
	p := l.place
	p.Shards = maps.Clone(checkpoints)
	return p
}

// say writes a line to the operator.
func say(w io.Writer, format string, args ...any) {
	fmt.Fprintf(w, "shardquota: "+format+"\n", args...)
}
