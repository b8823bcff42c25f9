package limiter

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// An action is one thing that a use of a shard does.
type action string

// The actions of a use. A charge or a write that is admitted ends the use, and so do
// reject and fail. Another step follows each of the others.
const (
	chargeFast  action = "charge fast"  // one update, without looking at the item
	chargeHot   action = "charge hot"   // the same, whatever the write meter says
	chargeFree  action = "charge free"  // meter the use of a bypassed bucket
	writeUse    action = "write use"    // bring the bucket up to date, and charge it
	createShard action = "create shard" // the drawn one
	readConfig  action = "read config"  // what the levels say for the group
	addLimits   action = "add limits"   // roll the limits in force out to the group
	restrictUse action = "restrict"     // ask a parent only for limits that it has
	renewStamps action = "renew stamps" // stamp the bucket as bypassed, or limits as soft
	reject      action = "reject"
	fail        action = "fail"

	// Of a pooled use:
	readShards    action = "read shards"   // all of the group
	askAgain      action = "ask again"     // the drawn shard, which has changed
	createMissing action = "create shards" // before the use is rejected
	openWindows   action = "open windows"  // on all shards
	writePieces   action = "write pieces"  // on several shards, in one transaction
)

// step is an action, and what it needs.
type step struct {
	action  action
	bucket  *table.Bucket    // the drawn one, as it was read; nil where there is none
	use     *quota.Use       // of writeUse
	demand  quota.Demand     // of restrictUse, what is left to ask for
	renewal table.Amendment  // of renewStamps
	learned []quota.Shortage // of reject, an answer that was worked out from what all shards had a moment ago
	shards  []*table.Bucket  // of reject, all shards as they were read, where none is missing
	missing []int            // of createMissing
	pieces  []piece          // of writePieces
	err     error            // of reject, the *Rejection, and of fail
}

// String prints what the step does, without ids.
func (s step) String() string {
	text := string(s.action)
	switch s.action {
	case writeUse:
		return text + ": " + useText(s.use)
	case restrictUse:
		return fmt.Sprintf("%s to %v", text, slices.Sorted(maps.Keys(s.demand)))
	case renewStamps:
		return fmt.Sprintf("%s: %v", text, slices.Sorted(maps.Keys(s.renewal.Set)))
	case createMissing:
		return fmt.Sprintf("%s %v", text, s.missing)
	case writePieces:
		for _, p := range s.pieces {
			text += fmt.Sprintf("; shard %d: %s", p.Bucket.Shard, useText(p.Use))
		}
	case reject, fail:
		return text + ": " + s.err.Error()
	}
	return text
}

// useText prints what a use charges, in tokens, and why it passes the bucket.
func useText(use *quota.Use) string {
	var texts []string
	for _, c := range use.Charges {
		texts = append(texts, fmt.Sprintf("%s -%s", c.Limit, table.Tokens(c.Debit)))
	}
	for _, change := range use.Changes {
		if change.Delta != 0 {
			texts = append(texts, fmt.Sprintf("%s %+d", change.Limit, change.Delta/1000))
		}
	}
	return strings.Join(texts, ", ")
}

// progress says what the last step of a use came to.
type progress int

const (
	begun      progress = iota // nothing was asked yet
	refused                    // a charge was refused, and the bucket is known as it is
	configRead                 // for the same bucket
	notRenewed                 // the stamps of the same bucket: someone else wrote it
	prepared                   // the bucket was made or changed, and is to be asked again
	overtaken                  // someone else wrote the bucket before the planned use
	admitted                   //
)

// state is what a use of one shard knows.
type state struct {
	key       table.Key
	demand    quota.Demand // millitokens
	parent    bool         // the use is a child's, and takes only of limits that the entity has
	now       time.Time
	freeUntil int64 // the group was bypassed until, when it was last seen, epoch ms

	progress  progress
	triedFree bool                    // chargeFree was tried for what a bucket said
	opened    bool                    // openWindows was done
	config    *limits.EffectiveConfig // what the levels say; nil until it was read for this bucket
	configErr error                   // why they could not be read in full
	recent    recentShortage          // what all shards had a moment ago
}

func (s *state) millis() int64 { return s.now.UnixMilli() }

