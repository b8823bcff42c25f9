package limits

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/shardquota/shardquota/table"
)

// ErrName says that an entity's id, a resource's name or a namespace's name is
// malformed.
var ErrName = errors.New("malformed name")

// Level is where limits are stored: for one entity on one resource, for an
// entity, for a resource, or for everything in the namespace. The first of these
// that defines any limit decides, whole.
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

// anyResource stands for all resources of an entity on a level of its own.
const anyResource = "_default_"

// ForAll returns the level of everything in the namespace.
func ForAll() Level { return Level{kind: forAll} }

// ForResource returns the level of a resource. It decides for entities without
// limits of their own.
func ForResource(resource string) Level { return Level{forResource, "", resource} }

// ForEntity returns the level of an entity. It decides for resources on which the
// entity has no limits of its own.
func ForEntity(entity string) Level { return Level{forEntity, entity, anyResource} }

// For returns the level of one entity on one resource.
func For(entity, resource string) Level { return Level{forOne, entity, resource} }

// levelsOf returns the levels that decide about a group, the most specific first.
func levelsOf(group table.Group) []Level {
	return []Level{For(group.Entity, group.Resource), ForEntity(group.Entity), ForResource(group.Resource), ForAll()}
}

// Entity returns the id of the level's entity, "" where it is for all entities.
func (l Level) Entity() string { return l.entity }

// Resource returns the level's resource, "" where it is for all resources.
func (l Level) Resource() string {
	if l.resource == anyResource {
		return ""
	}
	return l.resource
}

// CompareLevels orders levels: first that of everything, then those of resources
// by name, then those of entities by id. An entity's own level comes before those
// of its resources.
func CompareLevels(a, b Level) int {
	return cmp.Or(strings.Compare(a.entity, b.entity), strings.Compare(a.Resource(), b.Resource()))
}

// Names that are valid in the layout.
var (
	entityName   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.\-:@]*$`)
	resourceName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.\-/:]*$`)
)

func validEntity(id string) bool { return len(id) <= 256 && entityName.MatchString(id) }

func validResource(name string) bool { return len(name) <= 64 && resourceName.MatchString(name) }

// Check returns what is wrong with the level's names; the error wraps ErrName.
// An empty name is wrong where the level needs one: it must not stand for a wider
// level.
func (l Level) Check() error {
	switch {
	case l.kind == 0:
		return fmt.Errorf("%w: a level that is none", ErrName)
	case (l.kind == forEntity || l.kind == forOne) && !validEntity(l.entity):
		return fmt.Errorf("%w: the entity's id: one has up to 256 letters, digits and _ . - : @, a letter or digit first", ErrName)
	case (l.kind == forResource || l.kind == forOne) && !validResource(l.resource):
		return fmt.Errorf("%w: the resource %.80q: one has up to 64 letters, digits and _ . - / : with a letter first", ErrName, l.resource)
	}
	return nil
}

const configSK = "#CONFIG"

// key returns the key of the level's item in a namespace.
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
	return table.Scope{Namespace: namespace, Entity: l.entity, Resource: l.Resource()}
}

// newItem returns the level's item without any rules on it.
func (l Level) newItem(namespace string) table.Item {
	key := l.key(namespace)
	item := table.Item{
		table.AttrPK: table.S(key.PK), table.AttrSK: table.S(key.SK),
		table.AttrGSI4PK: table.S(namespace), table.AttrGSI4SK: table.S(key.PK),
	}
	if l.resource != "" {
		item[table.AttrResource] = table.S(l.resource)
	}
	if l.entity != "" {
		item[table.AttrEntityID] = table.S(l.entity)
		item[table.AttrGSI3PK] = table.S(table.LevelPK(namespace, l.resource))
		item[table.AttrGSI3SK] = table.S(table.LevelSK + l.entity)
	}
	return item
}

// Access says whether a level lets its entities use anything.
type Access int

// The kinds of access. The most specific level that says something decides. The
// level of everything in the namespace says nothing.
const (
	Inherit  Access = iota // this level says nothing
	Enabled                // whatever a less specific level says
	Disabled               // no use is admitted
	Bypass                 // every use is admitted, and metered
)
