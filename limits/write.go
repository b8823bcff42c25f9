package limits

import (
	"context"
	"errors"
	"fmt"

	"github.com/shardquota/shardquota/table"
)

// ErrStale says that a level is stored otherwise than it was when it was read.
var ErrStale = errors.New("stored otherwise meanwhile")

// Every change of a level goes the same way (Store.change): the level's item is
// written and marked as pending, the change is rolled out to live buckets, and the
// mark is removed. A change that fails at some buckets still reaches all others.
// Making the same change again rolls it out again. Where the limits that hold
// cannot be read, buckets keep theirs, and get the access all the same.

// SetLimits stores the limits of a level in place of those it had, and rolls them
// out to the buckets that the level decides about. It refuses more limits than one
// bucket has room for; the error wraps ErrLimit and names the first that has none.
//
// Where a quota gets smaller, a shard's next use trims it to its new share. A quota
// that gets larger is so from its next period on. A limit that is left out is gone
// with what was used of it: set again in the same period it is granted in full. The
// error wraps ErrUnreadable where the change reached all buckets but those that
// cannot be read.
func (s *Store) SetLimits(ctx context.Context, level Level, limits ...Limit) error {
	if err := errors.Join(level.Check(), checkAll(limits)); err != nil {
		return err
	}
	return s.update(ctx, level, func(item table.Item) { setLimits(item, limits) })
}

// DeleteLimits removes the limits of a level. Its buckets get those of the next
// level that defines any. Where none does they keep what they have, and new buckets
// cannot be made.
func (s *Store) DeleteLimits(ctx context.Context, level Level) error {
	if err := level.Check(); err != nil {
		return err
	}
	return s.update(ctx, level, func(item table.Item) { setLimits(item, nil) })
}

// SetAccess disables or bypasses what is on a level, or lets it be used again. The
// level of everything in the namespace has no access.
func (s *Store) SetAccess(ctx context.Context, level Level, access Access) error {
	if err := errors.Join(level.Check(), Rules{Access: access}.check(level)); err != nil {
		return err
	}
	return s.update(ctx, level, func(item table.Item) { setAccess(item, access) })
}

// Replace stores rules and owners on a level in place of all that it said when it
// was read, and rolls them out. Empty rules take away what the level says. It fails
// with ErrStale, and changes nothing, where the level is stored otherwise by now.
// Quotas that were used fare as with SetLimits.
//
// Where Replace fails after it stored the rules, the level stays Pending until it is
// read and replaced again. The exception is a level that was emptied, and whose
// change reached all buckets that can be read: nothing is left of it.
func (s *Store) Replace(ctx context.Context, read Stored, rules Rules) error {
	if err := errors.Join(read.At.Check(), rules.check(read.At)); err != nil {
		return err
	}
	if read.item == nil && rules.Empty() {
		return nil
	}
	if err := s.unchanged(ctx, read); err != nil {
		return fmt.Errorf("store limits: %w", err)
	}
	return s.change(ctx, read.At, read.item, func(item table.Item) {
		setLimits(item, rules.Limits)
		setAccess(item, rules.Access)
		setCascade(item, rules.Cascade)
		setOwners(item, read.Owners)
	})
}

// SetOwners stores the owners of a level that was read, and leaves what it says: no
// bucket has to change. It fails with ErrStale, and changes nothing, where the level
// is stored otherwise by now. A level that is not stored has no owners.
func (s *Store) SetOwners(ctx context.Context, read Stored) error {
	if read.item == nil {
		return read.At.Check()
	}
	to := read.item.Clone()
	setOwners(to, read.Owners)
	err := s.unchanged(ctx, read)
	if err == nil {
		err = s.write(ctx, read.At, read.item, to)
	}
	if err != nil {
		return fmt.Errorf("store owners: %w", err)
	}
	return nil
}

// unchanged fails with ErrStale where a level is stored otherwise than it was read.
func (s *Store) unchanged(ctx context.Context, read Stored) error {
	items, err := s.table.Items(ctx, []table.ItemKey{read.At.key(s.namespace)})
	if err != nil {
		return err
	}
	if now := items[0]; (now != nil || read.item != nil) && !table.Equal(now, read.item) {
		return ErrStale
	}
	return nil
}

