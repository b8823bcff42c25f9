package storetest

import (
	"fmt"
	"maps"
	"slices"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/table"
)

// writeAnswers are those of writes that stand for nothing.
var writeAnswers = []string{"write true", "write false", "write fails", "transaction true", "transaction false"}

// Attributes of random writes. Numbers are added to the first alone.
var (
	walkNumbers = []string{"n", "b_tokens.in_tk", "shard_count"}
	walkOthers  = []string{"text", "flag", "b.x-y", "parent_id"}
)

// writeStep carries out a random write: any conditions and actions that the form
// of a Write allows.
func (w *walk) writeStep() step {
	write := w.write(w.key().State())
	fails := w.chance(5)
	if fails {
		write = &table.Write{Operation: "walk", Key: write.Key, Add: []table.Addition{{Name: "text", Value: w.number()}}}
	}
	return step{"write", func(store table.Client, raw Raw) string {
		if fails {
			raw.Put(w, table.Item{table.AttrPK: table.S(write.Key.PK), table.AttrSK: table.S(write.Key.SK), "text": table.S("a")})
		}
		result, err := store.(table.DB).Do(w.Context(), write)
		if err != nil {
			w.count("write", "fails")
			return "error"
		}
		w.count("write", result.Applied)
		return answer(nil, result.Item, result.Applied)
	}}
}

// transactionStep carries out several random writes, some of them checks.
func (w *walk) transactionStep() step {
	t := &table.Transaction{Operation: "walk"}
	for _, shard := range w.random.Perm(4)[:1+w.random.IntN(3)] {
		write := w.write(w.group().At(shard).State())
		if w.chance(20) {
			write = &table.Write{Operation: "check", Key: write.Key, Require: []table.Condition{w.condition(2)}}
		}
		t.Writes = append(t.Writes, write)
	}
	if keys := map[table.ItemKey]bool{}; slices.ContainsFunc(t.Writes, func(w *table.Write) bool {
		twice := keys[w.Key]
		keys[w.Key] = true
		return twice
	}) {
		t.Writes = t.Writes[:1]
	}
	return step{"transaction", func(store table.Client, _ Raw) string {
		result, err := store.(table.DB).Transact(w.Context(), t)
		if err != nil {
			return "error"
		}
		w.count("transaction", len(result.Refused) == 0)
		text := ""
		for _, at := range slices.Sorted(maps.Keys(result.Refused)) {
			text += fmt.Sprint(at, " ", answer(nil, result.Refused[at]))
		}
		return text
	}}
}

func (w *walk) write(key table.ItemKey) *table.Write {
	write := &table.Write{Operation: "walk", Key: key}
	for range w.random.IntN(3) {
		write.Require = append(write.Require, w.condition(2))
	}
	switch {
	case w.chance(8):
		write.Put = key.Item()
		write.Put[w.other()] = w.value()
		write.Put["n"] = w.number()
		return write
	case w.chance(5):
		write.Delete = true
		return write
	}
	write.Return = w.chance(50)
	// Each attribute is in one clause at most.
	numbers, others := slices.Clone(walkNumbers), slices.Clone(walkOthers)
	w.random.Shuffle(len(numbers), func(i, j int) { numbers[i], numbers[j] = numbers[j], numbers[i] })
	write.Add = []table.Addition{{Name: numbers[0], Value: w.number()}}
	if w.chance(50) {
		write.Set = append(write.Set, table.Assignment{Name: numbers[1], Value: w.number(), Absent: w.chance(50)})
	}
	w.random.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	for _, name := range others {
		switch w.random.IntN(5) {
		case 0:
			write.Remove = append(write.Remove, name)
		case 1:
			write.Set = append(write.Set, table.Assignment{Name: name, Value: w.value()})
		case 2:
			write.Set = append(write.Set, table.Assignment{Name: name, Value: w.value(), From: w.other()})
		}
	}
	return write
}

// condition is a random one, of at most so many conditions within each other.
func (w *walk) condition(depth int) table.Condition {
	name := pick(w, slices.Concat(walkNumbers, walkOthers, []string{table.AttrPK})...)
	switch n := w.random.IntN(12); {
	case n < 2 && depth > 0:
		of := []table.Condition{w.condition(depth - 1), w.condition(depth - 1)}
		return table.Condition{Op: pick(w, table.Any, table.All), Of: of}
	case n < 4:
		return table.Condition{Op: pick(w, table.Present, table.Absent), Name: name}
	case n < 5:
		return table.Condition{Op: table.Contains, Name: pick(w, walkOthers...), Value: table.S("a")}
	case n < 7:
		return table.Condition{Op: table.Equals, Name: name, Value: w.value(), OrAbsent: w.chance(30)}
	}
	op := pick(w, table.Less, table.AtMost, table.AtLeast, table.Greater)
	return table.Condition{Op: op, Name: name, Value: pick(w, w.number(), table.S("b")), OrAbsent: w.chance(30)}
}

func (w *walk) other() string { return pick(w, walkOthers...) }

func (w *walk) number() types.AttributeValue {
	return table.N(pick(w, "0", "1", "-1", "2.50", "8000", "-0.001", "123456789012345678901234567890", "1e3"))
}

func (w *walk) value() types.AttributeValue {
	return pick(w, w.number(), table.S(pick(w, "a", "abc", "c")), table.Bool(w.chance(50)))
}
