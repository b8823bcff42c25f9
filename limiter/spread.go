package limiter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// ErrUnreadable says that a change is stored, and brought to all buckets but some
// that cannot be read. Doing the same again does not help before they are mended.
var ErrUnreadable = errors.New("some buckets cannot be read")

// errKept says that the limits that hold for a group cannot be read, so that its
// buckets keep theirs, with the access that holds.
var errKept = errors.New("buckets keep the limits that they have")

// spread brings what holds now to all buckets in a scope. It looks for them
// twice: a bucket that was being made meanwhile is found the second time, and
// its maker looks for itself. Where it fails for some it goes on to the others;
// the error wraps ErrUnreadable where that was so of buckets that cannot be read,
// and of no others.
func (l *Limiter) spread(ctx context.Context, scope table.Scope) error {
	done, failed := map[table.Group]bool{}, spreadError{}
	for range 2 {
		keys, err := l.table.Find(ctx, scope)
		if err != nil {
			return err
		}
		var groups errgroup.Group
		groups.SetLimit(l.atOnce)
		for _, key := range keys {
			if done[key.Group] || ctx.Err() != nil {
				continue
			}
			done[key.Group] = true
			groups.Go(func() error {
				if err := l.change(ctx, key.Group, l.now()); err != nil && !errors.Is(err, errKept) {
					failed.add(err)
				}
				return nil
			})
		}
		_ = groups.Wait()
	}
	if failed.groups = len(done); failed.count > 0 && ctx.Err() == nil {
		return &failed
	}
	return ctx.Err()
}

// spreadError says what became of the groups that a change was not brought to.
// Their errors name no entity.
type spreadError struct {
	groups     int     // those that the change was to be brought to
	count      int     // those that it was not brought to
	unreadable int     // those of them that have buckets that cannot be read
	causes     []error // of the first that failed, at most maxCauses
	mu         sync.Mutex
}

const maxCauses = 3

func (e *spreadError) add(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.count++; len(e.causes) < maxCauses {
		e.causes = append(e.causes, err)
	}
	if unreadable(err) {
		e.unreadable++
	}
}

// unreadable reports whether an error is of a bucket that cannot be read.
func unreadable(err error) bool { return errors.Is(err, table.ErrItem) || errors.Is(err, table.ErrKey) }

