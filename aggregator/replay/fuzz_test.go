package replay

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/memory"
)

// patience is how long a replay of a small file may take. It is no measure: only what never ends takes as long.
const patience = 30 * time.Second

// lines are some lines of a recording, counted from 1.
func lines(t testing.TB, name string, numbers ...int) []byte {
	t.Helper()
	file, err := os.Open("../../testdata/" + name + ".jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	text, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	var found []byte
	scanner := bufio.NewScanner(text)
	scanner.Buffer(nil, 1<<20)
	for n := 1; scanner.Scan() && n <= slices.Max(numbers); n++ {
		if slices.Contains(numbers, n) {
			found = append(append(found, scanner.Bytes()...), '\n')
		}
	}
	return found
}

// FuzzReplay replays files of any content. A replay ends, with an error or with a report; and a report holds what the file
// says, whatever the size of the batches.
func FuzzReplay(f *testing.F) {
	f.Add(lines(f, "quota-walk", 1, 160, 161, 381), uint8(1), false)
	f.Add(lines(f, "session", 70, 71, 92, 214, 215, 230), uint8(3), true)
	f.Add(lines(f, "schedule", 128, 129, 130, 131), uint8(2), false)
	f.Add(lines(f, "limit-change", 421, 422, 423, 640, 641), uint8(2), true)
	f.Add(lines(f, "operator", 134, 135, 223), uint8(1), true)
	f.Add(lines(f, "mixed", 1, 2, 3, 4), uint8(1), false)
	f.Add([]byte(`[{"eventName":"REMOVE"},{}]`), uint8(1), true)
	f.Fuzz(func(t *testing.T, data []byte, batch uint8, redeliver bool) {
		if len(data) > 1<<17 {
			return
		}
		records, readErr := readAll(data)
		report, items, err := replayed(t, data, setting{batch: 1000})
		if readErr != nil && (err == nil || err.Error() != readErr.Error()) {
			t.Fatalf("the file ends with %v, its replay with %v", readErr, err)
		}
		if err != nil {
			fuzzErrorText(t, records, err)
			return
		}
		fuzzReport(t, records, report)
		_, again, err := replayed(t, data, setting{batch: 1 + int(batch), redeliver: redeliver})
		if err != nil {
			t.Fatalf("in batches of %d: %v", 1+int(batch), err)
		}
		if len(records) <= table.MaxRanges && inOrder(records) { // beyond, some gaps in usage may be given up, which depends on the order
			sameResult(t, setting{batch: 1 + int(batch), redeliver: redeliver}, again, items)
		}
	})
}

// sameResult compares the tables of two deliveries: whole, or where batches came twice, the usage alone. A pass that was
// refused the second time too is judged by the bucket as it then is, and may be written where the first time there was no
// need for one.
func sameResult(t *testing.T, s setting, got, want []table.Item) {
	t.Helper()
	if s.redeliver {
		got, want = slices.DeleteFunc(got, isNoUsage), slices.DeleteFunc(slices.Clone(want), isNoUsage)
	}
	sameTable(t, fmt.Sprintf("%+v", s), got, want)
}

func isNoUsage(item table.Item) bool { return !isUsage(item) }

// inOrder reports whether the records of each item are in the order of the stream, as a replay in memory asks for.
func inOrder(records []events.Record) bool {
	last := map[itemID]string{}
	for _, record := range records {
		id, _ := identify(record)
		position, _ := events.StreamPosition(record.Stream, record.Sequence)
		if position < last[id] {
			return false
		}
		last[id] = position
	}
	return true
}

// chained reports whether each record of a bucket begins where the one before it ended. Of others the table in memory,
// which goes on from what it holds, may make less than they say.
func chained(records []events.Record) bool {
	ends := map[table.Key]string{}
	for _, record := range records {
		change, err := events.Decode(record)
		if err != nil || change == nil {
			continue
		}
		end, known := ends[change.New.Key]
		if known && (change.Old == nil || dumped(change.Old) != end) {
			return false
		}
		ends[change.New.Key] = dumped(change.New)
	}
	return true
}

func dumped(i *table.Image) string {
	b, err := i.DecodeFull()
	if err != nil {
		return err.Error()
	}
	text, _ := table.FormatItem(b.Item)
	return string(text)
}

func readAll(data []byte) ([]events.Record, error) {
	var records []events.Record
	for reader := events.NewReader(bytes.NewReader(data), "fuzz.json"); ; {
		record, err := reader.Next()
		if err == io.EOF {
			return records, nil
		}
		if err != nil {
			return records, err
		}
		records = append(records, record)
	}
}

// replayed replays a file over an empty table.
func replayed(t *testing.T, data []byte, s setting) (*Report, []table.Item, error) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	store := memory.New()
	r := InMemory(store)
	r.Aggregator.Windows = []events.Window{events.Hourly, events.Daily, events.Monthly}
	r.BatchSize, r.Redeliver = s.batch, s.redeliver
	report, err := r.Run(ctx, events.NewReader(bytes.NewReader(data), "fuzz.json"))
	if ctx.Err() != nil {
		t.Fatal("the replay does not end")
	}
	return report, store.Items(), err
}

