package table

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// Write changes one item in one atomic step if, and only if, everything that it
// requires of the item holds. It is data: a DB carries it out, a test drops one
// of its conditions, a counterexample prints it.
//
// A write puts an item, deletes one, changes one, or, where it does none of the
// three, only checks one inside a Transaction. Values that are the same pointer
// are sent once.
type Write struct {
	Operation string // what the write is for, as errors and traces name it: "use", "raise shard 3"
	Key       ItemKey
	Require   []Condition // all of them must hold
	Set       []Assignment
	Add       []Addition
	Remove    []string
	Put       Item // the new item, whatever is there; nil for none
	Delete    bool

	Return bool // the caller wants the item as an update leaves it
	Once   bool // nobody may send the write again once it may have landed
}

// Assignment sets an attribute: to Value, or to a copy of another attribute.
type Assignment struct {
	Name   string
	Value  types.AttributeValue
	Absent bool   // only where the item has no such attribute
	From   string // to what this attribute holds, and to Value where it is absent
}

// Addition adds a number to an attribute. An absent attribute counts as 0.
type Addition struct {
	Name  string
	Value types.AttributeValue // a number
}

// Operator compares an attribute. A comparison with an absent attribute, or with
// one of another type, is false, as in DynamoDB.
type Operator int

// The operators.
const (
	Present Operator = iota
	Absent
	Equals
	Less
	AtMost
	AtLeast
	Greater
	Contains // a text inside a text
	Any      // at least one of several conditions
	All      // all of several conditions
)

// Condition is something that a write requires of an item.
type Condition struct {
	Op       Operator
	OrAbsent bool // a comparison also holds where the item has no such attribute
	Name     string
	Value    types.AttributeValue
	Of       []Condition // of Any and All
}

func exists(name string) Condition     { return Condition{Op: Present, Name: name} }
func absent(name string) Condition     { return Condition{Op: Absent, Name: name} }
func either(of ...Condition) Condition { return Condition{Op: Any, Of: of} }
func both(of ...Condition) Condition   { return Condition{Op: All, Of: of} }

func compare(op Operator, name string, value types.AttributeValue) Condition {
	return Condition{Op: op, Name: name, Value: value}
}

func orAbsent(c Condition) Condition {
	c.OrAbsent = true
	return c
}

func compareInt(op Operator, name string, n int64) Condition { return compare(op, name, Int(n)) }

// as requires an attribute to hold a value, nil for none.
func as(name string, value types.AttributeValue) Condition {
	if value == nil {
		return absent(name)
	}
	return compare(Equals, name, value)
}

// asText is as for a text, where "" stands for none.
func asText(name, text string) Condition {
	if text == "" {
		return absent(name)
	}
	return compare(Equals, name, S(text))
}

// asInt is as for a number, where nil stands for none.
func asInt(name string, n *int64) Condition {
	if n == nil {
		return absent(name)
	}
	return compareInt(Equals, name, *n)
}

// reads requires a number that reads as n: an absent one reads as 0.
func reads(name string, n int64) Condition {
	c := compareInt(Equals, name, n)
	c.OrAbsent = n == 0
	return c
}

// countIs requires a stored shard count that reads as n: an absent one and one
// below 1 read as 1.
func countIs(n int) Condition {
	if n == 1 {
		return countAtMost(1)
	}
	return compareInt(Equals, AttrShardCount, int64(n))
}

// countAtMost requires a stored shard count of at most n, which is at least 1.
func countAtMost(n int) Condition {
	return orAbsent(compareInt(AtMost, AttrShardCount, int64(n)))
}

func (w *Write) require(conditions ...Condition) { w.Require = append(w.Require, conditions...) }

func (w *Write) set(name string, value types.AttributeValue) {
	w.Set = append(w.Set, Assignment{Name: name, Value: value})
}

func (w *Write) setInt(name string, n int64) { w.set(name, Int(n)) }

// setIfAbsent sets an attribute that is not there yet.
func (w *Write) setIfAbsent(name string, value types.AttributeValue) {
	w.Set = append(w.Set, Assignment{Name: name, Value: value, Absent: true})
}

func (w *Write) add(name string, value types.AttributeValue) {
	w.Add = append(w.Add, Addition{name, value})
}

func (w *Write) addInt(name string, n int64) { w.add(name, Int(n)) }

func (w *Write) remove(name string) { w.Remove = append(w.Remove, name) }

// Changes reports whether the write changes anything: one that does not is a
// check.
func (w *Write) Changes() bool {
	return w.Put != nil || w.Delete || len(w.Set)+len(w.Add)+len(w.Remove) > 0
}

// String prints the write on one line. The text holds the item's key and values,
// which may be secrets: it is for tests and for reports that may show them.
func (w *Write) String() string {
	parts := []string{fmt.Sprintf("%s: %s %s", w.Operation, w.Key.PK, w.Key.SK)}
	if len(w.Require) > 0 {
		parts = append(parts, "if "+join(w.Require, " and "))
	}
	switch {
	case w.Put != nil:
		parts = append(parts, "put "+fmt.Sprint(plainMap(w.Put)))
	case w.Delete:
		parts = append(parts, "delete")
	}
	for _, s := range w.Set {
		parts = append(parts, s.String())
	}
	for _, a := range w.Add {
		parts = append(parts, "add "+text(a.Value)+" to "+a.Name)
	}
	if len(w.Remove) > 0 {
		parts = append(parts, "remove "+strings.Join(w.Remove, ", "))
	}
	return strings.Join(parts, "; ")
}

func (s Assignment) String() string {
	switch {
	case s.Absent:
		return "set " + s.Name + " = " + text(s.Value) + " if absent"
	case s.From != "":
		return "set " + s.Name + " = " + s.From + " or " + text(s.Value)
	}
	return "set " + s.Name + " = " + text(s.Value)
}

var operators = map[Operator]string{
	Equals: " = ", Less: " < ", AtMost: " <= ", AtLeast: " >= ", Greater: " > ", Contains: " contains ",
}

// String prints the condition: "(vu absent or vu > 1796032800000)".
func (c Condition) String() string {
	switch c.Op {
	case Present:
		return c.Name + " exists"
	case Absent:
		return c.Name + " absent"
	case Any:
		return "(" + join(c.Of, " or ") + ")"
	case All:
		return "(" + join(c.Of, " and ") + ")"
	}
	comparison := c.Name + operators[c.Op] + text(c.Value)
	if c.OrAbsent {
		return "(" + c.Name + " absent or " + comparison + ")"
	}
	return comparison
}

func join(conditions []Condition, with string) string {
	var texts []string
	for _, c := range conditions {
		texts = append(texts, c.String())
	}
	return strings.Join(texts, with)
}

// text prints a value: numbers bare, strings quoted, anything else as DynamoDB
// JSON.
func text(value types.AttributeValue) string {
	switch v := value.(type) {
	case *types.AttributeValueMemberN:
		return v.Value
	case *types.AttributeValueMemberS:
		return strconv.Quote(v.Value)
	case *types.AttributeValueMemberBOOL:
		return strconv.FormatBool(v.Value)
	}
	return fmt.Sprint(plainValue(value))
}
