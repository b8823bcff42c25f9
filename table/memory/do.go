package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/table"
)

// Do implements table.DB.
func (s *Store) Do(ctx context.Context, w *table.Write) (table.WriteResult, error) {
	if err := w.Check(); err != nil {
		return table.WriteResult{}, fmt.Errorf("%s: %w", w.Operation, err)
	}
	if err := s.fetch(ctx, w.Key); err != nil {
		return table.WriteResult{}, fmt.Errorf("%s: %w", w.Operation, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	stored := s.items[w.Key]
	if !allHold(stored, w.Require) {
		return table.WriteResult{Item: stored.Clone(), Time: s.time()}, nil
	}
	after, err := apply(stored, w)
	if err != nil {
		return table.WriteResult{}, fmt.Errorf("%s: %w", w.Operation, err)
	}
	s.set(w.Key, after)
	result := table.WriteResult{Applied: true, Time: s.time()}
	if w.Return {
		result.Item = after.Clone()
	}
	return result, nil
}

// Transact implements table.DB.
func (s *Store) Transact(ctx context.Context, t *table.Transaction) (table.TransactResult, error) {
	if err := t.Check(); err != nil {
		return table.TransactResult{}, fmt.Errorf("%s: %w", t.Operation, err)
	}
	for _, w := range t.Writes {
		if err := s.fetch(ctx, w.Key); err != nil {
			return table.TransactResult{}, fmt.Errorf("%s: %w", t.Operation, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	refused, after := map[int]table.Item{}, make([]table.Item, len(t.Writes))
	var invalid error
	for i, w := range t.Writes {
		stored := s.items[w.Key]
		if !allHold(stored, w.Require) {
			refused[i] = stored.Clone()
			continue
		}
		var err error
		if after[i], err = apply(stored, w); err != nil && invalid == nil {
			invalid = fmt.Errorf("%s: %w", t.Operation, err)
		}
	}
	switch {
	case len(refused) > 0:
		return table.TransactResult{Refused: refused, Time: s.time()}, nil
	case invalid != nil:
		return table.TransactResult{}, invalid
	}
	for i, w := range t.Writes {
		if w.Changes() {
			s.set(w.Key, after[i])
		}
	}
	return table.TransactResult{Time: s.time()}, nil
}

// apply returns an item after a write, nil where the write deletes it. As in
// DynamoDB, every action reads the item as it was before the write.
func apply(stored table.Item, w *table.Write) (table.Item, error) {
	switch {
	case w.Delete:
		return nil, nil
	case w.Put != nil:
		return canonicalItem(w.Put), nil
	case !w.Changes():
		return stored, nil
	}
	item := stored.Clone()
	if item == nil {
		item = w.Key.Item()
	}
	for _, set := range w.Set {
		switch {
		case set.Absent && stored[set.Name] != nil:
		case set.From != "" && stored[set.From] != nil:
			item[set.Name] = stored[set.From]
		default:
			item[set.Name] = canonical(set.Value)
		}
	}
	for _, name := range w.Remove {
		delete(item, name)
	}
	for _, a := range w.Add {
		sum, err := plus(stored[a.Name], a.Value)
		if err != nil {
			return nil, fmt.Errorf("%w: add to %s: %w", table.ErrRequest, a.Name, err)
		}
		item[a.Name] = sum
	}
	return item, w.CheckResult(item)
}

// plus adds two numbers, of which the first may be absent.
func plus(stored, addend types.AttributeValue) (types.AttributeValue, error) {
	y, ok := addend.(*types.AttributeValueMemberN)
	if !ok {
		return nil, errNotNumber
	}
	x := &types.AttributeValueMemberN{Value: "0"}
	if stored != nil {
		if x, ok = stored.(*types.AttributeValueMemberN); !ok {
			return nil, errNotNumber
		}
	}
	sum, err := add(x.Value, y.Value)
	return table.N(sum), err
}

func allHold(item table.Item, conditions []table.Condition) bool {
	for i := range conditions {
		if !holds(item, &conditions[i]) {
			return false
		}
	}
	return true
}

// holds reports whether an item, nil for none, is as a condition requires.
func holds(item table.Item, c *table.Condition) bool {
	value := item[c.Name]
	if c.OrAbsent && value == nil {
		return true
	}
	switch c.Op {
	case table.Present:
		return value != nil
	case table.Absent:
		return value == nil
	case table.Equals:
		return table.SameValue(value, c.Value)
	case table.Contains:
		whole, isText := value.(*types.AttributeValueMemberS)
		part, _ := c.Value.(*types.AttributeValueMemberS)
		return isText && part != nil && strings.Contains(whole.Value, part.Value)
	case table.All:
		return allHold(item, c.Of)
	case table.Any:
		for i := range c.Of {
			if holds(item, &c.Of[i]) {
				return true
			}
		}
		return false
	}
	order, comparable := compareValues(value, c.Value)
	if !comparable {
		return false
	}
	switch c.Op {
	case table.Less:
		return order < 0
	case table.AtMost:
		return order <= 0
	case table.AtLeast:
		return order >= 0
	}
	return order > 0
}

// compareValues orders two numbers or two strings.
func compareValues(a, b types.AttributeValue) (order int, comparable bool) {
	switch x := a.(type) {
	case *types.AttributeValueMemberN:
		if y, ok := b.(*types.AttributeValueMemberN); ok {
			return compareNumbers(x.Value, y.Value)
		}
	case *types.AttributeValueMemberS:
		if y, ok := b.(*types.AttributeValueMemberS); ok {
			return strings.Compare(x.Value, y.Value), true
		}
	}
	return 0, false
}

// Load implements table.DB.
func (s *Store) Load(ctx context.Context, lookup *table.Lookup) (table.LoadResult, error) {
	if err := lookup.Check(); err != nil {
		return table.LoadResult{}, fmt.Errorf("%s: %w", lookup.Operation, err)
	}
	if err := s.fetch(ctx, lookup.Keys...); err != nil {
		return table.LoadResult{}, fmt.Errorf("%s: %w", lookup.Operation, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	result := table.LoadResult{Items: make([]table.Item, len(lookup.Keys)), Time: s.time()}
	for i, key := range lookup.Keys {
		result.Items[i] = s.items[key].Clone()
	}
	return result, nil
}

// Query implements table.DB. An item is in an index if it has both of the index's
// keys. In a table that lies over another, only what was loaded or written so far
// is.
func (s *Store) Query(ctx context.Context, q *table.Query) (table.QueryResult, error) {
	if err := q.Check(); err != nil {
		return table.QueryResult{}, fmt.Errorf("%s: %w", q.Operation, err)
	}
	if err := ctx.Err(); err != nil {
		return table.QueryResult{}, fmt.Errorf("%s: %w: %w", q.Operation, table.ErrRetry, err)
	}
	type entry struct {
		sk  string
		key table.ItemKey
	}
	var entries []entry
	pk, sk := table.IndexKeys(q.Index)
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, item := range s.items {
		if sort, indexed := item[sk].(*types.AttributeValueMemberS); indexed && item.Text(pk) == q.PK && strings.HasPrefix(sort.Value, q.Prefix) {
			entries = append(entries, entry{sort.Value, key})
		}
	}
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(strings.Compare(a.sk, b.sk), strings.Compare(a.key.PK, b.key.PK), strings.Compare(a.key.SK, b.key.SK))
	})
	result := table.QueryResult{Time: s.time()}
	for _, e := range entries {
		result.Keys = append(result.Keys, e.key)
	}
	return result, nil
}
