package interop

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// write is one write to a bucket, off the stream.
type write struct {
	key      table.Key
	old, new table.Item // old is nil where it created the bucket
}

// audit draws up the books, and returns the writes that it drew them from.
func (l *load) audit() []write {
	l.Helper()
	writes := l.writes()
	l.auditUsage()
	for _, c := range l.customers {
		l.auditTotals(c)
		switch {
		case c.entity == "waived": // a bypassed use is counted and takes nothing
		case c.period == nil:
			l.auditQuota(c)
		default:
			l.auditPeriods(c, writes)
		}
		l.auditReading(c)
	}
	return writes
}

// writes are those to buckets, in their order.
func (w *world) writes() []write {
	w.Helper()
	var writes []write
	for _, r := range w.delivered {
		keys, err := table.ParseItem(r.Keys)
		must(w, err)
		pk, sk := keys.Key()
		if sk != table.StateSK {
			continue
		}
		key, err := table.ParseKey(pk)
		must(w, err)
		next := write{key: key}
		if next.new, err = table.ParseItem(r.New); err == nil && r.Old != nil {
			next.old, err = table.ParseItem(r.Old)
		}
		must(w, err)
		writes = append(writes, next)
	}
	return writes
}

// auditUsage: the usage items of each kind of window add up to what the clients
// say that was consumed, to the millitoken, and theirs reads whole tokens so.
func (l *load) auditUsage() {
	l.Helper()
	sums := map[string]map[string]map[string]int64{"hourly": {}, "daily": {}, "monthly": {}}
	for _, item := range l.scan("#USAGE#") {
		ofWindow, entity := sums[item.Text("window")], item.Text("entity_id")
		if ofWindow[entity] == nil {
			ofWindow[entity] = map[string]int64{}
		}
		for name, value := range item {
			if n, ok := value.(*types.AttributeValueMemberN); ok && name != "total_events" && name != table.AttrTTL {
				tokens, err := strconv.ParseFloat(n.Value, 64)
				must(l, err)
				ofWindow[entity][name] += int64(math.Round(1000 * tokens))
			}
		}
	}
	for window, found := range sums {
		eq(l, "entities with "+window+" usage", len(found), len(l.consumed))
		for entity, want := range l.consumed {
			eq(l, window+" usage of "+entity, fmt.Sprint(withoutZeros(found[entity])), fmt.Sprint(withoutZeros(want)))
		}
	}
	for entity, want := range l.consumed {
		if entity == "daily" {
			continue // theirs does not read half tokens (docs/operations.md)
		}
		for name, tokens := range ask[map[string]int64](l.theirs, "usage", args{"entity": entity, "resource": resource, "window": "daily"}) {
			eq(l, fmt.Sprintf("theirs reads %s of %s", name, entity), 1000*tokens, want[name])
		}
	}
}

func withoutZeros(amounts map[string]int64) map[string]int64 {
	amounts = maps.Clone(amounts)
	maps.DeleteFunc(amounts, func(_ string, amount int64) bool { return amount == 0 })
	return amounts
}

