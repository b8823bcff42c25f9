package quota

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

func pooled(l *Limit) { l.Division = Pooled }

// showPieces renders what each shard gives.
func showPieces(pieces []Piece) string {
	var parts []string
	for _, p := range pieces {
		parts = append(parts, fmt.Sprintf("%d: %s", p.Bucket.Shard, showUse(p.Use)))
	}
	return strings.Join(parts, "\n")
}

func TestPlanPooledUse(t *testing.T) {
	const now = day + hour
	family := func(limits ...[]Limit) []*Bucket {
		var shards []*Bucket
		for i, l := range limits {
			shards = append(shards, shardOf(i, 4, now-2000, append(l, meter(1000_000))...))
		}
		return shards
	}
	q := func(balance int64, changes ...func(*Limit)) Limit {
		return with(calendar("q", balance, 4000, 4), append(changes, pooled)...)
	}
	calls := func(balances ...int64) []*Bucket {
		var limits [][]Limit
		for _, balance := range balances {
			limits = append(limits, []Limit{q(balance)})
		}
		return family(limits...)
	}
	disabled := calls(300, 800, 400, 0)
	disabled[1].Disabled = true
	broken := calls(300, 800, 400)
	broken[1].Broken = ErrSchedule
	for _, c := range []struct {
		name   string
		shards []*Bucket
		demand Demand
		want   string // pieces as shard: taken, or what is short
	}{
		{"the richest", calls(300, 200, 900, 400), Demand{"q": 1100}, "2 900, 3 200"},
		{"all of it", calls(300, 200, 900, 400), Demand{"q": 1800}, "0 300, 1 200, 2 900, 3 400"},
		{"a millitoken too much", calls(300, 200, 900, 400), Demand{"q": 1801}, "q 1800 of 1801, at most 4000 of 4000, at +86400000"},
		{"more than there ever is", calls(300, 200, 900, 400), Demand{"q": 4001}, "q 1800 of 4001, at most 4000 of 4000, never"},
		{"what one has", calls(300, 200), Demand{"q": 300}, "0 300"},
		{"the first has nothing", calls(0, 200, 900), Demand{"q": 950}, "1 50, 2 900"},
		{"the first is in debt", calls(-50, 900), Demand{"q": 850}, "1 850"},
		{"which the others owe too", calls(-50, 900), Demand{"q": 851}, "q 850 of 851, at most 4000 of 4000, at +86400000"},
		{"nothing of what another has", calls(-50, 100, 900), Demand{"q": 0}, "2 0"},
		{"nothing, of the first", calls(0, 900, -901), Demand{"q": 0}, "0 0"},
		{"what the first alone has, whatever others owe", calls(300, -900), Demand{"q": 300}, "0 300"},
		{"the same beside something that is short", family([]Limit{q(300), dripping("rpm", 100, 4000)}, []Limit{q(-900), dripping("rpm", 0, 4000)}),
			Demand{"q": 300, "rpm": 200}, "rpm 134 of 200, at most 1000 of 4000, at +3603960"},
		{"nothing, and all are in debt together", calls(-901, 900), Demand{"q": 0}, "q -1 of 0, at most 4000 of 4000, at +86400000"},
		{"nothing beside what is divided", family([]Limit{q(-5), dripping("rpm", 100, 4000)}, []Limit{q(7), dripping("rpm", 0, 4000)}),
			Demand{"q": 0, "rpm": 1}, "0 rpm 1, 1 q 0"},
		{"what a shard that is left out may have", disabled, Demand{"q": 3001}, "q 700 of 3001, at most 4000 of 4000, at +3601000"}, // a second from now,
		{"one is disabled", disabled, Demand{"q": 701}, "q 700 of 701, at most 4000 of 4000, at +86400000"},
		{"one cannot be read", broken, Demand{"q": 700}, "0 300, 2 400"},
		{"what is divided is the first's", family(
			[]Limit{q(300), dripping("rpm", 100, 4000)}, []Limit{q(200), dripping("rpm", 900, 4000)}),
			Demand{"q": 400, "rpm": 134}, "0 q 300 rpm 134, 1 q 100"},
		{"and may be short", family(
			[]Limit{q(300), dripping("rpm", 100, 4000)}, []Limit{q(200), dripping("rpm", 900, 4000)}),
			Demand{"q": 400, "rpm": 200}, "rpm 134 of 200, at most 1000 of 4000, at +3603960"}, // 16.6 a second
		{"what is soft is the first's", family([]Limit{q(300, softUntil(now+1))}, []Limit{q(900)}), Demand{"q": 500}, "0 500"},
		{"what is replicated is the first's", family(
			[]Limit{q(300), with(dripping("rpm", 3000, 4000), func(l *Limit) { l.Division = Replicated })}, []Limit{q(200), dripping("rpm", 0, 4000)}),
			Demand{"q": 400, "rpm": 3000}, "0 q 300 rpm 3000, 1 q 100"},
		{"a shard that lacks the limit", family([]Limit{q(300)}, []Limit{dripping("rpm", 900, 4000)}, []Limit{q(100)}), Demand{"q": 400}, "0 300, 2 100"},
		{"what drips is brought up to date", family(
			[]Limit{with(dripping("d", 0, 120_000), pooled)}, []Limit{with(dripping("d", 29_500, 120_000), pooled)}),
			Demand{"d": 31_000}, "0 1000, 1 30000"}, // 500 a second each, for two seconds; the second one is full at 30,000
		{"when it will have dripped", family(
			[]Limit{with(dripping("d", 0, 120_000), pooled)}, []Limit{with(dripping("d", 0, 120_000), pooled)}),
			Demand{"d": 3000}, "d 2000 of 3000, at most 120000 of 120000, at +3601000"},
		{"a restore that is due", []*Bucket{
			shardOf(0, 2, day-1, with(calendar("q", 7, 4000, 2), pooled)), shardOf(1, 2, day-1, with(calendar("q", 7, 4000, 2), pooled))},
			Demand{"q": 3000}, "0 2000, 1 1000"},
		{"windows that would be opened are not", []*Bucket{
			shardOf(0, 2, now-1, with(session("s", 5, 4000, now-100, 2), pooled)), shardOf(1, 2, now-1, with(session("s", 900, 4000, now-2*hour, 2), pooled))},
			Demand{"s": 900}, "s 5 of 900, at most 4000 of 4000, at +7199900"},
		{"bypassed by the first alone", []*Bucket{bypassed(calls(300)[0], now+1), calls(0, 900)[1]}, Demand{"q": 901}, "0 1, 1 900"},
	} {
		pieces, have, err := PlanPooledUse(c.shards, c.demand, now)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		got := showShort(have)
		if have == nil {
			got = showTaken(pieces, len(c.demand) > 1)
		}
		if got != c.want {
			t.Errorf("%s: got\n%s, want\n%s", c.name, got, c.want)
		}
	}
	if _, _, err := PlanPooledUse(calls(1, 2), Demand{"nope": 1}, now); fmt.Sprint(err) != "no such limit on the bucket: nope" {
		t.Errorf("a limit that is not there: %v", err)
	}
}

