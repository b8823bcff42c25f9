package limits

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

// ErrUnreadable says that a change is stored, and reached all buckets but some that
// cannot be read. Making it again does not help before those are mended.
var ErrUnreadable = errors.New("some buckets cannot be read")

// errLimitsKept says that the limits that hold for a group cannot be read. Its
// buckets keep theirs, with the access that holds.
var errLimitsKept = errors.New("buckets keep the limits that they have")

// rollOut brings what holds now to all buckets in a scope. It searches them twice:
// the second search finds a bucket that was being made during the first, and the
// bucket's maker looks at the configuration once more itself. A failure at some
// buckets keeps it from no other. The error wraps ErrUnreadable where all failures
// were of buckets that cannot be read.
func (s *Store) rollOut(ctx context.Context, scope table.Scope) error {
	done, failed := map[table.Group]bool{}, rolloutError{}
	for range 2 {
		keys, err := s.table.Find(ctx, scope)
		if err != nil {
			return err
		}
		var groups errgroup.Group
		groups.SetLimit(s.parallel)
		for _, key := range keys {
			if done[key.Group] || ctx.Err() != nil {
				continue
			}
			done[key.Group] = true
			groups.Go(func() error {
				if err := s.RollOut(ctx, key.Group, s.now()); err != nil && !errors.Is(err, errLimitsKept) {
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

// rolloutError says at how many groups a change failed. The errors name no entity.
type rolloutError struct {
	groups     int     // those that the change concerned
	count      int     // those at which it failed
	unreadable int     // those of them that have buckets that cannot be read
	causes     []error // the first failures, at most maxCauses
	mu         sync.Mutex
}

const maxCauses = 3

func (e *rolloutError) add(err error) {
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

func (e *rolloutError) Error() string {
	var texts []string
	for _, cause := range e.causes {
		if text := cause.Error(); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return fmt.Sprintf("%d of %d groups: %s", e.count, e.groups, strings.Join(texts, "; "))
}

// Unwrap returns the causes, and ErrUnreadable where there is no other cause.
func (e *rolloutError) Unwrap() []error {
	if e.unreadable == e.count {
		return append([]error{ErrUnreadable}, e.causes...)
	}
	return e.causes
}

// RollOut brings what holds for a group to all of its shards. It goes over them
// until it finds nothing to change: meanwhile others may change what holds, or
// make shards by what held before.
func (s *Store) RollOut(ctx context.Context, group table.Group, now time.Time) error {
	for range maxAttempts {
		changed, err := s.sweep(ctx, group, now)
		if !changed {
			return err
		}
	}
	return ErrContended
}

// sweep brings what holds now to the shards that exist now, and reports whether
// that changed any. A shard that cannot be read gets the access alone, and the
// error is of it. The error wraps errLimitsKept where no shard gets more.
func (s *Store) sweep(ctx context.Context, group table.Group, now time.Time) (changed bool, err error) {
	config, left := s.Effective(ctx, group, now)
	switch {
	case errors.Is(left, ErrLimit):
		left = fmt.Errorf("%w: %w", errLimitsKept, left)
	case errors.Is(left, ErrUndefined):
		left = nil
	case left != nil:
		return false, left
	}
	shards, err := s.shards(ctx, group, now)
	if unreadable(err) {
		left = err
		changed, err = s.stampUnread(ctx, group, config, now)
	}
	if err != nil {
		return false, err
	}
	for _, b := range shards {
		amended, err := s.amend(ctx, b, config, now)
		if errors.Is(err, ErrLimit) {
			if config.Limits = nil; left == nil {
				left = fmt.Errorf("%w: %w", errLimitsKept, err)
			}
			amended, err = s.amend(ctx, b, config, now)
		}
		if err != nil {
			return false, fmt.Errorf("shard %d: %w", b.Shard, err)
		}
		changed = changed || amended
	}
	return changed, left
}

// stampUnread stamps the access that holds on the shards of a group without reading
// them. It reports whether another access has come to hold meanwhile.
func (s *Store) stampUnread(ctx context.Context, group table.Group, config EffectiveConfig, now time.Time) (changed bool, err error) {
	keys, err := s.table.Find(ctx, table.Scope(group))
	if err != nil {
		return false, err
	}
	change := table.Amendment{Set: table.Item{}}
	config.stampAccess(change.Set, now.Add(stampLife).UnixMilli())
	for _, name := range []string{table.AttrDisabled, table.AttrBypass} {
		if change.Set[name] == nil {
			change.Remove = append(change.Remove, name)
		}
	}
	for _, key := range keys {
		if _, err := s.table.Amend(ctx, key.PK(), table.StateSK, change); err != nil {
			return false, err
		}
	}
	again, err := s.Effective(ctx, group, now)
	if errors.Is(err, ErrLimit) || errors.Is(err, ErrUndefined) {
		err = nil
	}
	return again.Access != config.Access, err
}

// shards returns the shards of a group that can be read, shard 0 first. It raises
// them to the group's count: a limit that is added is shared out at the count that
// holds. Where shard 0 is gone or cannot be read, that is the largest count among
// those that an index finds. The error of those that cannot be read wraps
// table.ErrItem or table.ErrKey.
func (s *Store) shards(ctx context.Context, group table.Group, now time.Time) ([]*table.Bucket, error) {
	zero, err := s.table.Read(ctx, group.At(0))
	if err != nil && !unreadable(err) {
		return nil, fmt.Errorf("shard 0: %w", err)
	}
	count := 0
	if zero != nil && err == nil {
		count = zero.ShardCount
	} else if count, err = s.largestCount(ctx, group); count == 0 {
		return nil, err
	}
	family, err := s.table.RaiseAndRead(ctx, group, count, now.UnixMilli())
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

// largestCount returns the largest shard count among the shards that an index finds
// and that can be read, 0 where there are none. The error is that of the last shard
// that cannot be read.
func (s *Store) largestCount(ctx context.Context, group table.Group) (count int, err error) {
	keys, err := s.table.Find(ctx, table.Scope(group))
	if err != nil {
		return 0, err
	}
	var broken error
	for _, key := range keys {
		b, err := s.table.Read(ctx, key)
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
// reports whether that changed it. It passes the bucket by its old limits before
// they change: new ones would count the time until then otherwise. It writes a change
// that does not fit one update in parts, each planned from what the last one left.
func (s *Store) amend(ctx context.Context, b *table.Bucket, config EffectiveConfig, now time.Time) (changed bool, err error) {
	passed := false
	for range maxAttempts {
		to, err := config.ApplyTo(b.Item, now)
		if err != nil {
			return changed, err
		}
		amendment := difference(b.Item, to)
		if len(amendment.Remove) == 0 && onlyValidUntil(amendment.Set) {
			return changed, nil
		}
		if !passed && b.ChangesConfig(amendment) && !b.Closed(now.UnixMilli()) { // a pass would open a session's window
			if b, passed, err = s.pass(ctx, b, now.UnixMilli()); b == nil || err != nil {
				return false, err
			}
			continue
		}
		parts := parts(b, amendment)
		amended, err := s.table.Amend(ctx, b.Key.PK(), table.StateSK, parts[0])
		changed = changed || amended.Applied
		if err != nil || amended.Applied && len(parts) == 1 || amended.Item == nil {
			return changed, err
		}
		if b, err = amended.Bucket(); err != nil {
			return changed, err
		}
	}
	return changed, ErrContended
}

// onlyValidUntil reports whether a change sets the valid-until and nothing else.
func onlyValidUntil(set table.Item) bool {
	return len(set) == 0 || len(set) == 1 && set[table.AttrValidUntil] != nil
}

// pass brings a bucket up to date by the limits that it has, unless others write it
// in that moment. It returns the bucket as it is then, nil where it is gone. A
// bucket whose limits cannot be read has nothing to be brought up to date.
func (s *Store) pass(ctx context.Context, b *table.Bucket, now int64) (after *table.Bucket, done bool, err error) {
	use, _, err := quota.PlanUse(&b.Bucket, nil, now)
	if err != nil {
		return b, true, nil
	}
	written, err := s.table.Use(ctx, b, use)
	if err != nil {
		return nil, false, err
	}
	after, err = written.Bucket()
	return after, written.Applied, err
}
