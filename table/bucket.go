package table

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/quota"
)

// Attributes of a bucket item.
const (
	AttrEntityID   = "entity_id"
	AttrResource   = "resource"
	AttrShardCount = "shard_count"
	AttrDisabled   = "disabled"
	AttrBypass     = "bypass"
	AttrCascade    = "cascade"
	AttrParentID   = "parent_id"
	AttrRefilledAt = "rf"
	AttrValidUntil = "vu"
	AttrSchedule   = "sched"
	AttrResets     = "rsched"
	AttrZone       = "sched_tz"
)

// Field is the last part of a limit's attribute name, b_{limit}_{field}.
type Field string

// Fields of a limit on a bucket item.
const (
	FieldBalance        Field = "tk"
	FieldConsumed       Field = "tc"
	FieldCapacity       Field = "cp"
	FieldRefill         Field = "ra"
	FieldPeriod         Field = "rp"
	FieldSchedule       Field = "sched"
	FieldResets         Field = "rsched"
	FieldStart          Field = "ws"
	FieldLength         Field = "rsa"
	FieldApplied        Field = "wa"
	FieldConsumedAtOpen Field = "wtc"
	FieldGrant          Field = "gc"
	FieldTopUp          Field = "tu"
	FieldSoft           Field = "soft"
	FieldDivision       Field = "div"

	FieldResetCount Field = "rn" // how many resets an operator made
)

// noSchedule is the value of a limit's schedule attribute that keeps the item's
// default off the limit.
const noSchedule = "-"

const limitPrefix = "b_"

// Attr is the attribute that holds a field of a limit.
func Attr(limit string, field Field) string { return limitPrefix + limit + "_" + string(field) }

// SplitAttr is the inverse of Attr, ok is false for an attribute of no limit. A
// limit's name may hold underscores; a field never does.
func SplitAttr(name string) (limit string, field Field, ok bool) {
	rest, ok := strings.CutPrefix(name, limitPrefix)
	if !ok {
		return "", "", false
	}
	at := strings.LastIndexByte(rest, '_')
	if at <= 0 {
		return "", "", false
	}
	return rest[:at], Field(rest[at+1:]), true
}

// ErrItem says that an item cannot be read as what its key says it is. Its
// text names the attribute's field and the cause, never a value.
var ErrItem = errors.New("malformed item")

// maxCount bounds stored shard counts and grant counts. It is far above
// quota.MaxShards, which older programs did not keep to.
const maxCount = 1 << 16

// maxLimits bounds the limits on an item. Each takes five attributes of some 10
// bytes, and an item has 400 KB.
const maxLimits = 10_000

// Bucket is a bucket item: the fields that the rules need, and the item itself, which
// also holds what a newer client put on it.
type Bucket struct {
	Key Key
	quota.Bucket
	Item Item
}

// DecodeBucket reads a bucket item. A schedule that does not parse does not
// fail the item: it is reported in the bucket's Broken. The error wraps
// ErrItem or ErrKey.
func DecodeBucket(item Item) (*Bucket, error) {
	pk, sk := item.Key()
	if sk != StateSK {
		return nil, fmt.Errorf("%w: not a bucket", ErrKey)
	}
	key, err := ParseKey(pk)
	if err != nil {
		return nil, err
	}
	names := limitNames(item)
	if len(names) > maxLimits {
		return nil, fmt.Errorf("%w: limits: more than %d", ErrItem, maxLimits)
	}
	r := reader{item: item}
	b := &Bucket{Key: key, Item: item, Bucket: quota.Bucket{
		Shard:      key.Shard,
		ShardCount: r.count(),
		RefilledAt: r.natural(AttrRefilledAt, quota.MaxTime),
		ValidUntil: r.optional(AttrValidUntil, quota.MaxTime),
		Disabled:   r.flag(AttrDisabled),
		Bypass:     r.stamp(AttrBypass),
		Expires:    expiryOf(item),
	}}
	for _, name := range names {
		limit, broken := r.limit(name)
		b.Limits = append(b.Limits, limit)
		if broken != nil && b.Broken == nil {
			b.Broken = broken
		}
	}
	if r.err == nil && len(b.Limits) == 0 {
		r.fail("limits", "there are none")
	}
	if r.err != nil {
		return nil, r.err
	}
	return b, nil
}

