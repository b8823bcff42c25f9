package limiter

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// Errors of an Acquire besides a Rejection. Package limits has the others:
// limits.ErrUndefined, limits.ErrName and limits.ErrContended.
var (
	// ErrDisabled says that an operator has disabled the entity or the resource.
	ErrDisabled = errors.New("disabled by an operator")
	// ErrAmount says that an amount is negative or too large, or gives back more than
	// was taken.
	ErrAmount = errors.New("malformed amount")
)

// Rejection is why a use was not admitted. Nothing of it was taken.
type Rejection struct {
	Resource string
	Parent   bool     // the entity's parent had too little; the entity itself would have admitted the use
	Shard    int      // the shard that was drawn last
	Shards   int      // how many there are
	Limits   []Status // of every limit asked for, by name
	Together bool     // pooled limits that are short are those of all shards together, at most a second old
}

// Status is what one shard can give of a limit, in tokens, rounded down. Of a pooled
// limit that the shard is short of, it is what all shards can give, if the rejection
// is Together.
type Status struct {
	Limit      string
	Requested  int64
	Available  int64 // on this shard; negative when in debt
	Capacity   int64 // of all shards, as it is scheduled now
	Ceiling    int64 // the most that this shard can hold now, so the most that one use can ask for
	Division   quota.Division
	Period     time.Duration // in which Refill drips, or 0 for a quota
	Refill     int64         // for all shards
	Window     time.Duration // in which all of Capacity drips, rounded up to a millisecond, at most 292 years; 0 for a quota
	RetryAfter time.Duration // when this shard will have it if nobody else takes of it, at most 100 years; 0 where it has enough
	// Never says that this shard can never hold the amount, nor can any other once it
	// has been restored at the present shard count. Until then a shard may hold more
	// that was granted its share of a quota at a lower count.
	Never bool
}

// Short reports whether the limit had too little.
func (s Status) Short() bool { return s.Available < s.Requested }

// longestWait bounds RetryAfter: a Duration has room for 292 years.
const longestWait = 100 * 365 * 24 * time.Hour

// Error names the limits that are short, and no entity.
func (r *Rejection) Error() string {
	var parts []string
	for _, s := range r.Limits {
		switch {
		case s.Never && s.Division == quota.Pooled:
			parts = append(parts, fmt.Sprintf("%s: %d is more than all %d shards can ever hold: %d now", s.Limit, s.Requested, r.Shards, s.Ceiling))
		case s.Never:
			parts = append(parts, fmt.Sprintf("%s: %d is more than this shard, of %d, can ever hold: %d now", s.Limit, s.Requested, r.Shards, s.Ceiling))
		case s.Short():
			parts = append(parts, fmt.Sprintf("%s: %d of %d left, %d asked for, again in %v", s.Limit, s.Available, s.Ceiling, s.Requested, s.RetryAfter))
		}
	}
	whose := ""
	if r.Parent {
		whose = "the parent's "
	}
	return fmt.Sprintf("over %slimits of %s: %s", whose, r.Resource, strings.Join(parts, "; "))
}

// RetryAfter returns when the use can be tried again. ok is false where that is never,
// because one amount is more than a shard can ever hold (Status.Never).
func (r *Rejection) RetryAfter() (wait time.Duration, ok bool) {
	if r.Impossible() {
		return 0, false
	}
	for _, s := range r.Limits {
		wait = max(wait, s.RetryAfter)
	}
	return wait, true
}

// Impossible reports whether waiting does not help: an amount is more than a
// shard can ever hold (Status.Never).
func (r *Rejection) Impossible() bool {
	return slices.ContainsFunc(r.Limits, func(s Status) bool { return s.Never })
}

// Of returns what there is of a limit that was asked for. It returns the zero Status
// for one that was not, or that is not enforced.
func (r *Rejection) Of(limit string) Status {
	for _, s := range r.Limits {
		if s.Limit == limit {
			return s
		}
	}
	return Status{}
}

// ofAll reports whether all shards together have too little of a limit.
func (r *Rejection) ofAll() bool {
	return r.Together && slices.ContainsFunc(r.Limits, func(s Status) bool { return s.Short() && s.Division == quota.Pooled })
}

// sooner reports whether a rejection promises more than another.
func (r *Rejection) sooner(than *Rejection) bool {
	wait, ok := r.RetryAfter()
	other, otherOK := than.RetryAfter()
	return ok && (!otherOK || wait < other)
}

// rejectionOfAll says why all shards together do not admit a use; b is the drawn one.
func rejectionOfAll(b *table.Bucket, statuses []quota.Shortage, now int64) *Rejection {
	r := rejection(b, statuses, now)
	r.Together = true
	return r
}

// rejection says why a bucket does not admit a use at now.
func rejection(b *table.Bucket, statuses []quota.Shortage, now int64) *Rejection {
	r := &Rejection{Resource: b.Key.Resource, Shard: b.Shard, Shards: b.ShardCount}
	for _, s := range statuses {
		status := Status{
			Limit: s.Limit, Requested: s.Requested / 1000, Available: floor(s.Available), Capacity: floor(s.Capacity), Ceiling: floor(s.Ceiling),
			Refill: floor(s.Params.Refill), Never: s.Never, Division: division(b, s.Limit),
		}
		if s.Params.Refill > 0 {
			status.Period, status.Window = time.Duration(s.Params.Period)*time.Millisecond, window(s.Params)
		}
		if s.Short() && !s.Never {
			wait := min(max(1, s.At-now), longestWait.Milliseconds())
			status.RetryAfter = time.Duration(wait) * time.Millisecond
		}
		r.Limits = append(r.Limits, status)
	}
	return r
}

// window returns the time in which a whole capacity drips.
func window(p quota.Params) time.Duration {
	ms, ok := p.FillTime()
	if most := int64(math.MaxInt64 / time.Millisecond); !ok || ms > most {
		return math.MaxInt64
	}
	return time.Duration(ms) * time.Millisecond
}

// division returns how a limit of a bucket is divided in fact.
func division(b *table.Bucket, name string) quota.Division {
	if l := b.Limit(name); !l.InvalidDivision() {
		return l.Division
	}
	return quota.Divided
}

// floor returns millitokens in whole tokens, rounded down.
func floor(milli int64) int64 {
	if milli < 0 {
		return -((999 - milli) / 1000)
	}
	return milli / 1000
}

// Unavailable is an Acquire that DynamoDB did not answer, or refused for now. What was
// asked may have been taken nevertheless. Then it is lost to the entity, and never
// granted twice.
type Unavailable struct{ Cause error }

func (u *Unavailable) Error() string { return "the table cannot be reached: " + u.Cause.Error() }

// Unwrap returns the cause, which wraps table.ErrRetry.
func (u *Unavailable) Unwrap() error { return u.Cause }
