package table

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// Attributes of a usage item besides its counters. A counter is a number, named after
// its limit. Readers take every other number on the item for a counter too, so the
// item keeps its positions in the stream as strings.
const (
	AttrWindow      = "window"
	AttrWindowStart = "window_start"
	AttrTotalEvents = "total_events"
)

// UsageSK begins the sort key of every usage item.
const UsageSK = "#USAGE#"

// UsageKey names one usage item: what one (entity, resource) consumed in one
// window of time.
type UsageKey struct {
	Group
	Window string // hourly, daily or monthly
	Start  string // 2026-11-30T10:00:00Z
}

// PK is the usage item's partition key, that of its entity.
func (k UsageKey) PK() string { return k.Namespace + "/ENTITY#" + k.Entity }

// SK is the usage item's sort key.
func (k UsageKey) SK() string { return UsageSK + k.Resource + "#" + k.Start + "#" + k.Window }

// Usage is consumption to be counted once.
type Usage struct {
	Key      UsageKey
	Counters map[string]int64 // millitokens by limit name, net of refunds
	Events   int64            // writes that consumed or refunded anything
	Sources  []Source         // sorted by shard, none twice
	Expires  int64            // epoch seconds; 0 never
}

// Source is one bucket's part in a Usage: the records that the item is expected to have
// counted, and the ones that it has counted with this usage.
type Source struct {
	Shard int
	Found SeenRecords // as read; none where nothing was read, or nothing is there
	Next  SeenRecords // Found with the records of this usage
}

// Follows returns the bound at which this usage's records begin, if they are one range
// and nothing of the source was read. An item whose last range ends before that bound
// and meets it can count them without a read.
func (s Source) Follows() (first Bound, ok bool) {
	if len(s.Found) > 0 || len(s.Next) != 1 || s.Next[0].First.Total == "" {
		return Bound{}, false
	}
	return s.Next[0].First, true
}

// reservedUsage are the attributes of a usage item that no counter may be
// named like.
var reservedUsage = []string{
	AttrPK, AttrSK, AttrGSI2PK, AttrGSI2SK, AttrGSI4PK, AttrGSI4SK, "GSI1PK", "GSI1SK", AttrGSI3PK, AttrGSI3SK,
	AttrTTL, AttrEntityID, AttrResource, AttrWindow, AttrWindowStart, AttrTotalEvents,
}

// ReservedNames returns the names under which no limit can be counted.
func ReservedNames() []string { return slices.Clone(reservedUsage) }

// CanCount reports whether a limit of that name can have a counter on a usage
// item: the names of the item's own attributes cannot.
func CanCount(limit string) bool {
	return limit != "" && !strings.Contains(limit, "#") && !slices.Contains(reservedUsage, limit)
}

// Check returns an error if a counter has the name of one of the item's own attributes.
// The error wraps ErrItem.
func (u Usage) Check() error {
	for limit := range u.Counters {
		if !CanCount(limit) {
			return fmt.Errorf("%w: no counter can be named %q", ErrItem, limit)
		}
	}
	return nil
}

// Labels returns the attributes that identify a usage item, in the order in which they
// are written. All of them are strings.
func (k UsageKey) Labels() [][2]string {
	return [][2]string{
		{AttrEntityID, k.Entity},
		{AttrResource, k.Resource},
		{AttrWindow, k.Window},
		{AttrWindowStart, k.Start},
		{AttrGSI2PK, k.Namespace + "/RESOURCE#" + k.Resource},
		{AttrGSI2SK, "USAGE#" + k.Start + "#" + k.Entity},
		{AttrGSI4PK, k.Namespace},
		{AttrGSI4SK, k.PK()},
	}
}

// ParseUsage reads back a usage item's key and its counters, as the decimal
// text they are stored as. The error wraps ErrItem or ErrKey.
func ParseUsage(item Item) (UsageKey, map[string]string, error) {
	pk, sk := item.Key()
	namespace, _, ok := strings.Cut(pk, "/ENTITY#")
	if !ok || !strings.HasPrefix(sk, UsageSK) {
		return UsageKey{}, nil, fmt.Errorf("%w: not a usage item", ErrKey)
	}
	key := UsageKey{
		Group:  Group{namespace, item.Text(AttrEntityID), item.Text(AttrResource)},
		Window: item.Text(AttrWindow),
		Start:  item.Text(AttrWindowStart),
	}
	counters := map[string]string{}
	for name, value := range item {
		number, ok := value.(*types.AttributeValueMemberN)
		if ok && CanCount(name) {
			counters[name] = number.Value
		}
	}
	return key, counters, nil
}

// Tokens renders millitokens as tokens, exactly: 1500 is "1.5".
func Tokens(milli int64) string {
	sign := ""
	whole, part := milli/1000, milli%1000
	if milli < 0 {
		sign, whole, part = "-", -whole, -part
	}
	if part == 0 {
		return sign + strconv.FormatInt(whole, 10)
	}
	return sign + strconv.FormatInt(whole, 10) + "." + strings.TrimRight(fmt.Sprintf("%03d", part), "0")
}
