package main_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/shardquota/shardquota/internal/dynoxide"
)

// enough is more time than any batch here needs.
const enough = time.Minute

// fine is the answer to a batch that is done with.
const fine = `{"batchItemFailures":[]}`

// world is a table with its stream, a client that writes to it and the function
// that follows.
type world struct {
	*testing.T
	client    *dynamodb.Client
	table     string
	stream    *stream
	writer    *writer
	function  *function
	delivered []record
}

// newWorld makes a world whose function reaches the table at an endpoint, ""
// for the table's own.
func newWorld(t *testing.T, endpoint string, more settings) *world {
	t.Helper()
	client := dynoxide.Client(t)
	if endpoint == "" {
		endpoint = dynoxide.Start(t)
	}
	name := dynoxide.NewTable(t, client)
	return &world{
		T:        t,
		client:   client,
		table:    name,
		stream:   openStream(t, client, name),
		writer:   newWriter(t, client, name),
		function: startFunction(t, name, endpoint, more),
	}
}

// deliver hands the function what was written since the last call, and returns
// what it measured. Nothing may fail.
func (w *world) deliver() map[string]float64 {
	w.Helper()
	records := w.stream.next(w)
	w.delivered = append(w.delivered, records...)
	w.mustAnswer(event(w, records), enough, fine)
	metrics := w.function.metrics()
	if metrics["Records"] != float64(len(records)) || metrics["Rejected"] != 0 || metrics["Failures"] != 0 {
		w.Errorf("of %d records the function counted %v, rejected %v, failed %v",
			len(records), metrics["Records"], metrics["Rejected"], metrics["Failures"])
	}
	return metrics
}

// settle delivers until the function itself has nothing more to write.
func (w *world) settle() {
	w.Helper()
	for range 10 {
		before := len(w.delivered)
		w.deliver()
		if len(w.delivered) == before {
			return
		}
	}
	w.Fatal("the function answers its own writes without end")
}

func (w *world) mustAnswer(event []byte, remaining time.Duration, want string) {
	w.Helper()
	if a := w.function.Invoke(event, remaining); a.Failed || a.Body != want {
		w.Fatalf("answer %s (failed: %v), want %s", a.Body, a.Failed, want)
	}
}

// from is the answer that asks for the batch from a record on.
func from(r record) string {
	return `{"batchItemFailures":[{"itemIdentifier":"` + r.sequence + `"}]}`
}

func (w *world) scan() snapshot { return scan(w, w.client, w.table) }

var (
	calls    = limit{"calls", 1_000_000, 0, 1000}
	rpm      = limit{"rpm", 600_000, 600_000, 60_000}
	tokensIn = limit{"tokens.in-3", 90_000_000, 90_000_000, 60_000}
)

