package proof_test

import (
	"context"
	"slices"

	"github.com/shardquota/shardquota/internal/explore"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// requests is the table to one actor: table.Table itself, over steps. It notes for
// the books what a write was planned for. A mutant changes the plan here.
type requests struct {
	*table.Table
	db   *steps
	w    *world
	user *user // whose requests these are; nil where it takes no tokens with a Limiter
}

var _ table.Client = (*requests)(nil)

// requests returns the table to an actor, or, where a is nil, to somebody who is
// called name.
func (w *world) requests(a *explore.Actor, name string, user *user) *requests {
	db := &steps{w: w, a: a, name: name}
	return &requests{Table: &table.Table{DB: db, Raises: 1}, db: db, w: w, user: user}
}

// step is a request that is not of a table.DB.
func (r *requests) step(do func() explore.Digest) { _ = r.db.request(context.Background(), do) }

// look is a read by which the reader notes the time, too.
func (r *requests) look(shard int, skew int64) (b *table.Bucket, now int64) {
	r.step(func() explore.Digest {
		var digest explore.Digest
		b, digest = r.w.read(shard)
		now = r.w.now + skew
		if r.db.told() {
			r.db.say("reads %s at %s", shardBrief(acme.At(shard), b), clock(now))
		}
		return digest.Add(uint64(now))
	})
	return b, now
}

func (r *requests) AddUsage(ctx context.Context, usage table.Usage) (table.UsageResult, error) {
	if r.w.mutant.usage != nil {
		r.w.mutant.usage(&usage)
	}
	return r.Table.AddUsage(ctx, usage)
}

func (r *requests) Pass(ctx context.Context, b *table.Bucket, pass *quota.Pass) (table.PassResult, error) {
	if r.w.mutant.pass != nil {
		pass = r.w.mutant.passed(pass)
	}
	r.db.book = func(changes []change) {
		r.w.of(b.Key.Group).books.passed(b, changes[0].before, changes[0].after, pass)
	}
	return r.Table.Pass(ctx, b, pass)
}

// passed is a pass as the mutant writes it.
func (m mutant) passed(pass *quota.Pass) *quota.Pass {
	other := *pass
	other.Changes = slices.Clone(pass.Changes)
	m.pass(&other)
	return &other
}

func (r *requests) Create(ctx context.Context, c table.Creation) (table.CreationOutcome, error) {
	if r.w.mutant.creation != nil {
		c.Moves = slices.Clone(c.Moves)
		r.w.mutant.creation(&c)
	}
	r.db.book = func(changes []change) {
		books := r.w.of(c.Bucket.Key.Group).books
		books.created(r.w.of(c.Bucket.Key.Group).at(0), c, changes[0], changes[1:1+len(c.Donors())])
		if r.user != nil {
			books.whole(c)
		}
	}
	return r.Table.Create(ctx, c)
}

func (r *requests) RaiseAndRead(ctx context.Context, group table.Group, n int, now int64) ([]table.Sibling, error) {
	raise := r.Table.RaiseAndRead
	if r.w.mutant.raise != nil {
		raise = func(ctx context.Context, group table.Group, n int, now int64) ([]table.Sibling, error) {
			return r.w.mutant.raise(r.Table, group, n, now)
		}
	}
	siblings, err := raise(ctx, group, n, now)
	if r.db.a != nil {
		r.db.a.Live()
	}
	return siblings, err
}

func (r *requests) Charge(ctx context.Context, key table.Key, charge table.FastCharge) (table.WriteResult, error) {
	r.db.book = func(changes []change) {
		r.w.of(key.Group).books.took(r.user, changes[0].before, changes[0].after, charge.Now)
	}
	return r.Table.Charge(ctx, key, charge)
}

func (r *requests) Use(ctx context.Context, b *table.Bucket, use *quota.Use) (table.WriteResult, error) {
	r.db.book = func(changes []change) { r.used(b, use, changes[0]) }
	return r.Table.Use(ctx, b, use)
}

func (r *requests) UseAll(ctx context.Context, uses []table.PlannedUse) (applied bool, err error) {
	r.db.book = func(changes []change) {
		for i, u := range uses {
			r.used(u.Bucket, u.Use, changes[i])
		}
	}
	return r.Table.UseAll(ctx, uses)
}

// used notes a use: a pass, and what was taken after it.
func (r *requests) used(image *table.Bucket, use *quota.Use, c change) {
	books, passed := r.w.of(image.Key.Group).books, untaken(c.after, use)
	books.passed(image, c.before, passed, use.Pass)
	books.took(r.user, passed, c.after, use.RefilledAt)
}

// untaken is a bucket as a use's pass alone would have left it.
func untaken(after *table.Bucket, use *quota.Use) *table.Bucket {
	b := *after
	b.Limits = slices.Clone(b.Limits)
	for _, charge := range use.Charges {
		l := b.Limit(charge.Limit)
		l.Balance, l.Consumed = l.Balance+charge.Debit, l.Consumed-charge.Consumed
	}
	return &b
}

func (r *requests) Reconcile(ctx context.Context, b *table.Bucket, adjustments []quota.Adjustment) (table.WriteResult, error) {
	if r.w.mutant.adjust != nil {
		adjustments = slices.Clone(adjustments)
		r.w.mutant.adjust(adjustments)
	}
	r.db.book = func(changes []change) {
		r.w.of(b.Key.Group).books.settled(r.user, changes[0].before, changes[0].after)
	}
	return r.Table.Reconcile(ctx, b, adjustments)
}

func (r *requests) Insert(ctx context.Context, item table.Item) (inserted bool, err error) {
	r.db.book = func(changes []change) {
		if c := changes[0]; c.before == nil && c.after != nil {
			r.w.of(c.after.Key.Group).books.founded(c.after)
		}
	}
	return r.Table.Insert(ctx, item)
}
