// Package faultdb is a table.DB that fails as DynamoDB does, reproducibly from a seed.
//
// Whether a request fails follows from the seed, the request's operation and key,
// and how often that was asked before: not from what others ask at the same time.
package faultdb

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"github.com/shardquota/shardquota/table"
)

// Rates are how often requests fail, from 0 for never to 1 for always.
type Rates struct {
	Throttle float64 // of any request: it is refused for now
	Conflict float64 // of a write: another transaction holds an item
	Lost     float64 // of a write: it is carried out, and the answer is lost
	Unread   float64 // of each key of a lookup: it is left unread
	Lag      int     // how many writes an index is behind
}

// DB is a table.DB that fails. It is safe for concurrent use.
type DB struct {
	db   table.DB
	seed uint64

	mu    sync.Mutex
	rates Rates
	asked map[string]uint64
	last  []write // the last Lag writes, the oldest first
}

// write is an item before it was written, nil where there was none.
type write struct {
	key    table.ItemKey
	before table.Item
}

// New returns a DB over another one that fails at given rates.
func New(db table.DB, seed uint64, rates Rates) *DB {
	return &DB{db: db, seed: seed, rates: rates, asked: map[string]uint64{}}
}

// Set changes the rates. The indexes catch up.
func (d *DB) Set(rates Rates) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rates, d.last = rates, nil
}

// plan is what becomes of one request.
type plan struct {
	Rates
	*rand.Rand
}

func (d *DB) plan(operation string, key table.ItemKey) plan {
	d.mu.Lock()
	defer d.mu.Unlock()
	text := fmt.Sprint(operation, "\n", key)
	d.asked[text]++
	hash := fnv.New64a()
	fmt.Fprint(hash, text, "\n", d.asked[text])
	return plan{d.rates, rand.New(rand.NewPCG(d.seed, hash.Sum64()))}
}

func (p plan) happens(rate float64) bool { return p.Float64() < rate }

// errMet is the service's TransactionConflictException, of a single write.
var errMet = fmt.Errorf("%w (a single write)", table.ErrConflict)

// refusal is why a request is not carried out, nil where it is. conflict is nil for
// one that writes nothing.
func (p plan) refusal(operation string, conflict error) error {
	throttled, met := p.happens(p.Throttle), p.happens(p.Conflict)
	switch {
	case throttled:
		return fmt.Errorf("%s: %w: rate exceeded", operation, table.ErrThrottled)
	case met && conflict != nil:
		return fmt.Errorf("%s: %w", operation, conflict)
	}
	return nil
}

// Do implements table.DB.
func (d *DB) Do(ctx context.Context, w *table.Write) (result table.WriteResult, err error) {
	err = d.send(ctx, w.Operation, errMet, []*table.Write{w}, func() (bool, error) {
		result, err = d.db.Do(ctx, w)
		return result.Applied, err
	})
	if err != nil {
		return table.WriteResult{}, err
	}
	return result, nil
}

// Transact implements table.DB.
func (d *DB) Transact(ctx context.Context, t *table.Transaction) (result table.TransactResult, err error) {
	err = d.send(ctx, t.Operation, table.ErrConflict, t.Writes, func() (bool, error) {
		result, err = d.db.Transact(ctx, t)
		return len(result.Refused) == 0, err
	})
	if err != nil {
		return table.TransactResult{}, err
	}
	return result, nil
}

// send carries writes out, unless they are to fail before, and may lose the answer.
// Where an index is to lag, it notes the items as they were, one write after the
// other.
func (d *DB) send(ctx context.Context, operation string, conflict error, writes []*table.Write, carryOut func() (applied bool, err error)) error {
	p := d.plan(operation, writes[0].Key)
	if err := p.refusal(operation, conflict); err != nil {
		return err
	}
	var before []write
	if p.Lag > 0 {
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, w := range writes {
			found, err := d.db.Load(ctx, &table.Lookup{Operation: operation, Keys: []table.ItemKey{w.Key}})
			if err != nil {
				return err
			}
			before = append(before, write{w.Key, found.Items[0]})
		}
	}
	applied, err := carryOut()
	if p.Lag > 0 && applied && err == nil {
		d.last = append(d.last, before...)
		d.last = d.last[max(0, len(d.last)-p.Lag):]
	}
	if err == nil && p.happens(p.Lost) {
		err = fmt.Errorf("%s: %w: the answer is lost", operation, table.ErrRetry)
	}
	return err
}

// Load implements table.DB.
func (d *DB) Load(ctx context.Context, lookup *table.Lookup) (table.LoadResult, error) {
	p := d.plan(lookup.Operation, lookup.Keys[0])
	if err := p.refusal(lookup.Operation, nil); err != nil {
		return table.LoadResult{}, err
	}
	result, err := d.db.Load(ctx, lookup)
	for i, key := range lookup.Keys {
		if err == nil && p.happens(p.Unread) && len(lookup.Keys) > 1 {
			result.Items[i], result.Unread = nil, append(result.Unread, key)
		}
	}
	return result, err
}

// Query implements table.DB. It answers as of Lag writes ago, in no order.
func (d *DB) Query(ctx context.Context, q *table.Query) (table.QueryResult, error) {
	p := d.plan(q.Operation, table.ItemKey{PK: q.PK, SK: q.Prefix})
	if err := p.refusal(q.Operation, nil); err != nil {
		return table.QueryResult{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	result, err := d.db.Query(ctx, q)
	pk, sk := table.IndexKeys(q.Index)
	for _, w := range slices.Backward(d.last) {
		result.Keys = slices.DeleteFunc(result.Keys, func(key table.ItemKey) bool { return key == w.key })
		if sort := w.before.Text(sk); sort != "" && w.before.Text(pk) == q.PK && strings.HasPrefix(sort, q.Prefix) {
			result.Keys = append(result.Keys, w.key)
		}
	}
	return result, err
}
