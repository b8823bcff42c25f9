package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/internal/dynoxide"
	"github.com/shardquota/shardquota/table"
)

// running is the run command in this process, at ten times its speed.
type running struct {
	*clients
	stderr lockedBuffer
	stop   context.CancelFunc
	ended  chan error
}

func (c *clients) run(f runFlags) *running {
	c.Helper()
	f.table, f.from, f.windows, f.concurrency, f.bisect = c.table, fromBeginning, "monthly", 4, true
	r := &running{clients: c, ended: make(chan error, 1)}
	given := func(flag string) bool { return flag == "attempts" && f.attempts > 0 }
	if f.onFailure != "" {
		f.maxAge = time.Hour
	}
	f.parallel = max(1, f.parallel)
	if err := f.check(given); err != nil {
		c.Fatal(err)
	}
	run, err := f.runner(c.service(), fastClock(10), slog.New(logHandler(&r.stderr)))
	if err != nil {
		c.Fatal(err)
	}
	ctx, stop := context.WithCancel(c.Context())
	r.stop = stop
	go func() { r.ended <- f.run(ctx, run) }()
	c.Cleanup(stop)
	return r
}

// end tells it to end, and returns what it logged.
func (r *running) end() string {
	r.Helper()
	r.stop()
	if err := <-r.ended; err != nil {
		r.Errorf("told to end: %v", err)
	}
	said := r.stderr.String()
	if strings.Contains(said, secretID) {
		r.Errorf("an id got out: %s", said)
	}
	return said
}

// logged sums a number over the lines of a log that have a message.
func logged(t *testing.T, log, message, attribute string) int {
	t.Helper()
	sum := 0
	for line := range strings.Lines(log) {
		var entry map[string]any
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatalf("no JSON: %s", line)
		}
		if n, ok := entry[attribute].(float64); ok && entry["msg"] == message {
			sum += int(n)
		}
	}
	return sum
}

// counted waits until usage is what clients spent of some entities.
func (c *clients) counted(entities ...int) {
	c.Helper()
	await(c.T, "usage is what was spent", func() bool {
		return !slices.ContainsFunc(entities, func(nth int) bool { return c.usage(nth, "monthly") != c.account(nth) })
	})
}

// Killed in the midst of batches and started again, with a checkpoint, usage is
// what clients spent, to the last token; Ctrl-C finishes what is in hand.
func TestRunKilled(t *testing.T) {
	c := newClients(t)
	checkpoint := filepath.Join(t.TempDir(), "checkpoint")
	args := []string{"run", "--table", c.table, "--checkpoint", checkpoint, "--window", "0s", "--batch-size", "25", "--parallel", "2", "--windows", "monthly"}
	for range 2 {
		c.use(1, 100)
		p := startTool(t, args...)
		before := c.usage(1, "monthly")
		working := make(chan struct{})
		go func() {
			defer close(working)
			c.use(2, 100)
		}()
		await(t, "something is counted", func() bool { return c.usage(1, "monthly") > before })
		p.kill()
		<-working
	}
	p := startTool(t, args...)
	c.counted(1, 2)
	c.use(1, 10)
	c.counted(1, 2)
	said := p.interrupt()
	if n := logged(t, said, "batch", "failures"); n != 0 {
		t.Errorf("%d failures: %s", n, said)
	}
	at, err := loadJSON[place](checkpoint)
	if err != nil || len(at.Shards) != 1 {
		t.Fatalf("checkpoint %+v, %v", at, err)
	}
	c.use(1, 5)
	r := c.run(runFlags{batchSize: 100, checkpoint: checkpoint})
	c.counted(1, 2)
	if log := r.end(); logged(t, log, "batch", "records") != 5 || logged(t, log, "batch", "duplicates") != 0 {
		t.Errorf("after a clean end it delivered again: %s", log)
	}
}

// Without a checkpoint everything comes again, and nothing is counted twice.
func TestRunRedelivers(t *testing.T) {
	c := newClients(t)
	c.use(1, 60)
	c.use(2, 40)
	for nth := range 2 {
		r := c.run(runFlags{batchSize: 30})
		await(t, "all is delivered", func() bool { return logged(t, r.stderr.String(), "batch", "records") == c.wrote })
		log := r.end()
		if n := logged(t, log, "batch", "duplicates"); n != nth*100 {
			t.Errorf("run %d: %d duplicates", nth+1, n)
		}
		if n := logged(t, log, "ended", "records"); n != c.wrote {
			t.Errorf("run %d: %d records were delivered, want %d", nth+1, n, c.wrote)
		}
	}
	c.counted(1, 2)
}

// monthOf is the key of an entity's usage item of this month.
func monthOf(nth int) table.Item {
	key := table.UsageKey{Group: groupOf(nth), Window: string(events.Monthly), Start: events.Monthly.StartText(time.Now().UnixMilli())}
	return table.Item{table.AttrPK: table.S(key.PK()), table.AttrSK: table.S(key.SK())}
}

// poison makes the usage of an entity one that cannot be counted: what was
// counted of it cannot be read.
func (c *clients) poison(nth int) {
	c.Helper()
	item := monthOf(nth)
	item["mark#0"], item["runs#0"] = table.S("none"), table.S("a,b")
	if _, err := c.client.PutItem(c.Context(), &dynamodb.PutItemInput{TableName: &c.table, Item: item}); err != nil {
		c.Fatal(err)
	}
	c.wrote++
}

