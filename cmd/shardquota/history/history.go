// Package history follows buckets over time, by their images before and after each
// write: balances on a grid of time, and the events between them. It takes one
// write after another and remembers a bounded amount, however many there are.
package history

import (
	"math"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// None is the value of a series where nothing is known: before a shard was first
// seen, and after it was removed.
const None = math.MinInt64

// Kind is what an event is.
type Kind string

// The kinds of event.
const (
	Doubled  Kind = "doubled"  // shard 0's count rose
	Raised   Kind = "raised"   // another shard's count rose
	Created  Kind = "created"  // a shard appeared
	Moved    Kind = "moved"    // a quota's allowance left a shard for a sibling
	Reset    Kind = "reset"    // a quota was restored at an edge of the calendar
	Opened   Kind = "opened"   // a use opened a session window
	Rolled   Kind = "rolled"   // a shard took over a window that was opened elsewhere
	Trimmed  Kind = "trimmed"  // a pass took off what was above the ceiling
	Operator Kind = "operator" // an operator changed something
	Removed  Kind = "removed"  // the item was deleted or expired
)

// Event is something that happened to one shard.
type Event struct {
	Time     int64 // epoch ms
	Kind     Kind
	Shard    int
	From, To int             // shard counts, of a doubling or a raise; To also of a creation
	Limit    string          // what was moved, restored or trimmed
	Amount   int64           // millitokens moved, restored or trimmed
	Funding  []quota.Funding // of a creation: where its balances came from by the rules
	What     string          // of an operator's change: what it was
}

// Grid divides time into slots of equal length.
type Grid struct {
	Start int64 // of the first slot, epoch ms
	Step  int64 // length of a slot, milliseconds
	Slots int
}

// At returns when a slot begins, epoch ms.
func (g Grid) At(slot int) int64 { return g.Start + int64(slot)*g.Step }

// End returns when the last slot ends, epoch ms.
func (g Grid) End() int64 { return g.At(g.Slots) }

// Group is the history of one entity's use of one resource.
type Group struct {
	Group   table.Group
	Grid    Grid
	Writes  int     // images that were observed
	Limits  []Limit // sorted by name
	Passes  []int64 // passes by slot
	Events  []Event // in the order in which they were observed
	Dropped int     // events that were too many to keep
}

// Limit is the history of one limit on all shards.
type Limit struct {
	Name     string
	Kind     quota.Kind
	Shards   []Series // sorted by shard
	Consumed []int64  // millitokens by slot, net of refunds, all shards together
}

// Series is the history of one limit on one shard, by slot, in millitokens. The
// write meter's balance is dripped to the time of the write.
type Series struct {
	Shard   int
	Balance []int64
	Ceiling []int64
}

// Limit returns the limit of that name, or nil.
func (g *Group) Limit(name string) *Limit {
	for i := range g.Limits {
		if g.Limits[i].Name == name {
			return &g.Limits[i]
		}
	}
	return nil
}

// Count returns how many events there are of a kind.
func (g *Group) Count(kind Kind) int {
	n := 0
	for _, e := range g.Events {
		if e.Kind == kind {
			n++
		}
	}
	return n
}
