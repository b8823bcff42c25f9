package table

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/quota"
)

// Strict returns a DB that refuses what DynamoDB refuses, before db sees it. The
// errors wrap ErrRequest. They hold sizes, counts and names of attributes, never a
// value or a key.
func Strict(db DB) DB { return strict{db} }

type strict struct{ db DB }

func (s strict) Do(ctx context.Context, w *Write) (WriteResult, error) {
	if err := w.Check(); err != nil {
		return WriteResult{}, fmt.Errorf("%s: %w", w.Operation, err)
	}
	return s.db.Do(ctx, w)
}

func (s strict) Transact(ctx context.Context, t *Transaction) (TransactResult, error) {
	if err := t.Check(); err != nil {
		return TransactResult{}, fmt.Errorf("%s: %w", t.Operation, err)
	}
	return s.db.Transact(ctx, t)
}

func (s strict) Load(ctx context.Context, lookup *Lookup) (LoadResult, error) {
	if err := lookup.Check(); err != nil {
		return LoadResult{}, fmt.Errorf("%s: %w", lookup.Operation, err)
	}
	return s.db.Load(ctx, lookup)
}

func (s strict) Query(ctx context.Context, q *Query) (QueryResult, error) {
	if err := q.Check(); err != nil {
		return QueryResult{}, fmt.Errorf("%s: %w", q.Operation, err)
	}
	return s.db.Query(ctx, q)
}

func refused(format string, a ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrRequest}, a...)...)
}

// within refuses what is more than DynamoDB takes.
func within(n, most int, what string) error {
	if n <= most {
		return nil
	}
	return refused("%s: %d, of which DynamoDB takes %d", what, n, most)
}

// first returns the first error, if there is any.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Check returns why DynamoDB takes no such transaction, whatever the table holds.
func (t *Transaction) Check() error {
	if len(t.Writes) == 0 {
		return refused("a transaction of nothing")
	}
	if err := within(len(t.Writes), maxTransaction, "items in a transaction"); err != nil {
		return err
	}
	size := 0
	for i, w := range t.Writes {
		for _, other := range t.Writes[:i] {
			if w.Key == other.Key {
				return refused("a transaction writes an item twice")
			}
		}
		if err := w.Check(); err != nil {
			return fmt.Errorf("%s: %w", w.Operation, err)
		}
		size += w.Put.Size()
	}
	return within(size, maxTransactionSize, "bytes of the items in a transaction")
}

// Check returns why DynamoDB takes no such lookup.
func (l *Lookup) Check() error {
	if len(l.Keys) == 0 {
		return refused("a lookup of nothing")
	}
	if err := within(len(l.Keys), MaxBatchKeys, "keys in a batch read"); err != nil {
		return err
	}
	for i, key := range l.Keys {
		if err := key.check(); err != nil {
			return err
		}
		for j := range i {
			if l.Keys[j] == key {
				return refused("a batch read has a key twice")
			}
		}
	}
	return nil
}

// Check returns why DynamoDB takes no such query.
func (q *Query) Check() error {
	return first(checkKey(q.Index+" partition key", q.PK, maxPK), checkKey(q.Index+" sort key", q.Prefix, maxSK))
}

func (k ItemKey) check() error {
	return first(checkKey("partition key", k.PK, maxPK), checkKey("sort key", k.SK, maxSK))
}

func checkKey(what, value string, most int) error {
	switch {
	case value == "":
		return refused("an empty %s", what)
	case len(value) > most:
		return refused("a %s of %d bytes, of which DynamoDB takes %d", what, len(value), most)
	}
	return nil
}

// Check returns why DynamoDB takes no such write, whatever the table holds.
func (w *Write) Check() error {
	actions := len(w.Set) + len(w.Add) + len(w.Remove)
	switch {
	case w.Put != nil && w.Delete, actions > 0 && (w.Put != nil || w.Delete):
		return refused("a write that does more than one of putting, deleting and changing an item")
	case !w.Changes() && len(w.Require) == 0:
		return refused("a write that neither requires nor changes anything")
	}
	if err := first(w.Key.check(), checkConditions(w.Require), w.checkActions(), w.checkExtent()); err != nil || w.Put == nil {
		return err
	}
	if pk, sk := w.Put.Key(); w.Key != (ItemKey{pk, sk}) {
		return refused("an item that is put under another's key")
	}
	return CheckItem(w.Put)
}

