package table

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/shardquota/shardquota/quota"
)

// Client is the table to a program that takes tokens: a Store, and the writes
// that only such programs make. What the Store's comment says of its methods
// holds for these too, but for one thing: Take, Use and Settle cannot be told
// from another program's, so that a lost answer of theirs is not recognised.
// They MUST NOT be tried again by themselves once they may have landed, and the
// error that wraps ErrRetry then means that they landed or not.
type Client interface {
	Store

	// Charge MUST charge a bucket in one atomic write, without reading anything
	// first, if and only if the bucket exists, is neither disabled nor bypassed at
	// Now, has an expiry after Now or none, a valid-until after Now or none, a write
	// left on its write meter or the take is Hot, and of every limit that is
	// enforced at Now (it is not soft then) at least the amount; one that is soft
	// may go into debt as far as that can be read again. Amounts come off
	// the balances and onto the totals consumed; the write meter is charged one
	// write. A Free take MUST charge the totals and the write meter alone, if and
	// only if the bucket exists, is bypassed at Now and not disabled, has not
	// expired, and has the limits. Otherwise it MUST change nothing and return the
	// item as it is. Of a limit that the bucket lacks it MUST NOT make any part. The
	// error wraps ErrRequest where the take is not Sound.
	Charge(ctx context.Context, key Key, take FastCharge) (WriteResult, error)

	// Use MUST write a pass as Store.Pass does, and in the same update the
	// takes, if and only if also every balance is at least the take's Least, and
	// every window that the use opens over is as it was read. An opened window's
	// start MUST be stored as applied. expires is stored where the bucket has an
	// expiry, which it must then still have; 0 leaves it.
	Use(ctx context.Context, bucket *Bucket, use *quota.Use, expires int64) (WriteResult, error)

	// UseAll MUST write several uses, of different buckets, each as Use does, in
	// one transaction: all of them or none. That others write to the buckets at
	// the same time is none. A transaction that had landed is recognised when its
	// answer was lost and it is sent again by the table's own client.
	UseAll(ctx context.Context, uses []PlannedUse) (applied bool, err error)

	// Reconcile MUST make all corrections in one atomic update if and only if the
	// bucket exists and, where one of them lifts a balance, the time of the last
	// pass, the shard count, the valid-until and, where the bucket is Retermed,
	// the terms are as read, and no balance is above its correction's Max.
	Reconcile(ctx context.Context, bucket *Bucket, corrections []quota.Adjustment) (WriteResult, error)

	// PropagateWindow MUST store the start of a session window and its length on a shard,
	// set the valid-until to 0 and remember the total consumed, if and only if the
	// shard exists, its own window had ended by the start or it has none, and the
	// balance can be told to be older: the bucket says which window it reflects,
	// or was last passed before the start. It moves no tokens.
	PropagateWindow(ctx context.Context, key Key, window OpenedWindow) (told bool, err error)

	// Insert MUST put an item if and only if there is none at its key. A retry of
	// an insert that had landed is reported as inserted as long as the item is
	// as it was put.
	Insert(ctx context.Context, item Item) (inserted bool, err error)

	// Amend MUST change an item that exists, if and only if what the amendment
	// expects of it is so, and return the item as it is after that.
	Amend(ctx context.Context, pk, sk string, amendment Amendment) (WriteResult, error)

	// Remove MUST remove an item if and only if it is there, and what is expected of
	// it is so, as with Amend. One whose answer was lost is not recognised: when it is
	// sent again there is nothing to remove.
	Remove(ctx context.Context, pk, sk string, expect ...NamedValue) (removed bool, err error)

	// Items returns the items at keys, in their order, nil where there is none. A
	// key may be there twice, and there may be any number. They MUST reflect every
	// write that was acknowledged before the call.
	Items(ctx context.Context, keys []ItemKey) ([]Item, error)

	// Find returns the keys of buckets from an index, which may lag behind, in any
	// order.
	Find(ctx context.Context, scope Scope) ([]Key, error)

	// FindLevels returns the keys of the items on which entities of a namespace have
	// rules of their own for a resource, from an index, which may lag behind, in any
	// order.
	FindLevels(ctx context.Context, namespace, resource string) ([]ItemKey, error)
}

// FastCharge is what a use takes of a bucket without looking at it.
type FastCharge struct {
	Amounts map[string]int64 // millitokens by limit name, none negative
	Now     int64            // epoch ms
	Hot     bool             // the write meter may go into debt: someone else has just looked after the heat
	Free    bool             // of a bucket that is bypassed: the amounts are metered, and nothing is enforced
}

// Sound reports what no take can ask for: an amount below 0 or beyond
// quota.MaxAmount, and the write meter, which every take is charged by itself.
func (t FastCharge) Sound() error {
	for limit, amount := range t.Amounts {
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

// PlannedUse is a use that was planned from a bucket, and what Client.Use stores as
// its expiry, epoch seconds.
type PlannedUse struct {
	Bucket  *Bucket
	Use     *quota.Use
	Expires int64
}

// After is the bucket's item as the use leaves it where nobody else writes.
func (u PlannedUse) After() Item {
	b := &Bucket{Key: u.Bucket.Key, Item: u.Bucket.Item.Clone(), Bucket: u.Bucket.Bucket}
	b.Limits = slices.Clone(b.Limits)
	u.Use.Apply(&b.Bucket)
	for _, take := range u.Use.Charges {
		l := b.Limit(take.Limit)
		l.Balance, l.Consumed = l.Balance-take.Debit, l.Consumed+take.Consumed
	}
	b.Fill()
	if u.Expires != 0 && b.Item[AttrTTL] != nil {
		b.Item[AttrTTL] = N(strconv.FormatInt(u.Expires, 10))
	}
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

// Scope says whose buckets are looked for: those of a namespace, of an entity
// or of a resource in it, or of one entity on one resource.
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

// Lifts reports whether some balance is lifted by the corrections.
func Lifts(corrections []quota.Adjustment) bool {
	return slices.ContainsFunc(corrections, func(c quota.Adjustment) bool { return c.Limit != quota.WriteMeter && c.Balance > 0 })
}

// Equal reports whether two items say the same. None says nothing.
func Equal(a, b Item) bool { return a != nil && b != nil && maps.EqualFunc(a, b, SameValue) }
