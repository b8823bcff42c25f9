package quota

// Division is how a limit is divided among the shards of its bucket. Its text is
// what an item and a declaration say. See docs/adr/0016.
type Division string

// The divisions of a limit.
const (
	Divided    Division = ""           // each shard has its part of capacity and refill
	Replicated Division = "replicated" // each shard may hold the whole capacity, and refills by its part; of a limit that drips
	Pooled     Division = "gathered"   // divided, and what one shard is short of, or can never hold, is taken off several at once
)

// dividedText is how the default is named where a name is asked for.
const dividedText = "divided"

// ParseDivision reads the text of a division. What is none that is known is kept
// as it is.
func ParseDivision(text string) Division {
	if text == dividedText {
		return Divided
	}
	return Division(text)
}

// String names the division, also the default.
func (d Division) String() string {
	if d == Divided {
		return dividedText
	}
	return string(d)
}

// Known reports whether the division is one.
func (d Division) Known() bool { return d == Divided || d == Replicated || d == Pooled }

// Replicates reports whether each shard may hold the whole capacity. A quota is
// divided always: replicated, it would be granted once for each shard.
func (l *Limit) Replicates() bool { return l.Division == Replicated && l.Kind() == Dripping }

// IsPooled reports whether a use may be taken off several shards.
func (l *Limit) IsPooled() bool { return l.Division == Pooled && l.Kind() != Meter }

// InvalidDivision reports whether the limit says a division that it cannot have, or
// none that is known. It is divided then.
func (l *Limit) InvalidDivision() bool {
	return !l.Division.Known() || l.Division == Replicated && l.Kind() != Dripping
}

// part is the most that one of count shards is refilled to of a capacity,
// millitokens, where the limit is no quota.
func (l *Limit) part(capacity int64, count int) int64 {
	if l.Replicates() {
		return capacity
	}
	return Share(capacity, count)
}

// DivisionSummary is how a limit that says a division is divided among the shards of one
// (entity, resource); amounts in millitokens.
type DivisionSummary struct {
	Limit    string
	Division Division
	Ignored  bool // it is divided nevertheless: Misdivided
	Shards   int
	Capacity int64 // effective, undivided
	Most     int64 // that one use can ask for
	Held     int64 // by all shards, as stored
}

// Summarize describes the division of a limit; ok is false where no shard says
// another than the default. The error wraps ErrSchedule.
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
