package main_test

import (
	"strings"
	"testing"
	"time"

	"github.com/shardquota/shardquota/internal/dynoxide"
	"github.com/shardquota/shardquota/internal/faultproxy"
)

// TestFaults spoils the way to the table in every manner, and then delivers
// again what the function asked for: in the end everything is there once.
func TestFaults(t *testing.T) {
	const first, second = secretMark + "first", secretMark + "second"
	for _, test := range []struct {
		name  string
		fault faultproxy.Fault
		hits  func(faultproxy.Request) bool
		from  int // index of the record that is to be asked for
	}{
		{"throttled", faultproxy.Throughput, usageOfEntity(second), 2},
		{"throttled throughout", faultproxy.Throughput, always, 0},
		{"service failing", faultproxy.ServerError, usageOfEntity(second), 2},
		{"refused with a quote of the request", faultproxy.Invalid, always, 0},
		{"answers lost", faultproxy.TooLate, usageOfEntity(second), 2},
		{"all answers lost", faultproxy.TooLate, always, 0},
		{"no answers", faultproxy.Hang, always, 0},
		{"siblings unreadable", faultproxy.Throughput, operation("BatchGetItem"), 4},
		{"creation fails", faultproxy.ServerError, operation("TransactWriteItems"), 4},
		// Creations come first, and this one takes all the time there is.
		{"creation's answer lost", faultproxy.TooLate, operation("TransactWriteItems"), 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := faultproxy.Start(t, dynoxide.Start(t))
			w := newWorld(t, p.URL, settings{"AWS_MAX_ATTEMPTS": "1", "SHARDQUOTA_RESERVE": "1s"})
			amounts := map[string]int64{"calls": 1_250, "rpm": 500}
			w.writer.create(first, []limit{calls, rpm}, amounts)
			w.writer.consume(first, 0, amounts)
			w.writer.create(second, []limit{calls, rpm}, amounts)
			w.writer.consume(second, 0, amounts)
			w.writer.double(first, 1)
			records := w.stream.next(t)

			p.Spoil(func(request faultproxy.Request) faultproxy.Fault {
				if test.hits(request) {
					return test.fault
				}
				return faultproxy.None
			})
			remaining := enough
			if test.fault.Silent {
				remaining = 3 * time.Second // the function waits as long as it may
			}
			began := time.Now()
			w.mustAnswer(event(t, records), remaining, from(records[test.from]))
			if took := time.Since(began); took > remaining {
				t.Errorf("it answered after %v, when its time was over", took)
			}
			if p.Spoilt() == 0 {
				t.Fatal("nothing was spoilt")
			}
			p.Spoil(faultproxy.Nothing)
			w.mustAnswer(event(t, records[test.from:]), enough, fine)
			w.function.metrics()
			w.delivered = records
			w.settle()

			table := w.scan()
			checkUsage(t, table, w.delivered)
			b := shards(table, first)
			if len(b) != 2 {
				t.Fatalf("%d shards, want 2", len(b))
			}
			if zero, one := number(b[0], "b_calls_tk"), number(b[1], "b_calls_tk"); zero != 1_000_000-2_500-500_000 || one != 500_000 {
				t.Errorf("the shards hold %d and %d of the quota, want 497500 and 500000", zero, one)
			}
			if len(w.function.logged("to be delivered again")) == 0 {
				t.Error("the failure was not logged")
			}
		})
	}
}

func always(faultproxy.Request) bool { return true }

func operation(name string) func(faultproxy.Request) bool {
	return func(request faultproxy.Request) bool { return request.Operation == name }
}

func usageOfEntity(entity string) func(faultproxy.Request) bool {
	return func(request faultproxy.Request) bool {
		return strings.Contains(request.Key().SK, "#USAGE#") && strings.Contains(request.Key().PK, entity)
	}
}
