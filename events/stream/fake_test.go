package stream_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
	"github.com/aws/smithy-go"

	"github.com/shardquota/shardquota/events/stream"
)

const (
	arn = "arn:aws:dynamodb:eu-west-1:1:table/limits/stream/2026-11-30T00:00:00.000"
	// start is when the tests begin, epoch ms; a record's time is given in
	// seconds after it.
	start = int64(1796032800000)
)

// service is a stream as the service has it.
type service struct {
	mu      sync.Mutex
	shards  []*shard
	view    types.StreamViewType
	status  types.StreamStatus
	perPage int      // shards of a description and records of a page; 0 for all
	asked   []string // the iterators that were asked for, as "shard TYPE sequence"
	fail    func(operation, shard string) error
	epoch   int // iterators of an earlier one have expired
}

// shard is one whose records are numbered from first.
type shard struct {
	id, parent string
	first      int
	times      []int64 // of its records, seconds after start
	trimmed    int     // records that are gone
	closed     bool
}

func newService(shards ...*shard) *service {
	return &service{shards: shards, view: types.StreamViewTypeNewAndOldImages, status: types.StreamStatusEnabled}
}

func (s *service) failing(operation, shard string) error {
	if s.fail == nil {
		return nil
	}
	return s.fail(operation, shard)
}

func (s *service) page(n int) int {
	if s.perPage == 0 {
		return n
	}
	return min(n, s.perPage)
}

func (s *service) at(id string) *shard {
	i := slices.IndexFunc(s.shards, func(x *shard) bool { return x.id == id })
	if i < 0 {
		return nil
	}
	return s.shards[i]
}

func (s *service) DescribeStream(_ context.Context, in *dynamodbstreams.DescribeStreamInput, _ ...stream.Options) (*dynamodbstreams.DescribeStreamOutput, error) {
	if err := s.failing("DescribeStream", ""); err != nil {
		return nil, err
	}
	from := 0
	if in.ExclusiveStartShardId != nil {
		from = 1 + slices.IndexFunc(s.shards, func(x *shard) bool { return x.id == *in.ExclusiveStartShardId })
	}
	description := &types.StreamDescription{StreamViewType: s.view, StreamStatus: s.status}
	for _, x := range s.shards[from : from+s.page(len(s.shards)-from)] {
		description.Shards = append(description.Shards, types.Shard{ShardId: &x.id, ParentShardId: &x.parent})
		description.LastEvaluatedShardId = &x.id
	}
	if from+len(description.Shards) == len(s.shards) {
		description.LastEvaluatedShardId = nil
	}
	return &dynamodbstreams.DescribeStreamOutput{StreamDescription: description}, nil
}

func (s *service) GetShardIterator(_ context.Context, in *dynamodbstreams.GetShardIteratorInput, _ ...stream.Options) (*dynamodbstreams.GetShardIteratorOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.at(*in.ShardId)
	if err := s.failing("GetShardIterator", *in.ShardId); err != nil {
		return nil, err
	}
	if x == nil {
		return nil, &types.ResourceNotFoundException{Message: new("no such shard")}
	}
	asked := x.id + " " + string(in.ShardIteratorType)
	at := x.trimmed
	switch in.ShardIteratorType {
	case types.ShardIteratorTypeLatest:
		at = len(x.times)
	case types.ShardIteratorTypeAfterSequenceNumber:
		asked += " " + *in.SequenceNumber
		n, _ := strconv.Atoi(*in.SequenceNumber)
		if at = n - x.first + 1; at < x.trimmed {
			return nil, &types.TrimmedDataAccessException{Message: new("trimmed")}
		}
	}
	s.asked = append(s.asked, asked)
	return &dynamodbstreams.GetShardIteratorOutput{ShardIterator: s.iterator(x, at)}, nil
}

func (s *service) iterator(x *shard, at int) *string {
	return new(fmt.Sprintf("%s|%d|%d", x.id, at, s.epoch))
}

func (s *service) GetRecords(_ context.Context, in *dynamodbstreams.GetRecordsInput, _ ...stream.Options) (*dynamodbstreams.GetRecordsOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	parts := strings.Split(*in.ShardIterator, "|")
	at, _ := strconv.Atoi(parts[1])
	x := s.at(parts[0])
	if err := s.failing("GetRecords", parts[0]); err != nil {
		return nil, err
	}
	switch {
	case x == nil:
		return nil, &types.ResourceNotFoundException{Message: new("no such shard")}
	case parts[2] != strconv.Itoa(s.epoch):
		return nil, &types.ExpiredIteratorException{Message: new("expired")}
	case at < x.trimmed:
		return nil, &types.TrimmedDataAccessException{Message: new("trimmed")}
	}
	out := &dynamodbstreams.GetRecordsOutput{Records: []types.Record{}}
	end := at + s.page(len(x.times)-at)
	for i := at; i < end; i++ {
		out.Records = append(out.Records, wire(x.first+i, x.times[i]))
	}
	if !x.closed || end < len(x.times) {
		out.NextShardIterator = s.iterator(x, end)
	}
	return out, nil
}

// wire is a record as the service has it.
func wire(sequence int, seconds int64) types.Record {
	text := func(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
	return types.Record{
		EventName: types.OperationTypeModify, EventID: new("e" + strconv.Itoa(sequence)),
		Dynamodb: &types.StreamRecord{
			SequenceNumber: new(strconv.Itoa(sequence)), ApproximateCreationDateTime: new(time.UnixMilli(start + 1000*seconds)),
			Keys: map[string]types.AttributeValue{"PK": text("n/BUCKET#a#r#0"), "SK": text("#STATE")},
		},
	}
}

// api is an error of the service.
func api(code string) error { return &smithy.GenericAPIError{Code: code, Message: "said " + code} }

// reading is a Tail and a Merge over a service, and what came of them. Its time
// passes as it waits for what is due.
type reading struct {
	*testing.T
	service *service
	tail    *stream.Tail
	merge   *stream.Merge
	now     int64
	got     []string // sequence numbers
	notices []error
}

func newReading(t *testing.T, s *service, from stream.Start) *reading {
	t.Helper()
	r := &reading{T: t, service: s, now: start, merge: stream.NewMerge(start)}
	tail, err := stream.Open(s, arn, from, func(err error) { r.notices = append(r.notices, err) })
	if err != nil {
		t.Fatal(err)
	}
	r.tail = tail
	return r
}

// step reads what is due next.
func (r *reading) step() {
	r.Helper()
	if err := r.tail.Step(r.Context(), r.merge, r.now); err != nil {
		r.Fatal(err)
	}
	for _, record := range r.merge.Take() {
		r.got = append(r.got, record.Sequence)
	}
	r.now = max(r.now, r.tail.NextStep(r.merge))
}

// settle reads until there was nothing new for 40 steps.
func (r *reading) settle() {
	r.Helper()
	for range 40 {
		r.step()
	}
}

func (r *reading) want(sequences string) {
	r.Helper()
	if got := strings.Join(r.got, " "); got != sequences {
		r.Errorf("read %s\nwant %s", got, sequences)
	}
}

func (r *reading) wantNotices(texts ...string) {
	r.Helper()
	var got []string
	for _, err := range r.notices {
		got = append(got, err.Error())
	}
	if !slices.Equal(got, texts) {
		r.Errorf("notices %q\nwant %q", got, texts)
	}
}
