package quota

import (
	"errors"
	"testing"
)

// A move takes off what its donor holds above its ceiling, which a pass has not
// trimmed yet: after it donor and shard hold no more than the donor's grant.
func TestAMoveTrimsItsDonor(t *testing.T) {
	const now = day + hour
	for _, x := range []struct {
		name              string
		donor             Limit
		count             int
		amount, off, left int64
	}{
		{"at its ceiling", calendar("q", 1000, 1000, 1), 2, 500, 500, 500},
		{"below it", calendar("q", 300, 1000, 1), 2, 300, 300, 0},
		{"above it", calendar("q", 1600, 1000, 1), 2, 500, 1100, 500},
		{"a grant of a quarter, of eight", calendar("q", 1000, 1000, 4), 8, 125, 875, 125},
		{"topped up", with(calendar("q", 1200, 1000, 1), func(l *Limit) { l.TopUp = 150 }), 2, 500, 550, 650},
		{"in debt", calendar("q", -5, 1000, 1), 2, 0, 0, -5},
	} {
		zero := shardOf(0, x.count, now, x.donor)
		fundings, err := Fund(zero, []*Bucket{zero}, x.count/2, x.count, now)
		if err != nil {
			t.Fatal(err)
		}
		var off int64
		for _, move := range Moves(fundings) {
			off += move.Amount
		}
		if got := fundings[0].Amount; got != x.amount || off != x.off || x.donor.Balance-off != x.left {
			t.Errorf("%s: %d moved, %d taken off, %d left, want %d, %d, %d", x.name, got, off, x.donor.Balance-off, x.amount, x.off, x.left)
		}
	}
}

// What is granted anew is what was granted in no period of the new terms.
func TestRegrants(t *testing.T) {
	const now = day + hour
	noons, err := NewResets("", "0 12 * * *") // the last was half a day ago
	if err != nil {
		t.Fatal(err)
	}
	noon := func(l *Limit) { l.Resets = noons }
	daily := calendar("q", 900, 1000, 1)
	of := func(started int64, length int64) Limit {
		return with(session("q", 900, 1000, started, 1), func(l *Limit) { l.Window.Length = length })
	}
	unreadable := with(dripping("q", 900, 1000), func(l *Limit) { l.Base.Refill = 0 })
	for _, x := range []struct {
		name     string
		was, is  Limit
		refilled int64
		broken   bool
		want     bool
	}{
		{"it dripped", dripping("q", 900, 1000), daily, now, false, true},
		{"and is to have windows", dripping("q", 900, 1000), of(day, hour), now, false, true},
		{"it drips on", dripping("q", 900, 1000), dripping("q", 900, 2000), now, false, false},
		{"it was none", daily, dripping("q", 900, 1000), now, false, false},
		{"it came", dripping("other", 900, 1000), daily, now, false, false},
		{"the same calendar", daily, daily, day - 1, false, false},
		{"a period that was over goes on", daily, with(daily, noon), day - 1, false, true},
		{"is over by both", daily, with(daily, noon), day - 13*hour, false, false},
		{"holds by both", daily, with(daily, noon), now, false, false},
		{"a window that holds", of(now-1, hour), daily, now, false, false},
		{"a window that is over", of(now-2*hour, hour), daily, now, false, true},
		{"is longer", of(now-2*hour, hour), of(now-2*hour, 3*hour), now, false, true},
		{"was not heard of", with(of(now-1, hour), func(l *Limit) { l.Window.Applied = new(int64(1)) }), daily, now, false, true},
		{"nobody knows what it was", unreadable, daily, now, true, false},
		{"nobody knows what another was", dripping("q", 900, 1000), daily, now, true, true},
		{"nothing restored it", unreadable, daily, now, false, true},
	} {
		before, b := shardOf(0, 2, x.refilled, x.was), shardOf(0, 2, x.refilled, x.is)
		if x.broken {
			before.Broken = errors.New("no schedule")
		}
		if got := b.Regrants("q", before, now); got != x.want {
			t.Errorf("%s: %v", x.name, got)
		}
	}
}
