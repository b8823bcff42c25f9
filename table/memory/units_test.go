package memory_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/internal/dynoxide"
	. "github.com/shardquota/shardquota/limiter"
	. "github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/sharding"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/dynamo"
	"github.com/shardquota/shardquota/table/memory"
)

func TestSize(t *testing.T) {
	for name, c := range map[string]struct {
		value types.AttributeValue
		size  int
	}{
		"text":                     {table.S("añ"), 3},
		"no text":                  {table.S(""), 0},
		"nought":                   {table.N("0"), 1},
		"one digit":                {table.N("7"), 2},
		"three digits":             {table.N("123"), 3},
		"four, trailing noughts":   {table.N("1234000"), 3},
		"negative":                 {table.N("-1234"), 4},
		"fraction":                 {table.N("0.0012"), 2},
		"a time":                   {table.N("1796126400000"), 5},
		"a flag":                   {&types.AttributeValueMemberBOOL{Value: true}, 1},
		"nothing":                  {&types.AttributeValueMemberNULL{Value: true}, 1},
		"bytes":                    {&types.AttributeValueMemberB{Value: []byte("abc")}, 3},
		"texts":                    {&types.AttributeValueMemberSS{Value: []string{"ab", "c"}}, 3},
		"numbers":                  {&types.AttributeValueMemberNS{Value: []string{"1", "22"}}, 4},
		"a list of two":            {&types.AttributeValueMemberL{Value: []types.AttributeValue{table.S("ab"), table.N("1")}}, 3 + 2 + 2 + 2},
		"a map of one, name of 2 ": {&types.AttributeValueMemberM{Value: table.Item{"ab": table.S("c")}}, 3 + 1 + 2 + 1},
	} {
		if got := (table.Item{"nm": c.value}).Size(); got != 2+c.size {
			t.Errorf("%s: %d bytes beside the name, not %d", name, got-2, c.size)
		}
	}
}

// metered is a table with an account, and a Limiter on it whose clock stands
// still.
type metered struct {
	*testing.T
	*Limiter
	*Store
	table table.Client
	now   time.Time
	shard int // that is drawn, if there are so many
}

func newMetered(t *testing.T, client table.Client) *metered {
	t.Helper()
	m := &metered{T: t, table: client, now: time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)}
	gathered := PerMinute("rpm", 60)
	gathered.Division = quota.Pooled
	var err error
	m.Store, err = Open(t.Context(), client, NamespaceID("ns1"), Sequential(), Clock(func() time.Time { return m.now }),
		Default("", PerMinute("rpm", 60), Quota("calls", 1000, "0 0 * * *")), Default("chat", Session("calls", 1000, time.Hour)),
		Default("both", gathered))
	if err != nil {
		t.Fatal(err)
	}
	m.Limiter = New(m.Store, Deterministic(func(n int) int { return min(m.shard, n-1) }))
	return m
}

func (m *metered) use(resource string, amounts Amounts) *Lease {
	m.Helper()
	lease, err := m.Acquire(m.Context(), "acme", resource, amounts)
	if err != nil {
		m.Fatal(err)
	}
	return lease
}

func (m *metered) fine(err error) {
	m.Helper()
	if err != nil {
		m.Fatal(err)
	}
}

// shards has the resource have so many shards, all of which exist.
func (m *metered) shards(resource string, amounts Amounts, count int) {
	m.Helper()
	m.use(resource, amounts)
	for from := 1; from < count; from *= 2 {
		_, err := m.table.Double(m.Context(), table.Group{Namespace: "ns1", Entity: "acme", Resource: resource}, from)
		m.fine(err)
	}
	m.shard = 0
	m.use(resource, amounts)
	for m.shard = range count {
		m.use(resource, amounts)
	}
	m.shard = 0
}

// long is more of an attribute than a write unit has room for.
var long = strings.Repeat("x", 1100)

