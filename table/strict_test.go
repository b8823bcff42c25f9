package table

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/quota"
)

const secret = "sk-live-4242"

var anItem = Item{AttrPK: S("n/BUCKET#" + secret), AttrSK: S(StateSK)}

// with is an item that has an attribute besides its key.
func with(name string, value types.AttributeValue) Item {
	item := anItem.Clone()
	item[name] = value
	return item
}

func aWrite(change func(w *Write)) *Write {
	w := &Write{Operation: "use", Key: ItemKey{"n/BUCKET#" + secret, StateSK}}
	change(w)
	return w
}

func nested(depth int) types.AttributeValue {
	value := S(secret)
	for range depth {
		value = &types.AttributeValueMemberL{Value: []types.AttributeValue{value}}
	}
	return value
}

// What DynamoDB refuses of a write, at the bound and one beyond it; "" is fine.
func TestStrictWrites(t *testing.T) {
	conditions := func(n int) *Write {
		return aWrite(func(w *Write) {
			one := Int(1)
			for range n {
				w.require(compare(Less, "a", one))
			}
		})
	}
	sets := func(n int) *Write {
		return aWrite(func(w *Write) {
			for i := range n {
				w.set(fmt.Sprint(secret, i), Int(1))
			}
		})
	}
	put := func(item Item) *Write {
		return aWrite(func(w *Write) { w.Put = item; w.Key.PK, w.Key.SK = item.Key() })
	}
	set := func(name string, value types.AttributeValue) *Write {
		return aWrite(func(w *Write) { w.set(name, value) })
	}
	keyed := func(pk, sk int) *Write {
		return aWrite(func(w *Write) { w.Key = ItemKey{strings.Repeat("p", pk), strings.Repeat("s", sk)}; w.remove("a") })
	}
	full := maxItemSize - len(AttrPK) - len("n/BUCKET#"+secret) - len(AttrSK) - len(StateSK) - len("a")
	for _, c := range []struct {
		name string
		w    *Write
		want string
	}{
		{"300 operators", conditions(150), ""}, // 150 comparisons, 149 ANDs
		{"301 operators", conditions(151), "operators in a condition expression: 301, of which DynamoDB takes 300"},
		{"325 sets", sets(325), ""},
		{"400 sets", sets(400), "bytes of an update expression: 4982, of which DynamoDB takes 4096"},
		{"2 MB of values", aWrite(func(w *Write) {
			for i := range 6 {
				w.require(compare(Equals, "a", S(strings.Repeat(fmt.Sprint(i), 350_000))))
			}
		}), "bytes of names and values: 2100015, of which DynamoDB takes 2097152"},
		{"one value six times", aWrite(func(w *Write) {
			value := S(strings.Repeat("v", 399_000))
			for range 6 {
				w.require(compare(Equals, "a", value))
			}
		}), ""},
		{"a long partition key", keyed(2048, 1), ""},
		{"a partition key too long", keyed(2049, 1), "a partition key of 2049 bytes, of which DynamoDB takes 2048"},
		{"a long sort key", keyed(1, 1024), ""},
		{"a sort key too long", keyed(1, 1025), "a sort key of 1025 bytes, of which DynamoDB takes 1024"},
		{"no partition key", keyed(0, 1), "an empty partition key"},
		{"no sort key", keyed(1, 0), "an empty sort key"},
		{"an index's partition key", set("GSI1PK", S(strings.Repeat("k", 2048))), ""},
		{"an index's partition key too long", set("GSI1PK", S(strings.Repeat("k", 2049))), "a GSI1PK of 2049 bytes, of which DynamoDB takes 2048"},
		{"an index's sort key too long", put(with("GSI3SK", S(strings.Repeat("k", 1025)))), "a GSI3SK of 1025 bytes, of which DynamoDB takes 1024"},
		{"an index's key that is empty", set("GSI2SK", S("")), "an empty GSI2SK"},
		{"an index's key that is a number", set("GSI2SK", Int(1)), "GSI2SK: an index's key that is no text"},
		{"an item of 400 KB", put(with("a", S(strings.Repeat("v", full)))), ""},
		{"an item of more", put(with("a", S(strings.Repeat("v", full+1)))), "bytes of an item: 409601, of which DynamoDB takes 409600"},
		{"an item elsewhere", aWrite(func(w *Write) { w.Put = anItem; w.Key.SK = "#OTHER" }), "an item that is put under another's key"},
		{"38 digits", set("a", N("-0."+strings.Repeat("0", 100)+strings.Repeat("9", 30)+strings.Repeat("8", 8))), ""},
		{"39 digits", set("a", N("1"+strings.Repeat("0", 37)+"1")), "a: a number of 39 digits, of which DynamoDB takes 38"},
		{"a number of 39 digits, one significant", set("a", N("1"+strings.Repeat("0", 38))), ""},
		{"9E125", set("a", N("9.9E125")), ""},
		{"1E126", set("a", N("-1E126")), "a: a number of magnitude 10^126"},
		{"1E-130", set("a", N("0.001e-127")), ""},
		{"1E-131", set("a", N("1e-131")), "a: a number of magnitude 10^-131"},
		{"no number", set("a", N(secret)), "a: not a number"},
		{"nothing of a number", set("a", N("-.")), "a: not a number"},
		{"zero", set("a", N("0.00e9999")), ""},
		{"a number of a set", set("a", &types.AttributeValueMemberNS{Value: []string{"1", ""}}), "a: not a number"},
		{"an empty set", set("a", &types.AttributeValueMemberSS{}), "a: an empty set"},
		{"an empty set in a list", set("a", &types.AttributeValueMemberL{Value: []types.AttributeValue{&types.AttributeValueMemberBS{}}}), "a: an empty set"},
		{"an empty text", set("a", S("")), ""},
		{"no value", set("a", nil), "a: no value"},
		{"32 lists", set("a", nested(32)), ""},
		{"33 lists", set("a", nested(33)), "a: values nest deeper than 32"},
		{"set twice", aWrite(func(w *Write) { w.set("a", Int(1)); w.set("a", Int(1)) }), "a: changed twice in one write"},
		{"set and added to", aWrite(func(w *Write) { w.set("a", Int(1)); w.addInt("a", 1) }), "a: changed twice in one write"},
		{"added to and removed", aWrite(func(w *Write) { w.addInt("a", 1); w.remove("a") }), "a: changed twice in one write"},
		{"copied and added to", aWrite(func(w *Write) {
			w.Set = []Assignment{{Name: "b", From: "a", Value: Int(0)}}
			w.addInt("a", 1)
		}), ""},
		{"copied from nothing", aWrite(func(w *Write) { w.Set = []Assignment{{Name: "b", From: "a"}} }), "b: no value"},
		{"a text added", aWrite(func(w *Write) { w.add("a", S(secret)) }), "a: an addition of what is no number"},
		{"a change of the key", set(AttrPK, S(secret)), "a change of the key"},
		{"a removal of the key", aWrite(func(w *Write) { w.remove(AttrSK) }), "a change of the key"},
		{"an addition to the key", aWrite(func(w *Write) { w.addInt(AttrSK, 1) }), "a change of the key"},
		{"no name", set("", Int(1)), "an attribute's name of 0 bytes"},
		{"nothing", aWrite(func(*Write) {}), "a write that neither requires nor changes anything"},
		{"put and set", aWrite(func(w *Write) { w.Put = anItem; w.set("a", Int(1)) }), "a write that does more than one of putting, deleting and changing an item"},
		{"put and deleted", aWrite(func(w *Write) { w.Put, w.Delete = anItem, true }), "a write that does more than one of putting, deleting and changing an item"},
		{"any of nothing", aWrite(func(w *Write) { w.require(either()) }), "parentheses around nothing, or twice around the same"},
		{"parentheses twice", aWrite(func(w *Write) { w.require(either(both(exists("a"), exists("b")))) }), "parentheses around nothing, or twice around the same"},
		{"less than true", aWrite(func(w *Write) { w.require(compare(Less, "a", Bool(true))) }), "a: compared with a value that has no order"},
		{"is true", aWrite(func(w *Write) { w.require(compare(Equals, "a", Bool(true))) }), ""},
	} {
		err := c.w.Check()
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (!errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v", c.name, err)
		case err != nil && strings.Contains(err.Error(), secret):
			t.Errorf("%s: shown: %v", c.name, err)
		}
	}
}

