// Package survey describes the buckets of one entity and resource at an instant:
// shards, grants, coverage, ledgers, windows, schedules and usage. It computes and
// does not draw.
package survey

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/shardquota/shardquota/cmd/shardquota/history"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// Survey is the state of a group. Times are epoch ms and amounts millitokens.
type Survey struct {
	Now      int64   `json:"now"`
	Count    int     `json:"count"` // shard 0's, or where it cannot be read the highest of the others
	Shards   []Shard `json:"shards"`
	Quotas   []Quota `json:"quotas"`
	Limits   []Terms `json:"limits"`
	Boundary *int64  `json:"next_boundary"` // when a schedule, a reset or the end of a window next changes something
	Usage    []Usage `json:"usage"`         // newest first
	Faults   []Fault `json:"faults"`        // what cannot be read
}

// Fault is an item that cannot be read, in whole or in part.
type Fault struct {
	Item  string `json:"item"` // shard 3, usage item 2
	Cause string `json:"cause"`
}

// Presence says whether a shard's item is there.
type Presence string

// The presences of a shard.
const (
	There       Presence = "there"
	Missing     Presence = "missing" // within the shard count, but never created or deleted since
	Undecodable Presence = "undecodable"
)

// Shard is one bucket item.
type Shard struct {
	Index    int      `json:"index"`
	Presence Presence `json:"presence"`
	Count    int      `json:"count,omitempty"`
	Refilled int64    `json:"rf,omitempty"`
	Valid    *int64   `json:"vu,omitempty"`
	Disabled bool     `json:"disabled,omitempty"`
	Bypass   int64    `json:"bypass_until,omitempty"` // nothing on it is enforced until then
	Broken   string   `json:"broken,omitempty"`       // why its schedules cannot be read
	Meter    *Meter   `json:"wcu,omitempty"`
	Limits   []Limit  `json:"limits,omitempty"`
}

// Meter is the write meter, dripped to now.
type Meter struct {
	Level    int64 `json:"level"`
	Capacity int64 `json:"capacity"`
}

// Limit is one limit on one shard, as stored.
type Limit struct {
	Name    string  `json:"name"`
	Balance int64   `json:"balance"`
	Ceiling int64   `json:"ceiling"`
	TopUp   int64   `json:"topup,omitempty"`
	Quota   bool    `json:"quota"`
	Current bool    `json:"current"`         // of a quota: its grant is of the period that holds now
	Grant   int     `json:"grant,omitempty"` // of a quota: the shard count its grant is sized at
	Legacy  bool    `json:"legacy,omitempty"`
	Window  *Window `json:"window,omitempty"`
	Soft    int64   `json:"soft_until,omitempty"`
}

// Terms are a limit's terms, taken from the lowest shard that has it.
type Terms struct {
	Name     string `json:"name"`
	Kind     string `json:"kind"` // dripping, calendar, session, meter
	Capacity int64  `json:"capacity"`
	Refill   int64  `json:"refill"`
	Period   int64  `json:"period"`
	Base     int64  `json:"base_capacity"`
	Division string `json:"division,omitempty"`         // absent where it is simply divided
	Ignored  bool   `json:"division_ignored,omitempty"` // it is divided nevertheless
	Schedule string `json:"schedule,omitempty"`         // cron fields and terms, and the zone
	Resets   string `json:"resets,omitempty"`           // cron fields, and the zone
	Length   int64  `json:"window_length,omitempty"`
	Next     *int64 `json:"next,omitempty"` // when these terms next change, or the quota is next restored
	Broken   string `json:"broken,omitempty"`
}

// WindowState says how a session window stands on a shard.
type WindowState string

// The states of a window.
const (
	Unopened WindowState = "unopened" // no use has opened one
	Applied  WindowState = "applied"  // live, and the balance reflects it
	Pending  WindowState = "pending"  // live, but this shard has not rolled into it
	Ended    WindowState = "ended"
)