// TestEndToEnd follows one entity from its first use to four shards, all of it
// through the stream: usage, the new shards and their grants, and that
// delivering anything again changes nothing.
func TestEndToEnd(t *testing.T) {
	w := newWorld(t, "", nil)
	w.mustAnswer(eventOf(), enough, fine)
	t.Logf("from start to the first answer: %v", time.Since(w.function.Started).Round(time.Millisecond))
	w.function.metrics()

	began := time.Now()
	const hot = secretMark + "hot"
	spend := map[string]int64{"calls": 1_000, "rpm": 1_000, "tokens.in-3": 12_625}

	w.writer.create(hot, []limit{calls, rpm, tokensIn}, spend)
	for range 20 {
		w.writer.consume(hot, 0, spend)
	}
	w.deliver()
	checkUsage(t, w.scan(), w.delivered)

	// 1 to 2: shard 0 was granted everything, so shard 1's half is moved off it.
	w.writer.double(hot, 1)
	for range 3 {
		w.writer.consume(hot, 0, spend)
	}
	if m := w.deliver(); m["ShardsCreated"] != 1 || m["ShardsRaised"] != 0 || m["ShardsDeclined"] != 0 {
		t.Errorf("the first doubling: %v", m)
	}
	checkShards(t, w.scan(), hot, began, []shard{
		{count: 2, grant: 1, calls: 1_000_000 - 24_000 - 500_000, consumed: 24_000, rpm: 300_000},
		{count: 2, grant: 2, calls: 500_000, rpm: 300_000},
	})

	// 2 to 4: slot 2 is covered by shard 0's grant alone, slot 3 by both, and
	// shard 1's is the closer fit.
	for range 5 {
		w.writer.consume(hot, 0, spend)
		w.writer.consume(hot, 1, spend)
	}
	w.writer.double(hot, 2)
	w.writer.consume(hot, 1, spend) // shard 1 does not know yet
	if m := w.deliver(); m["ShardsCreated"] != 2 || m["ShardsRaised"] != 1 || m["ShardsDeclined"] != 0 {
		t.Errorf("the second doubling: %v", m)
	}
	w.settle()
	after := w.scan()
	checkShards(t, after, hot, began, []shard{
		{count: 4, grant: 1, calls: 1_000_000 - 29_000 - 750_000, consumed: 29_000, rpm: 150_000},
		{count: 4, grant: 2, calls: 500_000 - 6_000 - 250_000, consumed: 6_000, rpm: 150_000},
		{count: 4, grant: 4, calls: 250_000, rpm: 150_000},
		{count: 4, grant: 4, calls: 250_000, rpm: 150_000},
	})
	checkUsage(t, after, w.delivered)
	w.writer.checkAccount(w.delivered)

	all, middle := w.delivered, len(w.delivered)/2
	for what, again := range map[string][]record{
		"everything":    all,
		"first half":    all[:middle],
		"second half":   all[middle:],
		"from record 7": all[7:],
	} {
		w.mustAnswer(event(t, again), enough, fine)
		m := w.function.metrics()
		if m["UsageWrites"] != 0 || m["Duplicates"] != float64(consuming(again)) {
			t.Errorf("%s again: %v usage writes and %v duplicates, want none and %d", what, m["UsageWrites"], m["Duplicates"], consuming(again))
		}
		sameTable(t, what+" again", after, w.scan())
	}
}

func consuming(records []record) int {
	count := 0
	for _, r := range records {
		if len(r.consumed()) > 0 {
			count++
		}
	}
	return count
}

// shard is what a shard of the hot entity is to look like, amounts in
// millitokens.
type shard struct {
	count, grant    int64
	calls, consumed int64 // of the quota
	rpm             int64 // the most that it may hold of the dripping limit
}

func checkShards(t *testing.T, s snapshot, entity string, began time.Time, want []shard) {
	t.Helper()
	found := shards(s, entity)
	if len(found) != len(want) {
		t.Fatalf("%d shards, want %d", len(found), len(want))
	}
	var held int64
	for i, b := range found {
		got := shard{
			count: number(b, "shard_count"), grant: number(b, "b_calls_gc"),
			calls: number(b, "b_calls_tk"), consumed: number(b, "b_calls_tc"), rpm: want[i].rpm,
		}
		if got != want[i] {
			t.Errorf("shard %d is %+v, want %+v", i, got, want[i])
		}
		if balance := number(b, "b_rpm_tk"); balance > want[i].rpm || balance < want[i].rpm-35_000 {
			t.Errorf("shard %d holds %d of rpm, want its share %d less what was spent since", i, balance, want[i].rpm)
		}
		if refilled := number(b, "rf"); refilled < began.UnixMilli() || refilled > time.Now().UnixMilli() {
			t.Errorf("shard %d was last refilled at %d, which is not within this test", i, refilled)
		}
		if i > 0 && (number(b, "b_wcu_tc") > number(b, "b_calls_tc") || text(b, "pinc") != text(found[0], "pinc") ||
			text(b, "GSI3SK") != text(found[0], "GSI3SK")[:len(text(found[0], "GSI3SK"))-1]+string(rune('0'+i))) {
			t.Errorf("shard %d is no clone of shard 0: %v", i, b)
		}
		held += number(b, "b_calls_tk") + number(b, "b_calls_tc")
	}
	if held != calls.capacity {
		t.Errorf("held and consumed make %d of the quota, want all %d of it", held, calls.capacity)
	}
}

