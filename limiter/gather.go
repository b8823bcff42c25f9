package limiter

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// gathers reports whether other shards are to be asked for what a bucket lacks. One
// that drips is gathered for what is more than a shard can hold alone: shards that
// run dry all have some crumbs, and collecting them costs more writes than the
// uses that wait.
func gathers(b *table.Bucket, have []quota.Shortage) bool {
	return b.ShardCount > 1 && slices.ContainsFunc(have, func(s quota.Shortage) bool {
		l := b.Limit(s.Limit)
		return s.Short() && l.IsPooled() && (l.IsQuota() || s.Requested > s.Ceiling)
	})
}

// shortFor is how long it is remembered what the shards of a group had when they
// had too little together: who is out of tokens asks most.
const shortFor = time.Second

// shortRemembered is of how many groups that is remembered.
const shortRemembered = 1_000

// shortage is what the shards of a group had. It is safe for concurrent use.
//
// Who looks at the shards takes it before and tells it after. What is given back
// removes it from the Limiter, so that nobody hears what was seen before that.
type shortage struct {
	mu          sync.Mutex
	shards      []*table.Bucket // none where it was not told yet
	from, until int64           // when they are believed, epoch ms
	answers     map[int]answer  // the last of each shard that was drawn
}

// answer is what a use was rejected by. To work it out costs more the more shards
// there are, and who is rejected asks for the same again.
type answer struct {
	item   table.Item // of the shard that was drawn
	demand quota.Demand
	have   []quota.Shortage
}

// holds reports whether a use is rejected by the answer still: the shard and the
// demand are the same, and what is short is not there yet.
func (r answer) holds(b *table.Bucket, demand quota.Demand, now int64) bool {
	over := func(s quota.Shortage) bool { return s.Short() && !s.Never && now >= s.At }
	return maps.Equal(r.demand, demand) && table.Equal(r.item, b.Item) && !slices.ContainsFunc(r.have, over)
}

// tell has the shards believed for a while that were read just before now.
func (s *shortage) tell(shards []*table.Bucket, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shards, s.from, s.until = shards, now.UnixMilli(), now.Add(shortFor).UnixMilli()
	s.answers = map[int]answer{}
}

// believed are the shards that are believed at now, if any, and the answers that
// they gave, and the last of them to who drew a shard.
func (s *shortage) believed(shard int, now int64) (shards []*table.Bucket, answers map[int]answer, last answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now < s.from || now >= s.until {
		return nil, nil, answer{}
	}
	return s.shards, s.answers, s.answers[shard]
}

// keep keeps an answer among those that the same shards gave.
func (s *shortage) keep(answers map[int]answer, shard int, r answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answers[shard] = r
}

// shortage is the one of the asked group.
func (a *asking) shortage() *shortage {
	made := &shortage{}
	if kept, ok, _ := a.short.PeekOrAdd(a.key.Group, made); ok {
		return kept
	}
	return made
}

// knownShort is the rejection of a use by what all shards had a moment ago, and
// the asked one now; nil where that would not reject it.
func (a *asking) knownShort(b *table.Bucket) *Rejection {
	seen, ok := a.short.Get(a.key.Group)
	if !ok {
		return nil
	}
	others, answers, last := seen.believed(b.Shard, a.millis())
	switch {
	case len(others) == 0 || others[0].ShardCount != b.ShardCount:
		return nil
	case last.holds(b, a.demand, a.millis()):
		return a.rejectTogether(b, last.have)
	case !slices.ContainsFunc(others, func(other *table.Bucket) bool { return a.otherTerms(b, other) }):
		if have := a.shortOf(b, others); have != nil {
			seen.keep(answers, b.Shard, answer{b.Item, a.demand, have})
			return a.rejectTogether(b, have)
		}
	}
	return nil
}

