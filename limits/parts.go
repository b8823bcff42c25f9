package limits

import (
	"maps"
	"slices"

	"github.com/shardquota/shardquota/table"
)

// parts splits a change of the bucket into changes that DynamoDB takes one by one,
// in the order in which to make them. One that fits is its only part.
//
// Each part changes whole limits, so that a pass or a use between two parts finds
// every limit as it was or as it is to be, and grants it no period twice. Each sets
// the valid-until as the change does, which has the next use look at the bucket.
// Limits that go come first, then those that do not depend on what all limits share:
// time zone and default schedules. Next come these, together with the limits that
// depend on them before and after. The rest, and an expiry, come last: an item
// without one stays.
func parts(b *table.Bucket, a table.Amendment) []table.Amendment {
	if a.Fits() {
		return []table.Amendment{a}
	}
	var done []table.Amendment
	var names []string
	for _, unit := range units(b, a) {
		together := slices.Concat(names, unit)
		if len(names) > 0 && !part(a, together).Fits() {
			done = append(done, part(a, names))
			together = unit
		}
		names = together
	}
	return append(done, part(a, names))
}

// part is what a change does to some attributes.
func part(a table.Amendment, names []string) table.Amendment {
	part := table.Amendment{Set: table.Item{}}
	for _, name := range names {
		if value := a.Set[name]; value != nil {
			part.Set[name] = value
		} else {
			part.Remove = append(part.Remove, name)
		}
	}
	if value := a.Set[table.AttrValidUntil]; value != nil {
		part.Set[table.AttrValidUntil] = value
	}
	for _, expected := range a.Expect {
		if !changes(a, expected.Name) || slices.Contains(names, expected.Name) {
			part.Expect = append(part.Expect, expected)
		}
	}
	return part
}

func changes(a table.Amendment, name string) bool {
	return a.Set[name] != nil || slices.Contains(a.Remove, name)
}

// units are the attributes that change, those together that must change at once.
func units(b *table.Bucket, a table.Amendment) [][]string {
	limits, shared, other, last := map[string][]string{}, []string{}, []string{}, []string{}
	for _, name := range slices.Concat(slices.Sorted(maps.Keys(a.Set)), a.Remove) {
		limit, _, ofLimit := table.SplitAttr(name)
		switch {
		case ofLimit:
			limits[limit] = append(limits[limit], name)
		case slices.Contains([]string{table.AttrSchedule, table.AttrResets, table.AttrZone}, name):
			shared = append(shared, name)
		case name == table.AttrTTL && a.Set[name] != nil, name == table.AttrValidUntil && a.Set[name] == nil:
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
		case after[table.Attr(limit, table.FieldBalance)] == nil:
			going = append(going, names)
		case !depends(after, limit, shared):
			before = append(before, names)
		case b.Item[table.Attr(limit, table.FieldBalance)] == nil || !depends(b.Item, limit, shared):
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
func depends(item table.Item, limit string, shared []string) bool {
	bound := false // to the time zone
	for name, field := range map[string]table.Field{table.AttrSchedule: table.FieldSchedule, table.AttrResets: table.FieldResets} {
		own := item.Text(table.Attr(limit, field))
		if own == "" && slices.Contains(shared, name) {
			return true
		}
		bound = bound || own != "" || item.Text(name) != ""
	}
	return bound && slices.Contains(shared, table.AttrZone)
}
