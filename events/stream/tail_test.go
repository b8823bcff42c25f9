package stream_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"

	"github.com/shardquota/shardquota/events/delivery"
	"github.com/shardquota/shardquota/events/stream"
	"github.com/shardquota/shardquota/table"
)

// A shard comes after its parent, whatever the times say; shards beside each
// other come by time. The description has several pages, and so have shards.
func TestOrder(t *testing.T) {
	s := newService(
		&shard{id: "left", parent: "root", first: 10, times: []int64{-98, -98, -91}},
		&shard{id: "root", first: 1, times: []int64{-99, -97, -95}, closed: true},
		&shard{id: "leftmost", parent: "left", first: 20, times: []int64{-99}},
		&shard{id: "right", parent: "root", first: 30, times: []int64{-96, -93, -92, -90}},
		&shard{id: "other", first: 40, times: []int64{-98, -94}},
	)
	s.perPage = 2
	r := newReading(t, s, stream.Start{})
	r.settle()
	r.want("1 40 2 3 10 11 30 41 31 32 12 33")
	r.wantNotices()
	if asked := strings.Join(s.asked, ","); strings.Contains(asked, "leftmost") {
		t.Errorf("the child of an open shard was read: %s", asked)
	}
	s.at("left").closed = true
	r.settle()
	r.want("1 40 2 3 10 11 30 41 31 32 12 33 20")
}

// Shards close and split while they are read, and what comes then is found.
func TestSplitWhileReading(t *testing.T) {
	s := newService(&shard{id: "a", first: 1, times: []int64{1}})
	r := newReading(t, s, stream.Start{})
	r.settle()
	a := s.at("a")
	a.times, a.closed = append(a.times, 2), true
	r.step() // its end, without a successor yet
	r.settle()
	s.shards = append(s.shards,
		&shard{id: "a-low", parent: "a", first: 11, times: []int64{3}}, &shard{id: "a-high", parent: "a", first: 21, times: []int64{4}})
	r.settle()
	r.want("1 2 11 21")
	if got, want := r.merge.Checkpoints(), (delivery.Checkpoint{After: "2", Ended: true}); got["a"] != want || got["a-high"].After != "21" {
		t.Errorf("positions %+v", got)
	}
	s.shards = s.shards[1:] // the stream forgets what is old
	for range 40 {
		r.now += 1000
		r.step()
	}
	if positions := r.merge.Checkpoints(); len(positions) != 2 {
		t.Errorf("positions %+v, want none of the shard that is gone", positions)
	}
	r.wantNotices()
}

// A reading goes on behind the positions of an earlier one, and shards that
// came meanwhile are read whole.
func TestResume(t *testing.T) {
	s := newService(
		&shard{id: "a", first: 1, times: []int64{1, 2, 3}, closed: true},
		&shard{id: "b", first: 10, times: []int64{1, 2, 3}},
		&shard{id: "c", parent: "a", first: 20, times: []int64{4}},
	)
	r := newReading(t, s, stream.Start{Checkpoints: map[string]delivery.Checkpoint{"a": {After: "3", Ended: true}, "b": {After: "11"}}})
	r.settle()
	r.want("12 20")
	r.wantNotices()
}

// An iterator expires after 15 minutes, as when a laptop sleeps.
func TestExpiredIterator(t *testing.T) {
	s := newService(&shard{id: "a", first: 1, times: []int64{1, 2, 3}}, &shard{id: "b", first: 10})
	s.perPage = 2
	r := newReading(t, s, stream.Start{})
	r.step()
	s.epoch++
	r.settle()
	r.want("1 2 3")
	r.wantNotices()
	slices.Sort(s.asked)
	want := []string{"a AFTER_SEQUENCE_NUMBER 2", "a TRIM_HORIZON", "b TRIM_HORIZON", "b TRIM_HORIZON"}
	if !slices.Equal(s.asked, want) {
		t.Errorf("asked for %q, want %q", s.asked, want)
	}
}

// What left the stream before it was read is told, and the rest is read.
func TestTrimmed(t *testing.T) {
	s := newService(&shard{id: "a", first: 1, times: []int64{1, 2, 3, 4}, trimmed: 2}, &shard{id: "c", first: 9, times: []int64{1}})
	r := newReading(t, s, stream.Start{Checkpoints: map[string]delivery.Checkpoint{"a": {After: "1"}, "b": {After: "7"}, "old": {After: "5", Ended: true}}})
	r.settle()
	r.want("9 3 4")
	r.wantNotices(
		"shard b is no longer on the stream and was not read to its end: records are lost: the stream keeps them for 24 hours",
		"shard a: its next record is no longer on the stream: records are lost: the stream keeps them for 24 hours")
	if !errors.Is(r.notices[0], stream.ErrLost) || !errors.Is(r.notices[1], stream.ErrLost) {
		t.Error("the notices do not wrap ErrLost")
	}
}

