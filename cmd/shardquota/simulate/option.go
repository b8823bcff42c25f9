package simulate

import (
	"context"
	"slices"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// Option is a way to divide a limit.
type Option struct {
	Name    string
	Says    string
	Drips   bool // of limits that drip alone
	Offered bool // a limit can be declared so

	division quota.Division
	draws    int   // shards that a use asks before it is rejected; 0 is 1
	single   bool  // there is one shard, however hot
	capped   bool  // no more shards than the largest use leaves room for
	start    start // how new shards of a replicated limit begin
	evens    int64 // how often balances are evened out, ms; 0 is never
	debt     bool  // what is more than a part is taken off a full shard into debt
	aside    aside
}

// start is what a new shard of a replicated limit begins with.
type start int

const (
	atHalf start = iota // of what the shard has that it is split off, as the product has it
	atPart
	atFull
	atNothing
)

// aside is a bucket of its own beside the shards.
type aside int

const (
	none  aside = iota
	whole       // as large as all shards together, for what is more than a part; refilled like one shard
	half        // half of everything, the shards have the other; asked for what is more than a part, and after a shard has refused
)

// Options are the ways to divide a limit, the undivided one first.
func Options() []Option {
	return []Option{
		{Name: "undivided", Says: "one shard, however hot", single: true},
		{Name: "divided", Says: "1: capacity and refill by the shard count", Offered: true},
		{Name: "replicated", Says: "2: the whole capacity on each shard, the refill divided; a new shard begins with half of what another one holds, moved off it", Drips: true, Offered: true, division: quota.Replicated},
		{Name: "replicated part", Says: "2: the same; a new shard begins with its part", Drips: true, division: quota.Replicated, start: atPart},
		{Name: "replicated full", Says: "2: the same; a new shard begins full", Drips: true, division: quota.Replicated, start: atFull},
		{Name: "replicated empty", Says: "2: the same; a new shard begins with nothing", Drips: true, division: quota.Replicated, start: atNothing},
		{Name: "gathered", Says: "3: divided; of a quota what one shard is short of, and of a limit that drips what is more than its part, is taken off several in one transaction", Offered: true, division: quota.Pooled},
		{Name: "whole aside", Says: "3: divided; beside it one bucket of the whole capacity for large uses, with a shard's refill", aside: whole},
		{Name: "capped", Says: "4: divided; no more shards than the largest use leaves room for", capped: true},
		{Name: "half aside", Says: "5: half of it divided, half in one bucket that is asked for large uses and after a shard refused", aside: half},
		{Name: "evened", Says: "6: divided; once a second balances are evened out by transactions", evens: second},
		{Name: "4 draws", Says: "7: divided; a use asks 4 shards before it is rejected", draws: 4},
		{Name: "32 draws", Says: "7: divided; a use asks all shards before it is rejected", draws: quota.MaxShards},
		{Name: "debt", Says: "8: divided; a large use takes a full shard, and the rest of it into debt", debt: true},
	}
}

// most is the largest shard count that the option lets a workload come to.
func (o *Option) most(w *Workload) int {
	count := quota.MaxShards
	for o.single && count > 1 || o.capped && count > 1 && int64(count) > w.Capacity/w.Largest {
		count /= 2
	}
	return count
}

// variant is the table as an option has it.
type variant struct {
	table.Client
	option *Option
	most   int              // the largest shard count
	meter  int64            // writes a second of an item; 0 for what the product has
	asked  func(*table.Key) // is told of each write that is asked for of an item
}

// Double refuses what the option does not have.
func (v *variant) Double(ctx context.Context, group table.Group, from int) (table.DoubleResult, error) {
	if 2*from > v.most || group.Resource != resource {
		return table.DoubleResult{}, nil // as if the shard were gone: nobody looks after it then
	}
	return v.Client.Double(ctx, group, from)
}

// Insert scales the write meter of a new bucket.
func (v *variant) Insert(ctx context.Context, item table.Item) (bool, error) {
	if b, err := table.DecodeBucket(item); v.meter > 0 && err == nil {
		item = item.Clone()
		for _, field := range []table.Field{table.FieldBalance, table.FieldCapacity, table.FieldRefill} {
			item[table.Attr(quota.WriteMeter, field)] = table.N(decimal(1000 * v.meter))
		}
		v.asked(&b.Key)
	}
	return v.Client.Insert(ctx, item)
}

// Create has a new shard begin as the option says.
func (v *variant) Create(ctx context.Context, creation table.Creation) (table.CreationOutcome, error) {
	if b := creation.Bucket; v.option.division == quota.Replicated && v.option.start != atHalf {
		l := b.Limit(limitName)
		l.Balance = map[start]int64{atPart: quota.Share(l.Base.Capacity, b.ShardCount), atFull: l.Base.Capacity}[v.option.start]
		creation.Moves = slices.DeleteFunc(creation.Moves, func(f quota.Funding) bool { return f.Limit == limitName })
		b.Fill()
	}
	return v.Client.Create(ctx, creation)
}

// Charge implements table.Client.
func (v *variant) Charge(ctx context.Context, key table.Key, take table.FastCharge) (table.WriteResult, error) {
	v.asked(&key)
	return v.Client.Charge(ctx, key, take)
}

// Use implements table.Client.
func (v *variant) Use(ctx context.Context, b *table.Bucket, use *quota.Use) (table.WriteResult, error) {
	v.asked(&b.Key)
	return v.Client.Use(ctx, b, use)
}

// UseAll implements table.Client. A write of a transaction counts twice.
func (v *variant) UseAll(ctx context.Context, uses []table.PlannedUse) (bool, error) {
	for _, use := range uses {
		v.asked(&use.Bucket.Key)
		v.asked(&use.Bucket.Key)
	}
	return v.Client.UseAll(ctx, uses)
}

// Reconcile implements table.Client.
func (v *variant) Reconcile(ctx context.Context, b *table.Bucket, corrections []quota.Adjustment) (table.WriteResult, error) {
	v.asked(&b.Key)
	return v.Client.Reconcile(ctx, b, corrections)
}

// Pass implements table.Store.
func (v *variant) Pass(ctx context.Context, b *table.Bucket, pass *quota.Pass) (table.PassResult, error) {
	v.asked(&b.Key)
	return v.Client.Pass(ctx, b, pass)
}
