package dynamo

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// wide is a bucket of so many limits of one kind whose terms a pass has to hold,
// which is what takes most room.
func wide(t *testing.T, limits int, more func(set func(table.Field, string))) *table.Bucket {
	t.Helper()
	key := table.Group{Namespace: "n", Entity: "e", Resource: "r"}.At(0)
	item := table.Item{
		table.AttrPK: table.S(key.PK()), table.AttrSK: table.S(table.StateSK), table.AttrShardCount: table.N("2"),
		table.AttrRefilledAt: table.N("1700000000000"), table.AttrValidUntil: table.N("0"), table.AttrTTL: table.N("1"),
		"b_wcu_tk": table.N("1"), "b_wcu_tc": table.N("0"), "b_wcu_cp": table.N("1000000"), "b_wcu_ra": table.N("1000000"), "b_wcu_rp": table.N("1000"),
	}
	for i := range limits {
		set := func(field table.Field, value string) {
			item[table.Attr(fmt.Sprint("limit", i), field)] = table.N(value)
		}
		set(table.FieldBalance, "10")
		set(table.FieldConsumed, "0")
		set(table.FieldCapacity, "1000")
		set(table.FieldRefill, "0")
		set(table.FieldPeriod, "60000")
		more(set)
	}
	b, err := table.DecodeBucket(item)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func amounts(b *table.Bucket) quota.Demand {
	demand := quota.Demand{}
	for i := range b.Limits {
		if name := b.Limits[i].Name; name != quota.WriteMeter {
			demand[name] = 1
		}
	}
	return demand
}

// sessions are limits whose windows a use opens, drips ones that it refills.
func sessions(set func(table.Field, string)) {
	set(table.FieldLength, "3600")
	set(table.FieldStart, "1")
}
func drips(set func(table.Field, string)) { set(table.FieldRefill, "1000") }

const clock = 1796032800000

// What each write makes of a bucket of so many limits.
var charging = map[string]func(t *testing.T, limits int) *expression{
	"take": func(t *testing.T, limits int) *expression {
		return takeExpression(table.FastCharge{Amounts: amounts(wide(t, limits, drips)), Now: clock})
	},
	"use": func(t *testing.T, limits int) *expression { return wideUse(t, wide(t, limits, drips)) },
	"use that opens": func(t *testing.T, limits int) *expression {
		return wideUse(t, wide(t, limits, sessions))
	},
	"settle": func(t *testing.T, limits int) *expression {
		b := wide(t, limits, drips)
		back := amounts(b)
		for name := range back {
			back[name] = -1
		}
		return settleExpression(b, quota.Reconcile(&b.Bucket, &b.Bucket, back, clock))
	},
}

func wideUse(t *testing.T, b *table.Bucket) *expression {
	t.Helper()
	use, _, err := quota.PlanUse(&b.Bucket, amounts(b), clock)
	if err != nil || use == nil {
		t.Fatal(use, err)
	}
	return useExpression(b, use, 1900000000)
}

// Most limits that one write has room for. A bucket of more than the smallest of
// them can't be used at the worst of times.
func TestMostLimits(t *testing.T) {
	for name, want := range map[string]int{"take": 34, "use": 51, "use that opens": 34, "settle": 106} {
		most := 0
		for limits := 1; limits < 200 && charging[name](t, limits).fits() == nil; limits++ {
			most = limits
		}
		if most != want {
			t.Errorf("%s: %d limits, not %d", name, most, want)
		}
		e := charging[name](t, most)
		condition, update := *e.condition(), *e.update()
		t.Logf("%s: %d limits, a condition of %d bytes and %d operators, an update of %d", name, most, len(condition), operators(condition), len(update))
		if n := len(operator.FindAllString(condition, -1)); n > maxOperators || n != operators(condition) {
			t.Errorf("%s: %d operators, counted as %d", name, n, operators(condition))
		}
		if len(condition) > 4096 || len(update) > 4096 {
			t.Errorf("%s: a condition of %d bytes, an update of %d", name, len(condition), len(update))
		}
		if err := charging[name](t, most+1).fits(); !errors.Is(err, table.ErrRequest) {
			t.Errorf("%s: one limit more: %v", name, err)
		}
	}
}

// silent is a client that must not be called.
type silent struct{ ClientAPI }

func (silent) UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	panic("it was sent")
}

// More than there is room for is refused before it is sent.
func TestTooManyLimitsAreNotSent(t *testing.T) {
	client := NewClient(silent{}, "t")
	b := wide(t, 110, drips)
	_, take := client.Charge(t.Context(), b.Key, table.FastCharge{Amounts: amounts(b), Now: clock})
	planned, _, err := quota.PlanUse(&b.Bucket, amounts(b), clock)
	if err != nil {
		t.Fatal(err)
	}
	_, use := client.Use(t.Context(), b, planned, 0)
	back := amounts(b)
	for name := range back {
		back[name] = -1
	}
	_, settle := client.Reconcile(t.Context(), b, quota.Reconcile(&b.Bucket, &b.Bucket, back, clock))
	for name, err := range map[string]error{"take": take, "use": use, "settle": settle} {
		if !errors.Is(err, table.ErrRequest) || errors.Is(err, table.ErrRetry) || err.Error() != name+": no write that the table can make: too many limits at once" {
			t.Errorf("%s: %v", name, err)
		}
	}
}
