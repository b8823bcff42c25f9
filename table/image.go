package table

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/shardquota/shardquota/quota"
)

// Image is a bucket item as a stream record shows it: the fields that the rules need,
// and the text of the record, from which DecodeFull reads the rest.
type Image struct {
	Key Key
	quota.Bucket
	text  []byte
	whole *Bucket // where it is decoded already
}

// Image returns the bucket as an image without a text, nil for none. The caller
// changes neither of the two.
func (b *Bucket) Image() *Image {
	if b == nil {
		return nil
	}
	return &Image{Key: b.Key, Bucket: b.Bucket, whole: b}
}

// DecodeFull returns the image with its whole item. What the rules need of it is
// decoded already. The error wraps ErrJSON.
func (i *Image) DecodeFull() (*Bucket, error) {
	if i.whole != nil {
		return i.whole, nil
	}
	item, err := ParseItem(i.text)
	if err != nil {
		return nil, err
	}
	full := &Bucket{Key: i.Key, Item: item, Bucket: i.Bucket}
	full.Limits = slices.Clone(i.Limits)
	return full, nil
}

// decodeText decodes an image's text as any item's. The error wraps ErrJSON,
// ErrItem or ErrKey.
func decodeText(text []byte) (*Bucket, error) {
	item, err := ParseItem(text)
	if err != nil {
		return nil, err
	}
	return DecodeBucket(item)
}

// Images decodes the images of one batch, which is nearly all of a batch's work. It
// reads the fields straight out of the text and makes no attribute values. It keeps
// texts that repeat: keys, limit names, schedules. It is not safe for concurrent use.
//
// Images reads items as DynamoDB writes them. It leaves all others, and every error,
// to ParseItem and DecodeBucket. Tests compare it with those two.
type Images struct {
	keys      map[string]Key
	names     map[string]string
	schedules map[string]quota.Schedule // by zone and text
	resets    map[string]quota.Resets
	buffer    []byte

	numbers []int64 // what the pointers of buckets point to, many at once
	grants  []int
	limits  []quota.Limit // of buckets, many at once
	item    scannedItem
}

// NewImages returns a decoder for one batch.
func NewImages() *Images {
	return &Images{
		keys: map[string]Key{}, names: map[string]string{},
		schedules: map[string]quota.Schedule{}, resets: map[string]quota.Resets{},
	}
}

// Text returns the text that the image was read from, nil where it was made of a
// bucket.
func (i *Image) Text() []byte { return i.text }

// Decode reads an image. It keeps the text, which must not change. The error
// wraps ErrJSON, ErrItem or ErrKey.
func (d *Images) Decode(text []byte) (*Image, error) {
	if image := d.scan(text); image != nil {
		return image, nil
	}
	b, err := decodeText(text)
	if err != nil {
		return nil, err
	}
	return &Image{Key: b.Key, Bucket: b.Bucket, text: text, whole: b}, nil
}

// Keys reads a record's keys. bucket is false where they are of another item
// kind; the key is none where they are malformed. The error wraps ErrJSON.
func (d *Images) Keys(text []byte) (key Key, bucket bool, err error) {
	d.item = scannedItem{limits: d.item.limits[:0]}
	if d.scanned(text) {
		if string(d.item.sk) != StateSK {
			return Key{}, false, nil
		}
		if key, ok := d.key(d.item.pk); ok {
			return key, true, nil
		}
	}
	item, err := ParseItem(text)
	if err != nil {
		return Key{}, false, err
	}
	pk, sk := item.Key()
	if sk != StateSK {
		return Key{}, false, nil
	}
	key, _ = ParseKey(pk) // its images have it too, and say what is wrong
	return key, true, nil
}

// scannedItem is an item taken apart: pieces of its text.
type scannedItem struct {
	pk, sk              []byte
	schedule, resets    []byte
	zone                []byte
	count, refilled     int64
	valid, bypass       int64
	expires             int64
	isValid, isDisabled bool
	isExpiring          bool
	limits              []scannedLimit
}

// scannedLimit is one limit of an item.
type scannedLimit struct {
	name             string
	has              [numberFields]bool
	number           [numberFields]int64
	schedule, resets []byte
	division         quota.Division
}

// The numbers of a limit.
const (
	numBalance = iota
	numConsumed
	numCapacity
	numRefill
	numPeriod
	numStart
	numLength
	numApplied
	numMark
	numGrant
	numTopUp
	numSoft
	numResetCount
	numberFields
)

