package memory_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/shardquota/shardquota/internal/storetest"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/memory"
)

// witness is what a watched table told, and a copy of it that is made of that
// alone.
type witness struct {
	mu     sync.Mutex
	told   []report
	copied map[[2]string]table.Item
	wrong  []string
}

type report struct {
	old, new    table.Item
	was, became string // as they were then
}

func line(item table.Item) string {
	if item == nil {
		return "none"
	}
	text, err := table.FormatItem(item)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func (w *witness) tell(old, new table.Item) {
	w.mu.Lock()
	defer w.mu.Unlock()
	pk, sk := old.Key()
	if new != nil {
		pk, sk = new.Key()
	}
	r := report{old, new, line(old), line(new)}
	if before := line(w.copied[[2]string{pk, sk}]); before != r.was {
		w.wrong = append(w.wrong, fmt.Sprintf("write %d: %s was before, not %s", len(w.told), r.was, before))
	}
	w.told, w.copied[[2]string{pk, sk}] = append(w.told, r), new
}

// check fails the test where reports do not follow on each other, or where an
// item that was told of has changed since.
func (w *witness) check(t *testing.T) {
	t.Helper()
	for _, text := range w.wrong {
		t.Error(text)
	}
	for i, r := range w.told {
		if line(r.old) != r.was || line(r.new) != r.became {
			t.Errorf("write %d: %s and %s have become %s and %s", i, r.was, r.became, line(r.old), line(r.new))
		}
	}
}

func (w *witness) Items(testing.TB) []table.Item {
	var items []table.Item
	for _, item := range w.copied {
		if item != nil {
			items = append(items, item)
		}
	}
	return items
}

// watchedRaw is a table whose items are those that were told of.
type watchedRaw struct {
	raw
	*witness
}

func (r watchedRaw) Items(t testing.TB) []table.Item { return r.witness.Items(t) }

func watched(store *memory.Store) *witness {
	w := &witness{copied: map[[2]string]table.Item{}}
	store.Watch(w.tell)
	return w
}

// Whatever is done to a table, what was told of it makes an equal one.
func TestWatchTellsAll(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds, which -short leaves out")
	}
	for seed := range uint64(3) {
		var w *witness
		storetest.Differential(t, seed, 1000, func(testing.TB) (table.Client, storetest.Raw) {
			store := memory.New()
			return store.Client(), raw{store}
		}, func(testing.TB) (table.Client, storetest.Raw) {
			store := memory.New()
			w = watched(store)
			return store.Client(), watchedRaw{raw{store}, w}
		})
		w.check(t)
		if len(w.told) < 300 {
			t.Errorf("seed %d: %d writes", seed, len(w.told))
		}
	}
}

