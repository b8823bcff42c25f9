package storetest

import (
	"errors"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/table"
)

// everyType is an attribute of each type that an item can have.
var everyType = attrs{
	"x_binary":  &types.AttributeValueMemberB{Value: []byte{0, 1, 255}},
	"x_strings": &types.AttributeValueMemberSS{Value: []string{"a", "b"}},
	"x_numbers": &types.AttributeValueMemberNS{Value: []string{"1", "2.5"}},
	"x_bytes":   &types.AttributeValueMemberBS{Value: [][]byte{{1}, {2}}},
	"x_null":    &types.AttributeValueMemberNULL{Value: true},
	"x_wide":    table.N("12345678901234567890123456789012345678"),
	"x_map": &types.AttributeValueMemberM{Value: table.Item{
		"list": &types.AttributeValueMemberL{Value: []types.AttributeValue{table.S("a"), table.N("0.001")}},
	}},
	"x_empty": "",
}

var readCases = []testCase{
	{"no bucket", func(f *fixture) {
		b, err := f.store.Read(f.Context(), first)
		f.noError(err)
		if b != nil {
			f.Errorf("got %v", b)
		}
	}},
	{"a bucket, and its item whole", func(f *fixture) {
		item := bucket(group.At(3), limit("tokens.in", 250, 1000), everyType, attrs{"shard_count": 4})
		f.raw.Put(f, item)
		b, err := f.store.Read(f.Context(), group.At(3))
		f.noError(err)
		check(f, "key", b.Key, group.At(3))
		check(f, "count", b.ShardCount, 4)
		check(f, "balance", b.Limit("tokens.in").Balance, 250)
		f.sameItem("item", b.Item, item)
	}},
	{"what is done to a bucket that was read stays outside the table", func(f *fixture) {
		item := bucket(first, limit(rpm, 250, 1000))
		f.raw.Put(f, item)
		b, err := f.store.Read(f.Context(), first)
		f.noError(err)
		b.Limit(rpm).Balance = 1
		b.Fill()
		f.has(item)
	}},
	{"an acknowledged write is seen", func(f *fixture) {
		f.raw.Put(f, bucket(first, limit(rpm, 250, 1000)))
		_, err := f.store.Double(f.Context(), group, 1)
		f.noError(err)
		b, err := f.store.Read(f.Context(), first)
		f.noError(err)
		check(f, "count", b.ShardCount, 2)
	}},
	{"an item without limits", func(f *fixture) {
		f.raw.Put(f, table.Item{"PK": table.S(first.PK()), "SK": table.S(table.StateSK)})
		if _, err := f.store.Read(f.Context(), first); !errors.Is(err, table.ErrItem) {
			f.Errorf("got %v", err)
		}
	}},
}
