package memory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/quota"
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

// Metered is the table as its clients have it, with an account of what their
// requests would consume. It takes the store's Watch, and has one of its own.
// Its operations are safe for concurrent use, and wait for each other; who
// writes to the store past it must not do so at the same time.
type Metered struct {
	*Client

	mu      sync.Mutex
	units   Units
	written []change // by the operation that is under way
	told    func(old, new table.Item)
}

// change is one write of an item.
type change struct{ old, new table.Item }

var _ table.Client = (*Metered)(nil)

// Metered returns the table as its clients have it, metered.
func (s *Store) Metered() *Metered {
	m := &Metered{Client: s.Client()}
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

// Sizes of values and units, in bytes.
const (
	writeUnit = 1024
	readUnit  = 4096
)

// Size is what DynamoDB counts an item's size as, in bytes: the names of its
// attributes and their values.
func Size(item table.Item) int {
	size := 0
	for name, value := range item {
		size += len(name) + valueSize(value)
	}
	return size
}

func valueSize(value types.AttributeValue) int {
	switch v := value.(type) {
	case *types.AttributeValueMemberS:
		return len(v.Value)
	case *types.AttributeValueMemberN:
		return numberSize(v.Value)
	case *types.AttributeValueMemberB:
		return len(v.Value)
	case *types.AttributeValueMemberSS:
		return len(strings.Join(v.Value, ""))
	case *types.AttributeValueMemberNS:
		size := 0
		for _, n := range v.Value {
			size += numberSize(n)
		}
		return size
	case *types.AttributeValueMemberL:
		size := 3
		for _, element := range v.Value {
			size += 1 + valueSize(element)
		}
		return size
	case *types.AttributeValueMemberM:
		return 3 + len(v.Value) + Size(v.Value)
	default:
		return 1 // a boolean or a null
	}
}

// numberSize is a byte for each two significant digits and one besides, and one
// for a sign.
func numberSize(decimal string) int {
	mantissa, _, _ := strings.Cut(strings.ToLower(decimal), "e")
	digits := strings.TrimPrefix(mantissa, "-")
	size := 1
	if digits != mantissa {
		size++
	}
	if whole, fraction, found := strings.Cut(digits, "."); found {
		digits = whole + fraction
	} else {
		digits = strings.TrimRight(digits, "0")
	}
	return size + (len(strings.TrimLeft(digits, "0"))+1)/2
}

// units is a size in units, one at least.
func units(size, unit int) float64 { return float64(max(1, (size+unit-1)/unit)) }

// sizeAt is the size of a stored item, 0 of none.
func (m *Metered) sizeAt(at itemKey) int {
	m.Store.mu.Lock()
	defer m.Store.mu.Unlock()
	return Size(m.items[at])
}

// account makes a request, or some that go together, and charges for it.
func (m *Metered) account(do func() error, charge func()) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.written = m.written[:0]
	err := do()
	if err == nil {
		charge()
	}
	return err
}

// update makes one conditional write of one item, at most size bytes large
// where there is none yet, and charges for it.
func (m *Metered) update(operation string, at itemKey, size int, do func() error) error {
	return m.account(do, func() {
		m.request(operation, 1)
		if len(m.written) == 0 {
			m.units.Refused++
			m.units.Charged += units(max(size, m.sizeAt(at)), writeUnit)
			return
		}
		for _, c := range m.written {
			m.wrote(c, 1)
		}
	})
}

// request counts requests that are made at once.
func (m *Metered) request(operation string, n int) {
	m.units.Requests[operation] += n
	m.units.Trips++
}

// wrote charges for a write, of which the table's units count so often.
func (m *Metered) wrote(c change, times float64) {
	size := max(Size(c.old), Size(c.new))
	m.units.Write += times * units(size, writeUnit)
	for _, index := range []string{"GSI1", "GSI2", "GSI3", "GSI4"} {
		if n := indexed(c, index, size); n > 0 {
			m.units.Indexes[index] += n
		}
	}
}

// indexed is what a write costs an index. GSI1 and GSI2 have every attribute,
// the others keys alone, which no write of a bucket changes.
func indexed(c change, index string, size int) float64 {
	pk := index + "PK"
	switch all := index <= "GSI2"; {
	case c.old[pk] == nil && c.new[pk] == nil:
		return 0
	case all:
		return units(size, writeUnit)
	case c.old[pk] == nil || c.new[pk] == nil:
		return 1
	}
	return 0
}

// Charge implements table.Client.
func (m *Metered) Charge(ctx context.Context, key table.Key, take table.FastCharge) (taken table.WriteResult, err error) {
	err = m.update("UpdateItem", bucketKey(key), 0, func() error { taken, err = m.Client.Charge(ctx, key, take); return err })
	return taken, err
}