// bounds are the least and the most that a number may be, as DecodeBucket has
// it; what is out of them is left to that.
var bounds = [numberFields][2]int64{
	numBalance: {-quota.MaxAmount, quota.MaxAmount}, numConsumed: {-quota.MaxAmount, quota.MaxAmount},
	numCapacity: {0, quota.MaxAmount}, numRefill: {0, quota.MaxAmount}, numPeriod: {0, quota.MaxTime},
	numStart: {-quota.MaxTime, quota.MaxTime}, numLength: {0, quota.MaxTime / 1000}, numApplied: {-quota.MaxTime, quota.MaxTime},
	numMark: {-quota.MaxAmount, quota.MaxAmount}, numGrant: {-maxCount, maxCount}, numTopUp: {0, quota.MaxAmount},
	numSoft: {0, quota.MaxTime}, numResetCount: {0, quota.MaxAmount},
}

// maxScanned bounds the limits of an item that is scanned.
const maxScanned = 64

// scan decodes a text as DynamoDB writes it, nil where it is another, or wrong.
func (d *Images) scan(text []byte) *Image {
	d.item = scannedItem{count: 1, limits: d.item.limits[:0]}
	if !d.scanned(text) {
		return nil
	}
	return d.image(text)
}

// scanned takes a text apart, and reports whether it could.
func (d *Images) scanned(text []byte) bool {
	if len(text) > maxItem || bytes.IndexByte(text, '\\') >= 0 || !plain(text) {
		return false
	}
	s := scanner{text: text}
	if !s.take('{') {
		return false
	}
	for {
		name, ok := s.string()
		if !ok || !s.take(':') || !s.take('{') {
			return false
		}
		kind, ok := s.string()
		if !ok || len(kind) == 0 || !s.take(':') {
			return false
		}
		value, ok := s.value(kind)
		if !ok || !s.take('}') || !d.attribute(name, kind[0], value) {
			return false
		}
		if s.take('}') {
			return s.at == len(text)
		}
		if !s.take(',') {
			return false
		}
	}
}

// plain reports whether a text is printable ASCII: without white space between
// tokens, control characters in strings, and bytes that may be no UTF-8.
func plain(text []byte) bool {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	for ; len(text) >= 8; text = text[8:] {
		word := binary.LittleEndian.Uint64(text)
		if (word|(word-0x20*ones))&tops != 0 {
			return false
		}
	}
	for _, b := range text {
		if b < ' ' || b >= 0x80 {
			return false
		}
	}
	return true
}

// scanner takes tokens off a text that holds no escape and no white space but
// blanks in strings.
type scanner struct {
	text []byte
	at   int
}

func (s *scanner) take(b byte) bool {
	if s.at < len(s.text) && s.text[s.at] == b {
		s.at++
		return true
	}
	return false
}

func (s *scanner) string() ([]byte, bool) {
	if !s.take('"') {
		return nil, false
	}
	n := bytes.IndexByte(s.text[s.at:], '"')
	if n < 0 {
		return nil, false
	}
	value := s.text[s.at : s.at+n]
	s.at += n + 1
	return value, true
}

// value reads what stands behind a type: text, or for booleans the word.
func (s *scanner) value(kind []byte) ([]byte, bool) {
	switch string(kind) {
	case "S", "N":
		return s.string()
	case "BOOL", "NULL":
		for _, word := range []string{"true", "false"} {
			if end := s.at + len(word); end <= len(s.text) && string(s.text[s.at:end]) == word {
				value := s.text[s.at:end]
				s.at = end
				return value, true
			}
		}
	}
	return nil, false
}

// attribute keeps an attribute that matters; false where it is one of another
// type or out of bounds. Kinds are told by their first letter.
func (d *Images) attribute(name []byte, kind byte, value []byte) bool {
	if len(name) > 2 && name[0] == 'b' && name[1] == '_' {
		return d.limitAttribute(name[2:], kind, value)
	}
	i := &d.item
	ok := true
	switch string(name) {
	case AttrPK:
		i.pk = value
		return kind == 'S'
	case AttrSK:
		i.sk = value
		return kind == 'S'
	case AttrSchedule:
		i.schedule = value
		return kind == 'S'
	case AttrResets:
		i.resets = value
		return kind == 'S'
	case AttrZone:
		i.zone = value
		return kind == 'S'
	case AttrShardCount:
		i.count, ok = number(kind, value, -maxCount, maxCount)
	case AttrRefilledAt:
		i.refilled, ok = number(kind, value, 0, quota.MaxTime)
	case AttrValidUntil:
		i.valid, ok = number(kind, value, -quota.MaxTime, quota.MaxTime)
		i.isValid = true
	case AttrDisabled:
		i.isDisabled = kind == 'B' && value[0] == 't'
	case AttrTTL:
		i.expires, ok = number(kind, value, 0, quota.MaxTime/1000)
		i.isExpiring = true
	case AttrBypass:
		if i.bypass = 0; kind == 'N' {
			i.bypass, ok = number(kind, value, 0, quota.MaxTime)
		}
	}
	return ok
}

