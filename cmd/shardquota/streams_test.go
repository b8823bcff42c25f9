package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
	"github.com/aws/smithy-go/logging"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/events/delivery"
	"github.com/shardquota/shardquota/events/stream"
	"github.com/shardquota/shardquota/internal/dynoxide"
	"github.com/shardquota/shardquota/internal/faultproxy"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/memory"
)

// streams are the streams that a table had, each of one shard of its own that
// holds so many writes of 1 token to a bucket. All but the last are disabled,
// and the last one too if the table is done with.
type streams struct {
	writes []int
	done   bool
}

func (s *streams) arn(nth int) string {
	return fmt.Sprintf("arn:aws:dynamodb:x:1:table/limits/stream/s%d", nth)
}

func (s *streams) nth(name string) int {
	n, _ := strconv.Atoi(name[len(name)-1:])
	return n
}

func (s *streams) over(nth int) bool { return s.done || nth < len(s.writes)-1 }

func (s *streams) DescribeTable(context.Context, *dynamodb.DescribeTableInput, ...func(*dynamodb.Options)) (*dynamodb.DescribeTableOutput, error) {
	return &dynamodb.DescribeTableOutput{Table: &dbtypes.TableDescription{LatestStreamArn: new(s.arn(len(s.writes) - 1))}}, nil
}

func (s *streams) DescribeStream(_ context.Context, in *dynamodbstreams.DescribeStreamInput, _ ...stream.Options) (*dynamodbstreams.DescribeStreamOutput, error) {
	nth := s.nth(*in.StreamArn)
	if s.writes[nth] < 0 {
		return nil, &types.ResourceNotFoundException{}
	}
	found := &types.StreamDescription{StreamViewType: types.StreamViewTypeNewAndOldImages, StreamStatus: types.StreamStatusEnabled}
	found.Shards = []types.Shard{{ShardId: new("shard-" + strconv.Itoa(nth))}}
	if s.over(nth) {
		found.StreamStatus = types.StreamStatusDisabled
	}
	return &dynamodbstreams.DescribeStreamOutput{StreamDescription: found}, nil
}

func (s *streams) GetShardIterator(_ context.Context, in *dynamodbstreams.GetShardIteratorInput, _ ...stream.Options) (*dynamodbstreams.GetShardIteratorOutput, error) {
	after := "0"
	if in.SequenceNumber != nil {
		after = *in.SequenceNumber
	}
	return &dynamodbstreams.GetShardIteratorOutput{ShardIterator: new(after + "|" + *in.ShardId)}, nil
}

func (s *streams) GetRecords(_ context.Context, in *dynamodbstreams.GetRecordsInput, _ ...stream.Options) (*dynamodbstreams.GetRecordsOutput, error) {
	after, shard, _ := strings.Cut(*in.ShardIterator, "|")
	from, _ := strconv.Atoi(after)
	nth := s.nth(shard)
	out := &dynamodbstreams.GetRecordsOutput{Records: []types.Record{}}
	for n := from; n < s.writes[nth]; n++ {
		out.Records = append(out.Records, s.write(n))
	}
	if !s.over(nth) {
		out.NextShardIterator = new(strconv.Itoa(s.writes[nth]) + "|" + shard)
	}
	return out, nil
}

// write is a write to the bucket, the first of which is number 0.
func (s *streams) write(n int) types.Record {
	pk := &types.AttributeValueMemberS{Value: groupOf(1).At(0).PK()}
	sk := &types.AttributeValueMemberS{Value: table.StateSK}
	image := func(consumed int) map[string]types.AttributeValue {
		item := map[string]types.AttributeValue{"PK": pk, "SK": sk}
		for name, value := range map[string]int{"rf": 1796032800000, "b_rpm_tk": 900_000 - consumed, "b_rpm_tc": consumed, "b_rpm_cp": 900_000, "b_rpm_ra": 900_000, "b_rpm_rp": 60_000} {
			item[name] = &types.AttributeValueMemberN{Value: strconv.Itoa(value)}
		}
		return item
	}
	return types.Record{EventName: types.OperationTypeModify, Dynamodb: &types.StreamRecord{
		SequenceNumber: new(strconv.Itoa(n + 1)), ApproximateCreationDateTime: new(time.UnixMilli(1796032800000)),
		Keys: map[string]types.AttributeValue{"PK": pk, "SK": sk}, OldImage: image(1000 * n), NewImage: image(1000*n + 1000),
	}}
}

