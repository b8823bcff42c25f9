package limiter

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// The write meter of a bucket: so many writes a second.
const writesPerSecond = 1000

// found makes shard 0 of a group, with the limits that hold. What holds is looked
// at once more when the bucket stands, so that a change meanwhile, whose maker
// did not find the bucket yet, is not missed.
func (a *asking) found(ctx context.Context) error {
	h, err := a.lookAt(ctx, a.key.Group, a.now)
	if h.access == Disabled {
		return ErrDisabled
	}
	if err != nil {
		return err
	}
	b, err := a.first(ctx, h)
	if err != nil {
		return fmt.Errorf("create shard 0: %w", err)
	}
	inserted, err := a.table.Insert(ctx, b.Item)
	if err != nil || !inserted {
		return err
	}
	again, err := a.lookAt(ctx, a.key.Group, a.now)
	if errors.Is(err, ErrUndefined) || err == nil && reflect.DeepEqual(h, again) {
		return nil
	}
	if err != nil {
		return err
	}
	return a.change(ctx, a.key.Group, a.now)
}

// first is shard 0 of a group that has none. Where other shards outlived it, it
// is one of them, and gets of a quota only what none of them was granted.
func (a *asking) first(ctx context.Context, h holding) (*table.Bucket, error) {
	siblings, count, err := a.orphans(ctx)
	if err != nil {
		return nil, err
	}
	now := a.millis()
	for _, sibling := range siblings {
		now = max(now, sibling.RefilledAt)
	}
	item, err := h.dressed(a.bare(count, now), a.now)
	if err != nil {
		return nil, err
	}
	b, err := table.DecodeBucket(item)
	if err != nil {
		return nil, err
	}
	// A session's first use is to open its window, and must not take before.
	if boundary, bound := b.NextBoundary(now); !bound || boundary > now {
		if b.ValidUntil = nil; bound {
			b.ValidUntil = &boundary
		}
		b.Fill()
	}
	return b, leave(b, siblings, now)
}

// bare is a bucket's item without limits but the write meter.
func (a *asking) bare(count int, now int64) table.Item {
	at := func(field table.Field) string { return table.Attr(quota.WriteMeter, field) }
	item := table.Item{
		table.AttrEntityID: table.S(a.key.Entity), table.AttrResource: table.S(a.key.Resource),
		table.AttrCascade:    &types.AttributeValueMemberBOOL{Value: false},
		table.AttrShardCount: table.N(strconv.Itoa(count)), table.AttrRefilledAt: whole(now),
		at(table.FieldBalance): whole(1000 * writesPerSecond), at(table.FieldConsumed): whole(0),
		at(table.FieldCapacity): whole(1000 * writesPerSecond), at(table.FieldRefill): whole(1000 * writesPerSecond),
		at(table.FieldPeriod): whole(1000),
	}
	for name, value := range a.key.Keys() {
		item[name] = table.S(value)
	}
	return item
}

// orphans are the shards of a group that has no shard 0, since it expired before
// them, and their count: the highest that one of them knows. Those that lag are
// raised to it before they are read, as beside a shard 0 (docs/adr/0002).
func (a *asking) orphans(ctx context.Context) (siblings []*quota.Bucket, count int, err error) {
	keys, err := a.table.Find(ctx, table.Scope(a.key.Group))
	if err != nil || len(keys) == 0 {
		return nil, 1, err
	}
	count = 1
	for _, key := range keys {
		for key.Shard >= count && count < quota.MaxShards {
			count *= 2
		}
	}
	for range maxAttempts {
		family, err := a.table.RaiseAndRead(ctx, a.key.Group, count, a.millis())
		if err != nil {
			return nil, 0, err
		}
		highest := count
		for _, sibling := range family {
			if sibling.Broken != nil {
				return nil, 0, sibling.Broken
			}
			if sibling.Bucket != nil {
				highest = max(highest, sibling.Bucket.ShardCount)
			}
		}
		if highest == count {
			return table.Buckets(family), count, nil
		}
		count = highest
	}
	return nil, 0, ErrContended
}

// leave leaves to shards what they were granted of shard 0's part, and has it
// share their windows. A move off them would need shard 0, which they check, to
// be there: of what they would give, a quota or a limit that is replicated, it
// begins with nothing. The one comes with its next period, the other drips.
func leave(b *table.Bucket, siblings []*quota.Bucket, now int64) error {
	if len(siblings) == 0 {
		return nil
	}
	for i := range b.Limits {
		l := &b.Limits[i]
		for _, sibling := range siblings {
			theirs := sibling.Limit(l.Name)
			if l.Kind() == quota.Session && theirs != nil && theirs.Kind() == quota.Session && theirs.Current(sibling.RefilledAt, now) {
				l.Window.Start, l.Window.Applied = theirs.Window.Start, theirs.Window.Start
			}
		}
	}
	fundings, err := quota.Fund(&b.Bucket, siblings, 0, b.ShardCount, now)
	if err != nil {
		return err
	}
	for _, f := range fundings {
		if b.Limit(f.Limit).Balance = f.Amount; f.Source == quota.Move {
			b.Limit(f.Limit).Balance = 0
		}
	}
	b.Fill()
	return nil
}

