package quota

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// ErrOverflow reports a parameter that, scaled, doesn't fit an int64.
var ErrOverflow = errors.New("scaled parameter out of range")

// Params are a limit's capacity and refill, undivided by shards: millitokens,
// millitokens per Period, and milliseconds.
type Params struct {
	Capacity int64
	Refill   int64
	Period   int64
}

// Entry is one line of a parameter schedule. While Cron matches the local minute,
// it scales a limit or sets some of its parameters. Zero leaves a value as it is.
type Entry struct {
	Cron     string // five fields, names allowed
	Scale    int64  // of capacity and refill, in thousandths
	Capacity int64  // tokens
	Refill   int64  // tokens per period
	Period   int64  // seconds
}

// Schedule changes the parameters of a limit while one of its entries matches; the
// first match wins. The zero value has no entry. A Schedule is immutable and may
// be shared.
type Schedule struct {
	compact, zone string
	entries       []scheduleEntry
}

type scheduleEntry struct {
	zonedPattern
	change Entry
}

// ParseSchedule decodes the compact form of a parameter schedule on the clock of
// an IANA zone. The empty zone is UTC, and the empty text is the empty schedule,
// whatever the zone. It fails with ErrVersion, ErrEntry, ErrCron or ErrZone.
func ParseSchedule(compact, zone string) (Schedule, error) {
	if compact == "" {
		return Schedule{}, nil
	}
	split, err := splitCompact(compact)
	if err != nil {
		return Schedule{}, fmt.Errorf("parse schedule: %w", err)
	}
	s := Schedule{compact: compact, zone: zone, entries: make([]scheduleEntry, len(split))}
	for i, e := range split {
		if s.entries[i].zonedPattern, err = newZonedPattern(e, zone); err != nil {
			return Schedule{}, fmt.Errorf("parse schedule %s: entry %d: %w", quoted(compact), i, err)
		}
		if s.entries[i].change, err = e.modifiers(); err != nil {
			return Schedule{}, fmt.Errorf("parse schedule %s: entry %d: %w", quoted(compact), i, err)
		}
	}
	return s, nil
}

// NewSchedule builds a schedule from its entries in order of precedence. Its
// compact form is the one that zae-limiter's clients write. It fails as
// ParseSchedule does.
func NewSchedule(zone string, entries ...Entry) (Schedule, error) {
	split := make([]compactEntry, len(entries))
	for i, entry := range entries {
		var err error
		if split[i], err = compactCron(entry.Cron); err != nil {
			return Schedule{}, fmt.Errorf("schedule entry %d: %w", i, err)
		}
		for tag, v := range map[int]int64{
			tagScale: entry.Scale, tagCapacity: entry.Capacity, tagRefill: entry.Refill, tagPeriod: entry.Period,
		} {
			if v != 0 {
				split[i][tag] = strconv.FormatInt(v, 10)
			}
		}
	}
	return ParseSchedule(joinCompact(split), zone)
}

// Empty reports whether the schedule has no entry.
func (s Schedule) Empty() bool { return len(s.entries) == 0 }

// Compact returns the text that the schedule was parsed from.
func (s Schedule) Compact() string { return s.compact }

// Zone returns the name of the schedule's zone as it was given.
func (s Schedule) Zone() string { return s.zone }

// Equal reports whether two schedules have the same text on the clock of the same
// zone.
func (s Schedule) Equal(other Schedule) bool {
	return s.compact == other.compact && sameZone(s.zone, other.zone)
}

// String returns the compact form and the zone, for people.
func (s Schedule) String() string { return describe(s.compact, s.zone) }

// Entries returns the entries in order of precedence. NewSchedule makes of them a
// schedule of the same meaning, in the canonical spelling.
func (s Schedule) Entries() []Entry {
	crons := cronTexts(s.compact)
	out := make([]Entry, len(s.entries))
	for i, e := range s.entries {
		out[i] = e.change
		out[i].Cron = crons[i]
	}
	return out
}

// Effective returns the parameters in force at now (epoch ms): those of the first
// entry that matches, else base. It fails with ErrOverflow where a scaled value
// exceeds an int64, and where it would have to scale a negative one.
func (s Schedule) Effective(base Params, now int64) (Params, error) {
	minute := minuteOf(now)
	for _, e := range s.entries {
		if e.matches(minute) {
			return e.change.Apply(base)
		}
	}
	return base, nil
}

// most returns the largest capacity that the schedule ever gives.
func (s Schedule) most(base Params) int64 {
	most := base.Capacity
	for _, e := range s.entries {
		if params, err := e.change.Apply(base); err == nil {
			most = max(most, params.Capacity)
		}
	}
	return most
}

// NextChange returns the first instant after now (both epoch ms) at which another
// entry comes into force than at now, or none is in force any more. It returns
// false where that never happens.
func (s Schedule) NextChange(now int64) (int64, bool) {
	minute := minuteOf(now)
	first, found := int64(0), false
	for _, e := range s.entries {
		// The entry in force ends when it stops matching or when one before it
		// starts to. The entries after it do not matter.
		active := e.matches(minute)
		if t, ok := e.next(!active, minute); ok && (!found || t < first) {
			first, found = t, true
		}
		if active {
			break
		}
	}
	return startOf(first, found)
}

// Apply returns base as changed by the entry. It fails with ErrOverflow.
func (e Entry) Apply(base Params) (Params, error) {
	if e.Scale != 0 {
		return scaled(base, e.Scale)
	}
	if e.Capacity != 0 {
		base.Capacity = e.Capacity * 1000
	}
	if e.Refill != 0 {
		base.Refill = e.Refill * 1000
	}
	if e.Period != 0 {
		base.Period = e.Period * 1000
	}
	return base, nil
}

