package table

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// FormatItem renders an item in DynamoDB JSON, the same item always as the
// same text: names and the members of sets are sorted.
func FormatItem(item Item) ([]byte, error) {
	return json.Marshal(plainMap(item))
}

func plainMap(values map[string]types.AttributeValue) map[string]any {
	plain := make(map[string]any, len(values)) // encoding/json sorts its keys
	for name, value := range values {
		plain[name] = plainValue(value)
	}
	return plain
}

func plainValue(value types.AttributeValue) map[string]any {
	switch v := value.(type) {
	case *types.AttributeValueMemberS:
		return map[string]any{"S": v.Value}
	case *types.AttributeValueMemberN:
		return map[string]any{"N": v.Value}
	case *types.AttributeValueMemberB:
		return map[string]any{"B": v.Value}
	case *types.AttributeValueMemberBOOL:
		return map[string]any{"BOOL": v.Value}
	case *types.AttributeValueMemberNULL:
		return map[string]any{"NULL": v.Value}
	case *types.AttributeValueMemberSS:
		return map[string]any{"SS": slices.Sorted(slices.Values(v.Value))}
	case *types.AttributeValueMemberNS:
		return map[string]any{"NS": slices.Sorted(slices.Values(v.Value))}
	case *types.AttributeValueMemberBS:
		return map[string]any{"BS": sortedBinary(v.Value)}
	case *types.AttributeValueMemberM:
		return map[string]any{"M": plainMap(v.Value)}
	case *types.AttributeValueMemberL:
		list := make([]any, 0, len(v.Value))
		for _, element := range v.Value {
			list = append(list, plainValue(element))
		}
		return map[string]any{"L": list}
	}
	panic(fmt.Sprintf("table: attribute value of type %T", value))
}

func sortedBinary(values [][]byte) []string {
	texts := make([]string, 0, len(values))
	for _, value := range values {
		texts = append(texts, base64.StdEncoding.EncodeToString(value))
	}
	slices.Sort(texts)
	return texts
}
