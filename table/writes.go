package table

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/quota"
)

// Every conditional write of the layout is built here, once.

// State is the key of a bucket's item.
func (k Key) State() ItemKey { return ItemKey{k.PK(), StateSK} }

// update is a write of a bucket that exists.
func update(operation string, key Key) *Write {
	return &Write{Operation: operation, Key: key.State(), Require: []Condition{exists(AttrPK)}}
}

// passWrite writes a pass, and takes debits off the balances that it changes.
func passWrite(operation string, b *Bucket, pass *quota.Pass, debits map[string]int64) *Write {
	w := update(operation, b.Key)
	w.require(
		reads(AttrRefilledAt, pass.ExpectRefilledAt),
		asInt(AttrValidUntil, pass.ExpectValidUntil),
		countAtMost(pass.ShardCount))
	w.setInt(AttrRefilledAt, max(pass.RefilledAt, pass.ExpectRefilledAt))
	switch {
	case pass.ValidUntil != nil:
		w.setInt(AttrValidUntil, *pass.ValidUntil)
	case pass.Unbound:
		w.remove(AttrValidUntil)
	}
	if pass.ValidUntil != nil || pass.Unbound {
		w.require(as(AttrSchedule, b.Item[AttrSchedule]))
	}
	if ConfigChanged(b) {
		w.hold(b.PassConfigAttrs())
	}
	for _, change := range pass.Changes {
		w.change(change, change.Delta-debits[change.Limit], pass.ShardCount)
		if Holds(pass, change) {
			w.require(
				compareInt(Equals, Attr(change.Limit, FieldBalance), change.Read),
				reads(Attr(change.Limit, FieldConsumed), b.Limit(change.Limit).Consumed))
		}
	}
	return w
}

// change does to one limit what a pass does, and adds delta to its balance.
func (w *Write) change(change quota.Change, delta int64, count int) {
	balance, start := Attr(change.Limit, FieldBalance), Attr(change.Limit, FieldStart)
	if delta != 0 {
		w.addInt(balance, delta)
	}
	if change.Restore {
		w.setInt(Attr(change.Limit, FieldGrant), int64(count))
		w.remove(Attr(change.Limit, FieldTopUp))
	}
	if change.Open != nil {
		w.require(asInt(start, change.Open.Over))
		w.setInt(start, change.Open.Start)
	}
	if change.Applied != nil {
		w.setInt(Attr(change.Limit, FieldApplied), *change.Applied)
	}
	if change.Max != nil {
		w.require(compareInt(AtMost, balance, *change.Max))
	}
	if change.Roll != nil {
		w.require(compareInt(Equals, start, *change.Roll))
	}
}

// hold requires attributes to be as read.
func (w *Write) hold(attrs []NamedValue) {
	for _, attr := range attrs {
		w.require(as(attr.Name, attr.Value))
	}
}

// charge adds to a limit's total consumed and to its balance.
func (w *Write) charge(limit string, consumed, balance int64) {
	w.addInt(Attr(limit, FieldConsumed), consumed)
	if balance != 0 {
		w.addInt(Attr(limit, FieldBalance), balance)
	}
}

// useWrite writes a pass and the charges of a use in one. An update adds to an
// attribute only once, so a charge of a balance that the pass changes goes with
// the change.
func useWrite(u PlannedUse) *Write {
	debits := map[string]int64{}
	for _, charge := range u.Use.Charges {
		debits[charge.Limit] = charge.Debit
	}
	w := passWrite("use", u.Bucket, u.Use.Pass, debits)
	for _, change := range u.Use.Changes {
		delete(debits, change.Limit)
	}
	for _, charge := range u.Use.Charges {
		w.charge(charge.Limit, charge.Consumed, -debits[charge.Limit])
		if charge.Least != nil {
			w.require(compareInt(AtLeast, Attr(charge.Limit, FieldBalance), *charge.Least))
		}
	}
	w.Return, w.Once = true, true
	return w
}

