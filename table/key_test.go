package table_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/shardquota/shardquota/table"
)

func TestParseKey(t *testing.T) {
	for pk, want := range map[string]table.Key{
		"n5/BUCKET#acme#gpt-4#0":                    table.Group{Namespace: "n5", Entity: "acme", Resource: "gpt-4"}.At(0),
		"qK_WT-dMc/BUCKET#user:4@x.y#models/e-3#31": table.Group{Namespace: "qK_WT-dMc", Entity: "user:4@x.y", Resource: "models/e-3"}.At(31),
		"n5/BUCKET#e#r/BUCKET#5":                    table.Group{Namespace: "n5", Entity: "e", Resource: "r/BUCKET"}.At(5),
	} {
		if got, err := table.ParseKey(pk); err != nil || got != want || got.PK() != pk {
			t.Errorf("%s: %+v, %v", pk, got, err)
		}
	}
}

func TestParseKeyRefuses(t *testing.T) {
	for _, pk := range []string{
		"", "/BUCKET#sk-live#r#0", "a/b/BUCKET#sk-live#r#0", "a#b/BUCKET#sk-live#r#0", "n5/ENTITY#sk-live", "BUCKET#sk-live#r#0", "n5/BUCKET#", "n5/BUCKET#sk-live",
		"n5/BUCKET#sk-live#r", "n5/BUCKET#sk-live#r#", "n5/BUCKET#sk-live#r#x", "n5/BUCKET#sk-live#r#-1", "n5/BUCKET#sk-live#r#01",
		"n5/BUCKET#sk-live#r#+1", "n5/BUCKET##r#0", "n5/BUCKET#sk-live##0", "n5/BUCKET#sk-live#r#0#1", "n5/BUCKET#sk-live#r#99999999999999999999",
	} {
		if key, err := table.ParseKey(pk); !errors.Is(err, table.ErrKey) || strings.Contains(err.Error(), "sk-live") {
			t.Errorf("%q: %+v, %v", pk, key, err)
		}
	}
}

func FuzzParseKey(f *testing.F) {
	f.Add("n5/BUCKET#acme#gpt-4#0")
	f.Add("n5/BUCKET#user:4@x.y#models/e-3#31")
	f.Add("n5/ENTITY#acme")
	f.Add("n5/BUCKET#a#b#01")
	f.Fuzz(func(t *testing.T, pk string) {
		key, err := table.ParseKey(pk)
		if err != nil {
			if !errors.Is(err, table.ErrKey) || len(err.Error()) > 100 || strings.Contains(err.Error(), secret) {
				t.Fatalf("not ErrKey, or it shows the key: %v", err)
			}
			return
		}
		if key.PK() != pk {
			t.Fatalf("%q was read as %+v, whose key is %q", pk, key, key.PK())
		}
		for _, part := range []string{key.Namespace, key.Entity, key.Resource} {
			if part == "" || strings.Contains(part, "#") {
				t.Fatalf("%q was read as %+v", pk, key)
			}
		}
	})
}

// FuzzKey is the other way round: what is put together is taken apart.
func FuzzKey(f *testing.F) {
	f.Add("n5", secret, "models/embed-3", 31)
	f.Add("n5", "a", "r/BUCKET", 0)
	f.Fuzz(func(t *testing.T, namespace, entity, resource string, shard int) {
		key := table.Group{Namespace: namespace, Entity: entity, Resource: resource}.At(shard)
		got, err := table.ParseKey(key.PK())
		legal := namespace != "" && entity != "" && resource != "" && shard >= 0 && len(key.PK()) <= 2048 &&
			!strings.Contains(namespace, "/") && !strings.Contains(namespace+entity+resource, "#")
		if legal && (err != nil || got != key) {
			t.Fatalf("%+v is read as %+v, %v", key, got, err)
		}
		if !legal && err == nil && got == key {
			t.Fatalf("%+v is a key", key)
		}
	})
}
