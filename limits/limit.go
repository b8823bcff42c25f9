package limits

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// ErrLimit says that a limit is declared wrongly.
var ErrLimit = errors.New("malformed limit")

// Limit is one rule of what an entity may use of a resource, over all shards
// together.
type Limit struct {
	Name     string
	Capacity int64         // tokens: the most that can be held at once, or a quota's whole allowance
	Refill   int64         // tokens for each Period; 0 for a quota
	Period   time.Duration // of Refill, whole seconds

	// A quota has one of these and no refill.
	Resets []string      // cron expressions of five fields: when the allowance is restored
	Window time.Duration // how long the allowance lasts from its first use, whole seconds

	Schedule []quota.Entry // when capacity and refill differ; the first entry that matches holds
	Zone     string        // IANA zone of Resets and Schedule; "" is UTC
	Soft     bool          // metered, never enforced

	Division quota.Division // how it is divided among shards; only a dripping limit can be quota.Replicated
}

// PerSecond returns a limit of n tokens that refills by n a second.
func PerSecond(name string, n int64) Limit { return drips(name, n, time.Second) }

// PerMinute returns a limit of n tokens that refills by n a minute.
func PerMinute(name string, n int64) Limit { return drips(name, n, time.Minute) }

// PerHour returns a limit of n tokens that refills by n an hour.
func PerHour(name string, n int64) Limit { return drips(name, n, time.Hour) }

// PerDay returns a limit of n tokens that refills by n a day.
func PerDay(name string, n int64) Limit { return drips(name, n, 24*time.Hour) }

func drips(name string, n int64, period time.Duration) Limit {
	return Limit{Name: name, Capacity: n, Refill: n, Period: period}
}

// Quota returns an allowance of n tokens. It is restored whenever one of the cron
// expressions begins to match: "0 0 1 * *" is the first of each month. They are in
// UTC unless the limit's Zone says otherwise.
func Quota(name string, n int64, crons ...string) Limit {
	return Limit{Name: name, Capacity: n, Resets: crons}
}

// Session returns an allowance of n tokens for a window of time. The first use
// opens the window.
func Session(name string, n int64, window time.Duration) Limit {
	return Limit{Name: name, Capacity: n, Window: window}
}

// Bounds of a declared limit. They are those of the layout's other programs.
const (
	maxNameBytes   = 64
	maxTokens      = 1_000_000_000_000_000
	maxPeriod      = 1_000_000_000 * time.Second
	maxScheduled   = 50
	defaultPeriodS = 1 // what a quota's unused refill period is stored as, seconds
)

