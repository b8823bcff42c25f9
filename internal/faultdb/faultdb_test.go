package faultdb_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/shardquota/shardquota/internal/faultdb"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/memory"
)

func write(i int) *table.Write {
	return &table.Write{
		Operation: "use", Key: table.ItemKey{PK: fmt.Sprint("item", i), SK: "#"}, Once: true,
		Set: []table.Assignment{{Name: "GSI4PK", Value: table.S("ns")}, {Name: "GSI4SK", Value: table.S(fmt.Sprintf("BUCKET#%02d", i))}},
	}
}

// errs makes so many requests of each kind, and returns what became of them.
func errs(ctx context.Context, db table.DB, n int) (texts []string) {
	note := func(err error) {
		kind := "done"
		switch {
		case errors.Is(err, table.ErrConflict):
			kind = "conflict"
		case errors.Is(err, table.ErrThrottled):
			kind = "throttled"
		case errors.Is(err, table.ErrRetry):
			kind = "lost"
		}
		texts = append(texts, kind)
	}
	for i := range n {
		_, err := db.Do(ctx, write(i))
		note(err)
		_, err = db.Transact(ctx, &table.Transaction{Operation: "use several", Writes: []*table.Write{write(i), write(i + n)}})
		note(err)
		_, err = db.Load(ctx, &table.Lookup{Operation: "read", Keys: []table.ItemKey{write(i).Key}})
		note(err)
		_, err = db.Query(ctx, &table.Query{Operation: "find", Index: "GSI4", PK: "ns", Prefix: fmt.Sprint("BUCKET#", i)})
		note(err)
	}
	return texts
}

func counts(texts []string) map[string]int {
	counts := map[string]int{}
	for _, text := range texts {
		counts[text]++
	}
	return counts
}

// Requests fail about as often as they are to, and in the same way each time.
func TestRates(t *testing.T) {
	rates := faultdb.Rates{Throttle: 0.1, Conflict: 0.2, Lost: 0.3}
	first := errs(t.Context(), faultdb.New(memory.New(), 7, rates), 500)
	if again := errs(t.Context(), faultdb.New(memory.New(), 7, rates), 500); !slices.Equal(first, again) {
		t.Error("the same seed gives other faults")
	}
	if other := errs(t.Context(), faultdb.New(memory.New(), 8, rates), 500); slices.Equal(first, other) {
		t.Error("another seed gives the same faults")
	}
	got := counts(first)
	// Of 2,000 requests, a tenth is throttled. Of the 900 writes that are left, 180 meet
	// a transaction. Of 720, 216 answers are lost.
	for kind, want := range map[string]int{"throttled": 200, "conflict": 180, "lost": 216} {
		if got[kind] < want*8/10 || got[kind] > want*12/10 {
			t.Errorf("%s: %d, not about %d", kind, got[kind], want)
		}
	}
	if got := counts(errs(t.Context(), faultdb.New(memory.New(), 7, faultdb.Rates{}), 100)); got["done"] != 400 {
		t.Errorf("without faults: %v", got)
	}
}

// A write is carried out if, and only if, its answer came or was lost.
func TestWhatLands(t *testing.T) {
	for name, c := range map[string]struct {
		rates faultdb.Rates
		lands bool
	}{
		"throttled": {faultdb.Rates{Throttle: 1}, false}, "conflict": {faultdb.Rates{Conflict: 1}, false}, "lost": {faultdb.Rates{Lost: 1}, true},
	} {
		store := memory.New()
		db := faultdb.New(store, 1, c.rates)
		result, err := db.Do(t.Context(), write(1))
		if err == nil || result.Applied || !errors.Is(err, table.ErrRetry) || errors.Is(err, table.ErrThrottled) == c.lands {
			t.Errorf("%s: %+v, %v", name, result, err)
		}
		_, err = db.Transact(t.Context(), &table.Transaction{Operation: "use several", Writes: []*table.Write{write(2)}})
		if err == nil || errors.Is(err, table.ErrConflict) != (name == "conflict") || errors.Is(err, table.ErrThrottled) == c.lands {
			t.Errorf("%s: %v", name, err)
		}
		if stored := len(store.Items()); (stored == 2) != c.lands || (stored == 0) == c.lands {
			t.Errorf("%s: %d items are stored", name, stored)
		}
		if strings.Contains(err.Error(), "item2") {
			t.Errorf("%s: %v", name, err)
		}
		db.Set(faultdb.Rates{})
		if result, err := db.Do(t.Context(), write(1)); err != nil || !result.Applied {
			t.Errorf("%s, then calm: %+v, %v", name, result, err)
		}
	}
}

// An index shows what was stored so many writes ago: neither what came since, nor
// that something went. The table itself does not lag.
func TestLag(t *testing.T) {
	store := memory.New()
	db := faultdb.New(store, 1, faultdb.Rates{Lag: 3})
	found := func() (pks []string) {
		result, err := db.Query(t.Context(), &table.Query{Operation: "find", Index: "GSI4", PK: "ns", Prefix: "BUCKET#"})
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range result.Keys {
			pks = append(pks, key.PK)
		}
		slices.Sort(pks)
		return pks
	}
	do := func(w *table.Write) {
		if result, err := db.Do(t.Context(), w); err != nil || !result.Applied {
			t.Fatal(result, err)
		}
	}
	for i := range 5 {
		do(write(i))
	}
	if got := found(); !slices.Equal(got, []string{"item0", "item1"}) {
		t.Errorf("after five: %v", got)
	}
	do(&table.Write{Operation: "remove", Key: write(0).Key, Delete: true})
	do(write(1)) // as it was
	if got := found(); !slices.Equal(got, []string{"item0", "item1", "item2", "item3"}) {
		t.Errorf("after a removal: %v", got)
	}
	if store.Get("item0", "#") != nil {
		t.Error("what was removed is there")
	}
	db.Set(faultdb.Rates{})
	if got := found(); !slices.Equal(got, []string{"item1", "item2", "item3", "item4"}) {
		t.Errorf("in the end: %v", got)
	}
}

// Keys that are left unread come when they are asked for again.
func TestUnread(t *testing.T) {
	store := memory.New()
	over := &table.Table{DB: faultdb.New(store, 1, faultdb.Rates{Unread: 0.7}), Reads: 30}
	var keys []table.ItemKey
	for i := range 40 {
		w := write(i)
		keys = append(keys, w.Key)
		if _, err := store.Do(t.Context(), w); err != nil {
			t.Fatal(err)
		}
	}
	items, err := over.Items(t.Context(), keys)
	if err != nil || slices.ContainsFunc(items, func(item table.Item) bool { return item == nil }) {
		t.Errorf("got %v, %v", items, err)
	}
	over.Reads = 1
	if _, err := over.Items(t.Context(), keys); !errors.Is(err, table.ErrRetry) {
		t.Errorf("asked once: %v", err)
	}
}
