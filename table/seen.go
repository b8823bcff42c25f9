package table

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/shardquota/shardquota/quota"
)

// Attributes of a usage item that hold which records of one shard are counted
// in it. No limit name holds a #.
const (
	markPrefix = "mark#" // the end of the last run
	runsPrefix = "runs#" // the other ends of all runs
)

// PositionAttr is the attribute of a usage item that holds the last record of a
// shard that is counted.
func PositionAttr(shard int) string { return markPrefix + strconv.Itoa(shard) }

// RangesAttr is the attribute of a usage item that holds where the runs of a
// shard's counted records begin and end, but for the end of the last.
func RangesAttr(shard int) string { return runsPrefix + strconv.Itoa(shard) }

// Bound is one end of a run of counted records.
type Bound struct {
	Position string // of the record (events.Mark); "" is before any
	Total    string // Totals on the outer side of the record; "" where that is not known
}

// Range is a stretch of one shard's records that are all counted, from the first
// to the last, with what the bucket had consumed before the one and after the
// other.
type Range struct{ First, Last Bound }

// SeenRecords is which of a shard's records are counted in a usage item: sorted
// runs. Between two runs is a gap, in which records may be missing. Records
// before the first run are not counted, nor are those after the last.
type SeenRecords []Range

// MaxRanges bounds the runs that are kept of a shard. Beyond it the oldest gap is
// given up: what is in there will not be counted any more.
const MaxRanges = 32

// Has reports whether the record of that mark is counted.
func (c SeenRecords) Has(mark string) bool {
	return slices.ContainsFunc(c, func(r Range) bool { return r.First.Position <= mark && mark <= r.Last.Position })
}

// With returns what is counted when records are counted too, each a run of its
// own that c does not have. A record that goes on where a run ends, by its
// totals, becomes part of it: nothing was consumed between them. So, unless
// totals recur or there are too many runs, the runs follow from which records
// are counted, and not from the order in which they were or how many at once.
func (c SeenRecords) With(records ...Range) SeenRecords {
	all := append(slices.Clone(c), records...)
	slices.SortFunc(all, func(a, b Range) int { return strings.Compare(a.First.Position, b.First.Position) })
	next := all[:0] // never ahead of what is still to be read
	for _, run := range all {
		if last := len(next) - 1; last >= 0 && next[last].Last.meets(run.First) {
			next[last].Last = run.Last
			continue
		}
		next = append(next, run)
	}
	if spare := len(next) - MaxRanges; spare > 0 {
		next[spare].First = next[0].First
		next = next[spare:]
	}
	return next
}

// meets reports whether nothing was consumed between two edges.
func (e Bound) meets(other Bound) bool { return e.Total != "" && e.Total == other.Total }

// Texts are the values of the mark and of the runs attribute; an empty one is
// an absent attribute.
func (c SeenRecords) Texts() (mark, runs string) {
	if len(c) == 0 {
		return "", ""
	}
	var edges []string
	for _, run := range c {
		edges = append(edges, run.First.text(), run.Last.text())
	}
	last := len(edges) - 1
	return edges[last], strings.Join(edges[:last], ",")
}

func (e Bound) text() string {
	if e.Total == "" {
		return e.Position
	}
	return e.Position + " " + e.Total
}

// parseCounted is the inverse of Texts. Without runs all up to the mark is
// counted, so that nothing can be counted twice.
func parseCounted(mark, runs string) (c SeenRecords, ok bool) {
	if strings.Count(runs, ",") >= 2*MaxRanges {
		return nil, false // more than With keeps
	}
	edges := strings.Split(runs+","+mark, ",")
	if mark == "" || len(edges)%2 != 0 {
		return nil, false
	}
	for i := 0; i < len(edges); i += 2 {
		c = append(c, Range{parseEdge(edges[i]), parseEdge(edges[i+1])})
	}
	gotMark, gotRuns := c.Texts()
	return c, c.sorted() && gotMark == mark && gotRuns == runs
}

func parseEdge(text string) Bound {
	mark, total, _ := strings.Cut(text, " ")
	return Bound{mark, total}
}

func (c SeenRecords) sorted() bool {
	for i, run := range c {
		if run.Last.Position == "" || run.First.Position > run.Last.Position || i > 0 && run.First.Position <= c[i-1].Last.Position {
			return false
		}
	}
	return true
}

// SeenRecords returns which records a usage item has counted, by shard. The error
// wraps ErrItem where that cannot be told.
func (item Item) SeenRecords() (map[int]SeenRecords, error) {
	counted := map[int]SeenRecords{}
	for _, shard := range item.sources() {
		mark, runs := item.Text(PositionAttr(shard)), item.Text(RangesAttr(shard))
		broken := runs == "" && item[RangesAttr(shard)] != nil
		c, ok := parseCounted(mark, runs)
		if !ok || broken {
			return nil, fmt.Errorf("%w: which records of shard %d are counted cannot be read", ErrItem, shard)
		}
		counted[shard] = c
	}
	return counted, nil
}

// sources are the shards that a usage item has a mark of, in any order.
func (item Item) sources() []int {
	var shards []int
	for name := range item {
		if text, ok := strings.CutPrefix(name, markPrefix); ok {
			if shard, err := strconv.Atoi(text); err == nil {
				shards = append(shards, shard)
			}
		}
	}
	return shards
}

// LastPositions returns the mark of the last record that a usage item has counted of
// each shard.
func (item Item) LastPositions() map[int]string {
	marks := map[int]string{}
	for _, shard := range item.sources() {
		marks[shard] = parseEdge(item.Text(PositionAttr(shard))).Position
	}
	return marks
}

// Totals is a fingerprint of what the bucket's limits have consumed so far, as
// far as it is usage: 11 letters, digits, dashes or underscores. A write that
// consumes something changes it, and so does a limit that comes or goes: its
// total goes with it, which would look like a use that was given back.
func Totals(b *quota.Bucket) string {
	return totals(b.Limits, func(l *quota.Limit) int64 { return l.Consumed })
}

// TotalsBefore is Totals of what a write found. Where that was no bucket, it is
// that of the new one when nothing of it was used.
func TotalsBefore(old, written *quota.Bucket) string {
	if old != nil {
		return Totals(old)
	}
	return totals(written.Limits, func(*quota.Limit) int64 { return 0 })
}

func totals(limits []quota.Limit, consumed func(*quota.Limit) int64) string {
	var usual [256]byte
	text := usual[:0]
	for i := range limits {
		limit := &limits[i]
		if limit.Name != quota.WriteMeter && CanCount(limit.Name) {
			text = append(strconv.AppendQuote(text, limit.Name), ' ')
			text = append(strconv.AppendInt(text, consumed(limit), 10), '\n')
		}
	}
	sum := sha256.Sum256(text)
	return base64.RawURLEncoding.EncodeToString(sum[:8])
}
