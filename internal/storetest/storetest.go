// Package storetest holds every implementation of table.Store to what the
// interface promises, down to the items that it leaves.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	items "github.com/shardquota/shardquota/internal/fixture"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// Raw reaches the items behind a Store, as another writer would.
type Raw interface {
	Put(t testing.TB, item table.Item)
	Delete(t testing.TB, pk, sk string)
	Get(t testing.TB, pk, sk string) table.Item // nil where there is none
	Items(t testing.TB) []table.Item            // in any order
}

// Open returns an empty table.
type Open func(t testing.TB) (table.Store, Raw)

// suite is the cases of one method.
type suite struct {
	name  string
	cases []testCase
}

var storeSuites = []suite{
	{"Read", readCases}, {"AddUsage", usageCases}, {"Pass", passCases}, {"Double", doubleCases}, {"Freeze", freezeCases}, {"Outlive", outliveCases},
	{"RaiseAndRead", raiseCases}, {"Create", createCases}, {"Race", raceCases}, {"Errors", errorCases},
}

// Run runs the suite, each test over a table of its own.
func Run(t *testing.T, open Open) { runSuites(t, open, storeSuites...) }

// RunCreate runs the part of the suite that is about Create.
func RunCreate(t *testing.T, open Open) { runSuites(t, open, suite{"Create", createCases}) }

func runSuites(t *testing.T, open Open, suites ...suite) {
	each(open, suites, func(name string, run func(t testing.TB)) {
		t.Run(name, func(t *testing.T) { run(t) })
	})
}

// Each yields every case of Run and RunClient, to be run by the caller.
func Each(open OpenClient, yield func(name string, run func(t testing.TB))) {
	each(open.store, slices.Concat(storeSuites, clientSuites), yield)
}

func each(open Open, suites []suite, yield func(name string, run func(t testing.TB))) {
	for _, s := range suites {
		for _, c := range s.cases {
			yield(s.name+"/"+c.name, func(t testing.TB) {
				store, raw := open(t)
				c.run(&fixture{t, store, raw})
			})
		}
	}
}

type testCase struct {
	name string
	run  func(*fixture)
}

// fixture is one test over one table.
type fixture struct {
	testing.TB
	store table.Store
	raw   Raw
}

var (
	group = table.Group{Namespace: "n5", Entity: "sk-live-4242", Resource: "models/embed-3"}
	first = group.At(0)
)

const (
	rpm   = "rpm"   // drips
	calls = "calls" // a calendar quota, restored at midnight
	sess  = "sess"  // a session quota

	// now is an hour past midnight, UTC; midnight is the edge of calls' period.
	midnight = int64(1796083200000)
	now      = midnight + 3600_000
)

// awkward are limit names that an expression must not spell out.
var awkward = []string{"tokens.in", "calls-day", "a_b", "b_x_tk", "size", "status", "x.y-z_tk", "A", "gc"}

type attrs = items.Attrs

var build = items.Build

// bucket is a bucket item: its keys, a count of 1, a pass at now, a write meter
// and what else is given.
func bucket(key table.Key, more ...attrs) table.Item {
	shard := strconv.Itoa(key.Shard)
	base := attrs{
		"PK": key.PK(), "SK": table.StateSK,
		"GSI2PK": key.Namespace + "/RESOURCE#" + key.Resource, "GSI2SK": "BUCKET#" + key.Entity + "#" + shard,
		"GSI3PK": key.Namespace + "/ENTITY#" + key.Entity, "GSI3SK": "BUCKET#" + key.Resource + "#" + shard,
		"GSI4PK": key.Namespace, "GSI4SK": "BUCKET#" + key.Entity + "#" + key.Resource + "#" + shard,
		"entity_id": key.Entity, "resource": key.Resource, "cascade": false,
		"shard_count": 1, "rf": now,
		"b_wcu_tk": 1000_000, "b_wcu_tc": 0, "b_wcu_cp": 1000_000, "b_wcu_ra": 1000_000, "b_wcu_rp": 1000,
	}
	return build(table.Item{}, append([]attrs{base}, more...)...)
}

