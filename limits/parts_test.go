package limits

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/memory"
)

const (
	changedAt = int64(1796086800000) // 2026-11-30T21:00:00Z
	anHour    = int64(3600_000)
)

var acme = table.Group{Namespace: "n", Entity: "acme", Resource: "gpt"}.At(0)

// terms are what a limit can be, by field.
var terms = []table.Item{
	{"cp": table.Int(60_000), "ra": table.Int(60_000), "rp": table.Int(anHour)},
	{"cp": table.Int(90_000), "ra": table.Int(30_000), "rp": table.Int(anHour), "sched": table.S("1h9-17s500")},
	{"cp": table.Int(50_000), "ra": table.Int(0), "rp": table.Int(1000), "rsched": table.S("1m0h0")},
	{"cp": table.Int(40_000), "ra": table.Int(0), "rp": table.Int(1000), "rsched": table.S("1m0h2"), "div": table.S("gathered")},
	{"cp": table.Int(70_000), "ra": table.Int(0), "rp": table.Int(1000), "rsched": table.S("1m0h20"), "sched": table.S("1h9-17c30000")},
	{"cp": table.Int(80_000), "ra": table.Int(0), "rp": table.Int(1000), "rsa": table.Int(7200)},
	{"cp": table.Int(30_000), "ra": table.Int(0), "rp": table.Int(1000), "rsched": table.S("-"), "sched": table.S("-"), "rsa": table.Int(3600)},
}

// declared is what an operator declares of a bucket: limits, by name and terms,
// and what they share.
type declared struct {
	limits map[string]table.Item
	shared table.Item
}

func randomDeclaration(r *rand.Rand) declared {
	zones := []string{"UTC", "Europe/Berlin", "Asia/Tokyo"}
	d := declared{map[string]table.Item{}, table.Item{table.AttrZone: table.S(zones[r.IntN(len(zones))])}}
	if r.IntN(4) == 0 {
		d.shared[table.AttrSchedule] = table.S("1h12s900")
	}
	for i := range 30 {
		if r.IntN(5) > 0 {
			d.limits[fmt.Sprintf("limit-%02d", i)] = terms[r.IntN(len(terms))]
		}
	}
	return d
}

// on is a bucket's item as declared. What it had and keeps stays, and what is new gets
// its capacity.
func (d declared) on(t *testing.T, item table.Item) table.Item {
	t.Helper()
	next := item.Clone()
	maps.DeleteFunc(next, func(name string, _ types.AttributeValue) bool {
		limit, field, ok := table.SplitAttr(name)
		return slices.Contains([]string{table.AttrSchedule, table.AttrResets, table.AttrZone}, name) ||
			ok && limit != quota.WriteMeter && (d.limits[limit] == nil || terms[0][string(field)] != nil || terms[6][string(field)] != nil || field == table.FieldDivision)
	})
	maps.Copy(next, d.shared)
	for limit, fields := range d.limits {
		for field, value := range fields {
			next[table.Attr(limit, table.Field(field))] = value
		}
		if balance := table.Attr(limit, table.FieldBalance); next[balance] == nil {
			next[balance], next[table.Attr(limit, table.FieldConsumed)] = fields["cp"], table.Int(0)
			next[table.Attr(limit, table.FieldGrant)] = table.Int(1)
		}
	}
	next[table.AttrValidUntil] = table.Int(0)
	before, b := decode(t, item), decode(t, next)
	for limit := range d.limits {
		if b.Regrants(limit, &before.Bucket, changedAt) {
			next[table.Attr(limit, table.FieldGrant)] = table.Int(1)
		}
	}
	return next
}