// One entity's usage cannot be counted, and no retry mends that. Its batches are
// halved until nothing else is held up by them, and kept aside; what they hold
// is counted from there once that is mended.
func TestRunGivesUp(t *testing.T) {
	c := newClients(t)
	c.poison(2)
	c.use(1, 20)
	c.use(2, 2)
	c.use(3, 30)
	dir := filepath.Join(t.TempDir(), "aside")
	r := c.run(runFlags{batchSize: 1000, attempts: 2, onFailure: dir})
	c.counted(1, 3)
	var kept []string
	await(t, "what cannot be counted is kept aside", func() bool {
		kept, _ = filepath.Glob(filepath.Join(dir, "*.json"))
		return logged(t, r.stderr.String(), "batch kept aside", "records") == 2
	})
	log := r.end()
	if !strings.Contains(log, `"condition":"RetryAttemptsExhausted"`) || logged(t, log, "ended", "keptAside") != 2 {
		t.Errorf("logged %s", log)
	}
	if len(kept) != 2 {
		t.Errorf("kept %v, want 2 files of a record each", kept)
	}
	for _, name := range kept {
		checkNotice(t, name, c.table)
	}

	_, err := c.client.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{
		TableName: &c.table, Key: monthOf(2), UpdateExpression: new("REMOVE #m, #r"),
		ExpressionAttributeNames: map[string]string{"#m": "mark#0", "#r": "runs#0"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		args := append([]string{"replay", "--table", c.table, "--endpoint-url", dynoxide.Start(t), "--windows", "monthly"}, kept...)
		if code, said := command(t, args...); code != exitFine {
			t.Fatalf("exit %d: %s", code, said)
		}
		c.counted(1, 2, 3)
	}
}

// checkNotice looks at a file of a batch that was given up.
func checkNotice(t *testing.T, name, tableName string) {
	t.Helper()
	var n notice
	text, err := os.ReadFile(name)
	if err == nil {
		err = json.Unmarshal(text, &n)
	}
	if err != nil {
		t.Fatal(err)
	}
	records, err := events.DecodeEvent([]byte(n.Payload))
	if err != nil || len(records) != 1 {
		t.Fatalf("%s: %d records, %v", name, len(records), err)
	}
	b := n.Batch
	if b.Size != 1 || b.Start != records[0].Sequence || b.End != b.Start || !strings.Contains(b.Stream, "table/"+tableName+"/stream/"+records[0].Stream) {
		t.Errorf("%s: %+v", name, b)
	}
	if n.RequestContext.Condition != "RetryAttemptsExhausted" || n.RequestContext.Count != 2 || !strings.HasSuffix(name, b.Shard+"-"+b.Start+"-"+b.End+".json") {
		t.Errorf("%s: %+v", name, n.RequestContext)
	}
}

// A place that cannot be written to keeps the batch, until it can be.
func TestRunKeepsTrying(t *testing.T) {
	c := newClients(t)
	c.poison(1)
	dir := filepath.Join(t.TempDir(), "aside")
	r := c.run(runFlags{batchSize: 10, attempts: 1, onFailure: dir})
	await(t, "it runs", func() bool { return strings.Contains(r.stderr.String(), `"running"`) })
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	c.use(1, 1)
	await(t, "a batch cannot be kept", func() bool { return strings.Contains(r.stderr.String(), "batch not kept aside") })
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	await(t, "it is kept", func() bool { return logged(t, r.stderr.String(), "batch kept aside", "records") == 1 })
	r.end()
}

// What cannot be run is refused, with its cause.
func TestRunRefusals(t *testing.T) {
	c := newClients(t)
	c.use(1, 1)
	bare := dynoxide.Name()
	_, err := c.client.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName: &bare, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: new("PK"), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: new("PK"), KeyType: types.KeyTypeHash}},
	})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	other, broken := filepath.Join(dir, "other"), filepath.Join(dir, "broken")
	if err := errors.Join(saveJSON(other, place{Table: "other"}), os.WriteFile(broken, []byte("{"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		want string
		args []string
	}{
		{"name a --table", []string{"--batch-size", "1"}},
		{"ResourceNotFoundException", []string{"--table", dynoxide.Name()}},
		{"the table has no stream", []string{"--table", bare}},
		{"--attempts needs --on-failure", []string{"--table", c.table, "--attempts", "3"}},
		{"--max-age needs --on-failure", []string{"--table", c.table, "--max-age", "3h"}},
		{"--attempts and --max-age", []string{"--table", c.table, "--attempts", "0", "--on-failure", dir}},
		{"--on-failure: ", []string{"--table", c.table, "--on-failure", broken}},
		{"--window: ", []string{"--table", c.table, "--window", "6m"}},
		{"--windows: ", []string{"--table", c.table, "--windows", "weekly"}},
		{"--from: ", []string{"--table", c.table, "--from", "noon"}},
		{"--parallel: 11 is not within 1 and 10", []string{"--table", c.table, "--parallel", "11"}},
		{"--batch-size: 0 is not", []string{"--table", c.table, "--batch-size", "0"}},
		{"--checkpoint: " + other + " is of another table", []string{"--table", c.table, "--checkpoint", other}},
		{"--checkpoint: " + broken, []string{"--table", c.table, "--checkpoint", broken}},
		{"--checkpoint: nowhere/x", []string{"--table", c.table, "--checkpoint", "nowhere/x"}},
	} {
		code, said := command(t, append([]string{"run", "--endpoint-url", dynoxide.Start(t)}, test.args...)...)
		if code != exitUsage || !strings.Contains(said, test.want) {
			t.Errorf("%v: exit %d, %s; want %q", test.args, code, said, test.want)
		}
	}
}
