package stream

import (
	"context"
	"errors"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"

	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/internal/mapping"
)

// cursor is how far a shard is read.
type cursor struct {
	mapping.Shard
	after    string  // the last record read; "" for none
	latest   bool    // it began at the present
	old      bool    // it began at the present and is read from its beginning: see Start.Since
	iterator *string // nil where one is to be asked for
	ended    bool
	empty    int   // answers without records, in a row
	failures int   // in a row
	due      int64 // not to be read before, epoch ms
}

// page is the answer to one request.
type page struct {
	records []events.Record
	next    *string // nil at the shard's end
}

// discover describes the stream and opens the shards that are new.
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

// gone ends all shards of a stream that is no longer there.
func (t *Tail) gone(into Consumer, now int64) error {
	if t.start.Positions == nil && !t.described {
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

// describe lists the stream's shards, and sees whether further ones may come.
func (t *Tail) describe(ctx context.Context) ([]mapping.Shard, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var shards []mapping.Shard
	input := &dynamodbstreams.DescribeStreamInput{StreamArn: &t.arn}
	for {
		output, err := t.client.DescribeStream(ctx, input)
		if err != nil {
			return nil, err
		}
		found := output.StreamDescription
		if found == nil {
			return nil, errHollow
		}
		if found.StreamViewType != types.StreamViewTypeNewAndOldImages {
			return nil, ErrImages
		}
		for _, shard := range found.Shards {
			shards = append(shards, mapping.Shard{ID: deref(shard.ShardId), Parent: deref(shard.ParentShardId)})
		}
		t.disabled = found.StreamStatus == types.StreamStatusDisabled
		if input.ExclusiveStartShardId = found.LastEvaluatedShardId; input.ExclusiveStartShardId == nil {
			return shards, nil
		}
	}
}

// open begins a shard where it was left, or where the reading is to begin.
func (t *Tail) open(into Consumer, shard mapping.Shard, hasChild bool) {
	position, known := t.start.Positions[shard.ID]
	c := &cursor{Shard: shard}
	if first := t.start.Positions == nil && !t.described; first && t.start.Since > 0 {
		position.Ended, c.latest = hasChild, !hasChild
	}
	c.after, c.ended = position.After, position.Ended
	c.old = known && t.start.Since > 0 && c.after == ""
	t.cursors[shard.ID] = c
	into.Open(shard, position)
}

// forget drops what the stream has no more, and says what of that was not read.
func (t *Tail) forget(into Consumer, present map[string]bool) {
	if !t.described {
		for id, position := range t.start.Positions {
			if !present[id] && !position.Ended {
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

// lookAgain is when to describe the stream again. A shard may get its successor
// long after its end: with the next write.
func (t *Tail) lookAgain(parents map[string]bool) time.Duration {
	for id, c := range t.cursors {
		if c.ended && !parents[id] && !t.disabled {
			return lookSoon
		}
	}
	return look
}

// read asks for a shard's next page, and for an iterator first where there is
// none. It leaves the cursor as it is.
func (t *Tail) read(ctx context.Context, c cursor) (page, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if c.iterator == nil {
		output, err := t.client.GetShardIterator(ctx, c.begin(t.arn))
		if err != nil {
			return page{}, err
		}
		if c.iterator = output.ShardIterator; c.iterator == nil {
			return page{}, errHollow
		}
	}
	output, err := t.client.GetRecords(ctx, &dynamodbstreams.GetRecordsInput{ShardIterator: c.iterator, Limit: new(int32(pageSize))})
	if err != nil {
		return page{}, err
	}
	if output.Records == nil && output.NextShardIterator == nil {
		return page{}, errHollow
	}
	p := page{next: output.NextShardIterator, records: make([]events.Record, len(output.Records))}
	for i, record := range output.Records {
		p.records[i] = t.convert(record)
	}
	return p, nil
}

// begin asks for an iterator behind what was read.
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

// advance moves the cursor over a page.
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
	c.due = now + wait.Milliseconds()
}