// expiryOf reads when an item expires. As DynamoDB does, it takes what is no number
// for none.
func expiryOf(item Item) *int64 {
	if expires, ok := item.Int(AttrTTL); ok && expires >= 0 && expires <= quota.MaxTime/1000 {
		return &expires
	}
	return nil
}

// ShardCount reads a bucket item's shard count: 1 where it is absent or less.
// The error wraps ErrItem.
func (item Item) ShardCount() (int, error) {
	r := reader{item: item}
	count := r.count()
	return count, r.err
}

// limitNames lists the limits on a bucket item, sorted: those with a balance
// and a capacity.
func limitNames(item Item) []string {
	var names []string
	for attr := range item {
		name, field, ok := SplitAttr(attr)
		if ok && field == FieldBalance && item[Attr(name, FieldCapacity)] != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// reader reads attributes and keeps the first thing that is wrong.
type reader struct {
	item Item
	err  error

	schedules parsed[quota.Schedule] // the item's defaults
	calendars parsed[quota.Resets]
}

// parsed is an item's default, read once. Every limit without one of its own takes it
// over, and its text may be long.
type parsed[T any] struct {
	done  bool
	value T
	err   error
}

func (r *reader) fail(what, cause string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s: %s", ErrItem, shortened(what), cause)
	}
}

// maxName bounds what an error holds of an attribute's or a limit's name, in
// bytes. Clients give limits names of up to 64.
const maxName = 80

func shortened(name string) string {
	shown := Printable(name[:min(len(name), maxName)])
	if max(len(name), len(shown)) <= maxName {
		return shown
	}
	return strings.ToValidUTF8(shown[:min(len(shown), maxName)], "") + "…"
}

func (r *reader) count() int { return max(1, int(r.number(AttrShardCount, 1, maxCount))) }

func (r *reader) limit(name string) (limit quota.Limit, broken error) {
	at := func(field Field) string { return Attr(name, field) }
	limit = quota.Limit{
		Name:     name,
		Balance:  r.number(at(FieldBalance), 0, quota.MaxAmount),
		Consumed: r.number(at(FieldConsumed), 0, quota.MaxAmount),
		Base: quota.Params{
			Capacity: r.natural(at(FieldCapacity), quota.MaxAmount),
			Refill:   r.natural(at(FieldRefill), quota.MaxAmount),
			Period:   r.natural(at(FieldPeriod), quota.MaxTime),
		},
		TopUp:    r.natural(at(FieldTopUp), quota.MaxAmount),
		Soft:     r.soft(at(FieldSoft)),
		Division: r.division(at(FieldDivision)),

		ResetCount: r.natural(at(FieldResetCount), quota.MaxAmount),
	}
	if grant := r.optional(at(FieldGrant), maxCount); grant != nil {
		limit.Grant = new(int(*grant))
	}
	if name == quota.WriteMeter {
		return limit, nil
	}
	var unscheduled, unreset error
	limit.Schedule, unscheduled = r.schedule(name)
	limit.Resets, unreset = r.resets(name)
	if limit.Resets.Empty() && unreset == nil {
		limit.Window = quota.Window{
			Length:         1000 * r.natural(at(FieldLength), quota.MaxTime/1000),
			Start:          r.optional(at(FieldStart), quota.MaxTime),
			Applied:        r.optional(at(FieldApplied), quota.MaxTime),
			ConsumedAtOpen: r.optional(at(FieldConsumedAtOpen), quota.MaxAmount),
		}
	}
	return limit, cmp.Or(unscheduled, unreset)
}

func (r *reader) schedule(limit string) (quota.Schedule, error) {
	schedule, err := inherited(r, &r.schedules, Attr(limit, FieldSchedule), AttrSchedule, quota.ParseSchedule)
	if err != nil {
		err = fmt.Errorf("%w: schedule of limit %s: %w", quota.ErrSchedule, shortened(limit), err)
	}
	return schedule, err
}

// resets reads a limit's reset schedule in the same way. That its schedule
// cannot be read does not keep it from being known as a quota.
func (r *reader) resets(limit string) (quota.Resets, error) {
	resets, err := inherited(r, &r.calendars, Attr(limit, FieldResets), AttrResets, quota.ParseResets)
	if err != nil {
		err = fmt.Errorf("%w: reset schedule of limit %s: %w", quota.ErrSchedule, shortened(limit), err)
	}
	return resets, err
}

// inherited reads a limit's own attribute, or the item's default unless the
// limit is marked as having none.
func inherited[T any](r *reader, common *parsed[T], own, fallback string, parse func(compact, zone string) (T, error)) (value T, err error) {
	switch text := r.string(own); text {
	case noSchedule:
		return value, nil
	case "":
		if !common.done {
			common.value, common.err = parse(r.string(fallback), r.string(AttrZone))
			common.done = true
		}
		return common.value, common.err
	default:
		return parse(text, r.string(AttrZone))
	}
}

func (r *reader) string(name string) string {
	value, present := r.item[name]
	if !present {
		return ""
	}
	text, ok := value.(*types.AttributeValueMemberS)
	if !ok {
		r.fail(name, "not a string")
		return ""
	}
	return text.Value
}

// division reads how a limit is divided. It keeps a text that names no known
// division, and reads a value of another type as such a text.
func (r *reader) division(name string) quota.Division {
	switch value := r.item[name].(type) {
	case nil:
		return quota.Divided
	case *types.AttributeValueMemberS:
		return quota.ParseDivision(value.Value)
	default:
		return "not a string"
	}
}

// softRunOut is what a soft stamp without a time reads as: a time that has passed.
// Early clients wrote a plain true. Their later versions no longer trust it.
const softRunOut = 1

// soft reads until when a limit is soft, epoch ms; 0 is never.
func (r *reader) soft(name string) int64 {
	if r.flag(name) {
		return softRunOut
	}
	if _, isFlag := r.item[name].(*types.AttributeValueMemberBOOL); isFlag {
		return 0
	}
	return r.natural(name, quota.MaxTime)
}

// stamp reads a deadline, 0 where there is no number.
func (r *reader) stamp(name string) int64 {
	if _, isNumber := r.item[name].(*types.AttributeValueMemberN); !isNumber {
		return 0
	}
	return r.natural(name, quota.MaxTime)
}

func (r *reader) flag(name string) bool { return r.item.Flag(name) }

// number reads a whole number of at most limit on either side of zero, or
// fallback where the attribute is absent.
func (r *reader) number(name string, fallback, limit int64) int64 {
	if value := r.optional(name, limit); value != nil {
		return *value
	}
	return fallback
}

func (r *reader) natural(name string, limit int64) int64 {
	value := r.number(name, 0, limit)
	if value < 0 {
		r.fail(name, "negative")
	}
	return value
}

func (r *reader) optional(name string, limit int64) *int64 {
	value, present := r.item[name]
	if !present {
		return nil
	}
	number, ok := value.(*types.AttributeValueMemberN)
	if !ok {
		r.fail(name, "not a number")
		return nil
	}
	parsed, err := strconv.ParseInt(number.Value, 10, 64)
	switch {
	case err != nil:
		r.fail(name, "not a whole number of 64 bits")
	case parsed > limit || parsed < -limit:
		r.fail(name, "out of range")
	}
	return &parsed
}

// Fill writes the bucket's fields back to its item, so that a bucket that was decoded
// and changed can be stored. Everything else on the item stays, its schedules too.
func (b *Bucket) Fill() {
	setNumber := func(name string, value int64) { b.Item[name] = N(strconv.FormatInt(value, 10)) }
	setOptional := func(name string, value *int64) {
		if value == nil {
			delete(b.Item, name)
			return
		}
		setNumber(name, *value)
	}
	for name, value := range b.Key.Keys() {
		b.Item[name] = S(value)
	}
	setNumber(AttrShardCount, int64(b.ShardCount))
	setNumber(AttrRefilledAt, b.RefilledAt)
	setOptional(AttrValidUntil, b.ValidUntil)
	for i := range b.Limits {
		l := &b.Limits[i]
		setNumber(Attr(l.Name, FieldBalance), l.Balance)
		setNumber(Attr(l.Name, FieldConsumed), l.Consumed)
		setOptional(Attr(l.Name, FieldGrant), widen(l.Grant))
		setOptional(Attr(l.Name, FieldTopUp), nonzero(l.TopUp))
		if l.Kind() == quota.Session {
			setOptional(Attr(l.Name, FieldStart), l.Window.Start)
			setOptional(Attr(l.Name, FieldApplied), l.Window.Applied)
			setOptional(Attr(l.Name, FieldConsumedAtOpen), l.Window.ConsumedAtOpen)
		}
	}
}

func nonzero(n int64) *int64 {
	if n == 0 {
		return nil
	}
	return &n
}

func widen(n *int) *int64 {
	if n == nil {
		return nil
	}
	return new(int64(*n))
}
