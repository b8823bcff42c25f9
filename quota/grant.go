package quota

import (
	"fmt"
	"slices"
)

// Source is where a new shard's balance of a limit comes from.
type Source string

// The sources of a balance.
const (
	Move Source = "move"  // off the donor whose grant covers the slot
	Mint Source = "mint"  // fresh allowance: nobody was granted the slot this period
	Part Source = "share" // a dripping limit's share, or the whole write meter
)

// Funding is how one limit of a new shard is funded.
type Funding struct {
	Limit  string
	Source Source
	Amount int64 // millitokens
	Donor  int   // shard index; meaningful for a move
	Guard  Guard // what must still hold of the donor; meaningful for a move
	Trim   int64 // what the donor holds above its ceiling, millitokens; a move removes it
}

// Moves returns the fundings that take something off a donor, with all that they
// take off it. That includes what the donor holds above its ceiling because no
// pass has trimmed it yet: the donor would otherwise hold its whole ceiling beside
// what it gave.
func Moves(fundings []Funding) []Funding {
	var moves []Funding
	for _, f := range fundings {
		if f.Source == Move && f.Amount != 0 {
			f.Amount, f.Trim = f.Amount+f.Trim, 0
			moves = append(moves, f)
		}
	}
	return moves
}

// Guard is what a move requires of its donor: the grant as read, and a period that
// is still current.
type Guard struct {
	Grant       int    // the grant count as read or inferred
	Legacy      bool   // the donor has no stored grant count: it must still have none, at ShardCount
	ShardCount  int    // the donor's stored shard count
	RefilledAt  int64  // calendar quotas: the donor's last pass must be at or past this edge, epoch ms
	Applied     *int64 // session quotas: the applied window start as read, epoch ms
	SessionOnly bool   // the quota is a session quota: Applied is the guard, not RefilledAt
}

// Covers reports whether a grant of shard i, sized at grant, covers a slot.
func Covers(shard, grant, slot int) bool { return slot%grant == shard%grant }

// Fund plans the balances of a new shard at a shard count. template is the bucket
// whose limits the shard gets. Each sibling's image must have been taken when the
// sibling's own count had reached count (docs/adr/0002). The fundings are in the
// order of the template's limits.
//
// The error wraps ErrSchedule. A sibling whose schedule cannot be read fails all:
// whether its grant covers the slot is unknown.
func Fund(template *Bucket, siblings []*Bucket, shard, count int, now int64) ([]Funding, error) {
	for _, b := range append([]*Bucket{template}, siblings...) {
		if b.Broken != nil {
			return nil, b.Broken
		}
	}
	fundings := make([]Funding, 0, len(template.Limits))
	for i := range template.Limits {
		limit := &template.Limits[i]
		params, err := limit.Effective(now)
		if err != nil {
			return nil, err
		}
		fundings = append(fundings, limit.fund(params, siblings, shard, count, now))
	}
	return fundings, nil
}

func (l *Limit) fund(params Params, siblings []*Bucket, shard, count int, now int64) Funding {
	share := Share(params.Capacity, count)
	switch l.Kind() {
	case Meter:
		return Funding{Limit: l.Name, Source: Part, Amount: params.Capacity}
	case Dripping:
		if l.Replicates() {
			return l.split(siblings, shard, count)
		}
		return Funding{Limit: l.Name, Source: Part, Amount: share}
	}
	donor := donorOf(l.Name, siblings, shard, params.Capacity, now)
	if donor == nil {
		return Funding{Limit: l.Name, Source: Mint, Amount: share}
	}
	given := donor.Limit(l.Name)
	trim := max(0, given.Balance-given.Ceiling(donor.ShardCount, params.Capacity))
	return Funding{
		Limit:  l.Name,
		Source: Move,
		Amount: max(0, min(share, given.Balance)),
		Donor:  donor.Shard,
		Guard:  guardOf(donor, given, params.Capacity, now),
		Trim:   trim,
	}
}

