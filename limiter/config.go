package limiter

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/shardquota/shardquota/table"
)

// anyResource stands for all resources of an entity on a level of its own.
const anyResource = "_default_"

const configSK = "#CONFIG"

// Level is where limits are stored: for one entity on one resource, for an
// entity, for a resource, or for everything in the namespace. The first of
// these that defines any limit decides, whole.
type Level struct {
	kind             levelKind
	entity, resource string // as far as the kind has them
}

// levelKind says what a level is for; the zero value for nothing.
type levelKind int

const (
	forAll levelKind = iota + 1
	forResource
	forEntity
	forOne
)

// ForAll is the level of everything in the namespace.
func ForAll() Level { return Level{kind: forAll} }

// ForResource is the level of a resource, for entities without limits of their own.
func ForResource(resource string) Level { return Level{forResource, "", resource} }

// ForEntity is the level of an entity, for resources without limits of their own.
func ForEntity(entity string) Level { return Level{forEntity, entity, anyResource} }

// For is the level of one entity on one resource.
func For(entity, resource string) Level { return Level{forOne, entity, resource} }

// check returns what is wrong with the level's names. An empty one is wrong where
// there has to be one: it must not stand for a wider level.
func (l Level) check() error {
	switch {
	case l.kind == 0:
		return fmt.Errorf("%w: a level that is none", ErrName)
	case (l.kind == forEntity || l.kind == forOne) && !validEntity(l.entity):
		return fmt.Errorf("%w: the entity's id", ErrName)
	case (l.kind == forResource || l.kind == forOne) && !validResource(l.resource):
		return fmt.Errorf("%w: the resource %.80q", ErrName, l.resource)
	}
	return nil
}

// key is that of the level's item in a namespace.
func (l Level) key(namespace string) table.ItemKey {
	switch {
	case l.entity != "":
		return table.ItemKey{PK: entityPK(namespace, l.entity), SK: configSK + "#" + l.resource}
	case l.resource != "":
		return table.ItemKey{PK: namespace + "/RESOURCE#" + l.resource, SK: configSK}
	}
	return table.ItemKey{PK: systemPK(namespace), SK: configSK}
}

func entityPK(namespace, entity string) string { return namespace + "/ENTITY#" + entity }

func systemPK(namespace string) string { return namespace + "/SYSTEM#" }

// scope holds the buckets that the level may decide about.
func (l Level) scope(namespace string) table.Scope {
	scope := table.Scope{Namespace: namespace, Entity: l.entity, Resource: l.resource}
	if l.resource == anyResource {
		scope.Resource = ""
	}
	return scope
}

// levels are those that decide about a group, the first first.
func levels(group table.Group) []Level {
	return []Level{For(group.Entity, group.Resource), ForEntity(group.Entity), ForResource(group.Resource), ForAll()}
}

// Access says whether a level lets its entities use anything.
type Access int

// The kinds of access. Of several levels the first that says something decides;
// the level of everything in the namespace says nothing.
const (
	Inherit  Access = iota // this level says nothing
	Enabled                // though a level behind this one may say otherwise
	Disabled               // no use is admitted
	Bypass                 // every use is admitted, and metered
)

// config is what is stored on one level; the zero value says nothing.
type config struct {
	limits  []Limit
	access  Access
	cascade *bool
	invalid error // why the limits cannot be read
}

func parseConfig(item table.Item) config {
	var c config
	c.limits, c.invalid = configLimits(item)
	switch value := item[table.AttrDisabled].(type) {
	case *types.AttributeValueMemberBOOL:
		c.access = Enabled
		if value.Value {
			c.access = Disabled
		}
	case *types.AttributeValueMemberS:
		if value.Value == table.AttrBypass {
			c.access = Bypass
		}
	}
	if cascade, ok := item[table.AttrCascade].(*types.AttributeValueMemberBOOL); ok {
		c.cascade = &cascade.Value
	}
	return c
}

// resolved is what holds for one group.
type resolved struct {
	limits  []Limit
	own     bool // the entity has limits of its own, so that its buckets do not expire
	coded   bool // no level defines any, the limits are those of the program
	access  Access
	cascade *bool // nil leaves it to the entity
}

// resolve puts the levels together, the first first. The error wraps ErrUndefined
// or ErrLimit; access and cascade are what holds then too.
func resolve(group table.Group, stored []config, coded []Limit) (resolved, error) {
	var r resolved
	var invalid error
	for i, c := range stored {
		if r.access == Inherit {
			r.access = c.access
		}
		if r.cascade == nil {
			r.cascade = c.cascade
		}
		if r.limits != nil || invalid != nil {
			continue
		}
		if invalid = c.invalid; invalid == nil && len(c.limits) > 0 {
			r.limits, r.own = c.limits, i < 2
		}
	}
	if invalid != nil {
		return r, invalid
	}
	if r.limits == nil {
		r.limits, r.coded = coded, true
	}
	if len(r.limits) == 0 {
		return r, fmt.Errorf("%w for %s", ErrUndefined, group.Resource)
	}
	return r, nil
}

// configs reads what is stored on levels, and keeps it for a while. Many
// entities share the levels of resources and of everything.
type configs struct {
	table table.Client
	keep  time.Duration
	cache *lru.Cache[table.ItemKey, kept]
}

type kept struct {
	config
	until time.Time
}

func newConfigs(t table.Client, keep time.Duration, size int) configs {
	cache, err := lru.New[table.ItemKey, kept](size)
	if err != nil {
		panic("limiter: " + err.Error()) // of a size below 1
	}
	return configs{t, keep, cache}
}

// cached returns what is stored at keys as it was not longer ago than is kept.
func (c configs) cached(ctx context.Context, keys []table.ItemKey, now time.Time) ([]config, error) {
	found := make([]config, len(keys))
	var missing []table.ItemKey
	for i, key := range keys {
		k, ok := c.cache.Get(key)
		if !ok || !now.Before(k.until) {
			missing = append(missing, key)
			continue
		}
		found[i] = k.config
	}
	if len(missing) == 0 {
		return found, nil
	}
	fresh, err := c.fresh(ctx, missing, now)
	if err != nil {
		return nil, err
	}
	for i, key := range missing {
		found[slices.Index(keys, key)] = fresh[i]
	}
	return found, nil
}

// fresh returns what is stored at keys now.
func (c configs) fresh(ctx context.Context, keys []table.ItemKey, now time.Time) ([]config, error) {
	items, err := c.table.Items(ctx, keys)
	if err != nil {
		return nil, err
	}
	return c.take(keys, items, now), nil
}

// take reads the items of levels, and keeps what they say for a while.
func (c configs) take(keys []table.ItemKey, items []table.Item, now time.Time) []config {
	found := make([]config, len(keys))
	for i, key := range keys {
		found[i] = parseConfig(items[i])
		c.cache.Add(key, kept{found[i], now.Add(c.keep)})
	}
	return found
}
