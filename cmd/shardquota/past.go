package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/shardquota/shardquota/cmd/shardquota/history"
	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/events/delivery"
	"github.com/shardquota/shardquota/events/stream"
	"github.com/shardquota/shardquota/table"
)

// historyTimeout bounds how long a stream is read for a page. DynamoDB gives no way
// to begin at a time: a stream is read from its beginning.
const historyTimeout = time.Minute

// readHistory passes a group's records of a table's stream since a time to into.
func readHistory(ctx context.Context, service connection, tableName string, group table.Group, since time.Time, into *history.Builder) error {
	ctx, cancel := context.WithTimeout(ctx, historyTimeout)
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

// stopped returns err, or that historyTimeout is over where that is the cause.
func stopped(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("the stream was not read to its end within %v: the page shows what was read until then", historyTimeout)
	}
	return err
}

// until waits until at, epoch ms.
func until(ctx context.Context, at int64) error {
	timer := time.NewTimer(time.Until(time.UnixMilli(at)))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// observe passes a record to into if it is of the group.
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