// split funds a new shard of a replicated limit with half of what its donor holds:
// doublings halve shards, and the donor is the nearest shard that this one is a
// half of. A fresh balance would stay for ever, since each shard may hold the
// whole capacity.
func (l *Limit) split(siblings []*Bucket, shard, count int) Funding {
	f := Funding{Limit: l.Name, Source: Move}
	for of := count / 2; of >= 1; of /= 2 {
		at := slices.IndexFunc(siblings, func(b *Bucket) bool { return b.Shard == shard%of && b.Shard != shard && b.Limit(l.Name) != nil })
		if at < 0 {
			continue
		}
		donor := siblings[at]
		given := donor.Limit(l.Name)
		f.Donor, f.Amount = donor.Shard, max(0, given.Balance/2)
		f.Guard = Guard{ShardCount: donor.ShardCount, Legacy: given.Grant == nil, Grant: given.GrantCount(donor.ShardCount, given.Base.Capacity)}
		break
	}
	return f
}

// donorOf returns the sibling of the current period whose grant covers the slot.
// The largest grant count wins, as the closest fit; on a tie the lowest index
// does.
func donorOf(name string, siblings []*Bucket, slot int, capacity, now int64) *Bucket {
	var best *Bucket
	var bestGrant int
	for _, sibling := range siblings {
		limit := sibling.Limit(name)
		if limit == nil || sibling.Shard == slot || !limit.IsQuota() || !limit.Current(sibling.RefilledAt, now) {
			continue
		}
		grant := limit.GrantCount(sibling.ShardCount, capacity)
		if !Covers(sibling.Shard, grant, slot) {
			continue
		}
		if best == nil || grant > bestGrant || grant == bestGrant && sibling.Shard < best.Shard {
			best, bestGrant = sibling, grant
		}
	}
	return best
}

func guardOf(donor *Bucket, limit *Limit, capacity, now int64) Guard {
	guard := Guard{
		Grant:      limit.GrantCount(donor.ShardCount, capacity),
		Legacy:     limit.Grant == nil,
		ShardCount: donor.ShardCount,
	}
	if limit.Kind() == Session {
		guard.SessionOnly, guard.Applied = true, limit.Window.Applied
		return guard
	}
	guard.RefilledAt, _ = limit.Resets.Prev(now)
	return guard
}

// Regrants reports whether a limit that got other terms holds allowance that was
// granted in no period of theirs. Either it dripped before, or its grant had
// expired by the old terms and is current by the new ones. Such shards were not
// granted disjoint slots. So each counts as granted its own slot at its count
// then, and an operator's top-up ends.
//
// before is the bucket as it was. A quota whose old terms cannot be read keeps its
// grant.
func (b *Bucket) Regrants(name string, before *Bucket, now int64) bool {
	was, is := before.Limit(name), b.Limit(name)
	switch {
	case was == nil || is == nil || !is.IsQuota():
		return false
	case was.IsQuota():
		return !was.Current(before.RefilledAt, now) && is.Current(b.RefilledAt, now)
	}
	return !was.mayBeQuota(before)
}

// FrozenGrants returns the grant counts to store on a bucket before its shard
// count rises: one for each legacy quota, by limit name. Without them the higher
// count would shrink what the grants are read to cover. Where the schedule cannot
// be read, the base capacity sizes the grant.
func FrozenGrants(b *Bucket, now int64) []Freeze {
	var freezes []Freeze
	for i := range b.Limits {
		limit := &b.Limits[i]
		if limit.Grant != nil || !limit.IsQuota() && !limit.mayBeQuota(b) {
			continue
		}
		params, err := limit.Effective(now)
		if err != nil {
			params = limit.Base
		}
		freezes = append(freezes, Freeze{limit.Name, limit.GrantCount(b.ShardCount, params.Capacity)})
	}
	return freezes
}

// mayBeQuota reports whether a limit has a quota's refill on a bucket whose
// schedules cannot be read, so that its kind is unknown. A grant count on another
// limit does no harm: nothing reads it.
func (l *Limit) mayBeQuota(b *Bucket) bool {
	return b.Broken != nil && l.Base.Refill == 0 && l.Kind() != Meter
}

// Freeze is a grant count to store where there is none.
type Freeze struct {
	Limit string
	Grant int
}

// String renders the funding for a report.
func (f Funding) String() string {
	if f.Source == Move {
		return fmt.Sprintf("%s: %d moved off shard %d", f.Limit, f.Amount, f.Donor)
	}
	return fmt.Sprintf("%s: %d (%s)", f.Limit, f.Amount, f.Source)
}