// number reads a whole number within bounds.
func number(kind byte, value []byte, least, most int64) (n int64, ok bool) {
	digits, negative := value, false
	if len(digits) > 0 && digits[0] == '-' {
		digits, negative = digits[1:], true
	}
	if kind != 'N' || len(digits) == 0 || len(digits) > 18 { // always fits
		return 0, false
	}
	for _, b := range digits {
		if b < '0' || b > '9' {
			return 0, false
		}
		n = 10*n + int64(b-'0')
	}
	if negative {
		n = -n
	}
	return n, least <= n && n <= most
}

// limitAttribute keeps an attribute of a limit, of which name is what follows
// b_.
func (d *Images) limitAttribute(name []byte, kind byte, value []byte) bool {
	at := bytes.LastIndexByte(name, '_')
	if at <= 0 {
		return true
	}
	field := name[at+1:]
	switch string(field) {
	case string(FieldSchedule), string(FieldResets):
		limit := d.limit(name[:at])
		if limit == nil || kind != 'S' {
			return false
		}
		if len(field) == len(FieldSchedule) {
			limit.schedule = value
		} else {
			limit.resets = value
		}
		return true
	}
	if string(field) == string(FieldDivision) {
		limit := d.limit(name[:at])
		if limit == nil || kind != 'S' {
			return false
		}
		limit.division = parsedDivision(value)
		return true
	}
	index := numberField(field)
	if index < 0 {
		return true
	}
	limit := d.limit(name[:at])
	if limit == nil {
		return false
	}
	limit.has[index] = true
	if index == numSoft && kind == 'B' {
		if limit.number[index] = 0; value[0] == 't' {
			limit.number[index] = softRunOut
		}
		return true
	}
	var ok bool
	limit.number[index], ok = number(kind, value, bounds[index][0], bounds[index][1])
	return ok
}

// parsedDivision allocates nothing for a known division.
func parsedDivision(value []byte) quota.Division {
	switch string(value) {
	case string(quota.Replicated):
		return quota.Replicated
	case string(quota.Pooled):
		return quota.Pooled
	}
	return quota.ParseDivision(string(value))
}

func numberField(field []byte) int {
	switch string(field) {
	case string(FieldBalance):
		return numBalance
	case string(FieldConsumed):
		return numConsumed
	case string(FieldCapacity):
		return numCapacity
	case string(FieldRefill):
		return numRefill
	case string(FieldPeriod):
		return numPeriod
	case string(FieldStart):
		return numStart
	case string(FieldLength):
		return numLength
	case string(FieldApplied):
		return numApplied
	case string(FieldConsumedAtOpen):
		return numMark
	case string(FieldGrant):
		return numGrant
	case string(FieldTopUp):
		return numTopUp
	case string(FieldSoft):
		return numSoft
	case string(FieldResetCount):
		return numResetCount
	}
	return -1
}

// limit is what is known so far of the limit of that name, nil where there are
// too many.
func (d *Images) limit(name []byte) *scannedLimit {
	limits := d.item.limits
	for i := len(limits) - 1; i >= 0; i-- {
		if limits[i].name == string(name) {
			return &limits[i]
		}
	}
	if len(limits) == maxScanned {
		return nil
	}
	known, ok := d.names[string(name)]
	if !ok {
		known = string(name)
		d.names[known] = known
	}
	d.item.limits = append(limits, scannedLimit{name: known})
	return &d.item.limits[len(limits)]
}

