package dynamo

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// Create implements table.Store: one transaction that puts the shard, debits
// each donor with one update, and holds the pin, which rides on shard 0's
// update where shard 0 is a donor and is a check of its own elsewhere.
//
// A retry of a transaction that had landed is recognised twice over: for ten
// minutes by its token, which is made of its contents, and later by the item
// that refuses it (see table.Creation.Landed).
func (s *Store) Create(ctx context.Context, creation table.Creation) (table.CreationOutcome, error) {
	operation := fmt.Sprintf("create shard %d", creation.Bucket.Shard)
	items := s.transaction(creation)
	token, err := tokenOf(items)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", operation, err)
	}
	output, err := s.client.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{
		TransactItems:          items,
		ClientRequestToken:     &token,
		ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal,
	}, intact)
	var cancelled *types.TransactionCanceledException
	if errors.As(err, &cancelled) {
		s.meter.refused("TransactWriteItems")
		if outcome := cancellation(creation, cancelled.CancellationReasons); outcome != 0 {
			return outcome, nil
		}
	}
	if err != nil {
		return 0, failure(operation, err, secrets{}.of(creation.Complete()))
	}
	for i := range output.ConsumedCapacity {
		s.meter.write("TransactWriteItems", &output.ConsumedCapacity[i])
	}
	return table.Created, nil
}

// transaction is the put, the donors' updates by ascending shard, and, unless
// shard 0 is among them, the pin.
func (s *Store) transaction(creation table.Creation) []types.TransactWriteItem {
	group, donors := creation.Bucket.Key.Group, creation.Donors()
	items := []types.TransactWriteItem{{Put: s.put(creation)}}
	pinned := false
	for _, donor := range donors {
		e := newExpression()
		e.require(e.exists(table.AttrPK))
		if donor.Shard == 0 {
			pinned = true
			e.pin(creation)
		}
		for _, move := range donor.Moves {
			e.debit(move)
		}
		items = append(items, types.TransactWriteItem{Update: s.debit(group.At(donor.Shard), e)})
	}
	if !pinned {
		items = append(items, types.TransactWriteItem{ConditionCheck: s.check(group.At(0), creation)})
	}
	return items
}

func (s *Store) put(creation table.Creation) *types.Put {
	e := newExpression()
	e.require(e.absent(table.AttrPK))
	return &types.Put{
		TableName:                           &s.table,
		Item:                                creation.Complete(),
		ConditionExpression:                 e.condition(),
		ExpressionAttributeNames:            e.names,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
}

func (s *Store) debit(donor table.Key, e *expression) *types.Update {
	return &types.Update{
		TableName:                           &s.table,
		Key:                                 bucketKey(donor),
		UpdateExpression:                    e.update(),
		ConditionExpression:                 e.condition(),
		ExpressionAttributeNames:            e.names,
		ExpressionAttributeValues:           e.values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
}

func (s *Store) check(first table.Key, creation table.Creation) *types.ConditionCheck {
	e := newExpression()
	e.require(e.exists(table.AttrPK))
	e.pin(creation)
	return &types.ConditionCheck{
		TableName:                           &s.table,
		Key:                                 bucketKey(first),
		ConditionExpression:                 e.condition(),
		ExpressionAttributeNames:            e.names,
		ExpressionAttributeValues:           e.values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
}

// pin holds shard 0's count and terms.
func (e *expression) pin(creation table.Creation) {
	e.require(e.countIs(creation.Bucket.ShardCount))
	e.terms(creation.ConfigAttrs)
}

// terms requires attributes to be as read.
func (e *expression) terms(terms []table.NamedValue) {
	for _, term := range terms {
		if term.Value == nil {
			e.require(e.absent(term.Name))
			continue
		}
		e.require(e.name(term.Name) + " = " + e.value(term.Value))
	}
}

// debit takes a move off its donor, guarded.
func (e *expression) debit(move quota.Funding) {
	guard, balance := move.Guard, table.Attr(move.Limit, table.FieldBalance)
	e.addNumber(balance, -move.Amount)
	e.require(e.atLeast(balance, move.Amount))
	e.require(e.sameGrant(move))
	switch {
	case guard.SessionOnly:
		e.require(e.isOrAbsent(table.Attr(move.Limit, table.FieldApplied), guard.Applied))
	case guard.RefilledAt != 0:
		e.require(e.atLeast(table.AttrRefilledAt, guard.RefilledAt))
	}
}

// sameGrant requires the grant count as read. A legacy grant is inferred from
// the shard count, and a stored one below 1 reads as the shard count: then the
// shard count is required too.
func (e *expression) sameGrant(move quota.Funding) string {
	guard, grant := move.Guard, table.Attr(move.Limit, table.FieldGrant)
	if guard.Legacy {
		return both(e.absent(grant), e.countIs(guard.ShardCount))
	}
	stored := e.is(grant, int64(guard.Grant))
	if guard.Grant != guard.ShardCount {
		return stored
	}
	return either(stored, both(e.atMost(grant, 0), e.countIs(guard.ShardCount)))
}

// conditionCode is how a cancellation says that an item's condition failed.
const conditionCode = "ConditionalCheckFailed"

// cancellation reads the reasons of a cancelled transaction, which stand in the
// order of its items. It returns 0 where no condition failed. Where several
// did, that the shard exists says most, then that the pin moved.
func cancellation(creation table.Creation, reasons []types.CancellationReason) table.CreationOutcome {
	outcome := table.CreationOutcome(0)
	donors := creation.Donors()
	for i, reason := range reasons {
		if deref(reason.Code) != conditionCode {
			continue
		}
		switch {
		case i == 0 && creation.Landed(reason.Item):
			return table.Created
		case i == 0:
			return table.Exists
		case (i > len(donors) || donors[i-1].Shard == 0) && unpinned(creation, reason.Item):
			return table.PinMoved
		default:
			outcome = table.DonorChanged
		}
	}
	return outcome
}

// unpinned tells a moved count from whatever else about shard 0 was refused.
func unpinned(creation table.Creation, first table.Item) bool {
	count, err := first.ShardCount()
	return first == nil || err != nil || count != creation.Bucket.ShardCount
}

func deref(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}
