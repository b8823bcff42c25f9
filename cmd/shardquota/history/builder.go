package history

import (
	"cmp"
	"maps"
	"slices"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// What a Builder keeps unless asked otherwise.
const (
	defaultSlots  = 240
	defaultStep   = 1000 // the streams' own clock
	defaultGroups = 40
	maxEvents     = 200 // of each kind in each group
)

// Builder gathers histories. It is not safe for concurrent use. The zero value
// is ready; its limits are to be set before the first Observe.
type Builder struct {
	Slots  int   // at most this many to a group, at least 2; 0 means 240
	Step   int64 // the shortest slot, milliseconds; 0 means a second
	Groups int   // at most this many, those that come first; 0 means 40

	groups  map[table.Group]*tracker
	Skipped int // writes of groups beyond the bound
}

// Observe takes in one write at a time (epoch ms): the bucket before and after
// it, nil where there was or is none. Writes of one bucket come in order, those
// of others may come a little earlier or later. It keeps neither image.
func (b *Builder) Observe(at int64, before, after *table.Image) {
	is := cmp.Or(after, before)
	if is == nil {
		return
	}
	if t := b.tracker(is.Key.Group, at); t != nil {
		t.observe(at, before, after)
	}
}

func (b *Builder) tracker(group table.Group, at int64) *tracker {
	if t := b.groups[group]; t != nil {
		return t
	}
	if b.groups == nil {
		b.groups = map[table.Group]*tracker{}
	}
	if len(b.groups) >= cmp.Or(b.Groups, defaultGroups) {
		b.Skipped++
		return nil
	}
	clock := newClock(at, cmp.Or(b.Step, defaultStep), cmp.Or(b.Slots, defaultSlots))
	t := &tracker{
		group: group, clock: clock, passes: clock.track(true),
		last: map[int]*quota.Bucket{}, limits: map[string]*limitTracks{}, kept: map[Kind]int{},
	}
	b.groups[group] = t
	return t
}

// Histories returns what was gathered so far, by group.
func (b *Builder) Histories() []*Group {
	groups := slices.SortedFunc(maps.Keys(b.groups), table.Group.Compare)
	histories := make([]*Group, len(groups))
	for i, group := range groups {
		histories[i] = b.groups[group].history()
	}
	return histories
}

// tracker follows one group.
type tracker struct {
	group   table.Group
	clock   *clock
	newest  int64 // time of the newest write, epoch ms
	whole   bool  // it was observed from the group's first write
	writes  int
	last    map[int]*quota.Bucket
	limits  map[string]*limitTracks
	passes  *track
	events  []Event
	kept    map[Kind]int
	dropped int
}

type limitTracks struct {
	kind     quota.Kind
	consumed *track
	shards   map[int]shardTracks
}

type shardTracks struct{ balance, ceiling *track }

func (t *tracker) observe(at int64, before, after *table.Image) {
	if at <= 0 {
		at = t.newest // a record without a time: no reason to draw fifty years
	}
	t.newest = max(t.newest, at)
	if t.writes++; t.writes == 1 {
		t.whole = before == nil && after != nil && after.Shard == 0
	}
	slot := t.clock.slot(at)
	if after == nil {
		t.remove(slot, at, before)
		return
	}
	if before != nil && before.RefilledAt != after.RefilledAt {
		t.passes.put(slot, 1)
	}
	for _, event := range t.eventsOf(at, bucketOf(before), &after.Bucket) {
		t.keep(event)
	}
	t.sample(slot, at, bucketOf(before), &after.Bucket)
	t.last[after.Shard] = alone(after.Bucket)
}

func bucketOf(b *table.Image) *quota.Bucket {
	if b == nil {
		return nil
	}
	return &b.Bucket
}

// alone is a bucket without the item that it was read off, which may be as large
// as an item gets.
func alone(b quota.Bucket) *quota.Bucket {
	b.Limits = slices.Clone(b.Limits)
	return &b
}

func (t *tracker) keep(event Event) {
	if t.kept[event.Kind] >= maxEvents {
		t.dropped++
		return
	}
	t.kept[event.Kind]++
	t.events = append(t.events, event)
}

func (t *tracker) remove(slot int, at int64, before *table.Image) {
	t.keep(Event{Time: at, Kind: Removed, Shard: before.Shard})
	delete(t.last, before.Shard)
	for _, limit := range t.limits {
		if shard, ok := limit.shards[before.Shard]; ok {
			shard.balance.put(slot, gone)
			shard.ceiling.put(slot, gone)
		}
	}
}

func (t *tracker) sample(slot int, at int64, before, after *quota.Bucket) {
	for i := range after.Limits {
		limit := &after.Limits[i]
		tracks := t.limit(limit)
		tracks.consumed.put(slot, consumed(before, limit))
		shard := t.shard(tracks, after.Shard)
		shard.balance.put(slot, level(after, limit, at))
		if params, err := limit.Effective(at); err == nil {
			shard.ceiling.put(slot, limit.Ceiling(after.ShardCount, params.Capacity))
		}
	}
}

// consumed is what a write consumed of a limit, net of refunds, millitokens.
func consumed(before *quota.Bucket, limit *quota.Limit) int64 {
	if before == nil {
		return limit.Consumed
	}
	if was := before.Limit(limit.Name); was != nil {
		return limit.Consumed - was.Consumed
	}
	return 0
}

// level is a limit's balance at a time. Only the write meter is dripped: what
// is stored of it says little between passes.
func level(b *quota.Bucket, limit *quota.Limit, at int64) int64 {
	if limit.Kind() != quota.Meter {
		return limit.Balance
	}
	return MeterLevel(b, at)
}

// MeterLevel is the balance of a bucket's write meter, dripped to a time (epoch
// ms), in millitokens; 0 where it has none.
func MeterLevel(b *quota.Bucket, at int64) int64 {
	meter := b.Limit(quota.WriteMeter)
	if meter == nil {
		return 0
	}
	alone := &quota.Bucket{ShardCount: b.ShardCount, RefilledAt: b.RefilledAt, Limits: []quota.Limit{*meter}}
	pass, err := quota.Materialise(alone, nil, at)
	if err != nil || len(pass.Changes) == 0 {
		return meter.Balance
	}
	return meter.Balance + pass.Changes[0].Delta
}

func (t *tracker) limit(limit *quota.Limit) *limitTracks {
	tracks := t.limits[limit.Name]
	if tracks == nil {
		tracks = &limitTracks{consumed: t.clock.track(true), shards: map[int]shardTracks{}}
		t.limits[limit.Name] = tracks
	}
	tracks.kind = limit.Kind()
	return tracks
}

func (t *tracker) shard(limit *limitTracks, shard int) shardTracks {
	tracks, ok := limit.shards[shard]
	if !ok {
		tracks = shardTracks{t.clock.track(false), t.clock.track(false)}
		limit.shards[shard] = tracks
	}
	return tracks
}

func (t *tracker) history() *Group {
	slots := t.clock.slots
	g := &Group{
		Group:   t.group,
		Grid:    Grid{t.clock.start, t.clock.step, slots},
		Writes:  t.writes,
		Passes:  t.passes.filled(slots),
		Events:  slices.Clone(t.events),
		Dropped: t.dropped,
	}
	for _, name := range slices.Sorted(maps.Keys(t.limits)) {
		tracks := t.limits[name]
		limit := Limit{Name: name, Kind: tracks.kind, Consumed: tracks.consumed.filled(slots)}
		for _, shard := range slices.Sorted(maps.Keys(tracks.shards)) {
			s := tracks.shards[shard]
			limit.Shards = append(limit.Shards, Series{shard, s.balance.filled(slots), s.ceiling.filled(slots)})
		}
		g.Limits = append(g.Limits, limit)
	}
	return g
}
