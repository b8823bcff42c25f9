package replay

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/memory"
)

// recording reads a whole recording of testdata.
func recording(t *testing.T, name string) []events.Record {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var records []events.Record
	for reader := events.NewReader(file, filepath.Base(name)); ; {
		record, err := reader.Next()
		if err == io.EOF {
			return records
		}
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, record)
	}
}

func eachRecording(t *testing.T, test func(t *testing.T, records []events.Record)) {
	names, err := filepath.Glob("../../testdata/*.jsonl.gz")
	if err != nil || len(names) < 6 {
		t.Fatalf("found %d recordings (%v), want at least 6", len(names), err)
	}
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".jsonl.gz"), func(t *testing.T) {
			test(t, recording(t, name))
		})
	}
}

// list is a Source over records in memory.
type list struct{ records []events.Record }

func (l *list) Next() (events.Record, error) {
	if len(l.records) == 0 {
		return events.Record{}, io.EOF
	}
	record := l.records[0]
	l.records = l.records[1:]
	return record, nil
}

// setting is one way to deliver a recording.
type setting struct {
	batch     int
	redeliver bool
	preload   []table.Item
}

// run replays records and returns the report and the table at the end.
func (s setting) run(t *testing.T, records []events.Record) (*Report, []table.Item) {
	t.Helper()
	store := memory.New()
	for _, item := range s.preload {
		store.Put(item)
	}
	r := InMemory(store)
	r.Aggregator.Windows = []events.Window{events.Hourly, events.Daily, events.Monthly}
	r.BatchSize, r.Redeliver = s.batch, s.redeliver
	report, err := r.Run(context.Background(), &list{records})
	if err != nil {
		t.Fatal(err)
	}
	return report, store.Items()
}

func dump(t *testing.T, items []table.Item) string {
	t.Helper()
	var out bytes.Buffer
	for _, item := range items {
		line, err := table.FormatItem(item)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(append(line, '\n'))
	}
	return out.String()
}

// sameTable fails with the first attributes that differ.
func sameTable(t *testing.T, what string, got, want []table.Item) {
	t.Helper()
	if dump(t, got) == dump(t, want) {
		return
	}
	if len(got) != len(want) {
		t.Errorf("%s: %d items, want %d", what, len(got), len(want))
		return
	}
	for i := range want {
		if t.Failed() {
			return // the first item that differs is enough
		}
		for _, name := range differing(got[i], want[i]) {
			pk, sk := want[i].Key()
			t.Errorf("%s: %s %s: %s is %s, want %s", what, pk, sk, name, show(got[i][name]), show(want[i][name]))
		}
	}
}

// However a recording is cut into batches and however often a batch is
// delivered, the table at the end is the same.
func TestDeliveryDoesNotMatter(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds, which -short leaves out")
	}
	eachRecording(t, func(t *testing.T, records []events.Record) {
		_, want := setting{batch: 1000}.run(t, records)
		for _, s := range []setting{{batch: 1}, {batch: 37}, {batch: 100, redeliver: true}} {
			report, got := s.run(t, records)
			sameTable(t, fmt.Sprintf("%+v", s), got, want)
			if (report.Duplicates > 0) != s.redeliver {
				t.Errorf("%+v: %d duplicates were dropped", s, report.Duplicates)
			}
		}
	})
}

// A recording that was cut anywhere and is read again from any earlier place,
// in the same run or in another one over the table that the first left, comes
// to the same table.
func TestCutAndRedriven(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds, which -short leaves out")
	}
	eachRecording(t, func(t *testing.T, records []events.Record) {
		_, want := setting{batch: 100}.run(t, records)
		for _, part := range [][2]int{{len(records) * 2 / 3, len(records) / 2}, {len(records) * 3 / 5, len(records) / 4}} {
			cut, from := part[0], part[1]
			what := fmt.Sprintf("cut at %d, from %d again", cut, from)

			_, got := setting{batch: 100}.run(t, slices.Concat(records[:cut], records[from:]))
			sameTable(t, what+", in one run", got, want)

			_, half := setting{batch: 100}.run(t, records[:cut])
			_, got = setting{batch: 100, preload: half}.run(t, records[from:])
			sameTable(t, what+", in two runs", got, want)
		}
	})
}