// meet looks at a bucket of a group that was not met before: it remembers which
// limits it has and, where the program declares others and no level stores any,
// gives its to all shards. The use that met the bucket is done by now; what
// fails here is tried when the group is met again.
func (a *asking) meet(ctx context.Context, item table.Item) {
	seen, known := a.seen.Peek(a.key.Group)
	if known && seen.limits != nil {
		return
	}
	b, err := table.DecodeBucket(item)
	if err != nil {
		return
	}
	if coded := a.coded(b.Key.Resource); len(coded) > 0 && !declares(coded, b) {
		h, err := a.look(ctx, b.Key.Group, a.now)
		if err != nil || h.coded && a.change(ctx, b.Key.Group, a.now) != nil {
			return
		}
	}
	a.remember(b)
}

// remember keeps which limits a group's buckets have.
func (l *Limiter) remember(b *table.Bucket) {
	seen, _ := l.seen.Peek(b.Key.Group)
	seen.count, seen.limits = max(seen.count, b.ShardCount), map[string]bool{}
	for i := range b.Limits {
		seen.limits[b.Limits[i].Name] = true
	}
	l.seen.Add(b.Key.Group, seen)
}

// declares reports whether a bucket has the limits that are given, as they are.
func declares(limits []Limit, b *table.Bucket) bool {
	for _, l := range limits {
		had := b.Limit(l.Name)
		schedule, resets, _ := l.calendars()
		if had == nil || had.Base != (quota.Params{Capacity: l.Capacity * 1000, Refill: l.Refill * 1000, Period: l.periodSeconds() * 1000}) ||
			had.Schedule.Compact() != schedule.Compact() || had.Resets.Compact() != resets.Compact() ||
			had.Window.Length != l.Window.Milliseconds() ||
			l.Soft != (had.Soft != 0) || l.Division != had.Division {
			return false
		}
	}
	return true
}

// supply is for a bucket that lacks a limit which is asked for. Where the limits
// that hold have it, the bucket gets them; a parent gives without it.
func (a *asking) supply(ctx context.Context, b *table.Bucket) (table.WriteResult, error) {
	h, err := a.look(ctx, b.Key.Group, a.now)
	if err != nil && !errors.Is(err, ErrUndefined) {
		return table.WriteResult{}, err
	}
	for name := range a.demand {
		defined := slices.ContainsFunc(h.limits, func(l Limit) bool { return l.Name == name })
		switch {
		case b.Limit(name) != nil:
		case defined:
			if err := a.change(ctx, b.Key.Group, a.now); err != nil {
				return table.WriteResult{}, err
			}
			return a.take(ctx)
		case !a.parent:
			return table.WriteResult{}, fmt.Errorf("%w: %.80s on %s", ErrUndefined, name, b.Key.Resource)
		}
	}
	a.remember(b)
	if err := a.narrow(); err != nil {
		return table.WriteResult{}, err
	}
	return a.take(ctx)
}

// renew stamps anew that a bucket is bypassed, or a limit soft, where the stamp
// has run out and what is stored still says so.
func (a *asking) renew(ctx context.Context, b *table.Bucket) (bool, error) {
	now, lapsed := a.millis(), b.Bypass != 0
	for i := range b.Limits {
		l := &b.Limits[i]
		_, demanded := a.demand[l.Name]
		lapsed = lapsed || demanded && l.Soft != 0 && l.Soft <= now
	}
	if !lapsed {
		return false, nil
	}
	h, err := a.look(ctx, b.Key.Group, a.now)
	if err != nil {
		return false, err
	}
	soft := slices.ContainsFunc(h.limits, func(l Limit) bool { _, demanded := a.demand[l.Name]; return l.Soft && demanded })
	if h.access != Bypass && !soft {
		return false, nil
	}
	to, until := b.Item.Clone(), now+stampLife.Milliseconds()
	h.admit(to, until)
	for _, l := range h.limits {
		if name := table.Attr(l.Name, table.FieldSoft); l.Soft && to[name] != nil {
			to[name] = whole(until)
		}
	}
	amended, err := a.table.Amend(ctx, b.Key.PK(), table.StateSK, changed(b.Item, to))
	return amended.Applied, err
}
