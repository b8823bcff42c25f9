package memory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/shardquota/shardquota/table"
)

// Units is what requests would consume on DynamoDB. What it charges for a
// condition that fails, and does not report, is told apart.
type Units struct {
	Requests map[string]int     // by operation of DynamoDB, the refused ones included
	Refused  int                // requests whose condition did not hold
	Trips    int                // requests one after another: those made at once count once
	Read     float64            // read units; half ones exist
	Write    float64            // write units of the table, of requests that were not refused
	Charged  float64            // write units of the table that are charged for the refused ones
	Indexes  map[string]float64 // write units by index, GSI2 with every attribute
}

// Sum is how many requests there were.
func (u Units) Sum() int {
	sum := 0
	for _, n := range u.Requests {
		sum += n
	}
	return sum
}

// String lists the requests and then the units, by name.
func (u Units) String() string {
	var requests, units []string
	for _, operation := range slices.Sorted(maps.Keys(u.Requests)) {
		requests = append(requests, fmt.Sprintf("%d %s", u.Requests[operation], operation))
	}
	if u.Refused > 0 {
		requests = append(requests, fmt.Sprintf("%d refused", u.Refused))
	}
	for _, index := range slices.Sorted(maps.Keys(u.Indexes)) {
		units = append(units, fmt.Sprintf("%s %g", index, u.Indexes[index]))
	}
	if u.Read > 0 {
		units = append(units, fmt.Sprintf("read %g", u.Read))
	}
	if u.Write > 0 {
		units = append(units, fmt.Sprintf("table %g", u.Write))
	}
	if len(units) == 0 {
		units = []string{"nothing"}
	}
	return strings.Join(requests, ", ") + ": " + strings.Join(units, ", ")
}

// Metered is a table with an account of what requests to it would consume. It
// takes the store's Watch, and has one of its own. Its requests are safe for
// concurrent use, and wait for each other; who writes to the store past it must
// not do so at the same time.
type Metered struct {
	table.Table
	store *Store

	mu      sync.Mutex
	units   Units
	written []change // by the request that is under way
	told    func(old, new table.Item)
}

// change is one write of an item.
type change struct{ old, new table.Item }

var (
	_ table.Client = (*Metered)(nil)
	_ table.DB     = (*Metered)(nil)
)

// Metered returns the table, metered.
func (s *Store) Metered() *Metered {
	m := &Metered{Table: s.Table, store: s}
	m.DB = m
	m.Reset()
	s.Watch(func(old, new table.Item) {
		m.written = append(m.written, change{old, new})
		if m.told != nil {
			m.told(old, new)
		}
	})
	return m
}

// Watch is Store.Watch. It is called before the table is used.
func (m *Metered) Watch(told func(old, new table.Item)) { m.told = told }

// Units returns what was consumed since the last Reset.
func (m *Metered) Units() Units {
	m.mu.Lock()
	defer m.mu.Unlock()
	units := m.units
	units.Requests, units.Indexes = maps.Clone(units.Requests), maps.Clone(units.Indexes)
	return units
}

// Reset begins a new account.
func (m *Metered) Reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.units = Units{Requests: map[string]int{}, Indexes: map[string]float64{}}
}

// Bytes that one unit serves.
const (
	writeUnit = 1024
	readUnit  = 4096
)

// units is a size in units, one at least.
func units(size, unit int) float64 { return float64(max(1, (size+unit-1)/unit)) }

// request counts one request.
func (m *Metered) request(operation string) {
	m.units.Requests[operation]++
	m.units.Trips++
}

// sizeAt is the size of a stored item, 0 of none.
func (m *Metered) sizeAt(key table.ItemKey) int { return m.store.Get(key.PK, key.SK).Size() }

// Do implements table.DB.
func (m *Metered) Do(ctx context.Context, w *table.Write) (table.WriteResult, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.written = m.written[:0]
	result, err := m.store.Do(ctx, w)
	if err != nil {
		return result, err
	}
	m.request(name(w))
	if !result.Applied {
		m.refused(1, w)
	}
	m.wrote(1)
	return result, nil
}