// merge is a with more over it.
func merge(a, more attrs) attrs {
	result := maps.Clone(a)
	maps.Copy(result, more)
	return result
}

// limit is the attributes of a dripping limit.
func limit(name string, balance, capacity int64) attrs {
	return attrs{
		table.Attr(name, table.FieldBalance):  balance,
		table.Attr(name, table.FieldConsumed): 0,
		table.Attr(name, table.FieldCapacity): capacity,
		table.Attr(name, table.FieldRefill):   capacity,
		table.Attr(name, table.FieldPeriod):   60_000,
	}
}

// calendar is the attributes of a calendar quota that is restored at midnight;
// grant 0 makes a legacy one.
func calendar(name string, balance, capacity int64, grant int) attrs {
	a := limit(name, balance, capacity)
	a[table.Attr(name, table.FieldRefill)] = 0
	a[table.Attr(name, table.FieldResets)] = "1m0h0"
	if grant != 0 {
		a[table.Attr(name, table.FieldGrant)] = grant
	}
	return a
}

// session is the attributes of a session quota whose window of two hours began
// at start and is applied; grant 0 makes a legacy one.
func session(name string, balance, capacity int64, grant int, start int64) attrs {
	a := calendar(name, balance, capacity, grant)
	delete(a, table.Attr(name, table.FieldResets))
	a[table.Attr(name, table.FieldLength)] = 7200
	a[table.Attr(name, table.FieldStart)] = start
	a[table.Attr(name, table.FieldApplied)] = start
	return a
}

// decode reads an item as a bucket.
func (f *fixture) decode(item table.Item) *table.Bucket {
	f.Helper()
	b, err := table.DecodeBucket(item)
	if err != nil {
		f.Fatalf("decode: %v", err)
	}
	return b
}

// put stores an item and returns the bucket it is.
func (f *fixture) put(item table.Item) *table.Bucket {
	f.Helper()
	f.raw.Put(f, item)
	return f.decode(item)
}

// has fails the test unless the table holds exactly the items.
func (f *fixture) has(want ...table.Item) {
	f.Helper()
	if diff := diffItems(f.raw.Items(f), want); diff != "" {
		f.Errorf("the table is not as it should be (-is +should):\n%s", diff)
	}
}

func (f *fixture) noError(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func check[T comparable](f *fixture, what string, got, want T) {
	f.Helper()
	if got != want {
		f.Errorf("%s is %v, not %v", what, got, want)
	}
}

// sameItem fails the test unless two items are equal; nil is no item.
func (f *fixture) sameItem(what string, got, want table.Item) {
	f.Helper()
	if diff := diffLines(describe(got), describe(want)); diff != "" {
		f.Errorf("%s is not as it should be (-is +should):\n%s", what, diff)
	}
}

// itemOf is a bucket's item, nil for no bucket.
func itemOf(b *table.Bucket) table.Item {
	if b == nil {
		return nil
	}
	return b.Item
}

// refused is a context that is over before it is used.
func refused() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// diffItems describes how two tables differ, empty where they do not.
func diffItems(got, want []table.Item) string {
	lines := func(items []table.Item) []string {
		var all []string
		for _, item := range items {
			pk, sk := item.Key()
			for _, line := range describe(item) {
				all = append(all, pk+" "+sk+" "+line)
			}
		}
		slices.Sort(all)
		return all
	}
	return diffLines(lines(got), lines(want))
}

// describe renders an item, one attribute a line.
func describe(item table.Item) []string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(item)) {
		lines = append(lines, name+"="+render(item[name]))
	}
	return lines
}

