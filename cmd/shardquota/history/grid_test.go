package history

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/shardquota/shardquota/internal/fixture"
)

// However far writes lie apart there are never more slots than asked for, sums
// stay what they were, and each slot's value is that of the last write in it.
func TestGridAgainstAPlainList(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		at := int64(random.IntN(1_000_000))
		c := newClock(at, 10, 8)
		sum, last := c.track(true), c.track(false)
		type write struct{ at, value int64 }
		var writes []write
		for range 1 + random.IntN(60) {
			at += int64(random.IntN(400)) - 50
			at = max(at, 0)
			value := int64(random.IntN(1000))
			slot := c.slot(at)
			sum.put(slot, value)
			last.put(slot, value)
			writes = append(writes, write{at, value})
		}
		if c.slots > 8 {
			t.Fatalf("seed %d: %d slots", seed, c.slots)
		}
		sums := make([]int64, c.slots)
		for _, w := range writes {
			sums[(w.at-c.start)/c.step] += w.value
		}
		if got := sum.filled(c.slots); !slices.Equal(got, sums) {
			t.Fatalf("seed %d: sums %v, want %v", seed, got, sums)
		}
		inOrder := slices.IsSortedFunc(writes, func(a, b write) int { return int(a.at - b.at) })
		if got := last.filled(c.slots); inOrder && got[c.slots-1] != writes[len(writes)-1].value {
			t.Fatalf("seed %d: ends in %v, want %d", seed, got, writes[len(writes)-1].value)
		}
	}
}

// The slots of a grid begin at multiples of their length, wherever it began.
func TestGridIsAligned(t *testing.T) {
	for begin := range int64(64) {
		c := newClock(begin*1000, 1000, 8)
		c.slot(begin * 1000)
		c.slot(begin*1000 + 40_000)
		fixture.Eq(t, "step", c.step, 8000)
		fixture.Eq(t, "rest", c.start%c.step, 0)
	}
}

// A value goes on until the next one, and no further than its shard.
func TestFilled(t *testing.T) {
	c := newClock(0, 1, 100)
	track := c.track(false)
	for at, value := range map[int64]int64{2: 7, 4: 9, 6: gone} {
		track.put(c.slot(at), value)
	}
	c.slot(8)
	fixture.Eq(t, "values", track.filled(c.slots), []int64{None, None, 7, 7, 9, 9, None, None, None})
}
