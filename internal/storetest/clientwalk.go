package storetest

import (
	"fmt"
	"maps"
	"slices"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// clientAnswers are those of a Client's own operations.
var clientAnswers = []string{
	"take true", "take false", "use true", "use false", "opened true", "settle true", "settle false", "lift true", "lift false",
	"tell true", "tell false", "insert true", "insert false", "amend true", "amend false", "items true", "items false", "find true", "find false",
}

// walkLimits are the limits of the walk's items, and one that none has.
var walkLimits = []string{"tokens.in", "calls-day", "b_x_tk", "sess", "none"}

// clientStep is one of a Client's own operations.
func (w *walk) clientStep() step {
	switch n := w.random.IntN(100); {
	case n < 25:
		return w.takeStep()
	case n < 55:
		return w.useStep()
	case n < 70:
		return w.settleStep()
	case n < 80:
		return w.tellStep()
	case n < 86:
		return w.insertStep()
	case n < 92:
		return w.amendStep()
	case n < 94:
		return w.replaceStep()
	case n < 97:
		return w.itemsStep()
	default:
		return w.findStep()
	}
}

// demand is a random demand of some limits of a bucket, little enough to be
// there now and then.
func (w *walk) demand(names []string) map[string]int64 {
	demand := map[string]int64{}
	for _, name := range names {
		if w.chance(40) {
			demand[name] = w.random.Int64N(1500)
		}
	}
	return demand
}

func (w *walk) takeStep() step {
	key, names := w.key(), walkLimits[:4]
	if w.chance(10) {
		names = walkLimits
	}
	take := table.FastCharge{Amounts: w.demand(names), Now: w.time() - int64(w.random.IntN(2)), Hot: w.chance(30), Free: w.chance(15)}
	return step{"take", func(store table.Client, _ Raw) string {
		taken, err := store.Charge(w.Context(), key, take)
		w.count("take", taken.Applied)
		return answer(err, taken.Item, taken.Applied)
	}}
}

// useStep makes a use that the rules planned, or one of before once more, now and
// then with something about it changed.
func (w *walk) useStep() step {
	p, ok := w.plannedUse()
	if !ok && len(w.uses) == 0 {
		return w.putStep()
	}
	if !ok || len(w.uses) > 0 && w.chance(15) {
		p = w.uses[max(0, len(w.uses)-1-w.random.IntN(3))]
	}
	w.uses = append(w.uses, p)
	if w.chance(25) {
		w.bendUse(&p)
	}
	if other := w.uses[w.random.IntN(len(w.uses))]; other.bucket.Key != p.bucket.Key && w.chance(30) {
		return w.useAllStep(table.PlannedUse{Bucket: p.bucket, Use: p.use}, table.PlannedUse{Bucket: other.bucket, Use: other.use})
	}
	return step{"use", func(store table.Client, _ Raw) string {
		taken, err := store.Use(w.Context(), p.bucket, p.use)
		w.count("use", taken.Applied)
		w.count("opened", taken.Applied && len(p.use.Opens()) > 0)
		return answer(err, taken.Item, taken.Applied)
	}}
}

// useAllStep makes two uses at once.
func (w *walk) useAllStep(uses ...table.PlannedUse) step {
	return step{"use all", func(store table.Client, _ Raw) string {
		applied, err := store.UseAll(w.Context(), uses)
		w.count("use all", applied)
		return answer(err, nil, applied)
	}}
}

type useStep struct {
	bucket *table.Bucket
	use    *quota.Use
}

func (w *walk) plannedUse() (useStep, bool) {
	b := w.stored(w.key())
	if b == nil || b.Broken != nil {
		return useStep{}, false
	}
	var names []string
	for i := range b.Limits {
		if name := b.Limits[i].Name; name != quota.WriteMeter {
			names = append(names, name)
		}
	}
	use, _, err := quota.PlanUse(&b.Bucket, w.demand(names), w.time())
	if err != nil {
		w.Fatalf("plan a use: %v", err)
	}
	return useStep{b, use}, use != nil
}

// bendUse changes something about a use, not in place.
func (w *walk) bendUse(p *useStep) {
	use := &quota.Use{Pass: p.use.Pass, Charges: slices.Clone(p.use.Charges)}
	if w.chance(50) {
		bent := passStep{p.bucket, use.Pass}
		w.bend(&bent)
		use.Pass = bent.pass
	} else if len(use.Charges) > 0 {
		take := &use.Charges[w.random.IntN(len(use.Charges))]
		take.Least = pick(w, nil, new(w.amount()))
		take.Debit = pick(w, 0, take.Debit, w.random.Int64N(500))
	}
	p.use = use
}

// settleStep settles a use that some bucket of before was left by.
func (w *walk) settleStep() step {
	b := w.stored(w.key())
	if b == nil {
		return w.putStep()
	}
	used := quota.Demand{}
	for _, name := range slices.Sorted(maps.Keys(w.demand(walkLimits))) {
		used[name] = w.random.Int64N(4000) - 2500
	}
	corrections := quota.Reconcile(&b.Bucket, &b.Bucket, used, w.time())
	if w.chance(40) { // the bucket is no more as it was read
		w.settled = append(w.settled, b)
		b = w.settled[w.random.IntN(len(w.settled))]
	}
	for i := range corrections {
		if w.chance(5) {
			corrections[i].Max = pick(w, nil, new(w.amount()))
		}
	}
	return step{"settle", func(store table.Client, _ Raw) string {
		taken, err := store.Reconcile(w.Context(), b, corrections)
		w.count("settle", taken.Applied)
		if table.Lifts(corrections) {
			w.count("lift", taken.Applied)
		}
		return answer(err, taken.Item, taken.Applied)
	}}
}

func (w *walk) tellStep() step {
	key, window := w.key(), table.OpenedWindow{Limit: "sess", Start: w.time() + pick(w, int64(0), 7200_000), Length: pick(w, int64(7200_000), 1800_000)}
	return step{"tell", func(store table.Client, _ Raw) string {
		told, err := store.PropagateWindow(w.Context(), key, window)
		w.count("tell", told)
		return answer(err, nil, told)
	}}
}

func (w *walk) insertStep() step {
	item := w.item(w.key(), 2)
	if len(w.inserted) > 0 && w.chance(50) {
		item = w.inserted[len(w.inserted)-1]
	}
	w.inserted = append(w.inserted, item)
	return step{"insert", func(store table.Client, _ Raw) string {
		inserted, err := store.Insert(w.Context(), item)
		w.count("insert", inserted)
		return answer(err, nil, inserted)
	}}
}

func (w *walk) amendStep() step {
	pk, name := w.key().PK(), pick(w, "x_unknown", "b_tokens.in_cp", "vu", "ttl", "disabled")
	amendment := table.Amendment{
		Set:    build(table.Item{}, attrs{pick(w, "y_unknown", "b_calls-day_cp"): w.random.IntN(8000)}),
		Remove: []string{name},
	}
	if w.chance(50) {
		amendment.Expect = []table.NamedValue{{Name: name, Value: pick(w, nil, w.raws[0].Get(w, pk, table.StateSK)[name], table.S("kept"), table.N("0.0"))}}
	}
	return step{"amend", func(store table.Client, _ Raw) string {
		taken, err := store.Amend(w.Context(), pk, table.StateSK, amendment)
		w.count("amend", taken.Applied)
		return answer(err, taken.Item, taken.Applied)
	}}
}

func (w *walk) replaceStep() step {
	key, item := w.key(), w.item(w.key(), 2)
	remove, expect := w.chance(30) && key.Shard > 0, []table.NamedValue{}
	if w.chance(30) {
		expect = append(expect, table.NamedValue{Name: "disabled", Value: pick(w, nil, w.raws[0].Get(w, key.PK(), table.StateSK)["disabled"])})
	}
	return step{"put", func(store table.Client, raw Raw) string {
		if remove {
			removed, err := store.Remove(w.Context(), key.PK(), table.StateSK, expect...)
			return answer(err, nil, removed)
		}
		raw.Put(w, item)
		return ""
	}}
}

func (w *walk) itemsStep() step {
	var keys []table.ItemKey
	for range w.random.IntN(5) {
		keys = append(keys, table.ItemKey{PK: w.key().PK(), SK: table.StateSK})
	}
	return step{"items", func(store table.Client, _ Raw) string {
		items, err := store.Items(w.Context(), keys)
		var text []string
		for _, item := range items {
			w.count("items", item != nil)
			text = append(text, answer(nil, item))
		}
		return answer(err, nil, text)
	}}
}

func (w *walk) findStep() step {
	scope := table.Scope{Namespace: "n5", Entity: pick(w, "", "e-1", "e.2", "e"), Resource: pick(w, "", "r/x", "r")}
	return step{"find", func(store table.Client, _ Raw) string {
		keys, err := store.Find(w.Context(), scope)
		w.count("find", len(keys) > 0)
		found := map[string]bool{}
		for _, key := range keys {
			found[key.PK()] = true
		}
		return answer(err, nil, fmt.Sprint(len(keys), slices.Sorted(maps.Keys(found))))
	}}
}
