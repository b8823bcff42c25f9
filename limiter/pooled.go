package limiter

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// A pooled limit may be taken off several shards at once, where the drawn one has
// too little.

// mayPool reports whether other shards are asked for what a bucket lacks. A dripping
// limit is pooled only for what is more than one shard can hold: shards that run dry
// all have some crumbs, and collecting them costs more writes than uses that wait.
func mayPool(b *table.Bucket, have []quota.Shortage) bool {
	return b.ShardCount > 1 && slices.ContainsFunc(have, func(s quota.Shortage) bool {
		l := b.Limit(s.Limit)
		return s.Short() && l.IsPooled() && (l.IsQuota() || s.Requested > s.Ceiling)
	})
}

// piece is what one shard gives to a pooled use.
type piece struct {
	table.PlannedUse
	demand quota.Demand
}

// nextPooled decides the next step of a use from all shards of the group, as they
// were read. It does no I/O and changes nothing.
//
// Missing shards are created before a use is rejected: the tokens that they have yet
// to be granted are the entity's. Session windows are opened for a use that is then
// admitted, not for one that is rejected. The shards are read again after both.
func nextPooled(family []table.Sibling, s *state) step {
	own := family[s.key.Shard]
	switch b := own.Bucket; {
	case own.Broken != nil:
		return step{action: fail, err: fmt.Errorf("shard %d: %w", s.key.Shard, own.Broken)}
	case b == nil:
		return step{action: askAgain}
	case b.Disabled || s.millis() < b.Bypass:
		return step{action: askAgain, bucket: b}
	}
	shards, missing := readable(family, s.key.Shard)
	plan := bucketsOf(shards)
	closed := !s.opened && slices.ContainsFunc(plan, func(b *quota.Bucket) bool { return b.Closed(s.millis()) })
	if closed {
		plan = quota.Opening(plan, s.millis())
	}
	pieces, have, err := quota.PlanPooledUse(plan, s.demand, s.millis())
	switch {
	case err != nil:
		return step{action: fail, err: fmt.Errorf("gather from %d shards: %w", len(shards), err)}
	case pieces == nil && len(missing) > 0 && !hopeless(shards[0], have):
		return step{action: createMissing, missing: missing}
	case pieces == nil:
		rejected := step{action: reject, bucket: shards[0], err: rejectionOfAll(shards[0], have, s.millis())}
		if len(missing) == 0 {
			rejected.shards = shards
		}
		return rejected
	case closed:
		return step{action: openWindows, bucket: shards[0]}
	}
	return step{action: writePieces, pieces: piecesOf(shards, pieces, s.millis())}
}

