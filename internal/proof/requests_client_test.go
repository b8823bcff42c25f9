package proof_test

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/shardquota/shardquota/internal/explore"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// write is a request that changes a bucket if it can, and is told of its item.
// text says what is asked.
func (r *requests) write(key table.Key, text func() string, do func(w *world) (table.WriteResult, error)) (table.WriteResult, error) {
	var result table.WriteResult
	var own error
	err := r.request(func() explore.Digest {
		w := r.w.of(key.Group)
		result, own = do(w)
		if r.told() {
			r.say("%s, %s", text(), outcome(result.Applied))
		}
		d := explore.Digest(0).Add(flag(result.Applied))
		if s := w.shards[key.Shard]; s != nil {
			d = d.Add(uint64(s.digest))
		}
		return d
	})
	return pick(result, own, err)
}

func (r *requests) Charge(ctx context.Context, key table.Key, take table.FastCharge) (table.WriteResult, error) {
	text := func() string { return fmt.Sprintf("takes %s of %s", tokens(take.Amounts["q"]), shardName(key)) }
	return r.write(key, text, func(w *world) (table.WriteResult, error) {
		taken, err := w.table.Charge(ctx, key, take)
		if taken.Applied {
			before, after := w.wrote(key.Shard)
			w.books.took(r.user, before, after, take.Now)
		}
		return taken, err
	})
}

func (r *requests) Use(ctx context.Context, b *table.Bucket, use *quota.Use, expires int64) (table.WriteResult, error) {
	text := func() string {
		return fmt.Sprintf("uses %s at %d (%s, rf %s) for %s", shardName(b.Key), use.ShardCount, changes(use.Pass), clock(use.RefilledAt), takes(use))
	}
	return r.write(b.Key, text, func(w *world) (table.WriteResult, error) {
		taken, err := w.table.Use(ctx, b, use, expires)
		if taken.Applied {
			before, after := w.wrote(b.Shard)
			passed := untaken(after, use)
			w.books.passed(b, before, passed, use.Pass)
			w.books.took(r.user, passed, after, use.RefilledAt)
		}
		return taken, err
	})
}

func (r *requests) UseAll(ctx context.Context, uses []table.PlannedUse) (applied bool, err error) {
	var own error
	err = r.request(func() explore.Digest {
		w := r.w.of(uses[0].Bucket.Key.Group)
		applied, own = w.table.UseAll(ctx, uses)
		digest := explore.Digest(0).Add(flag(applied))
		var texts []string
		for _, u := range uses {
			before, after := w.wrote(u.Bucket.Shard)
			digest = digest.Add(uint64(w.shards[u.Bucket.Shard].digest))
			texts = append(texts, fmt.Sprintf("%s of %s at %d (%s)", takes(u.Use), shardName(u.Bucket.Key), u.Use.ShardCount, changes(u.Use.Pass)))
			if applied {
				passed := untaken(after, u.Use)
				w.books.passed(u.Bucket, before, passed, u.Use.Pass)
				w.books.took(r.user, passed, after, u.Use.RefilledAt)
			}
		}
		r.say("gathers %s, %s", strings.Join(texts, " and "), outcome(applied))
		return digest
	})
	return pick(applied, own, err)
}

// untaken is a bucket as a use's pass alone would have left it.
func untaken(after *table.Bucket, use *quota.Use) *table.Bucket {
	b := *after
	b.Limits = slices.Clone(b.Limits)
	for _, take := range use.Charges {
		l := b.Limit(take.Limit)
		l.Balance, l.Consumed = l.Balance+take.Debit, l.Consumed-take.Consumed
	}
	return &b
}

func takes(use *quota.Use) string {
	for _, take := range use.Charges {
		if take.Limit == "q" {
			return tokens(take.Consumed)
		}
	}
	return "nothing"
}

func (r *requests) Reconcile(ctx context.Context, b *table.Bucket, corrections []quota.Adjustment) (table.WriteResult, error) {
	text := func() string {
		for _, c := range corrections {
			if c.Limit == "q" {
				return fmt.Sprintf("settles %s of %s, %s on its balance", tokens(c.Consumed), shardName(b.Key), tokens(c.Balance))
			}
		}
		return "settles nothing of " + shardName(b.Key)
	}
	return r.write(b.Key, text, func(w *world) (table.WriteResult, error) {
		taken, err := w.table.Reconcile(ctx, b, corrections)
		if taken.Applied {
			before, after := w.wrote(b.Shard)
			w.books.settled(r.user, before, after)
		}
		return taken, err
	})
}

