package quota

import (
	"errors"
	"fmt"
)

// WriteMeter is the name of the reserved limit that every bucket carries: it
// meters the item's own write rate, is never divided, never scheduled and
// never reported as usage.
const WriteMeter = "wcu"

// MaxShards is the largest shard count.
const MaxShards = 32

// ErrSchedule says that a schedule on the bucket cannot be read or evaluated.
// Nothing may touch such a bucket: a refill at the base rate would undo what the
// schedule takes away.
var ErrSchedule = errors.New("undecodable schedule")

// Kind is how a limit recovers.
type Kind int

// The kinds of limit.
const (
	Dripping Kind = iota // refills continuously
	Calendar             // a quota restored at the edges of its reset schedule
	Session              // a quota restored when its window ends
	Meter                // the write meter: drips, but is never divided
)

// Window is the session window of a limit as one shard stores it. The zero
// value means that no window is in force.
type Window struct {
	Length         int64  // milliseconds; 0 means that no window is in force
	Start          *int64 // epoch ms; nil before the first use
	Applied        *int64 // the start that the balance reflects, epoch ms; nil on items older than the marker
	ConsumedAtOpen *int64 // total consumed when Start was propagated here, millitokens; nil if it never was
}

// Limit is one limit of a bucket, as stored.
type Limit struct {
	Name     string
	Balance  int64 // millitokens; negative when in debt
	Consumed int64 // total consumed, net of refunds, millitokens
	Base     Params
	Division Division
	Schedule Schedule
	Resets   Resets
	Window   Window
	Grant    *int  // the shard count the current grant was sized at; nil on a legacy quota
	TopUp    int64 // allowance an operator added this period, millitokens
	Soft     int64 // until when the limit is metered but not enforced, epoch ms; 0 is never

	ResetCount int64 // how often an operator restored the quota in mid-period
}

// Bucket is all limits of one (entity, resource) on one shard, as stored.
type Bucket struct {
	Shard      int
	ShardCount int    // shard count, at least 1
	RefilledAt int64  // time of the last materialising pass, epoch ms; the optimistic lock
	ValidUntil *int64 // the fast path must not spend past it, epoch ms; nil when absent
	Disabled   bool
	Bypass     int64   // until when nothing on the bucket is enforced, only metered, epoch ms; 0 is never
	Expires    *int64  // DynamoDB may delete the item from then on, epoch seconds; nil is never
	Limits     []Limit // sorted by name
	Broken     error   // why the schedules cannot be read; wraps ErrSchedule
}

// Limit returns the limit of that name, or nil.
func (b *Bucket) Limit(name string) *Limit {
	for i := range b.Limits {
		if b.Limits[i].Name == name {
			return &b.Limits[i]
		}
	}
	return nil
}

// Kind returns how the limit recovers. A quota never drips and is restored. A
// limit with a positive refill drips, whatever else it carries.
func (l *Limit) Kind() Kind {
	switch {
	case l.Name == WriteMeter:
		return Meter
	case l.Base.Refill == 0 && !l.Resets.Empty():
		return Calendar
	case l.Base.Refill == 0 && l.Window.Length > 0:
		return Session
	default:
		return Dripping
	}
}

// IsQuota reports whether the limit is restored in lumps rather than refilled.
func (l *Limit) IsQuota() bool {
	kind := l.Kind()
	return kind == Calendar || kind == Session
}

// Effective returns the limit's parameters in force at now, undivided. The
// write meter is never scheduled. The error wraps ErrSchedule.
func (l *Limit) Effective(now int64) (Params, error) {
	if l.Kind() == Meter {
		return l.Base, nil
	}
	params, err := l.Schedule.Effective(l.Base, now)
	if err == nil && (params.Capacity > MaxAmount || params.Refill > MaxAmount) {
		err = ErrOverflow
	}
	if err != nil {
		return Params{}, fmt.Errorf("%w: limit %.80q: %w", ErrSchedule, l.Name, err)
	}
	return params, nil
}

// Share returns what one of count shards gets of an amount, rounded down.
func Share(amount int64, count int) int64 { return amount / int64(count) }

// IsCount reports whether n can be a shard count: a power of two up to MaxShards.
func IsCount(n int) bool { return n >= 1 && n <= MaxShards && n&(n-1) == 0 }

// GrantCount returns the shard count at which the quota's grant on this shard was
// sized. A legacy quota stores none; the count is then inferred: the shard count,
// halved while the balance exceeds a share at it. A stored count below 1 reads as
// the shard count. See docs/adr/0001.
func (l *Limit) GrantCount(count int, capacity int64) int {
	if l.Grant != nil {
		if *l.Grant < 1 {
			return count
		}
		return *l.Grant
	}
	inferred := count
	for inferred > 1 && l.Balance-l.TopUp > Share(capacity, inferred) {
		inferred /= 2
	}
	return inferred
}

// Ceiling returns the most that this shard may hold of the limit, millitokens. For
// a quota that is what its grant covers, and what an operator added. For a
// dripping limit it is a share, or all where the limit is replicated. For the
// write meter it is all.
func (l *Limit) Ceiling(count int, capacity int64) int64 {
	switch l.Kind() {
	case Meter:
		return capacity
	case Calendar, Session:
		return Share(capacity, l.GrantCount(count, capacity)) + l.TopUp
	default:
		return l.part(capacity, count)
	}
}

// applied returns the window start that the balance reflects. An item that is
// older than the marker reflects the time of its last pass.
func (w *Window) applied(refilled int64) int64 {
	if w.Applied != nil {
		return *w.Applied
	}
	return refilled
}

// pending reports whether the item has a window start that the balance does not
// reflect yet.
func (w *Window) pending(refilled int64) bool {
	return w.Start != nil && *w.Start > w.applied(refilled)
}

// Live reports whether the window has begun and not ended at now.
func (w *Window) Live(now int64) bool {
	return w.Start != nil && *w.Start+w.Length > now
}

// resetDue reports whether a calendar edge has passed since the bucket's last
// pass, so that the quota is to be restored.
func (l *Limit) resetDue(refilled, now int64) bool {
	edge, ok := l.Resets.Prev(now)
	return ok && edge > refilled
}

// Current reports whether the grant of a quota belongs to the period that holds at
// now. refilled is the time of the last pass of its bucket.
func (l *Limit) Current(refilled, now int64) bool {
	if l.Kind() == Session {
		return l.Window.Live(now) && !l.Window.pending(refilled)
	}
	return !l.resetDue(refilled, now)
}

// Readable returns why the bucket's schedules cannot be read or evaluated at now,
// nil where they can. The error wraps ErrSchedule.
func (b *Bucket) Readable(now int64) error {
	if b.Broken != nil {
		return b.Broken
	}
	for i := range b.Limits {
		if _, err := b.Limits[i].Effective(now); err != nil {
			return err
		}
	}
	return nil
}

// WindowsLive reports whether every session quota on the bucket is in a window
// that is live at now and that its balance reflects.
func (b *Bucket) WindowsLive(now int64) bool {
	for i := range b.Limits {
		l := &b.Limits[i]
		if l.Kind() == Session && !l.Current(b.RefilledAt, now) {
			return false
		}
	}
	return true
}
