package table

import (
	"context"
	"errors"
	"fmt"

	"github.com/shardquota/shardquota/quota"
)

// ErrRetry is wrapped by every error that may pass if the same call is made again:
// throttling, timeouts, a service that is down. Any other error of a Store is
// something broken: permissions, a missing table, a malformed request.
var ErrRetry = errors.New("may pass if retried")

// ErrThrottled is an ErrRetry: the service refused the request for now. More came
// than the table, or one partition of it, takes, or another transaction held an
// item. Nothing was written.
var ErrThrottled = fmt.Errorf("%w: throttled", ErrRetry)

// Store is the table to the aggregator. Each conditional write has one method.
// A condition that does not hold is a result, never an error. A method that
// returns an error has changed nothing, unless the connection was lost after the
// write had landed. Each method says how the next call recognises that.
//
// No error of a Store holds an entity id.
type Store interface {
	// Read returns a bucket, or nil where there is none. It MUST reflect every write
	// that was acknowledged before the call.
	Read(ctx context.Context, key Key) (*Bucket, error)

	// AddUsage MUST add the counters and the events, and set what each source has
	// counted to its Next, in one atomic write. It requires that every source has
	// counted exactly what was Found.
	//
	// A source of which nothing was Found, and which Follows a bound, may have counted
	// something all the same: if the last range is stored with its ranges, ends before
	// the bound (positions compare as strings) and meets it. AddUsage MUST then lengthen
	// the last range.
	//
	// Otherwise it MUST change nothing and return what is counted; the error wraps
	// ErrItem where that cannot be read. It sets an expiry only where there is none. The
	// next call recognises a write that had landed by what is counted.
	AddUsage(ctx context.Context, usage Usage) (UsageResult, error)

	// Pass MUST write the pass in one atomic update, balances as additions. It requires
	// that the bucket exists, and
	//
	//   - that the time of its last pass and its valid-until are as the pass expects,
	//   - that its shard count is at most the pass's,
	//   - that every balance is at most its change's Max,
	//   - that every window which is rolled or opened over starts as it was read,
	//   - where the pass sets or removes a valid-until: that the item's default schedule
	//     is as read,
	//   - of a bucket with ConfigChanged: that its configuration is as read,
	//   - of every limit that the pass Holds: that balance and consumption are as read.
	//
	// Otherwise it MUST change nothing and return the item as it is. A restore stamps
	// the grant count and removes the period's top-up. Writing the same pass twice
	// applies it once: a write that had landed is reported as lost, and the item that is
	// returned shows that nothing is left to do.
	Pass(ctx context.Context, bucket *Bucket, pass *quota.Pass) (PassResult, error)

	// Double MUST set shard 0's count to twice from, if it is from. A write that had
	// landed is reported as not applied, with the count that it left. The error wraps
	// ErrItem where the stored count cannot be read.
	Double(ctx context.Context, group Group, from int) (DoubleResult, error)

	// Outlive MUST make the extensions of shards of a group, one after the other. A
	// bucket that has no expiry gets none, and none expires earlier than before.
	Outlive(ctx context.Context, group Group, extensions []quota.Extension) error

	// Freeze MUST store each grant count on a bucket that exists, unless the limit has
	// one stored. It serves shard 0, whose count no raise moves, before its legacy
	// quotas are read at a higher count.
	Freeze(ctx context.Context, key Key, freezes []quota.Freeze) error

	// RaiseAndRead returns shards 0..count-1 of a group, by index, nil where there is
	// none. It MUST read them consistently and raise every shard but 0 whose count is
	// below count. For a raised shard it MUST return the image that the raise left. Where
	// another writer raised the shard first, it MUST return the image that the refused
	// raise found. So no image of shards 1..count-1 was taken while the shard's count
	// was below count. The same update freezes the grant count of every legacy quota on
	// the shard as it was inferred at now. RaiseAndRead never creates a shard and never
	// lowers a count.
	RaiseAndRead(ctx context.Context, group Group, count int, now int64) ([]Sibling, error)

	// Create MUST put the new shard, debit its donors and check the pin in one
	// transaction. It requires that the shard does not exist, that shard 0's count is
	// the creation's and its configuration as given, and that every donor still holds
	// what is moved and is as its guard says. A retry of a creation that had landed is
	// recognised and reported as Created.
	Create(ctx context.Context, creation Creation) (CreationOutcome, error)
}

// UsageResult is the outcome of an AddUsage.
type UsageResult struct {
	Applied bool
	Seen    map[int]SeenRecords // what is counted by shard, where the usage was not applied
}

// Holds reports whether a pass must find a limit's balance and consumption exactly
// as read. It must for a limit that it restores, if it is Exact. It must for every
// limit that it changes, if it leaves the bucket's time as it is: the time alone
// could not keep it from being written twice.
func Holds(pass *quota.Pass, change quota.Change) bool {
	return pass.Exact && change.Restore || pass.RefilledAt <= pass.ExpectRefilledAt
}

// PassResult is the outcome of a Pass.
type PassResult struct {
	Applied bool
	Current *Bucket // the item as it is where the pass was lost; nil where it is gone or cannot be read
}

// DoubleResult is the outcome of a Double.
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

// Buckets returns the siblings that exist and can be read.
func Buckets(siblings []Sibling) []*quota.Bucket {
	var buckets []*quota.Bucket
	for _, sibling := range siblings {
		if sibling.Bucket != nil {
			buckets = append(buckets, &sibling.Bucket.Bucket)
		}
	}
	return buckets
}

// ReadableShards returns the buckets of a group by ascending shard, as get returns
// their items. It leaves out what cannot be decoded.
func ReadableShards(group Group, get func(pk, sk string) Item) []*Bucket {
	var shards []*Bucket
	for shard := range quota.MaxShards {
		key := group.At(shard).State()
		if b, err := DecodeBucket(get(key.PK, key.SK)); err == nil {
			shards = append(shards, b)
		}
	}
	return shards
}

// CreationOutcome is the outcome of a Create.
type CreationOutcome int

// The outcomes of a Create.
const (
	Created      CreationOutcome = iota + 1
	Exists                       // the shard exists already
	PinMoved                     // shard 0's count is no longer the one the shard was sized at
	DonorChanged                 // a donor holds less than the move, or its grant, its period or shard 0's configuration changed
)