func checkConditions(conditions []Condition) error {
	for i := range conditions {
		c := &conditions[i]
		var err error
		switch c.Op {
		case Any, All:
			if err = checkConditions(c.Of); len(c.Of) == 0 || len(c.Of) == 1 && (c.Of[0].Of != nil || c.Of[0].OrAbsent) {
				err = refused("parentheses around nothing, or twice around the same")
			}
		case Present, Absent:
			err = checkName(c.Name)
		default:
			if err = first(checkName(c.Name), checkValue(c.Name, c.Value, 0)); c.Op != Equals && !ordered(c.Value) {
				err = refused("%s: compared with a value that has no order", shortened(c.Name))
			}
		}
		if c.OrAbsent && (c.Op < Equals || c.Op > Greater) {
			err = refused("%s: only a comparison can hold without an attribute", shortened(c.Name))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func ordered(value types.AttributeValue) bool {
	switch value.(type) {
	case *types.AttributeValueMemberS, *types.AttributeValueMemberN, *types.AttributeValueMemberB:
		return true
	}
	return false
}

// checkActions refuses a change of the key, one attribute in two actions, and values
// that no attribute has.
func (w *Write) checkActions() error {
	for place := range len(w.Set) + len(w.Add) + len(w.Remove) {
		name := w.target(place)
		if err := checkName(name); err != nil {
			return err
		}
		if name == AttrPK || name == AttrSK {
			return refused("a change of the key")
		}
		for before := range place {
			if w.target(before) == name {
				return refused("%s: changed twice in one write", shortened(name))
			}
		}
	}
	for i := range w.Set {
		if err := checkAttribute(w.Set[i].Name, w.Set[i].Value); err != nil {
			return err
		}
	}
	for i := range w.Add {
		add := &w.Add[i]
		if _, isNumber := add.Value.(*types.AttributeValueMemberN); !isNumber {
			return refused("%s: an addition of what is no number", shortened(add.Name))
		}
		if err := checkAttribute(add.Name, add.Value); err != nil {
			return err
		}
	}
	return nil
}

// target is the attribute that an action changes. Sets come first, then additions,
// then removals.
func (w *Write) target(place int) string {
	if place < len(w.Set) {
		return w.Set[place].Name
	}
	if place -= len(w.Set); place < len(w.Add) {
		return w.Add[place].Name
	}
	return w.Remove[place-len(w.Add)]
}

// CheckResult returns why DynamoDB does not leave an item as a write makes it: a
// sum that is no number of it, or an item that grew too large.
func (w *Write) CheckResult(item Item) error {
	for i := range w.Add {
		name := w.Add[i].Name
		if err := checkValue(name, item[name], 0); err != nil {
			return err
		}
	}
	return item.checkSize()
}

// CheckShards returns why DynamoDB takes no transaction of all shards of a group, of
// which each is as large as the item. A pooled use and a creation may be that.
func CheckShards(item Item) error {
	return within((quota.MaxShards+1)*item.Size(), maxTransactionSize, "bytes of all shards of a group")
}

// Fits reports whether DynamoDB takes the change as one update.
func (a Amendment) Fits() bool { return amendWrite("-", "-", a).Check() == nil }

// CheckItem returns why DynamoDB stores no such item.
func CheckItem(item Item) error {
	pk, sk := item.Key()
	if err := (ItemKey{pk, sk}).check(); err != nil {
		return err
	}
	for name, value := range item {
		if err := checkAttribute(name, value); err != nil {
			return err
		}
	}
	return item.checkSize()
}

// checkSize looks closely only at an item that may be too large: a number takes
// fewer bytes than its text, but for three.
func (item Item) checkSize() error {
	most := 0
	for name, value := range item {
		most += len(name)
		if number, ok := value.(*types.AttributeValueMemberN); ok {
			most += len(number.Value) + 3
		} else {
			most += valueSize(value)
		}
	}
	if most <= maxItemSize {
		return nil
	}
	return within(item.Size(), maxItemSize, "bytes of an item")
}

func checkName(name string) error {
	if name == "" || len(name) > maxAttributeName {
		return refused("an attribute's name of %d bytes", len(name))
	}
	return nil
}

// checkAttribute checks an attribute that is stored. An index's key is a text that
// is not empty.
func checkAttribute(name string, value types.AttributeValue) error {
	if len(name) != len(AttrGSI2PK) {
		return first(checkName(name), checkValue(name, value, 0))
	}
	if most, isKey := indexKeys[name]; isKey {
		text, ok := value.(*types.AttributeValueMemberS)
		if !ok {
			return refused("%s: an index's key that is no text", name)
		}
		return checkKey(name, text.Value, most)
	}
	return first(checkName(name), checkValue(name, value, 0))
}

func checkValue(name string, value types.AttributeValue, depth int) (err error) {
	members := 1
	switch v := value.(type) {
	case nil:
		return refused("%s: no value", shortened(name))
	case *types.AttributeValueMemberN:
		return checkNumber(name, v.Value)
	case *types.AttributeValueMemberNS:
		for _, number := range v.Value {
			err = first(err, checkNumber(name, number))
		}
		members = len(v.Value)
	case *types.AttributeValueMemberSS:
		members = len(v.Value)
	case *types.AttributeValueMemberBS:
		members = len(v.Value)
	case *types.AttributeValueMemberL:
		for _, element := range v.Value {
			err = first(err, checkValue(name, element, depth+1))
		}
	case *types.AttributeValueMemberM:
		for _, element := range v.Value {
			err = first(err, checkValue(name, element, depth+1))
		}
	}
	switch {
	case depth > maxNesting:
		return refused("%s: values nest deeper than %d", shortened(name), maxNesting)
	case members == 0:
		return refused("%s: an empty set", shortened(name))
	}
	return err
}
