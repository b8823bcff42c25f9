package dynamo_test

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/shardquota/shardquota/internal/dynoxide"
	"github.com/shardquota/shardquota/internal/faultproxy"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/dynamo"
)

// site is a place in the Store or the Client that makes a request: the method
// that does, and an operation that comes by it once. A method can stand for two.
type site struct {
	method    string
	operation string // the service's name for the request
	do        func(context.Context, *dynamo.Store) (any, error)
	again     func(t *testing.T, answer any, items raw) // what is answered where it had landed; nil for a read
}

// sites are all of them: TestSitesAreAll.
var sites = []site{
	{"Read", "GetItem", storeCalls[0].do, nil},
	{"Get", "GetItem", func(ctx context.Context, s *dynamo.Store) (any, error) {
		return s.Get(ctx, group.At(0).PK(), table.StateSK)
	}, nil},
	{"AddUsage", "UpdateItem", storeCalls[1].do, func(t *testing.T, answer any, items raw) {
		if got := answer.(table.UsageResult); got.Applied || !got.Seen[0].Has("12") {
			t.Errorf("got %+v, not what landed as counted", got)
		}
		key := usage().Key
		numbers(t, items, key.PK(), key.SK(), map[string]string{"tokens.in": "1.5", "calls-day": "0.002", "total_events": "2"})
	}},
	{"Pass", "UpdateItem", storeCalls[2].do, func(t *testing.T, answer any, items raw) {
		got := answer.(table.PassResult)
		if got.Applied || got.Current == nil || got.Current.RefilledAt != now || got.Current.Limit("calls").Balance != 7950 {
			t.Errorf("got %+v, not the item as the pass left it", got)
		}
		numbers(t, items, group.At(0).PK(), table.StateSK, map[string]string{"b_calls_tk": "7950", "b_calls_gc": "4"})
	}},
	{"Pass", "UpdateItem", func(ctx context.Context, s *dynamo.Store) (any, error) {
		// Nothing but the time of the last pass keeps this one from adding twice.
		b := decode(seed()[0])
		return s.Pass(ctx, b, &quota.Pass{
			Changes: []quota.Change{{Limit: "calls", Read: 8000, Delta: 30}}, RefilledAt: now, ShardCount: 4, ExpectRefilledAt: now - 1000,
		})
	}, func(t *testing.T, answer any, items raw) {
		if got := answer.(table.PassResult); got.Applied || got.Current == nil || got.Current.RefilledAt != now {
			t.Errorf("got %+v, not the item as the pass left it", got)
		}
		numbers(t, items, group.At(0).PK(), table.StateSK, map[string]string{"b_calls_tk": "8030"})
	}},
	{"Double", "UpdateItem", storeCalls[3].do, func(t *testing.T, answer any, items raw) {
		if want := (table.DoubleResult{Count: 8}); answer != want {
			t.Errorf("got %+v", answer)
		}
		numbers(t, items, group.At(0).PK(), table.StateSK, map[string]string{"shard_count": "8"})
	}},
	{"Shards", "BatchGetItem", storeCalls[4].do, nil},
	{"raise", "UpdateItem", storeCalls[4].do, func(t *testing.T, answer any, items raw) {
		got := answer.([]table.Sibling)[1]
		if got.Raised || got.Bucket.ShardCount != 4 || *got.Bucket.Limit("calls").Grant != 2 {
			t.Errorf("got %+v, not the image that the raise left", got)
		}
		numbers(t, items, group.At(1).PK(), table.StateSK, map[string]string{"shard_count": "4", "b_calls_gc": "2"})
	}},
	{"Create", "TransactWriteItems", storeCalls[5].do, func(t *testing.T, answer any, items raw) {
		if answer != table.Created {
			t.Errorf("got %v", answer)
		}
		numbers(t, items, group.At(0).PK(), table.StateSK, map[string]string{"b_calls_tk": "6000"})
		numbers(t, items, group.At(2).PK(), table.StateSK, map[string]string{"b_calls_tk": "2000"})
	}},
	{"Outlive", "UpdateItem", func(ctx context.Context, s *dynamo.Store) (any, error) {
		return nil, s.Outlive(ctx, group, []quota.Extension{{Shard: 0, Least: 1900000001, Expires: 1900000007}})
	}, func(t *testing.T, _ any, items raw) {
		numbers(t, items, group.At(0).PK(), table.StateSK, map[string]string{"ttl": "1900000007"})
	}},
	{"Freeze", "UpdateItem", func(ctx context.Context, s *dynamo.Store) (any, error) {
		return nil, s.Freeze(ctx, group.At(1), []quota.Freeze{{Limit: "calls", Grant: 2}})
	}, func(t *testing.T, _ any, items raw) {
		numbers(t, items, group.At(1).PK(), table.StateSK, map[string]string{"b_calls_gc": "2"})
	}},
}

