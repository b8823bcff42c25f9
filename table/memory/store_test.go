package memory_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/shardquota/shardquota/internal/storetest"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/memory"
)

func TestConformance(t *testing.T) {
	storetest.Run(t, func(testing.TB) (table.Store, storetest.Raw) {
		store := memory.New()
		return store, raw{store}
	})
}

func TestClientConformance(t *testing.T) {
	storetest.RunClient(t, func(testing.TB) (table.Client, storetest.Raw) {
		store := memory.New()
		return store.Client(), raw{store}
	})
}

// raw reaches a memory store's items.
type raw struct{ store *memory.Store }

func (r raw) Put(_ testing.TB, item table.Item)          { r.store.Put(item) }
func (r raw) Delete(_ testing.TB, pk, sk string)         { r.store.Delete(pk, sk) }
func (r raw) Get(_ testing.TB, pk, sk string) table.Item { return r.store.Get(pk, sk) }
func (r raw) Items(testing.TB) []table.Item              { return r.store.Items() }

// A table that lies over another must be used as if the items below were its
// own. The suite puts an item below where the table on top has not seen it.
func TestConformanceOverAnotherTable(t *testing.T) {
	storetest.Run(t, func(testing.TB) (table.Store, storetest.Raw) {
		o := &overlay{below: memory.New(), seen: map[[2]string]bool{}}
		o.top = memory.Over(o.load)
		return o.top, o
	})
}

// But for finding: a table that lies over another does not know what it has not
// seen.
func TestClientConformanceOverAnotherTable(t *testing.T) {
	storetest.RunClient(t, func(testing.TB) (table.Client, storetest.Raw) {
		o := &overlay{below: memory.New(), seen: map[[2]string]bool{}}
		o.top = memory.Over(o.load)
		return seeing{o.top.Client(), o}, o
	})
}

// seeing is an overlay's client that has seen everything when it is to find
// something.
type seeing struct {
	*memory.Client
	overlay *overlay
}

func (s seeing) Find(ctx context.Context, scope table.Scope) ([]table.Key, error) {
	if err := s.see(ctx); err != nil {
		return nil, err
	}
	return s.Client.Find(ctx, scope)
}

func (s seeing) FindLevels(ctx context.Context, namespace, resource string) ([]table.ItemKey, error) {
	if err := s.see(ctx); err != nil {
		return nil, err
	}
	return s.Client.FindLevels(ctx, namespace, resource)
}

func (s seeing) see(ctx context.Context) error {
	for _, item := range s.overlay.below.Items() {
		pk, sk := item.Key()
		if _, err := s.Items(ctx, []table.ItemKey{{PK: pk, SK: sk}}); err != nil {
			return err
		}
	}
	return nil
}

type overlay struct {
	top, below *memory.Store

	mu   sync.Mutex
	seen map[[2]string]bool
}

func (o *overlay) load(_ context.Context, pk, sk string) (table.Item, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seen[[2]string{pk, sk}] = true
	return o.below.Get(pk, sk), nil
}

// on returns the table that holds the truth about a key.
func (o *overlay) on(pk, sk string) *memory.Store {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.seen[[2]string{pk, sk}] {
		return o.top
	}
	return o.below
}

func (o *overlay) Put(_ testing.TB, item table.Item)          { o.on(item.Key()).Put(item) }
func (o *overlay) Delete(_ testing.TB, pk, sk string)         { o.on(pk, sk).Delete(pk, sk) }
func (o *overlay) Get(_ testing.TB, pk, sk string) table.Item { return o.on(pk, sk).Get(pk, sk) }

func (o *overlay) Items(t testing.TB) []table.Item {
	var items []table.Item
	for _, store := range []*memory.Store{o.top, o.below} {
		for _, item := range store.Items() {
			if o.on(item.Key()) == store {
				items = append(items, item)
			}
		}
	}
	return items
}

var group = table.Group{Namespace: "ns", Entity: "ent", Resource: "res"}

func item(shard int, capacity string) table.Item {
	return table.Item{
		"PK": table.S(group.At(shard).PK()), "SK": table.S(table.StateSK),
		"b_rpm_tk": table.N("5"), "b_rpm_cp": table.N(capacity),
	}
}

func TestWritesStayOverTheOtherTable(t *testing.T) {
	below, loads := memory.New(), 0
	below.Put(item(0, "10"))
	top := memory.Over(func(_ context.Context, pk, sk string) (table.Item, error) {
		loads++
		return below.Get(pk, sk), nil
	})
	for range 3 {
		if _, err := top.Double(t.Context(), group, 1); err != nil {
			t.Fatal(err)
		}
		if _, err := top.Read(t.Context(), group.At(7)); err != nil {
			t.Fatal(err)
		}
	}
	if loads != 2 {
		t.Errorf("%d loads, not one for each of two items", loads)
	}
	if got := table.ReadableShards(group, top.Get); len(got) != 1 || got[0].ShardCount != 2 {
		t.Errorf("on top: %v", got)
	}
	if got := table.ReadableShards(group, below.Get); len(got) != 1 || got[0].ShardCount != 1 {
		t.Errorf("below: %v", got)
	}
	top.Delete(group.At(0).PK(), table.StateSK)
	if b, err := top.Read(t.Context(), group.At(0)); b != nil || err != nil {
		t.Errorf("a deleted item was loaded again: %v, %v", b, err)
	}
}

