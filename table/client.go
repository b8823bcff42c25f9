package table

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/shardquota/shardquota/quota"
)

// Client is the table to a program that takes tokens: a Store, and the writes that
// only such programs make. What the Store's comment says of its methods holds here
// too, with one exception. Charge, Use and Reconcile cannot be told from another
// program's, so that nobody can recognise one whose answer was lost. They MUST NOT
// be sent again once they may have landed. An error that wraps ErrRetry, and not
// ErrThrottled, then means that the write landed or did not.
type Client interface {
	Store

	// Charge MUST charge a bucket in one atomic write, without a read before. It
	// requires that the bucket
	//
	//   - exists, is not disabled, and has not expired at Now,
	//   - is not bypassed at Now, and has a valid-until after Now or none,
	//   - has a write left on its write meter, unless the charge is Hot,
	//   - has every limit that is asked for, and at least the amount of each. A limit
	//     that is soft at Now may go into debt, as far as its balance can still be read.
	//
	// It takes the amounts off the balances and adds them to the totals consumed. It
	// charges the write meter one write. A Free charge requires a bucket that is
	// bypassed at Now, and leaves the balances. Where a requirement does not hold,
	// Charge MUST change nothing and return the item as it is. It MUST NOT make any
	// part of a limit that the bucket lacks. The error wraps ErrRequest where the
	// charge is not Sound.
	Charge(ctx context.Context, key Key, charge FastCharge) (WriteResult, error)

	// Use MUST write a pass as Store.Pass does, and the use's charges in the same
	// update. It also requires every balance to be at least the charge's Least, and
	// every window that the use opens over to be as it was read. It MUST store the
	// start of an opened window as applied.
	Use(ctx context.Context, bucket *Bucket, use *quota.Use) (WriteResult, error)

	// UseAll MUST write several uses of different buckets in one transaction, each as
	// Use does: all of them or none. A conflict with another transaction is none. The
	// service recognises a transaction that had landed when the table's own client
	// sends it again.
	UseAll(ctx context.Context, uses []PlannedUse) (applied bool, err error)

	// Reconcile MUST make all adjustments in one atomic update of a bucket that
	// exists. No balance may be above its adjustment's Max. Where an adjustment lifts a
	// balance, the time of the last pass, the shard count, the valid-until and, of a
	// bucket with ConfigChanged, the configuration must be as read.
	Reconcile(ctx context.Context, bucket *Bucket, adjustments []quota.Adjustment) (WriteResult, error)

	// PropagateWindow MUST store the start and the length of a session window on a
	// shard, set the valid-until to 0 and remember the total consumed. It requires that
	// the shard exists, that its own window had ended by the start or is none, and that
	// the balance is older: the bucket says which window it reflects, or was last
	// passed before the start. It moves no tokens.
	PropagateWindow(ctx context.Context, key Key, window OpenedWindow) (propagated bool, err error)

	// Insert MUST put an item if there is none at its key. A retry of an insert that
	// had landed counts as inserted as long as the item is as it was put.
	Insert(ctx context.Context, item Item) (inserted bool, err error)

	// Amend MUST change an item that exists, if what the amendment expects of it is so,
	// and return the item as it is after that.
	Amend(ctx context.Context, pk, sk string, amendment Amendment) (WriteResult, error)

	// Remove MUST remove an item that exists, if what is expected of it is so. Nobody
	// recognises a removal whose answer was lost: the next one finds nothing to remove.
	Remove(ctx context.Context, pk, sk string, expect ...NamedValue) (removed bool, err error)

	// Items returns the items at keys, in their order, nil where there is none. It
	// takes any number of keys, also the same one twice. The items MUST reflect every
	// write that was acknowledged before the call.
	Items(ctx context.Context, keys []ItemKey) ([]Item, error)

	// Find returns the keys of buckets from an index, which may lag behind, in any
	// order.
	Find(ctx context.Context, scope Scope) ([]Key, error)

	// FindLevels returns the keys of the items on which entities of a namespace have
	// limits of their own for a resource, from an index, which may lag behind, in any
	// order.
	FindLevels(ctx context.Context, namespace, resource string) ([]ItemKey, error)
}

// FastCharge is what a use takes off a bucket that it has not looked at.
type FastCharge struct {
	Amounts map[string]int64 // millitokens by limit name, none negative
	Now     int64            // epoch ms
	Hot     bool             // the write meter may go into debt: another program has just looked after the heat
	Free    bool             // of a bucket that is bypassed: the amounts are metered, and nothing is enforced
}

// Sound returns an error for an amount below 0 or beyond quota.MaxAmount, and for
// the write meter, which every charge includes. The error wraps ErrRequest.
func (c FastCharge) Sound() error {
	for limit, amount := range c.Amounts {
		if limit == quota.WriteMeter || amount < 0 || amount > quota.MaxAmount {
			return fmt.Errorf("%w: the amount of limit %s", ErrRequest, shortened(limit))
		}
	}
	return nil
}

// limits are the names of the limits that are charged, sorted.
func (c FastCharge) limits() []string {
	names := make([]string, 0, len(c.Amounts))
	for name := range c.Amounts {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// PlannedUse is a use that was planned from a bucket.
type PlannedUse struct {
	Bucket *Bucket
	Use    *quota.Use
}

// After is the bucket's item as the use leaves it where nobody else writes.
func (u PlannedUse) After() Item {
	b := &Bucket{Key: u.Bucket.Key, Item: u.Bucket.Item.Clone(), Bucket: u.Bucket.Bucket}
	b.Limits = slices.Clone(b.Limits)
	u.Use.Apply(&b.Bucket)
	for _, charge := range u.Use.Charges {
		l := b.Limit(charge.Limit)
		l.Balance, l.Consumed = l.Balance-charge.Debit, l.Consumed+charge.Consumed
	}
	b.Fill()
	return b.Item
}

// OpenedWindow is a session window that was opened on one shard.
type OpenedWindow struct {
	Limit  string
	Start  int64 // epoch ms
	Length int64 // milliseconds
}

// Amendment is a change of an item that its writer knows in full.
type Amendment struct {
	Set    Item
	Remove []string
	Expect []NamedValue // what the item must say; a nil value stands for an absent attribute
}

// Scope selects buckets: those of a namespace, of an entity or of a resource in it,
// or of one entity on one resource.
type Scope struct {
	Namespace, Entity, Resource string
}

// Holds reports whether a bucket is within the scope.
func (s Scope) Holds(key Key) bool {
	return key.Namespace == s.Namespace &&
		(s.Entity == "" || key.Entity == s.Entity) && (s.Resource == "" || key.Resource == s.Resource)
}

func (s Scope) query() *Query {
	q := &Query{Operation: "find buckets", Index: "GSI4", PK: s.Namespace, Prefix: bucketPrefix}
	switch {
	case s.Entity != "":
		q.Index, q.PK = "GSI3", s.Namespace+"/ENTITY#"+s.Entity
		if s.Resource != "" {
			q.Prefix += s.Resource + "#"
		}
	case s.Resource != "":
		q.Index, q.PK = "GSI2", s.Namespace+"/RESOURCE#"+s.Resource
	}
	return q
}

// Lifts reports whether some adjustment lifts a balance.
func Lifts(adjustments []quota.Adjustment) bool {
	return slices.ContainsFunc(adjustments, func(a quota.Adjustment) bool { return a.Limit != quota.WriteMeter && a.Balance > 0 })
}

// Equal reports whether two items say the same. None says nothing.
func Equal(a, b Item) bool { return a != nil && b != nil && maps.EqualFunc(a, b, SameValue) }
