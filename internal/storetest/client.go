package storetest

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// OpenClient returns an empty table.
type OpenClient func(t testing.TB) (table.Client, Raw)

var clientSuites = []suite{
	{"Take", takeCases}, {"Use", useCases}, {"UseAll", useAllCases}, {"Settle", settleCases}, {"Tell", tellCases},
	{"Insert", insertCases}, {"Amend", amendCases}, {"Remove", removeCases}, {"Items", itemCases}, {"Find", findCases},
	{"FindLevels", levelCases}, {"Race", clientRaceCases}, {"Errors", clientErrorCases},
}

// RunClient runs the suite of what only a Client does, each test over a table of
// its own.
func RunClient(t *testing.T, open OpenClient) { runSuites(t, open.store, clientSuites...) }

// store is open for cases, all of which have a fixture of a Store.
func (open OpenClient) store(t testing.TB) (table.Store, Raw) { return open(t) }

// client is the store of a case of RunClient.
func (f *fixture) client() table.Client { return f.store.(table.Client) }

// written fails the test unless a write was made and left one item, which it
// returned and which is the whole table.
func (f *fixture) written(what string, got table.WriteResult, err error, want table.Item) {
	f.Helper()
	f.noError(err)
	if !got.Applied {
		f.Fatalf("%s: refused", what)
	}
	f.sameItem(what, got.Item, want)
	f.has(want)
}

// refused fails the test unless a write was refused with the item as it is.
// want is the whole table, nil for nothing.
func (f *fixture) refused(what string, got table.WriteResult, err error, want table.Item) {
	f.Helper()
	f.noError(err)
	if got.Applied {
		f.Fatalf("%s: written", what)
	}
	f.sameItem(what, got.Item, want)
	if want == nil {
		f.has()
		return
	}
	f.has(want)
}

// clientErrorCases: no method changes anything, or says whom it is about, when
// it returns an error.
var clientErrorCases = []testCase{
	{"a cancelled context may pass if retried, and changes nothing", func(f *fixture) {
		item := bucket(first, limit(rpm, 700, 1000))
		b, c, ctx := f.put(item), f.client(), refused()
		_, take := c.Charge(ctx, first, table.FastCharge{Amounts: map[string]int64{rpm: 1}, Now: now})
		_, use := c.Use(ctx, b, f.plan(b, quota.Demand{rpm: 1}, now+1))
		_, useAll := c.UseAll(ctx, []table.PlannedUse{{Bucket: b, Use: f.plan(b, quota.Demand{rpm: 1}, now+1)}})
		_, settle := c.Reconcile(ctx, b, []quota.Adjustment{{Limit: rpm, Consumed: 5, Balance: -5}})
		_, tell := c.PropagateWindow(ctx, first, table.OpenedWindow{Limit: sess, Start: now, Length: 1000})
		_, insert := c.Insert(ctx, bucket(group.At(1)))
		_, amend := c.Amend(ctx, first.PK(), table.StateSK, table.Amendment{Remove: []string{"rf"}})
		_, remove := c.Remove(ctx, first.PK(), table.StateSK)
		_, read := c.Items(ctx, []table.ItemKey{{PK: first.PK(), SK: table.StateSK}})
		_, find := c.Find(ctx, table.Scope{Namespace: group.Namespace})
		_, levels := c.FindLevels(ctx, group.Namespace, group.Resource)
		for name, err := range map[string]error{
			"take": take, "use": use, "use all": useAll, "settle": settle, "tell": tell, "insert": insert, "amend": amend, "items": read, "find": find, "find levels": levels,
			"remove": remove,
		} {
			if !errors.Is(err, table.ErrRetry) || !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), group.Entity) {
				f.Errorf("%s: %v", name, err)
			}
		}
		f.has(item)
	}},
	{"a balance that is no number cannot be added to", func(f *fixture) {
		item := bucket(first, limit(rpm, 700, 1000), attrs{"b_rpm_tc": "many", "b_rpm_tk": 800})
		f.raw.Put(f, item)
		_, take := f.client().Charge(f.Context(), first, table.FastCharge{Amounts: map[string]int64{rpm: 1}, Now: now})
		b := f.decode(build(item, attrs{"b_rpm_tc": 0}))
		_, use := f.client().Use(f.Context(), b, f.plan(b, quota.Demand{rpm: 1}, now+1))
		_, settle := f.client().Reconcile(f.Context(), b, []quota.Adjustment{{Limit: rpm, Consumed: 5, Balance: -5}})
		for name, err := range map[string]error{"take": take, "use": use, "settle": settle} {
			if err == nil || errors.Is(err, table.ErrRetry) || strings.Contains(err.Error(), group.Entity) || strings.Contains(err.Error(), "many") {
				f.Errorf("%s: %v", name, err)
			}
		}
		f.has(item)
	}},
	{"what is left of a bucket that cannot be read is told", func(f *fixture) {
		item := bucket(first, limit(rpm, 700, 1000), attrs{"rf": "noon", "disabled": true})
		f.raw.Put(f, item)
		taken, err := f.client().Charge(f.Context(), first, table.FastCharge{Now: now})
		f.refused("take", taken, err, item)
		if b, err := taken.Bucket(); b != nil || !errors.Is(err, table.ErrItem) {
			f.Errorf("got %v, %v", b, err)
		}
		taken, err = f.client().Charge(f.Context(), group.At(1), table.FastCharge{Now: now})
		f.noError(err)
		if b, err := taken.Bucket(); b != nil || err != nil {
			f.Errorf("of no item: %v, %v", b, err)
		}
	}},
}
