package main_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardquota/shardquota/internal/dynoxide"
)

// envPython names an interpreter that has zae-limiter (testdata/requirements.txt).
const envPython = "SHARDQUOTA_PYTHON"

// TestRealClient lets zae-limiter's own client use a table while the function
// follows its stream, and shares out what the two of them did.
func TestRealClient(t *testing.T) {
	python := os.Getenv(envPython)
	if python == "" {
		t.Skip(envPython + " names no interpreter that has zae-limiter; `make test` sees to one where pip reaches an index")
	}
	w := newWorld(t, "", nil)
	const entity = secretMark + "python"

	var stdout, stderr bytes.Buffer
	client := exec.CommandContext(t.Context(), python, "testdata/client.py", dynoxide.Start(t), w.table, entity)
	client.Stdout, client.Stderr = &stdout, &stderr
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- client.Wait() }()
	w.follow(ended, func(err error) {
		if err != nil {
			t.Fatalf("the client: %v\n%s", err, stderr.String())
		}
	})
	w.settle()

	var consumed map[string]int64 // tokens
	if err := json.Unmarshal(stdout.Bytes(), &consumed); err != nil {
		t.Fatalf("the client's account: %v: %s", err, stdout.String())
	}
	table := w.scan()
	checkUsage(t, table, w.delivered)
	checkTotals(t, table, consumed)

	buckets := bucketsOf(table)
	if len(buckets) != 2 {
		t.Fatalf("%d shards, want 2", len(buckets))
	}
	const capacity = 40_000_000
	sum := int64(0)
	for i, b := range buckets {
		sum += number(b, "b_calls_tk") + number(b, "b_calls_tc")
		if number(b, "shard_count") != 2 || number(b, "b_calls_gc") != int64(1+i) {
			t.Errorf("shard %d has count %d and grant count %d, want 2 and %d", i, number(b, "shard_count"), number(b, "b_calls_gc"), 1+i)
		}
		if number(b, "b_calls_tc") == 0 {
			t.Errorf("shard %d was never used", i)
		}
	}
	if sum != capacity {
		t.Errorf("held and consumed make %d of the quota, want all %d of it", sum, capacity)
	}

	for batch := range slices.Chunk(w.delivered, 50) {
		w.mustAnswer(event(t, batch), enough, fine)
	}
	sameTable(t, "everything again", table, w.scan())
}

// follow delivers the stream as it is written until the writer has ended.
func (w *world) follow(ended <-chan error, done func(error)) {
	w.Helper()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		select {
		case err := <-ended:
			done(err)
			return
		case <-poll.C:
			w.deliver()
		case <-w.Context().Done():
			w.Fatal("the test ended before the writer did")
		}
	}
}

// checkTotals compares the usage items of each kind of window, summed, with
// what the client says it consumed.
func checkTotals(t *testing.T, s snapshot, want map[string]int64) {
	t.Helper()
	for _, window := range []string{"hourly", "daily", "monthly"} {
		sums := map[string]int64{}
		for _, i := range usageOf(s) {
			if text(i, "window") != window {
				continue
			}
			for name := range want {
				sums[name] += number(i, name)
			}
		}
		if !maps.Equal(sums, want) {
			t.Errorf("%s usage is %v, the client consumed %v", window, sums, want)
		}
	}
}

// bucketsOf are the buckets of a table that has one entity's, by shard.
func bucketsOf(s snapshot) []item {
	var found []item
	for _, key := range slices.Sorted(maps.Keys(s)) {
		if strings.HasSuffix(key, " #STATE") {
			found = append(found, s[key])
		}
	}
	return found
}