func (r *requests) PropagateWindow(ctx context.Context, key table.Key, window table.OpenedWindow) (told bool, err error) {
	text := func() string { return fmt.Sprintf("tells %s of the window of %s", shardName(key), clock(window.Start)) }
	_, err = r.write(key, text, func(w *world) (taken table.WriteResult, err error) {
		taken.Applied, err = w.table.PropagateWindow(ctx, key, window)
		w.wrote(key.Shard)
		told = taken.Applied
		return taken, err
	})
	return told, err
}

// anywhere is a request about an item that may be a bucket or another one.
func (r *requests) anywhere(pk, sk, verb string, do func() (applied bool, err error)) error {
	var own error
	err := r.request(func() explore.Digest {
		applied, err := do()
		own = err
		r.w.wroteItem(pk, sk)
		r.say("%s %s, %s", verb, itemName(pk, sk), outcome(applied))
		return explore.Digest(0).Add(flag(applied), uint64(digestOf(r.w.mem.Get(pk, sk))))
	})
	_, err = pick(0, own, err)
	return err
}

func (r *requests) Insert(ctx context.Context, item table.Item) (inserted bool, err error) {
	pk, sk := item.Key()
	err = r.anywhere(pk, sk, "inserts", func() (bool, error) {
		inserted, err = r.w.table.Insert(ctx, item)
		return inserted, err
	})
	return inserted && err == nil, err
}

func (r *requests) Amend(ctx context.Context, pk, sk string, amendment table.Amendment) (amended table.WriteResult, err error) {
	err = r.anywhere(pk, sk, "amends", func() (bool, error) {
		amended, err = r.w.table.Amend(ctx, pk, sk, amendment)
		return amended.Applied, err
	})
	return pick(amended, nil, err)
}

func (r *requests) Replace(ctx context.Context, item table.Item) error {
	pk, sk := item.Key()
	return r.anywhere(pk, sk, "replaces", func() (bool, error) { return true, r.w.table.Replace(ctx, item) })
}

func (r *requests) Remove(ctx context.Context, pk, sk string, expect ...table.NamedValue) (removed bool, err error) {
	err = r.anywhere(pk, sk, "removes", func() (bool, error) {
		removed, err = r.w.table.Remove(ctx, pk, sk, expect...)
		return removed, err
	})
	return removed && err == nil, err
}

func (r *requests) Items(ctx context.Context, keys []table.ItemKey) (items []table.Item, err error) {
	var own error
	err = r.request(func() explore.Digest {
		items, own = r.w.table.Items(ctx, keys)
		r.say("reads %d items, the first %s", len(keys), itemName(keys[0].PK, keys[0].SK))
		var d explore.Digest
		for _, item := range items {
			d = d.Add(uint64(digestOf(item)))
		}
		return d
	})
	return pick(items, own, err)
}

func (r *requests) Find(ctx context.Context, scope table.Scope) (keys []table.Key, err error) {
	var own error
	err = r.request(func() explore.Digest {
		keys, own = r.w.table.Find(ctx, scope)
		r.say("finds %d shards", len(keys))
		var d explore.Digest
		for _, key := range keys {
			d = d.Text(key.PK())
		}
		return d
	})
	return pick(keys, own, err)
}

func (r *requests) FindLevels(ctx context.Context, namespace, resource string) (keys []table.ItemKey, err error) {
	var own error
	err = r.request(func() explore.Digest {
		keys, own = r.w.table.FindLevels(ctx, namespace, resource)
		r.say("finds %d levels", len(keys))
		return explore.Digest(uint64(len(keys)))
	})
	return pick(keys, own, err)
}

// wroteItem looks at an item after a write.
func (w *world) wroteItem(pk, sk string) {
	if key, err := table.ParseKey(pk); err == nil && sk == table.StateSK {
		of := w.of(key.Group)
		if before, after := of.wrote(key.Shard); before == nil && after != nil {
			of.books.founded(after)
		}
		return
	}
	w.others[table.ItemKey{PK: pk, SK: sk}] = digestOf(w.mem.Get(pk, sk))
}

// shardName and itemName are how a schedule calls them.
func shardName(key table.Key) string {
	if key.Group != acme {
		return fmt.Sprintf("the parent's shard %d", key.Shard)
	}
	return fmt.Sprintf("shard %d", key.Shard)
}

func itemName(pk, sk string) string {
	if key, err := table.ParseKey(pk); err == nil && sk == table.StateSK {
		return shardName(key)
	}
	return pk[len(acme.Namespace)+1:] + " " + sk
}
