package aggregator_test

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/internal/dynoxide"
	"github.com/shardquota/shardquota/internal/fixture"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/dynamo"
)

// A load is what some customers do in a thousand uses. The floor is one write for
// every item that is another afterwards, at its size: usage items, and buckets
// that must change.
type load struct {
	name    string
	buckets int
	hot     int           // of the buckets; they double, and the doublings are in a second batch, with as many uses of the others
	more    fixture.Attrs // on every image
	most    float64       // times the floor's write units that it may take

	usage, changed, created int // items written: of usage, buckets that were there, new shards
}

// A doubling writes shard 0 twice where the floor has it once: the transaction
// that moves a share off it must not fail for whoever passes meanwhile, and the
// pass that trims it to what is left of its share must. One in twenty doubling at
// once is much; nothing but doublings shows what that costs.
var loads = []load{
	{"steady", 100, 0, nil, 1.05, 200, 0, 0},
	{"passes-due", 100, 0, fixture.Attrs{"b_rpm_tk": 0}, 1.05, 200, 100, 0},
	{"many-slow-customers", 1000, 0, nil, 1.05, 2000, 0, 0},
	{"one-in-twenty-doubles", 100, 5, nil, 1.05, 390, 10, 5},
	{"nothing-but-doublings", 20, 20, nil, 1.13, 40, 40, 20},
}

// TestFloor holds the aggregator's writes to the floor, where nothing comes twice.
func TestFloor(t *testing.T) {
	for _, l := range loads {
		w := weighed{TB: t}
		w.run(l)
		if w.usage != l.usage || w.changed != l.changed || w.created != l.created {
			t.Errorf("%s: written were %d usage items, %d buckets and %d new shards, want %d, %d, %d",
				l.name, w.usage, w.changed, w.created, l.usage, l.changed, l.created)
		}
		if ratio := w.ratio(); ratio > l.most || ratio < 1 {
			t.Errorf("%s: %g write units, %.3f times the floor's %g, want 1 to %g times", l.name, w.units, ratio, w.floor, l.most)
		}
	}
}

// BenchmarkFloor prints what a load costs beside the floor. Its time means
// nothing.
func BenchmarkFloor(b *testing.B) {
	for _, l := range loads {
		b.Run(l.name, func(b *testing.B) {
			w := weighed{TB: b}
			for b.Loop() {
				w.run(l)
			}
			report := func(n float64, unit string) { b.ReportMetric(n/float64(b.N), unit) }
			report(0, "ns/op") // is not printed then
			report(float64(w.requests), "requests")
			report(w.units, "units")
			report(float64(w.usage+w.changed+w.created), "floor-writes")
			report(w.floor, "floor-units")
			b.ReportMetric(w.ratio(), "times-floor")
		})
	}
}

// weighed is what batches cost, and what the floor under them is.
type weighed struct {
	testing.TB
	requests                int
	units, floor            float64
	usage, changed, created int // items that are another afterwards
}

func (w *weighed) ratio() float64 { return w.units / w.floor }

// run processes a load on a table of its own.
func (w *weighed) run(l load) {
	client := dynoxide.Client(w)
	name := dynoxide.NewTable(w, client, withoutStream)
	first, second := l.batches()
	put(w, client, name, latest(w, slices.Concat(first, second)))
	before := w.process(client, name, first)
	if l.hot > 0 {
		w.process(client, name, append(second, doubled(w, first[len(first)-1], before, contents(w, client, name))...))
	}
}

// batches are a thousand uses of all buckets, and the next ones of those that are
// not hot.
func (l load) batches() (first, second []events.Record) {
	const records = 1000
	usual := fixture.Uses(2*records, l.buckets, l.more)
	hot := fixture.Uses(records, l.buckets, l.more, fixture.Attrs{"b_wcu_tk": 50_000})
	for i, record := range usual {
		switch isHot := i%l.buckets < l.hot; {
		case i < records && isHot:
			first = append(first, hot[i])
		case i < records:
			first = append(first, record)
		case l.hot > 0 && !isHot:
			second = append(second, record)
		}
	}
	return first, second
}

// process processes a batch, weighs it, and returns the table that it found.
func (w *weighed) process(client *dynamodb.Client, name string, batch []events.Record) items {
	before, store, a := contents(w, client, name), dynamo.New(client, name), planner()
	a.Store = store
	report := a.Process(w.Context(), batch, noon+second)
	if len(report.Failures)+len(report.Rejected)+report.Duplicates+report.PassesLost+len(report.Declined) > 0 {
		w.Fatalf("%v: %+v", report.Err(), report)
	}
	units := store.Units()
	for _, n := range units.Requests {
		w.requests += n
	}
	w.units += units.Write
	w.floor += w.least(client, before, contents(w, client, name))
	return before
}

