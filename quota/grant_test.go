package quota

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// showFunding renders fundings on one line.
func showFunding(fundings []Funding) string {
	var parts []string
	for _, f := range fundings {
		text := fmt.Sprintf("%s %s %d", f.Limit, f.Source, f.Amount)
		if f.Source == Move {
			text += fmt.Sprintf(" of %d", f.Donor)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

// shards are siblings that hold one quota each.
func shards(count int, refilled int64, limits map[int]Limit) []*Bucket {
	var buckets []*Bucket
	for shard := range MaxShards {
		if limit, ok := limits[shard]; ok {
			buckets = append(buckets, shardOf(shard, count, refilled, limit))
		}
	}
	return buckets
}

// A new shard of a replicated limit halves what the closest shard has of which it
// is a half, so that a doubling gives out nothing.
func TestFundAReplicatedLimit(t *testing.T) {
	replicated := func(balance int64) Limit {
		return with(dripping("rpm", balance, 64_000), func(l *Limit) { l.Division = Replicated })
	}
	for _, c := range []struct {
		name     string
		siblings map[int]Limit
		shard    int
		want     string
	}{
		{"off its half", map[int]Limit{0: replicated(9000), 2: replicated(5001)}, 6, "rpm 2500 move off 2"},
		{"that is not there yet", map[int]Limit{0: replicated(9000), 1: replicated(5001)}, 6, "rpm 4500 move off 0"},
		{"that is in debt", map[int]Limit{0: replicated(9000), 2: replicated(-5001)}, 6, "rpm 0 move off 2"},
		{"that lacks it", map[int]Limit{0: replicated(9000), 2: dripping("tpm", 1, 2)}, 6, "rpm 4500 move off 0"},
		{"shard 0 made anew", map[int]Limit{4: replicated(9000)}, 0, "rpm 0 move off 0"},
	} {
		fundings, err := Fund(shardOf(0, 8, day, replicated(9000)), shards(8, day, c.siblings), c.shard, 8, day)
		if err != nil {
			t.Fatal(err)
		}
		if f := fundings[0]; fmt.Sprintf("%s %d %s off %d", f.Limit, f.Amount, f.Source, f.Donor) != c.want {
			t.Errorf("%s: %+v, want %s", c.name, f, c.want)
		}
	}
}

func TestFundOneQuota(t *testing.T) {
	const now = day + hour
	c := func(balance int64, grant int) Limit { return calendar("q", balance, 1000, grant) }
	stale := func(b []*Bucket, shard int) []*Bucket {
		for _, x := range b {
			if x.Shard == shard {
				x.RefilledAt = day - 1
			}
		}
		return b
	}
	for _, x := range []struct {
		name         string
		siblings     []*Bucket
		shard, count int
		want         string
	}{
		{"off the only grant", shards(2, now, map[int]Limit{0: c(1000, 1)}), 1, 2, "q move 500 of 0"},
		{"what the donor has", shards(2, now, map[int]Limit{0: c(70, 1)}), 1, 2, "q move 70 of 0"},
		{"from a donor with nothing", shards(2, now, map[int]Limit{0: c(0, 1)}), 1, 2, "q move 0 of 0"},
		{"never below 0", shards(2, now, map[int]Limit{0: c(-70, 1)}), 1, 2, "q move 0 of 0"},
		{"no grant covers the slot", shards(2, now, map[int]Limit{0: c(500, 2)}), 1, 2, "q mint 500"},
		{"nobody is there", nil, 3, 4, "q mint 250"},
		{"rounded down", shards(32, now, map[int]Limit{0: c(1000, 1)}), 31, 32, "q move 31 of 0"},
		{"slots by residue: 3 of 4 is shard 1's of 2", shards(4, now, map[int]Limit{0: c(500, 2), 1: c(500, 2)}), 3, 4, "q move 250 of 1"},
		{"and 2 of 4 shard 0's", shards(4, now, map[int]Limit{0: c(500, 2), 1: c(500, 2)}), 2, 4, "q move 250 of 0"},
		{"the largest grant count wins", shards(8, now, map[int]Limit{0: c(500, 1), 1: c(250, 2), 5: c(125, 8), 3: c(125, 4)}), 7, 8,
			"q move 125 of 3"},
		{"the largest that covers it", shards(8, now, map[int]Limit{0: c(500, 1), 1: c(250, 2), 3: c(125, 4)}), 5, 8, "q move 125 of 1"},
		{"however little it has", shards(4, now, map[int]Limit{0: c(900, 1), 1: c(3, 2)}), 3, 4, "q move 3 of 1"},
		{"the lowest index on a tie", shards(8, now, map[int]Limit{1: c(9, 4), 5: c(700, 4), 3: c(9, 1)}), 9, 16, "q move 9 of 1"},
		{"a donor of a period before is none", stale(shards(2, now, map[int]Limit{0: c(1000, 1)}), 0), 1, 2, "q mint 500"},
		{"a current one behind it is", stale(shards(4, now, map[int]Limit{0: c(900, 1), 1: c(400, 2)}), 1), 3, 4, "q move 250 of 0"},
		{"the shard's own item is no donor", shards(2, now, map[int]Limit{1: c(900, 1)}), 1, 2, "q mint 500"},
		{"a stored grant below 1 is one at the count", shards(2, now, map[int]Limit{0: with(c(900, 1), func(l *Limit) { l.Grant = new(0) })}), 1, 2,
			"q mint 500"},
		{"legacy, unspent at its count", shards(4, now, map[int]Limit{0: c(250, 0)}), 2, 4, "q mint 250"},
		{"legacy, more than a share", shards(4, now, map[int]Limit{0: c(251, 0)}), 2, 4, "q move 250 of 0"},
		{"legacy, half: not shard 3's", shards(4, now, map[int]Limit{0: c(500, 0)}), 3, 4, "q mint 250"},
		{"a sibling without the limit", shards(2, now, map[int]Limit{0: dripping("rpm", 5, 5)}), 1, 2, "q mint 500"},
		{"a sibling where it still drips", shards(2, now, map[int]Limit{0: dripping("q", 5, 5)}), 1, 2, "q mint 500"},
	} {
		slices.Reverse(x.siblings) // their order must not matter
		template := shardOf(0, x.count, now, c(0, 1))
		got, err := Fund(template, x.siblings, x.shard, x.count, now)
		if showFunding(got) != x.want || err != nil {
			t.Errorf("%s: %s, %v, want %s", x.name, showFunding(got), err, x.want)
		}
	}
}

func TestFundEveryLimit(t *testing.T) {
	zero := shardOf(0, 4, day+1,
		calendar("day", 800, 1000, 1), dripping("rpm", 3, 1001), with(dripping("scheduled", 0, 1000), func(l *Limit) { l.Schedule = night }),
		session("s", 400, 999, day, 1), with(dripping("soft", 0, 80), func(l *Limit) { l.Soft = MaxTime }), meter(17))
	got, err := Fund(zero, []*Bucket{zero}, 3, 4, day+2)
	want := "day move 250 of 0, rpm share 250, scheduled share 125, s move 249 of 0, soft share 20, wcu share 1000000"
	if showFunding(got) != want || err != nil {
		t.Errorf("got %s, %v", showFunding(got), err)
	}
}

func TestFundSession(t *testing.T) {
	const now = day + 5
	live := session("s", 800, 1000, day, 1)
	for _, x := range []struct {
		name  string
		donor Limit
		want  string
	}{
		{"live", live, "s move 500 of 0"},
		{"ended", session("s", 800, 1000, day-hour, 1), "s mint 500"},
		{"pending", opened(session("s", 800, 1000, day-hour, 1), day, nil), "s mint 500"},
		{"never opened", session("s", 800, 1000, 0, 1), "s mint 500"},
		{"live without marker", with(live, unmarked), "s move 500 of 0"},
	} {
		got, err := Fund(shardOf(0, 2, now, live), shards(2, now, map[int]Limit{0: x.donor}), 1, 2, now)
		if showFunding(got) != x.want || err != nil {
			t.Errorf("%s: %s, %v", x.name, showFunding(got), err)
		}
	}
}

func TestFundRefused(t *testing.T) {
	sound := shardOf(0, 2, day, calendar("q", 800, 1000, 1))
	broken := shardOf(1, 2, day, calendar("q", 800, 1000, 1))
	broken.Broken = fmt.Errorf("%w: x", ErrSchedule)
	tooMuch := shardOf(0, 2, day, with(dripping("rpm", 0, MaxAmount), func(l *Limit) { l.Schedule = tooLarge }))
	for _, x := range []struct {
		name     string
		template *Bucket
		siblings []*Bucket
	}{
		{"template", broken, []*Bucket{sound}},
		{"a sibling, whose grant is then unknown", sound, []*Bucket{sound, broken}},
		{"a schedule that cannot be evaluated", tooMuch, []*Bucket{sound}},
	} {
		if got, err := Fund(x.template, x.siblings, 1, 2, day); !errors.Is(err, ErrSchedule) || got != nil {
			t.Errorf("%s: %s, %v", x.name, showFunding(got), err)
		}
	}
}

func TestGuards(t *testing.T) {
	guard := func(donor *Bucket, count int, now int64) Guard {
		t.Helper()
		got, err := Fund(donor, []*Bucket{donor}, 3, count, now)
		if err != nil || len(got) != 1 || got[0].Source != Move {
			t.Fatalf("%s, %v", showFunding(got), err)
		}
		return got[0].Guard
	}
	for _, x := range []struct {
		name string
		got  Guard
		want Guard
	}{
		{"calendar", guard(shardOf(1, 4, day+9, calendar("q", 1, 1000, 2)), 4, day+hour), Guard{Grant: 2, ShardCount: 4, RefilledAt: day}},
		{"legacy", guard(shardOf(1, 4, day+9, calendar("q", 400, 1000, 0)), 4, day+hour), Guard{Grant: 2, Legacy: true, ShardCount: 4, RefilledAt: day}},
		{"stored grant of 0", guard(shardOf(1, 2, day+9, with(calendar("q", 400, 1000, 1), func(l *Limit) { l.Grant = new(0) })), 4, day+hour),
			Guard{Grant: 2, ShardCount: 2, RefilledAt: day}},
	} {
		if x.got != x.want {
			t.Errorf("%s: %+v, want %+v", x.name, x.got, x.want)
		}
	}
	got := guard(shardOf(1, 4, day+9, session("q", 1, 1000, day+2, 2)), 4, day+hour)
	if got.Applied == nil || *got.Applied != day+2 || !got.SessionOnly || got.Grant != 2 || got.RefilledAt != 0 {
		t.Errorf("session: %+v", got)
	}
	got = guard(shardOf(1, 4, day+9, with(session("q", 1, 1000, day+2, 2), unmarked)), 4, day+hour)
	if got.Applied != nil || !got.SessionOnly {
		t.Errorf("session without marker: %+v", got)
	}
}

func TestFreezes(t *testing.T) {
	b := shardOf(1, 4, day,
		calendar("have", 9, 1000, 2), calendar("spent", 9, 1000, 0), calendar("half", 500, 1000, 0),
		dripping("rpm", 900, 1000), session("s", 1000, 1000, day, 0), meter(0),
		with(calendar("scheduled", 200, 1000, 0), func(l *Limit) { l.Schedule = night }),
		with(calendar("topped", 500, 1000, 0), func(l *Limit) { l.TopUp = 300 }),
		with(calendar("unreadable", 600_000_000_000_000, 1000_000_000_000_000, 0), func(l *Limit) { l.Schedule = tooLarge }))
	want := "[{spent 4} {half 2} {s 1} {scheduled 2} {topped 4} {unreadable 1}]"
	if got := fmt.Sprint(FrozenGrants(b, day)); got != want {
		t.Errorf("got %s", got)
	}
	if got := FrozenGrants(shardOf(0, 1, 0, dripping("rpm", 0, 1), calendar("q", 0, 1, 1)), day); got != nil {
		t.Errorf("nothing to freeze: %v", got)
	}
}

func TestCovers(t *testing.T) {
	for _, c := range []struct {
		shard, grant int
		want         string
	}{
		{0, 1, "[0 1 2 3 4 5 6 7]"}, {1, 2, "[1 3 5 7]"}, {3, 2, "[1 3 5 7]"}, {3, 4, "[3 7]"}, {7, 8, "[7]"}, {0, 8, "[0]"},
	} {
		var slots []int
		for slot := range 8 {
			if Covers(c.shard, c.grant, slot) {
				slots = append(slots, slot)
			}
		}
		if got := fmt.Sprint(slots); got != c.want {
			t.Errorf("shard %d at %d covers %s, want %s", c.shard, c.grant, got, c.want)
		}
	}
}

func TestAudit(t *testing.T) {
	const now = day + hour
	c := func(balance int64, grant int) Limit { return calendar("q", balance, 1000, grant) }
	at := func(refilled int64, shard, count int, l Limit) *Bucket { return shardOf(shard, count, refilled, l) }
	for _, x := range []struct {
		name   string
		shards []*Bucket
		want   string // capacity held granted grantable top-up conserved
	}{
		{"nobody", nil, "0 0 0 0 0 true"},
		{"one shard", []*Bucket{at(now, 0, 1, c(400, 1))}, "1000 400 1000 0 0 true"},
		{"disjoint", []*Bucket{at(now, 0, 2, c(400, 2)), at(now, 1, 2, c(300, 2))}, "1000 700 1000 0 0 true"},
		{"uncovered", []*Bucket{at(now, 0, 4, c(250, 4)), at(now, 2, 4, c(200, 4))}, "1000 450 500 500 0 true"},
		{"nested: moved off, not granted afresh", []*Bucket{at(now, 0, 4, c(250, 1)), at(now, 1, 4, c(250, 2)), at(now, 3, 4, c(200, 4))},
			"1000 700 1000 0 0 true"},
		{"nested beside a gap", []*Bucket{at(now, 1, 4, c(250, 2)), at(now, 3, 4, c(250, 4))}, "1000 500 500 500 0 true"},
		{"overlapping: one slot granted twice", []*Bucket{at(now, 1, 4, c(250, 4)), at(now, 5, 8, c(250, 4))}, "1000 500 250 750 0 false"},
		{"twice within a grant", []*Bucket{at(now, 0, 8, c(250, 1)), at(now, 1, 8, c(125, 8)), at(now, 1, 8, c(125, 8))}, "1000 500 1000 0 0 false"},
		{"stale shards hold nothing and are owed theirs", []*Bucket{at(day-1, 0, 2, c(900, 1)), at(now, 1, 2, c(400, 2))}, "1000 400 500 500 0 true"},
		{"all stale", []*Bucket{at(day-1, 0, 2, c(900, 1))}, "1000 0 0 1000 0 true"},
		{"a lagging count", []*Bucket{at(now, 0, 4, c(250, 4)), at(now, 1, 2, c(500, 2))}, "1000 750 750 250 0 true"},
		{"rounding: 1000 // 32 is 31", []*Bucket{at(now, 0, 32, c(31, 32))}, "1000 31 31 961 0 true"},
		{"a top-up is no grant", []*Bucket{at(now, 0, 1, with(c(1100, 1), func(l *Limit) { l.TopUp = 150 }))}, "1000 1100 1000 0 150 true"},
		{"legacy", []*Bucket{at(now, 0, 4, c(600, 0))}, "1000 600 1000 0 0 true"},
		{"in debt", []*Bucket{at(now, 0, 1, c(-60, 1))}, "1000 -60 1000 0 0 true"},
		{"a sibling without the limit has no say", []*Bucket{at(now, 0, 2, c(500, 2)), at(now, 1, 2, dripping("rpm", 0, 1))}, "1000 500 500 500 0 true"},
		{"shard 0 has the last word on the capacity", []*Bucket{at(now, 1, 2, calendar("q", 9, 600, 2)), at(now, 0, 2, c(500, 2))},
			"1000 509 1000 0 0 true"},
	} {
		row, err := Audit("q", x.shards, now)
		got := fmt.Sprint(row.Capacity, row.Held, row.Granted, row.Grantable, row.TopUp, row.Conserved)
		if got != x.want || err != nil || row.Limit != "q" {
			t.Errorf("%s: %s, %v, want %s", x.name, got, err, x.want)
		}
	}
}

func TestAuditSession(t *testing.T) {
	row, err := Audit("s", []*Bucket{
		shardOf(0, 4, day, session("s", 500, 1000, day, 2)),
		shardOf(1, 4, day, session("s", 77, 1000, day-hour, 2)), // ended
		shardOf(3, 4, day, opened(session("s", 88, 1000, day-hour, 2), day, nil)),
	}, day+1)
	if want := (Row{"s", 1000, 500, 500, 500, 0, true}); row != want || err != nil {
		t.Errorf("got %+v, %v", row, err)
	}
}

func TestAuditRefused(t *testing.T) {
	b := shardOf(0, 1, day, calendar("q", 0, 1, 1))
	b.Broken = fmt.Errorf("%w: x", ErrSchedule)
	if _, err := Audit("q", []*Bucket{b}, day); !errors.Is(err, ErrSchedule) {
		t.Errorf("broken: %v", err)
	}
	b = shardOf(0, 1, day, with(calendar("q", 0, MaxAmount, 1), func(l *Limit) { l.Schedule = tooLarge }))
	if _, err := Audit("q", []*Bucket{b}, day); !errors.Is(err, ErrSchedule) {
		t.Errorf("not evaluated: %v", err)
	}
}

// Walks from 1 shard to 32, shards created in any order or left out: while
// nobody spends nothing is created or destroyed, whatever the capacity.
func TestFundConserves(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 3))
		capacity := int64(32 * (1 + r.IntN(40_000)))
		family := []*Bucket{shardOf(0, 1, day, calendar("q", capacity, capacity, 1))}
		for count := 2; count <= MaxShards; count *= 2 {
			for _, b := range family {
				b.ShardCount = count
			}
			for _, shard := range r.Perm(count) {
				known := slices.ContainsFunc(family, func(b *Bucket) bool { return b.Shard == shard })
				if known || r.IntN(4) == 0 && count < MaxShards {
					continue
				}
				family = append(family, grown(t, family, shard, count, capacity))
			}
			row, err := Audit("q", family, day)
			if want := (Row{"q", capacity, capacity, capacity, 0, 0, true}); row != want || err != nil {
				t.Fatalf("seed %d: at %d shards: %+v, %v", seed, count, row, err)
			}
		}
		for _, b := range family {
			if got := b.Limits[0].Balance; got != capacity/MaxShards {
				t.Fatalf("seed %d: shard %d holds %d, not an even share", seed, b.Shard, got)
			}
		}
	}
}

// grown creates a shard of a family whose donors all have enough.
func grown(t *testing.T, family []*Bucket, shard, count int, capacity int64) *Bucket {
	fundings, err := Fund(family[0], family, shard, count, day)
	if err != nil || fundings[0].Source != Move || fundings[0].Amount != capacity/int64(count) {
		t.Fatalf("shard %d of %d: %s, %v", shard, count, showFunding(fundings), err)
	}
	for _, b := range family {
		if b.Shard == fundings[0].Donor {
			b.Limits[0].Balance -= fundings[0].Amount
		}
	}
	return shardOf(shard, count, day, calendar("q", fundings[0].Amount, capacity, count))
}
