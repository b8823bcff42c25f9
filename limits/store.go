package limits

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/shardquota/shardquota/table"
)

// DefaultNamespace is the namespace that the layout's programs use by default.
const DefaultNamespace = "default"

// ErrContended says that other programs changed an item at each of many attempts.
// Nothing was changed or taken.
var ErrContended = errors.New("others changed the bucket again and again")

// maxAttempts bounds how often a change is tried that other programs get ahead of.
const maxAttempts = 16

// Store holds the limits of one namespace of a table. It is safe for concurrent
// use.
type Store struct {
	table     table.Client
	namespace string // its id
	defaults  map[string][]Limit
	cache     cache
	settings
}

// settings are what options set.
type settings struct {
	now      func() time.Time
	parallel int // how many groups a change is rolled out to at once
	cacheFor time.Duration
	name     string // of the namespace
	id       string // of the namespace, if it is known
	declared []declaration
}

type declaration struct {
	resource string // "" for all
	limits   []Limit
}

// A StoreOption changes what Open returns.
type StoreOption func(*settings)

// Namespace opens the namespace of a name, and registers it where it is missing.
// Without this option the name is DefaultNamespace.
func Namespace(name string) StoreOption { return func(s *settings) { s.name = name } }

// NamespaceID opens the namespace of an id. Open then makes no request, and so works
// while DynamoDB cannot be reached.
func NamespaceID(id string) StoreOption { return func(s *settings) { s.id = id } }

// Default declares the limits of a resource in the program. They hold where no
// level stores any; the resource "" stands for every resource without defaults of
// its own. A Limiter that first meets a bucket with other limits rolls these out to
// it: a new version of a program brings its own. A bucket keeps limits that other
// programs declare.
func Default(resource string, limits ...Limit) StoreOption {
	return func(s *settings) { s.declared = append(s.declared, declaration{resource, limits}) }
}

// Clock has the Store, and every Limiter over it, ask for the time there instead of
// the system.
func Clock(now func() time.Time) StoreOption { return func(s *settings) { s.now = now } }

// CacheFor sets how long the Store caches what levels say; by default a minute.
// Buckets carry their limits: only a use of a new bucket or limit looks here.
func CacheFor(d time.Duration) StoreOption { return func(s *settings) { s.cacheFor = d } }

// Sequential has the Store make one request at a time. It is for tests and
// simulations.
func Sequential() StoreOption { return func(s *settings) { s.parallel = 1 } }

// defaultParallel is how many groups a change is rolled out to at once.
const defaultParallel = 8

// Open returns the Store of a namespace. It looks the namespace's id up, unless
// that is given.
func Open(ctx context.Context, t table.Client, options ...StoreOption) (*Store, error) {
	s := &Store{table: t, defaults: map[string][]Limit{}, settings: settings{
		now: time.Now, parallel: defaultParallel, cacheFor: time.Minute, name: DefaultNamespace,
	}}
	for _, option := range options {
		option(&s.settings)
	}
	for _, d := range s.declared {
		if err := s.declare(d); err != nil {
			return nil, err
		}
	}
	s.cache = newCache(s.cacheFor)
	if s.namespace = s.id; s.namespace != "" {
		return s, nil
	}
	var err error
	if s.namespace, err = s.lookUp(ctx, s.name); err != nil {
		return nil, fmt.Errorf("look up the namespace: %w", err)
	}
	return s, nil
}

func (s *Store) declare(d declaration) error {
	if err := checkAll(d.limits); err != nil {
		return fmt.Errorf("limits of %q: %w", d.resource, err)
	}
	if d.resource != "" && !validResource(d.resource) {
		return fmt.Errorf("%w: the resource %.80q", ErrName, d.resource)
	}
	s.defaults[d.resource] = d.limits
	return nil
}

// defaultsOf returns the limits that the program declares of a resource.
func (s *Store) defaultsOf(resource string) []Limit {
	if limits, ok := s.defaults[resource]; ok {
		return limits
	}
	return s.defaults[""]
}

// Table returns the table that the Store is over.
func (s *Store) Table() table.Client { return s.table }

// Namespace returns the id of the namespace.
func (s *Store) Namespace() string { return s.namespace }

// Now returns the time by the Store's clock.
func (s *Store) Now() time.Time { return s.now() }

// namespaces is the partition key under which a table keeps its namespaces.
const namespaces = "_/SYSTEM#"

// NamespaceKey returns the key of the item that gives a namespace's id.
func NamespaceKey(name string) table.ItemKey {
	return table.ItemKey{PK: namespaces, SK: "#NAMESPACE#" + name}
}

// AttrNamespaceID is the attribute of that item which holds the id.
const AttrNamespaceID = "namespace_id"

// lookUp returns the id of a namespace. It registers the namespace where it is
// missing.
func (s *Store) lookUp(ctx context.Context, name string) (string, error) {
	if !limitName.MatchString(name) || len(name) > maxNameBytes {
		return "", fmt.Errorf("%w: the namespace %.80q", ErrName, name)
	}
	for range maxAttempts {
		items, err := s.table.Items(ctx, []table.ItemKey{NamespaceKey(name)})
		if err != nil {
			return "", err
		}
		if items[0] != nil {
			return namespaceID(items[0])
		}
		if err := s.registerNamespace(ctx, name); err != nil {
			return "", err
		}
	}
	return "", ErrContended
}

func namespaceID(item table.Item) (string, error) {
	id, status := item.Text(AttrNamespaceID), item.Text("status")
	if id == "" || status != "" && status != "active" {
		return "", fmt.Errorf("%w: the namespace is %q", ErrName, status)
	}
	return id, nil
}

func (s *Store) registerNamespace(ctx context.Context, name string) error {
	id, key := "n"+base64.RawURLEncoding.EncodeToString(random(8)), NamespaceKey(name)
	item := table.Item{
		table.AttrPK: table.S(key.PK), table.AttrSK: table.S(key.SK), table.AttrGSI4PK: table.S("_"), table.AttrGSI4SK: table.S(key.PK),
		AttrNamespaceID: table.S(id), "namespace_name": table.S(name), "status": table.S("active"),
		attrCreatedAt: table.S(s.now().UTC().Format(time.RFC3339)),
	}
	inserted, err := s.table.Insert(ctx, item)
	if err != nil || !inserted {
		return err
	}
	item[table.AttrSK] = table.S("#NSID#" + id)
	_, err = s.table.Insert(ctx, item)
	return err
}

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return b
}
