package table

import (
	"maps"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// Item is an item of the table as DynamoDB holds it. Numbers are text and so
// exact at any size.
type Item map[string]types.AttributeValue

// Clone copies the item. Attribute values are shared: nothing here changes one
// in place.
func (item Item) Clone() Item { return maps.Clone(item) }

// Key returns the item's partition and sort key, empty where it has none.
func (item Item) Key() (pk, sk string) {
	return item.text(AttrPK), item.text(AttrSK)
}

func (item Item) text(name string) string {
	value, _ := item[name].(*types.AttributeValueMemberS)
	if value == nil {
		return ""
	}
	return value.Value
}

// S makes a string value.
func S(text string) types.AttributeValue { return &types.AttributeValueMemberS{Value: text} }

// N makes a number value from its decimal text.
func N(decimal string) types.AttributeValue { return &types.AttributeValueMemberN{Value: decimal} }