// TestTopUpAndPressure: a bucket that ran short is refilled by the time that
// has passed, one whose write meter is low is doubled, and the function follows
// its own doubling when the stream brings it back.
func TestTopUpAndPressure(t *testing.T) {
	w := newWorld(t, "", nil)
	const short, pressed = secretMark + "short", secretMark + "pressed"
	drained := map[string]int64{"rpm": 400_000}
	longAgo := func(i item) { i["rf"] = num(time.Now().Add(-time.Hour).UnixMilli()) }
	w.writer.create(short, []limit{rpm}, drained, longAgo)
	busy := func(i item) { i["b_wcu_tk"], i["b_wcu_tc"] = num(100_000), num(900_000) }
	w.writer.create(pressed, []limit{calls, rpm}, map[string]int64{"calls": 1_000}, busy)

	if m := w.deliver(); m["PassesWritten"] != 1 || m["Doublings"] != 1 {
		t.Errorf("%v passes and %v doublings, want one each", m["PassesWritten"], m["Doublings"])
	}
	table := w.scan()
	if b := shards(table, short)[0]; number(b, "b_rpm_tk") != rpm.capacity || number(b, "b_rpm_tc") != 400_000 {
		t.Errorf("the short bucket holds %d, consumed %d, want %d and 400000", number(b, "b_rpm_tk"), number(b, "b_rpm_tc"), rpm.capacity)
	}
	if b := shards(table, pressed); len(b) != 1 || number(b[0], "shard_count") != 2 {
		t.Fatalf("the pressed bucket: %d shards, count %d, want one at count 2", len(b), number(b[0], "shard_count"))
	}
	w.settle()
	b := shards(w.scan(), pressed)
	if len(b) != 2 || number(b[1], "b_calls_tk") != 500_000 || number(b[0], "b_calls_tk") != 499_000 {
		t.Errorf("after the doubling came back: %d shards: %v", len(b), b)
	}
	checkUsage(t, w.scan(), w.delivered)
	if doubled := w.function.logged("doubled"); len(doubled) != 1 || doubled[0]["from"] != 1.0 || doubled[0]["to"] != 2.0 {
		t.Errorf("logged: %v, want one doubling from 1 to 2", doubled)
	}
}

// TestWindowOfTheWrite: a batch that crosses the end of a month is counted on
// either side of it by when each write was made.
func TestWindowOfTheWrite(t *testing.T) {
	w := newWorld(t, "", nil)
	const entity = secretMark + "late"
	w.writer.create(entity, []limit{rpm}, map[string]int64{"rpm": 250})
	for i := range int64(6) {
		w.writer.consume(entity, 0, map[string]int64{"rpm": 1_000 + i})
	}
	records := w.stream.next(t)
	edge := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	for i := range records {
		records[i].written = edge.Add(time.Duration(i-3) * time.Millisecond)
	}
	w.mustAnswer(event(t, records), enough, fine)
	usage := usageOf(w.scan())
	checkUsage(t, usage, records)
	key := namespace + "/ENTITY#" + entity + " #USAGE#" + resource + "#"
	for window, want := range map[string][2]string{
		"2026-11-30T23:00:00Z#hourly":  {"2.251", "3"},
		"2026-12-01T00:00:00Z#hourly":  {"4.014", "4"},
		"2026-11-30T00:00:00Z#daily":   {"2.251", "3"},
		"2026-12-01T00:00:00Z#daily":   {"4.014", "4"},
		"2026-11-01T00:00:00Z#monthly": {"2.251", "3"},
		"2026-12-01T00:00:00Z#monthly": {"4.014", "4"},
	} {
		got := numbersOf(usage[key+window])
		if got["rpm"] != want[0] || got["total_events"] != want[1] {
			t.Errorf("%s: %v, want rpm %s in %s writes", window, got, want[0], want[1])
		}
	}
}