// shortOf is what the asked shard and the others have of what is asked for; nil
// where it is enough.
func (a *asking) shortOf(b *table.Bucket, others []*table.Bucket) []quota.Shortage {
	shards := []*quota.Bucket{&b.Bucket}
	for _, other := range others {
		if other.Shard != b.Shard {
			shards = append(shards, &other.Bucket)
		}
	}
	pieces, have, err := quota.PlanPooledUse(quota.Opening(shards, a.millis()), a.demand, a.millis())
	if pieces != nil || err != nil {
		return nil
	}
	return have
}

// otherTerms reports whether a limit that is asked for has other terms on another
// shard: an operator changed them since that was read.
func (a *asking) otherTerms(b, other *table.Bucket) bool {
	for name := range a.demand {
		if is, was := b.Limit(name), other.Limit(name); is != nil && was != nil && !sameTerms(is, was) {
			return true
		}
	}
	return false
}

// sameTerms reports whether limits recover alike and are divided alike. Whether
// one is enforced is said by the asked shard alone.
func sameTerms(a, b *quota.Limit) bool {
	return a.Base == b.Base && a.Division == b.Division && a.Window.Length == b.Window.Length &&
		a.Schedule.Compact() == b.Schedule.Compact() && a.Schedule.Zone() == b.Schedule.Zone() &&
		a.Resets.Compact() == b.Resets.Compact() && a.Resets.Zone() == b.Resets.Zone()
}

func (a *asking) rejectTogether(b *table.Bucket, have []quota.Shortage) *Rejection {
	r := rejection(b, have, a.millis())
	r.Together = true
	return r
}

// gather takes a use off several shards in one transaction. It reads them all,
// and where others write meanwhile it looks again.
func (a *asking) gather(ctx context.Context) (table.WriteResult, error) {
	for range maxAttempts {
		seen := a.shortage()
		family, err := a.family(ctx)
		if err != nil {
			return table.WriteResult{}, err
		}
		a.now = a.Limiter.now()
		own := family[a.key.Shard]
		switch b := own.Bucket; {
		case own.Broken != nil:
			return table.WriteResult{}, fmt.Errorf("shard %d: %w", a.key.Shard, own.Broken)
		case b == nil:
			return table.WriteResult{}, nil // gone: it is made, and asked again
		case b.Disabled || a.millis() < b.Bypass:
			return table.WriteResult{Item: b.Item}, nil // since a moment ago, and so it is asked again
		}
		shards, missing := a.together(family)
		if taken, again, err := a.collect(ctx, seen, shards, missing); !again || err != nil {
			return taken, err
		}
	}
	return table.WriteResult{}, ErrContended
}

// collect takes a use off the shards that were read. It makes those that are
// missing before it rejects: what they are owed is the entity's. Session windows
// are opened for a use that is then admitted, and not for one that is rejected.
// After either, and where others wrote, the shards are to be read again. It tells
// a shortage of what the shards had if none is missing.
func (a *asking) collect(ctx context.Context, seen *shortage, shards []*table.Bucket, missing []int) (taken table.WriteResult, again bool, err error) {
	plan := bucketsOf(shards)
	closed := !a.told && slices.ContainsFunc(plan, func(b *quota.Bucket) bool { return b.Closed(a.millis()) })
	if closed {
		plan = quota.Opening(plan, a.millis())
	}
	pieces, have, err := quota.PlanPooledUse(plan, a.demand, a.millis())
	switch {
	case err != nil:
		return taken, false, fmt.Errorf("gather from %d shards: %w", len(shards), err)
	case pieces == nil && len(missing) > 0 && !hopeless(shards[0], have):
		return taken, true, a.createAll(ctx, missing)
	case pieces == nil:
		if len(missing) == 0 {
			seen.tell(shards, a.now)
		}
		return taken, false, a.rejectTogether(shards[0], have)
	case closed:
		a.told = true
		return taken, true, a.openAll(ctx, shards[0])
	}
	taken, err = a.useAll(ctx, shards, pieces)
	return taken, !taken.Applied, err
}

