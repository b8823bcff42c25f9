package dynamo

import (
	"encoding/binary"
	"slices"

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
	s := shaper{shape: usual[:0], values: make([]types.AttributeValue, 0, 32)}
	s.write(w)
	shape := string(s.shape)
	known, ok := e.shapes.Get(shape)
	if !ok {
		known = textOf(w.Render())
		e.shapes.Add(shape, known)
	}
	return expression{known, s.byAlias()}
}

func textOf(r *table.Rendering) *text {
	t := &text{update: some(r.Update), condition: some(r.Condition)}
	if len(r.Names) > 0 {
		t.names = r.Names
	}
	return t
}

func some(text string) *string {
	if text == "" {
		return nil
	}
	return &text
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
		values[table.ValueAlias(i)] = value
	}
	return values
}
