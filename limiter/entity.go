package limiter

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/table"
)

// ErrExists says that an entity is there already.
var ErrExists = errors.New("the entity exists already")

// Attributes of an entity's own item.
const (
	metaSK = "#META"

	attrName             = "name"
	attrMetadata         = "metadata"
	attrCreatedAt        = "created_at"
	attrParentGeneration = "pgen"
	attrIncarnation      = "pinc"
)

// Entity is who is limited. One that was never created is limited too; creating
// it gives it a name or a parent.
type Entity struct {
	ID      string
	Name    string // for people; the id where it is empty
	Parent  string // the id of the entity that it is a child of, "" for none
	Cascade bool   // the parent gives with it, unless a level says otherwise
}

// CreateEntity creates an entity, and brings its parent to the buckets that it
// has already. It fails with ErrExists where it is there.
func (l *Limiter) CreateEntity(ctx context.Context, e Entity) error {
	if !validEntity(e.ID) || e.Parent != "" && !validEntity(e.Parent) || e.Parent == e.ID {
		return fmt.Errorf("%w: the id of the entity or of its parent", ErrName)
	}
	if e.Cascade && e.Parent == "" {
		return fmt.Errorf("%w: an entity that cascades has a parent", ErrName)
	}
	inserted, err := l.table.Insert(ctx, l.entityItem(e, l.now()))
	if err != nil {
		return fmt.Errorf("create entity: %w", err)
	}
	if !inserted {
		return ErrExists
	}
	if err := l.spread(ctx, table.Scope{Namespace: l.namespace, Entity: e.ID}); err != nil {
		return fmt.Errorf("created, but not brought to all buckets: %w", err)
	}
	return nil
}

func (l *Limiter) entityItem(e Entity, now time.Time) table.Item {
	name := e.Name
	if name == "" {
		name = e.ID
	}
	pk := entityPK(l.namespace, e.ID)
	item := table.Item{
		table.AttrPK: table.S(pk), table.AttrSK: table.S(metaSK),
		table.AttrGSI4PK: table.S(l.namespace), table.AttrGSI4SK: table.S(pk),
		table.AttrEntityID: table.S(e.ID), attrName: table.S(name),
		table.AttrParentID: &types.AttributeValueMemberNULL{Value: true},
		table.AttrCascade:  &types.AttributeValueMemberBOOL{Value: e.Cascade},
		attrMetadata:       &types.AttributeValueMemberM{Value: table.Item{}},
		attrCreatedAt:      table.S(now.UTC().Format(time.RFC3339)),
		// Who a child's buckets belong to is told by these to programs that move
		// children: an entity that is created later has later ones.
		attrParentGeneration: whole(now.UnixMilli()), attrIncarnation: table.S(hex.EncodeToString(random(8))),
	}
	if e.Parent != "" {
		item[table.AttrParentID] = table.S(e.Parent)
		item["GSI1PK"], item["GSI1SK"] = table.S(l.namespace+"/PARENT#"+e.Parent), table.S("CHILD#"+e.ID)
	}
	return item
}

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return b
}

// Entity returns an entity; ok is false where it was never created.
func (l *Limiter) Entity(ctx context.Context, id string) (e Entity, ok bool, err error) {
	if !validEntity(id) {
		return e, false, fmt.Errorf("%w: the entity's id", ErrName)
	}
	items, err := l.table.Items(ctx, []table.ItemKey{{PK: entityPK(l.namespace, id), SK: metaSK}})
	if err != nil {
		return e, false, fmt.Errorf("read entity: %w", err)
	}
	item := items[0]
	if item == nil {
		return e, false, nil
	}
	return Entity{ID: id, Name: item.Text(attrName), Parent: item.Text(table.AttrParentID), Cascade: item.Flag(table.AttrCascade)}, true, nil
}

// The namespaces of a table are kept in one of their own.
const namespaces = "_/SYSTEM#"

// lookUp returns the id of a namespace, which it registers where it is not yet.
func (l *Limiter) lookUp(ctx context.Context, name string) (string, error) {
	if !limitName.MatchString(name) || len(name) > maxNameBytes {
		return "", fmt.Errorf("%w: the namespace %.80q", ErrName, name)
	}
	key := table.ItemKey{PK: namespaces, SK: "#NAMESPACE#" + name}
	for range maxAttempts {
		items, err := l.table.Items(ctx, []table.ItemKey{key})
		if err != nil {
			return "", err
		}
		if items[0] != nil {
			return namespaceID(items[0])
		}
		if err := l.registerNamespace(ctx, key, name); err != nil {
			return "", err
		}
	}
	return "", ErrContended
}

func namespaceID(item table.Item) (string, error) {
	id, status := item.Text("namespace_id"), item.Text("status")
	if id == "" || status != "" && status != "active" {
		return "", fmt.Errorf("%w: the namespace is %q", ErrName, status)
	}
	return id, nil
}

func (l *Limiter) registerNamespace(ctx context.Context, key table.ItemKey, name string) error {
	id := "n" + base64.RawURLEncoding.EncodeToString(random(8))
	item := table.Item{
		table.AttrPK: table.S(key.PK), table.AttrSK: table.S(key.SK), table.AttrGSI4PK: table.S("_"), table.AttrGSI4SK: table.S(key.PK),
		"namespace_id": table.S(id), "namespace_name": table.S(name), "status": table.S("active"),
		attrCreatedAt: table.S(l.now().UTC().Format(time.RFC3339)),
	}
	inserted, err := l.table.Insert(ctx, item)
	if err != nil || !inserted {
		return err
	}
	item[table.AttrSK] = table.S("#NSID#" + id)
	_, err = l.table.Insert(ctx, item)
	return err
}
