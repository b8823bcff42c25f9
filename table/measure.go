package table

import (
	"strconv"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// Extent is what a write's expressions come to, as DynamoDB counts.
type Extent struct {
	Update, Condition Expression
	Substituted       int // bytes of the aliases, and of the names and values that they stand for
}

// Expression is the extent of one expression.
type Expression struct{ Bytes, Operators int }

// Measure returns the extent of a write as table/dynamo renders it.
func Measure(w *Write) Extent {
	exact := ruler{names: map[string]int{}, values: map[types.AttributeValue]int{}}
	return exact.measure(w)
}

// checkExtent estimates first: that costs less, takes no memory, and is never too
// low.
func (w *Write) checkExtent() error {
	rough := ruler{}
	if rough.measure(w).check() == nil {
		return nil
	}
	return Measure(w).check()
}

func (e Extent) check() error {
	return first(
		within(e.Update.Bytes, maxExpression, "bytes of an update expression"),
		within(e.Condition.Bytes, maxExpression, "bytes of a condition expression"),
		within(e.Update.Operators, maxOperators, "operators in an update expression"),
		within(e.Condition.Operators, maxOperators, "operators in a condition expression"),
		within(e.Substituted, maxSubstitutions, "bytes of names and values"))
}

// ruler measures expressions. Each attribute and each value has a positional
// alias: #0, #1, … and :0, :1, …
type ruler struct {
	names  map[string]int               // the number of an alias; nil for an estimate
	values map[types.AttributeValue]int // likewise
	Expression
	substituted int
}

func aliasSize(n int) int {
	size := len("#0")
	for ; n >= 10; n /= 10 {
		size++
	}
	return size
}

// roughAlias is the size of #999, which an estimate takes each alias for. An
// expression that fits does not hold a thousand.
const roughAlias = 4

// alias measures the alias of a name or a value of some size.
func alias[K comparable](r *ruler, known map[K]int, key K, size int) {
	if known == nil {
		r.Bytes += roughAlias
		r.substituted += roughAlias + size
		return
	}
	n, again := known[key]
	if !again {
		n = len(known)
		known[key] = n
		r.substituted += aliasSize(n) + size
	}
	r.Bytes += aliasSize(n)
}

func (r *ruler) measure(w *Write) Extent {
	r.update(w)
	update := r.Expression
	r.Expression = Expression{}
	r.join(w.Require, " AND ")
	return Extent{update, r.Expression, r.substituted}
}

func (r *ruler) text(text string) { r.Bytes += len(text) }

func (r *ruler) name(attribute string) { alias(r, r.names, attribute, len(attribute)) }

// value measures a value, a number by its text.
func (r *ruler) value(value types.AttributeValue) {
	if number, ok := value.(*types.AttributeValueMemberN); ok {
		alias(r, r.values, value, len(number.Value))
	} else {
		alias(r, r.values, value, valueSize(value))
	}
}

func (r *ruler) update(w *Write) {
	for i := range w.Set {
		r.clause(i, "SET ")
		r.name(w.Set[i].Name)
		r.text(" = ")
		r.assigned(&w.Set[i])
	}
	for i := range w.Add {
		r.clause(i, "ADD ")
		r.name(w.Add[i].Name)
		r.text(" ")
		r.value(w.Add[i].Value)
	}
	for i, name := range w.Remove {
		r.clause(i, "REMOVE ")
		r.name(name)
	}
}

// clause measures what stands before an action of a clause.
func (r *ruler) clause(place int, verb string) {
	switch {
	case place > 0:
		r.text(", ")
	case r.Bytes > 0:
		r.text(" ")
		fallthrough
	default:
		r.text(verb)
	}
}

func (r *ruler) assigned(set *Assignment) {
	from := set.From
	if set.Absent {
		from = set.Name
	}
	if from == "" {
		r.value(set.Value)
		return
	}
	r.Operators++
	r.text("if_not_exists(")
	r.name(from)
	r.text(", ")
	r.value(set.Value)
	r.text(")")
}

func (r *ruler) join(conditions []Condition, with string) {
	for i := range conditions {
		if i > 0 {
			r.text(with)
			r.Operators++
		}
		r.condition(&conditions[i])
	}
}

// spelled is what an operator adds to what it compares.
var spelled = [...]string{
	Present: "attribute_exists()", Absent: "attribute_not_exists()", Contains: "contains(, )",
	Equals: " = ", Less: " < ", Greater: " > ", AtMost: " <= ", AtLeast: " >= ", Any: "()", All: "()",
}

func (r *ruler) condition(c *Condition) {
	r.text(spelled[c.Op])
	switch c.Op {
	case Any:
		r.join(c.Of, " OR ")
		return
	case All:
		r.join(c.Of, " AND ")
		return
	}
	if c.OrAbsent {
		r.text("(attribute_not_exists() OR )")
		r.Operators += 2
		r.name(c.Name)
	}
	r.Operators++
	r.name(c.Name)
	if c.Value != nil {
		r.value(c.Value)
	}
}

// checkNumber refuses a text that is no number of DynamoDB.
func checkNumber(name, text string) error {
	digits, exponent, ok := scan(text)
	switch {
	case !ok:
		return refused("%s: not a number", shortened(name))
	case digits > maxDigits:
		return refused("%s: a number of %d digits, of which DynamoDB takes %d", shortened(name), digits, maxDigits)
	case exponent > maxExponent || exponent < minExponent:
		return refused("%s: a number of magnitude 10^%d", shortened(name), exponent)
	}
	return nil
}

// scan reads how many significant digits a number has and the power of ten of the
// first.
func scan(text string) (digits, exponent int, ok bool) {
	if text != "" && (text[0] == '-' || text[0] == '+') {
		text = text[1:]
	}
	places, point, from, to := 0, -1, -1, -1
	for i := range len(text) {
		c := text[i]
		switch {
		case c == '.' && point < 0:
			point = places
			continue
		case (c == 'e' || c == 'E') && places > 0:
			digits, exponent, ok = scan(text[:i])
			power, err := strconv.Atoi(text[i+1:])
			if digits > 0 {
				exponent += power
			}
			return digits, exponent, ok && err == nil
		case c < '0' || c > '9':
			return 0, 0, false
		case c != '0':
			if to = places; from < 0 {
				from = places
			}
		}
		places++
	}
	switch {
	case places == 0:
		return 0, 0, false
	case from < 0:
		return 0, 0, true
	case point < 0:
		point = places
	}
	return to - from + 1, point - from - 1, true
}