// Over the dump of a table whose usage misses a batch that Lambda gave up on,
// that batch is counted, and is not applied to the buckets once more.
func TestDiscardedBatchOverADump(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds, which -short leaves out")
	}
	eachRecording(t, func(t *testing.T, records []events.Record) {
		from, to := len(records)/3, len(records)/2
		_, want := setting{batch: 100}.run(t, records)
		preload := slices.DeleteFunc(slices.Clone(want), isUsage)
		preload = append(preload, counted(t, slices.Concat(records[:from], records[to:]))...)
		report, got := setting{batch: 100, preload: preload}.run(t, records[from:to])
		others := func(item table.Item) bool { _, sk := item.Key(); return sk != table.StateSK && !isUsage(item) }
		sameTable(t, "with the batch", slices.DeleteFunc(got, others), slices.DeleteFunc(want, others))
		if report.Duplicates > 0 || len(report.Usage) == 0 {
			t.Errorf("%d duplicates, usage %v", report.Duplicates, report.Usage)
		}
	})
}

func isUsage(item table.Item) bool {
	_, sk := item.Key()
	return strings.HasPrefix(sk, table.UsageSK)
}

// counted is the usage of records.
func counted(t *testing.T, records []events.Record) []table.Item {
	t.Helper()
	store := memory.New()
	r := Again(store, nil)
	r.Aggregator.Windows = []events.Window{events.Hourly, events.Daily, events.Monthly}
	if _, err := r.Run(t.Context(), &list{records}); err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(store.Items(), func(item table.Item) bool { return !isUsage(item) })
}

// The recordings were made without an aggregator, so that where the one under
// test finds nothing to do, the replayed table is the recorded one. It has a bucket
// expire later that would go before what it owes is over.
func TestReplayedTableIsTheRecordedOne(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds, which -short leaves out")
	}
	eachRecording(t, func(t *testing.T, records []events.Record) {
		_, items := setting{batch: 25}.run(t, records)
		replayed := map[itemID]table.Item{}
		for _, item := range items {
			pk, sk := item.Key()
			replayed[itemID{pk, sk}] = item
		}
		for id, want := range lastImages(t, records) {
			if strings.HasPrefix(id.SK, table.UsageSK) {
				continue
			}
			for _, name := range differing(replayed[id], want) {
				if name == table.AttrTTL && expiresLater(replayed[id], want) {
					continue
				}
				t.Errorf("%s %s: %s is %v, recorded %v", id.PK, id.SK, name, show(replayed[id][name]), show(want[name]))
			}
		}
	})
}

// expiresLater reports whether an item expires after another.
func expiresLater(item, than table.Item) bool {
	expires, _ := item.Int(table.AttrTTL)
	before, ok := than.Int(table.AttrTTL)
	return ok && expires > before
}

func lastImages(t *testing.T, records []events.Record) map[itemID]table.Item {
	t.Helper()
	last := map[itemID]table.Item{}
	for _, record := range records {
		id, ok := identify(record)
		if !ok {
			t.Fatalf("%v has no key", record.Position)
		}
		last[id] = nil
		if record.New == nil {
			continue
		}
		item, err := table.ParseItem(record.New)
		if err != nil {
			t.Fatal(err)
		}
		last[id] = item
	}
	return last
}

func differing(a, b table.Item) []string {
	var names []string
	for name := range a {
		if !reflect.DeepEqual(a[name], b[name]) {
			names = append(names, name)
		}
	}
	for name := range b {
		if a[name] == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func show(value types.AttributeValue) string {
	if value == nil {
		return "absent"
	}
	text, err := attributevalue.MarshalJSON(value)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
