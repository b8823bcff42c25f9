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
		found, err := table.Item(stored).SeenRecords()
		if err != nil {
			return table.UsageResult{}, fmt.Errorf("add usage: %w", err)
		}
		return table.UsageResult{Seen: found}, nil
	}
	return table.UsageResult{Applied: true}, nil
}

func usageExpression(usage table.Usage) *expression {
	e := newExpression()
	for _, label := range usage.Key.Labels() {
		e.set(label[0], table.S(label[1]))
	}
	for _, source := range usage.Sources {
		e.count(source)
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

// count stores what is counted of a source, if it has counted what it is
// expected to have.
func (e *expression) count(source table.Source) {
	markAttr, runsAttr := table.PositionAttr(source.Shard), table.RangesAttr(source.Shard)
	mark, runs := source.Next.Texts()
	e.set(markAttr, table.S(mark))
	if len(source.Found) > 0 {
		foundMark, foundRuns := source.Found.Texts()
		e.require(both(e.isText(markAttr, foundMark), e.isText(runsAttr, foundRuns)))
		if runs != "" {
			e.set(runsAttr, table.S(runs))
		}
		return
	}
	e.require(e.follows(source))
	if runs != "" {
		e.setOnce(runsAttr, table.S(runs))
	}
}

// follows requires that nothing is counted of a source, or that it can be added
// without reading what is. A stored mark, with its total behind it, sorts after
// the same mark alone and before any later one. The condition also asks for the
// runs attribute: without it all up to the mark is counted, which no update that
// does not read could write down.
func (e *expression) follows(source table.Source) string {
	mark, runs := table.PositionAttr(source.Shard), table.RangesAttr(source.Shard)
	first, ok := source.Follows()
	if !ok {
		return e.absent(mark)
	}
	ends := e.name(mark) + " < " + e.value(table.S(first.Position))
	meets := "contains(" + e.name(mark) + ", " + e.value(table.S(" "+first.Total)) + ")"
	return either(e.absent(mark), both(ends, both(meets, e.exists(runs))))
}
