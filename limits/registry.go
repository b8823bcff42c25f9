package limits

import (
	"context"
	"slices"
	"strings"

	"github.com/shardquota/shardquota/table"
)

// Registries list the resources that some level names, for the layout's other
// programs.
const (
	resourcesSK       = "#RESOURCES"               // the resources with a level of their own, as a set
	entityResourcesSK = "#ENTITY_CONFIG_RESOURCES" // a count of entities' levels for each resource
	attrResources     = "resources"
)

// insertLevel makes the item of a level that has none. It registers the level first:
// one that is registered in vain, or twice, hides nothing. The name of a resource is
// on its list once: where one program deletes a level while another makes it anew,
// each checks the list again once it is done.
func (s *Store) insertLevel(ctx context.Context, level Level, item table.Item) (done bool, err error) {
	if err := s.register(ctx, level, true); err != nil {
		return false, err
	}
	done, err = s.table.Insert(ctx, item)
	if done && err == nil && level.kind == forResource {
		err = s.register(ctx, level, true)
	}
	return done, err
}

// deleteLevel deletes the item of a level, if what is expected of it is so.
func (s *Store) deleteLevel(ctx context.Context, level Level, expect ...table.NamedValue) (done bool, err error) {
	key := level.key(s.namespace)
	if done, err = s.table.Remove(ctx, key.PK, key.SK, expect...); !done || err != nil {
		return false, err
	}
	if err := s.register(ctx, level, false); err != nil || level.kind != forResource {
		return true, err
	}
	items, err := s.table.Items(ctx, []table.ItemKey{key})
	if err == nil && items[0] != nil {
		err = s.register(ctx, level, true)
	}
	return true, err
}

// register keeps the registries up when a level's item comes or goes.
func (s *Store) register(ctx context.Context, level Level, comes bool) error {
	if level == ForAll() || level.entity != "" && !countable(level.resource) {
		return nil
	}
	sk := resourcesSK
	change := func(item table.Item) { list(item, level.resource, comes) }
	if level.entity != "" {
		sk, change = entityResourcesSK, func(item table.Item) { count(item, level.resource, comes) }
	}
	key := table.ItemKey{PK: systemPK(s.namespace), SK: sk}
	for range maxAttempts {
		items, err := s.table.Items(ctx, []table.ItemKey{key})
		if err != nil {
			return err
		}
		from, to := items[0], table.Item{
			table.AttrPK: table.S(key.PK), table.AttrSK: table.S(sk), table.AttrGSI4PK: table.S(s.namespace), table.AttrGSI4SK: table.S(key.PK),
		}
		if from != nil {
			to = from.Clone()
		}
		change(to)
		if done, err := s.put(ctx, from, to); done || err != nil {
			return err
		}
	}
	return ErrContended
}

// countable reports whether a resource can be counted by its name: not if it is
// named like the registry's own attributes.
func countable(resource string) bool {
	return !slices.Contains([]string{table.AttrPK, table.AttrSK, table.AttrGSI4PK, table.AttrGSI4SK}, resource) && !strings.HasPrefix(resource, "GSI")
}

// list puts a name on the set of names, or takes it off.
func list(item table.Item, name string, on bool) {
	names := slices.DeleteFunc(slices.Clone(item.Strings(attrResources)), func(n string) bool { return n == name })
	if on {
		names = append(names, name)
	}
	slices.Sort(names)
	if delete(item, attrResources); len(names) > 0 {
		item[attrResources] = table.StringSet(names)
	}
}

// count counts one more of a name, or one less.
func count(item table.Item, name string, more bool) {
	n, _ := item.Int(name)
	if n--; more {
		n += 2
	}
	if delete(item, name); n > 0 {
		item[name] = table.Int(n)
	}
}
