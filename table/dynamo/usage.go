package dynamo

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/table"
)

// AddUsage implements table.Store.
func (s *Store) AddUsage(ctx context.Context, usage table.Usage) (table.UsageResult, error) {
	if err := usage.Check(); err != nil {
		return table.UsageResult{}, fmt.Errorf("add usage: %w", err)
	}
	key := itemKey(usage.Key.PK(), usage.Key.SK())
	stored, refused, err := s.update(ctx, "add usage", key, usageExpression(usage), types.ReturnValueNone)
	if err != nil {
		return table.UsageResult{}, err
	}
	if refused {
		return table.UsageResult{Marks: stored.Marks()}, nil
	}
	return table.UsageResult{Applied: true}, nil
}

func usageExpression(usage table.Usage) *expression {
	e := newExpression()
	for _, label := range usage.Key.Labels() {
		e.set(label[0], table.S(label[1]))
	}
	for _, source := range usage.Sources {
		mark := table.MarkAttr(source.Shard)
		e.set(mark, table.S(source.Last))
		e.require(either(e.absent(mark), e.name(mark)+" < "+e.value(table.S(source.First))))
	}
	if usage.Expires != 0 {
		e.setNumberOnce(table.AttrTTL, usage.Expires)
	}
	e.addNumber(table.AttrTotalEvents, usage.Events)
	for _, limit := range slices.Sorted(maps.Keys(usage.Counters)) {
		e.add(limit, table.Tokens(usage.Counters[limit]))
	}
	return e
}