// So is what is trimmed between two pages, and a shard that vanishes.
func TestTrimmedUnderWay(t *testing.T) {
	s := newService(&shard{id: "a", first: 1, times: []int64{1, 2, 3, 4, 5}}, &shard{id: "b", first: 10, times: []int64{1}})
	s.perPage = 2
	r := newReading(t, s, stream.Start{})
	r.step()
	s.at("a").trimmed = 4
	s.shards = s.shards[:1]
	r.settle()
	r.want("1 10 2 5")
	if len(r.notices) != 2 || !errors.Is(r.notices[0], stream.ErrLost) || !errors.Is(r.notices[1], stream.ErrLost) {
		t.Errorf("notices %v", r.notices)
	}
}

// From the present: closed shards are left out, open ones begin with what is
// written next; so it stays if the iterator is lost before anything came.
func TestFromNow(t *testing.T) {
	shards := func() *service {
		return newService(
			&shard{id: "a", first: 1, times: []int64{-9, -8}, closed: true},
			&shard{id: "b", parent: "a", first: 10, times: []int64{-2, -1}},
			&shard{id: "c", first: 20, times: []int64{-3}},
		)
	}
	s := shards()
	r := newReading(t, s, stream.Start{Since: start})
	r.settle()
	r.want("")
	s.at("b").times = append(s.at("b").times, 1)
	s.epoch++ // the iterator of c, which had nothing, is lost too
	s.at("c").times = append(s.at("c").times, 2)
	s.shards = append(s.shards, &shard{id: "d", first: 30, times: []int64{-1}}) // by the service's clock, which is behind
	for range 60 {
		r.now += 1000
		r.step()
	}
	r.want("12 21 30")
	r.wantNotices()

	r = newReading(t, s, stream.Start{Since: start, Checkpoints: map[string]delivery.Checkpoint{"a": {Ended: true}, "b": {}, "c": {After: "21"}}})
	r.settle()
	r.want("30 12")
}

// What may pass is waited out, longer each time, and said.
func TestThrottled(t *testing.T) {
	s := newService(&shard{id: "a", first: 1, times: []int64{1}}, &shard{id: "b", first: 10, times: []int64{1}})
	failures := map[string]int{"DescribeStream": 2, "GetRecords a": 3}
	s.fail = func(operation, shard string) error {
		what := strings.TrimSpace(operation + " " + shard)
		if failures[what]--; failures[what] >= 0 {
			return api("ThrottlingException")
		}
		return nil
	}
	r := newReading(t, s, stream.Start{})
	r.settle()
	r.want("1 10")
	const said = ": ThrottlingException: said ThrottlingException; trying again in "
	r.wantNotices("describe stream"+said+"200ms", "describe stream"+said+"400ms",
		"read shard a"+said+"200ms", "read shard a"+said+"400ms", "read shard a"+said+"800ms")
	if !errors.Is(r.notices[0], table.ErrRetry) {
		t.Error("the notices do not wrap ErrRetry")
	}
}

// Waiting after failures does not grow for ever.
func TestOutage(t *testing.T) {
	s := newService(&shard{id: "a", first: 1, times: []int64{1}})
	r := newReading(t, s, stream.Start{})
	r.step()
	s.fail = func(operation, _ string) error {
		if operation == "GetRecords" {
			return &types.InternalServerError{Message: new("busy")}
		}
		return nil
	}
	r.settle()
	if last := r.notices[len(r.notices)-1].Error(); last != "read shard a: InternalServerError: busy; trying again in 30s" {
		t.Errorf("at last: %s", last)
	}
	s.fail = nil
	s.at("a").times = append(s.at("a").times, 2)
	r.settle()
	r.want("1 2")
}

// What does not pass ends the reading, with its cause.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name, operation string
		err             error
		want            string
	}{
		{"no permission to describe", "DescribeStream", api("AccessDeniedException"), "describe stream: AccessDeniedException: said AccessDeniedException"},
		{"no permission to read", "GetRecords", api("AccessDeniedException"), "read shard a: AccessDeniedException: said AccessDeniedException"},
		{"no permission to begin", "GetShardIterator", api("AccessDeniedException"), "read shard a: AccessDeniedException: said AccessDeniedException"},
		{"no such stream", "DescribeStream", &types.ResourceNotFoundException{}, stream.ErrGone.Error()},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newService(&shard{id: "a"})
			s.fail = func(operation, _ string) error {
				if operation == c.operation {
					return c.err
				}
				return nil
			}
			r := newReading(t, s, stream.Start{})
			if err := r.tail.Step(t.Context(), r.merge, start); err == nil || err.Error() != c.want {
				t.Errorf("error %v, want %s", err, c.want)
			}
		})
	}
	s := newService(&shard{id: "a"})
	s.view = types.StreamViewTypeKeysOnly
	r := newReading(t, s, stream.Start{})
	if err := r.tail.Step(t.Context(), r.merge, start); !errors.Is(err, stream.ErrImages) {
		t.Errorf("a stream of keys only: %v", err)
	}
	if _, err := stream.Open(s, "arn:of:nothing", stream.Start{}, nil); err == nil {
		t.Error("no error for what is no stream's ARN")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.view, s.fail = types.StreamViewTypeNewAndOldImages, func(string, string) error { return ctx.Err() }
	if err := r.tail.Step(ctx, r.merge, start); !errors.Is(err, context.Canceled) {
		t.Errorf("told to end: %v", err)
	}
}