// Writes at once are told of one after the other.
func TestWatchTellsInOrder(t *testing.T) {
	store := memory.New()
	store.Put(wholeItem(0, 1))
	w := watched(store)
	w.tell(nil, store.Get(group.At(0).PK(), table.StateSK))
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for range 50 {
				_, err := store.Client().Charge(t.Context(), group.At(0), table.FastCharge{Amounts: map[string]int64{"calls": 2}, Now: 1})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	w.check(t)
	left, _ := w.Items(t)[0].Int("b_wcu_tk")
	if len(w.told) != 1+9 || left != 0 {
		t.Errorf("%d writes, %d left", len(w.told), left)
	}
}

// Every kind of write is told of once for each item that it changes, and none
// that is refused.
func TestWatchTellsOfEveryWrite(t *testing.T) {
	store := memory.New()
	w, c := watched(store), store.Client()
	zero, other := wholeItem(0, 2), wholeItem(1, 1)
	store.Put(zero)
	store.Put(other)
	read := func() *table.Bucket {
		b, err := store.Read(t.Context(), group.At(0))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	pk := group.At(0).PK()
	w.told = nil
	for _, write := range []struct {
		name string
		do   func(ctx context.Context) (any, error)
		want string // what was written, by the last part of its key
	}{
		{"pass", func(ctx context.Context) (any, error) {
			b := read()
			return store.Pass(ctx, b, &quota.Pass{RefilledAt: b.RefilledAt + 1, ExpectRefilledAt: b.RefilledAt, ExpectValidUntil: b.ValidUntil, ShardCount: 2})
		}, "0"},
		{"pass that is lost", func(ctx context.Context) (any, error) {
			return store.Pass(ctx, read(), &quota.Pass{RefilledAt: 9, ExpectRefilledAt: 7, ShardCount: 2})
		}, ""},
		{"freeze", func(ctx context.Context) (any, error) {
			return nil, store.Freeze(ctx, group.At(0), []quota.Freeze{{Limit: "calls", Grant: 2}})
		}, "0"},
		{"usage", func(ctx context.Context) (any, error) {
			return store.AddUsage(ctx, table.Usage{Key: table.UsageKey{Group: group, Window: "hourly", Start: "2026-12-01T00:00:00Z"}, Events: 1})
		}, "hourly"},
		{"raise", func(ctx context.Context) (any, error) { return store.RaiseAndRead(ctx, group, 2, 1000) }, "1"},
		{"raise of nobody", func(ctx context.Context) (any, error) { return store.RaiseAndRead(ctx, group, 2, 1000) }, ""},
		{"double", func(ctx context.Context) (any, error) { return store.Double(ctx, group, 2) }, "0"},
		{"double again", func(ctx context.Context) (any, error) { return store.Double(ctx, group, 2) }, ""},
		{"create, off a donor", func(ctx context.Context) (any, error) {
			b, err := table.DecodeBucket(wholeItem(2, 4))
			if err != nil {
				return nil, err
			}
			return store.Create(ctx, table.Creation{Bucket: b, Moves: []quota.Funding{{
				Limit: "calls", Source: quota.Move, Amount: 5, Donor: 0, Guard: quota.Guard{Grant: 2, ShardCount: 4},
			}}})
		}, "0 2"},
		{"take", func(ctx context.Context) (any, error) {
			return c.Charge(ctx, group.At(0), table.FastCharge{Amounts: map[string]int64{"calls": 5}, Now: 1})
		}, "0"},
		{"take of too much", func(ctx context.Context) (any, error) {
			return c.Charge(ctx, group.At(0), table.FastCharge{Amounts: map[string]int64{"calls": 5000}, Now: 1})
		}, ""},
		{"use", func(ctx context.Context) (any, error) {
			b := read()
			use, _, err := quota.PlanUse(&b.Bucket, quota.Demand{"calls": 1}, 5000)
			if err != nil {
				return nil, err
			}
			return c.Use(ctx, b, use)
		}, "0"},
		{"settle", func(ctx context.Context) (any, error) {
			return c.Reconcile(ctx, read(), []quota.Adjustment{{Limit: "calls", Consumed: -1, Balance: 1, Max: new(int64(999))}})
		}, "0"},
		{"settle of too much", func(ctx context.Context) (any, error) {
			return c.Reconcile(ctx, read(), []quota.Adjustment{{Limit: "calls", Consumed: -1, Balance: 1, Max: new(int64(0))}})
		}, ""},
		{"tell", func(ctx context.Context) (any, error) {
			return c.PropagateWindow(ctx, group.At(0), table.OpenedWindow{Limit: "s", Start: 9000, Length: 1000})
		}, "0"},
		{"tell again", func(ctx context.Context) (any, error) {
			return c.PropagateWindow(ctx, group.At(0), table.OpenedWindow{Limit: "s", Start: 9000, Length: 1000})
		}, ""},
		{"insert", func(ctx context.Context) (any, error) { return c.Insert(ctx, wholeItem(7, 8)) }, "7"},
		{"insert again", func(ctx context.Context) (any, error) { return c.Insert(ctx, wholeItem(7, 8)) }, ""},
		{"amend", func(ctx context.Context) (any, error) {
			return c.Amend(ctx, pk, table.StateSK, table.Amendment{Remove: []string{"vu"}})
		}, "0"},
		{"amend what is otherwise", func(ctx context.Context) (any, error) {
			return c.Amend(ctx, pk, table.StateSK, table.Amendment{Expect: []table.NamedValue{{Name: "rf"}}})
		}, ""},
		{"remove", func(ctx context.Context) (any, error) { return c.Remove(ctx, group.At(7).PK(), table.StateSK) }, "7"},
		{"remove again", func(ctx context.Context) (any, error) { return c.Remove(ctx, group.At(7).PK(), table.StateSK) }, ""},
		{"put", func(context.Context) (any, error) { store.Put(wholeItem(1, 1)); return nil, nil }, "1"},
		{"delete", func(context.Context) (any, error) { store.Delete(group.At(1).PK(), table.StateSK); return nil, nil }, "1"},
		{"reads", func(ctx context.Context) (any, error) {
			_ = store.Items()
			return c.Items(ctx, []table.ItemKey{{PK: pk, SK: table.StateSK}})
		}, ""},
	} {
		from := len(w.told)
		if _, err := write.do(t.Context()); err != nil {
			t.Errorf("%s: %v", write.name, err)
		}
		var got []string
		for _, r := range w.told[from:] {
			item := r.new
			if item == nil {
				item = r.old
			}
			pk, sk := item.Key()
			key := pk + sk
			if sk == table.StateSK {
				key = pk
			}
			got = append(got, key[strings.LastIndexByte(key, '#')+1:])
			if r.was == r.became {
				t.Errorf("%s: nothing has changed", write.name)
			}
		}
		slices.Sort(got)
		if text := strings.Join(got, " "); text != write.want {
			t.Errorf("%s: told of %q, not %q", write.name, text, write.want)
		}
	}
	w.check(t)
}

// wholeItem is a bucket of a shard with a quota and a session.
func wholeItem(shard, count int) table.Item {
	item := item(shard, "10")
	for name, value := range map[string]string{
		"shard_count": fmt.Sprint(count), "rf": "1000", "vu": "900000",
		"b_calls_tk": "800", "b_calls_cp": "1000", "b_calls_tc": "0", "b_calls_ra": "0", "b_calls_rp": "1000",
		"b_s_tk": "800", "b_s_cp": "1000", "b_s_tc": "0", "b_s_ra": "0", "b_s_rp": "1000", "b_s_rsa": "1",
		"b_wcu_tk": "9000", "b_wcu_cp": "9000", "b_wcu_tc": "0", "b_wcu_ra": "9000", "b_wcu_rp": "1000",
	} {
		item[name] = table.N(value)
	}
	item["b_calls_rsched"] = table.S("1m0h0")
	return item
}