// Window is a session window on a shard.
type Window struct {
	State WindowState `json:"state"`
	Start *int64      `json:"start,omitempty"`
	End   *int64      `json:"end,omitempty"`
}

// Usage is what was consumed in one window of time, in tokens.
type Usage struct {
	Window   string            `json:"window"`
	Start    string            `json:"start"`
	Counters map[string]string `json:"counters"`
	Events   string            `json:"events"`
}

// Found is what was read of a group.
type Found struct {
	Shards []table.Sibling // by index
	Usage  []table.Item    // newest first
}

// Take makes the survey of a group at now, epoch ms.
func Take(found Found, now int64) *Survey {
	s := &Survey{Now: now, Shards: []Shard{}, Quotas: []Quota{}, Limits: []Terms{}, Usage: []Usage{}, Faults: []Fault{}}
	s.Count = count(found.Shards)
	for index, sibling := range found.Shards[:shown(found.Shards, s.Count)] {
		s.Shards = append(s.Shards, s.shard(index, sibling))
	}
	buckets := table.Buckets(found.Shards)
	for _, name := range quota.LimitNames(buckets, func(l *quota.Limit) bool { return l.Kind() != quota.Meter }) {
		s.Limits = append(s.Limits, terms(name, buckets, now))
		if slices.ContainsFunc(buckets, func(b *quota.Bucket) bool { return isQuota(b, name) }) {
			s.Quotas = append(s.Quotas, s.cover(name, buckets))
		}
	}
	s.boundary()
	s.readUsage(found.Usage)
	return s
}

// Empty reports whether there is no bucket at all, not even an unreadable one.
func (s *Survey) Empty() bool {
	return !slices.ContainsFunc(s.Shards, func(shard Shard) bool { return shard.Presence != Missing })
}

// Sound reports whether every item can be read and every ledger is conserved.
func (s *Survey) Sound() bool {
	return len(s.Faults) == 0 && !slices.ContainsFunc(s.Quotas, func(q Quota) bool { return !q.Conserved })
}

func count(siblings []table.Sibling) int {
	if len(siblings) > 0 && siblings[0].Bucket != nil {
		return siblings[0].Bucket.ShardCount
	}
	highest := 1
	for _, b := range table.Buckets(siblings) {
		highest = max(highest, b.ShardCount)
	}
	return highest
}

// shown returns how many shards to show: those within the count, and any beyond it
// that exist.
func shown(siblings []table.Sibling, count int) int {
	n := min(count, len(siblings))
	for index, sibling := range siblings {
		if sibling.Bucket != nil || sibling.Broken != nil {
			n = max(n, index+1)
		}
	}
	return n
}

func (s *Survey) fault(item string, cause error) {
	s.Faults = append(s.Faults, Fault{item, cause.Error()})
}

func (s *Survey) shard(index int, sibling table.Sibling) Shard {
	if sibling.Broken != nil {
		s.fault(shardName(index), sibling.Broken)
		return Shard{Index: index, Presence: Undecodable}
	}
	if sibling.Bucket == nil {
		return Shard{Index: index, Presence: Missing}
	}
	b := &sibling.Bucket.Bucket
	shard := Shard{
		Index: index, Presence: There, Count: b.ShardCount, Refilled: b.RefilledAt, Valid: b.ValidUntil, Disabled: b.Disabled,
	}
	if err := b.Readable(s.Now); err != nil {
		s.fault(shardName(index), err)
		shard.Broken = err.Error()
	}
	if b.Bypass > s.Now {
		shard.Bypass = b.Bypass
	}
	for i := range b.Limits {
		if limit := &b.Limits[i]; limit.Kind() == quota.Meter {
			shard.Meter = &Meter{history.MeterLevel(b, s.Now), limit.Base.Capacity}
		} else {
			shard.Limits = append(shard.Limits, stand(b, limit, s.Now))
		}
	}
	return shard
}