// Use implements table.Client.
func (m *Metered) Use(ctx context.Context, bucket *table.Bucket, use *quota.Use, expires int64) (taken table.WriteResult, err error) {
	err = m.update("UpdateItem", bucketKey(bucket.Key), 0, func() error { taken, err = m.Client.Use(ctx, bucket, use, expires); return err })
	return taken, err
}

// UseAll implements table.Client. Each item of its transaction costs twice.
func (m *Metered) UseAll(ctx context.Context, uses []table.PlannedUse) (applied bool, err error) {
	err = m.account(func() error { applied, err = m.Client.UseAll(ctx, uses); return err }, func() {
		m.request("TransactWriteItems", 1)
		for _, c := range m.written {
			m.wrote(c, 2)
		}
		if applied {
			return
		}
		m.units.Refused++
		for _, use := range uses {
			m.units.Charged += 2 * units(m.sizeAt(bucketKey(use.Bucket.Key)), writeUnit)
		}
	})
	return applied, err
}

// Reconcile implements table.Client.
func (m *Metered) Reconcile(ctx context.Context, bucket *table.Bucket, corrections []quota.Adjustment) (taken table.WriteResult, err error) {
	err = m.update("UpdateItem", bucketKey(bucket.Key), 0, func() error { taken, err = m.Client.Reconcile(ctx, bucket, corrections); return err })
	return taken, err
}

// PropagateWindow implements table.Client.
func (m *Metered) PropagateWindow(ctx context.Context, key table.Key, window table.OpenedWindow) (told bool, err error) {
	err = m.update("UpdateItem", bucketKey(key), 0, func() error { told, err = m.Client.PropagateWindow(ctx, key, window); return err })
	return told, err
}

// Insert implements table.Client.
func (m *Metered) Insert(ctx context.Context, item table.Item) (inserted bool, err error) {
	err = m.update("PutItem", keyOf(item), Size(item), func() error { inserted, err = m.Client.Insert(ctx, item); return err })
	return inserted, err
}

// Amend implements table.Client.
func (m *Metered) Amend(ctx context.Context, pk, sk string, amendment table.Amendment) (taken table.WriteResult, err error) {
	err = m.update("UpdateItem", itemKey{pk, sk}, 0, func() error { taken, err = m.Client.Amend(ctx, pk, sk, amendment); return err })
	return taken, err
}

// Replace implements table.Client.
func (m *Metered) Replace(ctx context.Context, item table.Item) error {
	return m.update("PutItem", keyOf(item), Size(item), func() error { return m.Client.Replace(ctx, item) })
}

// Remove implements table.Client. DynamoDB charges for what is not there, too.
func (m *Metered) Remove(ctx context.Context, pk, sk string, expect ...table.NamedValue) (removed bool, err error) {
	err = m.update("DeleteItem", itemKey{pk, sk}, 0, func() error { removed, err = m.Client.Remove(ctx, pk, sk, expect...); return err })
	return removed, err
}

// AddUsage implements table.Store.
func (m *Metered) AddUsage(ctx context.Context, usage table.Usage) (result table.UsageResult, err error) {
	at := itemKey{usage.Key.PK(), usage.Key.SK()}
	err = m.update("UpdateItem", at, 0, func() error { result, err = m.Client.AddUsage(ctx, usage); return err })
	return result, err
}

// Pass implements table.Store.
func (m *Metered) Pass(ctx context.Context, bucket *table.Bucket, pass *quota.Pass) (result table.PassResult, err error) {
	err = m.update("UpdateItem", bucketKey(bucket.Key), 0, func() error { result, err = m.Client.Pass(ctx, bucket, pass); return err })
	return result, err
}

// Double implements table.Store.
func (m *Metered) Double(ctx context.Context, group table.Group, from int) (result table.DoubleResult, err error) {
	err = m.update("UpdateItem", bucketKey(group.At(0)), 0, func() error { result, err = m.Client.Double(ctx, group, from); return err })
	return result, err
}

// Freeze implements table.Store.
func (m *Metered) Freeze(ctx context.Context, key table.Key, freezes []quota.Freeze) error {
	return m.update("UpdateItem", bucketKey(key), 0, func() error { return m.Client.Freeze(ctx, key, freezes) })
}

