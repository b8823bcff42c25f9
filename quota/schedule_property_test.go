package quota

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"
)

// naiveMatch reads the pattern off the wall clock directly.
func naiveMatch(p zonedPattern, minute int64) bool {
	t := time.Unix(minute*60, 0).In(p.zone)
	day, weekday := has(p.days, t.Day()), has(p.weekdays, int(t.Weekday()))
	onDay := day || weekday
	if p.bothDays {
		onDay = day && weekday
	}
	return onDay && has(p.months, int(t.Month())) && has(p.hours, t.Hour()) && has(p.minutes, t.Minute())
}

func naiveEdge(entries []zonedPattern, minute int64) bool {
	for _, p := range entries {
		if naiveMatch(p, minute) && !naiveMatch(p, minute-1) {
			return true
		}
	}
	return false
}

func naiveActive(entries []scheduleEntry, minute int64) int {
	for i, e := range entries {
		if naiveMatch(e.zonedPattern, minute) {
			return i
		}
	}
	return -1
}

// scan returns the first minute of from, from+step, … that holds, at most reach
// minutes on.
func scan(from, step int64, reach int, holds func(int64) bool) (int64, bool) {
	for range reach {
		if holds(from) {
			return from, true
		}
		from += step
	}
	return 0, false
}

// clockChanges are places where a wall clock does something odd.
var clockChanges = []struct{ zone, at string }{
	{"UTC", "2028-02-29T00:00:00Z"},
	{"America/New_York", "2026-03-08T07:00:00Z"},
	{"America/New_York", "2026-11-01T06:00:00Z"},
	{"America/New_York", "2028-12-31T12:00:00Z"},
	{"Europe/Berlin", "2040-12-31T12:00:00Z"},
	{"Europe/Berlin", "2026-10-25T01:00:00Z"},
	{"Australia/Lord_Howe", "2026-04-04T15:00:00Z"},
	{"Australia/Lord_Howe", "2026-10-03T15:30:00Z"},
	{"America/St_Johns", "2010-11-07T02:31:00Z"}, // back over midnight: two dates alternate
	{"America/Santiago", "2026-09-06T04:00:00Z"}, // no midnight
	{"America/Havana", "2026-11-01T05:00:00Z"},   // two midnights
	{"Pacific/Apia", "2011-12-30T10:00:00Z"},     // no 30 December
	{"Pacific/Kwajalein", "1993-08-21T12:00:00Z"},
	{"America/Ciudad_Juarez", "2022-12-01T00:00:00Z"},
	{"Africa/Casablanca", "2026-02-15T02:00:00Z"},
	{"Africa/Monrovia", "1972-01-07T00:44:30Z"}, // from an offset of 44 minutes and a half
	{"Asia/Kathmandu", "1986-01-01T00:00:00Z"},
}

// The zone files of testdata/zones are slim ones, as embedded in a Go binary: they
// leave to a rule what the fat ones of most hosts tabulate up to 2037, and
// ZoneBounds errs on rules.
func TestZonesServedByRule(t *testing.T) {
	for _, c := range []struct{ file, cron, now, prev, next string }{
		{"Berlin", "0 0 * * *", "2028-12-31T12:00:00Z", "2028-12-30T23:00Z", "2028-12-31T23:00Z"},
		{"Berlin", "0 0 1 * *", "2028-12-31T12:00:00Z", "2028-11-30T23:00Z", "2028-12-31T23:00Z"},
		{"Ciudad_Juarez", "0 0 20 * *", "2022-12-15T00:00:00Z", "2022-11-20T06:00Z", "2022-12-20T07:00Z"},
		{"Ciudad_Juarez", "30 0 30 * *", "2022-11-30T12:00:00Z", "2022-11-30T07:30Z", "2022-12-30T07:30Z"},
	} {
		p, err := newCronPattern([5]string(strings.Fields(c.cron)))
		if err != nil {
			t.Fatal(err)
		}
		r := Resets{entries: []zonedPattern{{cronPattern: p, zone: slimZone(t, c.file)}}}
		now := at(t, c.now)
		if got := clock(r.Prev(now)); got != c.prev {
			t.Errorf("%s in %s: Prev(%s) = %s, want %s", c.cron, c.file, c.now, got, c.prev)
		}
		if got := clock(r.Next(now)); got != c.next {
			t.Errorf("%s in %s: Next(%s) = %s, want %s", c.cron, c.file, c.now, got, c.next)
		}
	}
}