func render(value types.AttributeValue) string {
	switch v := value.(type) {
	case *types.AttributeValueMemberN:
		return "N:" + v.Value
	case *types.AttributeValueMemberS:
		return "S:" + v.Value
	case *types.AttributeValueMemberB:
		return fmt.Sprintf("B:%x", v.Value)
	case *types.AttributeValueMemberBOOL:
		return fmt.Sprintf("BOOL:%t", v.Value)
	case *types.AttributeValueMemberNULL:
		return "NULL"
	case *types.AttributeValueMemberSS:
		return fmt.Sprintf("SS:%q", slices.Sorted(slices.Values(v.Value)))
	case *types.AttributeValueMemberNS:
		return fmt.Sprintf("NS:%q", slices.Sorted(slices.Values(v.Value)))
	case *types.AttributeValueMemberBS:
		texts := make([]string, len(v.Value))
		for i, b := range v.Value {
			texts[i] = fmt.Sprintf("%x", b)
		}
		slices.Sort(texts)
		return "BS:" + strings.Join(texts, ",")
	case *types.AttributeValueMemberL:
		texts := make([]string, len(v.Value))
		for i, element := range v.Value {
			texts[i] = render(element)
		}
		return "L:[" + strings.Join(texts, " ") + "]"
	case *types.AttributeValueMemberM:
		return "M:{" + strings.Join(describe(v.Value), " ") + "}"
	default:
		return fmt.Sprintf("?%T", value)
	}
}

// diffLines lists the lines that only one side has.
func diffLines(got, want []string) string {
	var text strings.Builder
	list := func(sign string, lines, others []string) {
		counts := map[string]int{}
		for _, line := range others {
			counts[line]++
		}
		for _, line := range lines {
			if counts[line]--; counts[line] < 0 {
				fmt.Fprintf(&text, "%s %s\n", sign, line)
			}
		}
	}
	list("-", got, want)
	list("+", want, got)
	return text.String()
}

// errorCases: no method changes anything, or says whom it is about, when it
// returns an error.
var errorCases = []testCase{
	{"a cancelled context may pass if retried, and changes nothing", func(f *fixture) {
		zero := bucket(first, attrs{"shard_count": 2}, calendar(calls, 700, 1000, 1))
		b := f.put(zero)
		shard := f.decode(bucket(group.At(1), attrs{"shard_count": 2}, calendar(calls, 500, 1000, 2)))
		ctx := refused()
		_, read := f.store.Read(ctx, first)
		_, usage := f.store.AddUsage(ctx, oneCount(rpm, 1000))
		_, pass := f.store.Pass(ctx, b, drip(b, rpm, 0))
		_, double := f.store.Double(ctx, group, 2)
		freeze := f.store.Freeze(ctx, first, []quota.Freeze{{Limit: calls, Grant: 1}})
		_, raise := f.store.RaiseAndRead(ctx, group, 4, now)
		_, create := f.store.Create(ctx, table.Creation{Bucket: shard})
		for name, err := range map[string]error{
			"read": read, "usage": usage, "pass": pass, "double": double, "freeze": freeze, "raise": raise, "create": create,
		} {
			if !errors.Is(err, table.ErrRetry) || !errors.Is(err, context.Canceled) {
				f.Errorf("%s: %v", name, err)
			}
		}
		f.has(zero)
	}},
	{"an item that cannot be read is named by attribute, not by entity or value", func(f *fixture) {
		f.raw.Put(f, bucket(first, limit(rpm, 5, 10), attrs{"b_rpm_cp": "sixty", "shard_count": "several"}))
		_, read := f.store.Read(f.Context(), first)
		_, double := f.store.Double(f.Context(), group, 2)
		for name, err := range map[string]error{"read": read, "double": double} {
			if !errors.Is(err, table.ErrItem) || errors.Is(err, table.ErrRetry) {
				f.Errorf("%s: %v", name, err)
				continue
			}
			for _, secret := range []string{group.Entity, "sixty", "several"} {
				if strings.Contains(err.Error(), secret) {
					f.Errorf("%s: the error holds %q: %v", name, secret, err)
				}
			}
		}
	}},
}
