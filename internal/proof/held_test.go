package proof_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/sharding"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/memory"
)

// heldCases are what the conformance suite has no cases for: every single
// attribute that a write holds, and what happens between a read and the raise that
// follows it. db is the table in memory, its writes maybe changed.
var heldCases = []struct {
	name string
	run  func(t testing.TB, mem *memory.Store, db table.DB)
}{
	{"every attribute of the configuration", configurationIsHeld},
	{"rf, vu, the shard count, and that there is a bucket", stampsAreHeld},
	{"the consumption that an exact restore has read", consumptionIsHeld},
	{"what becomes of a sibling before it is raised", raisesAreHeld},
	{"a donor's legacy grant at a count of 1", legacyGrantIsHeld},
}

func TestHeld(t *testing.T) {
	for _, c := range heldCases {
		t.Run(c.name, func(t *testing.T) {
			mem := memory.New()
			c.run(t, mem, mem)
		})
	}
}

// holder is a write that is planned from a bucket, shard 0 at 4 of acme's.
type holder struct {
	name string
	do   func(c table.Client, b *table.Bucket) (applied bool, err error)
}

var holders = []holder{
	{"pass", func(c table.Client, b *table.Bucket) (bool, error) {
		result, err := c.Pass(bg, b, plainPass(b))
		return result.Applied, err
	}},
	{"use", func(c table.Client, b *table.Bucket) (bool, error) {
		result, err := c.Use(bg, b, &quota.Use{Pass: plainPass(b), Charges: []quota.Charge{{Limit: "q", Consumed: 1, Debit: 1}}})
		return result.Applied, err
	}},
	{"reconcile", func(c table.Client, b *table.Bucket) (bool, error) {
		result, err := c.Reconcile(bg, b, []quota.Adjustment{{Limit: "q", Consumed: -1, Balance: 1}})
		return result.Applied, err
	}},
}

// creators are creations of shard 1, with nothing taken off shard 0 and with
// something.
var creators = []holder{
	{"create", func(c table.Client, b *table.Bucket) (bool, error) { return creates1(c, b) }},
	{"create off shard 0", func(c table.Client, b *table.Bucket) (bool, error) {
		guard := quota.Guard{Grant: 1, ShardCount: b.ShardCount, RefilledAt: midnight}
		return creates1(c, b, quota.Funding{Limit: "q", Amount: 1000, Guard: guard})
	}},
}

func creates1(c table.Client, b *table.Bucket, moves ...quota.Funding) (bool, error) {
	shard := sharding.New(b, 1, b.ShardCount, noon, nil)
	outcome, err := c.Create(bg, table.Creation{Bucket: shard, Moves: moves, ConfigAttrs: b.ConfigAttrs()})
	return outcome == table.Created, err
}

func plainPass(b *table.Bucket) *quota.Pass {
	return &quota.Pass{
		ExpectRefilledAt: b.RefilledAt, RefilledAt: b.RefilledAt + 1, ExpectValidUntil: b.ValidUntil, ShardCount: b.ShardCount,
	}
}

// holds has a write planned from an item that another one has taken the place of,
// nil for none, and checks that it is written or refused.
func (h holder) holds(t testing.TB, mem *memory.Store, db table.DB, planned, stored table.Item, want bool, what string) {
	b, err := table.DecodeBucket(planned)
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range mem.Items() {
		mem.Delete(item.Key())
	}
	if stored != nil {
		mem.Put(stored)
	}
	if applied, err := h.do(&table.Table{DB: db}, b); applied != want || err != nil {
		t.Errorf("%s, %s: written %t, not %t: %v", h.name, what, applied, want, err)
	}
	if n := len(mem.Items()); stored == nil && n > 0 {
		t.Errorf("%s, %s: %d items are made", h.name, what, n)
	}
}

// bareLimits are a quota, a session quota and a dripping limit, with nothing that
// is optional but vu.
func bareLimits() table.Item {
	session := attrs{"b_s_tk": 5000, "b_s_tc": 0, "b_s_cp": 9000, "b_s_ra": 0, "b_s_rp": 60_000, "b_s_rsa": 3600, "b_s_ws": noon - 5, "b_s_wa": noon - 5}
	return q(0, 4, 500_000, 1, session, drips("rpm", 1000, 60_000), attrs{table.AttrValidUntil: 0, table.AttrDisabled: nil})
}

// A pass, a use and a reconciliation of a bucket whose vu was 0 already, and every
// creation, hold each attribute of the configuration.
func configurationIsHeld(t testing.TB, mem *memory.Store, db table.DB) {
	full := attrs{table.AttrDisabled: false, table.AttrSchedule: "1h9s500", table.AttrResets: "1m0h7", table.AttrZone: "Asia/Tokyo"}
	for _, limit := range []string{"q", "s", "rpm"} {
		full[table.Attr(limit, table.FieldSchedule)] = "1h8s500"
		full[table.Attr(limit, table.FieldDivision)] = string(quota.Divided)
	}
	for _, planned := range []table.Item{bareLimits(), build(bareLimits(), full)} {
		for _, h := range slices.Concat(holders, creators) {
			h.holds(t, mem, db, planned, planned, true, "as planned")
			b, _ := table.DecodeBucket(planned)
			for _, attr := range b.ConfigAttrs() {
				h.holds(t, mem, db, planned, build(planned, attrs{attr.Name: otherThan(attr.Value)}), false, attr.Name)
			}
		}
	}
}

