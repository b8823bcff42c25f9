package main_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/sharding"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/dynamo"
)

// customer is an entity of a soak: what it is limited by, and what it knows it
// has consumed. Several clients act for it at once, by the rules of the layout
// and with writes that hold only on what they read.
type customer struct {
	*soak
	entity string
	group  table.Group
	store  *dynamo.Store // past the proxy
	limits []limit
	period func(i item) int64 // of the quota, in which an item was written; nil for none
	window time.Duration      // of a session quota, 0 for others
	change bool               // operators change its limits
	item   func(i item)       // what is special about its bucket

	mu       sync.Mutex
	count    int // of shards, as far as it knows
	consumed map[string]int64
	admitted map[int64]int64 // of the quota, by period
	spent    []receipt
}

// receipt is what was consumed of a shard, for a refund.
type receipt struct {
	shard   int
	amounts map[string]int64
	item    item // as the consumption left it
}

// most is how many shards a customer doubles to.
const most = 16

// Limits of the customers. Each quota but the first is used up again and again.
var (
	soakCalls = limit{"calls", 2_000_000, 0, 1000}
	soakTight = limit{"calls", 240_000, 0, 1000}
	soakRPM   = limit{"rpm-1.x", 600_000, 600_000, 10_000}
)

// halfAlways is a schedule that halves a limit in every minute, with an edge at
// the last minute of each hour.
const halfAlways = "1m0-58s500;m59s500"

// newCustomers puts the first shard of each kind of customer.
func newCustomers(s *soak) []*customer {
	one := func(i item) int64 { return 0 }
	minute := func(i item) int64 { return number(i, "rf") / 120_000 }
	all := []*customer{
		{entity: "daily", limits: []limit{soakCalls, soakRPM}, period: one},
		{entity: "tight", limits: []limit{soakTight, soakRPM}, period: one},
		{entity: "minutes", limits: []limit{soakTight, soakRPM}, period: minute, item: func(i item) { i["rsched"] = table.S("1m*/2") }},
		{entity: "session", limits: []limit{soakTight}, window: 2 * time.Second, period: func(i item) int64 { return number(i, "b_calls_wa") }},
		{entity: "scheduled", limits: []limit{soakRPM}, item: func(i item) { i["sched"] = table.S(halfAlways) }},
		{entity: "operated", limits: []limit{soakCalls, soakRPM}, change: true},
	}
	for _, c := range all {
		c.soak, c.group = s, table.Group{Namespace: namespace, Entity: secretMark + c.entity, Resource: resource}
		c.entity, c.store, c.count = secretMark+c.entity, dynamo.New(s.client, s.table), 1
		c.consumed, c.admitted = map[string]int64{}, map[int64]int64{}
		c.put()
	}
	return all
}

// put puts shard 0, with nothing consumed.
func (c *customer) put() {
	i := newBucket(time.Now(), c.entity, c.limits, nil)
	if c.item != nil {
		c.item(i)
	}
	if c.window > 0 {
		delete(i, "rsched")
		i["b_calls_rsa"] = num(int64(c.window / time.Second))
	}
	i["vu"] = num(0) // the first use passes
	if _, err := c.client.PutItem(c.Context(), &dynamodb.PutItemInput{TableName: &c.table, Item: i}); err != nil {
		c.Fatal(err)
	}
}

// act does one thing of those that clients and operators do.
func (c *customer) act(ctx context.Context, rng *rand.Rand) error {
	switch n := rng.IntN(100); {
	case n < 80:
		return c.use(ctx, rng, 1_000) // the write itself
	case n < 88:
		return c.refund(ctx, rng)
	case n < 90:
		return c.use(ctx, rng, 850_000) // a burst of writes: the meter runs low
	case n < 95:
		return c.double(ctx)
	case n < 97:
		return c.create(ctx, rng.IntN(c.known()))
	case c.change:
		return c.operate(ctx, rng)
	}
	return c.use(ctx, rng, 1_000)
}

func (c *customer) known() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count
}

