package limits

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// A limit is stored twice: on its level's item in tokens and seconds, and on each
// bucket in millitokens and milliseconds.

// Attributes of a level's item. Those of a limit are l_{limit}_{field}. Those of a
// session quota begin with w_, so that programs without windows pass over it.
const (
	limitPrefix   = "l_"
	sessionPrefix = "w_"

	attrConfigVersion = "config_version"
	attrOnUnavailable = "on_unavailable"
	// attrPending is there from when a change of the level is stored to when all
	// buckets have it. It shows a change that was cut short.
	attrPending = "spread_pending"
	// attrOwners is the set of those who declare the level. It stays when others
	// change the level.
	attrOwners = "declared_by"
)

// isLimitAttr reports whether an attribute of a level's item is one of a limit.
func isLimitAttr(name string) bool {
	return strings.HasPrefix(name, limitPrefix) || strings.HasPrefix(name, sessionPrefix)
}

// setLimits puts limits on a level's item in place of those that it has.
func setLimits(item table.Item, limits []Limit) {
	maps.DeleteFunc(item, func(name string, _ table.Value) bool { return isLimitAttr(name) || name == table.AttrZone })
	for _, l := range limits {
		prefix := limitPrefix
		if l.Window != 0 {
			prefix = sessionPrefix
		}
		at := func(field table.Field) string { return prefix + l.Name + "_" + string(field) }
		schedule, resets, _ := l.calendars() // checked before
		item[at(table.FieldCapacity)] = table.Int(l.Capacity)
		item[at(table.FieldRefill)] = table.Int(l.Refill)
		item[at(table.FieldPeriod)] = table.Int(l.periodSeconds())
		setText(item, at(table.FieldSchedule), schedule.Compact())
		setText(item, at(table.FieldResets), resets.Compact())
		if l.Window != 0 {
			item[at(table.FieldLength)] = table.Int(int64(l.Window / time.Second))
		}
		setText(item, at(table.FieldDivision), string(l.Division))
		if l.Soft {
			item[at(table.FieldSoft)] = table.Bool(true)
		}
		if schedule.Compact() != "" || resets.Compact() != "" {
			item[table.AttrZone] = table.S(l.zone())
		}
	}
}

func setText(item table.Item, name, text string) {
	if text != "" {
		item[name] = table.S(text)
	}
}

// limitsOn reads the limits on a level's item, sorted by name.
func limitsOn(item table.Item) ([]Limit, error) {
	var limits []Limit
	for attr := range item {
		for _, prefix := range []string{limitPrefix, sessionPrefix} {
			rest, ok := strings.CutPrefix(attr, prefix)
			name, isLimit := strings.CutSuffix(rest, "_"+string(table.FieldCapacity))
			if !ok || !isLimit {
				continue
			}
			l, err := limitOn(item, prefix, name)
			if err != nil {
				return nil, err
			}
			limits = append(limits, l)
		}
	}
	slices.SortFunc(limits, func(a, b Limit) int { return strings.Compare(a.Name, b.Name) })
	return limits, nil
}

func limitOn(item table.Item, prefix, name string) (Limit, error) {
	at := func(field table.Field) string { return prefix + name + "_" + string(field) }
	n := func(field table.Field) int64 { value, _ := item.Int(at(field)); return value }
	l := Limit{
		Name: name, Capacity: n(table.FieldCapacity), Refill: n(table.FieldRefill),
		Period: time.Duration(n(table.FieldPeriod)) * time.Second, Window: time.Duration(n(table.FieldLength)) * time.Second,
		Zone: item.Text(table.AttrZone), Soft: item.Flag(at(table.FieldSoft)),
		Division: quota.ParseDivision(item.Text(at(table.FieldDivision))),
	}
	schedule, err := quota.ParseSchedule(item.Text(at(table.FieldSchedule)), l.Zone)
	if err == nil {
		var resets quota.Resets
		resets, err = quota.ParseResets(item.Text(at(table.FieldResets)), l.Zone)
		if l.Schedule = schedule.Entries(); len(l.Schedule) == 0 {
			l.Schedule = nil
		}
		if l.Resets = resets.Crons(); len(l.Resets) == 0 {
			l.Resets = nil
		}
	}
	if err != nil {
		return Limit{}, fmt.Errorf("%w %.80q as stored: %w", ErrLimit, name, err)
	}
	if len(l.Schedule)+len(l.Resets) == 0 {
		l.Zone = ""
	}
	if l.isQuota() {
		l.Period = 0
	}
	if err := l.checkStored(); err != nil {
		return Limit{}, fmt.Errorf("as stored: %w", err)
	}
	return l, nil
}

// setAccess puts access on a level's item.
func setAccess(item table.Item, access Access) {
	delete(item, table.AttrDisabled)
	switch access {
	case Enabled, Disabled:
		item[table.AttrDisabled] = table.Bool(access == Disabled)
	case Bypass:
		item[table.AttrDisabled] = table.S(table.AttrBypass)
	}
}