// scan returns the items of which the sort key begins so.
func (l *load) scan(prefix string) []table.Item {
	l.Helper()
	var items []table.Item
	pages := dynamodb.NewScanPaginator(l.client, &dynamodb.ScanInput{TableName: &l.table, ConsistentRead: new(true)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(l.Context())
		must(l, err)
		for _, item := range page.Items {
			if _, sk := table.Item(item).Key(); strings.HasPrefix(sk, prefix) {
				items = append(items, item)
			}
		}
	}
	return items
}

// auditTotals: the totals on the shards are what the clients say that was
// consumed. Limits that came and went begin anew, and are left out.
func (l *load) auditTotals(c *customer) {
	l.Helper()
	totals := map[string]int64{}
	for _, b := range l.shards(c.entity) {
		for _, limit := range c.limits {
			totals[limit.Name] += b.Limit(limit.Name).Consumed
		}
	}
	for name, total := range totals {
		eq(l, "total of "+c.entity+" "+name, total, l.consumed[c.entity][name])
	}
}

// auditQuota: of a quota whose period lasted all the time, what the clients were
// given and what is held make what was sold and topped up, to the millitoken.
// Every shard of such a period is funded by a move, off shard 0 in the end, and
// both kinds of client make a move in one transaction: also where theirs, which
// does not pin its creations, is overtaken by a doubling.
func (l *load) auditQuota(c *customer) {
	l.Helper()
	row, _ := l.ledger(c, l.latest(c))
	sold := 1000 * c.limits[l.callsOf(c)].Capacity
	if c.entity == "operated" {
		sold += l.toppedUp
		eq(l, "topped up", row.TopUp, l.toppedUp)
	}
	given := l.consumed[c.entity]["calls"]
	total := given + row.Held + row.Grantable
	l.Logf("%s calls: given %d + held %d + grantable %d = %d of %d on %d shards",
		c.entity, given, row.Held, row.Grantable, total, sold, len(l.shards(c.entity)))
	eq(l, c.entity+" given, held and grantable", total, sold)
	eq(l, c.entity+" is conserved", row.Conserved, true)
}

func (l *load) callsOf(c *customer) int {
	for i := range c.limits {
		if c.limits[i].Name == "calls" {
			return i
		}
	}
	panic("no calls")
}

// latest is when a customer's shards were last passed, epoch ms.
func (l *load) latest(c *customer) int64 {
	at := int64(0)
	for _, b := range l.shards(c.entity) {
		at = max(at, b.RefilledAt)
	}
	return at
}

// ledger is that of a customer's calls at a time.
func (l *load) ledger(c *customer, at int64) (row quota.Row, count int) {
	l.Helper()
	var buckets []*quota.Bucket
	for _, b := range l.shards(c.entity) {
		buckets, count = append(buckets, &b.Bucket), max(count, b.ShardCount)
	}
	row, err := quota.Audit("calls", buckets, at)
	must(l, err)
	return row, count
}

// period is what happened to a quota in one, millitokens.
type period struct {
	given    int64 // net consumption
	supplied int64 // allowance that came, by restores and new shards, less what went by moves
	lost     int64 // what restores were short of the share: spent while they were under way
	unpinned int64 // shares of shards that were made after shard 0's count had moved on
	crossed  bool  // two clients opened it at once
}

// auditPeriods: in no period was more given than was sold, but for one share for
// each shard that theirs made while shard 0 was doubled: it does not check the
// count in its transaction. Of the last period, given, held and grantable make
// what was sold.
func (l *load) auditPeriods(c *customer, writes []write) {
	l.Helper()
	sold := 1000 * c.limits[l.callsOf(c)].Capacity
	periods := periodsOf(c, writes, sold)
	var most, bound, given, crossed int64
	for key, p := range periods {
		if p.supplied > sold+p.unpinned || p.given > p.supplied {
			l.Errorf("%s, period %d: %+v of %d sold", c.entity, key, p, sold)
		}
		most, bound, given = max(most, p.supplied), bound+p.unpinned, given+p.given
		if p.crossed {
			crossed++
		}
	}
	eq(l, c.entity+" given in all periods", given, l.consumed[c.entity]["calls"])
	l.Logf("%s calls: %d periods (%d opened twice) of %d, at most %d supplied; unpinned creations allow %d more in all",
		c.entity, len(periods), crossed, sold, most, bound)

	last := slices.Max(slices.Collect(maps.Keys(periods)))
	row, count := l.ledger(c, l.latest(c))
	p := periods[last]
	total := p.given + row.Held + row.Grantable + p.lost
	l.Logf("%s calls, last period: given %d + held %d + grantable %d + lost %d = %d of %d on %d shards",
		c.entity, p.given, row.Held, row.Grantable, p.lost, total, sold, count)
	if total > sold+p.unpinned || total <= sold-int64(count) {
		l.Errorf("%s, last period: given, held and grantable make %d of %d:\n%s", c.entity, total, sold, history(c, writes))
	}
}

// periodsOf draws up a customer's periods from the writes to its shards, by their
// keys.
func periodsOf(c *customer, writes []write, sold int64) map[int64]*period {
	periods, count := map[int64]*period{}, int64(1) // of shard 0
	of, crossed := c.windows(writes)
	for _, w := range writes {
		if w.key.Entity != c.entity {
			continue
		}
		key, shards, granted := of[c.period(w.new)], number(w.new, table.AttrShardCount), number(w.new, "b_calls_gc")
		if w.key.Shard == 0 {
			count = shards
		}
		p := periods[key]
		if p == nil {
			p = &period{crossed: crossed[key]}
			periods[key] = p
		}
		consumed := number(w.new, "b_calls_tc") - number(w.old, "b_calls_tc")
		held := number(w.new, "b_calls_tk")
		p.given += consumed
		switch {
		case w.old == nil:
			p.supplied += held + consumed
			if shards < count {
				p.unpinned += sold / shards
			}
		case of[c.period(w.old)] != key:
			p.supplied += held + consumed
			p.lost += sold/granted - held - consumed
		default:
			p.supplied += held - number(w.old, "b_calls_tk") + consumed
		}
	}
	return periods
}

func number(i table.Item, name string) int64 { n, _ := i.Int(name); return n }

// windows tells which of a customer's periods are one. Two clients that open a
// session window at once each begin one, and each shard is in either: together
// they are to admit no more than one does.
func (c *customer) windows(writes []write) (of map[int64]int64, crossed map[int64]bool) {
	keys := map[int64]bool{}
	for _, w := range writes {
		if w.key.Entity == c.entity {
			keys[c.period(w.new)] = true
		}
	}
	of, crossed = map[int64]int64{}, map[int64]bool{}
	first := int64(-1)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if first < 0 || key-first >= c.lasts {
			first = key
		}
		of[key], crossed[first] = first, crossed[first] || key != first
	}
	return of, crossed
}

// history shows the last writes to a customer's calls.
func history(c *customer, writes []write) string {
	var lines []string
	for _, w := range writes {
		if w.key.Entity != c.entity {
			continue
		}
		line := fmt.Sprintf("shard %d created=%v period %d", w.key.Shard, w.old == nil, c.period(w.new))
		for _, name := range []string{"shard_count", "rf", "vu", "b_calls_tk", "b_calls_tc", "b_calls_gc", "b_calls_ws", "b_calls_wa", "b_calls_wtc"} {
			n, ok := w.new.Int(name)
			line += fmt.Sprintf(" %s %d %v", name, n, ok)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines[max(0, len(lines)-60):], "\n")
}

// auditReading: both read the same limits, and the same balances.
func (l *load) auditReading(c *customer) {
	l.Helper()
	at := args{"entity": c.entity, "resource": resource}
	ours, err := l.ours.Limits(l.Context(), levelOf(c.entity, resource))
	must(l, err)
	eq(l, "limits of "+c.entity, fmt.Sprint(ask[[]wire](l.theirs, "get_limits", at)), fmt.Sprint(wires(ours)))
	zero := l.bucket(c.entity, 0)
	for name, read := range ask[map[string]struct{ Balance, Consumed, Capacity int64 }](l.theirs, "buckets", at) {
		limit := zero.Limit(name)
		eq(l, fmt.Sprintf("%s %s, read by theirs", c.entity, name),
			fmt.Sprint(read.Balance, read.Consumed, read.Capacity), fmt.Sprint(limit.Balance, limit.Consumed, limit.Base.Capacity))
	}
}
