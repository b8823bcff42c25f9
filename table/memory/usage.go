package memory

import (
	"context"
	"fmt"
	"strings"

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
		if !accepts(image(stored), source) {
			return refusal(stored)
		}
	}
	next, err := counted(stored, usage)
	if err != nil {
		return fail(err)
	}
	s.set(at, next)
	return table.UsageResult{Applied: true}, nil
}

func refusal(stored table.Item) (table.UsageResult, error) {
	found, err := stored.SeenRecords()
	if err != nil {
		return table.UsageResult{}, fmt.Errorf("add usage: %w", err)
	}
	return table.UsageResult{Seen: found}, nil
}

// accepts reports whether an item has counted of a source what it is expected
// to have.
func accepts(stored image, source table.Source) bool {
	markAttr, runsAttr := table.PositionAttr(source.Shard), table.RangesAttr(source.Shard)
	if len(source.Found) > 0 {
		mark, runs := source.Found.Texts()
		return stored.same(markAttr, text(mark)) && stored.same(runsAttr, text(runs))
	}
	if !stored.has(markAttr) {
		return true
	}
	first, ok := source.Follows()
	mark, isText := stored[markAttr].(*types.AttributeValueMemberS)
	return ok && isText && mark.Value < first.Position && strings.Contains(mark.Value, " "+first.Total) && stored.has(runsAttr)
}

// text is a string value, nil for none.
func text(s string) types.AttributeValue {
	if s == "" {
		return nil
	}
	return table.S(s)
}

// count stores what is counted of a source.
func count(item table.Item, source table.Source) {
	mark, runs := source.Next.Texts()
	item[table.PositionAttr(source.Shard)] = table.S(mark)
	attr := table.RangesAttr(source.Shard)
	if runs != "" && (len(source.Found) > 0 || item[attr] == nil) {
		item[attr] = table.S(runs)
	}
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
		count(item, source)
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
