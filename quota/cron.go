package quota

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// ErrCron reports a cron expression, or one field of it, that can't be read or
// that no date can satisfy.
var ErrCron = errors.New("invalid cron expression")

// cronField is one of the five columns of a cron expression.
//
// The columns are expanded here and not by a library because none agrees with
// cronsim, which the clients parse with, and a string that they can store must
// not be refused or read differently here. robfig/cron (unmaintained since 2020)
// doesn't know weekday 7 and reads "1,,2" and "*-5"; netresearch/go-cron refuses
// "50/15", "*/60" and "SUN-THU" and lets ranges wrap; adhocore/gronx yields no
// sets. What would have to be put around any of them is longer than this.
type cronField struct {
	name     string
	min, max uint64
	names    []string // of the values min, min+1, …
}

var cronFields = [5]cronField{
	{name: "minute", max: 59},
	{name: "hour", max: 23},
	{name: "day-of-month", min: 1, max: 31},
	{name: "month", min: 1, max: 12, names: strings.Fields("JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC")},
	{name: "day-of-week", max: 7, names: strings.Fields("SUN MON TUE WED THU FRI SAT")},
}

// set expands the text of a field into a bit per value.
func (f cronField) set(text string) (uint64, error) {
	var set uint64
	for item := range strings.SplitSeq(text, ",") {
		values, err := f.item(item)
		if err != nil {
			return 0, fmt.Errorf("%w: %s field %s: %w", ErrCron, f.name, quoted(text), err)
		}
		set |= values
	}
	return set, nil
}

func (f cronField) item(text string) (uint64, error) {
	span, step, stepped := strings.Cut(text, "/")
	first, last, err := f.bounds(span)
	if err != nil {
		return 0, err
	}
	stride := uint64(1)
	if stepped {
		stride, err = strconv.ParseUint(step, 10, 32)
		if err != nil || stride == 0 {
			return 0, fmt.Errorf("%s is not a step", quoted(step))
		}
		if first == last { // 5/10 runs on to the field's end, and to the clients 5-5/10 is the same
			last = f.max
		}
	}
	var set uint64
	for v := first; v <= last; v += stride {
		set |= 1 << v
	}
	return set, nil
}

func (f cronField) bounds(span string) (first, last uint64, err error) {
	if span == "*" {
		return f.min, f.max, nil
	}
	low, high, ranged := strings.Cut(span, "-")
	if first, err = f.value(low); err != nil || !ranged {
		return first, first, err
	}
	if last, err = f.value(high); err != nil {
		return 0, 0, err
	}
	if last < first {
		return 0, 0, fmt.Errorf("range %s runs backwards", quoted(span))
	}
	return first, last, nil
}

func (f cronField) value(text string) (uint64, error) {
	for i, name := range f.names {
		if text == name {
			return f.min + uint64(i), nil
		}
	}
	v, err := strconv.ParseUint(text, 10, 32)
	if err != nil || v < f.min || v > f.max {
		return 0, fmt.Errorf("%s is not a value from %d to %d (L, W, # and ? are not supported)", quoted(text), f.min, f.max)
	}
	return v, nil
}

const (
	allMinutes  = 1<<60 - 1
	allHours    = 1<<24 - 1
	allDays     = 1<<32 - 1<<1
	allMonths   = 1<<13 - 1<<1
	allWeekdays = 1<<7 - 1
)

// cronPattern is a cron expression as sets of local wall clock values, one bit
// each. Sunday is bit 0.
type cronPattern struct {
	minutes, hours, days, months, weekdays uint64

	// bothDays asks that day of month and weekday match, where otherwise one of
	// them is enough. It is read off the text as in Debian's cron: a field that
	// starts with a star, and be it */2, restricts the other one.
	bothDays bool

	always bool // matches every minute
}

