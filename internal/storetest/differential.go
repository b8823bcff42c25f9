package storetest

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// checkEvery is how many steps are made between two comparisons of the tables.
const checkEvery = 25

// Answers is how often each kind of answer was given, by both tables together.
type Answers map[string]int

// Differential makes the same random steps on two tables, and fails the test
// where they answer differently or end up with different items. The steps
// follow from the seed and from what the first table holds.
func Differential(t *testing.T, seed uint64, steps int, one, other OpenClient) Answers {
	t.Helper()
	w := &walk{T: t, random: rand.New(rand.NewPCG(seed, 0)), answers: Answers{}}
	w.stores[0], w.raws[0] = one(t)
	w.stores[1], w.raws[1] = other(t)
	for i := range steps {
		s := w.next()
		w.done = append(w.done, s.name)
		if got, want := s.do(w.stores[0], w.raws[0]), s.do(w.stores[1], w.raws[1]); got != want {
			w.fail(seed, i, fmt.Sprintf("the answers differ:\n%s\n---\n%s", got, want))
		}
		if i%checkEvery == 0 || i == steps-1 {
			if diff := diffItems(w.raws[0].Items(t), w.raws[1].Items(t)); diff != "" {
				w.fail(seed, i, "the tables differ (-first +second):\n"+diff)
			}
		}
	}
	return w.answers
}

// Check fails the test where an answer that an operation can give was never
// given: walks as dull as that show nothing.
func (a Answers) Check(t testing.TB) {
	t.Helper()
	for _, answer := range slices.Concat(writeAnswers, clientAnswers, []string{
		"read true", "read false", "usage true", "usage false", "pass true", "pass false",
		"double true", "double false", "raise true", "raise false",
		"create 1", "create 2", "create 3", "create 4",
	}) {
		if a[answer] == 0 {
			t.Errorf("never happened: %s; %v", answer, a)
		}
	}
}

// walk is one random sequence of steps.
type walk struct {
	*testing.T
	random *rand.Rand
	stores [2]table.Client
	raws   [2]Raw

	done     []string // the names of the steps made
	answers  Answers
	passes   []passStep
	creation []table.Creation
	uses     []useStep
	settled  []*table.Bucket
	inserted []table.Item
}

type passStep struct {
	bucket *table.Bucket
	pass   *quota.Pass
}

// step is one operation; do makes it on one table and renders the answer.
type step struct {
	name string
	do   func(table.Client, Raw) string
}

func (w *walk) fail(seed uint64, i int, text string) {
	w.Helper()
	w.Fatalf("seed %d, step %d: %s\nthe last steps: %s", seed, i, text, strings.Join(w.done[max(0, i-checkEvery):], ", "))
}

func (w *walk) count(kind string, answer any) { w.answers[fmt.Sprintf("%s %v", kind, answer)]++ }

func (w *walk) next() step {
	switch {
	case w.chance(40):
		return w.clientStep()
	case w.chance(20):
		return pick(w, w.writeStep, w.transactionStep)()
	}
	switch n := w.random.IntN(100); {
	case n < 18:
		return w.putStep()
	case n < 26:
		return w.deleteStep()
	case n < 36:
		return w.spendStep()
	case n < 47:
		return w.usageStep()
	case n < 64:
		return w.passStep()
	case n < 71:
		return pick(w, w.doubleStep, w.freezeStep)()
	case n < 78:
		return w.raiseStep()
	case n < 97:
		return w.createStep()
	default:
		return w.readStep()
	}
}

// pick returns one of the choices.
func pick[T any](w *walk, choices ...T) T { return choices[w.random.IntN(len(choices))] }

// chance is true in percent of all cases.
func (w *walk) chance(percent int) bool { return w.random.IntN(100) < percent }

func (w *walk) group() table.Group {
	return table.Group{Namespace: "n5", Entity: pick(w, "e-1", "e.2"), Resource: "r/x"}
}

func (w *walk) key() table.Key { return w.group().At(w.random.IntN(5)) }

func (w *walk) time() int64 { return midnight + pick(w, int64(-2), -1, 0, 1, 2, 3)*1800_000 }

func (w *walk) amount() int64 { return w.random.Int64N(12_000) - 1000 }

