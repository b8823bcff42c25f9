package table

import (
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/quota"
)

// Creation is a new shard and what funds it.
type Creation struct {
	Bucket      *Bucket         // the new shard, its Item complete
	Moves       []quota.Funding // the fundings that are moves of more than nothing
	ConfigAttrs []NamedValue    // what shard 0 must still say of its limits; nil asks nothing
}

// Donor is one shard and everything that is moved off it.
type Donor struct {
	Shard int
	Moves []quota.Funding // sorted by limit
}

// Donors groups the moves by the shard that gives, by ascending shard.
func (c Creation) Donors() []Donor {
	byShard := map[int][]quota.Funding{}
	for _, move := range c.Moves {
		byShard[move.Donor] = append(byShard[move.Donor], move)
	}
	var donors []Donor
	for _, shard := range slices.Sorted(maps.Keys(byShard)) {
		moves := byShard[shard]
		slices.SortFunc(moves, func(a, b quota.Funding) int { return strings.Compare(a.Limit, b.Limit) })
		donors = append(donors, Donor{shard, moves})
	}
	return donors
}

// Complete is the new shard's item under the key that its bucket has.
func (c Creation) Complete() Item {
	item := c.Bucket.Item.Clone()
	item[AttrPK], item[AttrSK] = S(c.Bucket.Key.PK()), S(StateSK)
	return item
}

// Landed reports whether a stored item is what this creation put, at most spent
// from since. Every attribute but balances and consumption must be equal, the time
// of the last pass among them. The sum of what a limit holds and has consumed must
// be what was put.
//
// Either this creation landed and its answer was lost, or another writer made an
// equal one in the same millisecond. In both cases the shard exists with the
// balances of this creation, and the donors were debited once. Landed does not
// recognise an item that was passed, raised or topped up since.
func (c Creation) Landed(stored Item) bool {
	if !maps.EqualFunc(unspent(c.Complete()), unspent(stored), SameValue) {
		return false
	}
	b, err := DecodeBucket(stored)
	if err != nil {
		return false
	}
	for i := range c.Bucket.Limits {
		put := &c.Bucket.Limits[i]
		now := b.Limit(put.Name)
		if now == nil || now.Balance+now.Consumed != put.Balance+put.Consumed {
			return false
		}
	}
	return true
}

// unspent is an item without what spending changes.
func unspent(item Item) Item {
	kept := item.Clone()
	maps.DeleteFunc(kept, func(name string, _ types.AttributeValue) bool {
		_, field, ok := SplitAttr(name)
		return ok && (field == FieldBalance || field == FieldConsumed)
	})
	return kept
}

// writesPerSecond is the capacity of a bucket's write meter.
const writesPerSecond = 1000

// EmptyBucket returns a bucket's item without limits but the write meter.
func EmptyBucket(key Key, count int, now int64) Item {
	at := func(field Field) string { return Attr(quota.WriteMeter, field) }
	full := Int(1000 * writesPerSecond)
	item := Item{
		AttrEntityID: S(key.Entity), AttrResource: S(key.Resource),
		AttrCascade:    Bool(false),
		AttrShardCount: Int(int64(count)), AttrRefilledAt: Int(now),
		at(FieldBalance): full, at(FieldConsumed): Int(0),
		at(FieldCapacity): full, at(FieldRefill): full, at(FieldPeriod): Int(1000),
	}
	for name, value := range key.Keys() {
		item[name] = S(value)
	}
	return item
}