// name is what DynamoDB calls the request of a write.
func name(w *table.Write) string {
	switch {
	case w.Put != nil:
		return "PutItem"
	case w.Delete:
		return "DeleteItem"
	}
	return "UpdateItem"
}

// Transact implements table.DB. Each item of a transaction costs twice, one that
// is only checked too.
func (m *Metered) Transact(ctx context.Context, t *table.Transaction) (table.TransactResult, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.written = m.written[:0]
	result, err := m.store.Transact(ctx, t)
	if err != nil {
		return result, err
	}
	m.request("TransactWriteItems")
	if len(result.Refused) > 0 {
		m.refused(2, t.Writes...)
		return result, nil
	}
	m.wrote(2)
	for _, w := range t.Writes {
		if !w.Changes() {
			m.units.Write += 2 * units(m.sizeAt(w.Key), writeUnit)
		}
	}
	return result, nil
}

// refused charges for a request that was refused, of which each write's units
// count so often.
func (m *Metered) refused(times float64, writes ...*table.Write) {
	m.units.Refused++
	for _, w := range writes {
		m.units.Charged += times * units(max(w.Put.Size(), m.sizeAt(w.Key)), writeUnit)
	}
}

// wrote charges for what the request has written, of which the table's units
// count so often.
func (m *Metered) wrote(times float64) {
	for _, c := range m.written {
		size := max(c.old.Size(), c.new.Size())
		m.units.Write += times * units(size, writeUnit)
		for _, index := range []string{"GSI1", "GSI2", "GSI3", "GSI4"} {
			if n := indexed(c, index, size); n > 0 {
				m.units.Indexes[index] += n
			}
		}
	}
}

// projectsAll reports whether an index holds every attribute, and not keys alone.
func projectsAll(index string) bool { return index <= "GSI2" }

// indexed is what a write costs an index. No write of a bucket changes a key,
// which is all that most indexes hold.
func indexed(c change, index string, size int) float64 {
	pk, _ := table.IndexKeys(index)
	switch {
	case c.old[pk] == nil && c.new[pk] == nil:
		return 0
	case projectsAll(index):
		return units(size, writeUnit)
	case c.old[pk] == nil || c.new[pk] == nil:
		return 1
	}
	return 0
}

// Load implements table.DB.
func (m *Metered) Load(ctx context.Context, lookup *table.Lookup) (table.LoadResult, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	result, err := m.store.Load(ctx, lookup)
	if err != nil {
		return result, err
	}
	if lookup.Batch {
		m.request("BatchGetItem")
	} else {
		m.request("GetItem")
	}
	for _, item := range result.Items {
		m.units.Read += units(item.Size(), readUnit)
	}
	return result, nil
}

// RaiseAndRead implements table.Store. Its updates are made at once, and are one
// trip.
func (m *Metered) RaiseAndRead(ctx context.Context, group table.Group, count int, now int64) ([]table.Sibling, error) {
	before := m.Units().Trips
	siblings, err := m.Table.RaiseAndRead(ctx, group, count, now)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.units.Trips = min(m.units.Trips, before+2)
	return siblings, err
}

// Query implements table.DB. A query of an index is not consistent, and so costs
// half.
func (m *Metered) Query(ctx context.Context, q *table.Query) (table.QueryResult, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	result, err := m.store.Query(ctx, q)
	if err != nil {
		return result, err
	}
	m.request("Query")
	size := 0
	for _, key := range result.Keys {
		size += entrySize(m.store.Get(key.PK, key.SK), q.Index)
	}
	m.units.Read += units(size, readUnit) / 2
	return result, nil
}

// entrySize is the size of an item in an index.
func entrySize(item table.Item, index string) int {
	if projectsAll(index) {
		return item.Size()
	}
	size := 0
	pk, sk := table.IndexKeys(index)
	for _, name := range []string{table.AttrPK, table.AttrSK, pk, sk} {
		size += len(name) + len(item.Text(name))
	}
	return size
}