// TestEveryFaultAtEverySite lets every fault that may pass befall every request
// of the Store, until the client gives up and only once. Either way nothing is
// lost and nothing is done twice.
func TestEveryFaultAtEverySite(t *testing.T) {
	for _, s := range slices.Concat(sites, clientSites) {
		t.Run(s.method, func(t *testing.T) {
			t.Parallel()
			want := s.undisturbed(t)
			for _, fault := range faultproxy.Befalling(s.operation) {
				if s.method == "UseAll" && fault.Is(faultproxy.CancelledConflict) {
					continue // no failure: TestAConflictIsAnAnswer
				}
				t.Run(fault.Name+"/until the client gives up", func(t *testing.T) { s.fails(t, fault, want) })
				t.Run(fault.Name+"/once", func(t *testing.T) { s.recovers(t, fault, want) })
			}
		})
	}
}

// undisturbed is the table that the operation leaves where nothing goes wrong.
func (s site) undisturbed(t *testing.T) []string {
	w := newWire(t)
	if _, err := s.do(t.Context(), w.client(3)); err != nil {
		t.Fatal(err)
	}
	if n := w.requests(s.method); n != 1 {
		t.Fatalf("%d requests at %s, not 1", n, s.method)
	}
	return w.dump(t)
}

// attempts is how often the client of these tests makes a request, and a batch
// read is asked for what it left.
const attempts = 3

// fails: the error says that the call may be made again, and that call does
// what was left to do.
func (s site) fails(t *testing.T, fault faultproxy.Fault, want []string) {
	w := newWire(t)
	before := w.dump(t)
	w.spoil(s.method, fault, attempts+1)
	store := w.client(attempts)
	_, err := s.do(t.Context(), store)
	if fault.Is(faultproxy.Partly) {
		// Two keys of the four, one of the two, and the last: it gets there.
		if err != nil || w.requests(s.method) != 3 {
			t.Errorf("%d requests: %v", w.requests(s.method), err)
		}
		same(t, "bit by bit", w.dump(t), want)
		return
	}
	if !errors.Is(err, table.ErrRetry) {
		t.Errorf("got %v, no error that may pass", err)
	}
	tries := 1
	if retried(fault) {
		tries = attempts
	}
	if n := w.requests(s.method); n != tries {
		t.Errorf("%d requests, want %d", n, tries)
	}
	if landed := fault.Lands && s.again != nil; landed {
		same(t, "after the failure", w.dump(t), want)
	} else {
		same(t, "after the failure", w.dump(t), before)
	}
	w.Spoil(faultproxy.Nothing)
	answer, err := s.do(t.Context(), store)
	if err != nil {
		t.Fatalf("made again: %v", err)
	}
	if n := w.requests(s.method); n != 1 && (s.method != "raise" || !fault.Lands || n != 0) {
		t.Errorf("made again: %d requests", n)
	}
	same(t, "made again", w.dump(t), want)
	if fault.Lands && s.again != nil {
		s.again(t, answer, w.raw)
	}
}

// recovers: what the client does by itself about one fault.
func (s site) recovers(t *testing.T, fault faultproxy.Fault, want []string) {
	w := newWire(t)
	w.spoil(s.method, fault, 1)
	answer, err := s.do(t.Context(), w.client(attempts))
	if !retried(fault) {
		if !errors.Is(err, table.ErrRetry) || w.requests(s.method) != 1 {
			t.Errorf("%d requests: %v", w.requests(s.method), err)
		}
		return
	}
	if err != nil || w.requests(s.method) != 2 {
		t.Errorf("%d requests: %v", w.requests(s.method), err)
	}
	same(t, "afterwards", w.dump(t), want)
	if err == nil && fault.Lands && s.again != nil {
		s.again(t, answer, w.raw)
	}
}

// retried tells whether a request is made again at once: by the client, or for
// the keys that a batch read left.
func retried(fault faultproxy.Fault) bool {
	return fault.Retried || fault.Is(faultproxy.Unprocessed) || fault.Is(faultproxy.Partly)
}

// wire is a table that holds seed, with a proxy on the way to it.
type wire struct {
	*faultproxy.Proxy
	raw
}

func newWire(t *testing.T) wire {
	t.Helper()
	client := dynoxide.Client(t)
	w := wire{faultproxy.Start(t, dynoxide.Start(t)), raw{client, dynoxide.NewTable(t, client, streamless)}}
	for _, item := range seed() {
		w.Put(t, item)
	}
	return w
}