// A stream that was disabled is recorded to its end, and the one that took its
// place after it; a recording goes on in whichever it was.
func TestRecordNextStream(t *testing.T) {
	s := &streams{writes: []int{3}}
	file := filepath.Join(t.TempDir(), "two.jsonl")
	record := func() (string, error) {
		var stderr lockedBuffer
		f := recordFlags{table: "limits", output: file, from: fromBeginning, current: true}
		r := f.recorder(connection{}, fastClock(100), nil, &stderr)
		r.tables, r.streams = s, s
		err := f.run(t.Context(), r, &stderr)
		return stderr.String(), err
	}
	if _, err := record(); err != nil {
		t.Fatal(err)
	}
	s.writes = []int{5, 2} // two more before it was disabled
	if said, err := record(); err != nil || !strings.Contains(said, "recorded 4 records of 2 shards") {
		t.Errorf("%v: %s", err, said)
	}
	s.writes, s.done = []int{-1, 4}, true
	if said, err := record(); err != nil || !strings.Contains(said, errOver.Error()) {
		t.Errorf("%v: %s", err, said)
	}
	if got, want := sequencesOf(t, file), []string{"1", "2", "3", "4", "5", "1", "2", "3", "4"}; !slices.Equal(got, want) {
		t.Errorf("recorded %v, want %v", got, want)
	}
	if text := string(readAll(t, file)); strings.Count(text, "stream/s0") != 5 || strings.Count(text, "stream/s1") != 4 {
		t.Errorf("the streams are not named: %s", text)
	}

	s.writes, s.done = append(s.writes, 1), false
	at, err := loadJSON[recorded](positionOf(file))
	if err != nil {
		t.Fatal(err)
	}
	at.Stream, at.Shards = s.arn(0), map[string]delivery.Checkpoint{"shard-0": {After: "4"}}
	if err := saveJSON(positionOf(file), at); err != nil {
		t.Fatal(err)
	}
	said, err := record()
	if !errors.Is(err, errLost) || !strings.Contains(said, "shard-0 is no longer on the stream") || !strings.Contains(said, "recorded 1 record ") {
		t.Errorf("of a stream that is gone: %v: %s", err, said)
	}
}

// Run goes on with the next stream as well, and ends where there is none.
func TestRunNextStream(t *testing.T) {
	s := &streams{writes: []int{3, 4}, done: true}
	var stderr lockedBuffer
	f := runFlags{table: "limits", from: fromBeginning, windows: "monthly", batchSize: 2, concurrency: 1, checkpoint: filepath.Join(t.TempDir(), "c")}
	r, err := f.runner(connection{}, fastClock(100), slog.New(logHandler(&stderr)))
	if err != nil {
		t.Fatal(err)
	}
	if err := saveJSON(f.checkpoint, place{Table: "limits", Stream: s.arn(0)}); err != nil {
		t.Fatal(err)
	}
	store := memory.New()
	r.tables, r.streams, r.function.Aggregator.Store = s, s, store
	if err := f.run(t.Context(), r); !errors.Is(err, errOver) {
		t.Errorf("%v: %s", err, stderr.String())
	}
	at, err := loadJSON[place](f.checkpoint)
	if err != nil || at.Stream != s.arn(1) || at.Shards["shard-1"] != (delivery.Checkpoint{After: "4", Ended: true}) {
		t.Errorf("checkpoint %+v, %v", at, err)
	}
	key := table.UsageKey{Group: groupOf(1), Window: "monthly", Start: "2026-11-01T00:00:00Z"}
	usage := store.Get(key.PK(), key.SK())
	if _, counters, err := table.ParseUsage(usage); err != nil || counters["rpm"] != "7" {
		t.Errorf("usage %v, %v; want 7", counters, err)
	}
}

