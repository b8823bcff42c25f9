package limiter

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// opened are the windows that changes of a bucket open.
func opened(b *table.Bucket, changes []quota.Change) []table.OpenedWindow {
	var windows []table.OpenedWindow
	for _, change := range changes {
		if change.Open != nil {
			windows = append(windows, table.OpenedWindow{Limit: change.Limit, Start: change.Open.Start, Length: b.Limit(change.Limit).Window.Length})
		}
	}
	return windows
}

// tell tells the other shards of windows that were opened on the asked one: the
// start alone, no tokens. A shard that is not told opens a window of its own
// when it is used next, so that what fails here is let be.
func (a *asking) tell(ctx context.Context, windows []table.OpenedWindow, count int) {
	var group errgroup.Group
	group.SetLimit(a.atOnce)
	for _, window := range windows {
		for shard := range count {
			if shard == a.key.Shard {
				continue
			}
			group.Go(func() error {
				_, err := a.table.PropagateWindow(ctx, a.key.At(shard), window)
				return err
			})
		}
	}
	_ = group.Wait()
}
