package quota

import (
	"cmp"
	"slices"
)

// Row is the ledger of one quota of one (entity, resource) in the current
// period, millitokens.
type Row struct {
	Limit     string `json:"limit"`
	Capacity  int64  `json:"capacity"`  // effective, undivided
	Held      int64  `json:"held"`      // balances of the shards whose grant is current
	Granted   int64  `json:"granted"`   // fresh grants, by disjoint coverage
	Grantable int64  `json:"grantable"` // the shares of uncovered slots, which can still be granted
	TopUp     int64  `json:"topup"`     // what an operator added to the shards whose grant is current
	Conserved bool   `json:"conserved"`
}

// LimitNames returns the names of the limits of some kind on any of the shards,
// sorted.
func LimitNames(shards []*Bucket, of func(*Limit) bool) []string {
	var names []string
	for _, b := range shards {
		for i := range b.Limits {
			if limit := &b.Limits[i]; of(limit) {
				names = append(names, limit.Name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// grantClass is the set of slots that a grant covers: those that equal residue
// modulo count.
type grantClass struct{ residue, count int }

// Audit computes the ledger of a quota from all shards of one (entity, resource).
// The ledger is conserved if what was granted and what can still be granted add up
// to the capacity, up to the rounding of a share, and no two fresh grants overlap.
// The error wraps ErrSchedule.
func Audit(name string, shards []*Bucket, now int64) (Row, error) {
	row := Row{Limit: name}
	count := 1
	var classes []grantClass
	for _, b := range shards {
		limit := b.Limit(name)
		if limit == nil || !limit.IsQuota() {
			continue
		}
		if b.Broken != nil {
			return Row{}, b.Broken
		}
		params, err := limit.Effective(now)
		if err != nil {
			return Row{}, err
		}
		if row.Capacity == 0 || b.Shard == 0 {
			row.Capacity = params.Capacity
		}
		count = max(count, b.ShardCount)
		if !limit.Current(b.RefilledAt, now) {
			continue
		}
		row.Held += limit.Balance
		row.TopUp += limit.TopUp
		grant := limit.GrantCount(b.ShardCount, params.Capacity)
		classes = append(classes, grantClass{b.Shard % grant, grant})
	}
	fresh, disjoint := outermost(classes)
	for _, class := range fresh {
		row.Granted += Share(row.Capacity, class.count)
	}
	uncovered := uncoveredSlots(fresh, count)
	row.Grantable = int64(uncovered) * Share(row.Capacity, count)
	rounding := int64(len(fresh) + uncovered)
	missing := row.Capacity - row.Granted - row.Grantable
	row.Conserved = disjoint && missing >= 0 && missing <= rounding
	return row, nil
}

// outermost returns the classes that lie in no other. A grant inside another one
// was moved off it and not granted afresh. disjoint is false where two shards were
// granted the same slots.
func outermost(classes []grantClass) (fresh []grantClass, disjoint bool) {
	slices.SortFunc(classes, func(a, b grantClass) int {
		return cmp.Or(cmp.Compare(a.count, b.count), cmp.Compare(a.residue, b.residue))
	})
	disjoint = true
	for i, class := range classes {
		if i > 0 && class == classes[i-1] {
			disjoint = false
			continue
		}
		inside := slices.ContainsFunc(fresh, func(outer grantClass) bool {
			return Covers(class.residue, outer.count, outer.residue)
		})
		if !inside {
			fresh = append(fresh, class)
		}
	}
	return fresh, disjoint
}

func uncoveredSlots(fresh []grantClass, count int) int {
	uncovered := 0
	for slot := range count {
		covered := slices.ContainsFunc(fresh, func(class grantClass) bool {
			return Covers(class.residue, class.count, slot)
		})
		if !covered {
			uncovered++
		}
	}
	return uncovered
}
