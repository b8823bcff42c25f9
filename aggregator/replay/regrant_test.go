package replay

import (
	"fmt"
	"testing"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// A limit that dripped, which an operator makes a quota, counts as granted its
// part, as it does where the recording was made.
func TestALimitBecomesAQuota(t *testing.T) {
	for _, x := range []struct {
		name    string
		grant   int // that the operator's change leaves
		balance int64
	}{
		{"by the rules", 2, 4000},
		{"by a program that leaves the grant as it was", 1, 8000},
	} {
		c := newClient(t, 1, 8000)
		c.count = 2
		at := func(field table.Field) string { return table.Attr("calls", field) }
		c.update(c.read(0), func(b *table.Bucket) {
			b.ShardCount = 2
			b.Item[at(table.FieldResets)], b.Item[at(table.FieldRefill)] = table.S("-"), table.N("8000")
			b.Item[at(table.FieldCapacity)], b.Item[at(table.FieldDivision)] = table.N("8000"), table.S(string(quota.Replicated))
		})
		preload := c.store.Items()
		c.stream.Take() // they are in what is preloaded
		c.update(c.read(0), func(b *table.Bucket) {
			delete(b.Item, at(table.FieldResets)) // the item's hold
			b.Item[at(table.FieldRefill)] = table.N("0")
			b.Limit("calls").Grant, b.ValidUntil = &x.grant, new(int64(0))
		})
		report, items := setting{batch: 10, preload: preload}.run(t, c.stream.Take())
		for _, item := range items {
			if b, err := table.DecodeBucket(item); err == nil && b.Shard == 0 {
				got := b.Limit("calls")
				if *got.Grant != x.grant || got.Balance != x.balance {
					t.Errorf("%s: granted at %d, holds %d, want %d, %d", x.name, *got.Grant, got.Balance, x.grant, x.balance)
				}
			}
		}
		if got := fmt.Sprint(len(report.Ledger), report.NotConserved()); got != "1 0" {
			t.Errorf("%s: ledgers, and not conserved: %s", x.name, got)
		}
	}
}