func newCronPattern(text [5]string) (cronPattern, error) {
	var sets [5]uint64
	for i, f := range cronFields {
		set, err := f.set(text[i])
		if err != nil {
			return cronPattern{}, err
		}
		sets[i] = set
	}
	p := cronPattern{
		minutes: sets[0], hours: sets[1], days: sets[2], months: sets[3],
		weekdays: (sets[4] | sets[4]>>7) & allWeekdays, // 7 is Sunday too
		bothDays: strings.HasPrefix(text[2], "*") || strings.HasPrefix(text[4], "*"),
	}
	if p.bothDays && bits.TrailingZeros64(p.days) > longestMonth(p.months) {
		return cronPattern{}, fmt.Errorf("%w: no month given has a day %s", ErrCron, quoted(text[2]))
	}
	p.always = p.minutes == allMinutes && p.hours == allHours && p.months == allMonths && p.everyDay()
	return p, nil
}

func longestMonth(months uint64) int {
	const (
		february   = 1 << time.February
		thirtyDays = 1<<time.April | 1<<time.June | 1<<time.September | 1<<time.November
	)
	switch {
	case months&^(february|thirtyDays) != 0:
		return 31
	case months&^february != 0:
		return 30
	}
	return 29
}

func (p cronPattern) everyDay() bool {
	days, weekdays := p.days == allDays, p.weekdays == allWeekdays
	if p.bothDays {
		return days && weekdays
	}
	return days || weekdays
}

func (p cronPattern) onDay(day int, weekday time.Weekday) bool {
	d, w := has(p.days, day), has(p.weekdays, int(weekday))
	if p.bothDays {
		return d && w
	}
	return d || w
}

const (
	minutesPerHour = 60
	minutesPerDay  = 24 * minutesPerHour
)

// block returns whether a local minute matches and a run of minutes [lo, hi)
// around it that share the answer, as long as the field that settles it allows:
// a month, a day, an hour or a part of one. Local minutes count from 1970-01-01
// 00:00 on the wall clock, as though its offset from UTC never changed.
func (p cronPattern) block(local int64) (lo, hi int64, match bool) {
	at := time.Unix(local*60, 0).UTC()
	year, month, day := at.Date()
	hour, minute := at.Hour(), at.Minute()
	hourStart := local - int64(minute)
	dayStart := hourStart - int64(hour)*minutesPerHour
	switch {
	case !has(p.months, int(month)):
		lo := dayStart - int64(day-1)*minutesPerDay
		return lo, lo + daysIn(year, month)*minutesPerDay, false
	case !p.onDay(day, at.Weekday()):
		return dayStart, dayStart + minutesPerDay, false
	case !has(p.hours, hour):
		return hourStart, hourStart + minutesPerHour, false
	case p.minutes != allMinutes:
		first, end := equalBits(p.minutes, minute)
		return hourStart + int64(first), hourStart + int64(end), has(p.minutes, minute)
	case p.hours != allHours:
		return hourStart, hourStart + minutesPerHour, true
	}
	return dayStart, dayStart + minutesPerDay, true
}

// first returns the first local minute in [from, to) whose match is want.
func (p cronPattern) first(want bool, from, to int64) (int64, bool) {
	for t := from; t < to; {
		_, hi, match := p.block(t)
		if match == want {
			return t, true
		}
		t = hi
	}
	return 0, false
}

// last returns the last local minute in [from, to) whose match is want.
func (p cronPattern) last(want bool, from, to int64) (int64, bool) {
	for t := to - 1; t >= from; {
		lo, _, match := p.block(t)
		if match == want {
			return t, true
		}
		t = lo - 1
	}
	return 0, false
}

func has(set uint64, value int) bool { return set>>value&1 == 1 }

// equalBits returns the run [first, end) of the minutes around m that are all in
// the set, or all out of it.
func equalBits(set uint64, m int) (first, end int) {
	differ := set
	if has(set, m) {
		differ = ^set
	}
	end = min(m+bits.TrailingZeros64(differ>>m), minutesPerHour)
	first = bits.Len64(differ & (1<<m - 1))
	return first, end
}

func daysIn(year int, month time.Month) int64 {
	return int64(time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day())
}
