package limits

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// checkRoom returns an error where DynamoDB would not take the largest writes of a
// bucket with the limits. It wraps ErrLimit and table.ErrRequest, and names the first
// limit that has no room.
func checkRoom(limits []Limit) error {
	if tooLarge(limits) == nil {
		return nil
	}
	for n := range limits {
		if err := tooLarge(limits[:n+1]); err != nil {
			return fmt.Errorf("%w %.80q: one too many for one bucket: %w", ErrLimit, limits[n].Name, err)
		}
	}
	return nil
}

// bucketOf returns a bucket that has the limits.
func bucketOf(limits []Limit) (*table.Bucket, error) {
	item := table.EmptyBucket(table.Group{Namespace: "n", Entity: "e", Resource: "r"}.At(0), 1, 1)
	item.Set(configAttrs(limits, 1))
	for _, l := range limits {
		item[table.Attr(l.Name, table.FieldBalance)], item[table.Attr(l.Name, table.FieldConsumed)] = table.Int(0), table.Int(0)
	}
	return table.DecodeBucket(item)
}

// fewLimits always have room, but for what they take on the item.
const fewLimits = 10

// tooLarge returns the error of a write of the limits' bucket that is too large.
func tooLarge(limits []Limit) error {
	b, err := bucketOf(limits)
	if err == nil {
		err = table.CheckShards(b.Item)
	}
	if err != nil || len(limits) < fewLimits {
		return err
	}
	writes := largest(b)
	for _, name := range slices.Sorted(maps.Keys(writes)) {
		if err := writes[name](); err != nil {
			return err
		}
	}
	return nil
}

// nowhere is a DB that carries nothing out.
type nowhere struct{ table.DB }

func (nowhere) Do(context.Context, *table.Write) (r table.WriteResult, err error) { return r, nil }
func (nowhere) Transact(context.Context, *table.Transaction) (r table.TransactResult, err error) {
	return r, nil
}

// largest returns the writes of the bucket that have least room for limits, as large
// as they can become. A test shows that the others have more.
func largest(b *table.Bucket) map[string]func() error {
	b = untold(b)
	amounts := map[string]int64{}
	for i := range b.Limits {
		if name := b.Limits[i].Name; name != quota.WriteMeter {
			amounts[name] = 1
		}
	}
	t, ctx := table.Table{DB: table.Strict(nowhere{})}, context.Background()
	return map[string]func() error{
		"pass":   func() error { _, err := t.Pass(ctx, b, largestPass(b, true)); return err },
		"use":    func() error { use := largestUse(b); _, err := t.Use(ctx, use.Bucket, use.Use, use.Expires); return err },
		"charge": func() error { _, err := t.Charge(ctx, b.Key, table.FastCharge{Amounts: amounts, Now: 1}); return err },
		"create": func() error { _, err := t.Create(ctx, largestCreation(b)); return err },
		"amend": func() error {
			for _, part := range parts(b, largestAmendment(b)) {
				if _, err := t.Amend(ctx, b.Key.PK(), table.StateSK, part); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// untold is the bucket when its writes have to hold most: an operator has just
// changed it, nothing is consumed, and no grant is recorded.
func untold(b *table.Bucket) *table.Bucket {
	c := *b
	c.Limits = slices.Clone(b.Limits)
	for i := range c.Limits {
		c.Limits[i].Consumed, c.Limits[i].Grant = 0, nil
	}
	c.ShardCount, c.RefilledAt, c.ValidUntil = 1, 1, new(int64)
	return &c
}

// largestPass does to every limit all that a pass can do: the aggregator's exact one,
// or a client's, which opens windows.
func largestPass(b *table.Bucket, exact bool) *quota.Pass {
	any := new(int64(1))
	pass := &quota.Pass{
		RefilledAt: 2, ExpectRefilledAt: 1, ExpectValidUntil: b.ValidUntil, ValidUntil: any, ShardCount: quota.MaxShards, Exact: exact,
	}
	for i := range b.Limits {
		l := &b.Limits[i]
		change := quota.Change{Limit: l.Name, Delta: 2, Max: any, Restore: l.IsQuota()}
		if l.Kind() == quota.Session {
			change.Applied = any
			if exact {
				change.Roll = any
			} else {
				change.Open = &quota.Open{Start: 1, Over: any}
			}
		}
		pass.Changes = append(pass.Changes, change)
	}
	return pass
}

func largestUse(b *table.Bucket) table.PlannedUse {
	use := &quota.Use{Pass: largestPass(b, false)}
	for i := range b.Limits {
		use.Charges = append(use.Charges, quota.Charge{Limit: b.Limits[i].Name, Consumed: 1, Debit: 1, Least: new(int64(1))})
	}
	expiring := *b
	expiring.Item = b.Item.Clone()
	expiring.Item[table.AttrTTL] = table.Int(1)
	return table.PlannedUse{Bucket: &expiring, Use: use, Expires: 1}
}

// largestCreation moves every quota off shard 0, which also carries the pin.
func largestCreation(b *table.Bucket) table.Creation {
	zero := untold(b)
	zero.Key.Shard, zero.ShardCount = 0, 2
	creation := table.Creation{Bucket: &table.Bucket{Key: b.Key.At(1), Item: b.Item, Bucket: zero.Bucket}, ConfigAttrs: zero.ConfigAttrs()}
	for i := range zero.Limits {
		l := &zero.Limits[i]
		guard := quota.Guard{Grant: 1, Legacy: true, ShardCount: 2, RefilledAt: 1, SessionOnly: l.Kind() == quota.Session}
		switch {
		case l.Replicates():
			guard = quota.Guard{Grant: 2, ShardCount: 2}
		case !l.IsQuota():
			continue
		}
		creation.Moves = append(creation.Moves, quota.Funding{Limit: l.Name, Amount: 1, Guard: guard})
	}
	return creation
}

// largestAmendment changes everything about every limit that depends on the bucket's
// time zone, and the zone: none of these can change before the others.
func largestAmendment(b *table.Bucket) table.Amendment {
	a := table.Amendment{
		Set:    table.Item{table.AttrZone: table.S("2"), table.AttrValidUntil: table.Int(0)},
		Expect: []table.NamedValue{{Name: table.AttrZone}, {Name: table.AttrShardCount, Value: table.Int(1)}},
	}
	for i := range b.Limits {
		l := &b.Limits[i]
		if l.Schedule.Empty() && l.Resets.Empty() {
			continue
		}
		fields := map[table.Field]bool{ // whether the limit has it before
			table.FieldCapacity: true, table.FieldRefill: true, table.FieldPeriod: true,
			table.FieldSchedule: false, table.FieldResets: false, table.FieldDivision: false,
		}
		if l.IsQuota() {
			fields[table.FieldGrant], fields[table.FieldTopUp] = false, true
		}
		for field, there := range fields {
			name, expected := table.Attr(l.Name, field), table.NamedValue{Name: table.Attr(l.Name, field)}
			if there {
				expected.Value = table.S("1")
			}
			a.Set[name] = table.S("2")
			a.Expect = append(a.Expect, expected)
		}
	}
	return a
}