func decode(t *testing.T, item table.Item) *table.Bucket {
	t.Helper()
	b, err := table.DecodeBucket(item)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// configOf is what a limit is by, nil where the bucket has none of that name.
func configOf(b *table.Bucket, limit string) any {
	l := b.Limit(limit)
	if l == nil {
		return nil
	}
	return [...]any{
		l.Base, l.Division, l.Schedule.Compact(), l.Resets.Compact(), l.Window.Length,
		len(l.Schedule.Entries()) == 0 || l.Schedule.Zone() != "", l.Schedule.Zone(), l.Resets.Zone(),
	}
}

// drain takes all that a bucket has of every limit, and adds it up.
func drain(t *testing.T, store *memory.Store, now int64, admitted map[string]int64) {
	t.Helper()
	for _, l := range decode(t, store.Get(acme.PK(), table.StateSK)).Limits {
		if l.Name == quota.WriteMeter {
			continue
		}
		b := decode(t, store.Get(acme.PK(), table.StateSK))
		_, have, err := quota.PlanUse(&b.Bucket, quota.Demand{l.Name: quota.MaxAmount}, now)
		if err != nil || have[0].Available <= 0 {
			continue
		}
		use, _, err := quota.PlanUse(&b.Bucket, quota.Demand{l.Name: have[0].Available}, now)
		if err != nil {
			t.Fatal(err)
		}
		if result, err := store.Use(t.Context(), b, use); err != nil || !result.Applied {
			t.Fatal(result, err)
		}
		admitted[l.Name] += have[0].Available
	}
}

// A change in parts, with uses between any two that take all there is: each finds
// every limit as it was or as it is to be, and of no quota is more admitted than the
// change at once admits. Nothing is granted for a part.
func TestParts(t *testing.T) {
	var split int
	for seed := range uint64(80) {
		r := rand.New(rand.NewPCG(seed, 1))
		was, is := randomDeclaration(r), randomDeclaration(r)
		if r.IntN(2) == 0 {
			is.shared[table.AttrZone] = was.shared[table.AttrZone]
		}
		from := was.on(t, table.EmptyBucket(acme, 1, changedAt-anHour))
		store := memory.New()
		store.Put(from)
		useOnce(t, store)

		from = store.Get(acme.PK(), table.StateSK)
		old, times := decode(t, from), 0
		want := decode(t, is.on(t, from))
		bound := map[string]int64{}
		for _, b := range []*table.Bucket{old, want} {
			for i := range b.Limits {
				bound[b.Limits[i].Name] = most(old.Limit(b.Limits[i].Name), want.Limit(b.Limits[i].Name))
			}
		}
		admitted := map[string]int64{}
		drainSometimes := r.IntN(2) == 0
		for {
			b := decode(t, store.Get(acme.PK(), table.StateSK))
			change := difference(b.Item, is.on(t, b.Item))
			if len(change.Set) == 1 && len(change.Remove) == 0 {
				break
			}
			all := parts(b, change)
			split += len(all) - 1
			checkParts(t, change, all)
			if times++; times > 20 {
				t.Fatalf("seed %d: no end of parts", seed)
			}
			result, err := store.Amend(t.Context(), acme.PK(), table.StateSK, all[0])
			if err != nil || !result.Applied {
				t.Fatalf("seed %d: part %d of %d: %v, %v", seed, times, len(all), result.Applied, err)
			}
			now := decode(t, result.Item)
			if now.ValidUntil == nil || *now.ValidUntil != 0 {
				t.Errorf("seed %d: part %d leaves a valid-until of %v", seed, times, now.ValidUntil)
			}
			for name := range bound {
				if got := configOf(now, name); !reflect.DeepEqual(got, configOf(old, name)) && !reflect.DeepEqual(got, configOf(want, name)) {
					t.Errorf("seed %d: after part %d, %s is %v: neither %v nor %v", seed, times, name, got, configOf(old, name), configOf(want, name))
				}
			}
			if drainSometimes {
				drain(t, store, changedAt, admitted)
			}
		}
		drain(t, store, changedAt, admitted)
		for name, amount := range admitted {
			if amount > bound[name] {
				t.Errorf("seed %d: %d admitted of %s in %d parts, at most %d were to be had", seed, amount, name, times, bound[name])
			}
		}
	}
	if split < 20 {
		t.Errorf("only %d parts more than changes", split)
	}
}

// checkParts checks that parts do what the change does, each once, that each fits,
// sets the valid-until, and expects of what it changes what the change expects.
func checkParts(t *testing.T, change table.Amendment, parts []table.Amendment) {
	t.Helper()
	whole := table.Amendment{Set: table.Item{}}
	for _, part := range parts {
		names := slices.Concat(slices.Collect(maps.Keys(part.Set)), part.Remove)
		if part.Set[table.AttrValidUntil] == nil || len(part.Expect) < len(names) || part.Expect[len(part.Expect)-1].Name != table.AttrShardCount {
			t.Errorf("a part changes %d attributes, and expects %v", len(names), part.Expect)
		}
		for name, value := range part.Set {
			if whole.Set[name] != nil && name != table.AttrValidUntil {
				t.Errorf("%s is set twice", name)
			}
			whole.Set[name] = value
		}
		whole.Remove = append(whole.Remove, part.Remove...)
		whole.Expect = append(whole.Expect, part.Expect[:len(part.Expect)-1]...)
	}
	byName := func(a, b table.NamedValue) int { return strings.Compare(a.Name, b.Name) }
	whole.Expect = append(whole.Expect, change.Expect[len(change.Expect)-1])
	slices.SortFunc(whole.Expect, byName)
	slices.SortFunc(change.Expect, byName)
	slices.Sort(whole.Remove)
	if !reflect.DeepEqual(whole, change) {
		t.Errorf("the parts come to %+v, not %+v", whole, change)
	}
}

// useOnce uses a token of every limit half an hour before the change, so that windows
// are live, and passes the bucket as the change does first.
func useOnce(t *testing.T, store *memory.Store) {
	t.Helper()
	b, demand := decode(t, store.Get(acme.PK(), table.StateSK)), quota.Demand{}
	for i := range b.Limits {
		if name := b.Limits[i].Name; name != quota.WriteMeter {
			demand[name] = 1000
		}
	}
	use, have, err := quota.PlanUse(&b.Bucket, demand, changedAt-anHour/2)
	if err != nil || use == nil {
		t.Fatal(have, err)
	}
	if result, err := store.Use(t.Context(), b, use); err != nil || !result.Applied {
		t.Fatal(result, err)
	}
	b = decode(t, store.Get(acme.PK(), table.StateSK))
	if use, _, err = quota.PlanUse(&b.Bucket, nil, changedAt); err != nil {
		t.Fatal(err)
	}
	if result, err := store.Use(t.Context(), b, use); err != nil || !result.Applied {
		t.Fatal(result, err)
	}
}

// most is what there is to be had of a limit, before and after the change: what it
// held, and where a use opens a window of another kind of limit, that window.
func most(old, is *quota.Limit) int64 {
	switch {
	case old == nil:
		return is.Base.Capacity
	case is == nil || is.Kind() != quota.Session || old.Kind() == quota.Session:
		return old.Balance
	}
	return old.Balance + is.Base.Capacity
}
