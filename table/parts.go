package table

import (
	"maps"
	"slices"
)

// Parts splits a change of the bucket into changes that DynamoDB takes one by one,
// in the order in which to make them. One that fits is its only part.
//
// Each part changes whole limits, so that a pass or a use between two parts finds
// every limit as it was or as it is to be, and grants it no period twice. Each sets
// the valid-until as the change does, which has the next use look at the bucket.
// Limits that go come first, then those that do not depend on what all limits share:
// time zone and default schedules. Next come these, together with the limits that
// depend on them before and after. The rest, and an expiry, come last: an item
// without one stays.
func (b *Bucket) Parts(a Amendment) []Amendment {
	if a.Fits() {
		return []Amendment{a}
	}
	var parts []Amendment
	var names []string
	for _, unit := range b.units(a) {
		together := slices.Concat(names, unit)
		if len(names) > 0 && !a.part(together).Fits() {
			parts = append(parts, a.part(names))
			together = unit
		}
		names = together
	}
	return append(parts, a.part(names))
}

// Fits reports whether DynamoDB takes the change as one update.
func (a Amendment) Fits() bool { return amendWrite("-", "-", a).Check() == nil }

// part is what a change does to some attributes.
func (a Amendment) part(names []string) Amendment {
	part := Amendment{Set: Item{}}
	for _, name := range names {
		if value := a.Set[name]; value != nil {
			part.Set[name] = value
		} else {
			part.Remove = append(part.Remove, name)
		}
	}
	if value := a.Set[AttrValidUntil]; value != nil {
		part.Set[AttrValidUntil] = value
	}
	for _, expected := range a.Expect {
		if !a.changes(expected.Name) || slices.Contains(names, expected.Name) {
			part.Expect = append(part.Expect, expected)
		}
	}
	return part
}

func (a Amendment) changes(name string) bool {
	return a.Set[name] != nil || slices.Contains(a.Remove, name)
}

// units are the attributes that change, those together that must change at once.
func (b *Bucket) units(a Amendment) [][]string {
	limits, shared, other, last := map[string][]string{}, []string{}, []string{}, []string{}
	for _, name := range slices.Concat(slices.Sorted(maps.Keys(a.Set)), a.Remove) {
		limit, _, ofLimit := SplitAttr(name)
		switch {
		case ofLimit:
			limits[limit] = append(limits[limit], name)
		case slices.Contains(sharedConfig, name):
			shared = append(shared, name)
		case name == AttrTTL && a.Set[name] != nil, name == AttrValidUntil && a.Set[name] == nil:
			last = append(last, name)
		default:
			other = append(other, name)
		}
	}
	after := b.Item.Clone()
	maps.Copy(after, a.Set)
	for _, name := range a.Remove {
		delete(after, name)
	}
	var going, before, behind [][]string
	for _, limit := range slices.Sorted(maps.Keys(limits)) {
		names := limits[limit]
		switch {
		case after[Attr(limit, FieldBalance)] == nil:
			going = append(going, names)
		case !after.depends(limit, shared):
			before = append(before, names)
		case b.Item[Attr(limit, FieldBalance)] == nil || !b.Item.depends(limit, shared):
			behind = append(behind, names)
		default:
			shared = append(shared, names...)
		}
	}
	return slices.DeleteFunc(slices.Concat([][]string{other}, going, before, [][]string{shared}, behind, [][]string{last}),
		func(unit []string) bool { return len(unit) == 0 })
}

// depends reports whether one of the attributes that limits share says something
// about a limit.
func (item Item) depends(limit string, shared []string) bool {
	bound := false // to the time zone
	for name, field := range map[string]Field{AttrSchedule: FieldSchedule, AttrResets: FieldResets} {
		own := item.Text(Attr(limit, field))
		if own == "" && slices.Contains(shared, name) {
			return true
		}
		bound = bound || own != noSchedule && (own != "" || item.Text(name) != "")
	}
	return bound && slices.Contains(shared, AttrZone)
}
