package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/shardquota/shardquota/internal/dynoxide"
	. "github.com/shardquota/shardquota/limiter"
	. "github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/dynamo"
	"github.com/shardquota/shardquota/table/memory"
)

const (
	acme  = "sk-live-acme"
	model = "gpt-4"
)

// world is a table, a clock, and what is asked of the table.
type world struct {
	*testing.T
	now time.Time
	*asked
}

// asked is a table that notes what is asked of it.
type asked struct {
	table.Client
	mu   sync.Mutex
	log  []string
	fail func(request string) error // before the request is made; nil for never
	lose func(request string) error // after it was made; nil for never
}

func (a *asked) note(format string, args ...any) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	request := fmt.Sprintf(format, args...)
	a.log = append(a.log, request)
	if a.fail != nil {
		return a.fail(request)
	}
	return nil
}

func (a *asked) lost(format string, args ...any) error {
	if a.lose != nil {
		return a.lose(fmt.Sprintf(format, args...))
	}
	return nil
}

func (a *asked) Charge(ctx context.Context, key table.Key, take table.FastCharge) (table.WriteResult, error) {
	if err := a.note("take %s %d", key.Entity, key.Shard); err != nil {
		return table.WriteResult{}, err
	}
	taken, err := a.Client.Charge(ctx, key, take)
	if lost := a.lost("take %s %d", key.Entity, key.Shard); lost != nil {
		return table.WriteResult{}, lost
	}
	return taken, err
}

func (a *asked) Outlive(ctx context.Context, group table.Group, extensions []quota.Extension) error {
	for _, e := range extensions {
		if err := a.note("outlive %d", e.Shard); err != nil {
			return err
		}
	}
	return a.Client.Outlive(ctx, group, extensions)
}

func (a *asked) Use(ctx context.Context, b *table.Bucket, use *quota.Use) (table.WriteResult, error) {
	if err := a.note("use %s %d", b.Key.Entity, b.Shard); err != nil {
		return table.WriteResult{}, err
	}
	return a.Client.Use(ctx, b, use)
}

func (a *asked) UseAll(ctx context.Context, uses []table.PlannedUse) (bool, error) {
	text := "use all"
	for _, use := range uses {
		text += fmt.Sprintf(" %d", use.Bucket.Shard)
	}
	if err := a.note("%s", text); err != nil {
		return false, err
	}
	return a.Client.UseAll(ctx, uses)
}

func (a *asked) Reconcile(ctx context.Context, b *table.Bucket, corrections []quota.Adjustment) (table.WriteResult, error) {
	if err := a.note("settle %s %d", b.Key.Entity, b.Shard); err != nil {
		return table.WriteResult{}, err
	}
	return a.Client.Reconcile(ctx, b, corrections)
}

func (a *asked) PropagateWindow(ctx context.Context, key table.Key, window table.OpenedWindow) (bool, error) {
	if err := a.note("tell %s %d", key.Entity, key.Shard); err != nil {
		return false, err
	}
	return a.Client.PropagateWindow(ctx, key, window)
}

func (a *asked) Read(ctx context.Context, key table.Key) (*table.Bucket, error) {
	if err := a.note("read %s %d", key.Entity, key.Shard); err != nil {
		return nil, err
	}
	return a.Client.Read(ctx, key)
}

func (a *asked) RaiseAndRead(ctx context.Context, group table.Group, count int, now int64) ([]table.Sibling, error) {
	if err := a.note("raise %s to %d", group.Entity, count); err != nil {
		return nil, err
	}
	return a.Client.RaiseAndRead(ctx, group, count, now)
}

func (a *asked) Double(ctx context.Context, group table.Group, from int) (table.DoubleResult, error) {
	if err := a.note("double %s from %d", group.Entity, from); err != nil {
		return table.DoubleResult{}, err
	}
	return a.Client.Double(ctx, group, from)
}

func (a *asked) Create(ctx context.Context, c table.Creation) (table.CreationOutcome, error) {
	if err := a.note("create %s %d", c.Bucket.Key.Entity, c.Bucket.Shard); err != nil {
		return 0, err
	}
	return a.Client.Create(ctx, c)
}

func (a *asked) Insert(ctx context.Context, item table.Item) (bool, error) {
	if err := a.note("insert"); err != nil {
		return false, err
	}
	return a.Client.Insert(ctx, item)
}

func (a *asked) Amend(ctx context.Context, pk, sk string, amendment table.Amendment) (table.WriteResult, error) {
	if err := a.note("amend"); err != nil {
		return table.WriteResult{}, err
	}
	return a.Client.Amend(ctx, pk, sk, amendment)
}