// item is a random bucket item: now and then without an attribute that it
// should have, or with one that cannot be read.
func (w *walk) item(key table.Key, count int) table.Item {
	item := bucket(key, attrs{"shard_count": count, "rf": w.time()},
		limit("tokens.in", w.amount(), 8000),
		calendar("calls-day", w.amount(), 8000, pick(w, 0, 1, 2, 4)),
		calendar("b_x_tk", w.amount(), 8000, pick(w, 1, 2)),
		session("sess", w.amount(), 8000, pick(w, 0, 1, 2), w.time()))
	item = w.some(item, 30, attrs{
		"vu": pick(w, 0, midnight), "sched": pick(w, "1h9-17s500", "1s2000"), "sched_tz": "Europe/Berlin",
		"b_sess_wtc": 0, "b_sess_tu": 500, "b_calls-day_tu": 250, "x_unknown": "kept", "ttl": w.time()/1000 + 1,
	})
	item = w.some(item, 10, attrs{
		"disabled": w.chance(50), "bypass": w.time(), "b_tokens.in_soft": w.time(), "b_sess_soft": w.time(), "b_wcu_tk": w.amount(),
	})
	for _, name := range []string{"shard_count", "rf", "b_sess_wa", "b_sess_ws", "b_tokens.in_tc"} {
		if w.chance(5) {
			delete(item, name)
		}
	}
	if w.chance(3) {
		item = build(item, attrs{pick(w, "rf", "shard_count", "b_sess_tk", "b_calls-day_gc"): pick(w, "text", "", "0")})
	}
	return item
}

// some is an item with some attributes more, each in percent of all cases.
func (w *walk) some(item table.Item, percent int, more attrs) table.Item {
	for _, name := range slices.Sorted(maps.Keys(more)) { // in an order that the seed repeats
		if w.chance(percent) {
			item = build(item, attrs{name: more[name]})
		}
	}
	return item
}

func (w *walk) putStep() step {
	item := w.item(w.key(), pick(w, 1, 2, 2, 4, 4))
	return step{"put", func(_ table.Client, raw Raw) string { raw.Put(w, item); return "" }}
}

func (w *walk) deleteStep() step {
	pk := w.group().At(1 + w.random.IntN(4)).PK()
	if w.chance(5) {
		pk = w.group().At(0).PK()
	}
	return step{"delete", func(_ table.Client, raw Raw) string { raw.Delete(w, pk, table.StateSK); return "" }}
}

// spendStep spends from a stored bucket as a client does.
func (w *walk) spendStep() step {
	b := w.stored(w.key())
	if b == nil {
		return w.putStep()
	}
	spent := w.random.Int64N(2000) - 500
	for i := range b.Limits {
		b.Limits[i].Balance -= spent
		b.Limits[i].Consumed += spent
	}
	b.Fill()
	return step{"spend", func(_ table.Client, raw Raw) string { raw.Put(w, b.Item); return "" }}
}

// stored is a bucket of the first table, nil where there is none to be read.
func (w *walk) stored(key table.Key) *table.Bucket {
	item := w.raws[0].Get(w, key.PK(), table.StateSK)
	if item == nil {
		return nil
	}
	b, err := table.DecodeBucket(item)
	if err != nil {
		return nil
	}
	return b
}

func (w *walk) readStep() step {
	key := w.key()
	return step{"read", func(store table.Client, _ Raw) string {
		b, err := store.Read(w.Context(), key)
		w.count("read", b != nil)
		return answer(err, itemOf(b))
	}}
}

func (w *walk) usageStep() step {
	usage := table.Usage{
		Key:      table.UsageKey{Group: w.group(), Window: pick(w, "hourly", "daily"), Start: "2026-12-01T00:00:00Z"},
		Counters: map[string]int64{},
		Events:   w.random.Int64N(5),
		Expires:  pick(w, int64(0), 1900000000),
	}
	for _, name := range []string{"tokens.in", "b_x_tk", "status", "ttl"} {
		if name != "ttl" && w.chance(60) || w.chance(1) {
			usage.Counters[name] = w.random.Int64N(10_000_000) - 2_000_000
		}
	}
	stored, _ := w.raws[0].Get(w, usage.Key.PK(), usage.Key.SK()).SeenRecords()
	for shard := range 4 {
		if w.chance(40) {
			usage.Sources = append(usage.Sources, w.source(shard, stored[shard]))
		}
	}
	return step{"usage", func(store table.Client, _ Raw) string {
		result, err := store.AddUsage(w.Context(), usage)
		w.count("usage", result.Applied)
		return answer(err, nil, result)
	}}
}