// Create implements table.Store. Each item of its transaction costs twice, the
// one whose count is only checked too.
func (m *Metered) Create(ctx context.Context, creation table.Creation) (outcome table.CreationOutcome, err error) {
	group, donors := creation.Bucket.Key.Group, creation.Donors()
	err = m.account(func() error { outcome, err = m.Client.Create(ctx, creation); return err }, func() {
		checked := 0.0
		if !slices.ContainsFunc(donors, func(d table.Donor) bool { return d.Shard == 0 }) {
			checked = 2 * units(m.sizeAt(bucketKey(group.At(0))), writeUnit)
		}
		m.request("TransactWriteItems", 1)
		if len(m.written) > 0 {
			m.units.Write += checked
			for _, c := range m.written {
				m.wrote(c, 2)
			}
			return
		}
		m.units.Refused++
		m.units.Charged += checked + 2*units(max(Size(creation.Complete()), m.sizeAt(bucketKey(creation.Bucket.Key))), writeUnit)
		for _, donor := range donors {
			m.units.Charged += 2 * units(m.sizeAt(bucketKey(group.At(donor.Shard))), writeUnit)
		}
	})
	return outcome, err
}

// read charges for consistent reads of items of sizes, 0 of none, by one
// request.
func (m *Metered) read(operation string, sizes ...int) {
	m.request(operation, 1)
	for _, size := range sizes {
		m.units.Read += units(size, readUnit)
	}
}

// Read implements table.Store.
func (m *Metered) Read(ctx context.Context, key table.Key) (b *table.Bucket, err error) {
	err = m.account(func() error { b, err = m.Client.Read(ctx, key); return err },
		func() { m.read("GetItem", m.sizeAt(bucketKey(key))) })
	return b, err
}

// RaiseAndRead implements table.Store: a batch read, and then a write at once of
// each shard that was found below the count.
func (m *Metered) RaiseAndRead(ctx context.Context, group table.Group, count int, now int64) (siblings []table.Sibling, err error) {
	err = m.account(func() error { siblings, err = m.Client.RaiseAndRead(ctx, group, count, now); return err }, func() {
		sizes := make([]int, count)
		for shard := range sizes {
			sizes[shard] = m.sizeAt(bucketKey(group.At(shard)))
		}
		m.read("BatchGetItem", sizes...)
		if len(m.written) > 0 {
			m.request("UpdateItem", len(m.written))
		}
		for _, c := range m.written {
			m.wrote(c, 1)
		}
	})
	return siblings, err
}

// maxBatch is how many keys one batch read takes.
const maxBatch = 100

// Items implements table.Client. A key that is there twice is read once.
func (m *Metered) Items(ctx context.Context, keys []table.ItemKey) (items []table.Item, err error) {
	err = m.account(func() error { items, err = m.Client.Items(ctx, keys); return err }, func() {
		seen, sizes := map[table.ItemKey]bool{}, []int{}
		for i, key := range keys {
			if !seen[key] {
				seen[key], sizes = true, append(sizes, Size(items[i]))
			}
		}
		for batch := range slices.Chunk(sizes, maxBatch) {
			m.read("BatchGetItem", batch...)
		}
	})
	return items, err
}

// Find implements table.Client: a query of an index, which is not consistent
// and so costs half.
func (m *Metered) Find(ctx context.Context, scope table.Scope) (keys []table.Key, err error) {
	err = m.account(func() error { keys, err = m.Client.Find(ctx, scope); return err }, func() {
		size := 0
		for _, key := range keys {
			size += m.entrySize(scope, key)
		}
		m.request("Query", 1)
		m.units.Read += units(size, readUnit) / 2
	})
	return keys, err
}

// FindLevels implements table.Client: a query like that of Find, of GSI3.
func (m *Metered) FindLevels(ctx context.Context, namespace, resource string) (keys []table.ItemKey, err error) {
	err = m.account(func() error { keys, err = m.Client.FindLevels(ctx, namespace, resource); return err }, func() {
		size := 0
		for _, key := range keys {
			item := m.Get(key.PK, key.SK)
			for _, name := range []string{table.AttrPK, table.AttrSK, table.AttrGSI3PK, table.AttrGSI3SK} {
				size += len(name) + len(item.Text(name))
			}
		}
		m.request("Query", 1)
		m.units.Read += units(size, readUnit) / 2
	})
	return keys, err
}

// entrySize is the size of a bucket in the index that a scope is looked for in:
// all of it in that by resource, else keys.
func (m *Metered) entrySize(scope table.Scope, key table.Key) int {
	if scope.Entity == "" && scope.Resource != "" {
		return m.sizeAt(bucketKey(key))
	}
	index, size := "GSI4", 0
	if scope.Entity != "" {
		index = "GSI3"
	}
	for name, value := range key.Keys() {
		if name == table.AttrPK || name == table.AttrSK || strings.HasPrefix(name, index) {
			size += len(name) + len(value)
		}
	}
	return size
}
