package table

import (
	"slices"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/quota"
)

// NamedValue is one attribute that says what a bucket's limits are. A nil value
// stands for an absent attribute.
type NamedValue struct {
	Name  string
	Value types.AttributeValue
}

// Bounds of the terms of one write. DynamoDB takes 300 operators in a condition,
// each term costs two, and a pass has conditions of its own for each limit.
const (
	maxTerms     = 80
	maxPassTerms = 40
)

// What a bucket's limits are by, the most telling first: attributes of all of them
// and fields of each.
var (
	sharedTerms = []string{AttrSchedule, AttrResets, AttrZone}
	limitTerms  = []Field{
		FieldCapacity, FieldRefill, FieldPeriod, FieldSchedule, FieldResets, FieldStart, FieldLength, FieldDivision,
	}
)

// ChangesConfig reports whether a change gives limits of the bucket other terms.
func (b *Bucket) ChangesConfig(change Amendment) bool {
	changes := func(name string) bool { return change.Set[name] != nil || slices.Contains(change.Remove, name) }
	if slices.ContainsFunc(sharedTerms, changes) {
		return true
	}
	return slices.ContainsFunc(b.Limits, func(l quota.Limit) bool {
		return slices.ContainsFunc(limitTerms, func(field Field) bool { return changes(Attr(l.Name, field)) })
	})
}

// ConfigAttrs are the attributes that an operator changes: whether the bucket is
// disabled, its valid-until, its schedules, and each limit's parameters and
// window, the most telling first, at most maxTerms of them. What was computed
// from an image holds for the item as long as its terms are those of the image.
func (b *Bucket) ConfigAttrs() []NamedValue {
	var terms []NamedValue
	add := func(name string) { terms = append(terms, NamedValue{name, b.Item[name]}) }
	for _, name := range append([]string{AttrDisabled, AttrValidUntil}, sharedTerms...) {
		add(name)
	}
	for _, field := range limitTerms {
		for i := range b.Limits {
			add(Attr(b.Limits[i].Name, field))
		}
	}
	return terms[:min(len(terms), maxTerms)]
}

// PassConfigAttrs are the terms that a pass of a Retermed bucket holds: as many of
// the most telling as there is room for.
func (b *Bucket) PassConfigAttrs() []NamedValue {
	terms := b.ConfigAttrs()
	return terms[:min(len(terms), maxPassTerms)]
}

// ConfigChanged reports whether a pass has to hold the bucket's terms: its
// valid-until was 0 already, so that a further change by an operator, which
// sets it to 0, cannot be told by it.
func ConfigChanged(b *Bucket) bool { return b.ValidUntil != nil && *b.ValidUntil == 0 }
