package aggregator

import (
	"context"
	"slices"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// Reason says why a shard was not created ahead of use. Declining is always
// safe: the client creates the shard when it first draws it.
type Reason string

// The reasons of a decline.
const (
	NoShardZero   Reason = "shard 0 is gone or unreadable"
	Unreadable    Reason = "siblings unreadable"
	BadCount      Reason = "shard count is not a power of two up to 32"
	Overtaken     Reason = "overtaken by a later doubling"
	PinMoved      Reason = "pinned shard count moved"
	BadSchedule   Reason = "undecodable schedule"
	Disabled      Reason = "bucket is disabled"
	NoWindow      Reason = "no live applied session window"
	DonorChanged  Reason = "donor changed"
	AlreadyExists Reason = "already there"
)

// Reasons returns every reason of a decline.
func Reasons() []Reason {
	return []Reason{
		NoShardZero, Unreadable, BadCount, Overtaken, PinMoved, BadSchedule, Disabled, NoWindow, DonorChanged, AlreadyExists,
	}
}

// doubling is one raise of shard 0's count that the batch saw.
type doubling struct {
	group    table.Group
	from, to int
	written  int64          // epoch ms
	legacy   []quota.Freeze // the grants of shard 0's legacy quotas, as read before its count rose
}

func (r *run) doublings() []task {
	var tasks []task
	for _, b := range r.buckets {
		if d, index, ok := b.doubled(); ok {
			tasks = append(tasks, task{StepShard, index, d})
		}
	}
	return tasks
}

// do raises the siblings and creates the shards that are missing.
func (d doubling) do(ctx context.Context, r *run) error {
	if !quota.IsCount(d.to) {
		r.report.decline(d.group, d.from, d.from, BadCount)
		return nil
	}
	if err := freeze(ctx, r, d.group.At(0), d.legacy); err != nil {
		return err
	}
	family, err := d.raise(ctx, r)
	if err != nil {
		return err
	}
	for shard := d.from; shard < d.to; shard++ {
		switch reason, err := d.ensure(ctx, r, family, shard); {
		case err != nil:
			return err
		case reason == AlreadyExists || reason == DonorChanged:
			r.report.decline(d.group, shard, shard, reason)
		case reason != "":
			r.report.decline(d.group, shard, d.to-1, reason)
			return nil
		}
	}
	return nil
}

// freeze stores the grant counts of legacy quotas on shard 0, if there are any.
// Read at its new count, a balance that is half spent would be taken for a
// smaller grant, and the rest of it be granted again.
func freeze(ctx context.Context, r *run, zero table.Key, legacy []quota.Freeze) error {
	if len(legacy) == 0 {
		return nil
	}
	return r.Store.Freeze(ctx, zero, legacy)
}

// family is all shards of a group by index, each at the doubling's count.
type family []table.Sibling

func (d doubling) raise(ctx context.Context, r *run) (family, error) {
	siblings, err := r.Store.RaiseAndRead(ctx, d.group, d.to, r.clock(d.written))
	if err != nil {
		return nil, err
	}
	for shard, sibling := range siblings {
		if sibling.Raised {
			r.report.raise(d.group.At(shard), d.to)
		}
	}
	return siblings, nil
}

// ensure creates one shard unless it is there, and says why not, "" where it
// did. Where a donor changed under the plan, the siblings are read once more.
func (d doubling) ensure(ctx context.Context, r *run, f family, shard int) (Reason, error) {
	for attempt := range 2 {
		if attempt > 0 {
			again, err := d.raise(ctx, r)
			if err != nil {
				return "", err
			}
			copy(f, again)
		}
		now := f.now(r.clock(d.written))
		if reason := f.refuses(d.to, now); reason != "" {
			return reason, nil
		}
		if f[shard].Bucket != nil {
			return AlreadyExists, nil
		}
		outcome, err := d.create(ctx, r, f, shard, now)
		if err != nil || outcome != table.DonorChanged {
			return outcomeReasons[outcome], err
		}
	}
	return DonorChanged, nil
}

var outcomeReasons = map[table.CreationOutcome]Reason{
	table.Exists:   AlreadyExists,
	table.PinMoved: PinMoved,
}

// now is when a shard is created: at the time of the batch, but not before the
// last pass of any sibling. A batch's time is that of its beginning, and an edge
// may have passed since. Funded before it, a shard would be due for a restore on
// top of what a sibling moved to it after it.
func (f family) now(clock int64) int64 {
	now := clock
	for _, sibling := range f {
		if sibling.Bucket != nil {
			now = max(now, sibling.Bucket.RefilledAt)
		}
	}
	return now
}

// refuses says why no shard can be created at a count, "" where one can.
func (f family) refuses(count int, now int64) Reason {
	zero := f[0].Bucket
	switch {
	case zero == nil:
		return NoShardZero
	case zero.ShardCount > count:
		return Overtaken
	case zero.ShardCount < count:
		return PinMoved
	case slices.ContainsFunc(f, func(s table.Sibling) bool { return s.Broken != nil }):
		return Unreadable
	case zero.Disabled:
		return Disabled
	case zero.Readable(now) != nil || slices.ContainsFunc(f, unscheduled):
		return BadSchedule
	case !zero.WindowsLive(now):
		return NoWindow
	}
	return ""
}

// unscheduled reports whether a shard's schedules cannot be read. What its grant
// covers is then unknown.
func unscheduled(s table.Sibling) bool { return s.Bucket != nil && s.Bucket.Broken != nil }

// create funds and puts one shard. A created shard joins the family, and what
// it was moved is gone from its donors.
func (d doubling) create(ctx context.Context, r *run, f family, shard int, now int64) (table.CreationOutcome, error) {
	zero := f[0].Bucket
	fundings, err := quota.Fund(&zero.Bucket, table.Buckets(f), shard, d.to, now)
	if err != nil {
		return 0, err
	}
	creation := table.Creation{
		Bucket:      table.NewShard(zero, shard, d.to, now, fundings),
		Moves:       quota.Moves(fundings),
		ConfigAttrs: zero.ConfigAttrs(),
	}
	outcome, err := r.Store.Create(ctx, creation)
	if err != nil || outcome != table.Created {
		return outcome, err
	}
	r.report.created(d.group.At(shard), d.to, fundings)
	f[shard].Bucket = creation.Bucket
	for _, move := range creation.Moves {
		f[move.Donor].Bucket.Limit(move.Limit).Balance -= move.Amount
	}
	return outcome, nil
}
