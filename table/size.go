package table

import (
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// Size is the item's size as DynamoDB counts it, in bytes: the names of its
// attributes and their values.
func (item Item) Size() int {
	size := 0
	for name, value := range item {
		size += len(name) + valueSize(value)
	}
	return size
}

func valueSize(value types.AttributeValue) int {
	switch v := value.(type) {
	case *types.AttributeValueMemberS:
		return len(v.Value)
	case *types.AttributeValueMemberN:
		return numberSize(v.Value)
	case *types.AttributeValueMemberB:
		return len(v.Value)
	case *types.AttributeValueMemberSS:
		return len(strings.Join(v.Value, ""))
	case *types.AttributeValueMemberNS:
		size := 0
		for _, n := range v.Value {
			size += numberSize(n)
		}
		return size
	case *types.AttributeValueMemberL:
		size := 3
		for _, element := range v.Value {
			size += 1 + valueSize(element)
		}
		return size
	case *types.AttributeValueMemberM:
		return 3 + len(v.Value) + Item(v.Value).Size()
	default:
		return 1 // a boolean or a null
	}
}

// numberSize is a byte for each two significant digits and one besides, and one
// for a sign.
func numberSize(decimal string) int {
	digits, _, _ := scan(decimal)
	size := 1 + (digits+1)/2
	if strings.HasPrefix(decimal, "-") {
		size++
	}
	return size
}
