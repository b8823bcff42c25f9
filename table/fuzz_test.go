package table_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/table"
)

// usageText is a usage item that has counted of shard 0 what the texts say.
func usageText(t testing.TB, mark, runs string) []byte {
	t.Helper()
	item := table.Item{
		"PK": table.S(hour.PK()), "SK": table.S(hour.SK()), "ttl": table.N("1"), "total_events": table.N("3"),
		"rpm": table.N("-2.125"), table.PositionAttr(0): table.S(mark), table.RangesAttr(0): table.S(runs),
	}
	for _, label := range hour.Labels() {
		item[label[0]] = table.S(label[1])
	}
	text, err := table.FormatItem(item)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// FuzzUsageItem reads usage items: those that a replay is given may hold anything.
func FuzzUsageItem(f *testing.F) {
	f.Add(usageText(f, "s/0007 t7", "s/0005 t4"))
	f.Add(usageText(f, "s/0007 t7", "s/0001 t0,s/0002 t1,s/0005 t4"))
	f.Add(usageText(f, "s/0007", ""))
	f.Fuzz(func(t *testing.T, text []byte) {
		item, err := table.ParseItem(text)
		if err != nil {
			return
		}
		fuzzUsage(t, item)
		counted, err := item.SeenRecords()
		if err != nil {
			if !errors.Is(err, table.ErrItem) || strings.Contains(err.Error(), secret) || len(err.Error()) > 200 {
				t.Fatalf("not ErrItem, or it shows the data: %v", err)
			}
			return
		}
		marks := item.LastPositions()
		for shard, c := range counted {
			fuzzCounted(t, item, shard, c)
			if marks[shard] != c[len(c)-1].Last.Position {
				t.Fatalf("the last mark of shard %d is %q, of what is counted %q", shard, marks[shard], c[len(c)-1].Last.Position)
			}
		}
	})
}

func fuzzUsage(t *testing.T, item table.Item) {
	t.Helper()
	key, counters, err := table.ParseUsage(item)
	if err != nil {
		if !errors.Is(err, table.ErrKey) && !errors.Is(err, table.ErrItem) || strings.Contains(err.Error(), secret) {
			t.Fatalf("neither ErrItem nor ErrKey, or it shows the key: %v", err)
		}
		return
	}
	for name, text := range counters {
		number, ok := item[name].(*types.AttributeValueMemberN)
		if !ok || number.Value != text || !table.CanCount(name) {
			t.Fatalf("%q counts %q", name, text)
		}
	}
	if pk, _ := item.Key(); !strings.HasPrefix(pk, key.Namespace+"/ENTITY#") {
		t.Fatalf("%+v", key)
	}
}

// fuzzCounted holds what was read of a shard to being what is stored, and in order.
func fuzzCounted(t *testing.T, item table.Item, shard int, c table.SeenRecords) {
	t.Helper()
	mark, runs := c.Texts()
	if !reflect.DeepEqual(item[table.PositionAttr(shard)], table.S(mark)) {
		t.Fatalf("the mark is read as %q", mark)
	}
	if stored := item[table.RangesAttr(shard)]; runs != "" && !reflect.DeepEqual(stored, table.S(runs)) || runs == "" && stored != nil {
		t.Fatalf("the runs are read as %q", runs)
	}
	last := ""
	for i, run := range c {
		if run.First.Position > run.Last.Position || i > 0 && run.First.Position <= last {
			t.Fatalf("run %d of %q | %q is out of order", i, runs, mark)
		}
		last = run.Last.Position
		if !c.Has(run.First.Position) || !c.Has(run.Last.Position) {
			t.Fatalf("%q | %q does not have the ends of run %d", runs, mark, i)
		}
	}
}

// FuzzCounted counts records, each byte one more: how many marks it lies behind the one before, and whether it consumed as
// if it followed that one. In any order, and written down in between, the same is counted; nothing but the records is,
// as long as there is room for all gaps.
func FuzzCounted(f *testing.F) {
	f.Add([]byte{1, 1, 1}, uint64(0))
	f.Add([]byte{1, 2, 1, 0x81, 3}, uint64(1))
	f.Add([]byte(strings.Repeat("\x02", 40)), uint64(2))
	f.Fuzz(func(t *testing.T, steps []byte, seed uint64) {
		records := madeOf(steps[:min(len(steps), 200)])
		shuffled := slices.Clone(records)
		rand.New(rand.NewPCG(seed, 1)).Shuffle(len(shuffled), reflect.Swapper(shuffled))

		var one table.SeenRecords
		for _, record := range shuffled {
			if one.Has(record.First.Position) {
				continue // in a gap that was given up
			}
			if one = stored(t, one.With(record)); !one.Has(record.First.Position) {
				t.Fatalf("%v is not counted", record)
			}
		}
		if len(one) > table.MaxRanges {
			t.Fatalf("%d runs", len(one))
		}
		all := stored(t, table.SeenRecords(nil).With(records...))
		if len(records) > table.MaxRanges {
			return // some gaps may be given up, which depends on the order
		}
		if fmt.Sprint(one) != fmt.Sprint(all) {
			t.Fatalf("one by one %v, at once %v", one, all)
		}
		for i, record := range records {
			between := record.Last.Position + "~" // of a record, if there is one, that is not counted
			follows := i+1 < len(records) && records[i+1].First.Total == record.Last.Total
			if !all.Has(record.First.Position) || all.Has(between) != follows {
				t.Fatalf("%v of %v: has it %v, has what may follow it %v", record, all, all.Has(record.First.Position), all.Has(between))
			}
		}
	})
}

// madeOf makes records of ascending marks. The lower bits of a step say how far, and its highest that something was
// consumed in between.
func madeOf(steps []byte) []table.Range {
	var records []table.Range
	mark, total := 0, 0
	for _, step := range steps {
		mark += 1 + int(step&0x7f)%4
		if step&0x80 != 0 {
			total++
		}
		edge := func() table.Bound {
			return table.Bound{Position: fmt.Sprintf("s/%05d", mark), Total: "t" + strconv.Itoa(total)}
		}
		first := edge()
		total++
		records = append(records, table.Range{First: first, Last: edge()})
	}
	return records
}

// stored writes down what is counted and reads it back.
func stored(t *testing.T, c table.SeenRecords) table.SeenRecords {
	t.Helper()
	mark, runs := c.Texts()
	item := table.Item{}
	if mark != "" {
		item[table.PositionAttr(5)] = table.S(mark)
	}
	if runs != "" {
		item[table.RangesAttr(5)] = table.S(runs)
	}
	counted, err := item.SeenRecords()
	if err != nil || fmt.Sprint(counted[5]) != fmt.Sprint(c) {
		t.Fatalf("%q | %q is read back as %v, %v", runs, mark, counted[5], err)
	}
	return counted[5]
}
