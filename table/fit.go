package table

import (
	"fmt"
	"slices"

	"github.com/shardquota/shardquota/quota"
)

// CheckLimits returns why the limits of a bucket cannot share one: some write of
// theirs, at its largest, is none that DynamoDB takes. b is the bucket as it would
// be created. The error wraps ErrRequest and names the first limit that has no room.
func CheckLimits(b *Bucket) error {
	if tooLarge(b) == nil {
		return nil
	}
	for n := range b.Limits {
		fewer := *b
		fewer.Limits = b.Limits[:n+1]
		if err := tooLarge(&fewer); err != nil {
			return fmt.Errorf("limit %s is one too many for one bucket: %w", shortened(b.Limits[n].Name), err)
		}
	}
	return nil
}

// fewLimits always have room, but for what they take on the item.
const fewLimits = 10

// tooLarge returns the error of a write of the bucket that is too large.
func tooLarge(b *Bucket) error {
	// A pooled use and a creation may write every shard in one transaction.
	size := within((quota.MaxShards+1)*b.Item.Size(), maxTransactionSize, "bytes of all shards of a group")
	if size != nil || len(b.Limits) <= fewLimits {
		return size
	}
	for _, w := range largest(b) {
		if err := w.Check(); err != nil {
			return fmt.Errorf("%s: %w", w.Operation, err)
		}
	}
	creation := largestCreation(b)
	if err := creation.Check(); err != nil {
		return fmt.Errorf("%s: %w", creation.Operation, err)
	}
	return nil
}

// largest returns the writes of the bucket that have least room for limits, as large
// as they can become. A test shows that the others have more.
func largest(b *Bucket) []*Write {
	b = untold(b)
	amounts := map[string]int64{}
	for i := range b.Limits {
		if name := b.Limits[i].Name; name != quota.WriteMeter {
			amounts[name] = 1
		}
	}
	writes := []*Write{
		passWrite("pass", b, largestPass(b, true), nil),
		useWrite(largestUse(b)),
		chargeWrite(b.Key, FastCharge{Amounts: amounts, Now: 1}),
	}
	for _, part := range b.Parts(largestAmendment(b)) {
		writes = append(writes, amendWrite(b.Key.PK(), StateSK, part))
	}
	return writes
}

// untold is the bucket when its writes have to hold most: an operator has just
// changed it, nothing is consumed, and no grant is recorded.
func untold(b *Bucket) *Bucket {
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
func largestPass(b *Bucket, exact bool) *quota.Pass {
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

func largestUse(b *Bucket) PlannedUse {
	use := &quota.Use{Pass: largestPass(b, false)}
	for i := range b.Limits {
		use.Charges = append(use.Charges, quota.Charge{Limit: b.Limits[i].Name, Consumed: 1, Debit: 1, Least: new(int64(1))})
	}
	expiring := *b
	expiring.Item = b.Item.Clone()
	expiring.Item[AttrTTL] = Int(1)
	return PlannedUse{&expiring, use, 1}
}

// largestCreation moves every quota off shard 0, which also carries the pin.
func largestCreation(b *Bucket) *Transaction {
	zero := untold(b)
	zero.Key.Shard, zero.ShardCount = 0, 2
	creation := Creation{Bucket: &Bucket{Key: b.Key.At(1), Item: b.Item, Bucket: zero.Bucket}, ConfigAttrs: zero.ConfigAttrs()}
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
	return creation.transaction()
}

// largestAmendment changes everything about every limit that depends on the bucket's
// time zone, and the zone: none of these can change before the others.
func largestAmendment(b *Bucket) Amendment {
	a := Amendment{Set: Item{AttrZone: S("UTC"), AttrValidUntil: Int(0)}, Expect: []NamedValue{{AttrZone, nil}, {AttrShardCount, Int(1)}}}
	for i := range b.Limits {
		l := &b.Limits[i]
		if l.Schedule.Empty() && l.Resets.Empty() {
			continue
		}
		fields := map[Field]bool{ // whether the limit has it before
			FieldCapacity: true, FieldRefill: true, FieldPeriod: true, FieldSchedule: false, FieldResets: false, FieldDivision: false,
		}
		if l.IsQuota() {
			fields[FieldGrant], fields[FieldTopUp] = false, true
		}
		for field, there := range fields {
			name, expected := Attr(l.Name, field), NamedValue{Name: Attr(l.Name, field)}
			if there {
				expected.Value = S("1")
			}
			a.Set[name] = S("2")
			a.Expect = append(a.Expect, expected)
		}
	}
	return a
}
