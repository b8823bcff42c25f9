package table

import (
	"maps"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// Value is the value of one attribute.
type Value = types.AttributeValue

// Item is an item of the table as DynamoDB holds it. Numbers are text and so
// exact at any size.
type Item map[string]Value

// Clone copies the item. Attribute values are shared: nothing here changes one
// in place.
func (item Item) Clone() Item { return maps.Clone(item) }

// Key returns the item's partition and sort key, empty where it has none.
func (item Item) Key() (pk, sk string) {
	return item.Text(AttrPK), item.Text(AttrSK)
}

// bucket decodes an item as a bucket, nil where there is none.
func (item Item) bucket() (*Bucket, error) {
	if item == nil {
		return nil, nil
	}
	return DecodeBucket(item)
}

// Text returns a string attribute, "" where there is none.
func (item Item) Text(name string) string {
	value, _ := item[name].(*types.AttributeValueMemberS)
	if value == nil {
		return ""
	}
	return value.Value
}

// Flag reports whether a boolean attribute is there and true.
func (item Item) Flag(name string) bool {
	value, _ := item.Bool(name)
	return value
}

// Bool returns a boolean attribute; ok is false where there is none.
func (item Item) Bool(name string) (flag, ok bool) {
	value, ok := item[name].(*types.AttributeValueMemberBOOL)
	return ok && value.Value, ok
}

// Strings returns the strings of a set, nil where there is none. They are the
// item's own.
func (item Item) Strings(name string) []string {
	value, _ := item[name].(*types.AttributeValueMemberSS)
	if value == nil {
		return nil
	}
	return value.Value
}

// Set sets attributes, and removes those whose value is nil.
func (item Item) Set(values Item) {
	for name, value := range values {
		if item[name] = value; value == nil {
			delete(item, name)
		}
	}
}

// Int returns a number attribute. ok is false where the attribute is absent or is not
// a whole number of 64 bits.
func (item Item) Int(name string) (n int64, ok bool) {
	value, _ := item[name].(*types.AttributeValueMemberN)
	if value == nil {
		return 0, false
	}
	n, err := strconv.ParseInt(value.Value, 10, 64)
	return n, err == nil
}

// S makes a string value.
func S(text string) Value { return &types.AttributeValueMemberS{Value: text} }

// N makes a number value from its decimal text.
func N(decimal string) Value { return &types.AttributeValueMemberN{Value: decimal} }

// Int makes a number value.
func Int(n int64) Value { return N(strconv.FormatInt(n, 10)) }

// Bool makes a boolean value.
func Bool(flag bool) Value { return &types.AttributeValueMemberBOOL{Value: flag} }

// StringSet makes a set of strings, of which there has to be one at least.
func StringSet(texts []string) Value { return &types.AttributeValueMemberSS{Value: texts} }

// Map makes a map value.
func Map(of Item) Value { return &types.AttributeValueMemberM{Value: of} }

// Null makes a null value.
func Null() Value { return &types.AttributeValueMemberNULL{Value: true} }
