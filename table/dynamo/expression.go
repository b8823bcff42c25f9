package dynamo

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/table"
)

// expression is a conditional update under construction. Every attribute and
// every value gets a positional alias. The conditions are all to hold.
type expression struct {
	names   map[string]string // attribute by alias
	values  table.Item        // value by alias; nil while there is none
	aliases map[string]string // alias by attribute

	sets, adds, removes, conditions []string

	rendered *text // nil until it is final
}

// text is what an expression says.
type text struct {
	update, condition *string
	fits              error // why the service does not take it
}

// render makes the text, once: what is said after that is not in it.
func (e *expression) render() text {
	if e.rendered == nil {
		e.rendered = &text{update: e.update(), condition: e.condition()}
		e.rendered.fits = e.rendered.check()
	}
	return *e.rendered
}

// usual is how many names and values an expression is made with room for.
const usual = 16

// aliases are the first ones of a kind, which nearly all expressions do with, so
// that a batch of thousands of updates does not make each of them anew.
type aliases struct {
	kind  string
	first [2 * usual]string
}

var nameAliases, valueAliases = newAliases("#"), newAliases(":")

func newAliases(kind string) *aliases {
	a := &aliases{kind: kind}
	for n := range a.first {
		a.first[n] = kind + strconv.Itoa(n)
	}
	return a
}

func (a *aliases) of(n int) string {
	if n < len(a.first) {
		return a.first[n]
	}
	return a.kind + strconv.Itoa(n)
}

func newExpression() *expression {
	return &expression{names: make(map[string]string, usual), aliases: make(map[string]string, usual)}
}

// name returns the alias of an attribute.
func (e *expression) name(attribute string) string {
	alias, ok := e.aliases[attribute]
	if !ok {
		alias = nameAliases.of(len(e.names))
		e.names[alias], e.aliases[attribute] = attribute, alias
	}
	return alias
}

// value returns a new alias for a value.
func (e *expression) value(value types.AttributeValue) string {
	if e.values == nil {
		e.values = make(table.Item, usual)
	}
	alias := valueAliases.of(len(e.values))
	e.values[alias] = value
	return alias
}

func (e *expression) number(n int64) string { return e.value(table.N(strconv.FormatInt(n, 10))) }

// update renders what is to be done, in the order in which it was said; nil
// where it is nothing.
func (e *expression) update() *string {
	var clauses []string
	add := func(verb string, actions []string) {
		if len(actions) > 0 {
			clauses = append(clauses, verb+" "+strings.Join(actions, ", "))
		}
	}
	add("SET", e.sets)
	add("ADD", e.adds)
	add("REMOVE", e.removes)
	return some(strings.Join(clauses, " "))
}

// condition renders what must hold; nil where it is nothing.
func (e *expression) condition() *string { return some(strings.Join(e.conditions, " AND ")) }

// Bounds of the service's: on the length of an expression, in bytes, and on the
// operators and functions in it.
const (
	maxExpression = 4096
	maxOperators  = 300
)

// fits reports whether the update is one that the service takes. The error
// wraps table.ErrRequest.
func (e *expression) fits() error { return e.render().fits }

func (t *text) check() error {
	update, condition := deref(t.update), deref(t.condition)
	if len(update) > maxExpression || len(condition) > maxExpression || operators(condition) > maxOperators {
		return fmt.Errorf("%w: too many limits at once", table.ErrRequest)
	}
	return nil
}

// operators counts the operators and functions of a condition.
func operators(condition string) int {
	count := strings.Count(condition, "attribute_") + strings.Count(condition, "contains(")
	for word := range strings.FieldsSeq(condition) {
		switch word {
		case "AND", "OR", "=", "<", ">", "<=", ">=":
			count++
		}
	}
	return count
}

func some(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func (e *expression) set(attribute string, value types.AttributeValue) {
	e.sets = append(e.sets, e.name(attribute)+" = "+e.value(value))
}

func (e *expression) setNumber(attribute string, n int64) {
	e.set(attribute, table.N(strconv.FormatInt(n, 10)))
}

// setOnce sets an attribute that is not there yet.
func (e *expression) setOnce(attribute string, value types.AttributeValue) {
	name := e.name(attribute)
	e.sets = append(e.sets, name+" = if_not_exists("+name+", "+e.value(value)+")")
}

func (e *expression) setNumberOnce(attribute string, n int64) {
	e.setOnce(attribute, table.N(strconv.FormatInt(n, 10)))
}

// add adds to a number, counting from 0 where it is absent.
func (e *expression) add(attribute, decimal string) {
	e.adds = append(e.adds, e.name(attribute)+" "+e.value(table.N(decimal)))
}

func (e *expression) addNumber(attribute string, n int64) {
	e.add(attribute, strconv.FormatInt(n, 10))
}

func (e *expression) remove(attribute string) { e.removes = append(e.removes, e.name(attribute)) }

func (e *expression) require(condition string) { e.conditions = append(e.conditions, condition) }

func (e *expression) exists(attribute string) string {
	return "attribute_exists(" + e.name(attribute) + ")"
}

func (e *expression) absent(attribute string) string {
	return "attribute_not_exists(" + e.name(attribute) + ")"
}

func (e *expression) is(attribute string, n int64) string {
	return e.name(attribute) + " = " + e.number(n)
}

// isText is is for text, where "" stands for an absent attribute.
func (e *expression) isText(attribute, text string) string {
	if text == "" {
		return e.absent(attribute)
	}
	return e.name(attribute) + " = " + e.value(table.S(text))
}

func (e *expression) atMost(attribute string, n int64) string {
	return e.name(attribute) + " <= " + e.number(n)
}

func (e *expression) atLeast(attribute string, n int64) string {
	return e.name(attribute) + " >= " + e.number(n)
}

// isOrAbsent is is, where nil stands for an absent attribute.
func (e *expression) isOrAbsent(attribute string, n *int64) string {
	if n == nil {
		return e.absent(attribute)
	}
	return e.is(attribute, *n)
}

// reads is is, for an attribute whose absence reads as zero.
func (e *expression) reads(attribute string, n int64) string {
	if n == 0 {
		return either(e.absent(attribute), e.is(attribute, 0))
	}
	return e.is(attribute, n)
}

// countIs requires a stored shard count that reads as n: an absent one and one
// below 1 read as 1.
func (e *expression) countIs(n int) string {
	if n == 1 {
		return e.countAtMost(1)
	}
	return e.is(table.AttrShardCount, int64(n))
}

// countAtMost requires a stored shard count of at most n, which is at least 1.
func (e *expression) countAtMost(n int) string {
	return either(e.absent(table.AttrShardCount), e.atMost(table.AttrShardCount, int64(n)))
}

func either(a, b string) string { return "(" + a + " OR " + b + ")" }

func both(a, b string) string { return "(" + a + " AND " + b + ")" }