// TestUndecodableRecords: what cannot be read costs nothing but itself.
func TestUndecodableRecords(t *testing.T) {
	w := newWorld(t, "", nil)
	const entity = secretMark + "good"
	w.writer.create(entity, []limit{calls, rpm}, map[string]int64{"calls": 1_000, "rpm": 500})
	for range 3 {
		w.writer.consume(entity, 0, map[string]int64{"calls": 1_000, "rpm": 500})
	}
	records := w.stream.next(t)
	good := records[1].json(t)
	spoilt := func(old, replacement string) string {
		text := strings.ReplaceAll(good, old, replacement)
		if text == good {
			t.Fatalf("a record holds no %s", old)
		}
		return text
	}
	bad := []string{
		`null`, `17`, `"` + entity + `"`, `{}`, `[]`,
		spoilt(`"MODIFY"`, `"TRUNCATE"`),
		spoilt(`"MODIFY"`, `{"`+entity+`":1}`),
		spoilt(`"SequenceNumber":"`, `"SequenceNumber":"x`),
		spoilt(`"NewImage"`, `"Image"`),
		spoilt(`"OldImage":{`, `"OldImage":{"PK":{"S":"`+namespace+`/BUCKET#other#x#0"},"SK":{"S":"#STATE"}},"Other":{`),
		spoilt(`"b_rpm_tk":{"N":"`, `"b_rpm_tk":{"S":"`),
		spoilt(`"b_rpm_tk":{"N":"`, `"b_rpm_tk":{"N":"1.5`),
		spoilt(`"b_rpm_tc":{"N":"`, `"b_rpm_tc":{"N":"99999999999999999999`),
		spoilt(`"Keys":{`, `"Keys":7,"Other":{`),
		spoilt(`#`+resource+`#0"`, `#`+resource+`#-1"`),
		spoilt(`/BUCKET#`, `/BUCKET#`+entity+`#`),
	}
	texts := []string{records[0].json(t), records[1].json(t)}
	texts = append(texts, bad...)
	texts = append(texts, records[2].json(t), records[3].json(t))

	w.mustAnswer(eventOf(texts...), enough, fine)
	m := w.function.metrics()
	if m["Records"] != float64(len(texts)) || m["UsageWrites"] != 3 {
		t.Errorf("%v records and %v usage writes, want %d and 3", m["Records"], m["UsageWrites"], len(texts))
	}
	if m["Rejected"] != float64(len(bad)) {
		t.Errorf("%v records rejected, want %d", m["Rejected"], len(bad))
	}
	checkUsage(t, w.scan(), records)
	rejected := map[float64]bool{}
	for _, line := range w.function.logged("record rejected") {
		if line["reason"] == "" {
			t.Errorf("rejected without a reason: %v", line)
		}
		rejected[line["index"].(float64)] = true
	}
	for i := range bad {
		if !rejected[float64(2+i)] {
			t.Errorf("not rejected: %s", bad[i])
		}
	}
}

// TestNoEvent: what is no batch is an error of this invocation, which tells
// nothing of what was sent, and not the end of the function.
func TestNoEvent(t *testing.T) {
	w := newWorld(t, "", nil)
	for _, payload := range []string{
		`{}`, `null`, `"` + secretMark + `x"`, `{"` + secretMark + `x":[]}`, `{"Records":{"` + secretMark + `x":1}}`,
	} {
		if a := w.function.Invoke([]byte(payload), enough); !a.Failed || !strings.Contains(a.Body, "decode event") || strings.Contains(a.Body, secretMark) {
			t.Errorf("%s: answer %s (failed: %v), want an error without the id", payload, a.Body, a.Failed)
		}
	}
	w.mustAnswer([]byte(`{"Records":[]}`), enough, fine)
}

// TestNoTimeLeft: a batch that comes with too little time is handed back whole,
// from its first record that has work to it, and nothing is written.
func TestNoTimeLeft(t *testing.T) {
	w := newWorld(t, "", nil)
	const entity = secretMark + "late"
	w.writer.configure()
	w.writer.create(entity, []limit{calls}, map[string]int64{"calls": 1_500})
	w.writer.consume(entity, 0, map[string]int64{"calls": 1_500})
	w.writer.double(entity, 1)
	records := w.stream.next(t)
	before := w.scan()

	w.mustAnswer(event(t, records), time.Millisecond, from(records[1]))
	if m := w.function.metrics(); m["Failures"] == 0 || m["UsageWrites"] != 0 {
		t.Errorf("without time: %v", m)
	}
	sameTable(t, "no time left", before, w.scan())

	w.mustAnswer(event(t, records[1:]), enough, fine)
	checkUsage(t, w.scan(), records)
	if b := shards(w.scan(), entity); len(b) != 2 {
		t.Errorf("%d shards after the batch was delivered again, want 2", len(b))
	}
}

// TestUnreachable: nobody answers at the table's address, and the client tries
// as often as it does by default.
func TestUnreachable(t *testing.T) {
	w := newWorld(t, closedPort(t), nil)
	w.writer.create(secretMark+"a", []limit{calls}, map[string]int64{"calls": 1_000})
	w.writer.create(secretMark+"b", []limit{calls}, map[string]int64{"calls": 1_000})
	records := w.stream.next(t)
	w.mustAnswer(event(t, records), enough, from(records[0]))
	if usage := usageOf(w.scan()); len(usage) != 0 {
		t.Errorf("usage items: %v", maps.Keys(usage))
	}
}