func outliveWrite(key Key, e quota.Extension) *Write {
	w := &Write{Operation: "outlive", Key: key.State()}
	w.require(compareInt(Less, AttrTTL, e.Least))
	w.setInt(AttrTTL, e.Expires)
	return w
}

func reconcileWrite(b *Bucket, adjustments []quota.Adjustment) *Write {
	w := update("reconcile", b.Key)
	if Lifts(adjustments) {
		w.require(reads(AttrRefilledAt, b.RefilledAt), asInt(AttrValidUntil, b.ValidUntil), countIs(b.ShardCount))
		if ConfigChanged(b) {
			w.hold(b.PassConfigAttrs())
		}
	}
	for _, a := range adjustments {
		w.charge(a.Limit, a.Consumed, a.Balance)
		if a.Max != nil {
			w.require(compareInt(AtMost, Attr(a.Limit, FieldBalance), *a.Max))
		}
	}
	w.Return, w.Once = true, true
	return w
}

func propagateWrite(key Key, window OpenedWindow) *Write {
	at := func(field Field) string { return Attr(window.Limit, field) }
	w := update("propagate window", key)
	w.require(
		orAbsent(compareInt(AtMost, at(FieldStart), window.Start-window.Length)),
		either(exists(at(FieldApplied)), compareInt(Less, AttrRefilledAt, window.Start)))
	w.Set = append(w.Set, Assignment{Name: at(FieldConsumedAtOpen), From: at(FieldConsumed), Value: Int(0)})
	w.setInt(at(FieldStart), window.Start)
	w.setInt(at(FieldLength), window.Length/1000)
	w.setInt(AttrValidUntil, 0)
	return w
}

var (
	meterBalance  = Attr(quota.WriteMeter, FieldBalance)
	meterConsumed = Attr(quota.WriteMeter, FieldConsumed)
	writeCost     = Int(quota.WriteCost)
	writeDebit    = Int(-quota.WriteCost)
	notDisabled   = orAbsent(compare(Equals, AttrDisabled, Bool(false)))
)

// chargeWrite charges a bucket that nobody has looked at. It is what nearly every
// use sends, so that it makes room for everything once.
func chargeWrite(key Key, c FastCharge) *Write {
	limits := c.limits()
	w := &Write{Operation: "charge", Key: key.State(), Return: true, Once: true}
	w.Require = make([]Condition, 0, 7+2*len(limits))
	w.Add = make([]Addition, 0, 2+2*len(limits))
	numbers := make(numbers, 0, 2+3*len(limits))
	now := numbers.of(c.Now)
	w.require(
		exists(AttrPK),
		notDisabled,
		orAbsent(compare(Greater, AttrTTL, numbers.of(c.Now/1000))),
		exists(meterBalance))
	if c.Free {
		w.require(compare(Greater, AttrBypass, now))
	} else {
		w.require(
			orAbsent(compare(AtMost, AttrBypass, now)),
			orAbsent(compare(Greater, AttrValidUntil, now)))
		if !c.Hot {
			w.require(compare(AtLeast, meterBalance, writeCost))
		}
	}
	for _, limit := range limits {
		amount, attrs := numbers.of(c.Amounts[limit]), attrsOf(limit)
		w.require(exists(attrs.capacity))
		w.add(attrs.consumed, amount)
		if c.Free {
			// An addition to a limit without a balance would make part of a limit.
			w.require(exists(attrs.balance))
			continue
		}
		floor := numbers.of(c.Amounts[limit] - quota.MaxAmount)
		w.require(attrs.admits(amount, floor, now))
		w.add(attrs.balance, numbers.of(-c.Amounts[limit]))
	}
	w.add(meterConsumed, writeCost)
	w.add(meterBalance, writeDebit)
	return w
}

// numbers makes the number values of one write.
type numbers []types.AttributeValueMemberN

func (n *numbers) of(i int64) types.AttributeValue {
	*n = append(*n, types.AttributeValueMemberN{Value: strconv.FormatInt(i, 10)})
	return &(*n)[len(*n)-1]
}

// limitAttrs are the attributes of a limit that a charge needs.
type limitAttrs struct{ balance, consumed, capacity, soft string }

