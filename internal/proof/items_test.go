package proof_test

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/shardquota/shardquota/internal/explore"
	"github.com/shardquota/shardquota/internal/fixture"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

const (
	midnight = fixture.Midnight
	noon     = fixture.Noon
	hour     = fixture.Hour
	second   = fixture.Second
	day      = 24 * hour

	million = int64(1_000_000) // millitokens: the capacity of the quota q
)

type attrs = fixture.Attrs

var (
	acme     = fixture.Acme
	build    = fixture.Build
	count    = fixture.Count
	refilled = fixture.Refilled
	drips    = fixture.Drips
	eq       = fixture.Eq
)

// q is a shard of acme's that holds nothing but the quota q of 1,000 tokens,
// restored at midnight; a grant of 0 is legacy.
func q(shard, n int, balance int64, grant int, more ...attrs) table.Item {
	return fixture.Bucket(acme.At(shard), append([]attrs{count(n), fixture.Daily("q", balance, million, grant)}, more...)...)
}

// stale is a shard that was last passed just before midnight.
var stale = refilled(midnight - 1)

// hot is a shard whose write meter is nearly used up.
var hot = attrs{"b_wcu_tk": 150_000}

// window makes q a session quota with a window of an hour.
func window(start, applied int64) attrs {
	return attrs{"b_q_rsched": nil, "b_q_rsa": 3600, "b_q_ws": start, "b_q_wa": applied}
}

// clock writes a time of day.
func clock(ms int64) string { return time.UnixMilli(ms).UTC().Format("15:04:05.000") }

// moment is a time that is written when it is printed.
type moment int64

func (m moment) String() string { return clock(int64(m)) }

// tokens writes an amount.
func tokens(milli int64) string { return table.Tokens(milli) }

// slots are those of MaxShards that a grant of a shard at a count covers.
func slots(shard, count int) (mask uint32) {
	for slot := range quota.MaxShards {
		if quota.Covers(shard, count, slot) {
			mask |= 1 << slot
		}
	}
	return mask
}

// slotText writes slots at the smallest count that tells them: "slot 1, 3 of 4".
func slotText(mask uint32) string {
	for n := 1; ; n *= 2 {
		var text []string
		var all uint32
		for slot := range n {
			if mask&slots(slot, n) == slots(slot, n) {
				text, all = append(text, strconv.Itoa(slot)), all|slots(slot, n)
			}
		}
		if all == mask {
			return fmt.Sprintf("slot %s of %d", strings.Join(text, ", "), n)
		}
	}
}

// periodOf is the period that a shard's balance of q belongs to: the day of its
// last pass, or the start of the window it reflects.
func periodOf(b *table.Bucket) int64 {
	q := b.Limit("q")
	if q.Kind() != quota.Session {
		return b.RefilledAt - b.RefilledAt%day
	}
	if q.Window.Applied == nil {
		return 0
	}
	return *q.Window.Applied
}

// digestOf digests an item, whatever the order of its attributes.
func digestOf(item table.Item) explore.Digest {
	var sum explore.Digest
	for name, value := range item {
		d := explore.Digest(0).Text(name)
		switch v := value.(type) {
		case *types.AttributeValueMemberN:
			d = d.Text(v.Value)
		case *types.AttributeValueMemberS:
			d = d.Text(v.Value)
		default:
			d = d.Text(fmt.Sprint(v))
		}
		sum += d
	}
	return sum
}

// digestAll digests a map of amounts.
func digestAll[K ~int | ~int64](amounts map[K]int64) (sum explore.Digest) {
	for key, amount := range amounts {
		if amount != 0 {
			sum += explore.Digest(0).Add(uint64(key), uint64(amount))
		}
	}
	return sum
}