func scaled(base Params, perMille int64) (Params, error) {
	var err error
	if base.Capacity, err = scale(base.Capacity, perMille); err != nil {
		return Params{}, fmt.Errorf("capacity: %w", err)
	}
	if base.Refill == 0 { // a quota stays one
		return base, nil
	}
	if base.Refill, err = scale(base.Refill, perMille); err != nil {
		return Params{}, fmt.Errorf("refill: %w", err)
	}
	return base, nil
}

// scale returns v * perMille / 1000 rounded down, but at least 1. The clients take
// the product in floating point and may come out one millitoken lower.
func scale(v, perMille int64) (int64, error) {
	if v < 0 {
		return 0, fmt.Errorf("%w: %d", ErrOverflow, v)
	}
	high, low := bits.Mul64(uint64(v), uint64(perMille))
	if high >= 1000 {
		return 0, fmt.Errorf("%w: %d by %d thousandths", ErrOverflow, v, perMille)
	}
	quotient, _ := bits.Div64(high, low, 1000)
	if quotient > math.MaxInt64 {
		return 0, fmt.Errorf("%w: %d by %d thousandths", ErrOverflow, v, perMille)
	}
	return max(1, int64(quotient)), nil
}

// Resets is the calendar on which a quota is restored. It fires on a rising edge:
// a minute that an entry matches while the minute before did not match it. The
// zero value has no entry and never fires. Resets are immutable and may be shared.
type Resets struct {
	compact, zone string
	entries       []zonedPattern
}

// ParseResets decodes the compact form of a reset schedule on the clock of an IANA
// zone. The empty zone is UTC, and the empty text is the empty calendar, whatever
// the zone. It fails with ErrVersion, ErrEntry, ErrCron or ErrZone.
func ParseResets(compact, zone string) (Resets, error) {
	if compact == "" {
		return Resets{}, nil
	}
	split, err := splitCompact(compact)
	if err != nil {
		return Resets{}, fmt.Errorf("parse resets: %w", err)
	}
	r := Resets{compact: compact, zone: zone, entries: make([]zonedPattern, len(split))}
	for i, e := range split {
		if e.modified() {
			return Resets{}, fmt.Errorf("parse resets %s: entry %d: %w: a reset changes no parameter", quoted(compact), i, ErrEntry)
		}
		if r.entries[i], err = newZonedPattern(e, zone); err != nil {
			return Resets{}, fmt.Errorf("parse resets %s: entry %d: %w", quoted(compact), i, err)
		}
	}
	return r, nil
}

// NewResets builds a reset schedule from cron expressions. Its compact form is the
// one that zae-limiter's clients write. It fails as ParseResets does. A lone "* *
// * * *", which has no edge, has no compact form either.
func NewResets(zone string, crons ...string) (Resets, error) {
	split := make([]compactEntry, len(crons))
	for i, cron := range crons {
		var err error
		if split[i], err = compactCron(cron); err != nil {
			return Resets{}, fmt.Errorf("reset entry %d: %w", i, err)
		}
	}
	return ParseResets(joinCompact(split), zone)
}

// Empty reports whether the calendar has no entry.
func (r Resets) Empty() bool { return len(r.entries) == 0 }

// Compact returns the text that the calendar was parsed from.
func (r Resets) Compact() string { return r.compact }

// Zone returns the name of the calendar's zone as it was given.
func (r Resets) Zone() string { return r.zone }

// Equal reports whether two calendars have the same text on the clock of the same
// zone.
func (r Resets) Equal(other Resets) bool {
	return r.compact == other.compact && sameZone(r.zone, other.zone)
}

// String returns the compact form and the zone, for people.
func (r Resets) String() string { return describe(r.compact, r.zone) }

// Crons returns the cron expressions of the calendar's entries.
func (r Resets) Crons() []string { return cronTexts(r.compact) }

// Prev returns the latest rising edge at or before now (both epoch ms), false
// where there never was one.
func (r Resets) Prev(now int64) (int64, bool) {
	minute := minuteOf(now)
	latest, found := int64(0), false
	for _, e := range r.entries {
		if t, ok := e.prevEdge(minute); ok && (!found || t > latest) {
			latest, found = t, true
		}
	}
	return startOf(latest, found)
}

// Next returns the first rising edge after now (both epoch ms), false where there
// never is one.
func (r Resets) Next(now int64) (int64, bool) {
	minute := minuteOf(now)
	first, found := int64(0), false
	for _, e := range r.entries {
		if t, ok := e.nextEdge(minute); ok && (!found || t < first) {
			first, found = t, true
		}
	}
	return startOf(first, found)
}

func newZonedPattern(e compactEntry, zone string) (zonedPattern, error) {
	location, err := loadedZones.load(zone)
	if err != nil {
		return zonedPattern{}, err
	}
	pattern, err := newCronPattern(e.cron())
	return zonedPattern{cronPattern: pattern, zone: location}, err
}

// cronTexts renders the cron expressions of a compact schedule that has been
// parsed before.
func cronTexts(compact string) []string {
	if compact == "" {
		return nil
	}
	split, _ := splitCompact(compact)
	texts := make([]string, len(split))
	for i, e := range split {
		fields := e.cron()
		texts[i] = strings.Join(fields[:], " ")
	}
	return texts
}

// sameZone compares the names of zones; the empty one is UTC.
func sameZone(a, b string) bool { return cmp.Or(a, "UTC") == cmp.Or(b, "UTC") }

func describe(compact, zone string) string {
	if compact == "" || zone == "" {
		return compact
	}
	return compact + " " + zone
}
