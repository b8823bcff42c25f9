package table

import (
	"fmt"
	"strings"
	"testing"

	"github.com/shardquota/shardquota/quota"
)

// fifty is a bucket of fifty quotas, of which nothing is recorded.
func fifty(t testing.TB) *Bucket {
	t.Helper()
	item := EmptyBucket(Group{"n", "e", "r"}.At(0), 1, 1)
	for i := range 50 {
		for field, value := range map[Field]int64{"tk": 10, "tc": 0, "cp": 100_000, "ra": 0, "rp": 1000, "rsa": 3600} {
			item[Attr(fmt.Sprintf("limit%02d", i)+strings.Repeat("x", 57), field)] = Int(value)
		}
	}
	b, err := DecodeBucket(item)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Fifty limits, more than a declaration can have, fit each write that no declaration
// is checked for: a pass that is not exact, a reconcile, a raise, usage of all shards.
func TestOtherWritesHaveRoom(t *testing.T) {
	b := fifty(t)
	b.RefilledAt, b.ValidUntil = 1, new(int64)
	pass := &quota.Pass{RefilledAt: 2, ExpectRefilledAt: 1, ExpectValidUntil: b.ValidUntil, ValidUntil: new(int64), ShardCount: 32}
	counters, refunds := map[string]int64{}, []quota.Adjustment{}
	for i := range b.Limits {
		name := b.Limits[i].Name
		pass.Changes = append(pass.Changes, quota.Change{Limit: name, Delta: 2, Max: new(int64), Restore: true, Applied: new(int64), Roll: new(int64)})
		refunds = append(refunds, quota.Adjustment{Limit: name, Consumed: -1, Balance: 1, Max: new(int64)})
		if name != quota.WriteMeter {
			counters[name] = 1
		}
	}
	for _, w := range []*Write{
		passWrite("pass", b, pass, nil),
		reconcileWrite(b, refunds),
		raiseWrite(b, quota.MaxShards, 1),
		usageWrite(largestUsage(b, counters, true)),
		usageWrite(largestUsage(b, counters, false)),
	} {
		extent := Measure(w)
		t.Logf("%s: %+v", w.Operation, extent)
		if err := w.Check(); err != nil {
			t.Errorf("%s: %v", w.Operation, err)
		}
	}
}

// largestUsage is of every shard at once, and of all limits.
func largestUsage(b *Bucket, counters map[string]int64, read bool) Usage {
	usage := Usage{Key: UsageKey{Group: b.Key.Group}, Counters: counters, Events: 1, Expires: 1}
	run := Range{Bound{"1", "1"}, Bound{"2", "2"}}
	for shard := range quota.MaxShards {
		source := Source{Shard: shard, Next: SeenRecords{run}}
		if read {
			source.Found = SeenRecords{run}
		}
		usage.Sources = append(usage.Sources, source)
	}
	return usage
}