// attrsOf makes the names as parts of one string.
func attrsOf(limit string) limitAttrs {
	prefix := limitPrefix + limit + "_"
	all := prefix + string(FieldBalance) + prefix + string(FieldConsumed) + prefix + string(FieldCapacity) + prefix + string(FieldSoft)
	n := len(prefix) + 2 // the first three fields have two letters
	return limitAttrs{all[:n], all[n : 2*n], all[2*n : 3*n], all[3*n:]}
}

// admits requires a balance of the amount, or a soft limit. A soft limit admits
// whatever its balance is, but needs one, and none so far in debt that it could not
// be read any more.
func (a limitAttrs) admits(amount, floor, now types.AttributeValue) Condition {
	conditions := [4]Condition{
		compare(AtLeast, a.balance, amount),
		{Op: All},
		compare(Greater, a.soft, now),
		compare(AtLeast, a.balance, floor),
	}
	conditions[1].Of = conditions[2:]
	return Condition{Op: Any, Of: conditions[:2]}
}

func usageWrite(usage Usage) *Write {
	w := &Write{Operation: "add usage", Key: ItemKey{usage.Key.PK(), usage.Key.SK()}}
	for _, label := range usage.Key.Labels() {
		w.set(label[0], S(label[1]))
	}
	for _, source := range usage.Sources {
		w.count(source)
	}
	if usage.Expires != 0 {
		w.setIfAbsent(AttrTTL, Int(usage.Expires))
	}
	w.addInt(AttrTotalEvents, usage.Events)
	for _, limit := range slices.Sorted(maps.Keys(usage.Counters)) {
		w.add(limit, N(Tokens(usage.Counters[limit])))
	}
	return w
}

// count stores the records of a source that are counted with this usage, if the
// item has counted what it is expected to have.
func (w *Write) count(source Source) {
	position, ranges := source.Next.Texts()
	positionAttr, rangesAttr := PositionAttr(source.Shard), RangesAttr(source.Shard)
	w.set(positionAttr, S(position))
	if len(source.Found) > 0 {
		foundPosition, foundRanges := source.Found.Texts()
		w.require(asText(positionAttr, foundPosition), asText(rangesAttr, foundRanges))
		if ranges != "" {
			w.set(rangesAttr, S(ranges))
		}
		return
	}
	w.require(follows(source))
	if ranges != "" {
		w.setIfAbsent(rangesAttr, S(ranges))
	}
}

// follows requires that nothing of a source is counted, or that its records go on
// where the last range ends. A stored position, with its total behind it, sorts
// after the same position alone and before any later one. An item without ranges
// has counted everything up to its position, which only a write that has read the
// item can store.
func follows(source Source) Condition {
	position := PositionAttr(source.Shard)
	first, ok := source.Follows()
	if !ok {
		return absent(position)
	}
	return either(absent(position), both(
		compare(Less, position, S(first.Position)),
		compare(Contains, position, S(" "+first.Total)),
		exists(RangesAttr(source.Shard))))
}

func doubleWrite(group Group, from int) *Write {
	w := update("double", group.At(0))
	w.require(countIs(from))
	w.setInt(AttrShardCount, int64(2*from))
	return w
}

func freezeWrite(key Key, freezes []quota.Freeze) *Write {
	w := update(fmt.Sprintf("freeze shard %d", key.Shard), key)
	w.freeze(freezes)
	return w
}

func (w *Write) freeze(freezes []quota.Freeze) {
	for _, freeze := range freezes {
		w.setIfAbsent(Attr(freeze.Limit, FieldGrant), Int(int64(freeze.Grant)))
	}
}

// raiseWrite raises a shard's count and freezes its legacy grants.
func raiseWrite(b *Bucket, count int, now int64) *Write {
	w := update(fmt.Sprintf("raise shard %d", b.Shard), b.Key)
	w.require(orAbsent(compareInt(Less, AttrShardCount, int64(count))))
	w.setInt(AttrShardCount, int64(count))
	w.freeze(quota.FrozenGrants(&b.Bucket, now))
	w.Return = true
	return w
}

