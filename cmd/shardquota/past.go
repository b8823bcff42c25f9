package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/shardquota/shardquota/cmd/shardquota/history"
	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/events/stream"
	"github.com/shardquota/shardquota/events/delivery"
	"github.com/shardquota/shardquota/table"
)

// historyPatience bounds how long a stream is read for a picture. Streams are
// read from their beginning: there is no way into the middle of one by time.
const historyPatience = time.Minute

// readHistory observes what a table's stream says of a group since a time.
func readHistory(ctx context.Context, service connection, tableName string, group table.Group, since time.Time, into *history.Builder) error {
	ctx, cancel := context.WithTimeout(ctx, historyPatience)
	defer cancel()
	arn, err := stream.Find(ctx, service.table, tableName)
	if err != nil {
		return err
	}
	var trouble []error
	start := stream.Start{Checkpoints: map[string]delivery.Checkpoint{}, Since: since.UnixMilli()}
	tail, err := stream.Open(service.streams, arn, start, func(err error) { trouble = append(trouble, err) })
	if err != nil {
		return err
	}
	merge := stream.NewMerge(time.Now().UnixMilli())
	for {
		if err := tail.Step(ctx, merge, time.Now().UnixMilli()); err != nil {
			return stopped(ctx, err)
		}
		for _, record := range merge.Take() {
			observe(into, group, record)
		}
		if merge.Current() || tail.Over() {
			return errors.Join(trouble...)
		}
		if err := until(ctx, tail.NextStep(merge)); err != nil {
			return stopped(ctx, err)
		}
	}
}

// stopped says that patience ran out, where it is that.
func stopped(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("the stream was not read to its end within %v: the page shows what was read until then", historyPatience)
	}
	return err
}

// until waits for an instant, epoch ms.
func until(ctx context.Context, due int64) error {
	timer := time.NewTimer(time.Until(time.UnixMilli(due)))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// observe takes in a record if it is of the group.
func observe(into *history.Builder, group table.Group, record events.Record) {
	if record.Err != nil {
		return
	}
	if record.EventName == events.Remove {
		item, err := table.ParseItem(record.Old)
		if err != nil {
			return
		}
		if b, err := table.DecodeBucket(item); err == nil && b.Key.Group == group {
			into.Observe(record.Time, b.Image(), nil)
		}
		return
	}
	if change, err := events.Decode(record); err == nil && change != nil && change.New.Key.Group == group {
		into.Observe(record.Time, change.Old, change.New)
	}
}
