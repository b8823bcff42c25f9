package proof_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/shardquota/shardquota/quota"
)

// double doubles shard 0's count, and returns the record of it.
func (w *world) double(from int) *record {
	result, err := w.requests(nil, "", nil).Double(context.Background(), acme, from)
	if err != nil || !result.Applied {
		panic(fmt.Sprint("not doubled from ", from, ": ", err))
	}
	return w.stream.log[len(w.stream.log)-1]
}

// deliver hands records to an aggregator.
func (w *world) deliver(t testing.TB, now int64, batch ...*record) {
	t.Helper()
	agg := over(w.requests(nil, "", nil), w.windows...)
	report := agg.ProcessDecoded(context.Background(), w.deliveries(batch), func(int64) int64 { return now })
	if err := report.Err(); err != nil {
		t.Fatal(err)
	}
}

// Acceptance: while nobody spends, exactly 1,000,000 millitokens are held at
// every count from 1 to 32, whoever creates the shards, in whatever order, and
// whenever the aggregator sees a doubling.
func TestNobodySpends(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds, which -short leaves out")
	}
	for chunk := range uint64(4) {
		t.Run(fmt.Sprint(chunk), func(t *testing.T) {
			t.Parallel()
			for seed := chunk * walks / 4; seed < (chunk+1)*walks/4; seed++ {
				nobodySpends(t, seed)
			}
		})
	}
}

func nobodySpends(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 7))
	w, late := newWorld(mutant{}, decoder{}, noon, q(0, 1, million, 1)), []*record(nil)
	for n := 1; n < quota.MaxShards; n *= 2 {
		doubling := w.double(n)
		late = append(late, doubling)
		drawn := r.Perm(2 * n)[:r.IntN(2*n+1)]
		cut := r.IntN(len(drawn) + 1)
		w.createAll(nil, drawn[:cut]...)
		if r.IntN(3) > 0 {
			w.deliver(t, noon, late...)
			if late = late[:0]; r.IntN(2) == 0 {
				late = append(late, doubling) // again
			}
		}
		w.createAll(nil, drawn[cut:]...)
		if held := w.held(); held != million {
			t.Fatalf("seed %d: %d held at %d shards", seed, held, 2*n)
		}
		evenly(t, w, seed)
	}
	if wrong := w.settle() + w.check(); wrong != "" {
		t.Fatalf("seed %d: %s", seed, wrong)
	}
	for _, b := range w.all() {
		if held := b.Limit("q").Balance; held != million/quota.MaxShards {
			t.Fatalf("seed %d: shard %d holds %d", seed, b.Shard, held)
		}
	}
}

// createAll lets a client create shards, planned by fund, where they are not there.
func (w *world) createAll(fund fundFunc, shards ...int) {
	for _, shard := range shards {
		if w.at(shard) == nil {
			c := client{w: w, store: w.requests(nil, "", nil), fund: fund}
			c.create(shard)
		}
	}
}

// evenly checks that every shard holds a share for itself and for each of the
// slots that it is the closest donor of: so no donor runs dry before another.
func evenly(t *testing.T, w *world, seed uint64) {
	t.Helper()
	n, slotsOf := w.at(0).ShardCount, map[int]int{}
	for slot := range n {
		best, closest := -1, 0
		for _, b := range w.all() {
			if grant := grantOf(b); grant > closest && quota.Covers(b.Shard, grant, slot) {
				best, closest = b.Shard, grant
			}
		}
		slotsOf[best]++
	}
	for _, b := range w.all() {
		if held := b.Limit("q").Balance; held != int64(slotsOf[b.Shard])*million/int64(n) {
			t.Fatalf("seed %d: at %d shards, shard %d holds %d for %d slots", seed, n, b.Shard, held, slotsOf[b.Shard])
		}
	}
}

// smallest funds a shard off the donor with the smallest grant count.
func smallest(zero *quota.Bucket, siblings []*quota.Bucket, shard, count int, now int64) ([]quota.Funding, error) {
	var best []*quota.Bucket
	grantOf := func(b *quota.Bucket) int { return b.Limit("q").GrantCount(b.ShardCount, million) }
	for _, s := range siblings {
		if !s.Limit("q").Current(s.RefilledAt, now) || !quota.Covers(s.Shard, grantOf(s), shard) {
			continue
		}
		if best == nil || grantOf(s) < grantOf(best[0]) {
			best = []*quota.Bucket{s}
		}
	}
	return quota.Fund(zero, best, shard, count, now)
}

// A donor other than the closest fit gives away what others will need: no token
// is lost or made, so that no search can find it, but shards are created empty
// while others hold twice their share. A walk on which nobody spends shows it.
func TestSmallestDonorRunsDry(t *testing.T) {
	starved := func(fund fundFunc) (starved int) {
		w := newWorld(mutant{}, decoder{}, noon, q(0, 1, million, 1))
		for n := 1; n < 8; n *= 2 {
			w.double(n)
			for shard := range 2 * n {
				w.createAll(fund, shard)
			}
		}
		eq(t, "held", w.held(), million)
		for _, b := range w.all() {
			if b.Limit("q").Balance == 0 {
				starved++
			}
		}
		return starved
	}
	eq(t, "by the rules", starved(quota.Fund), 0)
	if starved(smallest) == 0 {
		t.Error("not caught")
	}
}