// transaction puts the new shard, debits the donors by ascending shard, and pins
// shard 0: in its own debit where it is a donor, else by a check.
func (c Creation) transaction() *Transaction {
	key, donors := c.Bucket.Key, c.Donors()
	put := &Write{Operation: "put", Key: key.State(), Require: []Condition{absent(AttrPK)}, Put: c.Complete()}
	writes := []*Write{put}
	for _, donor := range donors {
		w := update(fmt.Sprintf("debit shard %d", donor.Shard), key.At(donor.Shard))
		if donor.Shard == 0 {
			w.pin(c)
		}
		for _, move := range donor.Moves {
			w.debit(move)
		}
		writes = append(writes, w)
	}
	if len(donors) == 0 || donors[0].Shard != 0 {
		w := update("pin", key.At(0))
		w.pin(c)
		writes = append(writes, w)
	}
	return &Transaction{Operation: fmt.Sprintf("create shard %d", key.Shard), Writes: writes, Repeatable: true}
}

// pin requires shard 0's count and configuration to be as read.
func (w *Write) pin(c Creation) {
	w.require(countIs(c.Bucket.ShardCount))
	w.hold(c.ConfigAttrs)
}

// debit takes a move off its donor, guarded.
func (w *Write) debit(move quota.Funding) {
	guard, balance := move.Guard, Attr(move.Limit, FieldBalance)
	w.addInt(balance, -move.Amount)
	w.require(compareInt(AtLeast, balance, move.Amount), grantIs(move))
	switch {
	case guard.SessionOnly:
		w.require(asInt(Attr(move.Limit, FieldApplied), guard.Applied))
	case guard.RefilledAt != 0:
		w.require(compareInt(AtLeast, AttrRefilledAt, guard.RefilledAt))
	}
}

// grantIs requires a donor's grant count to be as read. A legacy grant is inferred
// from the shard count, and a stored grant below 1 reads as the shard count: both
// need the shard count to be as read too.
func grantIs(move quota.Funding) Condition {
	guard, grant := move.Guard, Attr(move.Limit, FieldGrant)
	if guard.Legacy {
		return both(absent(grant), countIs(guard.ShardCount))
	}
	stored := compareInt(Equals, grant, int64(guard.Grant))
	if guard.Grant != guard.ShardCount {
		return stored
	}
	return either(stored, both(compareInt(AtMost, grant, 0), countIs(guard.ShardCount)))
}

// outcome reads a creation's refusals. That the shard exists says most, then that
// the pin moved.
func (c Creation) outcome(refused map[int]Item) CreationOutcome {
	if len(refused) == 0 {
		return Created
	}
	if stored, exists := refused[0]; exists {
		if c.Landed(stored) {
			return Created
		}
		return Exists
	}
	zero := 1 // the place of the write of shard 0
	if donors := c.Donors(); len(donors) > 0 && donors[0].Shard != 0 {
		zero += len(donors)
	}
	if stored, moved := refused[zero]; moved {
		count, err := stored.ShardCount()
		if stored == nil || err != nil || count != c.Bucket.ShardCount {
			return PinMoved
		}
	}
	return DonorChanged
}

func insertWrite(item Item) *Write {
	pk, sk := item.Key()
	return &Write{Operation: "insert", Key: ItemKey{pk, sk}, Require: []Condition{absent(AttrPK)}, Put: item}
}

func amendWrite(pk, sk string, a Amendment) *Write {
	w := &Write{Operation: "amend", Key: ItemKey{pk, sk}, Require: []Condition{exists(AttrPK)}, Return: true}
	w.hold(a.Expect)
	for _, name := range slices.Sorted(maps.Keys(a.Set)) {
		w.set(name, a.Set[name])
	}
	w.Remove = a.Remove
	return w
}

func removeWrite(pk, sk string, expect []NamedValue) *Write {
	w := &Write{Operation: "remove", Key: ItemKey{pk, sk}, Require: []Condition{exists(AttrPK)}, Delete: true}
	w.hold(expect)
	return w
}
