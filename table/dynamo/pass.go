package dynamo

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// Pass implements table.Store.
//
// The client may have retried a write whose answer was lost. The retry finds
// the bucket's time moved and is refused. It is reported as lost, since nothing
// on the item says whose pass moved it; planning from the item that comes with
// the refusal finds nothing left to do.
func (s *Store) Pass(ctx context.Context, bucket *table.Bucket, pass *quota.Pass) (table.PassResult, error) {
	stored, refused, err := s.update(ctx, "write pass", bucketKey(bucket.Key), passExpression(bucket, pass, nil), types.ReturnValueNone)
	if err != nil {
		return table.PassResult{}, err
	}
	if refused {
		return table.PassResult{Current: decodable(stored)}, nil
	}
	return table.PassResult{Applied: true}, nil
}

// decodable reads an item as a bucket, nil where there is none or it cannot be
// read.
func decodable(item table.Item) *table.Bucket {
	if item == nil {
		return nil
	}
	b, err := table.DecodeBucket(item)
	if err != nil {
		return nil
	}
	return b
}

// passExpression is the update that makes a pass and takes debits off the
// balances that it changes, by limit name.
func passExpression(bucket *table.Bucket, pass *quota.Pass, debits map[string]int64) *expression {
	e := newExpression()
	e.require(e.exists(table.AttrPK))
	e.require(e.reads(table.AttrRefilledAt, pass.ExpectRefilledAt))
	e.require(e.isOrAbsent(table.AttrValidUntil, pass.ExpectValidUntil))
	e.require(e.countAtMost(pass.ShardCount))
	e.setNumber(table.AttrRefilledAt, max(pass.RefilledAt, pass.ExpectRefilledAt))
	if pass.ValidUntil != nil {
		e.setNumber(table.AttrValidUntil, *pass.ValidUntil)
	}
	if pass.Unbound {
		e.remove(table.AttrValidUntil)
	}
	if pass.ValidUntil != nil || pass.Unbound {
		e.require(e.sameSchedule(bucket.Item[table.AttrSchedule]))
	}
	if table.ConfigChanged(bucket) {
		e.terms(bucket.PassConfigAttrs())
	}
	for _, change := range pass.Changes {
		e.change(change, change.Delta-debits[change.Limit], pass.ShardCount)
		if table.Holds(pass, change) {
			e.require(e.is(table.Attr(change.Limit, table.FieldBalance), change.Read))
			e.require(e.reads(table.Attr(change.Limit, table.FieldConsumed), bucket.Limit(change.Limit).Consumed))
		}
	}
	return e
}

// sameSchedule requires the item's default schedule to be as read, nil for none.
func (e *expression) sameSchedule(read types.AttributeValue) string {
	if read == nil {
		return e.absent(table.AttrSchedule)
	}
	return e.name(table.AttrSchedule) + " = " + e.value(read)
}

// change adds what a pass does to one limit, with what is added to its balance.
func (e *expression) change(change quota.Change, delta int64, count int) {
	balance := table.Attr(change.Limit, table.FieldBalance)
	if delta != 0 {
		e.addNumber(balance, delta)
	}
	if change.Restore {
		e.setNumber(table.Attr(change.Limit, table.FieldGrant), int64(count))
		e.remove(table.Attr(change.Limit, table.FieldTopUp))
	}
	if change.Open != nil {
		start := table.Attr(change.Limit, table.FieldStart)
		e.require(e.isOrAbsent(start, change.Open.Over))
		e.setNumber(start, change.Open.Start)
	}
	if change.Applied != nil {
		e.setNumber(table.Attr(change.Limit, table.FieldApplied), *change.Applied)
	}
	if change.Max != nil {
		e.require(e.atMost(balance, *change.Max))
	}
	if change.Roll != nil {
		e.require(e.is(table.Attr(change.Limit, table.FieldStart), *change.Roll))
	}
}
