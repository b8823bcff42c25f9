package quota

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"time"
	_ "time/tzdata" // so that a host without zone files knows the zones too
)

// ErrZone reports a time zone that isn't an IANA name.
var ErrZone = errors.New("unknown time zone")

// horizon is how far a search looks, in minutes: 41 years. The rarest date that a
// pattern can name is a 29 February on a given weekday, at most 40 years apart. A
// search that finds nothing has shown that there is nothing.
const horizon = 41 * 366 * minutesPerDay

const millisPerMinute = 60_000

// minuteOf returns the minute that an instant in epoch ms falls into.
func minuteOf(now int64) int64 {
	m := now / millisPerMinute
	if now%millisPerMinute < 0 {
		m--
	}
	return m
}

// startOf returns the epoch ms at which a found minute starts, unless int64 can't
// hold it.
func startOf(minute int64, found bool) (int64, bool) {
	if !found || minute > math.MaxInt64/millisPerMinute || minute < math.MinInt64/millisPerMinute {
		return 0, false
	}
	return minute * millisPerMinute, true
}

// zonedPattern is a pattern on the wall clock of a zone. Its methods take and
// return UTC minutes since the epoch. What the wall clock reads decides whether a
// minute matches. So an hour that the clock skips never matches, and an hour that
// it repeats matches twice.
type zonedPattern struct {
	cronPattern
	zone *time.Location
}

func (p zonedPattern) matches(minute int64) bool {
	_, offset := time.Unix(minute*60, 0).In(p.zone).Zone()
	_, _, match := p.block(minute + wholeMinutes(offset))
	return match
}

// next returns the first minute at or after from whose match is want.
func (p zonedPattern) next(want bool, from int64) (int64, bool) {
	if p.always {
		return from, want
	}
	for limit := from + horizon; from < limit; {
		s := spanAt(p.zone, from)
		end := min(s.end, limit)
		if t, ok := p.first(want, from+s.offset, end+s.offset); ok {
			return t - s.offset, true
		}
		from = end
	}
	return 0, false
}

// prev returns the last minute at or before from whose match is want.
func (p zonedPattern) prev(want bool, from int64) (int64, bool) {
	if p.always {
		return from, want
	}
	for limit := from - horizon; from > limit; {
		s := spanAt(p.zone, from)
		start := max(s.start, limit)
		if t, ok := p.last(want, start+s.offset, from+1+s.offset); ok {
			return t - s.offset, true
		}
		from = start - 1
	}
	return 0, false
}

// nextEdge returns the first minute after from that matches while the one before
// it doesn't.
func (p zonedPattern) nextEdge(from int64) (int64, bool) {
	outside, ok := p.next(false, from)
	if !ok {
		return 0, false
	}
	return p.next(true, outside)
}

// prevEdge returns the last minute at or before from that matches while the one
// before it doesn't.
func (p zonedPattern) prevEdge(from int64) (int64, bool) {
	inside, ok := p.prev(true, from)
	if !ok {
		return 0, false
	}
	outside, ok := p.prev(false, inside)
	return outside + 1, ok
}

// offsetSpan is a stretch of minutes [start, end) through which a zone's offset
// from UTC, in minutes, stays the same.
type offsetSpan struct {
	start, end, offset int64
}

func spanAt(zone *time.Location, minute int64) offsetSpan {
	at := time.Unix(minute*60, 0).In(zone)
	_, seconds := at.Zone()
	s := offsetSpan{start: math.MinInt64 / 2, end: math.MaxInt64 / 2, offset: wholeMinutes(seconds)}
	start, end := at.ZoneBounds()
	if !start.IsZero() {
		s.start = s.trustedStart(zone, minute, ceilMinute(start))
	}
	if !end.IsZero() {
		s.end = trustedEnd(minute, ceilMinute(end))
	}
	return s
}

// trustedEnd mends an end that has passed: where a zone's rule, and no longer its
// table, sets the offset, ZoneBounds ends the year a day early if it is a leap
// year (golang.org/issue/81583). The true end is that of the UTC day.
func trustedEnd(minute, end int64) int64 {
	if end > minute {
		return end
	}
	return (floorDiv(minute, minutesPerDay) + 1) * minutesPerDay
}

// trustedStart cuts the span down to the UTC day, or to the minute, where the
// start can't be right: in the year in which a zone's rule takes over, ZoneBounds
// may give a start that lies before the last change in the table.
func (s offsetSpan) trustedStart(zone *time.Location, minute, start int64) int64 {
	day := floorDiv(minute, minutesPerDay) * minutesPerDay
	for _, at := range []int64{start, day} {
		if at <= minute && offsetAt(zone, at) == s.offset {
			return at
		}
	}
	return minute
}

func ceilMinute(t time.Time) int64 { return -floorDiv(-t.Unix(), 60) }

func offsetAt(zone *time.Location, minute int64) int64 {
	_, seconds := time.Unix(minute*60, 0).In(zone).Zone()
	return wholeMinutes(seconds)
}

// wholeMinutes rounds an offset down. Only local mean times, gone since 1972,
// weren't whole minutes.
func wholeMinutes(seconds int) int64 { return floorDiv(int64(seconds), 60) }

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// zoneCache keeps the zones once loaded. Loading reads the host's zone files, or
// those embedded, which takes some hundred times as long as parsing a schedule.
type zoneCache struct {
	mu    sync.RWMutex
	zones map[string]*time.Location
}

// maxZones bounds the cache: names come off the table, and one zone may be
// spelled in many ways.
const maxZones = 1000

var loadedZones = zoneCache{zones: map[string]*time.Location{}}

// maxZone bounds the name of a zone, in bytes; the longest of IANA has 32. Items
// hold the names, and the cache keeps them.
const maxZone = 64

// load returns the zone of an IANA name. The empty name is UTC; the zone of the
// host never applies.
func (c *zoneCache) load(name string) (*time.Location, error) {
	if name == "Local" || name == "localtime" {
		return nil, fmt.Errorf("%w: %q depends on the host", ErrZone, name)
	}
	if len(name) > maxZone {
		return nil, fmt.Errorf("%w: %s", ErrZone, quoted(name))
	}
	c.mu.RLock()
	zone := c.zones[name]
	c.mu.RUnlock()
	if zone != nil {
		return zone, nil
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", ErrZone, quoted(name))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.zones) < maxZones {
		c.zones[name] = zone
	}
	return zone, nil
}