// next decides the next step of a use, from the drawn bucket as it is known and nil
// where there is none. It does no I/O and changes nothing.
func next(b *table.Bucket, s *state) step {
	switch {
	case s.progress == begun && s.millis() < s.freeUntil:
		return step{action: chargeFree}
	case s.progress == begun, s.progress == prepared:
		return step{action: chargeFast}
	case s.progress == overtaken:
		return step{action: chargeHot}
	case b == nil:
		return step{action: createShard}
	case b.Disabled:
		return step{action: fail, err: ErrDisabled}
	case s.mayBypass(b) && s.millis() < b.Bypass:
		return step{action: chargeFree, bucket: b}
	}
	use, have, err := quota.PlanUse(&b.Bucket, s.demand, s.millis())
	switch {
	case errors.Is(err, quota.ErrNoLimit):
		return s.nextWithoutLimit(b)
	case err != nil:
		return step{action: fail, err: fmt.Errorf("shard %d: %w", s.key.Shard, err)}
	case use != nil:
		return step{action: writeUse, bucket: b, use: use}
	case s.progress != notRenewed && s.stampLapsed(b):
		if renewal := s.nextLapsed(b); renewal.action != reject {
			return renewal
		}
	}
	return s.nextShort(b, have)
}

// mayBypass reports whether a bucket is believed that says it is bypassed. A bucket
// that lacks a limit gets it first. One that refused a free charge is passed first.
func (s *state) mayBypass(b *table.Bucket) bool {
	if b.Disabled || s.triedFree {
		return false
	}
	for name := range s.demand {
		if b.Limit(name) == nil {
			return false
		}
	}
	return true
}

// nextWithoutLimit decides for a bucket that lacks a limit which is asked for. Where
// the levels define it, it is rolled out. A parent gives without it.
func (s *state) nextWithoutLimit(b *table.Bucket) step {
	if s.config == nil {
		return step{action: readConfig, bucket: b}
	}
	if s.configErr != nil && !errors.Is(s.configErr, limits.ErrUndefined) {
		return step{action: fail, err: s.configErr}
	}
	demand := quota.Demand{}
	for _, name := range slices.Sorted(maps.Keys(s.demand)) {
		switch {
		case b.Limit(name) != nil:
			demand[name] = s.demand[name]
		case s.config.Has(name):
			return step{action: addLimits, bucket: b}
		case !s.parent:
			return step{action: fail, err: fmt.Errorf("%w: %.80s on %s", limits.ErrUndefined, name, b.Key.Resource)}
		}
	}
	return step{action: restrictUse, bucket: b, demand: demand}
}

// stampLapsed reports whether a stamp has run out that would have admitted the use:
// that the bucket is bypassed, or a limit soft.
func (s *state) stampLapsed(b *table.Bucket) bool {
	lapsed := b.Bypass != 0
	for i := range b.Limits {
		l := &b.Limits[i]
		_, demanded := s.demand[l.Name]
		lapsed = lapsed || demanded && l.Soft != 0 && l.Soft <= s.millis()
	}
	return lapsed
}

// nextLapsed decides for a bucket whose stamp has run out: it is renewed where the
// levels still say so.
func (s *state) nextLapsed(b *table.Bucket) step {
	if s.config == nil {
		return step{action: readConfig, bucket: b}
	}
	if s.configErr != nil {
		return step{action: fail, err: s.configErr}
	}
	renewal, ok := s.config.RenewStamps(b, s.demand, s.now)
	if !ok {
		return step{action: reject}
	}
	return step{action: renewStamps, bucket: b, renewal: renewal}
}

// nextShort decides for a bucket that has too little: the use is rejected, unless
// other shards may give what this one lacks.
func (s *state) nextShort(b *table.Bucket, have []quota.Shortage) step {
	if !mayPool(b, have) {
		return step{action: reject, bucket: b, err: rejection(b, have, s.millis())}
	}
	if all, learned := s.recent.shortages(b, s.demand, s.millis()); all != nil {
		return step{action: reject, bucket: b, err: rejectionOfAll(b, all, s.millis()), learned: learned}
	}
	return step{action: readShards, bucket: b}
}
