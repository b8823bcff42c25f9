package table

import (
	"maps"
	"math/big"
	"reflect"
	"slices"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// SameValue reports whether two attribute values are the same to DynamoDB; nil stands
// for an absent one. Numbers are equal if their values are, however they are written.
// Sets have no order.
func SameValue(a, b types.AttributeValue) bool {
	switch x := a.(type) {
	case *types.AttributeValueMemberN:
		y, ok := b.(*types.AttributeValueMemberN)
		return ok && sameNumber(x.Value, y.Value)
	case *types.AttributeValueMemberNS:
		y, ok := b.(*types.AttributeValueMemberNS)
		return ok && sameSet(x.Value, y.Value, sameNumber)
	case *types.AttributeValueMemberSS:
		y, ok := b.(*types.AttributeValueMemberSS)
		return ok && sameSet(x.Value, y.Value, func(a, b string) bool { return a == b })
	case *types.AttributeValueMemberBS:
		y, ok := b.(*types.AttributeValueMemberBS)
		return ok && sameSet(x.Value, y.Value, slices.Equal)
	case *types.AttributeValueMemberL:
		y, ok := b.(*types.AttributeValueMemberL)
		return ok && slices.EqualFunc(x.Value, y.Value, SameValue)
	case *types.AttributeValueMemberM:
		y, ok := b.(*types.AttributeValueMemberM)
		return ok && maps.EqualFunc(x.Value, y.Value, SameValue)
	default:
		return reflect.DeepEqual(a, b)
	}
}

// numberBits are more than the 38 digits of a number need.
const numberBits = 256

func sameNumber(a, b string) bool {
	if a == b {
		return true
	}
	x, _, err := big.ParseFloat(a, 10, numberBits, big.ToNearestEven)
	if err != nil {
		return false
	}
	y, _, err := big.ParseFloat(b, 10, numberBits, big.ToNearestEven)
	return err == nil && x.Cmp(y) == 0
}

// sameSet compares two sets. Neither holds a value twice.
func sameSet[T any](a, b []T, same func(T, T) bool) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(x T) bool {
		return !slices.ContainsFunc(b, func(y T) bool { return same(x, y) })
	})
}