// least writes every item that is another afterwards, once and as one piece, on a
// table that has what was there before. A new shard and its donor are written by
// one transaction, which counts twice: one without the other would make
// allowance or destroy it.
func (w *weighed) least(client *dynamodb.Client, before, after items) float64 {
	name := dynoxide.NewTable(w, client, withoutStream)
	var old []table.Item
	var writes, transacted []types.TransactWriteItem
	for _, key := range slices.Sorted(maps.Keys(after)) {
		item := after[key]
		if reflect.DeepEqual(before[key], item) {
			continue
		}
		write := types.TransactWriteItem{Put: &types.Put{TableName: &name, Item: item}}
		_, sk := item.Key()
		switch {
		case before[key] != nil:
			old = append(old, before[key])
			if sk == table.StateSK {
				w.changed++
			}
		case sk == table.StateSK:
			w.created++
		}
		if sk != table.StateSK {
			w.usage++
		}
		if b, err := table.DecodeBucket(item); err == nil && after[b.Key.Group.At(1).PK()+" "+table.StateSK] != nil {
			transacted = append(transacted, write)
		} else {
			writes = append(writes, write)
		}
	}
	put(w, client, name, old)
	return putAll(w, client, writes, 1) + putAll(w, client, transacted, 2)
}

// putAll makes puts, so many to a transaction, and returns their write units.
func putAll(tb testing.TB, client *dynamodb.Client, puts []types.TransactWriteItem, together int) (units float64) {
	tb.Helper()
	for some := range slices.Chunk(puts, together) {
		if together == 1 {
			put := some[0].Put
			output, err := client.PutItem(tb.Context(), &dynamodb.PutItemInput{
				TableName: put.TableName, Item: put.Item, ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal,
			})
			if err != nil {
				tb.Fatal(err)
			}
			units += *output.ConsumedCapacity.CapacityUnits
			continue
		}
		output, err := client.TransactWriteItems(tb.Context(), &dynamodb.TransactWriteItemsInput{
			TransactItems: some, ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal,
		})
		if err != nil {
			tb.Fatal(err)
		}
		units += *output.ConsumedCapacity[0].CapacityUnits
	}
	return units
}

// latest are the buckets as a batch leaves them.
func latest(tb testing.TB, batch []events.Record) []table.Item {
	tb.Helper()
	texts := map[string][]byte{}
	for _, record := range batch {
		texts[string(record.Keys)] = record.New
	}
	var latest []table.Item
	for _, text := range texts {
		item, err := table.ParseItem(text)
		if err != nil {
			tb.Fatal(err)
		}
		latest = append(latest, item)
	}
	return latest
}

// doubled are the records of the buckets whose count went up, after the record
// last.
func doubled(tb testing.TB, last events.Record, before, after items) (batch []events.Record) {
	tb.Helper()
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if reflect.DeepEqual(before[key], after[key]) {
			continue
		}
		r := last
		r.Sequence = fmt.Sprintf("9%s%06d", r.Sequence, len(batch))
		pk, sk := after[key].Key()
		for text, item := range map[*[]byte]table.Item{
			(*[]byte)(&r.Keys): {table.AttrPK: table.S(pk), table.AttrSK: table.S(sk)},
			(*[]byte)(&r.Old):  before[key], (*[]byte)(&r.New): after[key],
		} {
			var err error
			if *text, err = table.FormatItem(item); err != nil {
				tb.Fatal(err)
			}
		}
		batch = append(batch, r)
	}
	return batch
}

// items are a table's, by both keys.
type items map[string]table.Item

func contents(tb testing.TB, client *dynamodb.Client, name string) items {
	tb.Helper()
	all := items{}
	pages := dynamodb.NewScanPaginator(client, &dynamodb.ScanInput{TableName: &name, ConsistentRead: new(true)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(tb.Context())
		if err != nil {
			tb.Fatal(err)
		}
		for _, item := range page.Items {
			pk, sk := table.Item(item).Key()
			all[pk+" "+sk] = item
		}
	}
	return all
}

// put puts items into a table.
func put(tb testing.TB, client *dynamodb.Client, name string, items []table.Item) {
	tb.Helper()
	for some := range slices.Chunk(items, 25) { // which is what the service takes
		var puts []types.WriteRequest
		for _, item := range some {
			puts = append(puts, types.WriteRequest{PutRequest: &types.PutRequest{Item: item}})
		}
		_, err := client.BatchWriteItem(context.Background(), &dynamodb.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{name: puts}})
		if err != nil {
			tb.Fatal(err)
		}
	}
}

// withoutStream makes a table that has none: dynoxide slows down as one grows.
func withoutStream(input *dynamodb.CreateTableInput) { input.StreamSpecification = nil }
