package limiter

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// openedBy returns the windows that changes of a bucket open.
func openedBy(b *table.Bucket, changes []quota.Change) []table.OpenedWindow {
	var windows []table.OpenedWindow
	for _, change := range changes {
		if change.Open != nil {
			windows = append(windows, table.OpenedWindow{Limit: change.Limit, Start: change.Open.Start, Length: b.Limit(change.Limit).Window.Length})
		}
	}
	return windows
}

// liveOn returns the session windows of a bucket that are live at now.
func liveOn(b *table.Bucket, now int64) []table.OpenedWindow {
	var windows []table.OpenedWindow
	for i := range b.Limits {
		w := b.Limits[i].Window
		if w.Start != nil && now < *w.Start+w.Length {
			windows = append(windows, table.OpenedWindow{Limit: b.Limits[i].Name, Start: *w.Start, Length: w.Length})
		}
	}
	return windows
}

// newWindows returns the windows of a shard that are not those of shard 0.
func newWindows(zero, shard *table.Bucket) []table.OpenedWindow {
	var windows []table.OpenedWindow
	for i := range shard.Limits {
		is, was := shard.Limits[i].Window, zero.Limits[i].Window
		if is.Start != nil && (was.Start == nil || *was.Start != *is.Start) {
			windows = append(windows, table.OpenedWindow{Limit: shard.Limits[i].Name, Start: *is.Start, Length: is.Length})
		}
	}
	return windows
}

// propagateWindows stores windows that were opened on one shard on the other shards
// of its group: their start alone, no tokens. It ignores failures: a shard that
// misses a window opens one of its own at its next use.
func (l *Limiter) propagateWindows(ctx context.Context, opener table.Key, windows []table.OpenedWindow, count int) {
	var group errgroup.Group
	group.SetLimit(l.parallel)
	for _, window := range windows {
		for shard := range count {
			if shard == opener.Shard {
				continue
			}
			group.Go(func() error {
				_, err := l.table.PropagateWindow(ctx, opener.At(shard), window)
				return err
			})
		}
	}
	_ = group.Wait()
}
