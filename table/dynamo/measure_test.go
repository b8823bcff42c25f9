package dynamo

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/internal/storetest"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/memory"
)

var (
	operator = regexp.MustCompile(` AND | OR |<=|>=|=|<|>|attribute_|contains|if_not_exists`)
	function = regexp.MustCompile(`if_not_exists`)
	aliased  = regexp.MustCompile(`[#:][0-9]+`)
)

// compare checks what table says of a write against its rendering.
func compare(t testing.TB, e expressions, w *table.Write) {
	t.Helper()
	rendered, got := e.of(w), table.Measure(w)
	update, condition := deref(rendered.update), deref(rendered.condition)
	want := table.Extent{
		Update:    table.Expression{Bytes: len(update), Operators: len(function.FindAllString(update, -1))},
		Condition: table.Expression{Bytes: len(condition), Operators: len(operator.FindAllString(condition, -1))},
	}
	declared := slices.Collect(maps.Keys(rendered.names))
	for alias, name := range rendered.names {
		want.Substituted += len(alias) + len(name)
	}
	for alias, value := range rendered.values {
		declared = append(declared, alias)
		if number, ok := value.(*types.AttributeValueMemberN); ok {
			want.Substituted += len(alias) + len(number.Value)
		} else {
			want.Substituted += len(alias) + table.Item{"": value}.Size()
		}
	}
	if got != want {
		t.Fatalf("%s\nis %+v, rendered %+v:\n%s\n%s", w, got, want, update, condition)
	}
	used := aliased.FindAllString(update+" "+condition, -1)
	slices.Sort(used)
	slices.Sort(declared)
	if used = slices.Compact(used); !slices.Equal(used, declared) {
		t.Fatalf("%s\nuses %v and declares %v", w, used, declared)
	}
}

// measured compares every write that goes through a table.
type measured struct {
	table.DB
	t testing.TB
	e expressions
}

func (m measured) Do(ctx context.Context, w *table.Write) (table.WriteResult, error) {
	compare(m.t, m.e, w)
	return m.DB.Do(ctx, w)
}

func (m measured) Transact(ctx context.Context, transaction *table.Transaction) (table.TransactResult, error) {
	for _, w := range transaction.Writes {
		compare(m.t, m.e, w)
	}
	return m.DB.Transact(ctx, transaction)
}

type items struct{ *memory.Store }

func (r items) Put(_ testing.TB, item table.Item)          { r.Store.Put(item) }
func (r items) Delete(_ testing.TB, pk, sk string)         { r.Store.Delete(pk, sk) }
func (r items) Get(_ testing.TB, pk, sk string) table.Item { return r.Store.Get(pk, sk) }
func (r items) Items(testing.TB) []table.Item              { return r.Store.Items() }

// Every write of the suite takes what table measures, declares what it uses and
// uses what it declares.
func TestWritesAreMeasured(t *testing.T) {
	open := func(t testing.TB) (table.Client, storetest.Raw) {
		store := memory.New()
		return &table.Table{DB: measured{store, t, newExpressions()}}, items{store}
	}
	storetest.RunClient(t, open)
	storetest.Run(t, func(t testing.TB) (table.Store, storetest.Raw) { return open(t) })
}

// So do random writes, small and large.
func TestRandomWritesAreMeasured(t *testing.T) {
	r, e := rand.New(rand.NewPCG(1, 2)), newExpressions()
	for range 1000 {
		compare(t, e, randomWrite(r))
	}
}

func randomWrite(r *rand.Rand) *table.Write {
	most := 1 + r.IntN(1+r.IntN(300))
	shared := table.Int(7)
	name := func() string { return fmt.Sprint("a", r.IntN(most)) }
	value := func() types.AttributeValue {
		switch r.IntN(4) {
		case 0:
			return shared
		case 1:
			return table.S(fmt.Sprint(r.IntN(1000)))
		}
		return table.Int(r.Int64())
	}
	var condition func(depth int) table.Condition
	condition = func(depth int) table.Condition {
		op := table.Operator(r.IntN(int(table.All) + 1))
		switch {
		case op == table.Present || op == table.Absent:
			return table.Condition{Op: op, Name: name()}
		case op < table.Any:
			return table.Condition{Op: op, Name: name(), Value: value(), OrAbsent: op != table.Contains && r.IntN(4) == 0}
		case depth == 0:
			return table.Condition{Op: table.Absent, Name: name()}
		}
		c := table.Condition{Op: op}
		for range 2 + r.IntN(3) {
			c.Of = append(c.Of, condition(depth-1))
		}
		return c
	}
	w := &table.Write{}
	for range r.IntN(most) {
		w.Require = append(w.Require, condition(2))
	}
	for range r.IntN(most) {
		set := table.Assignment{Name: name(), Value: value()}
		switch r.IntN(4) {
		case 0:
			set.Absent = true
		case 1:
			set.From = name()
		}
		w.Set = append(w.Set, set)
	}
	for range r.IntN(most) {
		w.Add = append(w.Add, table.Addition{Name: name(), Value: table.Int(r.Int64())})
	}
	for range r.IntN(most) {
		w.Remove = append(w.Remove, name())
	}
	return w
}
