// Package sharding decides how a new shard of a group is created: what it carries, what
// funds it, or why it is not created. The aggregator, the client and a replay differ
// in what they may do (May), and share the rest.
package sharding

import (
	"fmt"
	"slices"
	"strings"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// Request asks how one shard of a group is to be created. Plan answers it.
type Request struct {
	Siblings []table.Sibling // shards 0..Count-1 by index, each raised to Count before it was read (docs/adr/0002)
	Shard    int             // 0 only where the group has lost its shard 0, or never had one
	Count    int             // the shard count to create it at
	Now      int64           // the creator's time, epoch ms
	Template *table.Bucket   // what the shard carries beside its balances; nil stands for shard 0's image
	May      May
}

// May says what a creator may do. The zero value is the aggregator: it opens no
// session window.
type May struct {
	OpenWindows bool // a client: where shard 0 has no live session window, the shard opens its own
	WholeTokens bool // a client: moves are rounded down to whole tokens, since uses take whole ones
	MoveNothing bool // a client whose donors changed twice: the shard goes without what it would move
	AnyCount    bool // a client: also at a count that is none of ours, which another program has stored
	Recorded    bool // a replay: somebody did create the shard, and only its funding is planned again
}

// Plan is what Plan decides: the creation, or why there is none.
type Plan struct {
	Creation table.Creation
	Fundings []quota.Funding      // one for each limit, in the order of the template's
	Opened   []table.OpenedWindow // the windows that the shard opens and its creator propagates
	Refused  Refusal              // why there is no creation; "" where there is one
	Err      error                // what could not be read, where Refused is Unreadable or BadSchedule
}

// Refusal says why a shard is not created.
type Refusal string

// The refusals. The last is no plan's own, but what became of a creation.
const (
	NoShardZero   Refusal = "shard 0 is gone or unreadable"
	Unreadable    Refusal = "siblings unreadable"
	BadCount      Refusal = "shard count is not a power of two up to 32"
	Overtaken     Refusal = "overtaken by a later doubling"
	CountChanged  Refusal = "pinned shard count moved"
	BadSchedule   Refusal = "undecodable schedule"
	GroupDisabled Refusal = "bucket is disabled"
	NoWindow      Refusal = "no live applied session window"
	ShardExists   Refusal = "already there"
	DonorLost     Refusal = "donor changed"
)

// Refusals returns every refusal.
func Refusals() []Refusal {
	return []Refusal{
		NoShardZero, Unreadable, BadCount, Overtaken, CountChanged, BadSchedule, GroupDisabled, NoWindow, DonorLost, ShardExists,
	}
}

// RefusalOf says why an outcome left no new shard, "" where it made one.
func RefusalOf(outcome table.CreationOutcome) Refusal {
	return map[table.CreationOutcome]Refusal{table.Exists: ShardExists, table.PinMoved: CountChanged, table.DonorChanged: DonorLost}[outcome]
}

// Plan decides how the shard is created. It is funded from its siblings
// (quota.Fund) and carries everything else that the template does. The creation
// is pinned to shard 0's count and configuration (docs/adr/0003).
//
// A new shard 0 has nothing to pin, and its siblings can give it nothing: a move
// off them would need a shard 0 to check. It joins their session windows. Of a
// quota it gets the slots that no sibling was granted. Where the group has no
// shard at all, the balances are the template's.
func (r Request) Plan() Plan {
	if refused, err := r.unfit(); refused != "" {
		return Plan{Refused: refused, Err: err}
	}
	now, carried := r.creationTime(), r.carried()
	fundings, err := r.fund(carried, now)
	switch {
	case err != nil:
		return Plan{Refused: BadSchedule, Err: err}
	case r.Shard != 0 && !r.May.OpenWindows && !r.May.Recorded && !carried.WindowsLive(now):
		return Plan{Refused: NoWindow}
	case r.Shard < len(r.Siblings) && r.Siblings[r.Shard].Bucket != nil:
		return Plan{Refused: ShardExists}
	}
	plan := Plan{Fundings: fundings, Creation: table.Creation{
		Bucket: New(carried, r.Shard, r.Count, now, fundings), Moves: quota.Moves(fundings),
	}}
	if zero := r.Siblings[0].Bucket; zero != nil {
		plan.Creation.ConfigAttrs = zero.ConfigAttrs()
		plan.Opened = openedSince(zero, plan.Creation.Bucket)
	}
	return plan
}

// unfit says why no shard can be created from the siblings, "" where one can.
func (r Request) unfit() (Refusal, error) {
	zero := r.Siblings[0].Bucket
	switch {
	case !quota.IsCount(r.Count) && !r.May.AnyCount:
		return BadCount, nil
	case zero == nil && r.Shard != 0:
		return NoShardZero, nil
	case r.May.Recorded:
		return "", nil
	case r.storedCount() > r.Count:
		return Overtaken, nil
	case zero != nil && zero.ShardCount < r.Count:
		return CountChanged, nil
	}
	for _, sibling := range r.Siblings {
		if sibling.Broken != nil {
			return Unreadable, sibling.Broken
		}
	}
	if zero != nil && zero.Disabled {
		return GroupDisabled, nil
	}
	return "", nil
}

// storedCount is the group's shard count: shard 0's, or where there is none the
// highest that a sibling knows.
func (r Request) storedCount() int {
	if zero := r.Siblings[0].Bucket; zero != nil {
		return zero.ShardCount
	}
	highest := 0
	for _, b := range table.Buckets(r.Siblings) {
		highest = max(highest, b.ShardCount)
	}
	return highest
}

// creationTime is the time of the new shard's first pass: the creator's, but not
// before the last pass of any sibling. A reset edge may lie between the two. A
// shard that is funded by a sibling's grant after the edge, and last passed
// before it, would be restored once more.
func (r Request) creationTime() int64 {
	now := r.Now
	for _, b := range table.Buckets(r.Siblings) {
		now = max(now, b.RefilledAt)
	}
	return now
}

// bypassed reports whether uses of the group only meter. Such a use opens no session
// window.
func (r Request) bypassed() bool {
	zero := r.Siblings[0].Bucket
	return zero != nil && r.Now < zero.Bypass
}

// carried is the bucket whose limits and other attributes the shard gets, in the
// session windows that it is to begin in.
func (r Request) carried() *table.Bucket {
	carried := r.Siblings[0].Bucket
	if r.Template != nil {
		carried = r.Template
	}
	now := r.creationTime()
	switch {
	case r.Shard == 0:
		carried = joinWindows(carried, table.Buckets(r.Siblings), now)
	case r.May.OpenWindows && !r.bypassed():
		carried = &table.Bucket{Key: carried.Key, Item: carried.Item, Bucket: *carried.Opened(now)}
	}
	return carried
}

// joinWindows is a new shard 0 in the live session windows of its siblings. Its
// valid-until is still to be stamped.
func joinWindows(b *table.Bucket, siblings []*quota.Bucket, now int64) *table.Bucket {
	joined := new(*b)
	joined.ValidUntil = nil
	joined.Limits = slices.Clone(b.Limits)
	for i := range joined.Limits {
		l := &joined.Limits[i]
		for _, sibling := range siblings {
			theirs := sibling.Limit(l.Name)
			if l.Kind() == quota.Session && theirs != nil && theirs.Kind() == quota.Session && theirs.Current(sibling.RefilledAt, now) {
				l.Window.Start = theirs.Window.Start
			}
		}
	}
	return joined
}

// millitokens of a whole token.
const wholeToken = 1000

// fund plans the balances. The error wraps quota.ErrSchedule.
func (r Request) fund(carried *table.Bucket, now int64) ([]quota.Funding, error) {
	siblings := table.Buckets(r.Siblings)
	if len(siblings) == 0 {
		return nil, carried.Broken
	}
	fundings, err := quota.Fund(&carried.Bucket, siblings, r.Shard, r.Count, now)
	for i := range fundings {
		f := &fundings[i]
		l := carried.Limit(f.Limit)
		switch {
		case r.bypassed() && l.Kind() == quota.Session && !l.Window.Live(now):
			f.Amount = 0 // the use that opens a window is granted its share
		case f.Source != quota.Move:
		case r.May.MoveNothing || r.Shard == 0:
			f.Amount = 0
		case r.May.WholeTokens:
			f.Amount -= f.Amount % wholeToken
		}
	}
	return fundings, err
}

// openedSince are the session windows of a new shard that are not shard 0's.
func openedSince(zero, shard *table.Bucket) []table.OpenedWindow {
	var windows []table.OpenedWindow
	for i := range shard.Limits {
		l := &shard.Limits[i]
		known := zero.Limit(l.Name)
		if start := l.Window.Start; start != nil && (known == nil || known.Window.Start == nil || *known.Window.Start != *start) {
			windows = append(windows, table.OpenedWindow{Limit: l.Name, Start: *start, Length: l.Window.Length})
		}
	}
	return windows
}

// New makes the bucket of a new shard at a shard count. It carries
// everything that the template's item does, also what this program does not
// know. Its own are the keys, the balances of its fundings, no consumption, an
// expiry where the template has one, and now (epoch ms) as the time of its last pass. Its quotas are granted at count
// and in the period that holds at now.
func New(template *table.Bucket, shard, count int, now int64, fundings []quota.Funding) *table.Bucket {
	b := &table.Bucket{Key: template.Key.At(shard), Item: template.Item.Clone(), Bucket: template.Bucket}
	b.Shard, b.ShardCount, b.RefilledAt = shard, count, now
	b.Limits = slices.Clone(template.Limits)
	for _, funding := range fundings {
		limit := b.Limit(funding.Limit)
		limit.Balance, limit.Consumed, limit.TopUp = funding.Amount, 0, 0
		if limit.IsQuota() {
			limit.Grant = new(count)
		}
		if limit.Kind() == quota.Session && limit.Window.Start != nil {
			limit.Window.Applied = limit.Window.Start
			b.RefilledAt = max(b.RefilledAt, *limit.Window.Start)
		}
		if limit.Window.ConsumedAtOpen != nil {
			limit.Window.ConsumedAtOpen = new(int64(0))
		}
	}
	b.ValidUntil = validFor(b, template.ValidUntil, now)
	b.Fill()
	if b.Expires != nil {
		b.Expires = new(b.Expiry(b.RefilledAt))
		b.Item[table.AttrTTL] = table.Int(*b.Expires)
	}
	return b
}

// validFor is the valid-until of a new shard: its next boundary. A stored 0
// stays, since an operator asked for a client's pass. So does an absent one
// where nothing on the bucket is bound to time. It is 0 where a use has to open a
// session window before it spends.
func validFor(b *table.Bucket, stored *int64, now int64) *int64 {
	boundary, ok := b.NextBoundary(now)
	switch {
	case !ok || stored != nil && *stored == 0:
		return stored
	case boundary <= now:
		return new(int64(0))
	}
	return &boundary
}

// String renders the plan: the shard and its fundings, or the refusal.
func (p Plan) String() string {
	if p.Refused != "" {
		return "refused: " + string(p.Refused)
	}
	b := p.Creation.Bucket
	fundings := make([]string, len(p.Fundings))
	for i, f := range p.Fundings {
		fundings[i] = f.String()
	}
	return fmt.Sprintf("shard %d of %d at %d: %s", b.Shard, b.ShardCount, b.RefilledAt, strings.Join(fundings, ", "))
}
