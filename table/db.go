package table

import (
	"context"
	"errors"
	"fmt"
)

// ErrRequest says that DynamoDB takes no such request, whatever the table holds:
// its caller's mistake, or more limits than one write has room for. Nothing was
// sent.
var ErrRequest = errors.New("no request that the table can make")

// ErrConflict is an ErrThrottled: another transaction holds an item of this write or
// transaction, or another region's write does. Nothing was written.
// Nothing was written.
var ErrConflict = fmt.Errorf("%w: another transaction holds an item", ErrThrottled)

// DB is a service that holds items: DynamoDB, or a table in memory. It knows
// items, keys and conditions, and not what they mean.
//
// A condition that does not hold is an answer, never an error. Each answer
// carries the service's time, epoch ms, or 0 where the service did not say. An
// error wraps ErrRetry if the same request may succeed later, ErrThrottled if
// nothing was written besides, and ErrRequest if the service takes no such
// request; none holds an entity id.
type DB interface {
	// Do MUST carry out the write in one atomic step if everything that it requires
	// of the item holds. Otherwise it MUST change nothing and return the item as it
	// is.
	Do(ctx context.Context, write *Write) (WriteResult, error)

	// Transact MUST carry out all writes or none. Where a condition does not hold, it
	// MUST return the items of all writes that were refused. The error wraps
	// ErrConflict where another transaction was in the way.
	Transact(ctx context.Context, transaction *Transaction) (TransactResult, error)

	// Load MUST return items as every acknowledged write left them. It may leave some
	// keys unread.
	Load(ctx context.Context, lookup *Lookup) (LoadResult, error)

	// Query MUST return the keys of the items that an index holds under a partition
	// key and a prefix of the sort key, all of them. An index may lag behind.
	Query(ctx context.Context, query *Query) (QueryResult, error)
}

// ItemKey is the key of any item.
type ItemKey struct{ PK, SK string }

// WriteResult is the answer to a Write.
type WriteResult struct {
	Applied bool
	Item    Item // as the write left it, or as it is where it was not applied; nil where there is none
	Time    int64
}

// Bucket decodes the item, nil where there is none. The error wraps ErrItem or
// ErrKey.
func (r WriteResult) Bucket() (*Bucket, error) { return r.Item.bucket() }

// Transaction is several writes, of different items, that are carried out
// together or not at all.
type Transaction struct {
	Operation string
	Writes    []*Write

	// Repeatable says that an equal transaction within ten minutes is this one, sent
	// again. One that had landed then counts as done.
	Repeatable bool
}

// TransactResult is the answer to a Transaction. It was applied if nothing
// refused it.
type TransactResult struct {
	Refused map[int]Item // by place in the transaction; nil for an item that is not there
	Time    int64
}

// Lookup reads items by their keys, none twice: as a batch, or one alone.
type Lookup struct {
	Operation string
	Keys      []ItemKey
	Batch     bool // DynamoDB may leave a part of a batch unread
}

// LoadResult is the answer to a Lookup.
type LoadResult struct {
	Items  []Item    // in the order of the keys; nil where there is none
	Unread []ItemKey // keys that are to be asked for again
	Time   int64
}

// Query asks an index for the keys of items.
type Query struct {
	Operation string
	Index     string // its name, such as GSI2; its key attributes are called after it
	PK        string // partition key
	Prefix    string // of the sort key
}

// QueryResult is the answer to a Query.
type QueryResult struct {
	Keys []ItemKey
	Time int64
}

// Item is the key as an item's attributes.
func (k ItemKey) Item() Item { return Item{AttrPK: S(k.PK), AttrSK: S(k.SK)} }
