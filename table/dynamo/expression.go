package dynamo

import (
	"encoding/binary"
	"slices"
	"strconv"
	"strings"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/table"
)

// expression is a write as the service is asked for it. Limit names hold dots and
// dashes, so every attribute and every value has a positional alias.
type expression struct {
	*text
	values table.Item // by alias; nil where there are none
}

// text is what writes of one shape have in common.
type text struct {
	update, condition *string           // nil where there is nothing to say
	names             map[string]string // attribute by alias
}

// expressions renders writes. It keeps the texts of the shapes that it met last:
// making one costs more than everything else about a request.
type expressions struct{ shapes *lru.Cache[string, *text] }

// maxShapes is how many shapes are kept. A program has a few, but which limits a
// use asks for may come from outside.
const maxShapes = 256

func newExpressions() expressions {
	shapes, err := lru.New[string, *text](maxShapes)
	if err != nil {
		panic("dynamo: " + err.Error()) // of a size below 1
	}
	return expressions{shapes}
}

func (e expressions) of(w *table.Write) expression {
	var usual [1024]byte
	s := shaper{shape: usual[:0], values: make([]types.AttributeValue, 0, 2*usualAliases)}
	s.write(w)
	shape := string(s.shape)
	known, ok := e.shapes.Get(shape)
	if !ok {
		known = render(w, s.values)
		e.shapes.Add(shape, known)
	}
	return expression{known, s.byAlias()}
}

// shaper walks through a write. It collects the write's values, each once, and
// spells out everything else: two writes are spelled alike only if their texts
// are the same.
type shaper struct {
	shape  []byte
	values []types.AttributeValue
}

func (s *shaper) write(w *table.Write) {
	s.number(len(w.Set))
	for i := range w.Set {
		set := &w.Set[i]
		s.flag(set.Absent)
		s.name(set.Name)
		s.name(set.From)
		s.value(set.Value)
	}
	s.number(len(w.Add))
	for i := range w.Add {
		s.name(w.Add[i].Name)
		s.value(w.Add[i].Value)
	}
	s.number(len(w.Remove))
	for _, name := range w.Remove {
		s.name(name)
	}
	s.conditions(w.Require)
}

func (s *shaper) conditions(conditions []table.Condition) {
	s.number(len(conditions))
	for i := range conditions {
		c := &conditions[i]
		s.number(int(c.Op))
		s.flag(c.OrAbsent)
		s.name(c.Name)
		if c.Value != nil {
			s.value(c.Value)
		}
		s.conditions(c.Of)
	}
}

func (s *shaper) number(n int) { s.shape = binary.AppendUvarint(s.shape, uint64(n)) }

func (s *shaper) name(name string) {
	s.number(len(name))
	s.shape = append(s.shape, name...)
}

func (s *shaper) flag(set bool) {
	if set {
		s.number(1)
	} else {
		s.number(0)
	}
}

func (s *shaper) value(value types.AttributeValue) {
	at := slices.Index(s.values, value)
	if at < 0 {
		at = len(s.values)
		s.values = append(s.values, value)
	}
	s.number(at)
}

func (s *shaper) byAlias() table.Item {
	if len(s.values) == 0 {
		return nil
	}
	values := make(table.Item, len(s.values))
	for i, value := range s.values {
		values[valueAliases.of(i)] = value
	}
	return values
}

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

// renderer makes the text of a write whose values are known.
type renderer struct {
	names   map[string]string // attribute by alias
	aliases map[string]string // alias by attribute
	values  []types.AttributeValue
}

func render(w *table.Write, values []types.AttributeValue) *text {
	r := &renderer{map[string]string{}, map[string]string{}, values}
	t := &text{update: some(r.update(w)), condition: some(r.join(w.Require, " AND "))}
	if len(r.names) > 0 {
		t.names = r.names
	}
	return t
}

func some(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func (r *renderer) update(w *table.Write) string {
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
func (r *renderer) assigned(s table.Assignment) string {
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
	return valueAliases.of(slices.Index(r.values, value))
}

var comparisons = map[table.Operator]string{
	table.Equals: " = ", table.Less: " < ", table.AtMost: " <= ", table.AtLeast: " >= ", table.Greater: " > ",
}

func (r *renderer) condition(c table.Condition) string {
	switch c.Op {
	case table.Present:
		return "attribute_exists(" + r.name(c.Name) + ")"
	case table.Absent:
		return "attribute_not_exists(" + r.name(c.Name) + ")"
	case table.Contains:
		return "contains(" + r.name(c.Name) + ", " + r.value(c.Value) + ")"
	case table.Any:
		return "(" + r.join(c.Of, " OR ") + ")"
	case table.All:
		return "(" + r.join(c.Of, " AND ") + ")"
	}
	comparison := r.name(c.Name) + comparisons[c.Op] + r.value(c.Value)
	if c.OrAbsent {
		return "(attribute_not_exists(" + r.name(c.Name) + ") OR " + comparison + ")"
	}
	return comparison
}

func (r *renderer) join(conditions []table.Condition, with string) string {
	var texts []string
	for _, c := range conditions {
		texts = append(texts, r.condition(c))
	}
	return strings.Join(texts, with)
}
