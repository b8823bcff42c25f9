package table

import (
	"slices"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/quota"
)

// NamedValue is an attribute and the value that is expected of it. A nil value stands
// for an absent attribute.
type NamedValue struct {
	Name  string
	Value types.AttributeValue
}

// How many configuration attributes one write holds. DynamoDB takes 300 operators in
// a condition. Each attribute costs two, and a pass has conditions of its own for
// each limit.
const (
	maxConfigAttrs     = 80
	maxPassConfigAttrs = 40
)

// The configuration of a bucket's limits, the most telling attributes first: those
// that all limits share, and the fields of each.
var (
	sharedConfig = []string{AttrSchedule, AttrResets, AttrZone}
	limitConfig  = []Field{
		FieldCapacity, FieldRefill, FieldPeriod, FieldSchedule, FieldResets, FieldStart, FieldLength, FieldDivision,
	}
)

// ChangesConfig reports whether a change touches the configuration of a limit that
// the bucket has.
func (b *Bucket) ChangesConfig(change Amendment) bool {
	changes := func(name string) bool { return change.Set[name] != nil || slices.Contains(change.Remove, name) }
	if slices.ContainsFunc(sharedConfig, changes) {
		return true
	}
	return slices.ContainsFunc(b.Limits, func(l quota.Limit) bool {
		return slices.ContainsFunc(limitConfig, func(field Field) bool { return changes(Attr(l.Name, field)) })
	})
}

// ConfigAttrs returns the attributes that an operator changes: whether the bucket is
// disabled, its valid-until, its schedules, and each limit's parameters and window.
// The most telling come first, and at most maxConfigAttrs of them. What was computed
// from an image holds for the item as long as these are as in the image.
func (b *Bucket) ConfigAttrs() []NamedValue {
	var attrs []NamedValue
	add := func(name string) { attrs = append(attrs, NamedValue{name, b.Item[name]}) }
	for _, name := range append([]string{AttrDisabled, AttrValidUntil}, sharedConfig...) {
		add(name)
	}
	for _, field := range limitConfig {
		for i := range b.Limits {
			add(Attr(b.Limits[i].Name, field))
		}
	}
	return attrs[:min(len(attrs), maxConfigAttrs)]
}

// PassConfigAttrs returns the attributes that a pass of a bucket with ConfigChanged
// holds: as many of the most telling as there is room for.
func (b *Bucket) PassConfigAttrs() []NamedValue {
	attrs := b.ConfigAttrs()
	return attrs[:min(len(attrs), maxPassConfigAttrs)]
}

// ConfigChanged reports whether a pass has to hold the bucket's configuration. An
// operator's change sets the valid-until to 0. On a bucket where it is 0 already, it
// cannot tell a pass of a further change.
func ConfigChanged(b *Bucket) bool { return b.ValidUntil != nil && *b.ValidUntil == 0 }