// source is a random record or two of one shard, with what is counted as it is
// stored, as nothing is known of it or as it is not.
func (w *walk) source(shard int, stored table.SeenRecords) table.Source {
	var records []table.Range
	for range pick(w, 1, 1, 2) {
		mark := fmt.Sprintf("%06d", w.random.IntN(90)+10+len(w.done)/20)
		record := run(mark+pick(w, " a", " b", ""), mark+pick(w, " a", " b"))
		if !stored.Has(mark) && !table.SeenRecords(records).Has(mark) {
			records = append(records, record)
		}
	}
	if len(records) == 0 {
		records = append(records, run("999999 a", "999999 b"))
	}
	if w.chance(10) && len(stored) > 0 {
		stored = stored[1:]
	}
	if w.chance(40) {
		stored = nil
	}
	return found(shard, stored, records...)
}

// passStep writes a pass that the rules planned, or one of before once more,
// now and then with something about it changed.
func (w *walk) passStep() step {
	p := passStep{}
	if b := w.stored(w.key()); b != nil && b.Broken == nil && (len(w.passes) == 0 || w.chance(85)) {
		pass, err := quota.Materialise(&b.Bucket, nil, w.time())
		if err != nil {
			w.Fatalf("plan a pass: %v", err)
		}
		p = passStep{b, pass}
		w.passes = append(w.passes, p)
	} else if len(w.passes) > 0 {
		p = w.passes[max(0, len(w.passes)-1-w.random.IntN(3))]
	} else {
		return w.putStep()
	}
	if w.chance(30) {
		w.bend(&p)
	}
	return step{"pass", func(store table.Client, _ Raw) string {
		result, err := store.Pass(w.Context(), p.bucket, p.pass)
		w.count("pass", result.Applied)
		return answer(err, itemOf(result.Current), result.Applied)
	}}
}

// bend changes something about a pass, not in place.
func (w *walk) bend(p *passStep) {
	pass := *p.pass
	pass.Changes = slices.Clone(pass.Changes)
	p.pass = &pass
	switch w.random.IntN(7) {
	case 0:
		pass.ShardCount = pick(w, 1, 2, 4)
	case 1:
		pass.ExpectRefilledAt = pick(w, 0, w.time())
	case 2:
		pass.ExpectValidUntil = pick(w, nil, new(int64(0)), new(midnight))
	case 3:
		pass.ValidUntil, pass.Unbound = new(w.time()), false
	case 4:
		pass.RefilledAt = w.time()
	default:
		if len(pass.Changes) > 0 {
			w.bendChange(&pass.Changes[w.random.IntN(len(pass.Changes))])
		}
	}
}

func (w *walk) bendChange(change *quota.Change) {
	switch w.random.IntN(5) {
	case 0:
		change.Delta = w.random.Int64N(200) - 100
	case 1:
		change.Max = pick(w, nil, new(w.amount()))
	case 2:
		change.Restore = !change.Restore
	case 3:
		change.Roll = pick(w, nil, new(w.time()))
	case 4:
		change.Applied = pick(w, nil, new(w.time()))
	}
}

func (w *walk) doubleStep() step {
	group, from := w.group(), pick(w, 1, 1, 2, 4)
	return step{"double", func(store table.Client, _ Raw) string {
		result, err := store.Double(w.Context(), group, from)
		w.count("double", result.Applied)
		return answer(err, nil, result)
	}}
}

func (w *walk) freezeStep() step {
	key := w.group().At(pick(w, 0, 0, 1, 3))
	freezes := []quota.Freeze{{Limit: calls, Grant: pick(w, 1, 2, 4)}}
	return step{"freeze", func(store table.Client, _ Raw) string {
		return answer(store.Freeze(w.Context(), key, freezes), nil, nil)
	}}
}

