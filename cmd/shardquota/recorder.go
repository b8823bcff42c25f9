package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/events/stream"
)

// A part of a recording is written at this size or age. Short parts do not compress
// well, so that those of a gzipped recording may be older.
const (
	partBytes   = 4 << 20
	partAge     = time.Second
	partAgeGzip = 10 * time.Second
)

// never is later than any time, epoch ms.
const never = int64(1) << 62

// recorder writes a live stream to a file.
type recorder struct {
	live
	merge *stream.Merge
	file  *recordFile // nil to write to out
	out   io.Writer
	hide  *redactor // nil to show ids

	buckets bool  // records of buckets alone
	current bool  // stop at the present
	end     int64 // when to stop, epoch ms

	failed  bool  // a record could not be written: the position file must not pass it
	begun   int64 // when the present part began, epoch ms; 0 for none
	written int64 // records
	seen    map[string]bool
}

// run records until ctx ends or the table's streams are over. Then it writes the
// last part.
func (r *recorder) run(ctx context.Context) error {
	r.seen = map[string]bool{}
	for {
		r.merge = stream.NewMerge(r.clock.ms())
		err := r.follow(ctx)
		if errors.Is(err, errOver) {
			if err = r.next(ctx); err == nil {
				continue
			}
		}
		if errors.Is(err, errOver) {
			r.notice(err)
			err = nil
		}
		if ctx.Err() != nil {
			err = nil
		}
		return errors.Join(err, r.commit())
	}
}

// follow records one stream. It returns errOver at its end.
func (r *recorder) follow(ctx context.Context) error {
	for first := true; ctx.Err() == nil; first = false {
		over := r.step(ctx, r.merge)
		if over != nil && !errors.Is(over, errOver) {
			return over
		}
		if err := r.write(r.merge.Take()); err != nil {
			r.failed = true
			return err
		}
		finished := r.finished() || over != nil
		if first || finished || r.partEnd() <= r.clock.ms() {
			if err := r.commit(); err != nil {
				return err
			}
		}
		if finished {
			return over
		}
		select {
		case <-ctx.Done():
		case <-r.clock.until(min(r.tail.NextStep(r.merge), r.partEnd(), r.end)):
		}
	}
	return ctx.Err()
}

func (r *recorder) finished() bool {
	return r.current && r.merge.Current() || r.clock.ms() >= r.end
}

// partEnd returns when to write the present part, epoch ms.
func (r *recorder) partEnd() int64 {
	switch {
	case r.begun == 0:
		return never
	case r.file.part.Len() >= partBytes:
		return r.begun
	case isGzip(r.file.name):
		return r.begun + partAgeGzip.Milliseconds()
	}
	return r.begun + partAge.Milliseconds()
}

// write adds records, in order.
func (r *recorder) write(records []events.Record) error {
	for _, record := range records {
		if r.buckets && !events.OfBucket(record) {
			continue
		}
		line, err := r.line(record)
		if err != nil {
			return err
		}
		r.written++
		if r.file == nil {
			if _, err := r.out.Write(append(line, '\n')); err != nil {
				return fmt.Errorf("write: %w", err)
			}
			continue
		}
		if r.begun == 0 {
			r.begun = r.clock.ms()
		}
		r.file.add(line)
	}
	return nil
}

func (r *recorder) line(record events.Record) ([]byte, error) {
	if r.hide != nil && record.Err == nil {
		redacted, err := r.hide.record(record)
		if err != nil {
			return nil, fmt.Errorf("record %s: %w", record.Sequence, err)
		}
		record = redacted
	}
	return events.EncodeRecord(record)
}

// commit writes the records taken so far to the disk.
func (r *recorder) commit() error {
	checkpoints := r.merge.Checkpoints()
	if len(checkpoints) == 0 && len(r.Shards) > 0 {
		return nil // the stream could not be described: its last checkpoint stays
	}
	for id := range checkpoints {
		r.seen[id] = true
	}
	at := r.at(checkpoints)
	if r.file == nil || r.failed {
		return nil
	}
	r.begun = 0
	err := r.file.commit(at)
	r.failed = err != nil
	return err
}

// summary writes what was recorded, without any id.
func (r *recorder) summary(w io.Writer) {
	text := fmt.Sprintf("recorded %s of %s", count(r.written, "record"), count(int64(len(r.seen)), "shard"))
	if r.file != nil {
		text += fmt.Sprintf(" to %s, which has %d now", r.file.name, r.file.at.Records)
	}
	say(w, "%s", text)
}

func count(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// hashKey returns the environment's key of pseudonyms, empty for none.
func hashKey() string { return os.Getenv("SHARDQUOTA_HASH_KEY") }
