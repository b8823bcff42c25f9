package table_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

func TestSameValue(t *testing.T) {
	numbers := func(n ...string) types.AttributeValue { return &types.AttributeValueMemberNS{Value: n} }
	texts := func(s ...string) types.AttributeValue { return &types.AttributeValueMemberSS{Value: s} }
	binaries := func(b ...string) types.AttributeValue {
		v := &types.AttributeValueMemberBS{}
		for _, text := range b {
			v.Value = append(v.Value, []byte(text))
		}
		return v
	}
	list := func(v ...types.AttributeValue) types.AttributeValue { return &types.AttributeValueMemberL{Value: v} }
	of := func(v types.AttributeValue) types.AttributeValue {
		return &types.AttributeValueMemberM{Value: table.Item{"x": v}}
	}
	yes := &types.AttributeValueMemberBOOL{Value: true}
	for _, c := range []struct {
		name string
		a, b types.AttributeValue
		same bool
	}{
		{"absent", nil, nil, true},
		{"absent and there", nil, table.S(""), false},
		{"text", table.S("a"), table.S("a"), true},
		{"other text", table.S("a"), table.S("A"), false},
		{"numbers", table.N("5"), table.N("5.00"), true},
		{"zeros", table.N("0"), table.N("-0.0"), true},
		{"exponents", table.N("1.5e3"), table.N("1500"), true},
		{"all 38 digits", table.N("12345678901234567890123456789012345678"), table.N("12345678901234567890123456789012345678.0"), true},
		{"the last of 38 digits", table.N("12345678901234567890123456789012345678"), table.N("12345678901234567890123456789012345679"), false},
		{"the last of 38 places", table.N("0.12345678901234567890123456789012345678"), table.N("0.12345678901234567890123456789012345679"), false},
		{"no number", table.N("x"), table.N("5"), false},
		{"no number on the other side", table.N("5"), table.N("x"), false},
		{"a number and its text", table.N("5"), table.S("5"), false},
		{"flags", yes, &types.AttributeValueMemberBOOL{Value: true}, true},
		{"other flags", yes, &types.AttributeValueMemberBOOL{}, false},
		{"sets in any order", texts("a", "b"), texts("b", "a"), true},
		{"a set and a part of it", texts("a", "b"), texts("a"), false},
		{"sets of other things", texts("a", "b"), texts("a", "c"), false},
		{"sets of numbers", numbers("1", "2.0"), numbers("2", "1.0"), true},
		{"sets of other numbers", numbers("1", "2"), numbers("2", "3"), false},
		{"a set of numbers and one of texts", numbers("1"), texts("1"), false},
		{"sets of bytes", binaries("a", "b"), binaries("b", "a"), true},
		{"sets of other bytes", binaries("a"), binaries("b"), false},
		{"lists", list(table.N("1"), texts("a", "b")), list(table.N("1.0"), texts("b", "a")), true},
		{"lists in another order", list(table.N("1"), table.N("2")), list(table.N("2"), table.N("1")), false},
		{"maps", of(table.N("1")), of(table.N("1.0")), true},
		{"other maps", of(table.N("1")), of(nil), false},
	} {
		if table.SameValue(c.a, c.b) != c.same || table.SameValue(c.b, c.a) != c.same {
			t.Errorf("%s: same is not %t", c.name, c.same)
		}
	}
	if table.Equal(nil, nil) || table.Equal(nil, table.Item{}) || !table.Equal(table.Item{}, table.Item{}) || table.Equal(table.Item{"a": yes}, table.Item{"b": yes}) {
		t.Error("items that are there are equal if they say the same")
	}
}

func TestLifts(t *testing.T) {
	for _, c := range []struct {
		correction quota.Adjustment
		want       bool
	}{
		{quota.Adjustment{Limit: "rpm", Balance: 1}, true},
		{quota.Adjustment{Limit: "rpm", Balance: 0, Consumed: -5}, false},
		{quota.Adjustment{Limit: "rpm", Balance: -1}, false},
		{quota.Adjustment{Limit: quota.WriteMeter, Balance: 1}, false},
	} {
		if got := table.Lifts([]quota.Adjustment{{Limit: "x", Balance: -5}, c.correction}); got != c.want {
			t.Errorf("%+v: %t", c.correction, got)
		}
	}
	if table.Lifts(nil) {
		t.Error("nothing lifts")
	}
}