// accessOn reads the access on a level's item.
func accessOn(item table.Item) Access {
	disabled, ok := item.Bool(table.AttrDisabled)
	switch {
	case disabled:
		return Disabled
	case ok:
		return Enabled
	case item.Text(table.AttrDisabled) == table.AttrBypass:
		return Bypass
	}
	return Inherit
}

// setCascade puts cascade on a level's item; nil removes it.
func setCascade(item table.Item, cascade *bool) {
	if delete(item, table.AttrCascade); cascade != nil {
		item[table.AttrCascade] = table.Bool(*cascade)
	}
}

// setOwners puts the owners on a level's item.
func setOwners(item table.Item, owners []string) {
	if delete(item, attrOwners); len(owners) > 0 {
		item[attrOwners] = table.StringSet(owners)
	}
}

// ownersOn reads the owners on a level's item, sorted.
func ownersOn(item table.Item) []string {
	return slices.Sorted(slices.Values(item.Strings(attrOwners)))
}

// rulesOn reads the rules on a level's item. The error says why the limits cannot
// be read; the rules have none then.
func rulesOn(item table.Item) (Rules, error) {
	limits, err := limitsOn(item)
	rules := Rules{Limits: limits, Access: accessOn(item)}
	if cascade, ok := item.Bool(table.AttrCascade); ok {
		rules.Cascade = &cascade
	}
	return rules, err
}

// hasRules reports whether a level's item says anything.
func hasRules(item table.Item) bool {
	for attr := range item {
		if isLimitAttr(attr) {
			return true
		}
	}
	return item[table.AttrDisabled] != nil || item[table.AttrCascade] != nil || item[attrOnUnavailable] != nil
}

// configAttrs returns the attributes of a bucket that say what the limit is; a nil
// value stands for an absent attribute. A soft limit carries a deadline, after
// which its configuration is looked at again.
func (l Limit) configAttrs(softUntil int64) table.Item {
	schedule, resets, _ := l.calendars() // checked before
	at := func(field table.Field) string { return table.Attr(l.Name, field) }
	attrs := table.Item{
		at(table.FieldCapacity): table.Int(l.Capacity * 1000), at(table.FieldRefill): table.Int(l.Refill * 1000),
		at(table.FieldPeriod):   table.Int(l.periodSeconds() * 1000),
		at(table.FieldSchedule): nil, at(table.FieldResets): nil, at(table.FieldLength): nil, at(table.FieldSoft): nil,
		at(table.FieldDivision): nil,
	}
	setText(attrs, at(table.FieldSchedule), schedule.Compact())
	setText(attrs, at(table.FieldResets), resets.Compact())
	if l.Window != 0 {
		attrs[at(table.FieldLength)] = table.Int(int64(l.Window / time.Second))
	}
	setText(attrs, at(table.FieldDivision), string(l.Division))
	if l.Soft {
		attrs[at(table.FieldSoft)] = table.Int(softUntil)
	}
	return attrs
}

// configAttrs returns the attributes of a bucket that say what its limits are. They
// remove the schedules of the item as a whole: a limit without a schedule of its
// own must not take one over.
func configAttrs(limits []Limit, softUntil int64) table.Item {
	attrs := table.Item{table.AttrSchedule: nil, table.AttrResets: nil, table.AttrZone: nil}
	for _, l := range limits {
		maps.Copy(attrs, l.configAttrs(softUntil))
		if len(l.Schedule)+len(l.Resets) > 0 {
			attrs[table.AttrZone] = table.S(l.zone())
		}
	}
	return attrs
}

// isOn reports whether a bucket has the limit exactly as it is declared.
func (l Limit) isOn(b *table.Bucket) bool {
	has := b.Limit(l.Name)
	schedule, resets, _ := l.calendars()
	base := quota.Params{Capacity: l.Capacity * 1000, Refill: l.Refill * 1000, Period: l.periodSeconds() * 1000}
	return has != nil && has.Base == base && has.Schedule.Equal(schedule) && has.Resets.Equal(resets) &&
		has.Window.Length == l.Window.Milliseconds() && l.Soft == (has.Soft != 0) && l.Division == has.Division
}

// difference returns the change that makes one item another. It expects every
// attribute that it changes to be as it was, but for the valid-until; and it
// expects the shard count, at which shares were worked out. It writes a valid-until
// of 0 also over one of 0: a use that read the old limits may have stamped another
// one meanwhile.
func difference(from, to table.Item) table.Amendment {
	a := table.Amendment{Set: table.Item{}}
	expect := func(name string) {
		if name != table.AttrValidUntil && name != table.AttrShardCount {
			a.Expect = append(a.Expect, table.NamedValue{Name: name, Value: from[name]})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(to)) {
		if !table.SameValue(from[name], to[name]) || name == table.AttrValidUntil && table.SameValue(to[name], table.Int(0)) {
			a.Set[name] = to[name]
			expect(name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(from)) {
		if to[name] == nil {
			a.Remove = append(a.Remove, name)
			expect(name)
		}
	}
	if count := from[table.AttrShardCount]; count != nil {
		a.Expect = append(a.Expect, table.NamedValue{Name: table.AttrShardCount, Value: count})
	}
	return a
}
