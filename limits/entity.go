package limits

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/shardquota/shardquota/table"
)

// ErrExists says that an entity exists already.
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

// Entity is who is limited. One that was never created is limited too. Creating it
// gives it a name or a parent.
type Entity struct {
	ID      string
	Name    string // for people; the id where it is empty
	Parent  string // the id of the parent entity, "" for none
	Cascade bool   // a use takes of the parent too, unless a level says otherwise
}

// CreateEntity creates an entity, and rolls its parent out to the buckets that it
// has already. It fails with ErrExists where the entity exists.
func (s *Store) CreateEntity(ctx context.Context, e Entity) error {
	if !validEntity(e.ID) || e.Parent != "" && !validEntity(e.Parent) || e.Parent == e.ID {
		return fmt.Errorf("%w: the id of the entity or of its parent", ErrName)
	}
	if e.Cascade && e.Parent == "" {
		return fmt.Errorf("%w: an entity that cascades has a parent", ErrName)
	}
	inserted, err := s.table.Insert(ctx, entityItem(s.namespace, e, s.now()))
	if err != nil {
		return fmt.Errorf("create entity: %w", err)
	}
	if !inserted {
		return ErrExists
	}
	if err := s.rollOut(ctx, table.Scope{Namespace: s.namespace, Entity: e.ID}); err != nil {
		return fmt.Errorf("created, but not brought to all buckets: %w", err)
	}
	return nil
}

func entityItem(namespace string, e Entity, now time.Time) table.Item {
	name := e.Name
	if name == "" {
		name = e.ID
	}
	pk := entityPK(namespace, e.ID)
	item := table.Item{
		table.AttrPK: table.S(pk), table.AttrSK: table.S(metaSK),
		table.AttrGSI4PK: table.S(namespace), table.AttrGSI4SK: table.S(pk),
		table.AttrEntityID: table.S(e.ID), attrName: table.S(name),
		table.AttrParentID: table.Null(), table.AttrCascade: table.Bool(e.Cascade),
		attrMetadata: table.Map(table.Item{}), attrCreatedAt: table.S(now.UTC().Format(time.RFC3339)),
		// Programs that move children tell by these which parent a bucket is of: an
		// entity that is created later has later ones.
		attrParentGeneration: table.Int(now.UnixMilli()), attrIncarnation: table.S(hex.EncodeToString(random(8))),
	}
	if e.Parent != "" {
		item[table.AttrParentID] = table.S(e.Parent)
		item["GSI1PK"], item["GSI1SK"] = table.S(namespace+"/PARENT#"+e.Parent), table.S("CHILD#"+e.ID)
	}
	return item
}

// Entity returns an entity; ok is false where it was never created.
func (s *Store) Entity(ctx context.Context, id string) (e Entity, ok bool, err error) {
	if !validEntity(id) {
		return e, false, fmt.Errorf("%w: the entity's id", ErrName)
	}
	items, err := s.table.Items(ctx, []table.ItemKey{{PK: entityPK(s.namespace, id), SK: metaSK}})
	if err != nil {
		return e, false, fmt.Errorf("read entity: %w", err)
	}
	item := items[0]
	if item == nil {
		return e, false, nil
	}
	return Entity{ID: id, Name: item.Text(attrName), Parent: item.Text(table.AttrParentID), Cascade: item.Flag(table.AttrCascade)}, true, nil
}