// What was written while an item was being loaded is newer than what is loaded.
func TestLoadDoesNotUndoWrite(t *testing.T) {
	var store *memory.Store
	store = memory.Over(func(context.Context, string, string) (table.Item, error) {
		store.Put(item(0, "20"))
		return item(0, "10"), nil
	})
	b, err := store.Read(t.Context(), group.At(0))
	if err != nil || b.Limit("rpm").Base.Capacity != 20 {
		t.Errorf("got %+v, %v", b, err)
	}
}

func TestLoadErrorChangesNothing(t *testing.T) {
	broken := errors.New("broken")
	store := memory.Over(func(context.Context, string, string) (table.Item, error) { return nil, broken })
	if _, err := store.Double(t.Context(), group, 1); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	if items := store.Items(); len(items) != 0 {
		t.Errorf("items: %v", items)
	}
}

func TestItemsAreSortedAndCopies(t *testing.T) {
	store := memory.New()
	for _, key := range [][2]string{{"b", "1"}, {"a", "2"}, {"a", "10"}, {"a#", "0"}} {
		store.Put(table.Item{"PK": table.S(key[0]), "SK": table.S(key[1])})
	}
	store.Delete("a#", "0")
	var keys []string
	for _, item := range store.Items() {
		pk, sk := item.Key()
		keys = append(keys, pk+" "+sk)
		item["x"] = table.S("y")
	}
	if want := []string{"a 10", "a 2", "b 1"}; !slices.Equal(keys, want) {
		t.Errorf("got %q", keys)
	}
	if got := store.Get("b", "1"); len(got) != 2 {
		t.Errorf("the table holds what was done to a copy: %v", got)
	}
	if got := store.Get("a#", "0"); got != nil {
		t.Errorf("a deleted item: %v", got)
	}
}

func TestShardsLeavesOutWhatCannotBeRead(t *testing.T) {
	store := memory.New()
	for shard, capacity := range map[int]string{3: "10", 0: "10", 31: "10", 4: "x", 32: "10"} {
		store.Put(item(shard, capacity))
	}
	var shards []int
	for _, b := range table.ReadableShards(group, store.Get) {
		shards = append(shards, b.Shard)
	}
	if want := []int{0, 3, 31}; !slices.Equal(shards, want) {
		t.Errorf("got %v", shards)
	}
}

// Every answer carries the time that the test sets.
func TestAnswersCarryTheTime(t *testing.T) {
	store, now := memory.New(), int64(5_000)
	store.Now = func() int64 { return now }
	key := table.ItemKey{PK: "a", SK: "b"}
	write := &table.Write{Key: key, Require: []table.Condition{{Op: table.Absent, Name: "n"}}, Add: []table.Addition{{Name: "n", Value: table.Int(1)}}}
	answer := func(at int64, err error) {
		t.Helper()
		if now++; err != nil || at != now-1 {
			t.Errorf("answered at %d, not %d: %v", at, now-1, err)
		}
	}
	for range 2 { // applied, and then refused
		result, err := store.Do(t.Context(), write)
		answer(result.Time, err)
		transaction, err := store.Transact(t.Context(), &table.Transaction{Writes: []*table.Write{write}})
		answer(transaction.Time, err)
	}
	loaded, err := store.Load(t.Context(), &table.Lookup{Keys: []table.ItemKey{key}})
	answer(loaded.Time, err)
	found, err := store.Query(t.Context(), &table.Query{Index: "GSI3", PK: "n/ENTITY#e", Prefix: "BUCKET#"})
	answer(found.Time, err)
}

// An item is in an index by the index's keys, both of them, whatever its own key
// says.
func TestAnItemWithoutAnIndexKeyIsNotInTheIndex(t *testing.T) {
	store := memory.New()
	for shard, without := range []string{"", table.AttrGSI3PK, table.AttrGSI3SK, table.AttrGSI4PK} {
		item := wholeItem(shard, 4)
		for name, value := range group.At(shard).Keys() {
			item[name] = table.S(value)
		}
		delete(item, without)
		store.Put(item)
	}
	for scope, want := range map[table.Scope][]int{
		{Namespace: group.Namespace, Entity: group.Entity}: {0, 3},
		{Namespace: group.Namespace}:                       {0, 1, 2},
	} {
		keys, err := store.Client().Find(t.Context(), scope)
		var shards []int
		for _, key := range keys {
			shards = append(shards, key.Shard)
		}
		if slices.Sort(shards); err != nil || !slices.Equal(shards, want) {
			t.Errorf("%+v: found shards %v, not %v: %v", scope, shards, want, err)
		}
	}
}
