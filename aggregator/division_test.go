package aggregator_test

import (
	"fmt"
	"testing"
)

// says gives a limit a division.
func says(limit, division string) attrs { return attrs{"b_" + limit + "_div": division} }

// Of a limit that is replicated each shard holds up to the whole capacity, and
// refills by its part: 750 a second of the 90,000 a minute that two share.
func TestReplicatedLimits(t *testing.T) {
	for division, want := range map[string]string{
		"replicated": "full 90000, rpm 1500, tpm 81500, wcu 1000000, rf +2000",
		"divided":    "full 45000, rpm 1500, tpm 45000, wcu 1000000, rf +2000",
		"gathered":   "full 45000, rpm 1500, tpm 45000, wcu 1000000, rf +2000",
		"by halves":  "full 45000, rpm 1500, tpm 45000, wcu 1000000, rf +2000",
	} {
		w := newWorld(t)
		start := bucketItem(acme.At(0), count(2), drips("rpm", 1000, 90_000), drips("tpm", 80_000, 90_000), drips("full", 89_999, 90_000),
			says("tpm", division), says("full", division))
		d, item := w.spend(noon+2000, start, "rpm", 1000)
		w.put(item)
		w.sound(noon+2000, d)
		eq(t, division, w.balances(0), want)
	}
}

// A quota that says it is replicated is divided, and counted. What drips and is
// replicated is split between old shards and new ones.
func TestAReplicatedQuotaIsDivided(t *testing.T) {
	zero := quotaZero(4, says("tpd", "replicated"), says("rpm", "replicated"), drips("rpm", 60_000, 60_000))
	w := newWorld(t, zero, bucketItem(acme.At(1), count(4), daily("tpd", 0, 1000_000, 4)))
	report := w.sound(noon, w.doubles(noon, zero, 2, 4))
	eq(t, "created", len(report.Created), 2)
	for _, b := range shardsOf(w)[2:] {
		eq(t, fmt.Sprintf("shard %d: tpd", b.Shard), b.Limit("tpd").Balance, 250_000)
		eq(t, "carried", string(b.Limit("rpm").Division), "replicated")
	}
	var rpm int64
	for _, b := range shardsOf(w) {
		if l := b.Limit("rpm"); l != nil {
			rpm += l.Balance
		}
	}
	eq(t, "rpm of all shards, as before the doubling", rpm, 60_000)
	eq(t, "ignored", fmt.Sprint(report.InvalidDivisions), "[{{{ns1 sk-live-acme gpt-4} 0} tpd replicated}]")
}
