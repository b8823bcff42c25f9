package aggregator

import (
	"cmp"
	"errors"
	"slices"
	"sync"

	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/sharding"
	"github.com/shardquota/shardquota/table"
)

// Step names a part of a batch in failures.
type Step string

// The steps that can fail.
const (
	StepShard  Step = "shard"
	StepUsage  Step = "usage"
	StepPass   Step = "pass"
	StepDouble Step = "double"
)

// Report says what a batch did. It holds entity ids: print or log it only through
// something that hides them.
type Report struct {
	Records          int
	Rejected         []Rejection
	Usage            []table.Usage
	Duplicates       int // records that were counted before
	Passes           []Pass
	PassesLost       int
	Doublings        []Doubling
	Raised           []Raise
	Created          []Creation
	Declined         []Decline
	InvalidDivisions []InvalidDivision // limits whose division is ignored, of buckets of the batch
	Failures         []Failure         // sorted by index; the batch is to be delivered again from the first

	mu   sync.Mutex
	seen map[int]bool // records found counted before, by index
}

// Rejection is one record that could not be used, in whole or in part.
type Rejection struct {
	Index    int // place in the batch
	Position events.Position
	Sequence string
	Err      error // holds no entity id; of the data it may quote a schedule
}

// Pass is one pass that was written.
type Pass struct {
	Key  table.Key
	Pass *quota.Pass
}

// Doubling is one shard count that was doubled because its bucket was hot.
type Doubling struct {
	Group    table.Group
	From, To int
}

// Raise is one sibling whose shard count was raised.
type Raise struct {
	Key table.Key
	To  int
}

// Creation is one shard that was created ahead of use.
type Creation struct {
	Key     table.Key
	Count   int
	Funding []quota.Funding
}

// Decline is one shard that was not created, and why.
type Decline struct {
	Key    table.Key
	Reason sharding.Refusal
}

// InvalidDivision is a limit with an unknown division, or one that its kind cannot
// have. Such a limit is divided (docs/adr/0016).
type InvalidDivision struct {
	Key      table.Key
	Limit    string
	Division quota.Division
}

// Failure is one part of the batch that is to be done again.
type Failure struct {
	Index int // place in the batch of its first record
	Step  Step
	Err   error
}

func (r *Report) reject(index int, record events.Record, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Rejected = append(r.Rejected, Rejection{index, record.Position, record.Sequence, err})
}

func (r *Report) addUsage(usage table.Usage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Usage = append(r.Usage, usage)
}

// duplicate counts a record that was counted before, once however many windows it
// falls in.
func (r *Report) duplicate(w *write) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen == nil {
		r.seen = map[int]bool{}
	}
	if !r.seen[w.index] {
		r.seen[w.index] = true
		r.Duplicates++
	}
}

func (r *Report) passed(key table.Key, pass *quota.Pass) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Passes = append(r.Passes, Pass{key, pass})
}

func (r *Report) lost() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.PassesLost++
}

func (r *Report) doubled(group table.Group, from int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Doublings = append(r.Doublings, Doubling{group, from, 2 * from})
}

func (r *Report) raise(key table.Key, to int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Raised = append(r.Raised, Raise{key, to})
}

func (r *Report) created(key table.Key, count int, funding []quota.Funding) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Created = append(r.Created, Creation{key, count, funding})
}

// decline reports shards first to last of a group as not created.
func (r *Report) decline(group table.Group, first, last int, reason sharding.Refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for shard := first; shard <= last; shard++ {
		r.Declined = append(r.Declined, Decline{group.At(shard), reason})
	}
}

func (r *Report) fail(index int, step Step, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Failures = append(r.Failures, Failure{index, step, err})
}

// sort puts everything in an order that does not depend on which task ran first.
func (r *Report) sort() {
	slices.SortStableFunc(r.Rejected, func(a, b Rejection) int { return cmp.Compare(a.Index, b.Index) })
	slices.SortStableFunc(r.Failures, func(a, b Failure) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.Step, b.Step))
	})
	slices.SortFunc(r.Usage, func(a, b table.Usage) int { return CompareUsage(a.Key, b.Key) })
	slices.SortStableFunc(r.Passes, func(a, b Pass) int { return compareKeys(a.Key, b.Key) })
	slices.SortStableFunc(r.Doublings, func(a, b Doubling) int { return compareKeys(a.Group.At(0), b.Group.At(0)) })
	slices.SortStableFunc(r.Raised, func(a, b Raise) int { return compareKeys(a.Key, b.Key) })
	slices.SortStableFunc(r.Created, func(a, b Creation) int { return compareKeys(a.Key, b.Key) })
	slices.SortStableFunc(r.InvalidDivisions, func(a, b InvalidDivision) int { return compareKeys(a.Key, b.Key) })
	slices.SortStableFunc(r.Declined, func(a, b Decline) int { return compareKeys(a.Key, b.Key) })
}

func compareKeys(a, b table.Key) int {
	return cmp.Or(a.Group.Compare(b.Group), cmp.Compare(a.Shard, b.Shard))
}

// CompareUsage orders usage items by group, then by window, the shortest first,
// then by start.
func CompareUsage(a, b table.UsageKey) int {
	return cmp.Or(
		a.Group.Compare(b.Group),
		events.Window(a.Window).Compare(events.Window(b.Window)),
		cmp.Compare(a.Start, b.Start))
}

// Err joins the errors of the failures, nil where there are none.
func (r *Report) Err() error {
	var errs []error
	for _, failure := range r.Failures {
		errs = append(errs, failure.Err)
	}
	return errors.Join(errs...)
}