// hopeless reports whether more is asked for than all shards can ever hold.
func hopeless(b *table.Bucket, have []quota.Shortage) bool {
	return slices.ContainsFunc(have, func(s quota.Shortage) bool {
		return s.Short() && b.Limit(s.Limit).IsPooled() && !b.Together(s.Limit, s.Requested)
	})
}

// together are the shards that can be read, the asked one first, and the numbers
// of those that are not there. Beside one that cannot be read none can be made.
func (a *asking) together(family []table.Sibling) (shards []*table.Bucket, missing []int) {
	broken := false
	for shard, sibling := range family {
		b := sibling.Bucket
		broken = broken || sibling.Broken != nil || b != nil && b.Broken != nil
		switch {
		case sibling.Broken != nil:
		case b == nil:
			missing = append(missing, shard)
		case shard == a.key.Shard:
			shards = slices.Insert(shards, 0, b)
		default:
			shards = append(shards, b)
		}
	}
	if broken {
		return shards, nil
	}
	return shards, missing
}

func bucketsOf(shards []*table.Bucket) []*quota.Bucket {
	buckets := make([]*quota.Bucket, len(shards))
	for i, b := range shards {
		buckets[i] = &b.Bucket
	}
	return buckets
}

// openAll opens the session windows of the asked shard that are to be opened, and
// tells the others of all that are open on it, so that all give in the same.
func (a *asking) openAll(ctx context.Context, b *table.Bucket) error {
	use, _, err := quota.PlanUse(&b.Bucket, nil, a.millis())
	if err != nil {
		return err
	}
	if len(use.Opens()) > 0 {
		taken, err := a.table.Use(ctx, b, use, expiry(&b.Bucket, a.millis()))
		if err != nil || !taken.Applied {
			return err
		}
		if b, err = taken.Bucket(); err != nil {
			return err
		}
	}
	a.tell(ctx, open(b, a.millis()), b.ShardCount)
	return nil
}

// open are the session windows of a bucket that are live.
func open(b *table.Bucket, now int64) []table.OpenedWindow {
	var windows []table.OpenedWindow
	for i := range b.Limits {
		w := b.Limits[i].Window
		if w.Start != nil && now < *w.Start+w.Length {
			windows = append(windows, table.OpenedWindow{Limit: b.Limits[i].Name, Start: *w.Start, Length: w.Length})
		}
	}
	return windows
}

// createAll makes the shards that are missing.
func (a *asking) createAll(ctx context.Context, missing []int) error {
	for _, shard := range missing {
		other := *a
		other.key = a.key.At(shard)
		if err := other.create(ctx); err != nil {
			return err
		}
	}
	return nil
}

// useAll writes the pieces of a use, and keeps what each shard gave.
func (a *asking) useAll(ctx context.Context, shards []*table.Bucket, pieces []quota.Piece) (table.WriteResult, error) {
	var uses []table.PlannedUse
	for _, piece := range pieces {
		at := slices.IndexFunc(shards, func(b *table.Bucket) bool { return &b.Bucket == piece.Bucket })
		uses = append(uses, table.PlannedUse{Bucket: shards[at], Use: piece.Use, Expires: expiry(piece.Bucket, a.millis())})
	}
	if len(uses) == 1 {
		only := uses[0]
		taken, err := a.table.Use(ctx, only.Bucket, only.Use, only.Expires)
		if taken.Applied {
			a.gathered = side{{key: only.Bucket.Key, item: taken.Item, latest: taken.Item, demand: pieces[0].Demand}}
		}
		return taken, err
	}
	applied, err := a.table.UseAll(ctx, uses)
	if !applied || err != nil {
		return table.WriteResult{}, err
	}
	for i, using := range uses {
		item := using.After()
		a.gathered = append(a.gathered, &part{key: using.Bucket.Key, item: item, latest: item, demand: pieces[i].Demand})
	}
	return table.WriteResult{Applied: true, Item: a.gathered[0].item}, nil
}