func (e *spreadError) Error() string {
	var texts []string
	for _, cause := range e.causes {
		if text := cause.Error(); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return fmt.Sprintf("%d of %d groups: %s", e.count, e.groups, strings.Join(texts, "; "))
}

// Unwrap returns ErrUnreadable, where there is no other cause, and the causes.
func (e *spreadError) Unwrap() []error {
	if e.unreadable == e.count {
		return append([]error{ErrUnreadable}, e.causes...)
	}
	return e.causes
}

// change brings what holds for a group to all of its shards. It goes over them
// until it finds nothing to change: meanwhile others may have changed what holds,
// or have made shards by what held before.
func (l *Limiter) change(ctx context.Context, group table.Group, now time.Time) error {
	for range maxAttempts {
		changed, err := l.sweep(ctx, group, now)
		if !changed {
			return err
		}
	}
	return ErrContended
}

// sweep brings what holds now to the shards that are there now, and reports
// whether that changed any. Those that cannot be read get the access alone; the
// error is of them then. It wraps errKept where no shard gets more.
func (l *Limiter) sweep(ctx context.Context, group table.Group, now time.Time) (changed bool, err error) {
	h, left := l.lookAt(ctx, group, now)
	switch {
	case errors.Is(left, ErrLimit):
		left = fmt.Errorf("%w: %w", errKept, left)
	case errors.Is(left, ErrUndefined):
		left = nil
	case left != nil:
		return false, left
	}
	shards, err := l.shards(ctx, group, now)
	if unreadable(err) {
		left = err
		changed, err = l.admitUnread(ctx, group, h, now)
	}
	if err != nil {
		return false, err
	}
	for _, b := range shards {
		amended, err := l.amend(ctx, b, h, now)
		if errors.Is(err, ErrLimit) {
			if h.limits = nil; left == nil {
				left = fmt.Errorf("%w: %w", errKept, err)
			}
			amended, err = l.amend(ctx, b, h, now)
		}
		if err != nil {
			return false, fmt.Errorf("shard %d: %w", b.Shard, err)
		}
		changed = changed || amended
	}
	return changed, left
}

// admitUnread brings the access that holds to the shards of a group without
// reading them, and reports whether another has come to hold meanwhile.
func (l *Limiter) admitUnread(ctx context.Context, group table.Group, h holding, now time.Time) (changed bool, err error) {
	keys, err := l.table.Find(ctx, table.Scope(group))
	if err != nil {
		return false, err
	}
	change := table.Amendment{Set: table.Item{}}
	h.admit(change.Set, now.Add(stampLife).UnixMilli())
	for _, name := range []string{table.AttrDisabled, table.AttrBypass} {
		if change.Set[name] == nil {
			change.Remove = append(change.Remove, name)
		}
	}
	for _, key := range keys {
		if _, err := l.table.Amend(ctx, key.PK(), table.StateSK, change); err != nil {
			return false, err
		}
	}
	again, err := l.lookAt(ctx, group, now)
	if errors.Is(err, ErrLimit) || errors.Is(err, ErrUndefined) {
		err = nil
	}
	return again.access != h.access, err
}

// shards are those of a group that can be read, shard 0 first, raised to its
// count: a limit that comes is shared out at the count that holds. Where shard 0
// is gone or cannot be read, that is the largest count of those that an index
// finds. The error of those that cannot be read wraps table.ErrItem or
// table.ErrKey.
func (l *Limiter) shards(ctx context.Context, group table.Group, now time.Time) ([]*table.Bucket, error) {
	zero, err := l.table.Read(ctx, group.At(0))
	if err != nil && !unreadable(err) {
		return nil, fmt.Errorf("shard 0: %w", err)
	}
	count := 0
	if zero != nil && err == nil {
		count = zero.ShardCount
	} else if count, err = l.findable(ctx, group); count == 0 {
		return nil, err
	}
	family, err := l.table.RaiseAndRead(ctx, group, count, now.UnixMilli())
	if err != nil {
		return nil, err
	}
	var shards []*table.Bucket
	for shard, sibling := range family {
		switch {
		case sibling.Broken != nil:
			err = fmt.Errorf("shard %d: %w", shard, sibling.Broken)
		case sibling.Bucket != nil:
			shards = append(shards, sibling.Bucket)
		}
	}
	return shards, err
}

// findable is the largest count of the shards that an index finds and that can be
// read, 0 where there are none. The error is that of the last that cannot.
func (l *Limiter) findable(ctx context.Context, group table.Group) (count int, err error) {
	keys, err := l.table.Find(ctx, table.Scope(group))
	if err != nil {
		return 0, err
	}
	var broken error
	for _, key := range keys {
		b, err := l.table.Read(ctx, key)
		switch {
		case unreadable(err):
			broken = fmt.Errorf("shard %d: %w", key.Shard, err)
		case err != nil:
			return 0, fmt.Errorf("shard %d: %w", key.Shard, err)
		case b != nil:
			count = max(count, b.ShardCount)
		}
	}
	return count, broken
}

// amend brings what holds to one bucket, whatever others do to it meanwhile, and
// reports whether that changed it. Before its terms change it is brought up to date
// by those that it has: of the time until then others would give more, or less.
func (l *Limiter) amend(ctx context.Context, b *table.Bucket, h holding, now time.Time) (bool, error) {
	passed := false
	for range maxAttempts {
		to, err := h.dressed(b.Item, now)
		if err != nil {
			return false, err
		}
		amendment := changed(b.Item, to)
		if len(amendment.Remove) == 0 && onlyValid(amendment.Set) {
			return false, nil
		}
		if !passed && b.ChangesConfig(amendment) && !b.Closed(now.UnixMilli()) { // a pass would open a session's window
			if b, passed, err = l.pass(ctx, b, now.UnixMilli()); b == nil || err != nil {
				return false, err
			}
			continue
		}
		amended, err := l.table.Amend(ctx, b.Key.PK(), table.StateSK, amendment)
		if err != nil || amended.Applied || amended.Item == nil {
			return amended.Applied, err
		}
		if b, err = amended.Bucket(); err != nil {
			return false, err
		}
	}
	return false, ErrContended
}

// onlyValid reports whether a change would have a bucket looked at again and
// nothing else.
func onlyValid(set table.Item) bool {
	return len(set) == 0 || len(set) == 1 && set[table.AttrValidUntil] != nil
}

// pass brings a bucket up to date by the terms that it has, unless others write it
// in that moment, and returns it as it is then, nil where it is gone. One whose
// terms cannot be read has nothing coming.
func (l *Limiter) pass(ctx context.Context, b *table.Bucket, now int64) (after *table.Bucket, done bool, err error) {
	use, _, err := quota.PlanUse(&b.Bucket, nil, now)
	if err != nil {
		return b, true, nil
	}
	taken, err := l.table.Use(ctx, b, use, 0)
	if err != nil {
		return nil, false, err
	}
	after, err = taken.Bucket()
	return after, taken.Applied, err
}
