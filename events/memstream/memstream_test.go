package memstream_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/events/memstream"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/memory"
)

// Each write that changes an item is one record: its kind, its images, and a
// sequence of its own that a new stream begins anew.
func TestStream(t *testing.T) {
	now := int64(7)
	store, stream := memory.New(), &memstream.Stream{Label: "s", Now: func() int64 { return now }}
	item := func(n string) table.Item {
		return table.Item{table.AttrPK: table.S("a"), table.AttrSK: table.S("b"), "n": table.N(n)}
	}
	store.Put(item("0")) // before anybody watched
	store.Watch(stream.Write)
	store.Put(item("1"))
	store.Put(item("1"))
	now = 9
	store.Delete("a", "b")
	store.Put(item("2"))
	stream.Restart("t")
	store.Put(item("3"))
	records := stream.Take()
	if len(records) != 4 || stream.Written() != 1 || len(stream.Take()) != 0 {
		t.Fatalf("%d records, %d written since the restart", len(records), stream.Written())
	}
	for i, want := range []string{
		`MODIFY s 1 7 {"PK":{"S":"a"},"SK":{"S":"b"}} {"PK":{"S":"a"},"SK":{"S":"b"},"n":{"N":"0"}} {"PK":{"S":"a"},"SK":{"S":"b"},"n":{"N":"1"}}`,
		`REMOVE s 2 9 {"PK":{"S":"a"},"SK":{"S":"b"}} {"PK":{"S":"a"},"SK":{"S":"b"},"n":{"N":"1"}} `,
		`INSERT s 3 9 {"PK":{"S":"a"},"SK":{"S":"b"}}  {"PK":{"S":"a"},"SK":{"S":"b"},"n":{"N":"2"}}`,
		`MODIFY t 1 9 {"PK":{"S":"a"},"SK":{"S":"b"}} {"PK":{"S":"a"},"SK":{"S":"b"},"n":{"N":"2"}} {"PK":{"S":"a"},"SK":{"S":"b"},"n":{"N":"3"}}`,
	} {
		r := records[i]
		if got := fmt.Sprintf("%s %s %s %d %s %s %s", r.EventName, r.Stream, r.Sequence, r.Time, r.Keys, r.Old, r.New); got != want {
			t.Errorf("record %d:\ngot  %s\nwant %s", i, got, want)
		}
	}
}

// Changes are the records as they decode, each with the image before it.
func TestTakeChanges(t *testing.T) {
	store, stream := memory.New(), &memstream.Stream{Label: "s", Now: func() int64 { return 7 }, Buckets: true}
	key := table.Group{Namespace: "ns", Entity: "acme", Resource: "api"}.At(0)
	put := func(count string) {
		store.Put(table.Item{table.AttrPK: table.S(key.PK()), table.AttrSK: table.S(table.StateSK), table.AttrShardCount: table.N(count),
			"b_wcu_tk": table.N("1"), "b_wcu_cp": table.N("1")})
	}
	put("1") // before anybody watched
	store.Watch(stream.Write)
	put("2")
	put("3")
	first, err := stream.TakeChanges()
	if err != nil || len(first) != 2 {
		t.Fatalf("%d changes, %v", len(first), err)
	}
	store.Delete(key.PK(), table.StateSK)
	put("4")
	put("8")
	then, err := stream.TakeChanges()
	if err != nil || len(then) != 2 {
		t.Fatalf("%d changes, %v", len(then), err)
	}
	if first[0].Old == nil || first[0].Old.ShardCount != 1 || first[1].Old != first[0].New || then[0].Old != nil || then[1].Old != then[0].New {
		t.Error("a change has another image before it")
	}
	position, _ := events.StreamPosition("s", "5")
	if c := then[1]; c.EventName != events.Modify || c.StreamPosition != position || c.New.ShardCount != 8 || c.Time != 7 {
		t.Errorf("got %+v", c)
	}
	store.Put(table.Item{table.AttrPK: table.S(key.PK()), table.AttrSK: table.S(table.StateSK)})
	if _, err := stream.TakeChanges(); !errors.Is(err, table.ErrItem) {
		t.Errorf("a bucket without limits: %v", err)
	}
}

// A stream of buckets has no other item.
func TestStreamOfBuckets(t *testing.T) {
	store, stream := memory.New(), &memstream.Stream{Now: func() int64 { return 0 }, Buckets: true}
	store.Watch(stream.Write)
	store.Put(table.Item{table.AttrPK: table.S("a"), table.AttrSK: table.S("b")})
	store.Put(table.Item{table.AttrPK: table.S("a"), table.AttrSK: table.S(table.StateSK)})
	if got := stream.Take(); len(got) != 1 || got[0].EventName != "INSERT" {
		t.Errorf("got %v", got)
	}
}
