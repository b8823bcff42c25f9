package limits

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// kinds are what a limit can be.
var kinds = map[string]func(name string) Limit{
	"drip":      func(name string) Limit { return PerMinute(name, 1000) },
	"scheduled": func(name string) Limit { return scheduled(PerMinute(name, 1000)) },
	"replicated": func(name string) Limit {
		l := PerMinute(name, 1000)
		l.Division = quota.Replicated
		return l
	},
	"calendar": func(name string) Limit { return Quota(name, 1000, "0 0 * * *") },
	"session":  func(name string) Limit { return Session(name, 1000, time.Hour) },
	"pooled": func(name string) Limit {
		l := scheduled(Quota(name, 1000, "0 0 * * *"))
		l.Division = quota.Pooled
		return l
	},
}

func scheduled(l Limit) Limit {
	l.Schedule = []quota.Entry{{Cron: "* 9-17 * * 1-5", Scale: 500}}
	return l
}

// many are limits of a kind, their names of at least so many bytes.
func many(n, bytes int, kind func(name string) Limit) (limits []Limit) {
	for i := range n {
		name := fmt.Sprintf("limit-%02d", i)
		limits = append(limits, kind(name+strings.Repeat("x", max(0, bytes-len(name)))))
	}
	return limits
}

// bucketOf returns a bucket that has the limits.
func bucketOf(t testing.TB, limits []Limit) *table.Bucket {
	item := table.EmptyBucket(table.Group{Namespace: "n", Entity: "e", Resource: "r"}.At(0), 1, 1)
	item.Set(configAttrs(limits, 1))
	for _, l := range limits {
		item[table.Attr(l.Name, table.FieldBalance)], item[table.Attr(l.Name, table.FieldConsumed)] = table.Int(0), table.Int(0)
	}
	b, err := table.DecodeBucket(item)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// nowhere is a DB that carries nothing out.
type nowhere struct{ table.DB }

func (nowhere) Do(context.Context, *table.Write) (r table.WriteResult, err error) { return r, nil }
func (nowhere) Transact(context.Context, *table.Transaction) (r table.TransactResult, err error) {
	return r, nil
}

// largest returns the writes of the bucket that have least room for limits, as large
// as they can become. table's own tests show that the others have more.
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
		"use":    func() error { use := largestUse(b); _, err := t.Use(ctx, use.Bucket, use.Use); return err },
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
	return table.PlannedUse{Bucket: &expiring, Use: use}
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

// roomOf is how many limits of a kind fit each write, at most 60.
func roomOf(t *testing.T, kind func(name string) Limit, bytes int) map[string]int {
	room := map[string]int{}
	for n := 1; n <= 60; n++ {
		for name, write := range largest(bucketOf(t, many(n, bytes, kind))) {
			if err := write(); err == nil && room[name] == n-1 {
				room[name] = n
			}
		}
	}
	return room
}

// One bucket has room for as many limits as the write that has least. One more is
// refused, and named. The length of names does not matter: expressions hold aliases.
func TestRoomForLimits(t *testing.T) {
	for kind, want := range map[string]int{
		"drip": 34, "scheduled": 24, "replicated": 17, "calendar": 17, "session": 17, "pooled": 17,
	} {
		for _, bytes := range []int{1, maxNameBytes} {
			room := roomOf(t, kinds[kind], bytes)
			var columns []string
			for _, operation := range slices.Sorted(maps.Keys(room)) {
				columns = append(columns, fmt.Sprintf("%s %d", operation, room[operation]))
			}
			t.Logf("%s, names of %d bytes: %s", kind, bytes, strings.Join(columns, ", "))
			if least := slices.Min(slices.Collect(maps.Values(room))); least != want {
				t.Errorf("%s: room for %d, not %d", kind, least, want)
			}
			if err := checkAll(many(want, bytes, kinds[kind])); err != nil {
				t.Errorf("%d limits that are %s: %v", want, kind, err)
			}
		}
		err := checkAll(many(want+3, 0, kinds[kind]))
		if want := fmt.Sprintf(`malformed limit "limit-%02d": one too many for one bucket: `, want); !errors.Is(err, ErrLimit) || !errors.Is(err, table.ErrRequest) || !strings.HasPrefix(fmt.Sprint(err), want) {
			t.Errorf("%s: not %q: %v", kind, want, err)
		}
	}
}

// Limits of several kinds that are taken together fit every write.
func TestRoomForMixtures(t *testing.T) {
	random, names := rand.New(rand.NewPCG(1, 2)), slices.Sorted(maps.Keys(kinds))
	full := 0
	for range 300 {
		var limits []Limit
		for {
			next := kinds[names[random.IntN(len(names))]](fmt.Sprintf("limit-%02d", len(limits)))
			if checkAll(append(slices.Clone(limits), next)) != nil {
				break
			}
			limits = append(limits, next)
		}
		full = max(full, len(limits))
		for name, write := range largest(bucketOf(t, limits)) {
			if err := write(); err != nil {
				t.Fatalf("%s of %d limits: %v", name, len(limits), err)
			}
		}
	}
	if full < 20 {
		t.Errorf("no mixture had more than %d limits", full)
	}
}

// Schedules take room on the item: all shards of a group may be written at once.
func TestRoomForSchedules(t *testing.T) {
	long := func(name string) Limit {
		l := Quota(name, 1000, "0 0 * * *")
		minutes := make([]string, 58)
		for i := range minutes {
			minutes[i] = fmt.Sprint(i)
		}
		for i := range maxScheduled - 1 {
			l.Schedule = append(l.Schedule, quota.Entry{Cron: strings.Join(minutes, ",") + " " + fmt.Sprint(i%24) + " 1 * *", Scale: 500})
		}
		return l
	}
	for n, fits := range map[int]bool{2: true, 17: false} {
		if err := checkAll(many(n, 64, long)); (err == nil) != fits || err != nil && !strings.Contains(err.Error(), "bytes of all shards of a group: ") {
			t.Errorf("%d: %v", n, err)
		}
	}
}

func BenchmarkCheckRoom(b *testing.B) {
	for _, n := range []int{3, 17} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			limits := many(n, 0, kinds["calendar"])
			for b.Loop() {
				if err := checkRoom(limits); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
