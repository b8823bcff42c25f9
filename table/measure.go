package table

import (
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// Extent is what a write's expressions come to, as DynamoDB counts.
type Extent struct {
	Update, Condition Expression
	Substituted       int // bytes of the aliases, and of the names and values that they stand for
}

// Expression is the extent of one expression.
type Expression struct{ Bytes, Operators int }

// Measure returns the extent of a write.
func Measure(w *Write) Extent {
	r := w.Render()
	e := Extent{Update: expression(r.Update), Condition: expression(r.Condition)}
	for alias, name := range r.Names {
		e.Substituted += len(alias) + len(name)
	}
	for i, value := range r.Values {
		e.Substituted += len(ValueAlias(i)) + substitutedSize(value)
	}
	return e
}

func (e Extent) check() error {
	return first(
		within(e.Update.Bytes, maxExpression, "bytes of an update expression"),
		within(e.Condition.Bytes, maxExpression, "bytes of a condition expression"),
		within(e.Update.Operators, maxOperators, "operators in an update expression"),
		within(e.Condition.Operators, maxOperators, "operators in a condition expression"),
		within(e.Substituted, maxSubstitutions, "bytes of names and values"))
}

// expression counts the operators and functions of a text.
func expression(text string) Expression {
	e := Expression{Bytes: len(text)}
	for _, operator := range []string{" AND ", " OR ", "attribute_", "contains(", "if_not_exists(", " < ", " > ", " <= ", " >= "} {
		e.Operators += strings.Count(text, operator)
	}
	if !strings.HasPrefix(text, "SET ") { // whose = is no comparison
		e.Operators += strings.Count(text, " = ")
	}
	return e
}

// checkExtent looks closely only at a write that may be too large.
func (w *Write) checkExtent() error {
	if w.surelyFits() {
		return nil
	}
	return Measure(w).check()
}

// Most that a condition or an action takes, with what joins it to others: the text of
// "(attribute_not_exists(#99) OR #99 >= :99) AND ", and its operators. A write that
// surely fits does not come to a hundred of them.
const (
	roughBytes     = 46
	roughOperators = 4
)

func (w *Write) surelyFits() bool {
	conditions, size := count(w.Require)
	actions := len(w.Set) + len(w.Add) + len(w.Remove)
	for i := range w.Set {
		size += len(w.Set[i].Name) + len(w.Set[i].From) + substitutedSize(w.Set[i].Value)
	}
	for i := range w.Add {
		size += len(w.Add[i].Name)
	}
	for _, name := range w.Remove {
		size += len(name)
	}
	return roughOperators*conditions <= maxOperators && roughBytes*conditions <= maxExpression &&
		roughBytes*actions <= maxExpression && actions <= maxOperators && size+roughBytes*(conditions+actions) <= maxSubstitutions
}

// count returns how many conditions there are, also within others, and the bytes of
// their names and values.
func count(conditions []Condition) (n, size int) {
	for i := range conditions {
		c := &conditions[i]
		inner, bytes := count(c.Of)
		n, size = n+1+inner, size+bytes+len(c.Name)
		if c.Value != nil {
			size += substitutedSize(c.Value)
		}
	}
	return n, size
}

// substitutedSize is the size of a value in a request, a number's by its text.
func substitutedSize(value types.AttributeValue) int {
	if number, ok := value.(*types.AttributeValueMemberN); ok {
		return len(number.Value)
	}
	return valueSize(value)
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