// image makes the image of what was scanned, nil where something is wrong.
func (d *Images) image(text []byte) *Image {
	i := &d.item
	key, ok := d.key(i.pk)
	if !ok || string(i.sk) != StateSK {
		return nil
	}
	image := &Image{Key: key, text: text, Bucket: quota.Bucket{
		Shard: key.Shard, ShardCount: max(1, int(i.count)), RefilledAt: i.refilled, Disabled: i.isDisabled, Bypass: i.bypass,
	}}
	if i.isValid {
		image.ValidUntil = d.point(i.valid)
	}
	if i.isExpiring {
		image.Expires = d.point(i.expires)
	}
	slices.SortFunc(i.limits, func(a, b scannedLimit) int { return strings.Compare(a.name, b.name) })
	image.Limits = d.room(len(i.limits))
	for at := range i.limits {
		scanned := &i.limits[at]
		if !scanned.has[numBalance] || !scanned.has[numCapacity] {
			continue
		}
		image.Limits = append(image.Limits, quota.Limit{})
		if !d.fill(&image.Limits[len(image.Limits)-1], scanned) {
			return nil
		}
	}
	if len(image.Limits) == 0 {
		return nil
	}
	d.limits = d.limits[:len(d.limits)+len(image.Limits)]
	image.Limits = slices.Clip(image.Limits) // what follows is for the next
	return image
}

// room is an empty list of limits with room for n, of which d.limits is made to
// hold those that are used. It makes room for ever more, since some decode but one
// record.
func (d *Images) room(n int) []quota.Limit {
	if cap(d.limits)-len(d.limits) < n {
		d.limits = make([]quota.Limit, 0, max(n, min(2*cap(d.limits), slab)))
	}
	at := len(d.limits)
	return d.limits[at : at : at+n]
}

func (d *Images) key(pk []byte) (Key, bool) {
	if key, ok := d.keys[string(pk)]; ok {
		return key, true
	}
	text := string(pk)
	key, err := ParseKey(text)
	if err != nil {
		return Key{}, false
	}
	d.keys[text] = key
	return key, true
}

// fill writes a limit.
func (d *Images) fill(l *quota.Limit, s *scannedLimit) bool {
	l.Name, l.Balance, l.Consumed = s.name, s.number[numBalance], s.number[numConsumed]
	l.Base = quota.Params{Capacity: s.number[numCapacity], Refill: s.number[numRefill], Period: s.number[numPeriod]}
	l.TopUp, l.Soft, l.ResetCount = s.number[numTopUp], s.number[numSoft], s.number[numResetCount]
	l.Division = s.division
	if s.has[numGrant] {
		l.Grant = d.pointInt(int(s.number[numGrant]))
	}
	if l.Name == quota.WriteMeter {
		return true
	}
	var ok bool
	if l.Schedule, ok = reused(d, d.schedules, s.schedule, d.item.schedule, quota.ParseSchedule); !ok {
		return false
	}
	if l.Resets, ok = reused(d, d.resets, s.resets, d.item.resets, quota.ParseResets); !ok || !l.Resets.Empty() {
		return ok
	}
	l.Window.Length = 1000 * s.number[numLength]
	l.Window.Start = d.optional(s, numStart)
	l.Window.Applied = d.optional(s, numApplied)
	l.Window.ConsumedAtOpen = d.optional(s, numMark)
	return true
}

// reused parses a limit's own schedule or calendar, or else the item's, once for
// all limits and images that have the same.
func reused[T any](d *Images, known map[string]T, own, common []byte, parse func(compact, zone string) (T, error)) (value T, ok bool) {
	text := own
	if len(text) == 0 {
		text = common
	}
	if len(text) == 0 || string(own) == noSchedule {
		return value, true
	}
	d.buffer = append(append(append(d.buffer[:0], d.item.zone...), 0), text...)
	if value, ok = known[string(d.buffer)]; ok {
		return value, true
	}
	value, err := parse(string(text), string(d.item.zone))
	if err != nil {
		return value, false
	}
	known[string(d.buffer)] = value
	return value, true
}

func (d *Images) optional(s *scannedLimit, field int) *int64 {
	if !s.has[field] {
		return nil
	}
	return d.point(s.number[field])
}

// slab is how many numbers are allocated at once.
const slab = 64

func (d *Images) point(n int64) *int64 {
	if len(d.numbers) == cap(d.numbers) {
		d.numbers = make([]int64, 0, slab)
	}
	d.numbers = append(d.numbers, n)
	return &d.numbers[len(d.numbers)-1]
}

func (d *Images) pointInt(n int) *int {
	if len(d.grants) == cap(d.grants) {
		d.grants = make([]int, 0, slab)
	}
	d.grants = append(d.grants, n)
	return &d.grants[len(d.grants)-1]
}