// charged are what programs do, each with what is made ready for it. account is
// as TestWhatItCosts of the limiter has measured it on DynamoDB's protocol;
// refused is what DynamoDB charges beyond what it reports.
var charged = []struct {
	name    string
	ready   func(m *metered) (do func())
	account string
	refused float64
	trips   int
}{
	{"first use", func(m *metered) func() {
		return func() { m.use("gpt-4", Amounts{"rpm": 1, "calls": 1}) }
	}, "2 BatchGetItem, 1 PutItem, 1 Query, 2 UpdateItem, 1 refused: GSI2 2, GSI3 1, GSI4 1, read 10.5, table 2", 1, 6},
	{"use", func(m *metered) func() {
		m.use("gpt-4", Amounts{"rpm": 1})
		return func() { m.use("gpt-4", Amounts{"rpm": 1, "calls": 1}) }
	}, "1 UpdateItem: GSI2 1, table 1", 0, 1},
	{"use with a pass", func(m *metered) func() {
		m.use("gpt-4", Amounts{"rpm": 60})
		m.now = m.now.Add(5 * time.Second)
		return func() { m.use("gpt-4", Amounts{"rpm": 1, "calls": 1}) }
	}, "2 UpdateItem, 1 refused: GSI2 1, table 1", 1, 2},
	{"rejection", func(m *metered) func() {
		m.use("gpt-4", Amounts{"rpm": 60})
		return func() {
			var rejection *Rejection
			if _, err := m.Acquire(m.Context(), "acme", "gpt-4", Amounts{"rpm": 1}); !errors.As(err, &rejection) {
				m.Error(err)
			}
		}
	}, "1 UpdateItem, 1 refused: nothing", 1, 1},
	{"rejection of a large item", func(m *metered) func() {
		m.use("gpt-4", Amounts{"rpm": 60})
		pk := table.Key{Group: table.Group{Namespace: "ns1", Entity: "acme", Resource: "gpt-4"}}.PK()
		_, err := m.table.Amend(m.Context(), pk, table.StateSK, table.Amendment{Set: table.Item{"note": table.S(long)}})
		m.fine(err)
		return func() { _, _ = m.Acquire(m.Context(), "acme", "gpt-4", Amounts{"rpm": 1}) }
	}, "1 UpdateItem, 1 refused: nothing", 2, 1},
	{"use of a large item", func(m *metered) func() {
		m.use("gpt-4", Amounts{"rpm": 1})
		pk := table.Key{Group: table.Group{Namespace: "ns1", Entity: "acme", Resource: "gpt-4"}}.PK()
		_, err := m.table.Amend(m.Context(), pk, table.StateSK, table.Amendment{Set: table.Item{"note": table.S(long)}})
		m.fine(err)
		return func() { m.use("gpt-4", Amounts{"rpm": 1}) }
	}, "1 UpdateItem: GSI2 2, table 2", 0, 1},
	{"adjustment", func(m *metered) func() {
		lease := m.use("gpt-4", Amounts{"rpm": 1, "calls": 9})
		return func() { m.fine(lease.Adjust(m.Context(), Amounts{"calls": -4})) }
	}, "1 UpdateItem: GSI2 1, table 1", 0, 1},
	{"first use of another shard", func(m *metered) func() {
		m.use("gpt-4", Amounts{"rpm": 1, "calls": 1})
		_, err := m.table.Double(m.Context(), table.Group{Namespace: "ns1", Entity: "acme", Resource: "gpt-4"}, 1)
		m.fine(err)
		m.use("gpt-4", Amounts{"rpm": 1, "calls": 1})
		m.shard = 1
		return func() { m.use("gpt-4", Amounts{"rpm": 1, "calls": 1}) }
	}, "1 BatchGetItem, 1 GetItem, 1 TransactWriteItems, 2 UpdateItem, 1 refused: GSI2 3, GSI3 1, GSI4 1, read 3, table 5", 1, 5},
	{"use that doubles, from 2 shards", func(m *metered) func() {
		m.shards("gpt-4", Amounts{"rpm": 1, "calls": 1}, 2)
		_, err := m.table.Amend(m.Context(), table.Key{Group: table.Group{Namespace: "ns1", Entity: "acme", Resource: "gpt-4"}}.PK(), table.StateSK,
			table.Amendment{Set: table.Item{table.Attr("wcu", table.FieldBalance): table.N("0")}})
		m.fine(err)
		return func() { m.use("gpt-4", Amounts{"rpm": 1, "calls": 1}) }
	}, "1 BatchGetItem, 4 UpdateItem, 1 refused: GSI2 3, read 4, table 3", 1, 5},
	{"use that opens a window, of 4 shards", func(m *metered) func() {
		m.shards("chat", Amounts{"calls": 1}, 4)
		m.now = m.now.Add(2 * time.Hour)
		return func() { m.use("chat", Amounts{"calls": 1}) }
	}, "5 UpdateItem, 1 refused: GSI2 4, table 4", 1, 5},
	{"what a shard of dripping limits is made without a donor for", func(m *metered) func() {
		m.use("both", Amounts{"rpm": 1})
		_, err := m.table.Double(m.Context(), table.Group{Namespace: "ns1", Entity: "acme", Resource: "both"}, 1)
		m.fine(err)
		m.use("both", Amounts{"rpm": 1})
		m.shard = 1
		return func() { m.use("both", Amounts{"rpm": 1}) }
	}, "1 BatchGetItem, 1 GetItem, 1 TransactWriteItems, 2 UpdateItem, 1 refused: GSI2 2, GSI3 1, GSI4 1, read 3, table 5", 1, 5},
}

