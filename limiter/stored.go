package limiter

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// A limit is stored twice: on the configuration item of its level, in tokens
// and seconds, and on each bucket, in millitokens and milliseconds.

// Attributes of a configuration item, l_{limit}_{field}. A session quota's begin
// with w_, so that programs that know of no windows pass over it.
const (
	configPrefix  = "l_"
	sessionPrefix = "w_"

	attrZone          = "sched_tz"
	attrConfigVersion = "config_version"
	attrOnUnavailable = "on_unavailable"
)

// configItem writes limits to the attributes of a configuration item.
func configItem(item table.Item, limits []Limit) {
	for _, l := range limits {
		prefix := configPrefix
		if l.Window != 0 {
			prefix = sessionPrefix
		}
		at := func(field table.Field) string { return prefix + l.Name + "_" + string(field) }
		schedule, resets, _ := l.calendars() // checked before
		item[at(table.FieldCapacity)] = whole(l.Capacity)
		item[at(table.FieldRefill)] = whole(l.Refill)
		item[at(table.FieldPeriod)] = whole(l.periodSeconds())
		setText(item, at(table.FieldSchedule), schedule.Compact())
		setText(item, at(table.FieldResets), resets.Compact())
		if l.Window != 0 {
			item[at(table.FieldLength)] = whole(int64(l.Window / time.Second))
		}
		setText(item, at(table.FieldDivision), string(l.Division))
		if l.Soft {
			item[at(table.FieldSoft)] = &types.AttributeValueMemberBOOL{Value: true}
		}
		if schedule.Compact() != "" || resets.Compact() != "" {
			item[attrZone] = table.S(l.zone())
		}
	}
}

func setText(item table.Item, name, text string) {
	if text != "" {
		item[name] = table.S(text)
	}
}

func whole(n int64) types.AttributeValue { return table.N(fmt.Sprint(n)) }

// configLimits reads the limits of a configuration item back, sorted by name.
func configLimits(item table.Item) ([]Limit, error) {
	var limits []Limit
	for attr := range item {
		for _, prefix := range []string{configPrefix, sessionPrefix} {
			rest, ok := strings.CutPrefix(attr, prefix)
			name, isLimit := strings.CutSuffix(rest, "_"+string(table.FieldCapacity))
			if !ok || !isLimit {
				continue
			}
			l, err := configLimit(item, prefix, name)
			if err != nil {
				return nil, err
			}
			limits = append(limits, l)
		}
	}
	slices.SortFunc(limits, func(a, b Limit) int { return strings.Compare(a.Name, b.Name) })
	return limits, nil
}

func configLimit(item table.Item, prefix, name string) (Limit, error) {
	at := func(field table.Field) string { return prefix + name + "_" + string(field) }
	n := func(field table.Field) int64 { value, _ := item.Int(at(field)); return value }
	l := Limit{
		Name: name, Capacity: n(table.FieldCapacity), Refill: n(table.FieldRefill),
		Period: time.Duration(n(table.FieldPeriod)) * time.Second, Window: time.Duration(n(table.FieldLength)) * time.Second,
		Zone: item.Text(attrZone), Soft: item.Flag(at(table.FieldSoft)),
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

// terms are the attributes of a bucket that say what a limit is; a nil value
// stands for an absent one. A soft limit's stamp is a deadline, after which its
// configuration is looked at again.
func (l Limit) terms(softUntil int64) table.Item {
	schedule, resets, _ := l.calendars() // checked before
	at := func(field table.Field) string { return table.Attr(l.Name, field) }
	terms := table.Item{
		at(table.FieldCapacity): whole(l.Capacity * 1000), at(table.FieldRefill): whole(l.Refill * 1000),
		at(table.FieldPeriod):   whole(l.periodSeconds() * 1000),
		at(table.FieldSchedule): nil, at(table.FieldResets): nil, at(table.FieldLength): nil, at(table.FieldSoft): nil,
		at(table.FieldDivision): nil,
	}
	setText(terms, at(table.FieldSchedule), schedule.Compact())
	setText(terms, at(table.FieldResets), resets.Compact())
	if l.Window != 0 {
		terms[at(table.FieldLength)] = whole(int64(l.Window / time.Second))
	}
	setText(terms, at(table.FieldDivision), string(l.Division))
	if l.Soft {
		terms[at(table.FieldSoft)] = whole(softUntil)
	}
	return terms
}

// bucketTerms are the terms of all limits that a bucket has, those of the item
// as a whole among them: a limit without a schedule must not take over a
// default.
func bucketTerms(limits []Limit, softUntil int64) table.Item {
	terms := table.Item{table.AttrSchedule: nil, table.AttrResets: nil, table.AttrZone: nil}
	for _, l := range limits {
		for name, value := range l.terms(softUntil) {
			terms[name] = value
		}
		if len(l.Schedule)+len(l.Resets) > 0 {
			terms[table.AttrZone] = table.S(l.zone())
		}
	}
	return terms
}
