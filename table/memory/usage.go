package memory

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/table"
)

// AddUsage implements table.Store.
func (s *Store) AddUsage(ctx context.Context, usage table.Usage) (table.UsageResult, error) {
	fail := func(err error) (table.UsageResult, error) {
		return table.UsageResult{}, fmt.Errorf("add usage: %w", err)
	}
	if err := usage.Check(); err != nil {
		return fail(err)
	}
	at := itemKey{usage.Key.PK(), usage.Key.SK()}
	if err := s.fetch(ctx, at); err != nil {
		return fail(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	stored := s.items[at]
	for _, source := range usage.Sources {
		if !precedes(stored, source) {
			return table.UsageResult{Marks: stored.Marks()}, nil
		}
	}
	next, err := counted(stored, usage)
	if err != nil {
		return fail(err)
	}
	s.items[at] = next
	return table.UsageResult{Applied: true}, nil
}

// precedes reports whether none of a source's records is counted on the item.
func precedes(item table.Item, source table.Source) bool {
	mark, present := item[table.MarkAttr(source.Shard)]
	if !present {
		return true
	}
	text, ok := mark.(*types.AttributeValueMemberS)
	return ok && text.Value < source.First
}

// counted returns the usage item with the usage added.
func counted(stored table.Item, usage table.Usage) (table.Item, error) {
	item := table.Item{}
	if stored != nil {
		item = stored.Clone()
	}
	item[table.AttrPK], item[table.AttrSK] = table.S(usage.Key.PK()), table.S(usage.Key.SK())
	for _, label := range usage.Key.Labels() {
		item[label[0]] = table.S(label[1])
	}
	for _, source := range usage.Sources {
		item[table.MarkAttr(source.Shard)] = table.S(source.Last)
	}
	if usage.Expires != 0 && item[table.AttrTTL] == nil {
		setNumber(item, table.AttrTTL, usage.Expires)
	}
	if err := addAmount(item, table.AttrTotalEvents, usage.Events); err != nil {
		return nil, err
	}
	for limit, milli := range usage.Counters {
		if err := addTo(item, limit, table.Tokens(milli)); err != nil {
			return nil, err
		}
	}
	return item, nil
}
