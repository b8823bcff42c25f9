package main_test

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// audit looks at everything that a round has left: usage, ledgers, shares and
// ceilings. What clients do for it, creating the shards that are missing and
// bringing all up to date, is delivered as well.
func (s *soak) audit() {
	s.Helper()
	s.complete()
	s.settle()
	found := scan(s, s.client, s.table)
	checkUsage(s, found, s.delivered)
	s.writer = &writer{t: s, consumed: s.consumedBy()}
	s.writer.checkAccount(s.delivered)
	for _, c := range s.customers {
		c.auditUsage(found)
		c.auditShards(shards(found, c.entity))
		c.auditAdmitted()
		s.totals.Shards += len(shards(found, c.entity))
		s.totals.Most = max(s.totals.Most, len(shards(found, c.entity)))
	}
}

// complete lets the customers create all shards that they have not drawn yet,
// and bring all up to date.
func (s *soak) complete() {
	for _, c := range s.customers {
		zero, err := c.store.Read(s.Context(), c.group.At(0))
		if err != nil {
			s.Fatal(err)
		}
		if c.refreshed(0); c.window > 0 {
			continue // what its other shards hold is of windows that have ended
		}
		for shard := range zero.ShardCount {
			if err := c.create(s.Context(), shard); err != nil {
				s.Fatal(err)
			}
			c.refreshed(shard)
		}
	}
}

// refreshed brings a shard up to date whatever its valid-until says.
func (c *customer) refreshed(shard int) {
	c.Helper()
	b, err := c.store.Read(c.Context(), c.group.At(shard))
	if err != nil || b == nil {
		c.Fatalf("shard %d: %v, %v", shard, b, err)
	}
	if err := c.refresh(c.Context(), item(b.Item)); err != nil {
		c.Fatal(err)
	}
}

// auditUsage: the usage items of each kind of window add up to what the customer
// knows it consumed.
func (c *customer) auditUsage(found snapshot) {
	c.Helper()
	for _, window := range []string{"hourly", "daily", "monthly"} {
		for name, want := range c.consumed {
			var sum int64
			for key, i := range usageOf(found) {
				if strings.HasPrefix(key, namespace+"/ENTITY#"+c.entity+" ") && text(i, "window") == window {
					sum += millitokens(numbersOf(i)[name])
				}
			}
			if sum != want {
				c.Errorf("%s: %s usage of %s is %d, the clients consumed %d", c.entity, window, name, sum, want)
			}
		}
	}
}

// millitokens reads what tokens writes; "" is nothing.
func millitokens(tokens string) int64 {
	if tokens == "" {
		return 0
	}
	n, err := strconv.ParseFloat(tokens, 64)
	if err != nil {
		panic(err)
	}
	return int64(math.Round(1000 * n))
}

// auditShards: every shard knows the count, no balance is above its ceiling, and
// of a quota that nobody restored or changed exactly the capacity is there, held
// or consumed, but for what dividing it leaves.
func (c *customer) auditShards(all []item) {
	c.Helper()
	if len(all) == 0 {
		c.Fatalf("%s has no shards", c.entity)
	}
	count := number(all[0], "shard_count")
	if !quota.IsCount(int(count)) || c.window == 0 && len(all) != int(count) {
		c.Errorf("%s: %d shards at count %d", c.entity, len(all), count)
	}
	var sum int64
	for shard, i := range all {
		if n := number(i, "shard_count"); n != count {
			c.Errorf("%s: shard %d is at count %d, shard 0 at %d", c.entity, shard, n, count)
		}
		if meter := number(i, "b_wcu_tk"); meter > 1_000_000 {
			c.Errorf("%s: shard %d has %d in its write meter", c.entity, shard, meter)
		}
		for _, l := range c.limits {
			c.auditBalance(shard, i, l)
		}
		sum += number(i, "b_calls_tk") + number(i, "b_calls_tc")
	}
	c.auditLedger(all)
	if c.entity == secretMark+"daily" || c.entity == secretMark+"tight" {
		if missing := c.limits[0].capacity - sum; missing < 0 || missing >= count {
			c.Errorf("%s: %d of %d are held or consumed", c.entity, sum, c.limits[0].capacity)
		}
	}
}

// auditBalance: no balance is above what the shard was granted or may drip to.
func (c *customer) auditBalance(shard int, i item, l limit) {
	c.Helper()
	ceiling := number(i, "b_"+l.name+"_cp") / number(i, "shard_count")
	if l.refill == 0 {
		ceiling = number(i, "b_"+l.name+"_cp") / number(i, "b_"+l.name+"_gc")
	}
	if text(i, "sched") == halfAlways {
		ceiling = number(i, "b_"+l.name+"_cp") / 2 / number(i, "shard_count")
	}
	if balance := number(i, "b_"+l.name+"_tk"); balance > ceiling {
		c.Errorf("%s: shard %d holds %d of %s, above %d", c.entity, shard, balance, l.name, ceiling)
	}
}

// auditLedger: the ledger of each quota is conserved.
func (c *customer) auditLedger(all []item) {
	c.Helper()
	var buckets []*quota.Bucket
	for _, i := range all {
		b, err := table.DecodeBucket(i)
		if err != nil {
			c.Fatal(err)
		}
		buckets = append(buckets, &b.Bucket)
	}
	if c.limits[0].refill != 0 {
		return
	}
	row, err := quota.Audit("calls", buckets, time.Now().UnixMilli())
	if err != nil || !row.Conserved {
		c.Errorf("%s: %+v, %v", c.entity, row, err)
	}
}

// auditAdmitted: in no period was more admitted than the quota's capacity.
func (c *customer) auditAdmitted() {
	c.Helper()
	for period, amount := range c.admitted {
		if amount > c.limits[0].capacity {
			c.Errorf("%s: %d admitted in period %d, of %d", c.entity, amount, period, c.limits[0].capacity)
		}
	}
}
