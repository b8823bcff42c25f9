package table

import "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

// IsText reports whether an attribute is a string or a set of strings.
func (item Item) IsText(name string) bool {
	switch item[name].(type) {
	case *types.AttributeValueMemberS, *types.AttributeValueMemberSS:
		return true
	}
	return false
}

// MapText returns a value with each text in it replaced by to: strings, binary
// values, sets of either, elements of lists, and names and values of maps.
func MapText(value Value, to func(string) string) Value {
	switch v := value.(type) {
	case *types.AttributeValueMemberS:
		return S(to(v.Value))
	case *types.AttributeValueMemberB:
		return &types.AttributeValueMemberB{Value: []byte(to(string(v.Value)))}
	case *types.AttributeValueMemberSS:
		mapped := &types.AttributeValueMemberSS{}
		for _, text := range v.Value {
			mapped.Value = append(mapped.Value, to(text))
		}
		return mapped
	case *types.AttributeValueMemberBS:
		mapped := &types.AttributeValueMemberBS{}
		for _, bytes := range v.Value {
			mapped.Value = append(mapped.Value, []byte(to(string(bytes))))
		}
		return mapped
	case *types.AttributeValueMemberL:
		mapped := &types.AttributeValueMemberL{}
		for _, element := range v.Value {
			mapped.Value = append(mapped.Value, MapText(element, to))
		}
		return mapped
	case *types.AttributeValueMemberM:
		mapped := &types.AttributeValueMemberM{Value: Item{}}
		for name, element := range v.Value {
			mapped.Value[to(name)] = MapText(element, to)
		}
		return mapped
	}
	return value // a number, a boolean or null
}