// A stream that is disabled ends once it is read, and one that is gone at once.
func TestOver(t *testing.T) {
	s := newService(&shard{id: "a", first: 1, times: []int64{1, 2, 3}})
	s.perPage = 2
	r := newReading(t, s, stream.Start{})
	r.settle()
	s.status, s.at("a").closed = types.StreamStatusDisabled, true
	if r.tail.Over() {
		t.Error("over before its end is read")
	}
	for range 4 {
		r.step()
	}
	if !r.tail.Over() || !r.merge.Current() {
		t.Error("not over at its end")
	}
	r.want("1 2 3")
	r.wantNotices()

	s = newService(&shard{id: "a", first: 1, times: []int64{1}}, &shard{id: "b", first: 2, closed: true})
	r = newReading(t, s, stream.Start{})
	r.step()
	s.fail = func(string, string) error { return &types.ResourceNotFoundException{} }
	for !r.tail.Over() {
		r.step()
	}
	r.want("1")
	r.wantNotices("shard a is no longer on the stream and was not read to its end: records are lost: the stream keeps them for 24 hours")
	if got := r.merge.Checkpoints(); !got["a"].Ended {
		t.Errorf("positions %+v", got)
	}
}

// A shard that has nothing new costs five requests a second until that is sure,
// and then one.
func TestPace(t *testing.T) {
	s := newService(&shard{id: "a", first: 1, times: []int64{-5}})
	r := newReading(t, s, stream.Start{})
	var waits []time.Duration
	for range 26 {
		before := r.now
		r.step()
		waits = append(waits, time.Duration(r.now-before)*time.Millisecond)
		if current := r.merge.Current(); current != (len(waits) > 20) {
			t.Errorf("after %d answers, read to the present: %t", len(waits), current)
		}
	}
	for i, wait := range waits {
		want := 200 * time.Millisecond
		if i > 20 {
			want = min(want<<(i-20), time.Second)
		}
		if wait != want {
			t.Errorf("after answer %d: waits %v, want %v", i+1, wait, want)
		}
	}
	s.at("a").times = append(s.at("a").times, 9)
	before := r.now
	r.step()
	if r.want("1 2"); r.now-before != 200 {
		t.Errorf("after a record it waits %d ms", r.now-before)
	}
}

// A merge waits for a shard that may hold earlier records, and not for one that
// is read to the present.
func TestMergeWaits(t *testing.T) {
	s := newService(&shard{id: "a", first: 1, times: []int64{1}}, &shard{id: "b", first: 10})
	s.at("a").times[0] = -100
	r := newReading(t, s, stream.Start{})
	for range 19 {
		r.step()
	}
	r.want("")
	r.step()
	r.want("1")
	s.at("a").times = append(s.at("a").times, 2)
	r.step()
	r.want("1 2")
}

// tables is a table.
type tables struct {
	arn *string
	err error
}

func (f tables) DescribeTable(context.Context, *dynamodb.DescribeTableInput, ...func(*dynamodb.Options)) (*dynamodb.DescribeTableOutput, error) {
	if f.err != nil {
		return nil, f.err
	}
	return &dynamodb.DescribeTableOutput{Table: &dbtypes.TableDescription{LatestStreamArn: f.arn}}, nil
}

func TestFind(t *testing.T) {
	found, err := stream.Find(t.Context(), tables{arn: new(arn)}, "limits")
	if found != arn || err != nil {
		t.Errorf("found %s, %v", found, err)
	}
	if _, err = stream.Find(t.Context(), tables{}, "limits"); !errors.Is(err, stream.ErrNoStream) {
		t.Errorf("a table without a stream: %v", err)
	}
	_, err = stream.Find(t.Context(), tables{err: &dbtypes.ResourceNotFoundException{Message: new("not found")}}, "limits")
	if err == nil || err.Error() != "describe table limits: ResourceNotFoundException: not found" {
		t.Errorf("no table: %v", err)
	}
}