var limitName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.\-]*$`)

// check returns what is wrong with a declared limit; the error wraps ErrLimit.
func (l Limit) check() error {
	switch {
	case !l.Division.Known():
		return l.fault("the division %.80q is none of divided, replicated and gathered", string(l.Division))
	case l.isQuota() && l.Division == quota.Replicated:
		return l.fault("a quota is not replicated: each shard would be granted the whole allowance")
	}
	return l.checkStored()
}

func (l Limit) fault(format string, a ...any) error {
	return fmt.Errorf("%w %.80q: %s", ErrLimit, l.Name, fmt.Sprintf(format, a...))
}

// checkStored is check for a stored limit. It lets a division pass that the limit
// cannot have, or that a later program knows: buckets treat it as divided, and the
// aggregator counts them.
func (l Limit) checkStored() error {
	fail := l.fault
	quotaLike := l.isQuota()
	switch {
	case !limitName.MatchString(l.Name) || len(l.Name) > maxNameBytes:
		return fail("a name is a letter and up to %d letters, digits and _ . -", maxNameBytes-1)
	case l.Name == quota.WriteMeter:
		return fail("the name is reserved for the meter of an item's writes")
	case l.Capacity < 1 || l.Capacity > maxTokens:
		return fail("the capacity %d is not within 1 and %d tokens", l.Capacity, int64(maxTokens))
	case l.Refill < 0 || l.Refill > maxTokens:
		return fail("the refill %d is not within 0 and %d tokens", l.Refill, int64(maxTokens))
	case len(l.Resets) > 0 && l.Window != 0:
		return fail("a quota has Resets or a Window, not both")
	case quotaLike && l.Refill != 0:
		return fail("a quota is restored and has no Refill")
	case !quotaLike && l.Refill == 0:
		return fail("it has neither a Refill, nor Resets, nor a Window: nothing would ever restore it")
	case !quotaLike && !wholeSeconds(l.Period):
		return fail("the period %v is not a whole number of seconds within 1 and 10^9", l.Period)
	case l.Window != 0 && !wholeSeconds(l.Window):
		return fail("the window %v is not a whole number of seconds within 1 and 10^9", l.Window)
	case len(l.Schedule)+len(l.Resets) > maxScheduled:
		return fail("more than %d schedule entries", maxScheduled)
	}
	_, _, err := l.calendars()
	if errors.Is(err, quota.ErrZone) {
		return fail("the time zone %.80q is unknown", l.Zone)
	}
	if slices.ContainsFunc(l.Resets, everyMinute) {
		return fail("a reset at every minute never begins")
	}
	if err != nil {
		return fmt.Errorf("%w %.80q: %w", ErrLimit, l.Name, err)
	}
	return nil
}

// everyMinute reports whether a cron expression always matches.
func everyMinute(cron string) bool {
	return strings.Trim(cron, "* \t") == "" && strings.Contains(cron, "*")
}

func wholeSeconds(d time.Duration) bool {
	return d >= time.Second && d <= maxPeriod && d%time.Second == 0
}

// calendars parses the limit's schedules.
func (l Limit) calendars() (schedule quota.Schedule, resets quota.Resets, err error) {
	if schedule, err = quota.NewSchedule(l.Zone, l.Schedule...); err != nil {
		return schedule, resets, err
	}
	if len(l.Resets) > 0 {
		resets, err = quota.NewResets(l.Zone, l.Resets...)
	}
	return schedule, resets, err
}

// checkAll checks limits that share one bucket.
func checkAll(limits []Limit) error {
	if len(limits) == 0 {
		return fmt.Errorf("%w: none is given", ErrLimit)
	}
	var zone *string
	for i, l := range limits {
		if err := l.check(); err != nil {
			return err
		}
		// Where another program stored such a limit, it is read and enforced.
		if !table.CanCount(l.Name) {
			return fmt.Errorf("%w %.80q: usage items have an attribute of that name, and could not count it", ErrLimit, l.Name)
		}
		if slices.ContainsFunc(limits[:i], func(other Limit) bool { return other.Name == l.Name }) {
			return fmt.Errorf("%w %.80q: declared twice", ErrLimit, l.Name)
		}
		// A stored one is read: it never drips here, whatever its schedule says.
		if l.isQuota() && slices.ContainsFunc(l.Schedule, func(e quota.Entry) bool { return e.Refill != 0 }) {
			return fmt.Errorf("%w %.80q: a quota has no Refill, in a schedule neither", ErrLimit, l.Name)
		}
		if len(l.Resets)+len(l.Schedule) == 0 {
			continue
		}
		if zone != nil && *zone != l.zone() {
			return fmt.Errorf("%w %.80q: its zone is %q, that of another one %q; a bucket has one zone", ErrLimit, l.Name, l.zone(), *zone)
		}
		zone = new(l.zone())
	}
	return checkRoom(limits)
}

func (l Limit) zone() string {
	return cmp.Or(l.Zone, "UTC")
}

func (l Limit) isQuota() bool { return len(l.Resets) > 0 || l.Window != 0 }

// periodSeconds is the refill period as it is stored.
func (l Limit) periodSeconds() int64 {
	if l.isQuota() && l.Period < time.Second {
		return defaultPeriodS
	}
	return int64(l.Period / time.Second)
}