func (w *walk) raiseStep() step {
	group, count, now := w.group(), pick(w, 1, 2, 4, 8), w.time()
	return step{"raise", func(store table.Client, _ Raw) string {
		siblings, err := store.RaiseAndRead(w.Context(), group, count, now)
		var text []string
		for _, sibling := range siblings {
			w.count("raise", sibling.Raised)
			text = append(text, answer(sibling.Broken, itemOf(sibling.Bucket), sibling.Raised))
		}
		return answer(err, nil, text)
	}}
}

// createStep makes a shard as the rules fund it, or as it was made before,
// now and then with something about it changed.
func (w *walk) createStep() step {
	creation, ok := w.creationOf(w.group())
	if n := len(w.creation); !ok && n == 0 {
		return w.putStep()
	} else if !ok || n > 0 && w.chance(15) {
		creation = w.creation[max(0, n-1-w.random.IntN(3))]
	}
	w.creation = append(w.creation, creation)
	if w.chance(25) {
		creation.Moves = slices.Clone(creation.Moves)
		for i := range creation.Moves {
			w.bendGuard(&creation.Moves[i].Guard)
			creation.Moves[i].Amount += pick(w, int64(0), 1, 5000)
		}
	}
	return step{"create", func(store table.Client, _ Raw) string {
		outcome, err := store.Create(w.Context(), creation)
		w.count("create", int(outcome))
		return answer(err, nil, outcome)
	}}
}

func (w *walk) creationOf(group table.Group) (table.Creation, bool) {
	zero := w.stored(group.At(0))
	if zero == nil || zero.ShardCount < 2 || zero.Broken != nil {
		return table.Creation{}, false
	}
	var siblings []*quota.Bucket
	for shard := range zero.ShardCount {
		if b := w.stored(group.At(shard)); b != nil && b.Broken == nil {
			siblings = append(siblings, &b.Bucket)
		}
	}
	count := pick(w, zero.ShardCount, zero.ShardCount, zero.ShardCount, 2, 4)
	key, now := w.free(group), w.time()
	fundings, err := quota.Fund(&zero.Bucket, siblings, key.Shard, count, now)
	if err != nil {
		w.Fatalf("fund: %v", err)
	}
	b, err := table.DecodeBucket(build(bucket(key), attrs{"rf": now, "shard_count": count}))
	if err != nil {
		w.Fatalf("decode: %v", err)
	}
	creation := table.Creation{Bucket: b}
	for _, funding := range fundings {
		balance := table.Attr(funding.Limit, table.FieldBalance)
		b.Item = build(b.Item, attrs{balance: funding.Amount})
		if funding.Source == quota.Move && funding.Amount > 0 && funding.Donor != key.Shard {
			creation.Moves = append(creation.Moves, funding)
		}
	}
	return creation, true
}

// free is a shard that does not exist, or, now and then or where there is none,
// one that does.
func (w *walk) free(group table.Group) table.Key {
	key := group.At(1 + w.random.IntN(4))
	for range 4 {
		if w.raws[0].Get(w, key.PK(), table.StateSK) == nil || w.chance(10) {
			break
		}
		key = group.At(1 + key.Shard%4)
	}
	return key
}

func (w *walk) bendGuard(guard *quota.Guard) {
	switch w.random.IntN(5) {
	case 0:
		guard.Grant = pick(w, 1, 2, 4)
	case 1:
		guard.Legacy = !guard.Legacy
	case 2:
		guard.ShardCount = pick(w, 1, 2, 4)
	case 3:
		guard.RefilledAt = pick(w, 0, w.time())
	case 4:
		guard.Applied = pick(w, nil, new(w.time()))
	}
}

// answer renders what an operation returned. Of an error only the kind counts:
// the text is each implementation's own.
func answer(err error, item table.Item, rest ...any) string {
	kind := "no error"
	switch {
	case errors.Is(err, table.ErrRetry):
		kind = "retry"
	case errors.Is(err, table.ErrItem), errors.Is(err, table.ErrKey):
		kind = "malformed"
	case err != nil:
		kind = "error"
	}
	return fmt.Sprintf("%s %v\n%s", kind, rest, strings.Join(describe(item), "\n"))
}