// update changes a level as it is now, and again where others change it meanwhile.
func (s *Store) update(ctx context.Context, level Level, change func(table.Item)) error {
	for range maxAttempts {
		items, err := s.table.Items(ctx, []table.ItemKey{level.key(s.namespace)})
		if err != nil {
			return fmt.Errorf("store limits: %w", err)
		}
		if err := s.change(ctx, level, items[0], change); !errors.Is(err, ErrStale) {
			return err
		}
	}
	return fmt.Errorf("store limits: %w", ErrContended)
}

// change changes the item of a level, nil for none, and rolls the change out. It
// fails with ErrStale, and changes nothing, where the item is another one by now. A
// change that is stored already is rolled out again.
func (s *Store) change(ctx context.Context, level Level, from table.Item, change func(table.Item)) error {
	to := level.newItem(s.namespace)
	if from != nil {
		to = from.Clone()
	}
	change(to)
	nothing := from == nil && !hasRules(to)
	if !nothing && !table.Equal(from, to) {
		to[attrPending] = nextVersion(from)
		if err := s.write(ctx, level, from, to); err != nil {
			return fmt.Errorf("store limits: %w", err)
		}
	}
	s.cache.Remove(level.key(s.namespace))
	undone := s.rollOut(ctx, level.scope(s.namespace))
	rules, invalid := rulesOn(to)
	emptied := rules.Empty() && invalid == nil
	if !nothing && (undone == nil || emptied && errors.Is(undone, ErrUnreadable)) {
		if err := s.finish(ctx, level, to); err != nil {
			return fmt.Errorf("stored and brought to all buckets, but not marked so: %w", err)
		}
	}
	if undone != nil {
		return fmt.Errorf("stored, but not brought to all buckets: %w", undone)
	}
	return nil
}

// nextVersion makes one of two writes of an item at once fail, whatever they change.
func nextVersion(item table.Item) table.Value {
	last, _ := item.Int(attrConfigVersion)
	return table.Int(last + 1)
}

// write makes the item of a level another, nil for none, and counts its version up.
// It fails with ErrStale where someone else wrote it meanwhile.
func (s *Store) write(ctx context.Context, level Level, from, to table.Item) error {
	to[attrConfigVersion] = nextVersion(from)
	put := s.put
	if from == nil {
		put = func(ctx context.Context, _, to table.Item) (bool, error) { return s.insertLevel(ctx, level, to) }
	}
	done, err := put(ctx, from, to)
	if err == nil && !done {
		err = ErrStale
	}
	return err
}

// put makes one item another, nil for none, if all that it changes of it is as it
// was read.
func (s *Store) put(ctx context.Context, from, to table.Item) (done bool, err error) {
	if from == nil {
		return s.table.Insert(ctx, to)
	}
	change := difference(from, to)
	if len(change.Set)+len(change.Remove) == 0 {
		return true, nil
	}
	// The version, which comes before the limits, alone tells of every change of ours.
	for !change.Fits() && len(change.Expect) > 1 {
		change.Expect = change.Expect[:len(change.Expect)-1]
	}
	pk, sk := to.Key()
	amended, err := s.table.Amend(ctx, pk, sk, change)
	return amended.Applied, err
}

// finish removes the mark from a level's item that all buckets have. It deletes an
// item that says nothing any more. It leaves one that someone has changed again.
func (s *Store) finish(ctx context.Context, level Level, stored table.Item) error {
	pending := table.NamedValue{Name: attrPending, Value: stored[attrPending]}
	if !hasRules(stored) {
		version := table.NamedValue{Name: attrConfigVersion, Value: stored[attrConfigVersion]}
		if done, err := s.deleteLevel(ctx, level, pending, version); done || err != nil {
			return err
		}
	}
	if pending.Value == nil {
		return nil
	}
	key := level.key(s.namespace)
	_, err := s.table.Amend(ctx, key.PK, key.SK, table.Amendment{Remove: []string{attrPending}, Expect: []table.NamedValue{pending}})
	return err
}