// stand describes one limit. Where its schedule cannot be read, the base capacity
// replaces the one in force.
func stand(b *quota.Bucket, limit *quota.Limit, now int64) Limit {
	params, err := limit.Effective(now)
	if err != nil {
		params = limit.Base
	}
	l := Limit{
		Name: limit.Name, Balance: limit.Balance, Ceiling: limit.Ceiling(b.ShardCount, params.Capacity), TopUp: limit.TopUp,
		Quota: limit.IsQuota(), Current: true,
	}
	if limit.Soft > now {
		l.Soft = limit.Soft
	}
	if l.Quota {
		l.Current = limit.Current(b.RefilledAt, now)
		l.Grant, l.Legacy = limit.GrantCount(b.ShardCount, params.Capacity), limit.Grant == nil
	}
	if limit.Kind() == quota.Session {
		l.Window = window(limit.Window, b.RefilledAt, l.Current, now)
	}
	return l
}

func window(w quota.Window, refilled int64, current bool, now int64) *Window {
	if w.Start == nil {
		return &Window{State: Unopened}
	}
	seen := &Window{State: Applied, Start: w.Start, End: new(*w.Start + w.Length)}
	applied := refilled
	if w.Applied != nil {
		applied = *w.Applied
	}
	switch {
	case *seen.End <= now:
		seen.State = Ended
	case !current && *w.Start > applied:
		seen.State = Pending
	}
	return seen
}

var kinds = map[quota.Kind]string{
	quota.Dripping: "dripping", quota.Calendar: "calendar", quota.Session: "session", quota.Meter: "meter",
}

// terms reads a limit's terms off the lowest shard that has it.
func terms(name string, buckets []*quota.Bucket, now int64) Terms {
	at := slices.IndexFunc(buckets, func(b *quota.Bucket) bool { return b.Limit(name) != nil })
	b, limit := buckets[at], buckets[at].Limit(name)
	t := Terms{
		Name: name, Kind: kinds[limit.Kind()], Base: limit.Base.Capacity,
		Schedule: schedule(limit.Schedule), Resets: zoned(strings.Join(limit.Resets.Crons(), "; "), limit.Resets.Zone()), Length: limit.Window.Length,
	}
	if limit.Division != quota.Divided {
		t.Division, t.Ignored = limit.Division.String(), limit.InvalidDivision()
	}
	params, err := limit.Effective(now)
	if err = cmp.Or(b.Broken, err); err != nil {
		t.Broken, params = err.Error(), limit.Base
	} else {
		t.Next = next(limit, now)
	}
	t.Capacity, t.Refill, t.Period = params.Capacity, params.Refill, params.Period
	return t
}

// schedule renders the entries of a schedule, in order of precedence: the cron
// fields and what holds while they match.
func schedule(s quota.Schedule) string {
	var entries []string
	for _, e := range s.Entries() {
		var terms []string
		for _, term := range []struct {
			format string
			value  int64
		}{{"scale %s", e.Scale}, {"capacity %s", 1000 * e.Capacity}, {"refill %s", 1000 * e.Refill}, {"each %s s", 1000 * e.Period}} {
			if term.value != 0 {
				terms = append(terms, fmt.Sprintf(term.format, table.Tokens(term.value)))
			}
		}
		entries = append(entries, e.Cron+" "+strings.Join(terms, " "))
	}
	return zoned(strings.Join(entries, "; "), s.Zone())
}

// zoned adds the zone of the crons.
func zoned(crons, zone string) string {
	if crons == "" {
		return ""
	}
	return crons + " " + cmp.Or(zone, "UTC")
}

// next returns the first boundary of one limit after now, nil where time changes
// nothing about it.
func next(limit *quota.Limit, now int64) *int64 {
	alone := &quota.Bucket{ShardCount: 1, Limits: []quota.Limit{*limit}}
	if boundary, ok := alone.NextBoundary(now); ok && boundary > now {
		return &boundary
	}
	return nil
}

// boundary sets the first of all limits' boundaries.
func (s *Survey) boundary() {
	for _, t := range s.Limits {
		if t.Next != nil && (s.Boundary == nil || *t.Next < *s.Boundary) {
			s.Boundary = t.Next
		}
	}
}
