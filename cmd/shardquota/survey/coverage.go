package survey

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// Quota is the coverage and the ledger of one quota in the current period.
type Quota struct {
	Limit     string  `json:"limit"`
	Slots     []Slot  `json:"slots"`
	Grants    []Grant `json:"grants"` // by shard
	Capacity  int64   `json:"capacity"`
	Held      int64   `json:"held"`
	Granted   int64   `json:"granted"`
	Grantable int64   `json:"grantable"`
	TopUp     int64   `json:"topup"`
	Conserved bool    `json:"conserved"`
	Broken    string  `json:"broken,omitempty"` // why no ledger can be drawn up
}

// Slot is who covers one slot.
type Slot struct {
	Slot    int   `json:"slot"`
	Covers  []int `json:"covers"`  // the shard whose grant fits closest; none where nobody was granted the slot; more than one overlap
	Beneath []int `json:"beneath"` // shards with wider grants that the slot was moved off
}

// Overlaps reports whether two shards were granted the slot as closely.
func (s Slot) Overlaps() bool { return len(s.Covers) > 1 }

// Grant is what one shard was granted.
type Grant struct {
	Shard   int   `json:"shard"`
	Count   int   `json:"count"`   // the shard count it is sized at
	Current bool  `json:"current"` // of the period that holds now; a stale grant covers nothing
	Covers  []int `json:"covers"`  // slots
	Keeps   []int `json:"keeps"`   // slots of these that no closer grant has taken over
}

func isQuota(b *quota.Bucket, name string) bool {
	limit := b.Limit(name)
	return limit != nil && limit.IsQuota()
}

// cover draws up who covers what of a quota, and its ledger.
func (s *Survey) cover(name string, buckets []*quota.Bucket) Quota {
	q := Quota{Limit: name, Slots: []Slot{}, Grants: []Grant{}}
	row, err := quota.Audit(name, buckets, s.Now)
	if err != nil {
		q.Broken = err.Error()
		return q
	}
	q.Capacity, q.Held, q.Granted, q.Grantable, q.TopUp = row.Capacity, row.Held, row.Granted, row.Grantable, row.TopUp
	q.Conserved = row.Conserved
	slots := s.Count
	for _, b := range buckets {
		if isQuota(b, name) {
			slots = max(slots, b.ShardCount)
			q.Grants = append(q.Grants, grant(b, b.Limit(name), s.Now))
		}
	}
	for slot := range min(slots, maxSlots) {
		q.Slots = append(q.Slots, q.slot(slot))
	}
	return q
}

// maxSlots bounds the slots that are drawn; a count that no program of ours
// writes may be far higher.
const maxSlots = 2 * quota.MaxShards

func grant(b *quota.Bucket, limit *quota.Limit, now int64) Grant {
	params, _ := limit.Effective(now) // Audit has evaluated it
	return Grant{
		Shard: b.Shard, Count: limit.GrantCount(b.ShardCount, params.Capacity), Current: limit.Current(b.RefilledAt, now),
		Covers: []int{}, Keeps: []int{},
	}
}

// slot finds the current grants that cover a slot: the one with the largest
// count has it, as the rule for donors says; what is wider lies beneath.
func (q *Quota) slot(index int) Slot {
	slot := Slot{Slot: index, Covers: []int{}, Beneath: []int{}}
	closest := 0
	for i := range q.Grants {
		g := &q.Grants[i]
		if g.Current && quota.Covers(g.Shard, g.Count, index) {
			g.Covers = append(g.Covers, index)
			closest = max(closest, g.Count)
		}
	}
	for i := range q.Grants {
		g := &q.Grants[i]
		switch {
		case !slices.Contains(g.Covers, index):
		case g.Count == closest:
			g.Keeps = append(g.Keeps, index)
			slot.Covers = append(slot.Covers, g.Shard)
		default:
			slot.Beneath = append(slot.Beneath, g.Shard)
		}
	}
	return slot
}

// events returns how many writes a usage item has counted.
func events(item table.Item) string {
	n, _ := item.Int(table.AttrTotalEvents)
	return strconv.FormatInt(n, 10)
}

func shardName(index int) string { return fmt.Sprintf("shard %d", index) }

func (s *Survey) readUsage(items []table.Item) {
	for i, item := range items {
		key, counters, err := table.ParseUsage(item)
		if err != nil {
			s.fault(fmt.Sprintf("usage item %d", i+1), err)
			continue
		}
		s.Usage = append(s.Usage, Usage{key.Window, key.Start, counters, events(item)})
	}
}

// NewestFirst sorts usage as a survey has it.
func NewestFirst(usage []Usage) {
	slices.SortFunc(usage, func(a, b Usage) int {
		return cmp.Or(strings.Compare(b.Start, a.Start), strings.Compare(b.Window, a.Window))
	})
}
