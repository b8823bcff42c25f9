package table_test

import (
	"errors"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// secret is an entity id and a value that no error may show.
const secret = "sk-live-4242"

var key = table.Group{Namespace: "n5", Entity: secret, Resource: "models/embed-3"}.At(2)

// item is a bucket item with one quota of every kind, an attribute of each
// type that nobody here knows, and what else is given.
func item(more table.Item) table.Item {
	item := table.Item{
		"PK": table.S(key.PK()), "SK": table.S("#STATE"), "entity_id": table.S(secret), "resource": table.S("models/embed-3"),
		"GSI2PK": table.S("n5/RESOURCE#models/embed-3"), "GSI2SK": table.S("BUCKET#" + secret + "#2"),
		"GSI3PK": table.S("n5/ENTITY#" + secret), "GSI3SK": table.S("BUCKET#models/embed-3#2"),
		"GSI4PK": table.S("n5"), "GSI4SK": table.S("BUCKET#" + secret + "#models/embed-3#2"),
		"shard_count": table.N("4"), "rf": table.N("1796036376720"), "vu": table.N("0"),
		"disabled": &types.AttributeValueMemberBOOL{Value: true}, "rsched": table.S("1m0h0"),

		"b_tokens.in_tk": table.N("-250"), "b_tokens.in_tc": table.N("1250"), "b_tokens.in_cp": table.N("1000"),
		"b_tokens.in_ra": table.N("500"), "b_tokens.in_rp": table.N("60000"), "b_tokens.in_soft": table.N("1"),
		"b_tokens.in_rsched": table.S("-"), "b_tokens.in_sched": table.S("1h9-17s500"),

		"b_b_x_tk_tk": table.N("7"), "b_b_x_tk_tc": table.N("1"), "b_b_x_tk_cp": table.N("8000"), "b_b_x_tk_ra": table.N("0"),
		"b_b_x_tk_rp": table.N("1000"), "b_b_x_tk_gc": table.N("2"), "b_b_x_tk_tu": table.N("3"),

		"b___tk": table.N("30"), "b___tc": table.N("9"), "b___cp": table.N("4000"), "b___ra": table.N("0"), "b___rp": table.N("1000"),
		"b___rsched": table.S("-"), "b___rsa": table.N("3600"), "b___ws": table.N("1796036376000"),
		"b___wa": table.N("1796036375000"), "b___wtc": table.N("5"),

		"b_wcu_tk": table.N("999000"), "b_wcu_tc": table.N("1000"), "b_wcu_cp": table.N("1000000"), "b_wcu_ra": table.N("1000000"), "b_wcu_rp": table.N("1000"),

		"x_binary": &types.AttributeValueMemberB{Value: []byte{0, 1, 255}},
		"x_bytes":  &types.AttributeValueMemberBS{Value: [][]byte{{1}, {2, 0}}},
		"x_texts":  &types.AttributeValueMemberSS{Value: []string{"a", "b"}},
		"x_tens":   &types.AttributeValueMemberNS{Value: []string{"1", "10"}},
		"x_null":   &types.AttributeValueMemberNULL{Value: true},
		"x_wide":   table.N("12345678901234567890123456789012345678"),
		"x_small":  table.N("0.00000000000000000000000000000000000001"),
		"x_list":   &types.AttributeValueMemberL{Value: []types.AttributeValue{table.S(""), table.N("-1.5")}},
		"x_map": &types.AttributeValueMemberM{Value: table.Item{
			"deep": &types.AttributeValueMemberM{Value: table.Item{"er": &types.AttributeValueMemberBOOL{}}},
		}},
	}
	maps.Copy(item, more)
	return item
}

func decode(t testing.TB, item table.Item) *table.Bucket {
	t.Helper()
	b, err := table.DecodeBucket(item)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestDecodeBucket(t *testing.T) {
	b := decode(t, item(nil))
	if b.Key != key || b.Shard != 2 || b.ShardCount != 4 || b.RefilledAt != 1796036376720 || *b.ValidUntil != 0 || !b.Disabled || b.Broken != nil {
		t.Errorf("got %+v", b.Bucket)
	}
	var names []string
	for _, limit := range b.Limits {
		names = append(names, limit.Name)
	}
	if want := []string{"_", "b_x_tk", "tokens.in", "wcu"}; !reflect.DeepEqual(names, want) {
		t.Fatalf("limits %q", names)
	}
	for name, want := range map[string]quota.Limit{
		"_": {Balance: 30, Consumed: 9, Base: quota.Params{Capacity: 4000, Period: 1000}, Window: quota.Window{
			Length: 3600_000, Start: new(int64(1796036376000)), Applied: new(int64(1796036375000)), ConsumedAtOpen: new(int64(5)),
		}},
		"b_x_tk":    {Balance: 7, Consumed: 1, Base: quota.Params{Capacity: 8000, Period: 1000}, Grant: new(2), TopUp: 3},
		"tokens.in": {Balance: -250, Consumed: 1250, Base: quota.Params{Capacity: 1000, Refill: 500, Period: 60_000}, Soft: 1},
		"wcu":       {Balance: 999_000, Consumed: 1000, Base: quota.Params{Capacity: 1000_000, Refill: 1000_000, Period: 1000}},
	} {
		got := *b.Limit(name)
		got.Schedule, got.Resets = quota.Schedule{}, quota.Resets{}
		if want.Name = name; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

// A limit's own schedule comes before the item's, and "-" is none.
func TestDecodeBucketInheritsSchedules(t *testing.T) {
	b := decode(t, item(table.Item{
		"sched": table.S("1s2000"), "b_wcu_sched": table.S("1s3000"), "b___sched": table.S("-"), "sched_tz": table.S("Europe/Berlin"),
	}))
	for name, want := range map[string]struct {
		kind     quota.Kind
		schedule bool
		resets   bool
	}{
		"_":         {quota.Session, false, false},
		"b_x_tk":    {quota.Calendar, true, true},
		"tokens.in": {quota.Dripping, true, false},
		"wcu":       {quota.Meter, false, false},
	} {
		l := b.Limit(name)
		if l.Kind() != want.kind || l.Schedule.Empty() == want.schedule || l.Resets.Empty() == want.resets {
			t.Errorf("%s: kind %v, no schedule %t, no resets %t", name, l.Kind(), l.Schedule.Empty(), l.Resets.Empty())
		}
	}
	if params, err := b.Limit("b_x_tk").Effective(0); err != nil || params.Capacity != 16_000 {
		t.Errorf("capacity %d, %v", params.Capacity, err)
	}
}

// A schedule that cannot be read is reported, and costs no limit anything
// else: it is still known for a quota.
func TestDecodeBucketWithBrokenSchedule(t *testing.T) {
	for name, more := range map[string]table.Item{
		"schedule":       {"sched": table.S("9?")},
		"reset schedule": {"rsched": table.S("9?")},
		"of one limit":   {"b_b_x_tk_sched": table.S("9?")},
		"zone":           {"sched": table.S("1h9s500"), "sched_tz": table.S("Nowhere/Town")},
	} {
		b := decode(t, item(more))
		if !errors.Is(b.Broken, quota.ErrSchedule) {
			t.Errorf("%s: broken is %v", name, b.Broken)
		}
		if len(b.Limits) != 4 || b.Limit("_").Kind() != quota.Session || b.Limit("tokens.in").Balance != -250 {
			t.Errorf("%s: got %+v", name, b.Limits)
		}
		if kind := b.Limit("b_x_tk").Kind(); kind != quota.Calendar && name != "reset schedule" && name != "zone" {
			t.Errorf("%s: kind %v", name, kind)
		}
	}
}

func TestDecodeBucketDefaults(t *testing.T) {
	b := decode(t, table.Item{
		"PK": table.S(key.PK()), "SK": table.S("#STATE"), "b_rpm_tk": table.N("5"), "b_rpm_cp": table.N("10"),
		"b_half_tk": table.N("5"), "b_other_cp": table.N("5"),
	})
	want := []quota.Limit{{Name: "rpm", Balance: 5, Base: quota.Params{Capacity: 10}}}
	if b.ShardCount != 1 || b.RefilledAt != 0 || b.ValidUntil != nil || b.Disabled || !reflect.DeepEqual(b.Limits, want) {
		t.Errorf("got %+v", b.Bucket)
	}
}

func TestDecodeBucketCountBelowOne(t *testing.T) {
	for _, count := range []string{"0", "-4"} {
		if b := decode(t, item(table.Item{"shard_count": table.N(count)})); b.ShardCount != 1 {
			t.Errorf("%s reads as %d", count, b.ShardCount)
		}
	}
}

// What is wrong is named by its attribute, without its value.
func TestDecodeBucketMalformed(t *testing.T) {
	text, list := table.S(secret), &types.AttributeValueMemberL{}
	for _, c := range []struct {
		name  string
		value types.AttributeValue
	}{
		{"shard_count", text}, {"shard_count", table.N("1.5")}, {"shard_count", table.N("4294967296")},
		{"rf", text}, {"rf", table.N("1e30")}, {"rf", table.N("-253402300800000")}, {"rf", table.N("99999999999999999999")},
		{"vu", text}, {"vu", table.N(secret)},
		{"sched_tz", table.N("4242")}, {"sched", list}, {"rsched", list},
		{"b_tokens.in_tk", text}, {"b_tokens.in_tk", table.N("4611686018427387904")}, {"b_tokens.in_tc", table.N("0.5")},
		{"b_tokens.in_cp", text}, {"b_tokens.in_cp", table.N("-4242")}, {"b_tokens.in_ra", table.N("-4242")}, {"b_tokens.in_rp", text},
		{"b_tokens.in_sched", list}, {"b_b_x_tk_gc", text}, {"b_b_x_tk_gc", table.N("9999999999")}, {"b_b_x_tk_tu", table.N("-4242")},
		{"b___rsa", text}, {"b___rsa", table.N("-4242")}, {"b___ws", text}, {"b___wa", table.N("")}, {"b___wtc", list},
		{"b_wcu_tk", &types.AttributeValueMemberNULL{Value: true}}, {"b_wcu_rp", nil},
	} {
		_, err := table.DecodeBucket(item(table.Item{c.name: c.value}))
		if !errors.Is(err, table.ErrItem) || !strings.Contains(err.Error(), c.name) {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "4242") {
			t.Errorf("%s: the error shows a value: %v", c.name, err)
		}
	}
}

func TestDecodeBucketOfAnotherKind(t *testing.T) {
	for name, more := range map[string]table.Item{
		"usage":     {"SK": table.S("#USAGE#x")},
		"no SK":     {"SK": table.N("1")},
		"no bucket": {"PK": table.S("n5/ENTITY#" + secret)},
		"no PK":     {"PK": &types.AttributeValueMemberB{Value: []byte(secret)}},
	} {
		if _, err := table.DecodeBucket(item(more)); !errors.Is(err, table.ErrKey) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := table.DecodeBucket(nil); !errors.Is(err, table.ErrKey) {
		t.Errorf("no item: %v", err)
	}
	bare := table.Item{"PK": table.S(key.PK()), "SK": table.S("#STATE"), "b_rpm_cp": table.N("1")}
	if _, err := table.DecodeBucket(bare); !errors.Is(err, table.ErrItem) {
		t.Errorf("no limit: %v", err)
	}
}

// Filling in what was decoded changes nothing; other types of attribute stay
// as they are.
func TestFillIsTheInverseOfDecode(t *testing.T) {
	b := decode(t, item(nil))
	b.Item = b.Item.Clone()
	b.Fill()
	if !reflect.DeepEqual(b.Item, item(nil)) {
		t.Errorf("got %v", b.Item)
	}
}

func TestFillWritesWhatChanged(t *testing.T) {
	b := decode(t, item(nil))
	b.Item = b.Item.Clone()
	b.Key.Shard, b.Shard, b.ShardCount, b.RefilledAt, b.ValidUntil = 3, 3, 8, 99, nil
	b.Limit("tokens.in").Balance, b.Limit("tokens.in").Consumed = 11, 0
	*b.Limit("b_x_tk") = quota.Limit{Name: "b_x_tk", Balance: 12, Resets: b.Limit("b_x_tk").Resets, Grant: new(8)}
	b.Limit("_").Window = quota.Window{Length: 3600_000, Start: new(int64(7)), Applied: new(int64(7))}
	b.Fill()
	want := item(table.Item{
		"PK": table.S("n5/BUCKET#" + secret + "#models/embed-3#3"), "GSI2SK": table.S("BUCKET#" + secret + "#3"),
		"GSI3SK": table.S("BUCKET#models/embed-3#3"), "GSI4SK": table.S("BUCKET#" + secret + "#models/embed-3#3"),
		"shard_count": table.N("8"), "rf": table.N("99"),
		"b_tokens.in_tk": table.N("11"), "b_tokens.in_tc": table.N("0"),
		"b_b_x_tk_tk": table.N("12"), "b_b_x_tk_tc": table.N("0"), "b_b_x_tk_gc": table.N("8"),
		"b___ws": table.N("7"), "b___wa": table.N("7"),
	})
	for _, gone := range []string{"vu", "b_b_x_tk_tu", "b___wtc"} {
		delete(want, gone)
	}
	if !reflect.DeepEqual(b.Item, want) {
		for name := range want {
			if !reflect.DeepEqual(b.Item[name], want[name]) {
				t.Errorf("%s is %v, not %v", name, b.Item[name], want[name])
			}
		}
		t.Errorf("%d attributes, not %d", len(b.Item), len(want))
	}
}

func TestShardCount(t *testing.T) {
	for text, want := range map[string]int{"": 1, "0": 1, "-1": 1, "1": 1, "32": 32} {
		item := table.Item{"shard_count": table.N(text)}
		if text == "" {
			item = table.Item{}
		}
		if got, err := item.ShardCount(); err != nil || got != want {
			t.Errorf("%q reads as %d, %v", text, got, err)
		}
	}
	if _, err := (table.Item{"shard_count": table.S("4")}).ShardCount(); !errors.Is(err, table.ErrItem) {
		t.Errorf("got %v", err)
	}
}

// recorded are bucket items that zae-limiter 0.17 wrote.
func recorded(t testing.TB) []table.Item {
	t.Helper()
	text, err := os.ReadFile("testdata/buckets.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var items []table.Item
	for line := range strings.Lines(string(text)) {
		item, err := table.ParseItem([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		items = append(items, item)
	}
	return items
}

func TestDecodeRecordedBuckets(t *testing.T) {
	items := recorded(t)
	kinds := []map[string]quota.Kind{
		{"rpm": quota.Dripping, "sess": quota.Session, "tokens.in": quota.Dripping, "wcu": quota.Meter},
		{"calls": quota.Calendar, "rpm": quota.Dripping, "wcu": quota.Meter},
		{"calls": quota.Calendar, "rpm": quota.Dripping, "sess": quota.Session, "wcu": quota.Meter},
	}
	if len(items) != len(kinds) {
		t.Fatalf("%d items", len(items))
	}
	for i, item := range items {
		b := decode(t, item.Clone())
		got := map[string]quota.Kind{}
		for _, limit := range b.Limits {
			got[limit.Name] = limit.Kind()
		}
		if !maps.Equal(got, kinds[i]) || b.Broken != nil {
			t.Errorf("%d: %v, broken %v", i, got, b.Broken)
		}
		b.Fill()
		if !reflect.DeepEqual(b.Item, item) {
			t.Errorf("%d: filling in changed %v to %v", i, item, b.Item)
		}
	}
}

func FuzzDecodeBucket(f *testing.F) {
	for _, seed := range append(recorded(f), item(nil), table.Item{}) {
		text, err := table.FormatItem(seed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		item, err := table.ParseItem(text)
		if err != nil {
			return
		}
		b, err := table.DecodeBucket(item)
		if err != nil {
			if !errors.Is(err, table.ErrItem) && !errors.Is(err, table.ErrKey) || len(err.Error()) > 300 {
				t.Fatalf("neither ErrItem nor ErrKey, or too long: %v", err)
			}
			if strings.Contains(err.Error(), secret) && !named(item, secret) {
				t.Fatalf("the error shows a value: %v", err)
			}
			return
		}
		fuzzBounds(t, b)
		b.Item = item.Clone()
		b.Fill()
		again := decode(t, b.Item)
		if (again.Broken == nil) != (b.Broken == nil) {
			t.Fatalf("broken: %v, then %v", b.Broken, again.Broken)
		}
		again.Broken, again.Item = b.Broken, b.Item
		if !reflect.DeepEqual(again, b) {
			t.Fatalf("%+v was filled in and decoded as %+v", b, again)
		}
		filled := b.Item.Clone()
		b.Fill()
		if !reflect.DeepEqual(b.Item, filled) {
			t.Fatalf("filled in again, %v became %v", filled, b.Item)
		}
	})
}

// named reports whether text is part of an attribute's name. Names are shown.
func named(item table.Item, text string) bool {
	for name := range item {
		if strings.Contains(name, text) {
			return true
		}
	}
	return false
}

// fuzzBounds holds a decoded bucket to what the rules rely on.
func fuzzBounds(t *testing.T, b *table.Bucket) {
	t.Helper()
	if b.ShardCount < 1 || b.Shard < 0 || b.RefilledAt < 0 || b.RefilledAt > quota.MaxTime || len(b.Limits) == 0 {
		t.Fatalf("%+v", b)
	}
	if b.Broken != nil && (!errors.Is(b.Broken, quota.ErrSchedule) || len(b.Broken.Error()) > 1000) {
		t.Fatalf("broken by %v", b.Broken)
	}
	for i := range b.Limits {
		l := &b.Limits[i]
		if i > 0 && l.Name <= b.Limits[i-1].Name {
			t.Fatalf("%q comes after %q", l.Name, b.Limits[i-1].Name)
		}
		amounts := []int64{l.Balance, l.Consumed, -l.Balance, -l.Consumed, l.Base.Capacity, l.Base.Refill, l.TopUp}
		if slices.Max(amounts) > quota.MaxAmount || min(l.Base.Capacity, l.Base.Refill, l.Base.Period, l.TopUp, l.Window.Length) < 0 {
			t.Fatalf("%+v", l)
		}
		for _, field := range []table.Field{table.FieldBalance, table.FieldSoft, "", "x"} {
			name, got, ok := table.SplitAttr(table.Attr(l.Name, field))
			if !ok || name != l.Name || got != field {
				t.Fatalf("%q is taken apart into %q, %q", table.Attr(l.Name, field), name, got)
			}
		}
	}
}
