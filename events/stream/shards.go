package stream

import (
	"context"
	"errors"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"

	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/events/delivery"
)

// cursor is how far a shard was read.
type cursor struct {
	delivery.Shard
	after    string  // sequence number of the last record read; "" for none
	latest   bool    // reading began at the present
	old      bool    // reading began at the present, but from the shard's beginning: see Start.Since
	iterator *string // nil where the next request must ask for one
	ended    bool
	empty    int   // answers without records, in a row
	failures int   // in a row
	readAt   int64 // when to read next, epoch ms
}

// page is the answer to one request.
type page struct {
	records []events.Record
	next    *string // nil at the shard's end
}

// discover describes the stream and opens its new shards.
func (t *Tail) discover(ctx context.Context, into Consumer, now int64) error {
	shards, err := t.describe(ctx)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return ctx.Err()
	case isGone(err):
		return t.gone(into, now)
	case errors.Is(err, ErrImages):
		return ErrImages
	default:
		return t.retry(&t.failures, &t.describeAt, failure("describe stream", err), now)
	}
	t.failures = 0
	present, parents := map[string]bool{}, map[string]bool{}
	for _, shard := range shards {
		present[shard.ID], parents[shard.Parent] = true, true
	}
	for _, shard := range shards {
		if t.cursors[shard.ID] == nil {
			t.open(into, shard, parents[shard.ID])
		}
	}
	t.forget(into, present)
	t.describeAt = now + t.lookAgain(parents).Milliseconds()
	return nil
}

// gone ends all shards of a stream that no longer exists.
func (t *Tail) gone(into Consumer, now int64) error {
	if t.start.Checkpoints == nil && !t.described {
		return ErrGone
	}
	t.forget(into, nil)
	for _, c := range t.cursors {
		if !c.ended {
			t.vanish(into, c, now)
		}
	}
	t.disabled, t.describeAt = true, now+look.Milliseconds()
	return nil
}

// describe lists the stream's shards, and notes whether the stream is disabled.
func (t *Tail) describe(ctx context.Context) ([]delivery.Shard, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var shards []delivery.Shard
	input := &dynamodbstreams.DescribeStreamInput{StreamArn: &t.arn}
	for {
		output, err := t.client.DescribeStream(ctx, input)
		if err != nil {
			return nil, err
		}
		found := output.StreamDescription
		if found == nil {
			return nil, errEmptyAnswer
		}
		if found.StreamViewType != types.StreamViewTypeNewAndOldImages {
			return nil, ErrImages
		}
		for _, shard := range found.Shards {
			shards = append(shards, delivery.Shard{ID: deref(shard.ShardId), Parent: deref(shard.ParentShardId)})
		}
		t.disabled = found.StreamStatus == types.StreamStatusDisabled
		if input.ExclusiveStartShardId = found.LastEvaluatedShardId; input.ExclusiveStartShardId == nil {
			return shards, nil
		}
	}
}

// open begins to read a shard at its checkpoint, or where Start says.
func (t *Tail) open(into Consumer, shard delivery.Shard, hasChild bool) {
	checkpoint, known := t.start.Checkpoints[shard.ID]
	c := &cursor{Shard: shard}
	if first := t.start.Checkpoints == nil && !t.described; first && t.start.Since > 0 {
		checkpoint.Ended, c.latest = hasChild, !hasChild
	}
	c.after, c.ended = checkpoint.After, checkpoint.Ended
	c.old = known && t.start.Since > 0 && c.after == ""
	t.cursors[shard.ID] = c
	into.Open(shard, checkpoint)
}

// forget drops the shards that the stream no longer has. It reports each one that
// was not read to its end.
func (t *Tail) forget(into Consumer, present map[string]bool) {
	if !t.described {
		for id, checkpoint := range t.start.Checkpoints {
			if !present[id] && !checkpoint.Ended {
				t.notice(lostShard(id))
			}
		}
	}
	t.described = true
	for id, c := range t.cursors {
		if c.ended && !present[id] {
			delete(t.cursors, id)
		}
	}
	into.Forget(func(id string) bool { return present[id] })
}

// lookAgain returns how long to wait before describing the stream again. A shard
// may get its child long after its own end: with the next write.
func (t *Tail) lookAgain(parents map[string]bool) time.Duration {
	for id, c := range t.cursors {
		if c.ended && !parents[id] && !t.disabled {
			return lookSoon
		}
	}
	return look
}

// read requests a shard's next page, and before it an iterator where there is
// none. It does not change the cursor.
func (t *Tail) read(ctx context.Context, c cursor) (page, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if c.iterator == nil {
		output, err := t.client.GetShardIterator(ctx, c.begin(t.arn))
		if err != nil {
			return page{}, err
		}
		if c.iterator = output.ShardIterator; c.iterator == nil {
			return page{}, errEmptyAnswer
		}
	}
	output, err := t.client.GetRecords(ctx, &dynamodbstreams.GetRecordsInput{ShardIterator: c.iterator, Limit: new(int32(pageSize))})
	if err != nil {
		return page{}, err
	}
	if output.Records == nil && output.NextShardIterator == nil {
		return page{}, errEmptyAnswer
	}
	p := page{next: output.NextShardIterator, records: make([]events.Record, len(output.Records))}
	for i, record := range output.Records {
		p.records[i] = t.convert(record)
	}
	return p, nil
}

// begin returns the request for an iterator after the last record read.
func (c cursor) begin(arn string) *dynamodbstreams.GetShardIteratorInput {
	input := &dynamodbstreams.GetShardIteratorInput{
		StreamArn: &arn, ShardId: &c.ID, ShardIteratorType: types.ShardIteratorTypeTrimHorizon,
	}
	switch {
	case c.after != "":
		input.ShardIteratorType, input.SequenceNumber = types.ShardIteratorTypeAfterSequenceNumber, &c.after
	case c.latest && !c.old:
		input.ShardIteratorType = types.ShardIteratorTypeLatest
	}
	return input
}

// advance moves the cursor past a page.
func (c *cursor) advance(p page, now int64) {
	c.iterator, c.ended, c.failures = p.next, p.next == nil, 0
	for _, record := range p.records {
		if record.Sequence != "" {
			c.after = record.Sequence
		}
	}
	wait := pace
	if c.empty++; len(p.records) > 0 {
		c.empty = 0
	} else if c.empty > quiet {
		wait = min(pace<<min(c.empty-quiet, 10), idle)
	}
	c.readAt = now + wait.Milliseconds()
}