func (a *asked) Items(ctx context.Context, keys []table.ItemKey) ([]table.Item, error) {
	if err := a.note("items %d", len(keys)); err != nil {
		return nil, err
	}
	return a.Client.Items(ctx, keys)
}

// since returns what was asked since the last call, and forgets it.
func (a *asked) since() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	log := a.log
	a.log = nil
	return log
}

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// newWorld is an empty table in memory at noon.
func newWorld(t *testing.T) *world { return worldOf(t, memory.New().Client()) }

func worldOf(t *testing.T, client table.Client) *world {
	return &world{T: t, now: noon, asked: &asked{Client: client}}
}

// everywhere runs a test over a table in memory and one on DynamoDB.
func everywhere(t *testing.T, test func(w *world)) {
	t.Run("memory", func(t *testing.T) { test(newWorld(t)) })
	t.Run("dynamo", func(t *testing.T) {
		client := dynoxide.Client(t, func(o *dynamodb.Options) { o.RetryMaxAttempts = 10 })
		test(worldOf(t, dynamo.New(client, dynoxide.NewTable(t, client))))
	})
}

// program is a program that takes tokens, and operates what it takes them by.
type program struct {
	*Limiter
	*Store
}

// newProgram opens a Store, by those of the options that are its own, and makes a
// Limiter over it by the others.
func newProgram(ctx context.Context, t table.Client, options ...any) (*program, error) {
	var open []StoreOption
	var take []Option
	for _, option := range options {
		switch option := option.(type) {
		case StoreOption:
			open = append(open, option)
		case Option:
			take = append(take, option)
		}
	}
	store, err := Open(ctx, t, open...)
	if err != nil {
		return nil, err
	}
	return &program{New(store, take...), store}, nil
}

// limiter is one of the world's programs.
func (w *world) limiter(options ...any) *program {
	w.Helper()
	options = append([]any{NamespaceID("ns1"), Clock(func() time.Time { return w.now })}, options...)
	l, err := newProgram(w.Context(), w.asked, options...)
	if err != nil {
		w.Fatal(err)
	}
	w.since()
	return l
}

// admit acquires what must be given.
func (w *world) admit(l *program, entity string, amounts Amounts) *Lease {
	w.Helper()
	lease, err := l.Acquire(w.Context(), entity, model, amounts)
	if err != nil {
		w.Fatal(err)
	}
	return lease
}

// reject acquires what must be rejected.
func (w *world) reject(l *program, entity string, amounts Amounts) *Rejection {
	w.Helper()
	_, err := l.Acquire(w.Context(), entity, model, amounts)
	var rejection *Rejection
	if !errors.As(err, &rejection) {
		w.Fatalf("got %v, not a rejection", err)
	}
	return rejection
}

func group(entity string) table.Group {
	return table.Group{Namespace: "ns1", Entity: entity, Resource: model}
}

// bucket is a shard's bucket, which must be there.
func (w *world) bucket(entity string, shard int) *table.Bucket {
	w.Helper()
	b, err := w.Client.Read(w.Context(), group(entity).At(shard))
	if err != nil || b == nil {
		w.Fatalf("shard %d: %v", shard, err)
	}
	return b
}

// holds compares a limit's balance and consumption on a shard, in tokens.
func (w *world) holds(entity string, shard int, limit string, balance, consumed string) {
	w.Helper()
	l := w.bucket(entity, shard).Limit(limit)
	eq(w, fmt.Sprintf("balance of %s on shard %d", limit, shard), table.Tokens(l.Balance), balance)
	eq(w, fmt.Sprintf("consumed of %s on shard %d", limit, shard), table.Tokens(l.Consumed), consumed)
}

// remove takes a shard's bucket away, if it is there.
func (w *world) remove(entity string, shard int) {
	w.Helper()
	_, err := w.Client.Remove(w.Context(), group(entity).At(shard).PK(), table.StateSK)
	w.noError(err)
}

// double doubles a group's shards, as others do.
func (w *world) double(entity string) {
	w.Helper()
	count := w.bucket(entity, 0).ShardCount
	if _, err := w.Client.Double(w.Context(), group(entity), count); err != nil {
		w.Fatal(err)
	}
}

func (w *world) asks(want ...string) {
	w.Helper()
	if got := w.since(); !slices.Equal(got, want) {
		w.Errorf("asked\n%q, want\n%q", got, want)
	}
}

func (w *world) noError(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}