func names(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint("a", i)
	}
	return names
}

// 4,096 bytes of one expression fit, and not one more.
func TestStrictExpression(t *testing.T) {
	for n, want := range map[int]string{
		700: "", // 4,095 bytes
		701: "bytes of an update expression: 4101, of which DynamoDB takes 4096",
	} {
		err := aWrite(func(w *Write) { w.Remove = names(n) }).Check()
		if want == "" && err != nil || want != "" && !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%d removals: %v", n, err)
		}
	}
}

// recording is a DB that takes everything.
type recording struct{ DB }

func (recording) Do(context.Context, *Write) (WriteResult, error) {
	return WriteResult{Applied: true}, nil
}
func (recording) Transact(context.Context, *Transaction) (TransactResult, error) {
	return TransactResult{Time: 1}, nil
}
func (recording) Load(context.Context, *Lookup) (LoadResult, error) { return LoadResult{Time: 1}, nil }
func (recording) Query(context.Context, *Query) (QueryResult, error) {
	return QueryResult{Time: 1}, nil
}

// What a Strict refuses does not reach the DB below, and says which request it was.
func TestStrict(t *testing.T) {
	db := Strict(recording{})
	removal := func(i int) *Write {
		return &Write{Operation: "remove", Key: ItemKey{fmt.Sprint(secret, i), StateSK}, Delete: true}
	}
	transaction := func(n int, more ...*Write) *Transaction {
		transaction := &Transaction{Operation: "use several"}
		for i := range n {
			transaction.Writes = append(transaction.Writes, removal(i))
		}
		transaction.Writes = append(transaction.Writes, more...)
		return transaction
	}
	large := func(n int) *Transaction {
		transaction := transaction(0)
		for i := range n {
			item := Item{AttrPK: S(fmt.Sprint(i)), AttrSK: S(StateSK), "a": S(strings.Repeat("v", 390_000))}
			transaction.Writes = append(transaction.Writes, insertWrite(item))
		}
		return transaction
	}
	lookup := func(n int, more ...ItemKey) *Lookup {
		lookup := &Lookup{Operation: "read items"}
		for i := range n {
			lookup.Keys = append(lookup.Keys, ItemKey{fmt.Sprint(secret, i), StateSK})
		}
		lookup.Keys = append(lookup.Keys, more...)
		return lookup
	}
	for _, c := range []struct {
		name    string
		request any
		want    string
	}{
		{"a write", removal(1), ""},
		{"a write without a key", &Write{Operation: "remove", Delete: true}, "remove: no request that the table can make: an empty partition key"},
		{"100 items", transaction(100), ""},
		{"101 items", transaction(101), "use several: no request that the table can make: items in a transaction: 101, of which DynamoDB takes 100"},
		{"an item twice", transaction(2, removal(1)), "use several: no request that the table can make: a transaction writes an item twice"},
		{"a bad write among others", transaction(2, &Write{Operation: "pin", Key: ItemKey{"a", "b"}}), "use several: pin: no request that the table can make: a write that neither requires nor changes anything"},
		{"no items", transaction(0), "use several: no request that the table can make: a transaction of nothing"},
		{"less than 4 MB", large(10), ""},
		{"more than 4 MB", large(11), "use several: no request that the table can make: bytes of the items in a transaction: 4290133, of which DynamoDB takes 4194304"},
		{"100 keys", lookup(100), ""},
		{"101 keys", lookup(101), "read items: no request that the table can make: keys in a batch read: 101, of which DynamoDB takes 100"},
		{"a key twice", lookup(2, ItemKey{secret + "1", StateSK}), "read items: no request that the table can make: a batch read has a key twice"},
		{"an empty key", lookup(2, ItemKey{secret, ""}), "read items: no request that the table can make: an empty sort key"},
		{"no keys", lookup(0), "read items: no request that the table can make: a lookup of nothing"},
		{"a query", Scope{Namespace: "n"}.query(), ""},
		{"a query of no one", &Query{Operation: "find", Index: "GSI4", Prefix: "a"}, "find: no request that the table can make: an empty GSI4 partition key"},
		{"a query of everything", &Query{Operation: "find", Index: "GSI4", PK: "n"}, "find: no request that the table can make: an empty GSI4 sort key"},
		{"a long query", &Query{Operation: "find", Index: "GSI4", PK: "n", Prefix: strings.Repeat("a", 1025)}, "find: no request that the table can make: a GSI4 sort key of 1025 bytes, of which DynamoDB takes 1024"},
	} {
		var err error
		var reached bool
		switch request := c.request.(type) {
		case *Write:
			var result WriteResult
			result, err = db.Do(t.Context(), request)
			reached = result.Applied
		case *Transaction:
			var result TransactResult
			result, err = db.Transact(t.Context(), request)
			reached = result.Time != 0
		case *Lookup:
			var result LoadResult
			result, err = db.Load(t.Context(), request)
			reached = result.Time != 0
		case *Query:
			var result QueryResult
			result, err = db.Query(t.Context(), request)
			reached = result.Time != 0
		}
		if got := fmt.Sprint(err); reached != (c.want == "") || c.want != "" && (got != c.want || !errors.Is(err, ErrRequest)) || c.want == "" && err != nil {
			t.Errorf("%s: reached the DB: %t; %v", c.name, reached, err)
		}
	}
}