// use draws a shard and spends from it: on the fast path, or after it has
// created the shard or brought it up to date. A use that is refused then is
// one that the limits do not allow.
func (c *customer) use(ctx context.Context, rng *rand.Rand, writes int64) error {
	shard, amounts := rng.IntN(c.known()), map[string]int64{}
	for _, l := range c.limits {
		amounts[l.name] = rng.Int64N(4_000)
	}
	for range 3 {
		found, spent, err := c.spend(ctx, shard, amounts, writes)
		if err != nil || spent {
			return err
		}
		if found == nil {
			err = c.create(ctx, shard)
		} else {
			err = c.refresh(ctx, found)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// spend is the fast path. It returns the item as it is now, nil for none.
func (c *customer) spend(ctx context.Context, shard int, amounts map[string]int64, writes int64) (item, bool, error) {
	u := newUpdate()
	u.require("%s > %s", u.name("vu"), u.number(time.Now().UnixMilli()))
	take := maps.Clone(amounts)
	take["wcu"] = writes
	for name, amount := range take {
		u.require("%s >= %s", u.name("b_"+name+"_tk"), u.number(amount))
		u.add("b_"+name+"_tk", -amount)
		u.add("b_"+name+"_tc", amount)
	}
	i, done, err := u.apply(ctx, c, shard)
	if done {
		c.record(shard, amounts, i)
	}
	return i, done, err
}

func (c *customer) record(shard int, amounts map[string]int64, i item) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, amount := range amounts {
		c.consumed[name] += amount
	}
	if c.period != nil {
		c.admitted[c.period(i)] += amounts["calls"]
	}
	c.count = max(c.count, int(number(i, "shard_count")))
	c.spent = append(c.spent, receipt{shard, amounts, i})
}

// refund gives back what was consumed last, if no pass has been since: what is
// given back of an earlier period would be allowance that nobody granted.
func (c *customer) refund(ctx context.Context, _ *rand.Rand) error {
	c.mu.Lock()
	if len(c.spent) == 0 {
		c.mu.Unlock()
		return nil
	}
	last := c.spent[len(c.spent)-1]
	c.spent = c.spent[:len(c.spent)-1]
	c.mu.Unlock()

	u := newUpdate()
	u.require("%s = %s", u.name("rf"), u.value(last.item["rf"]))
	for name, amount := range last.amounts {
		u.add("b_"+name+"_tk", amount)
		u.add("b_"+name+"_tc", -amount)
	}
	u.add("b_wcu_tk", -1_000)
	u.add("b_wcu_tc", 1_000)
	i, done, err := u.apply(ctx, c, last.shard)
	if done {
		back := map[string]int64{}
		for name, amount := range last.amounts {
			back[name] = -amount
		}
		c.record(last.shard, back, i)
		c.mu.Lock()
		c.spent = c.spent[:len(c.spent)-1]
		c.mu.Unlock()
	}
	return err
}

// refresh brings a shard up to date, or opens a window where it has none.
func (c *customer) refresh(ctx context.Context, found item) error {
	b, err := table.DecodeBucket(found)
	if err != nil {
		return err
	}
	now := time.Now().UnixMilli()
	if l := b.Limit("calls"); c.window > 0 && (l.Window.Start == nil || *l.Window.Start+c.window.Milliseconds() <= now) {
		return c.open(ctx, b, now)
	}
	pass, err := quota.Materialise(&b.Bucket, nil, now)
	if err != nil || len(pass.Changes) == 0 && pass.ValidUntil == nil {
		return err
	}
	_, err = c.store.Pass(ctx, b, pass)
	return err
}

// open starts a window on a shard, unless someone has, and tells the others.
func (c *customer) open(ctx context.Context, b *table.Bucket, now int64) error {
	u, l := newUpdate(), b.Limit("calls")
	now = max(now, b.RefilledAt+1)
	u.require("%s = %s", u.name("rf"), u.number(b.RefilledAt))
	u.require("%s = %s", u.name("shard_count"), u.number(int64(b.ShardCount)))
	u.require("%s = %s", u.name("b_calls_tk"), u.number(l.Balance))
	u.set("rf", now)
	u.set("vu", now+c.window.Milliseconds())
	u.set("b_calls_ws", now)
	u.set("b_calls_wa", now)
	u.set("b_calls_wtc", l.Consumed)
	u.set("b_calls_gc", int64(b.ShardCount))
	u.set("b_calls_tk", l.Base.Capacity/int64(b.ShardCount))
	u.set("b_wcu_tk", 1_000_000)
	if _, done, err := u.apply(ctx, c, b.Shard); err != nil || !done {
		return err
	}
	for shard := range b.ShardCount {
		if shard == b.Shard {
			continue
		}
		if err := c.tell(ctx, shard, now); err != nil {
			return err
		}
	}
	return nil
}

// tell propagates the start of a window, where the shard's own has ended by it.
func (c *customer) tell(ctx context.Context, shard int, start int64) error {
	u := newUpdate()
	u.require("attribute_exists(%s)", u.name("PK"))
	u.require("(attribute_not_exists(%s) OR %s <= %s)", u.name("b_calls_ws"), u.name("b_calls_ws"), u.number(start-c.window.Milliseconds()))
	u.require("(attribute_exists(%s) OR %s < %s)", u.name("b_calls_wa"), u.name("rf"), u.number(start))
	u.sets = append(u.sets, u.name("b_calls_wtc")+" = "+u.name("b_calls_tc"))
	u.set("b_calls_ws", start)
	u.set("vu", 0)
	_, _, err := u.apply(ctx, c, shard)
	return err
}

// double doubles the count as a client does that dies right after.
func (c *customer) double(ctx context.Context) error {
	count := c.known()
	if count >= most {
		return nil
	}
	u := newUpdate()
	u.require("%s = %s", u.name("shard_count"), u.number(int64(count)))
	u.set("shard_count", int64(2*count))
	i, _, err := u.apply(ctx, c, 0)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count = max(c.count, int(number(i, "shard_count")))
	return err
}

// create makes a shard that was drawn, unless it is there. Where a donor changes
// once more it leaves it be; the next draw tries again.
func (c *customer) create(ctx context.Context, shard int) error {
	for range 2 {
		zero, err := c.store.Read(ctx, c.group.At(0))
		if err != nil || shard >= zero.ShardCount {
			return err
		}
		now := time.Now().UnixMilli()
		family, err := c.store.RaiseAndRead(ctx, c.group, zero.ShardCount, now)
		if err != nil || family[0].Bucket.ShardCount != zero.ShardCount || family[shard].Bucket != nil {
			return err
		}
		for _, b := range table.Buckets(family) {
			now = max(now, b.RefilledAt)
		}
		if zero = family[0].Bucket; !zero.WindowsLive(now) {
			return c.refresh(ctx, item(zero.Item))
		}
		fundings, err := quota.Fund(&zero.Bucket, table.Buckets(family), shard, zero.ShardCount, now)
		if err != nil {
			return err
		}
		outcome, err := c.store.Create(ctx, table.Creation{
			Bucket: sharding.New(zero, shard, zero.ShardCount, now, fundings), Moves: quota.Moves(fundings), ConfigAttrs: zero.ConfigAttrs(),
		})
		if err != nil && !errors.Is(err, table.ErrRetry) || outcome != table.DonorChanged {
			return err
		}
	}
	return nil
}

// operate changes a limit's capacity on all shards, one after the other, as the
// layout's clients do.
func (c *customer) operate(ctx context.Context, rng *rand.Rand) error {
	l := c.limits[rng.IntN(len(c.limits))]
	capacity := l.capacity / 2 * (1 + rng.Int64N(3))
	for shard := range c.known() {
		u := newUpdate()
		u.require("attribute_exists(%s)", u.name("PK"))
		u.set("b_"+l.name+"_cp", capacity)
		u.set("vu", 0)
		if _, _, err := u.apply(ctx, c, shard); err != nil {
			return err
		}
	}
	return nil
}

// update is an update of a bucket under construction. Limit names hold dots, so
// that every name is an alias.
type update struct {
	names      map[string]string
	values     item
	sets, adds []string
	conditions []string
}

func newUpdate() *update { return &update{names: map[string]string{}, values: item{}} }

func (u *update) name(name string) string {
	alias := fmt.Sprintf("#n%d", len(u.names))
	u.names[alias] = name
	return alias
}

func (u *update) value(value types.AttributeValue) string {
	alias := fmt.Sprintf(":v%d", len(u.values))
	u.values[alias] = value
	return alias
}

func (u *update) number(n int64) string { return u.value(num(n)) }

func (u *update) set(name string, n int64) { u.sets = append(u.sets, u.name(name)+" = "+u.number(n)) }

func (u *update) add(name string, n int64) { u.adds = append(u.adds, u.name(name)+" "+u.number(n)) }

func (u *update) require(format string, aliases ...any) {
	u.conditions = append(u.conditions, fmt.Sprintf(format, aliases...))
}

// apply makes the update and returns the item as it is now, nil for none.
func (u *update) apply(ctx context.Context, c *customer, shard int) (i item, done bool, err error) {
	output, err := c.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: &c.table, Key: bucketKey(c.entity, shard),
		UpdateExpression:         new(clause("SET", u.sets) + clause("ADD", u.adds)),
		ConditionExpression:      new(strings.Join(u.conditions, " AND ")),
		ExpressionAttributeNames: u.names, ExpressionAttributeValues: u.values,
		ReturnValues:                        types.ReturnValueAllNew,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	var refused *types.ConditionalCheckFailedException
	switch {
	case errors.As(err, &refused) && len(refused.Item) == 0:
		return nil, false, nil
	case errors.As(err, &refused):
		return refused.Item, false, nil
	case err != nil:
		return nil, false, err
	}
	return output.Attributes, true, nil
}

func clause(verb string, parts []string) string {
	if len(parts) == 0 {
		return ""
	}
	return verb + " " + strings.Join(parts, ", ") + " "
}
