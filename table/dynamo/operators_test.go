package dynamo

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// operator is one of the operators and functions of which DynamoDB takes so many
// in a condition. The local DynamoDB of the tests does not count them.
var operator = regexp.MustCompile(` AND | OR |<=|>=|=|<|>|attribute_|contains|if_not_exists`)

// The widest condition of a pass: many limits, the valid-until at 0, one quota
// restored exactly, no consumption yet, every balance raised.
func TestPassStaysBelowTheOperatorLimit(t *testing.T) {
	key := table.Group{Namespace: "n", Entity: "e", Resource: "r"}.At(0)
	for _, limits := range []int{1, 13, 40} {
		item := table.Item{
			table.AttrPK: table.S(key.PK()), table.AttrSK: table.S(table.StateSK),
			table.AttrRefilledAt: table.N("1700000000000"), table.AttrValidUntil: table.N("0"),
		}
		for i := range limits {
			set := func(field table.Field, value string) {
				item[table.Attr(fmt.Sprint("limit", i), field)] = table.N(value)
			}
			set(table.FieldBalance, "10")
			set(table.FieldConsumed, "0")
			set(table.FieldCapacity, "1000")
			set(table.FieldRefill, "1000")
			set(table.FieldPeriod, "60000")
		}
		item[table.Attr("limit0", table.FieldRefill)] = table.N("0")
		item[table.Attr("limit0", table.FieldResets)] = table.S("1m0")
		b, err := table.DecodeBucket(item)
		if err != nil {
			t.Fatal(err)
		}
		pass, err := quota.PlanPass(&b.Bucket, nil, 1796032800000)
		if err != nil || pass == nil || !pass.Restores() {
			t.Fatalf("pass %+v, %v", pass, err)
		}
		pass.Exact = true
		condition := *passExpression(b, pass, nil).condition()
		if n := len(operator.FindAllString(condition, -1)); n > maxOperators || n < limits {
			t.Errorf("%d limits: %d operators in %s", limits, n, condition)
		}
	}
}

// The widest usage: every shard, and many limits.
func TestUsageStaysBelowTheExpressionLimits(t *testing.T) {
	mark := "2026-11-30T00:00:00.000/" + strings.Repeat("9", 40)
	run := table.Range{First: table.Bound{Position: mark, Total: "AAAAAAAAAAA"}, Last: table.Bound{Position: mark, Total: "BBBBBBBBBBB"}}
	for name, found := range map[string]table.SeenRecords{"not read": nil, "read": {run}} {
		usage := table.Usage{Events: 1, Expires: 1, Counters: map[string]int64{}}
		for i := range 100 {
			usage.Counters[fmt.Sprint("limit", i)] = 1
		}
		for shard := range quota.MaxShards {
			usage.Sources = append(usage.Sources, table.Source{Shard: shard, Found: found, Next: table.SeenRecords{run}})
		}
		e := usageExpression(usage)
		condition, update := *e.condition(), *e.update()
		operators := len(operator.FindAllString(condition, -1))
		t.Logf("%s: condition of %d bytes and %d operators, update of %d bytes", name, len(condition), operators, len(update))
		if operators > maxOperators || operators < 3*quota.MaxShards {
			t.Errorf("%s: %d operators in %s", name, operators, condition)
		}
		if len(condition) > maxExpression || len(update) > maxExpression {
			t.Errorf("%s: a condition of %d bytes, an update of %d", name, len(condition), len(update))
		}
	}
}