// otherThan is another value of an attribute than it has.
func otherThan(value types.AttributeValue) any {
	if value == nil {
		return "1m0h1"
	}
	if _, number := value.(*types.AttributeValueMemberN); number {
		return 77
	}
	return nil
}

// Where rf, vu or the shard count were there or were not, they are still so.
func stampsAreHeld(t testing.TB, mem *memory.Store, db table.DB) {
	none := build(bareLimits(), attrs{table.AttrRefilledAt: nil, table.AttrShardCount: nil, table.AttrValidUntil: nil})
	some := build(bareLimits(), attrs{table.AttrValidUntil: noon + 5})
	for _, planned := range []table.Item{none, some} {
		for _, h := range holders {
			h.holds(t, mem, db, planned, planned, true, "as planned")
			h.holds(t, mem, db, planned, nil, false, "gone")
			for _, other := range []attrs{{table.AttrRefilledAt: noon + 7}, {table.AttrShardCount: 8}, {table.AttrValidUntil: noon + 7}} {
				h.holds(t, mem, db, planned, build(planned, other), false, fmt.Sprint(other))
			}
		}
	}
	for _, h := range creators {
		planned := build(some, attrs{table.AttrValidUntil: nil})
		h.holds(t, mem, db, planned, build(planned, attrs{table.AttrValidUntil: 0}), false, "vu")
	}
}

func consumptionIsHeld(t testing.TB, mem *memory.Store, db table.DB) {
	restores := holder{"exact restore", func(c table.Client, b *table.Bucket) (bool, error) {
		pass, read := plainPass(b), b.Limit("q").Balance
		pass.Exact, pass.Changes = true, []quota.Change{{Limit: "q", Read: read, Delta: 1, Restore: true}}
		result, err := c.Pass(bg, b, pass)
		return result.Applied, err
	}}
	for _, planned := range []table.Item{build(bareLimits(), attrs{"b_q_tc": nil}), build(bareLimits(), attrs{"b_q_tc": 5})} {
		restores.holds(t, mem, db, planned, planned, true, "as planned")
		restores.holds(t, mem, db, planned, build(planned, attrs{"b_q_tc": 6}), false, "consumed")
	}
}

// between is a table on which something happens after every read.
type between struct {
	table.DB
	then func()
}

func (b between) Load(ctx context.Context, lookup *table.Lookup) (table.LoadResult, error) {
	result, err := b.DB.Load(ctx, lookup)
	b.then()
	return result, err
}

func raisesAreHeld(t testing.TB, mem *memory.Store, db table.DB) {
	legacy := q(1, 2, 300_000, 0)
	for _, c := range []struct {
		name            string
		meanwhile, then table.Item
	}{
		{"nothing", legacy, build(legacy, attrs{table.AttrShardCount: 4, "b_q_gc": 2})},
		{"gone", nil, nil},
		{"raised further", build(legacy, count(8)), build(legacy, count(8))},
		{"restored", build(legacy, attrs{"b_q_gc": 1}), build(legacy, attrs{table.AttrShardCount: 4, "b_q_gc": 1})},
	} {
		mem.Put(legacy)
		over := between{db, func() {
			if mem.Delete(legacy.Key()); c.meanwhile != nil {
				mem.Put(c.meanwhile)
			}
		}}
		if _, err := (&table.Table{DB: over}).RaiseAndRead(bg, acme, 4, noon); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		pk, sk := legacy.Key()
		if is := mem.Get(pk, sk); digestOf(is) != digestOf(c.then) {
			t.Errorf("%s: there is%s", c.name, strings.TrimSpace(differences(c.then, is)))
		}
	}
}

// A move off a legacy donor whose count reads as 1 finds that it is legacy still.
func legacyGrantIsHeld(t testing.TB, mem *memory.Store, db table.DB) {
	donor, zero := q(2, 1, 300_000, 0), q(0, 4, 0, 4)
	guard := quota.Guard{Legacy: true, ShardCount: 1, RefilledAt: midnight}
	for grant, want := range []table.CreationOutcome{table.Created, table.DonorChanged} {
		mem.Put(zero)
		if mem.Put(donor); grant > 0 {
			mem.Put(build(donor, attrs{"b_q_gc": grant}))
		}
		from, _ := table.DecodeBucket(zero)
		shard := sharding.New(from, 1, 4, noon, nil)
		move := quota.Funding{Limit: "q", Amount: 1000, Donor: 2, Guard: guard}
		outcome, err := (&table.Table{DB: db}).Create(bg, table.Creation{Bucket: shard, Moves: []quota.Funding{move}})
		if outcome != want || err != nil {
			t.Errorf("with a grant of %d: %v, not %v: %v", grant, outcome, want, err)
		}
		mem.Delete(acme.At(1).PK(), table.StateSK)
	}
}