// What the way to the service does to a recording costs nothing but time.
func TestRecordFaults(t *testing.T) {
	c := newClients(t)
	t.Setenv("AWS_MAX_ATTEMPTS", "1")
	c.use(1, 20)
	proxy := faultproxy.Start(t, dynoxide.Start(t))
	service, err := connect(t.Context(), proxy.URL, awsconfig.WithLogger(logging.Nop{}))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "faults.jsonl")
	faults := []faultproxy.Fault{
		faultproxy.Throttled, faultproxy.RequestLimit, faultproxy.ServerError, faultproxy.Unavailable, faultproxy.Gateway, faultproxy.Reset,
		faultproxy.Lost, faultproxy.Torn, faultproxy.Cut, faultproxy.Truncated, faultproxy.Garbled, faultproxy.Empty, faultproxy.Hollow,
	}
	for _, fault := range faults {
		seen := map[string]int{}
		proxy.Spoil(func(r faultproxy.Request) faultproxy.Fault {
			if seen[r.Operation]++; seen[r.Operation] == 1 && r.Operation != "DescribeTable" {
				return fault
			}
			return faultproxy.None
		})
		var stderr lockedBuffer
		f := recordFlags{table: c.table, output: file, from: fromBeginning, current: true}
		if err := f.run(t.Context(), f.recorder(service, fastClock(50), nil, &stderr), &stderr); err != nil {
			t.Errorf("%s: %v", fault, err)
		}
		if said := stderr.String(); strings.Count(said, "trying again in 200ms") < 2 || strings.Contains(said, secretID) {
			t.Errorf("%s: said %s", fault, said)
		}
		c.use(1, 2)
	}
	if got, want := sequencesOf(t, file), upTo(c.wrote-2); !slices.Equal(got, want) {
		t.Errorf("recorded %v, want 1 to %d", got, c.wrote-2)
	}
}

// A batch is halved where its first record fails for good, and not where that
// may pass or where it got further.
func TestAnswer(t *testing.T) {
	records := []events.Record{{Sequence: "11"}, {Sequence: "12"}}
	passes, stays := fmt.Errorf("usage: %w", table.ErrRetry), errors.New("malformed item")
	for _, test := range []struct {
		name     string
		failures []aggregator.Failure
		bisect   bool
		want     string
	}{
		{"nothing", nil, true, `{"Failed":false,"Failures":null}`},
		{"the first, for good", []aggregator.Failure{{Index: 0, Err: stays}}, true, `{"Failed":true,"Failures":null}`},
		{"the first, not to be halved", []aggregator.Failure{{Index: 0, Err: stays}}, false, `{"Failed":false,"Failures":["11"]}`},
		{"the first, in an outage", []aggregator.Failure{{Index: 0, Err: passes}, {Index: 1, Err: passes}}, true, `{"Failed":false,"Failures":["11"]}`},
		{"the first passes, a later one does not", []aggregator.Failure{{Index: 0, Err: passes}, {Index: 1, Err: stays}}, true, `{"Failed":true,"Failures":null}`},
		{"the first, out of time", []aggregator.Failure{{Index: 0, Err: context.DeadlineExceeded}}, true, `{"Failed":false,"Failures":["11"]}`},
		{"the second", []aggregator.Failure{{Index: 1, Err: stays}}, true, `{"Failed":false,"Failures":["12"]}`},
	} {
		got, err := json.Marshal(answerTo(&aggregator.Report{Failures: test.failures}, records, test.bisect))
		if err != nil || string(got) != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

// A recording that ends wherever it waits, with nothing of it finished, goes on
// whole: no position is ever ahead of what is on the disk.
func TestRecordCrashes(t *testing.T) {
	for _, name := range []string{"crashed.jsonl", "crashed.jsonl.gz"} {
		s, file := &streams{writes: []int{1}}, filepath.Join(t.TempDir(), name)
		record := func(c clock, current bool) error {
			f := recordFlags{table: "limits", output: file, from: fromBeginning, current: current}
			r := f.recorder(connection{}, c, nil, io.Discard)
			r.tables, r.streams = s, s
			return f.run(t.Context(), r, io.Discard)
		}
		for last := range 25 {
			ended, waits, now := make(chan error, 1), 0, time.UnixMilli(1796032800000)
			crashing := clock{
				now: func() time.Time { return now },
				after: func(d time.Duration) <-chan time.Time {
					if waits++; waits > last {
						runtime.Goexit()
					}
					now = now.Add(d)
					s.writes[0]++
					return time.After(0)
				},
			}
			go func() {
				defer func() { ended <- nil }()
				ended <- record(crashing, false)
			}()
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
		}
		if err := record(fastClock(100), true); err != nil {
			t.Fatal(err)
		}
		if got, want := sequencesOf(t, file), upTo(s.writes[0]); !slices.Equal(got, want) || len(want) != 301 {
			t.Errorf("%s: recorded %v, want 1 to %d", name, got, s.writes[0])
		}
	}
}