// streamless is a table whose writes nobody follows: dynoxide slows down with
// the records of a stream.
func streamless(input *dynamodb.CreateTableInput) { input.StreamSpecification = nil }

// patience is a batch read's, of so many attempts without a wait.
func patience(attempts int) dynamo.Option {
	return dynamo.Backoff(attempts, func(int) time.Duration { return 0 })
}

// spoil lets a fault befall the first so many requests at a site.
func (w wire) spoil(method string, fault faultproxy.Fault, times int) {
	w.Spoil(func(request faultproxy.Request) faultproxy.Fault {
		if request.Header.Get(siteHeader) != method || times == 0 {
			return faultproxy.None
		}
		times--
		return fault
	})
}

// requests counts what was asked at a site since the proxy was last told what
// to spoil.
func (w wire) requests(method string) int {
	count := 0
	for _, passed := range w.Seen() {
		if passed.Header.Get(siteHeader) == method {
			count++
		}
	}
	return count
}

// dump is the whole table, one item a line, sorted.
func (w wire) dump(t *testing.T) []string {
	t.Helper()
	var lines []string
	for _, item := range w.Items(t) {
		line, err := table.FormatItem(item)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, string(line))
	}
	slices.Sort(lines)
	return lines
}

func same(t *testing.T, when string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n got %s\nwant %s", when, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

// siteHeader tells the proxy which method of the Store makes a request.
const siteHeader = "X-Test-Site"

// sited is a client that sets it.
type sited struct{ *dynamodb.Client }

func (c sited) GetItem(ctx context.Context, input *dynamodb.GetItemInput, options ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	return c.Client.GetItem(ctx, input, append(options, atSite())...)
}

func (c sited) UpdateItem(ctx context.Context, input *dynamodb.UpdateItemInput, options ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	return c.Client.UpdateItem(ctx, input, append(options, atSite())...)
}

func (c sited) BatchGetItem(ctx context.Context, input *dynamodb.BatchGetItemInput, options ...func(*dynamodb.Options)) (*dynamodb.BatchGetItemOutput, error) {
	return c.Client.BatchGetItem(ctx, input, append(options, atSite())...)
}

func (c sited) TransactWriteItems(ctx context.Context, input *dynamodb.TransactWriteItemsInput, options ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error) {
	return c.Client.TransactWriteItems(ctx, input, append(options, atSite())...)
}

func atSite() func(*dynamodb.Options) {
	return dynamodb.WithAPIOptions(smithyhttp.SetHeaderValue(siteHeader, callingSite()))
}

// plumbing are the methods that make requests for others.
var plumbing = []string{"Do", "Transact", "Load", "Query", "put", "update", "delete", "get", "load"}

// ofTable matches the methods of table.Table and of the Store.
var ofTable = regexp.MustCompile(`/table(/dynamo)?\.\(\*(Table|Store)\)\.(\w+)`)

// callingSite is the method of the table that is being carried out, but for the
// plumbing.
func callingSite() string {
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		frame, more := frames.Next()
		if found := ofTable.FindStringSubmatch(frame.Function); found != nil && !slices.Contains(plumbing, found[3]) {
			return found[3]
		}
		if !more {
			return ""
		}
	}
}

// TestSitesAreAll reads the sources: sites are all the methods that make a request,
// and each makes it in one place.
func TestSitesAreAll(t *testing.T) {
	found := map[string]int{}
	for _, declaration := range declarations(t) {
		if slices.Contains(plumbing, declaration.Name.Name) {
			continue
		}
		ast.Inspect(declaration, func(node ast.Node) bool {
			if call, ok := node.(*ast.CallExpr); ok && requests(call) {
				found[declaration.Name.Name]++
			}
			return true
		})
	}
	want := map[string]int{}
	for _, s := range slices.Concat(sites, clientSites, charges) {
		want[s.method] = 1
	}
	if !maps.Equal(found, want) {
		t.Errorf("the sources make requests in %v, the tests know %v", found, want)
	}
}

// declarations are the functions of the table and of the store.
func declarations(t *testing.T) []*ast.FuncDecl {
	t.Helper()
	var all []*ast.FuncDecl
	for _, file := range []string{"../table.go", "store.go"} {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			if declaration, ok := d.(*ast.FuncDecl); ok {
				all = append(all, declaration)
			}
		}
	}
	return all
}

// requests reports whether a call is one of a DB's methods, or of load.
func requests(call *ast.CallExpr) bool {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	of, ok := method.X.(*ast.Ident)
	return ok && (of.Name == "s" || of.Name == "t") && slices.Contains([]string{"Do", "Transact", "Load", "Query", "load"}, method.Sel.Name)
}