// readable returns the shards of a family that can be read, the drawn one first, and
// the numbers of those that are missing. Beside a shard that cannot be read none can
// be created, so that none counts as missing.
func readable(family []table.Sibling, drawn int) (shards []*table.Bucket, missing []int) {
	broken := false
	for shard, sibling := range family {
		b := sibling.Bucket
		broken = broken || sibling.Broken != nil || b != nil && b.Broken != nil
		switch {
		case sibling.Broken != nil:
		case b == nil:
			missing = append(missing, shard)
		case shard == drawn:
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

// hopeless reports whether more is asked for than all shards can ever hold.
func hopeless(b *table.Bucket, have []quota.Shortage) bool {
	return slices.ContainsFunc(have, func(s quota.Shortage) bool {
		return s.Short() && b.Limit(s.Limit).IsPooled() && !b.Together(s.Limit, s.Requested)
	})
}

// piecesOf returns the pieces of a use as they are written.
func piecesOf(shards []*table.Bucket, planned []quota.Piece, now int64) []piece {
	pieces := make([]piece, len(planned))
	for i, p := range planned {
		at := slices.IndexFunc(shards, func(b *table.Bucket) bool { return &b.Bucket == p.Bucket })
		pieces[i] = piece{table.PlannedUse{Bucket: shards[at], Use: p.Use}, p.Demand}
	}
	return pieces
}

// gather takes a use off several shards in one transaction. It reads them all, and
// reads them again where others write meanwhile. It returns the drawn bucket's item
// where that is to be asked again.
func (a *attempt) gather(ctx context.Context) (table.Item, error) {
	for range maxAttempts {
		short := a.shortage()
		family, err := a.readFamily(ctx, a.key, a.millis())
		if err != nil {
			return nil, err
		}
		a.now = a.store.Now()
		s := nextPooled(family, &a.state)
		switch s.action {
		case fail:
			return nil, s.err
		case reject:
			if s.shards != nil {
				short.believe(s.shards, a.now)
			}
			return nil, s.err
		case askAgain:
			if a.progress = refused; s.bucket == nil {
				return nil, nil
			}
			return s.bucket.Item, nil
		case createMissing:
			if err = a.createAll(ctx, s.missing); errors.Is(err, errGivenUp) {
				err = nil // somebody else makes them
			}
		case openWindows:
			a.opened = true
			err = a.openWindows(ctx, s.bucket)
		case writePieces:
			err = a.writePieces(ctx, s.pieces)
		}
		if err != nil {
			return nil, err
		}
		if a.progress == admitted {
			return a.charged[0].item, nil
		}
		if s.action == writePieces {
			a.conflicts++
			if err := a.pause(ctx, a.conflicts); err != nil {
				return nil, err
			}
		}
	}
	return nil, limits.ErrContended
}

func (a *attempt) createAll(ctx context.Context, shards []int) error {
	for _, shard := range shards {
		if err := a.create(ctx, a.key.At(shard), a.now); err != nil {
			return err
		}
	}
	return nil
}

// openWindows opens the session windows of the drawn shard that are closed, and
// propagates all that are open on it: all shards then give in the same windows.
func (a *attempt) openWindows(ctx context.Context, b *table.Bucket) error {
	use, _, err := quota.PlanUse(&b.Bucket, nil, a.millis())
	if err != nil {
		return err
	}
	if len(use.Opens()) > 0 {
		if err := a.table.Outlive(ctx, a.key.Group, b.Outlive(a.millis())); err != nil {
			return err
		}
		written, err := a.table.Use(ctx, b, use)
		if err != nil || !written.Applied {
			return err
		}
		if b, err = written.Bucket(); err != nil {
			return err
		}
	}
	a.propagateWindows(ctx, a.key, liveOn(b, a.millis()), b.ShardCount)
	return nil
}

// writePieces writes the pieces of a use, and notes what each shard gave. It does
// nothing where others wrote one of them meanwhile.
func (a *attempt) writePieces(ctx context.Context, pieces []piece) error {
	for _, p := range pieces {
		if err := a.table.Outlive(ctx, a.key.Group, p.Bucket.Outlive(a.millis())); err != nil {
			return err
		}
	}
	if len(pieces) == 1 {
		only := pieces[0]
		written, err := a.table.Use(ctx, only.Bucket, only.Use)
		if err == nil && written.Applied {
			a.progress = admitted
			a.charged = charges{{key: only.Bucket.Key, item: written.Item, latest: written.Item, demand: only.demand}}
		}
		return err
	}
	uses := make([]table.PlannedUse, len(pieces))
	for i, p := range pieces {
		uses[i] = p.PlannedUse
	}
	applied, err := a.table.UseAll(ctx, uses)
	if !applied || err != nil {
		return err
	}
	a.progress = admitted
	for _, p := range pieces {
		item := p.After()
		a.charged = append(a.charged, &charge{key: p.Bucket.Key, item: item, latest: item, demand: p.demand})
	}
	return nil
}

const (
	// shortFor is how long a Limiter believes what the shards of a group had when
	// they had too little together: who is out of tokens asks most.
	shortFor = time.Second
	// shortRemembered is of how many groups it remembers that.
	shortRemembered = 1_000
)

// shortage is what the shards of a group had when they had too little together. It
// is safe for concurrent use.
//
// A use gets hold of it before it reads the shards, and fills it afterwards. A
// refund removes it from the Limiter, so that no use sees what was read before.
type shortage struct {
	mu          sync.Mutex
	shards      []*table.Bucket // none until they were read
	from, until int64           // when they are believed, epoch ms
	answers     map[int]answer  // the last of each shard that was drawn
}

// answer is what a use was rejected by. Who is rejected asks for the same again, and
// the answer costs more to work out the more shards there are.
type answer struct {
	item   table.Item // of the shard that was drawn
	demand quota.Demand
	have   []quota.Shortage
}

// holds reports whether the answer is still right: the shard and the demand are the
// same, and what is short has not recovered.
func (r answer) holds(b *table.Bucket, demand quota.Demand, now int64) bool {
	recovered := func(s quota.Shortage) bool { return s.Short() && !s.Never && now >= s.At }
	return maps.Equal(r.demand, demand) && table.Equal(r.item, b.Item) && !slices.ContainsFunc(r.have, recovered)
}

// shortage returns the one of the drawn group, a new one where there is none.
func (a *attempt) shortage() *shortage {
	made := &shortage{}
	if known, ok, _ := a.short.PeekOrAdd(a.key.Group, made); ok {
		return known
	}
	return made
}

// believe has shards believed for a while that were read just before now.
func (s *shortage) believe(shards []*table.Bucket, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shards, s.from, s.until = shards, now.UnixMilli(), now.Add(shortFor).UnixMilli()
	s.answers = map[int]answer{}
}

// recentShortage is what is believed of a shortage at one instant; the zero value
// knows nothing.
type recentShortage struct {
	of      *shortage
	shards  []*table.Bucket
	answers map[int]answer // those of the same shards; of guards them
	last    answer         // to who drew the same shard
}

// recent returns what is believed at now, to a use that draws a shard.
func (s *shortage) recent(shard int, now int64) recentShortage {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now < s.from || now >= s.until {
		return recentShortage{}
	}
	return recentShortage{s, s.shards, s.answers, s.answers[shard]}
}

// shortages returns what all shards have of a demand, by what they had a moment ago
// and the drawn one has now. It returns nothing where they may have enough. learned
// is the same where it had to be worked out.
func (r recentShortage) shortages(b *table.Bucket, demand quota.Demand, now int64) (have, learned []quota.Shortage) {
	switch {
	case len(r.shards) == 0 || r.shards[0].ShardCount != b.ShardCount:
		return nil, nil
	case r.last.holds(b, demand, now):
		return r.last.have, nil
	case slices.ContainsFunc(r.shards, func(other *table.Bucket) bool { return configDiffers(b, other, demand) }):
		return nil, nil
	}
	have = shortOf(b, r.shards, demand, now)
	return have, have
}

// learn remembers an answer for the next use that draws the same shard.
func (r recentShortage) learn(b *table.Bucket, demand quota.Demand, have []quota.Shortage) {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	r.answers[b.Shard] = answer{b.Item, demand, have}
}

// shortOf returns what the drawn shard and the others have of a demand; nothing
// where it is enough.
func shortOf(b *table.Bucket, others []*table.Bucket, demand quota.Demand, now int64) []quota.Shortage {
	shards := []*quota.Bucket{&b.Bucket}
	for _, other := range others {
		if other.Shard != b.Shard {
			shards = append(shards, &other.Bucket)
		}
	}
	pieces, have, err := quota.PlanPooledUse(quota.Opening(shards, now), demand, now)
	if pieces != nil || err != nil {
		return nil
	}
	return have
}

// configDiffers reports whether a limit of a demand is configured otherwise on
// another shard: an operator changed it since that one was read.
func configDiffers(b, other *table.Bucket, demand quota.Demand) bool {
	for name := range demand {
		if is, was := b.Limit(name), other.Limit(name); is != nil && was != nil && !sameConfig(is, was) {
			return true
		}
	}
	return false
}

// sameConfig reports whether limits recover alike and are divided alike. Whether a
// limit is enforced is said by the drawn shard alone.
func sameConfig(a, b *quota.Limit) bool {
	return a.Base == b.Base && a.Division == b.Division && a.Window.Length == b.Window.Length &&
		a.Schedule.Equal(b.Schedule) && a.Resets.Equal(b.Resets)
}
