package interop

import (
	"context"
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/shardquota/shardquota/limiter"
	"github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/dynamo"
)

// counted is our client's table, which counts what it creates and doubles.
type counted struct {
	*dynamo.Store
	did func(what string, times int)
}

func (c *counted) Create(ctx context.Context, creation table.Creation) (table.CreationOutcome, error) {
	outcome, err := c.Store.Create(ctx, creation)
	if err == nil && outcome == table.Created {
		c.did("ours: created", 1)
	}
	return outcome, err
}

func (c *counted) Double(ctx context.Context, group table.Group, from int) (table.DoubleResult, error) {
	result, err := c.Store.Double(ctx, group, from)
	if result.Applied {
		c.did("ours: doubled", 1)
	}
	return result, err
}

// operate is what an operator does once, with a client of either kind: change
// limits, top up, disable, bypass, soften.
func (l *load) operate(ours *ours) error {
	switch theirs := rand.IntN(2) == 0; rand.IntN(4) {
	case 0:
		return l.change("operated", theirs, l.operatedLimits(), ours)
	case 1:
		return l.topUp()
	case 2:
		return l.change("waived", theirs, waivedLimits(l), ours)
	default:
		return l.access("waived", theirs, ours)
	}
}

// operatedLimits are limits of operated: its calls stay, others come, go and
// change.
func (l *load) operatedLimits() []limits.Limit {
	calls, rpm := l.customer("operated").limits[0], limits.PerSecond("rpm", 300+rand.Int64N(900))
	if rand.IntN(2) == 0 {
		return []limits.Limit{calls, rpm}
	}
	rpm.Schedule = entries("1-59/2 * * * *", 700)
	return []limits.Limit{calls, rpm, limits.PerMinute("extra", 1+rand.Int64N(90))}
}

func waivedLimits(l *load) []limits.Limit {
	limits := append([]limits.Limit(nil), l.customer("waived").limits...)
	for i := range limits {
		limits[i].Soft = rand.IntN(2) == 0
	}
	return limits
}

func (l *load) customer(entity string) *customer {
	for _, c := range l.customers {
		if c.entity == entity {
			return c
		}
	}
	panic("no such customer: " + entity)
}

func (l *load) change(entity string, theirs bool, set []limits.Limit, ours *ours) error {
	if theirs {
		l.did("theirs: changed", 1)
		return l.theirs.try("set_limits", args{"entity": entity, "resource": resource, "limits": wires(set)}, nil)
	}
	l.did("ours: changed", 1)
	return ours.SetLimits(l.Context(), limits.For(entity, resource), set...)
}

// topUp is theirs alone: ours has none.
func (l *load) topUp() error {
	amount := 1 + rand.Int64N(200)
	err := l.theirs.try("top_up", args{"entity": "operated", "resource": resource, "amounts": limiter.Amounts{"calls": amount}}, nil)
	var refused *raised
	if errors.As(err, &refused) && strings.Contains(refused.message, "it kept changing") {
		l.did("theirs: top-ups given up", 1) // all shards in one transaction, which others' uses keep from holding
		return nil
	} else if err != nil {
		return err
	}
	l.did("theirs: changed", 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.toppedUp += 1000 * amount
	return nil
}

func (l *load) access(entity string, theirs bool, ours *ours) error {
	access := []limits.Access{limits.Inherit, limits.Enabled, limits.Disabled, limits.Bypass}[rand.IntN(4)]
	if theirs {
		l.did("theirs: changed", 1)
		return l.theirs.try("set_access", args{"entity": entity, "resource": resource, "access": accessWords[access]}, nil)
	}
	l.did("ours: changed", 1)
	return ours.SetAccess(l.Context(), limits.For(entity, resource), access)
}

var accessWords = map[limits.Access]string{
	limits.Inherit: "inherit", limits.Enabled: "enabled", limits.Disabled: "disabled", limits.Bypass: "bypass",
}

func entries(cron string, scale int64) []quota.Entry {
	return []quota.Entry{{Cron: cron, Scale: scale}}
}

func millitokens(amounts limiter.Amounts) map[string]int64 {
	milli := map[string]int64{}
	for name, amount := range amounts {
		milli[name] = 1000 * amount
	}
	return milli
}

func thousandfold(amounts map[string]float64) map[string]int64 {
	milli := map[string]int64{}
	for name, amount := range amounts {
		milli[name] = int64(math.Round(1000 * amount))
	}
	return milli
}

func negative(amounts map[string]int64) map[string]int64 {
	for name := range amounts {
		amounts[name] *= -1
	}
	return amounts
}

// report says what happened, and fails where something that was to be tried never
// did: in a short load on a busy machine only what every client does all the time.
func (l *load) report(writes []write, short bool) {
	l.Helper()
	l.did("theirs: created", inserted(writes)-l.done["ours: created"]-l.created)
	l.Logf("the aggregator: %d records, %d shards created, %d doublings", len(l.delivered), l.created, l.doubled)
	for _, what := range slices.Sorted(maps.Keys(l.done)) {
		l.Logf("%s %d", what, l.done[what])
	}
	deeds := []string{"admitted", "refused", "corrected", "doubled", "created", "changed"}
	if short {
		deeds = deeds[:1]
	}
	for _, deed := range deeds {
		for _, who := range []string{"ours: ", "theirs: "} {
			if l.done[who+deed] == 0 {
				l.Errorf("%s: never", who+deed)
			}
		}
	}
}

// inserted is how many shards beyond the first were created.
func inserted(writes []write) int {
	n := 0
	for _, write := range writes {
		if write.old == nil && write.key.Shard > 0 {
			n++
		}
	}
	return n
}