// secret is the entity id of seeds made by hand.
const secret = "sk-live-4242"

// fuzzErrorText holds an error to naming a place, and no entity.
func fuzzErrorText(t *testing.T, records []events.Record, err error) {
	t.Helper()
	text := err.Error()
	if !strings.Contains(text, "fuzz.json:") || len(text) > 2000 {
		t.Fatalf("names no place, or is long: %v", err)
	}
	if strings.Contains(text, secret) && !shown(records) {
		t.Fatalf("shows an entity: %v", err)
	}
}

// shown reports whether the secret is part of what an error may show: a name of an attribute or a schedule.
func shown(records []events.Record) bool {
	for _, record := range records {
		for _, image := range []json.RawMessage{record.Old, record.New} {
			item, _ := table.ParseItem(image)
			for name, value := range item {
				if strings.Contains(name, secret) || strings.Contains(name, "sched") && strings.Contains(show(value), secret) {
					return true
				}
			}
		}
	}
	return false
}

func fuzzReport(t *testing.T, records []events.Record, report *Report) {
	t.Helper()
	if report.Records != len(records) {
		t.Fatalf("%d records of %d", report.Records, len(records))
	}
	for _, x := range report.Rejected {
		fuzzErrorText(t, records, fmt.Errorf("%v: %w", x.Position, x.Err))
	}
	for _, row := range report.Ledger {
		fuzzLedger(t, row)
	}
	if len(records) <= table.MaxRanges && chained(records) {
		fuzzUsage(t, records, report)
	}
	var text, machine bytes.Buffer
	name := func(table.Group) string { return "entity" }
	if err := errors.Join(report.WriteText(&text, name), report.WriteJSON(&machine, name)); err != nil || !json.Valid(machine.Bytes()) {
		t.Fatalf("written as %s: %v", machine.String(), err)
	}
	if rejected := strings.Count(text.String(), "fuzz.json:"); rejected != len(report.Rejected) {
		t.Fatalf("%d of %d rejections in the text:\n%s", rejected, len(report.Rejected), text.String())
	}
}

// fuzzLedger holds a row to its own verdict.
func fuzzLedger(t *testing.T, row LedgerRow) {
	t.Helper()
	missing := row.Capacity - row.Granted - row.Grantable
	if row.Conserved && (missing < 0 || missing > 2*quota.MaxShards*quota.MaxShards) || row.Granted < 0 || row.Grantable < 0 {
		t.Fatalf("%+v", row)
	}
}

// fuzzUsage adds up what the records say was consumed, each once, and compares. A sum that an amount cannot hold is
// nobody's.
func fuzzUsage(t *testing.T, records []events.Record, report *Report) {
	t.Helper()
	want, fits := consumption(records)
	if !fits {
		return
	}
	got := map[string]int64{}
	for key, total := range report.Usage {
		for limit, amount := range total.Counters {
			got[fmt.Sprint(key, limit)] += amount
		}
	}
	for name, amount := range want {
		if got[name] != amount.Int64() {
			t.Fatalf("%s: counted %d, consumed %v", name, got[name], amount)
		}
		delete(got, name)
	}
	for name, amount := range got {
		t.Fatalf("%s: counted %d, consumed nothing", name, amount)
	}
}

