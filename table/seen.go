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
	positionPrefix = "mark#" // the upper bound of the last range
	rangesPrefix   = "runs#" // all other bounds
)

// PositionAttr names the attribute of a usage item that holds the last counted
// record of a shard.
func PositionAttr(shard int) string { return positionPrefix + strconv.Itoa(shard) }

// RangesAttr names the attribute of a usage item that holds the bounds of a
// shard's ranges, without the upper bound of the last.
func RangesAttr(shard int) string { return rangesPrefix + strconv.Itoa(shard) }

// Bound is one end of a range.
type Bound struct {
	Position string // of the record (events.StreamPosition); "" is before any
	Total    string // Totals outside the range, next to the record; "" where unknown
}

// Range is a stretch of one shard's records, from the first to the last, that a
// usage item has counted. It holds what the bucket had consumed before the first
// and after the last.
type Range struct{ First, Last Bound }

// SeenRecords says which of a shard's records a usage item has counted: sorted
// ranges. Records may be missing in the gap between two ranges. No record before
// the first range or after the last is counted.
type SeenRecords []Range

// MaxRanges bounds the ranges of a shard that an item stores. Beyond it With gives
// up the oldest gap: records in it are never counted.
const MaxRanges = 32

// Has reports whether the record at that stream position is counted.
func (c SeenRecords) Has(position string) bool {
	return slices.ContainsFunc(c, func(r Range) bool { return r.First.Position <= position && position <= r.Last.Position })
}

// With returns c with more records counted, each a range of its own that c does
// not have. A record whose totals show that nothing was consumed between it and a
// range joins that range. So the ranges depend on which records are counted, and
// not on their order or on how many came at once. Exceptions are totals that
// recur, and too many ranges.
func (c SeenRecords) With(records ...Range) SeenRecords {
	all := append(slices.Clone(c), records...)
	slices.SortFunc(all, func(a, b Range) int { return strings.Compare(a.First.Position, b.First.Position) })
	next := all[:0] // never longer than what the loop has read
	for _, r := range all {
		if last := len(next) - 1; last >= 0 && next[last].Last.meets(r.First) {
			next[last].Last = r.Last
			continue
		}
		next = append(next, r)
	}
	if spare := len(next) - MaxRanges; spare > 0 {
		next[spare].First = next[0].First
		next = next[spare:]
	}
	return next
}

// meets reports whether nothing was consumed between two bounds.
func (e Bound) meets(other Bound) bool { return e.Total != "" && e.Total == other.Total }

// Texts returns the values of the attributes PositionAttr and RangesAttr. An empty
// text is an absent attribute.
func (c SeenRecords) Texts() (last, others string) {
	if len(c) == 0 {
		return "", ""
	}
	var bounds []string
	for _, r := range c {
		bounds = append(bounds, r.First.text(), r.Last.text())
	}
	n := len(bounds) - 1
	return bounds[n], strings.Join(bounds[:n], ",")
}

func (e Bound) text() string {
	if e.Total == "" {
		return e.Position
	}
	return e.Position + " " + e.Total
}

// parseSeen is the inverse of Texts. Without other bounds all records up to the
// last are counted, so that none can be counted twice.
func parseSeen(last, others string) (c SeenRecords, ok bool) {
	if strings.Count(others, ",") >= 2*MaxRanges {
		return nil, false // more than With returns
	}
	bounds := strings.Split(others+","+last, ",")
	if last == "" || len(bounds)%2 != 0 {
		return nil, false
	}
	for i := 0; i < len(bounds); i += 2 {
		c = append(c, Range{parseBound(bounds[i]), parseBound(bounds[i+1])})
	}
	gotLast, gotOthers := c.Texts()
	return c, c.sorted() && gotLast == last && gotOthers == others
}

func parseBound(text string) Bound {
	position, total, _ := strings.Cut(text, " ")
	return Bound{position, total}
}

func (c SeenRecords) sorted() bool {
	for i, r := range c {
		if r.Last.Position == "" || r.First.Position > r.Last.Position || i > 0 && r.First.Position <= c[i-1].Last.Position {
			return false
		}
	}
	return true
}

// SeenRecords returns which records a usage item has counted, by shard. The error
// wraps ErrItem where that cannot be read.
func (item Item) SeenRecords() (map[int]SeenRecords, error) {
	seen := map[int]SeenRecords{}
	for _, shard := range item.sources() {
		last, others := item.Text(PositionAttr(shard)), item.Text(RangesAttr(shard))
		broken := others == "" && item[RangesAttr(shard)] != nil
		c, ok := parseSeen(last, others)
		if !ok || broken {
			return nil, fmt.Errorf("%w: which records of shard %d are counted cannot be read", ErrItem, shard)
		}
		seen[shard] = c
	}
	return seen, nil
}

// sources returns the shards of which a usage item has counted records, in any
// order.
func (item Item) sources() []int {
	var shards []int
	for name := range item {
		if text, ok := strings.CutPrefix(name, positionPrefix); ok {
			if shard, err := strconv.Atoi(text); err == nil {
				shards = append(shards, shard)
			}
		}
	}
	return shards
}

// LastPositions returns the stream position of the last record that a usage item
// has counted of each shard.
func (item Item) LastPositions() map[int]string {
	positions := map[int]string{}
	for _, shard := range item.sources() {
		positions[shard] = parseBound(item.Text(PositionAttr(shard))).Position
	}
	return positions
}

// Totals returns a fingerprint of what the bucket's limits have consumed so far,
// as far as usage counts it: 11 letters, digits, dashes or underscores. Each write
// that consumes something changes it. So does a limit that comes or goes with its
// total, which would look like a refund.
func Totals(b *quota.Bucket) string {
	return totals(b.Limits, func(l *quota.Limit) int64 { return l.Consumed })
}

// TotalsBefore returns the Totals of the bucket before a write. Where there was
// none, it returns those of the new bucket with nothing used.
func TotalsBefore(old, written *quota.Bucket) string {
	if old != nil {
		return Totals(old)
	}
	return totals(written.Limits, func(*quota.Limit) int64 { return 0 })
}

func totals(limits []quota.Limit, consumed func(*quota.Limit) int64) string {
	var usual [256]byte // saves an allocation
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
