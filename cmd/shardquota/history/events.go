package history

import (
	"fmt"
	"strings"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// eventsOf tells what happened to a shard in one write.
func (t *tracker) eventsOf(at int64, before, after *quota.Bucket) []Event {
	if before == nil {
		return []Event{t.creation(at, after)}
	}
	var events []Event
	add := func(e Event) {
		e.Time, e.Shard = at, after.Shard
		events = append(events, e)
	}
	if after.ShardCount > before.ShardCount {
		add(Event{Kind: raisedOrDoubled(after.Shard), From: before.ShardCount, To: after.ShardCount})
	}
	if what := operated(before, after); what != "" {
		add(Event{Kind: Operator, What: what})
		return events // what else it did to balances is its own doing
	}
	for i := range after.Limits {
		is := &after.Limits[i]
		if was := before.Limit(is.Name); was != nil {
			if e := limitEvent(before, after, was, is); e.Kind != "" {
				add(e)
			}
		}
	}
	return events
}

func raisedOrDoubled(shard int) Kind {
	if shard == 0 {
		return Doubled
	}
	return Raised
}

// creation tells where a new shard's balances came from. The rules say which
// sibling's grant covers its slot, if any; the image says how much it was.
func (t *tracker) creation(at int64, b *quota.Bucket) Event {
	event := Event{Time: at, Kind: Created, Shard: b.Shard, To: b.ShardCount}
	if !t.whole && t.last[b.Shard%max(1, b.ShardCount/2)] == nil {
		return event // whoever the rules would name, the donor may be one that was never seen
	}
	siblings := make([]*quota.Bucket, 0, len(t.last))
	for shard, sibling := range t.last {
		if shard != b.Shard {
			siblings = append(siblings, sibling)
		}
	}
	fundings, err := quota.Fund(b, siblings, b.Shard, b.ShardCount, max(at, b.RefilledAt))
	if err != nil {
		return event // its schedules cannot be read
	}
	for i := range fundings {
		limit := b.Limit(fundings[i].Limit)
		fundings[i].Amount = limit.Balance + limit.Consumed
	}
	event.Funding = fundings
	return event
}

// limitEvent tells what happened to one limit beside being used.
func limitEvent(before, after *quota.Bucket, was, is *quota.Limit) Event {
	other := is.Balance - was.Balance + is.Consumed - was.Consumed
	passed := before.RefilledAt != after.RefilledAt
	switch {
	case passed && is.Kind() == quota.Calendar && !was.Current(before.RefilledAt, after.RefilledAt):
		return Event{Kind: Reset, Limit: is.Name, Amount: is.Balance + is.Consumed - was.Consumed}
	case is.Kind() == quota.Session && is.Window.Applied != nil && !equal(was.Window.Applied, is.Window.Applied):
		return Event{Kind: openedOrRolled(was, is), Limit: is.Name, Amount: is.Balance + is.Consumed - was.Consumed}
	case other >= 0 || is.Kind() == quota.Meter:
		return Event{}
	case passed && (!is.IsQuota() || atCeiling(after, is, is.Consumed-was.Consumed)):
		return Event{Kind: Trimmed, Limit: is.Name, Amount: -other}
	case is.IsQuota():
		return Event{Kind: Moved, Limit: is.Name, Amount: -other}
	}
	return Event{}
}

// atCeiling reports whether a limit was at its ceiling before the write consumed
// anything, as a trim leaves it. What left a quota otherwise was moved, though
// the same write may be a pass.
func atCeiling(b *quota.Bucket, limit *quota.Limit, consumed int64) bool {
	params, err := limit.Effective(b.RefilledAt)
	return err == nil && limit.Balance+consumed >= limit.Ceiling(b.ShardCount, params.Capacity)
}

// openedOrRolled tells a window that this write opened from one whose start had
// been written before.
func openedOrRolled(was, is *quota.Limit) Kind {
	if equal(was.Window.Start, is.Window.Start) {
		return Rolled
	}
	return Opened
}

func equal(a, b *int64) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }

// operated says what an operator changed, empty for nothing.
func operated(before, after *quota.Bucket) string {
	var what []string
	if before.Disabled != after.Disabled {
		what = append(what, map[bool]string{true: "disabled", false: "enabled"}[after.Disabled])
	}
	if before.Bypass != after.Bypass {
		what = append(what, map[bool]string{true: "bypass on", false: "bypass off"}[after.Bypass > 0])
	}
	for i := range after.Limits {
		is := &after.Limits[i]
		if was := before.Limit(is.Name); was == nil {
			what = append(what, is.Name+" added")
		} else {
			what = append(what, retermed(was, is)...)
		}
	}
	for i := range before.Limits {
		if name := before.Limits[i].Name; after.Limit(name) == nil {
			what = append(what, name+" removed")
		}
	}
	return strings.Join(what, ", ")
}

// retermed lists the terms of a limit that differ.
func retermed(was, is *quota.Limit) []string {
	var what []string
	changed := func(term, from, to string) {
		if from != to {
			what = append(what, fmt.Sprintf("%s %s %s to %s", is.Name, term, from, to))
		}
	}
	changed("capacity", table.Tokens(was.Base.Capacity), table.Tokens(is.Base.Capacity))
	changed("refill", refill(was.Base), refill(is.Base))
	changed("schedule", named(was.Schedule.String()), named(is.Schedule.String()))
	changed("resets", named(was.Resets.String()), named(is.Resets.String()))
	changed("window", seconds(was.Window.Length), seconds(is.Window.Length))
	if is.ResetCount > was.ResetCount {
		what = append(what, is.Name+" restored")
	}
	if is.TopUp > was.TopUp {
		what = append(what, fmt.Sprintf("%s topped up by %s", is.Name, table.Tokens(is.TopUp-was.TopUp)))
	}
	return what
}

func refill(p quota.Params) string {
	return table.Tokens(p.Refill) + " each " + seconds(p.Period)
}

func seconds(ms int64) string { return table.Tokens(ms) + " s" }

func named(schedule string) string {
	if schedule == "" {
		return "none"
	}
	return schedule
}