// consumption sums the records' consumption by usage item and limit. fits is false where a sum comes near the end of what
// an amount can hold.
func consumption(records []events.Record) (sums map[string]*big.Int, fits bool) {
	sums, fits = map[string]*big.Int{}, true
	seen := map[string]bool{}
	for _, record := range records {
		change, err := events.Decode(record)
		if err != nil || change == nil || seen[change.New.Key.PK()+" "+change.StreamPosition] {
			continue
		}
		seen[change.New.Key.PK()+" "+change.StreamPosition] = true
		for limit, amount := range change.Consumed() {
			if !table.CanCount(limit) {
				continue
			}
			fits = fits && amount < quota.MaxAmount/1000 && amount > -quota.MaxAmount/1000
			for _, window := range []events.Window{events.Hourly, events.Daily, events.Monthly} {
				key := table.UsageKey{Group: change.New.Key.Group, Window: string(window), Start: window.Text(window.Start(record.Time))}
				name := fmt.Sprint(key, limit)
				if sums[name] == nil {
					sums[name] = new(big.Int)
				}
				sums[name].Add(sums[name], big.NewInt(amount))
			}
		}
	}
	return sums, fits
}

// FuzzMangledRecording replays what a client wrote, as it may have been kept: each pair of bytes in mangling names a record
// and what is done to it. None of it makes a record that is rejected, a quota that is granted twice, or a token that is
// counted twice. A quota holds no more than its capacity, unless it is lost how a shard came to be: the shard is then taken
// as it is first seen, and nothing off its donor. Where nothing at all was lost, the table is that of the sound recording.
func FuzzMangledRecording(f *testing.F) {
	f.Add(uint64(1), []byte{})
	f.Add(uint64(2), []byte{3, again, 9, again, 9, again})
	f.Add(uint64(3), []byte{20, lost, 21, lost, 40, lost})
	f.Add(uint64(4), []byte{5, later, 6, later, 30, later, 5, again, 31, lost})
	f.Fuzz(func(t *testing.T, seed uint64, mangling []byte) {
		sound := grown(t, seed)
		records, whole := mangled(sound, mangling[:min(len(mangling), 40)])
		report, items := setting{batch: 1000}.run(t, records)
		fuzzUsage(t, records, report)
		if len(report.Rejected) > 0 {
			t.Fatalf("rejected %v", report.Rejected)
		}
		for _, row := range report.Ledger {
			if fuzzLedger(t, row); !row.Conserved {
				t.Fatalf("not conserved: %+v", row)
			}
			if row.Held > row.Capacity+row.TopUp && inserted(records) == inserted(sound) {
				t.Fatalf("holds too much: %+v", row)
			}
		}
		for _, s := range []setting{{batch: 1}, {batch: 7}, {batch: 7, redeliver: true}} {
			_, again := s.run(t, records)
			sameResult(t, s, again, items)
		}
		if whole {
			_, want := setting{batch: 1000}.run(t, sound)
			sameTable(t, "nothing was lost", items, want)
		}
	})
}

// inserted counts the items that records tell the creation of.
func inserted(records []events.Record) int {
	items := map[string]bool{}
	for _, record := range records {
		if record.EventName == events.Insert {
			items[string(record.Keys)] = true
		}
	}
	return len(items)
}

// grown is the recording of a client that doubles twice and uses every shard.
func grown(t testing.TB, seed uint64) []events.Record {
	c := newClient(t, seed, 500_000)
	for n := range 24 {
		if n == 8 || n == 14 {
			c.double()
		}
		c.step()
	}
	return c.steps(4)
}

// What can happen to a record.
const (
	again = iota // it is delivered once more, at once
	lost         // it was not kept
	later        // it comes behind the next record, if that is of another item: of one item they come in order
	kinds
)

// mangled reports also whether every record is still there, and in order.
func mangled(records []events.Record, mangling []byte) (_ []events.Record, whole bool) {
	records, whole = slices.Clone(records), true
	for ; len(mangling) > 1 && len(records) > 1; mangling = mangling[2:] {
		at := int(mangling[0]) % (len(records) - 1)
		switch mangling[1] % kinds {
		case again:
			records = slices.Insert(records, at, records[at])
		case lost:
			records, whole = slices.Delete(records, at, at+1), false
		case later:
			if !bytes.Equal(records[at].Keys, records[at+1].Keys) {
				records[at], records[at+1], whole = records[at+1], records[at], false
			}
		}
	}
	return records, whole
}
