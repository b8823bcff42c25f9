package dynamo

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"golang.org/x/sync/errgroup"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// Double implements table.Store.
func (s *Store) Double(ctx context.Context, group table.Group, from int) (table.DoubleResult, error) {
	e := newExpression()
	e.require(e.exists(table.AttrPK))
	e.require(e.countIs(from))
	e.setNumber(table.AttrShardCount, int64(2*from))
	stored, refused, err := s.update(ctx, "double", bucketKey(group.At(0)), e, types.ReturnValueNone)
	if err != nil {
		return table.DoubleResult{}, err
	}
	if !refused {
		return table.DoubleResult{Applied: true, Count: 2 * from}, nil
	}
	if stored == nil {
		return table.DoubleResult{}, nil
	}
	count, err := stored.ShardCount()
	if err != nil {
		return table.DoubleResult{}, fmt.Errorf("double: %w", err)
	}
	return table.DoubleResult{Count: count}, nil
}

// Freeze implements table.Store.
func (s *Store) Freeze(ctx context.Context, key table.Key, freezes []quota.Freeze) error {
	e := newExpression()
	e.require(e.exists(table.AttrPK))
	e.freeze(freezes)
	operation := fmt.Sprintf("freeze shard %d", key.Shard)
	_, _, err := s.update(ctx, operation, bucketKey(key), e, types.ReturnValueNone)
	return err
}

// freeze sets grant counts where none are.
func (e *expression) freeze(freezes []quota.Freeze) {
	for _, freeze := range freezes {
		e.setNumberOnce(table.Attr(freeze.Limit, table.FieldGrant), int64(freeze.Grant))
	}
}

// RaiseAndRead implements table.Store: one consistent batch read, and then one
// update for each shard that was found below count.
func (s *Store) RaiseAndRead(ctx context.Context, group table.Group, count int, now int64) ([]table.Sibling, error) {
	siblings, err := s.readShards(ctx, group, count)
	if err != nil {
		return nil, err
	}
	raises, ctx := errgroup.WithContext(ctx)
	raises.SetLimit(s.raises)
	for shard := range siblings {
		if b := siblings[shard].Bucket; b == nil || shard == 0 || b.ShardCount >= count {
			continue
		}
		raises.Go(func() (err error) {
			siblings[shard], err = s.raise(ctx, siblings[shard].Bucket, count, now)
			return err
		})
	}
	if err := raises.Wait(); err != nil {
		return nil, err
	}
	return siblings, nil
}

// raise brings one shard's count up and returns the image that this left, or
// that someone else's raise had left before.
func (s *Store) raise(ctx context.Context, b *table.Bucket, count int, now int64) (table.Sibling, error) {
	e := newExpression()
	e.require(e.exists(table.AttrPK))
	e.setNumber(table.AttrShardCount, int64(count))
	e.require(either(e.absent(table.AttrShardCount), e.name(table.AttrShardCount)+" < "+e.number(int64(count))))
	e.freeze(quota.FrozenGrants(&b.Bucket, now))
	operation := fmt.Sprintf("raise shard %d", b.Shard)
	item, refused, err := s.update(ctx, operation, bucketKey(b.Key), e, types.ReturnValueAllNew)
	if err != nil || item == nil {
		return table.Sibling{}, err
	}
	raised, err := table.DecodeBucket(item)
	return table.Sibling{Bucket: raised, Raised: !refused, Broken: err}, nil
}

// readShards reads shards 0..count-1 of a group.
func (s *Store) readShards(ctx context.Context, group table.Group, count int) ([]table.Sibling, error) {
	shards, keys, hidden := map[string]int{}, []map[string]types.AttributeValue{}, secrets{}
	for shard := range count {
		key := group.At(shard)
		shards[key.PK()] = shard
		keys = append(keys, bucketKey(key))
		hidden = hidden.of(bucketKey(key))
	}
	siblings := make([]table.Sibling, count)
	for attempt := 1; len(keys) > 0; attempt++ {
		items, rest, err := s.readBatch(ctx, keys)
		if err != nil {
			return nil, failure("read siblings", err, hidden)
		}
		for _, item := range items {
			pk, _ := item.Key()
			b, err := table.DecodeBucket(item)
			siblings[shards[pk]] = table.Sibling{Bucket: b, Broken: err}
		}
		keys = rest
		if err := s.pause(ctx, "read siblings", attempt, len(keys)); err != nil {
			return nil, err
		}
	}
	return siblings, nil
}

// readBatch makes one batch read and returns the keys it left unread.
func (s *Store) readBatch(ctx context.Context, keys []map[string]types.AttributeValue) (items []table.Item, rest []map[string]types.AttributeValue, err error) {
	output, err := s.client.BatchGetItem(ctx, &dynamodb.BatchGetItemInput{
		RequestItems:           map[string]types.KeysAndAttributes{s.table: {Keys: keys, ConsistentRead: new(true)}},
		ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal,
	}, intact)
	if err != nil {
		return nil, nil, err
	}
	for i := range output.ConsumedCapacity {
		s.meter.read("BatchGetItem", &output.ConsumedCapacity[i])
	}
	for _, found := range output.Responses {
		for _, item := range found {
			items = append(items, item)
		}
	}
	for _, left := range output.UnprocessedKeys {
		rest = append(rest, left.Keys...)
	}
	return items, rest, nil
}

// pause waits before the keys that a batch read left are asked for again.
func (s *Store) pause(ctx context.Context, operation string, attempt, left int) error {
	if left == 0 {
		return nil
	}
	if attempt >= s.waits {
		return fmt.Errorf("%s: %w: %d keys left unread by %d requests", operation, table.ErrRetry, left, attempt)
	}
	timer := time.NewTimer(s.backoff(attempt))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return failure(operation, ctx.Err(), nil)
	}
}
