package table

import (
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// usualAliases is how many names or values nearly all writes do with.
const usualAliases = 16

// aliases are the first ones of a kind, so that a batch of thousands of updates
// does not make each of them anew.
type aliases struct {
	kind  string
	first [2 * usualAliases]string
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

// Rendering is a write as DynamoDB is asked for it. Limit names hold dots and dashes,
// so every attribute and every value has a positional alias: #0, #1, … and :0, :1, …
type Rendering struct {
	Update, Condition string                 // "" where there is nothing to say
	Names             map[string]string      // attribute by alias
	Values            []types.AttributeValue // in the order of their aliases, each once
}

// ValueAlias returns the alias of value n.
func ValueAlias(n int) string { return valueAliases.of(n) }

// Render makes the text of a write.
func (w *Write) Render() *Rendering {
	r := &renderer{names: map[string]string{}, aliases: map[string]string{}}
	return &Rendering{Update: r.update(w), Condition: r.join(w.Require, " AND "), Names: r.names, Values: r.values}
}

type renderer struct {
	names   map[string]string // attribute by alias
	aliases map[string]string // alias by attribute
	values  []types.AttributeValue
}

func (r *renderer) update(w *Write) string {
	var sets, adds, removes []string
	for _, s := range w.Set {
		sets = append(sets, r.name(s.Name)+" = "+r.assigned(s))
	}
	for _, a := range w.Add {
		adds = append(adds, r.name(a.Name)+" "+r.value(a.Value))
	}
	for _, name := range w.Remove {
		removes = append(removes, r.name(name))
	}
	var clauses []string
	for _, clause := range []struct {
		verb    string
		actions []string
	}{{"SET ", sets}, {"ADD ", adds}, {"REMOVE ", removes}} {
		if len(clause.actions) > 0 {
			clauses = append(clauses, clause.verb+strings.Join(clause.actions, ", "))
		}
	}
	return strings.Join(clauses, " ")
}

// assigned is what an assignment sets its attribute to.
func (r *renderer) assigned(s Assignment) string {
	from := s.From
	if s.Absent {
		from = s.Name
	}
	if from == "" {
		return r.value(s.Value)
	}
	return "if_not_exists(" + r.name(from) + ", " + r.value(s.Value) + ")"
}

func (r *renderer) name(attribute string) string {
	alias, ok := r.aliases[attribute]
	if !ok {
		alias = nameAliases.of(len(r.names))
		r.names[alias], r.aliases[attribute] = attribute, alias
	}
	return alias
}

func (r *renderer) value(value types.AttributeValue) string {
	at := slices.Index(r.values, value)
	if at < 0 {
		at = len(r.values)
		r.values = append(r.values, value)
	}
	return ValueAlias(at)
}

var comparisons = map[Operator]string{
	Equals: " = ", Less: " < ", AtMost: " <= ", AtLeast: " >= ", Greater: " > ",
}

func (r *renderer) condition(c Condition) string {
	switch c.Op {
	case Present:
		return "attribute_exists(" + r.name(c.Name) + ")"
	case Absent:
		return "attribute_not_exists(" + r.name(c.Name) + ")"
	case Contains:
		return "contains(" + r.name(c.Name) + ", " + r.value(c.Value) + ")"
	case Any:
		return "(" + r.join(c.Of, " OR ") + ")"
	case All:
		return "(" + r.join(c.Of, " AND ") + ")"
	}
	comparison := r.name(c.Name) + comparisons[c.Op] + r.value(c.Value)
	if c.OrAbsent {
		return "(attribute_not_exists(" + r.name(c.Name) + ") OR " + comparison + ")"
	}
	return comparison
}

func (r *renderer) join(conditions []Condition, with string) string {
	var texts []string
	for _, c := range conditions {
		texts = append(texts, r.condition(c))
	}
	return strings.Join(texts, with)
}
