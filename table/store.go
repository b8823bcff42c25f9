package table

import (
	"context"
	"errors"
	"fmt"

	"github.com/shardquota/shardquota/quota"
)

// ErrRetry is wrapped by every error that may pass if the same call is made
// again: throttling, timeouts, a service that is down. Any other error of a
// Store is something broken: permissions, a missing table, a malformed request.
var ErrRetry = errors.New("may pass if retried")

// ErrThrottled is an ErrRetry: the service refused the request for now, because
// more came than the table, or one partition of it, takes, or because another
// transaction held an item.
var ErrThrottled = fmt.Errorf("%w: throttled", ErrRetry)

// Store is the table. It has one method for each conditional write. A
// condition that does not hold is a result, never an error. No method changes
// anything when it returns an error, except where the connection was lost
// after the write had landed; each says how the next call recognises that.
//
// No error of a Store holds an entity id.
type Store interface {
	// Read returns a bucket, or nil where there is none. It MUST reflect
	// every write that was acknowledged before the call.
	Read(ctx context.Context, key Key) (*Bucket, error)

	// AddUsage MUST add the counters and the events, and set what each source has
	// counted to its Next, in one atomic write, if and only if every source has
	// counted exactly what was Found. Where that is nothing and the source
	// Follows an edge, it MUST also write if what it has counted is stored with
	// its runs, ends before the edge (marks as strings) and meets it, and then
	// lengthen the last run instead. Otherwise it MUST change nothing and return
	// what is counted; the error wraps ErrItem where that cannot be read. It sets
	// an expiry only where there is none. A write that had landed is recognised
	// by what is counted on the next call.
	AddUsage(ctx context.Context, usage Usage) (UsageResult, error)

	// Pass MUST write the pass in one atomic update, balances as additions, if
	// and only if the bucket exists with the time of its last pass and its
	// valid-until as the pass expects, a shard count of at most the pass's, every
	// balance at or below its change's Max, every window that is rolled or opened
	// over still at the start that was read, where the pass sets or removes a
	// valid-until the item's default schedule as expected, and where the bucket is
	// Retermed all its terms as read. A restore stamps the grant count and removes
	// the period's top-up. Otherwise it MUST change nothing and return the item as
	// it is. Writing the same pass twice applies it once. Of every limit that it
	// Holds it MUST also find the balance and the consumption exactly as read. A
	// write that had landed is reported as lost, and the item returned shows that
	// nothing is left to do.
	Pass(ctx context.Context, bucket *Bucket, pass *quota.Pass) (PassResult, error)

	// Double MUST set shard 0's count to twice from, if and only if it is from.
	// A write that had landed is reported as not applied, with the count that
	// it left. The error wraps ErrItem where the stored count cannot be read.
	Double(ctx context.Context, group Group, from int) (DoubleResult, error)

	// Freeze MUST store each grant count on a bucket that exists, if and only if
	// the limit has none stored. It serves shard 0, whose count no raise of ours
	// moves, before its legacy quotas are read at a higher count.
	Freeze(ctx context.Context, key Key, freezes []quota.Freeze) error

	// RaiseAndRead returns shards 0..count-1 of a group, by index, nil where
	// there is none. It MUST read them consistently, raise every shard but 0
	// whose count is below count, and return for a raised one the image that
	// the raise left, or, where another writer raised it first, the image that
	// the refused raise found: no image returned for shards 1..count-1 was
	// taken while the shard's count was below count. The same update freezes
	// the grant count of every legacy quota on the shard as it was inferred at
	// now. It never creates a shard and never lowers a count.
	RaiseAndRead(ctx context.Context, group Group, count int, now int64) ([]Sibling, error)

	// Create MUST put the new shard, debit its donors and check the pin in one
	// transaction, if and only if the shard does not exist, shard 0's count is
	// still the creation's and its terms as given, and every donor still holds
	// what is moved and is as its guard says. A retry of a creation that had
	// landed is recognised and reported as Created.
	Create(ctx context.Context, creation Creation) (CreationOutcome, error)
}

// UsageResult is what became of an AddUsage.
type UsageResult struct {
	Applied bool
	Seen    map[int]SeenRecords // what is counted by shard, where it was not applied
}

// Holds reports whether a pass is to find a limit's balance and consumption
// exactly as read: for what it restores, where it asks for that, and for all
// that it changes, where it leaves the bucket's time as it is, so that the time
// alone cannot keep it from being written twice.
func Holds(pass *quota.Pass, change quota.Change) bool {
	return pass.Exact && change.Restore || pass.RefilledAt <= pass.ExpectRefilledAt
}

// PassResult is what became of a Pass.
type PassResult struct {
	Applied bool
	Current *Bucket // the item as it is where the pass was lost; nil where it is gone or cannot be read
}

// DoubleResult is what became of a Double.
type DoubleResult struct {
	Applied bool
	Count   int // the shard count as stored now, 0 where shard 0 is gone
}

// Sibling is one shard as RaiseAndRead found or left it.
type Sibling struct {
	Bucket *Bucket // nil where the shard does not exist or its item cannot be read
	Raised bool    // this call raised it
	Broken error   // why the item cannot be read; wraps ErrItem or ErrKey
}

// Buckets are the siblings that are there and could be read.
func Buckets(siblings []Sibling) []*quota.Bucket {
	var buckets []*quota.Bucket
	for _, sibling := range siblings {
		if sibling.Bucket != nil {
			buckets = append(buckets, &sibling.Bucket.Bucket)
		}
	}
	return buckets
}

// CreationOutcome is what became of a Create.
type CreationOutcome int

// The outcomes of a Create.
const (
	Created      CreationOutcome = iota + 1
	Exists                       // the shard is there already
	PinMoved                     // shard 0's count is no longer the one the shard was sized at
	DonorChanged                 // a donor holds less than the move, or its grant or period changed
)
