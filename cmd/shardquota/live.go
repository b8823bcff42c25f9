package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"time"

	"github.com/shardquota/shardquota/events/stream"
	"github.com/shardquota/shardquota/events/delivery"
)

// clock is the time that a command goes by.
type clock struct {
	now   func() time.Time
	after func(time.Duration) <-chan time.Time
}

var wallClock = clock{time.Now, time.After}

func (c clock) ms() int64 { return c.now().UnixMilli() }

// until is a channel that is served when it is at, epoch ms.
func (c clock) until(at int64) <-chan time.Time {
	return c.after(time.Duration(max(0, at-c.ms())) * time.Millisecond)
}

// Where to begin.
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
	Table  string                      `json:"table"`
	Stream string                      `json:"stream"`          // its ARN
	Since  int64                       `json:"since,omitempty"` // what was written before is left out, epoch ms
	Shards map[string]delivery.Checkpoint `json:"shards"`
}

// skew is how far this machine's clock may be ahead of the service's.
const skew = time.Minute

// live is a table's stream as a command follows it, and the one that takes its
// place when it is disabled and another enabled.
type live struct {
	place
	tables  stream.Tables
	streams stream.Client
	clock   clock
	notice  func(error)

	tail *stream.Tail
	lost int // how often records were found to be lost
}

// errOver ends the reading of a stream that is disabled and has nothing left.
var errOver = errors.New("the table's stream is disabled and was read to its end")

// errLost ends a command that could not read all that it was to.
var errLost = errors.New("records were lost: they left the stream before they were read")

// begin finds the stream and opens it where saved says, or anew where saved is
// nil.
func (l *live) begin(ctx context.Context, saved *place, from string) error {
	arn, err := stream.Find(ctx, l.tables, l.Table)
	if saved != nil && errors.Is(err, stream.ErrNoStream) {
		arn, err = saved.Stream, nil // disabled, and perhaps not forgotten
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

// resume goes on with the stream that was read, even if it is not the latest:
// it may hold what was not read yet.
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

func (l *live) open(positions map[string]delivery.Checkpoint) (err error) {
	l.tail, err = stream.Open(l.streams, l.Stream, stream.Start{Checkpoints: positions, Since: l.Since}, l.noticed)
	return err
}

func (l *live) noticed(err error) {
	if errors.Is(err, stream.ErrLost) {
		l.lost++
	}
	l.notice(err)
}

// step reads on. It returns errOver when all there will ever be was read.
func (l *live) step(ctx context.Context, into stream.Consumer) error {
	err := l.tail.Step(ctx, into, l.clock.ms())
	if err == nil && l.tail.Over() {
		return errOver
	}
	return err
}

// next opens the stream that was enabled after the one that is over. It returns
// errOver where there is none.
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

// at returns the place where a reading with these positions goes on.
func (l *live) at(positions map[string]delivery.Checkpoint) place {
	l.Shards = positions
	p := l.place
	p.Shards = maps.Clone(positions)
	return p
}

// say writes a line for whoever is watching.
func say(w io.Writer, format string, args ...any) {
	fmt.Fprintf(w, "shardquota: "+format+"\n", args...)
}