func slimZone(t *testing.T, name string) *time.Location {
	t.Helper()
	data, err := os.ReadFile("testdata/zones/" + name + ".tzif")
	if err != nil {
		t.Fatal(err)
	}
	zone, err := time.LoadLocationFromTZData(name, data)
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

// randomField draws a field that is often a wildcard and seldom rare.
func randomField(r *rand.Rand, low, high int) string {
	value := func() int { return low + r.IntN(high-low+1) }
	a, b := value(), value()
	switch r.IntN(9) {
	case 0:
		return fmt.Sprint(a)
	case 1:
		return fmt.Sprintf("%d-%d", min(a, b), max(a, b))
	case 2:
		return fmt.Sprintf("*/%d", 1+r.IntN(5))
	case 3:
		return fmt.Sprintf("%d,%d,%d-%d", a, b, min(a, b), high)
	case 4:
		return fmt.Sprintf("%d/%d", a, 1+r.IntN(9))
	}
	return "*"
}

func randomCron(r *rand.Rand) string {
	return strings.Join([]string{
		randomField(r, 0, 59), randomField(r, 0, 23), randomField(r, 1, 28), randomField(r, 1, 12), randomField(r, 0, 7),
	}, " ")
}

func randomCrons(r *rand.Rand) []string {
	crons := make([]string, 1+r.IntN(3))
	for i := range crons {
		crons[i] = randomCron(r)
	}
	return crons
}

const (
	propertyCases = 200
	propertyReach = 2 * minutesPerDay
)

func TestSearchesAgreeWithScan(t *testing.T) {
	for i, c := range clockChanges {
		t.Run(c.zone+" "+c.at, func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(1, uint64(i)))
			for range propertyCases / len(clockChanges) {
				crons := randomCrons(r)
				now := at(t, c.at) + (r.Int64N(2*propertyReach)-propertyReach)*millisPerMinute/2 + r.Int64N(3)
				checkResets(t, crons, c.zone, now)
				checkSchedule(t, crons, c.zone, now)
			}
		})
	}
}

func checkResets(t *testing.T, crons []string, zone string, now int64) {
	t.Helper()
	resets, err := NewResets(zone, append(crons, "0 0 1 1 *")...)
	if err != nil {
		t.Fatal(err)
	}
	m := minuteOf(now)
	edge := func(minute int64) bool { return naiveEdge(resets.entries, minute) }

	next, ok := resets.Next(now)
	want, found := scan(m+1, 1, propertyReach, edge)
	if !ok || found && next != want*millisPerMinute || !found && next <= (m+propertyReach)*millisPerMinute {
		t.Errorf("%v: Next(%d) = %d, %v; scan says %d, %v", resets, now, next, ok, want*millisPerMinute, found)
	}
	prev, ok := resets.Prev(now)
	want, found = scan(m, -1, propertyReach, edge)
	if !ok || found && prev != want*millisPerMinute || !found && prev > (m-propertyReach)*millisPerMinute {
		t.Errorf("%v: Prev(%d) = %d, %v; scan says %d, %v", resets, now, prev, ok, want*millisPerMinute, found)
	}
}

func checkSchedule(t *testing.T, crons []string, zone string, now int64) {
	t.Helper()
	entries := make([]Entry, len(crons))
	for i, cron := range crons {
		entries[i] = Entry{Cron: cron, Capacity: int64(i + 1)}
	}
	s, err := NewSchedule(zone, entries...)
	if err != nil {
		t.Fatal(err)
	}
	m := minuteOf(now)
	active := naiveActive(s.entries, m)
	if got, err := s.Effective(Params{}, now); err != nil || got.Capacity != int64(active+1)*1000 {
		t.Errorf("%v: at %d entry %d, %v; scan says %d", s, now, got.Capacity/1000-1, err, active)
	}
	next, ok := s.NextChange(now)
	want, found := scan(m+1, 1, propertyReach, func(minute int64) bool { return naiveActive(s.entries, minute) != active })
	if found && (!ok || next != want*millisPerMinute) || !found && ok && next <= (m+propertyReach)*millisPerMinute {
		t.Errorf("%v: NextChange(%d) = %d, %v; scan says %d, %v", s, now, next, ok, want*millisPerMinute, found)
	}
}
