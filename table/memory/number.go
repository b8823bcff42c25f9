package memory

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/table"
)

// maxDigits is how many significant digits a number of DynamoDB has.
const maxDigits = 38

var (
	errNotNumber = errors.New("not a number")
	errTooLong   = fmt.Errorf("more than %d significant digits", maxDigits)

	decimalText = regexp.MustCompile(`^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?$`)
)

// maxText bounds the text of a number: a sign, 38 digits and the zeros that a
// magnitude of 130 adds on either side, with room to spare.
const maxText = 512

// add returns the sum of two numbers in their decimal text, exactly.
func add(a, b string) (string, error) {
	if x, ok := thousandths(a); ok {
		if y, ok := thousandths(b); ok {
			return table.Tokens(x + y), nil
		}
	}
	left, okLeft := rational(a)
	right, okRight := rational(b)
	if !okLeft || !okRight {
		return "", errNotNumber
	}
	return decimal(left.Add(left, right))
}

// thousandths reads a number of at most three decimals in thousandths; ok is
// false for any other text and for what is too large. Nearly every number here
// is one of those, and the general case costs a hundred times as much.
func thousandths(text string) (milli int64, ok bool) {
	const enough = math.MaxInt64 / 4000
	whole, part, _ := strings.Cut(text, ".")
	x, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || x < -enough || x > enough || len(part) > 3 {
		return 0, false
	}
	for i := range 3 {
		digit := byte('0')
		if i < len(part) {
			digit = part[i]
		}
		if digit < '0' || digit > '9' {
			return 0, false
		}
		milli = 10*milli + int64(digit-'0')
	}
	if strings.HasPrefix(whole, "-") {
		milli = -milli
	}
	return 1000*x + milli, true
}

// compareNumbers orders two numbers. ok is false where one is none.
func compareNumbers(a, b string) (order int, ok bool) {
	x, errX := strconv.ParseInt(a, 10, 64)
	y, errY := strconv.ParseInt(b, 10, 64)
	if errX == nil && errY == nil {
		return cmp.Compare(x, y), true
	}
	left, okLeft := rational(a)
	right, okRight := rational(b)
	if !okLeft || !okRight {
		return 0, false
	}
	return left.Cmp(right), true
}

func rational(text string) (*big.Rat, bool) {
	if len(text) > maxText || !decimalText.MatchString(text) {
		return nil, false
	}
	return new(big.Rat).SetString(text)
}

// decimal renders a number as DynamoDB returns it: no sign for what is not
// negative, no exponent, no zeros that say nothing.
func decimal(x *big.Rat) (string, error) {
	places, _ := x.FloatPrec()
	text := x.FloatString(places)
	digits := strings.Replace(strings.TrimPrefix(text, "-"), ".", "", 1)
	if len(strings.Trim(digits, "0")) > maxDigits {
		return "", errTooLong
	}
	return text, nil
}

// canonicalItem copies an item with its numbers in the form that DynamoDB
// returns; what is not a number it leaves as it is. nil stays nil.
func canonicalItem(item table.Item) table.Item {
	if item == nil {
		return nil
	}
	return canonicalMap(item)
}

func canonicalMap(values map[string]types.AttributeValue) map[string]types.AttributeValue {
	result := make(map[string]types.AttributeValue, len(values))
	for name, value := range values {
		result[name] = canonical(value)
	}
	return result
}

func canonical(value types.AttributeValue) types.AttributeValue {
	switch v := value.(type) {
	case *types.AttributeValueMemberN:
		return table.N(canonicalNumber(v.Value))
	case *types.AttributeValueMemberNS:
		numbers := make([]string, len(v.Value))
		for i, number := range v.Value {
			numbers[i] = canonicalNumber(number)
		}
		slices.Sort(numbers)
		return &types.AttributeValueMemberNS{Value: numbers}
	case *types.AttributeValueMemberM:
		return &types.AttributeValueMemberM{Value: canonicalMap(v.Value)}
	case *types.AttributeValueMemberL:
		list := make([]types.AttributeValue, len(v.Value))
		for i, element := range v.Value {
			list[i] = canonical(element)
		}
		return &types.AttributeValueMemberL{Value: list}
	default:
		return value
	}
}

func canonicalNumber(text string) string {
	if milli, ok := thousandths(text); ok {
		return table.Tokens(milli)
	}
	x, ok := rational(text)
	if !ok {
		return text
	}
	if result, err := decimal(x); err == nil {
		return result
	}
	return text
}