// TestUnits has the account of the memory store be what was measured, and the
// same as that of a table on DynamoDB's protocol after the same operation.
func TestUnits(t *testing.T) {
	client := dynoxide.Client(t)
	for _, c := range charged {
		t.Run(c.name, func(t *testing.T) {
			m := memory.New().Metered()
			do := c.ready(newMetered(t, m))
			m.Reset()
			do()
			got := m.Units()
			if got.String() != c.account || got.Charged != c.refused || got.Trips != c.trips {
				t.Errorf("\n got %v, %g for the refused, %d trips\nwant %s, %g, %d", got, got.Charged, got.Trips, c.account, c.refused, c.trips)
			}

			d := dynamo.New(client, dynoxide.NewTable(t, client))
			do = c.ready(newMetered(t, d))
			before := d.Units()
			do()
			after := d.Units()
			want := dynamo.Units{Read: after.Read - before.Read, Write: after.Write - before.Write, Refused: after.Refused - before.Refused, Requests: map[string]int{}}
			for operation, n := range after.Requests {
				if n -= before.Requests[operation]; n > 0 {
					want.Requests[operation] = n
				}
			}
			all := got.Write
			for _, units := range got.Indexes {
				all += units
			}
			if got.Read != want.Read || all != want.Write || got.Refused != want.Refused || !maps.Equal(got.Requests, want.Requests) {
				t.Errorf("in memory %v, on the protocol %+v", got, want)
			}
		})
	}
}

// TestUnitsOfTransactions prices a use of several buckets and a creation, each
// as it is made and as it is refused.
func TestUnitsOfTransactions(t *testing.T) {
	m := memory.New().Metered()
	x := newMetered(t, m)
	x.shards("gpt-4", Amounts{"rpm": 1}, 2)
	group := table.Group{Namespace: "ns1", Entity: "acme", Resource: "gpt-4"}
	var uses []table.PlannedUse
	for shard := range 2 {
		b, err := m.Read(t.Context(), group.At(shard))
		x.fine(err)
		use, _, err := quota.PlanUse(&b.Bucket, quota.Demand{"rpm": 1000}, x.now.UnixMilli())
		x.fine(err)
		uses = append(uses, table.PlannedUse{Bucket: b, Use: use})
	}
	m.Reset()
	for i, want := range []string{
		"1 TransactWriteItems: GSI2 2, table 4",
		"2 TransactWriteItems, 1 refused: GSI2 2, table 4", // the same again finds the buckets changed
	} {
		applied, err := m.UseAll(t.Context(), uses)
		x.fine(err)
		if got := m.Units(); applied != (i == 0) || got.String() != want || got.Charged != float64(4*i) {
			t.Errorf("use %d: applied %v, %v and %g for the refused", i, applied, got, got.Charged)
		}
	}

	zero, err := m.Read(t.Context(), group.At(0))
	x.fine(err)
	zero.ShardCount = 4 // which it is not: the pin is refused
	fundings, err := quota.Fund(&zero.Bucket, []*quota.Bucket{&zero.Bucket}, 3, 4, x.now.UnixMilli())
	x.fine(err)
	creation := table.Creation{Bucket: sharding.New(zero, 3, 4, x.now.UnixMilli(), fundings), Moves: quota.Moves(fundings)}
	m.Reset()
	outcome, err := m.Create(t.Context(), creation)
	x.fine(err)
	if got := m.Units(); outcome != table.PinMoved || got.String() != "1 TransactWriteItems, 1 refused: nothing" || got.Charged != 4 {
		t.Errorf("outcome %v: %v and %g for the refused", outcome, got, got.Charged)
	}
}

// TestMeteredWatch tells whoever watches of each write, and forgets an account.
func TestMeteredWatch(t *testing.T) {
	m := memory.New().Metered()
	told := 0
	m.Watch(func(_, new table.Item) { told += len(new) })
	item := table.Item{table.AttrPK: table.S("a"), table.AttrSK: table.S("b")}
	for range 2 {
		if _, err := m.Insert(t.Context(), item); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.Remove(t.Context(), "a", "b"); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Remove(t.Context(), "a", "b"); err != nil {
		t.Fatal(err)
	}
	if got := m.Units(); told != 2 || got.String() != "2 DeleteItem, 2 PutItem, 2 refused: table 2" || got.Charged != 2 || got.Sum() != 4 {
		t.Errorf("told of %d attributes, %v, %g for the refused", told, got, got.Charged)
	}
	m.Reset()
	if _, err := m.Items(context.Background(), []table.ItemKey{{PK: "a", SK: "b"}, {PK: "a", SK: "b"}, {PK: "a", SK: "c"}}); err != nil {
		t.Fatal(err)
	}
	if got := m.Units(); got.String() != "1 BatchGetItem: read 2" {
		t.Error(got)
	}
}