// What a write leaves may be too much although the write is not.
func TestStrictResults(t *testing.T) {
	w := aWrite(func(w *Write) { w.addInt("a", 1) })
	for name, c := range map[string]struct {
		item Item
		want string
	}{
		"a sum":           {with("a", Int(5)), ""},
		"a sum too large": {with("a", N("1E126")), "a: a number of magnitude 10^126"},
		"a sum too long":  {with("a", N("1"+strings.Repeat("0", 40)+".5")), "a: a number of 42 digits, of which DynamoDB takes 38"},
		"an item too big": {Item{AttrPK: S("p"), AttrSK: S("s"), "a": Int(1), "b": S(strings.Repeat("v", maxItemSize))}, "bytes of an item: 409610, of which DynamoDB takes 409600"},
	} {
		err := w.CheckResult(c.item)
		if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Every write in memory is checked. That must not cost memory.
func TestCheckAllocatesNothing(t *testing.T) {
	w, item := aUse(t)
	if n := testing.AllocsPerRun(100, func() {
		if err := first(w.Check(), w.CheckResult(item)); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// aUse is a use of a quota whose window it opens.
func aUse(t testing.TB) (*Write, Item) {
	b := fifty(t)
	b.Limits = append(b.Limits[:2:2], b.Limits[50])
	use, _, err := quota.PlanUse(&b.Bucket, quota.Demand{b.Limits[0].Name: 1000}, 1796086800000)
	if err != nil || use == nil {
		t.Fatal(use, err)
	}
	return useWrite(PlannedUse{b, use}), b.Item
}

func BenchmarkCheck(b *testing.B) {
	w, item := aUse(b)
	b.ReportAllocs()
	for b.Loop() {
		if err := first(w.Check(), w.CheckResult(item)); err != nil {
			b.Fatal(err)
		}
	}
}
