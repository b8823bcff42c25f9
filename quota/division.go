package quota

// Division says how a limit is divided among the shards of its bucket. Its text is
// what items and declarations hold. See docs/adr/0016.
type Division string

// The divisions of a limit.
const (
	Divided    Division = ""           // each of S shards holds 1/S of capacity and refill
	Replicated Division = "replicated" // each shard may hold the whole capacity, and refills at 1/S; dripping limits only
	Pooled     Division = "gathered"   // divided; a use that one shard cannot serve is taken off several at once
)

// dividedText names the default.
const dividedText = "divided"

// ParseDivision reads the text of a division. It keeps an unknown text as it is.
func ParseDivision(text string) Division {
	if text == dividedText {
		return Divided
	}
	return Division(text)
}

// String returns the name of the division, "divided" for the default.
func (d Division) String() string {
	if d == Divided {
		return dividedText
	}
	return string(d)
}

// Known reports whether this program knows the division.
func (d Division) Known() bool { return d == Divided || d == Replicated || d == Pooled }

// Replicates reports whether each shard may hold the whole capacity. A quota never
// replicates: each shard would be granted all of it.
func (l *Limit) Replicates() bool { return l.Division == Replicated && l.Kind() == Dripping }

// IsPooled reports whether one use may be taken off several shards.
func (l *Limit) IsPooled() bool { return l.Division == Pooled && l.Kind() != Meter }

// InvalidDivision reports whether the limit has an unknown division, or one that
// its kind cannot have. Such a limit is divided.
func (l *Limit) InvalidDivision() bool {
	return !l.Division.Known() || l.Division == Replicated && l.Kind() != Dripping
}

// part returns the most that one of count shards refills to, millitokens, where
// the limit is no quota.
func (l *Limit) part(capacity int64, count int) int64 {
	if l.Replicates() {
		return capacity
	}
	return Share(capacity, count)
}

// DivisionSummary describes how a limit with a division of its own is divided
// among the shards of one (entity, resource). Amounts are in millitokens.
type DivisionSummary struct {
	Limit    string   `json:"limit"`
	Division Division `json:"division"`
	Ignored  bool     `json:"ignored"` // the limit is divided nevertheless: InvalidDivision
	Shards   int      `json:"shards"`
	Capacity int64    `json:"capacity"` // effective, undivided
	Most     int64    `json:"most"`     // the most that one use can ask for
	Held     int64    `json:"held"`     // by all shards, as stored
}

// Summarize describes the division of a limit. ok is false where every shard has
// the default division. The error wraps ErrSchedule.
func Summarize(name string, shards []*Bucket, now int64) (s DivisionSummary, ok bool, err error) {
	s.Limit = name
	for _, b := range shards {
		l := b.Limit(name)
		if l == nil || l.Division == Divided {
			continue
		}
		if b.Broken != nil {
			return s, true, b.Broken
		}
		params, err := l.Effective(now)
		if err != nil {
			return s, true, err
		}
		s.Division, s.Ignored, s.Capacity = l.Division, l.InvalidDivision(), params.Capacity
		s.Held += l.Balance
		if s.Shards = max(s.Shards, b.ShardCount); l.IsPooled() {
			s.Most = Share(params.Capacity, s.Shards) * int64(s.Shards)
		} else {
			s.Most = l.Ceiling(s.Shards, params.Capacity)
		}
		ok = true
	}
	return s, ok, nil
}