func showTaken(pieces []Piece, named bool) string {
	var parts []string
	for _, p := range pieces {
		text := fmt.Sprint(p.Bucket.Shard)
		for i := range p.Bucket.Limits {
			if amount, ok := p.Demand[p.Bucket.Limits[i].Name]; ok && named {
				text += fmt.Sprintf(" %s %d", p.Bucket.Limits[i].Name, amount)
			} else if ok {
				text += fmt.Sprintf(" %d", amount)
			}
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

// Several writes of one transaction cost their items two units each; one alone
// is no transaction.
func TestPoolingIsMetered(t *testing.T) {
	const now = day + hour
	shards := []*Bucket{
		shardOf(0, 2, now, with(calendar("q", 5, 4000, 2), pooled), meter(1000_000)),
		shardOf(1, 2, now, with(calendar("q", 5, 4000, 2), pooled), meter(1000_000)),
	}
	for amount, want := range map[int64]string{8: "2000", 5: "1000"} {
		pieces, _, err := PlanPooledUse(shards, Demand{"q": amount}, now)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pieces {
			if got := showUse(p.Use); !strings.Contains(got, "wcu "+want) {
				t.Errorf("%d of %d: %s", amount, len(pieces), got)
			}
		}
	}
}

// pooledGroup is a random group, all shards of it, of one pooled limit that
// drips or is restored by a calendar.
func pooledGroup(r *rand.Rand) (shards []*Bucket, now int64) {
	b, now := scheduledBucket(r)
	for b.Limits[0].Kind() == Session {
		b, now = scheduledBucket(r)
	}
	b.ShardCount = 1 << (1 + r.IntN(2))
	b.Limits = b.Limits[:1]
	b.Limits[0].Division = Pooled
	for shard := range b.ShardCount {
		other := copyOf(b)
		other.Shard, other.RefilledAt = shard, b.RefilledAt+r.Int64N(3)
		other.Limits[0].Balance = r.Int64N(Share(b.Limits[0].Base.Capacity, b.ShardCount) + 1)
		shards = append(shards, other)
	}
	return shards, now
}

// What is pooled is what is asked, off what is there; and a shortage is
// honest: at the time that it names there is enough, and not before.
func TestPoolingIsHonest(t *testing.T) {
	given, waits, nevers, open := 0, 0, 0, 0
	for seed := range uint64(600) {
		r := rand.New(rand.NewPCG(seed, 12))
		shards, now := pooledGroup(r)
		l := &shards[0].Limits[0]
		amount := 1 + r.Int64N(Share(l.Base.Capacity, shards[0].ShardCount)*int64(len(shards))+2)
		if r.IntN(5) == 0 {
			amount += Share(l.Base.Capacity, shards[0].ShardCount) * int64(shards[0].ShardCount)
		}
		gives := func(at int64) bool {
			pieces, have, err := PlanPooledUse(shards, Demand{l.Name: amount}, at)
			if err != nil || (pieces == nil) == (have == nil) {
				t.Fatalf("seed %d: %v, %v, %v", seed, pieces, have, err)
			}
			checkPieces(t, seed, pieces, l.Name, amount)
			return have == nil
		}
		if gives(now) {
			given++
			continue
		}
		_, have, _ := PlanPooledUse(shards, Demand{l.Name: amount}, now)
		if s := have[0]; s.At-now > 10*day {
			open++ // the search stops after so many turns
		} else if s.Never {
			nevers++
			for i := range int64(20) {
				if at := now + i*400*hour + r.Int64N(400*hour); gives(at) {
					t.Fatalf("seed %d: never, and given at %d", seed, at)
				}
			}
		} else {
			waits++
			if s.At <= now || !gives(s.At) {
				t.Fatalf("seed %d: not given at %d, of %d", seed, s.At, now)
			}
			for _, before := range []int64{s.At - 1, now + r.Int64N(s.At-now)} {
				if gives(before) {
					t.Fatalf("seed %d: given at %d, before %d", seed, before, s.At)
				}
			}
		}
	}
	if given < 200 || waits < 120 || nevers < 20 || open > 30 {
		t.Errorf("%d given, %d waits, %d never, %d open: the input tests too little", given, waits, nevers, open)
	}
}

func checkPieces(t *testing.T, seed uint64, pieces []Piece, name string, amount int64) {
	t.Helper()
	sum := int64(0)
	for _, p := range pieces {
		taken := p.Demand[name]
		if sum += taken; taken <= 0 {
			t.Fatalf("seed %d: %s", seed, showPieces(pieces))
		}
		after := copyOf(p.Bucket)
		p.Use.Apply(after)
		if after.Limit(name).Balance < taken {
			t.Fatalf("seed %d: shard %d has less\n%s", seed, p.Bucket.Shard, showPieces(pieces))
		}
	}
	if pieces != nil && sum != amount {
		t.Fatalf("seed %d: %d of %d\n%s", seed, sum, amount, showPieces(pieces))
	}
}
