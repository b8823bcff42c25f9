package memory

import (
	"fmt"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/table"
)

// image is a stored item as the conditions of a write see it. As in DynamoDB,
// comparing with an attribute that is absent or of another type is false.
type image table.Item

func (i image) has(name string) bool { return i[name] != nil }

func (i image) compare(name string, value int64) (order int, ok bool) {
	number, isNumber := i[name].(*types.AttributeValueMemberN)
	if !isNumber {
		return 0, false
	}
	return compare(number.Value, value)
}

func (i image) is(name string, value int64) bool {
	order, ok := i.compare(name, value)
	return ok && order == 0
}

func (i image) atMost(name string, value int64) bool {
	order, ok := i.compare(name, value)
	return ok && order <= 0
}

func (i image) atLeast(name string, value int64) bool {
	order, ok := i.compare(name, value)
	return ok && order >= 0
}

func (i image) above(name string, value int64) bool {
	order, ok := i.compare(name, value)
	return ok && order > 0
}

func (i image) below(name string, value int64) bool {
	order, ok := i.compare(name, value)
	return ok && order < 0
}

// isOrAbsent is is, where nil stands for an absent attribute.
func (i image) isOrAbsent(name string, value *int64) bool {
	if value == nil {
		return !i.has(name)
	}
	return i.is(name, *value)
}

// reads is is, for an attribute whose absence reads as zero.
func (i image) reads(name string, value int64) bool {
	return i.is(name, value) || value == 0 && !i.has(name)
}

// same reports whether an attribute is exactly the value, nil for absent.
func (i image) same(name string, value types.AttributeValue) bool {
	return table.SameValue(i[name], value)
}

// termed reports whether the item's terms are as given.
func (i image) termed(terms []table.NamedValue) bool {
	for _, term := range terms {
		if !i.same(term.Name, term.Value) {
			return false
		}
	}
	return true
}

// countIs reports whether the stored shard count reads as n. An absent count
// and one below 1 read as 1.
func (i image) countIs(n int) bool {
	if n == 1 {
		return !i.has(table.AttrShardCount) || i.atMost(table.AttrShardCount, 1)
	}
	return i.is(table.AttrShardCount, int64(n))
}

// countAtMost reports whether the stored shard count is at most n, which is at
// least 1.
func (i image) countAtMost(n int) bool {
	return !i.has(table.AttrShardCount) || i.atMost(table.AttrShardCount, int64(n))
}

// addTo adds to a number attribute, counting from 0 where it is absent.
func addTo(item table.Item, name, decimal string) error {
	stored := "0"
	if value, present := item[name]; present {
		number, ok := value.(*types.AttributeValueMemberN)
		if !ok {
			return fmt.Errorf("add to %s: %w", name, errNotNumber)
		}
		stored = number.Value
	}
	sum, err := add(stored, decimal)
	if err != nil {
		return fmt.Errorf("add to %s: %w", name, err)
	}
	item[name] = table.N(sum)
	return nil
}

func addAmount(item table.Item, name string, amount int64) error {
	return addTo(item, name, strconv.FormatInt(amount, 10))
}

func setNumber(item table.Item, name string, value int64) {
	item[name] = table.N(strconv.FormatInt(value, 10))
}
