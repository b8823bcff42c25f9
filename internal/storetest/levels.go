package storetest

import (
	"fmt"
	"slices"

	"github.com/shardquota/shardquota/table"
)

// levelItem is the item of an entity's rules for a resource.
func levelItem(namespace, entity, resource string) table.Item {
	return build(table.Item{
		"PK": table.S(namespace + "/ENTITY#" + entity), "SK": table.S("#CONFIG#" + resource),
		"GSI3PK": table.S(namespace + "/ENTITY_CONFIG#" + resource), "GSI3SK": table.S("ENTITY#" + entity),
		"GSI4PK": table.S(namespace), "GSI4SK": table.S(namespace + "/ENTITY#" + entity),
	}, attrs{"l_rpm_cp": 5})
}

// findLevels compares the entities that are found, as partition keys.
func (f *fixture) findLevels(namespace, resource string, want ...string) {
	f.Helper()
	keys, err := f.client().FindLevels(f.Context(), namespace, resource)
	f.noError(err)
	var got []string
	for _, key := range keys {
		if key.SK != "#CONFIG#"+resource {
			f.Errorf("%s %s: found %q", namespace, resource, key.SK)
		}
		got = append(got, key.PK)
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		f.Errorf("%s %s: found %q, not %q", namespace, resource, got, want)
	}
}

var levelCases = []testCase{
	{"by namespace and resource", func(f *fixture) {
		for _, level := range [][3]string{
			{"n5", "a", "gpt"}, {"n5", "b", "gpt"}, {"n5", "a", "gpt-4"}, {"n5", "c", "_default_"}, {"n55", "d", "gpt"},
		} {
			f.raw.Put(f, levelItem(level[0], level[1], level[2]))
		}
		key, err := table.ParseKey("n5/BUCKET#a#gpt#0")
		f.noError(err)
		f.raw.Put(f, bucket(key, limit(rpm, 1, 2)))
		f.raw.Put(f, meta("a", attrs{"GSI3PK": "n5/ENTITY_CONFIG#gpt", "GSI3SK": "OTHER#a"}))
		f.findLevels("n5", "gpt", "n5/ENTITY#a", "n5/ENTITY#b")
		f.findLevels("n5", "gpt-4", "n5/ENTITY#a")
		f.findLevels("n5", "_default_", "n5/ENTITY#c")
		f.findLevels("n55", "gpt", "n55/ENTITY#d")
		f.findLevels("n5", "gp")
		f.findLevels("n6", "gpt")
	}},
	{"more than one", func(f *fixture) {
		var want []string
		for i := range 60 {
			entity := fmt.Sprintf("e%02d", i)
			f.raw.Put(f, levelItem("n5", entity, "gpt"))
			want = append(want, "n5/ENTITY#"+entity)
		}
		f.findLevels("n5", "gpt", want...)
	}},
}
