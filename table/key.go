package table

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Names of the table's keys and of the attributes that every item kind shares.
const (
	AttrPK     = "PK"
	AttrSK     = "SK"
	AttrGSI2PK = "GSI2PK"
	AttrGSI2SK = "GSI2SK"
	AttrGSI3PK = "GSI3PK"
	AttrGSI3SK = "GSI3SK"
	AttrGSI4PK = "GSI4PK"
	AttrGSI4SK = "GSI4SK"
	AttrTTL    = "ttl"
)

// StateSK is the sort key of every bucket item.
const StateSK = "#STATE"

const (
	bucketMark = "/BUCKET#"

	bucketPrefix = "BUCKET#" // of a bucket's sort key in every index
)

// ErrKey says that a key is not one of the layout's.
var ErrKey = errors.New("malformed key")

// Group names the shards of one entity's use of one resource.
type Group struct {
	Namespace, Entity, Resource string
}

// Compare orders groups by namespace, entity and resource.
func (g Group) Compare(other Group) int {
	return cmp.Or(
		strings.Compare(g.Namespace, other.Namespace),
		strings.Compare(g.Entity, other.Entity),
		strings.Compare(g.Resource, other.Resource))
}

// Key names one bucket: one shard of a group.
type Key struct {
	Group
	Shard int
}

// At returns the key of a shard of the group.
func (g Group) At(shard int) Key { return Key{g, shard} }

// PK is the bucket's partition key.
func (k Key) PK() string {
	return k.Namespace + bucketMark + k.Entity + "#" + k.Resource + "#" + strconv.Itoa(k.Shard)
}

// ParseKey reads a bucket's partition key. The error wraps ErrKey. It does not hold the
// key, which may be a secret.
func ParseKey(pk string) (Key, error) {
	if len(pk) > maxPK {
		return Key{}, fmt.Errorf("%w: longer than %d bytes", ErrKey, maxPK)
	}
	namespace, rest, ok := strings.Cut(pk, bucketMark)
	if !ok || namespace == "" || strings.ContainsAny(namespace, "/#") {
		return Key{}, fmt.Errorf("%w: no namespace before BUCKET#", ErrKey)
	}
	entity, rest, _ := strings.Cut(rest, "#")
	resource, index, ok := strings.Cut(rest, "#")
	if !ok || entity == "" || resource == "" || strings.Contains(index, "#") {
		return Key{}, fmt.Errorf("%w: not entity, resource and shard", ErrKey)
	}
	shard, err := strconv.Atoi(index)
	if err != nil || shard < 0 || strconv.Itoa(shard) != index {
		return Key{}, fmt.Errorf("%w: the shard is not an index", ErrKey)
	}
	return Key{Group{namespace, entity, resource}, shard}, nil
}

// Keys returns a bucket item's keys by attribute: those of the table and those of its
// indexes.
func (k Key) Keys() map[string]string {
	shard := strconv.Itoa(k.Shard)
	return map[string]string{
		AttrPK:     k.PK(),
		AttrSK:     StateSK,
		AttrGSI2PK: k.Namespace + "/RESOURCE#" + k.Resource,
		AttrGSI2SK: bucketPrefix + k.Entity + "#" + shard,
		AttrGSI3PK: k.Namespace + "/ENTITY#" + k.Entity,
		AttrGSI3SK: bucketPrefix + k.Resource + "#" + shard,
		AttrGSI4PK: k.Namespace,
		AttrGSI4SK: bucketPrefix + k.Entity + "#" + k.Resource + "#" + shard,
	}
}

// IndexKeys are the attributes by which an index holds items: its partition key
// and its sort key.
func IndexKeys(index string) (pk, sk string) { return index + "PK", index + "SK" }
