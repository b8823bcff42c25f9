package replay

import (
	"encoding/json"
	"io"
	"maps"
	"slices"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/sharding"
	"github.com/shardquota/shardquota/table"
)

// Report is the sum of what the batches of a replay reported. It holds entity ids;
// rendering hides them unless asked not to.
type Report struct {
	Dry        bool // nothing was written
	Records    int
	Batches    int
	Rejected   []aggregator.Rejection
	Usage      map[table.UsageKey]*UsageTotal
	Duplicates int
	Passes     map[quota.Reason]int // written, by the first reason of each
	Written    int
	Lost       int
	Doublings  []aggregator.Doubling
	Raised     []aggregator.Raise
	Created    []aggregator.Creation
	Declined   []aggregator.Decline
	Ledger     []LedgerRow
	Divisions  []DivisionRow
}

// UsageTotal is what a replay added to one usage item.
type UsageTotal struct {
	Counters map[string]int64 // millitokens by limit
	Events   int64
}

// LedgerRow is the ledger of one quota at the end of a replay.
type LedgerRow struct {
	Group table.Group
	quota.Row
}

// DivisionRow says how a limit with a division of its own is divided at the end of a
// replay.
type DivisionRow struct {
	Group table.Group
	quota.DivisionSummary
}

func newReport(dry bool) *Report {
	return &Report{Dry: dry, Usage: map[table.UsageKey]*UsageTotal{}, Passes: map[quota.Reason]int{}}
}

// add adds what the aggregator did with a batch.
func (r *Report) add(batch *aggregator.Report) {
	r.Rejected = append(r.Rejected, batch.Rejected...)
	r.Duplicates += batch.Duplicates
	r.Written += len(batch.Passes)
	r.Lost += batch.PassesLost
	r.Doublings = append(r.Doublings, batch.Doublings...)
	r.Raised = append(r.Raised, batch.Raised...)
	r.Created = append(r.Created, batch.Created...)
	r.Declined = append(r.Declined, batch.Declined...)
	for _, pass := range batch.Passes {
		r.Passes[pass.Pass.Why[0]]++
	}
	for _, usage := range batch.Usage {
		total := r.Usage[usage.Key]
		if total == nil {
			total = &UsageTotal{Counters: map[string]int64{}}
			r.Usage[usage.Key] = total
		}
		total.Events += usage.Events
		for limit, amount := range usage.Counters {
			total.Counters[limit] += amount
		}
	}
}

// NotConserved counts the ledgers that are not conserved.
func (r *Report) NotConserved() int {
	count := 0
	for _, row := range r.Ledger {
		if !row.Conserved {
			count++
		}
	}
	return count
}

// usageKeys returns the keys of the usage that was added to, in order.
func (r *Report) usageKeys() []table.UsageKey {
	return slices.SortedFunc(maps.Keys(r.Usage), aggregator.CompareUsage)
}

// Naming renders the entity of a group: its id, or a name in place of it.
type Naming func(table.Group) string

// The report as JSON. Amounts are in millitokens, but usage counters are
// decimal tokens.
type (
	jsonReport struct {
		Records    int             `json:"records"`
		Rejected   []jsonRejection `json:"rejected"`
		Batches    int             `json:"batches"`
		Usage      []jsonUsage     `json:"usage"`
		Duplicates int             `json:"duplicates"`
		Passes     jsonPasses      `json:"passes"`
		Doublings  []jsonDoubling  `json:"doublings"`
		Raised     []jsonRaise     `json:"raised"`
		Created    []jsonCreation  `json:"created"`
		Declined   []jsonDecline   `json:"declined"`
		Ledger     []jsonLedgerRow `json:"ledger"`
		Divisions  []jsonDivision  `json:"divisions,omitempty"` // of limits that say one
	}
	jsonGroup struct {
		Namespace string `json:"namespace"`
		Entity    string `json:"entity"`
		Resource  string `json:"resource"`
	}
	jsonRejection struct {
		Position string `json:"position"`
		Sequence string `json:"sequence"`
		Reason   string `json:"reason"`
	}
	jsonUsage struct {
		jsonGroup
		Window   string            `json:"window"`
		Start    string            `json:"start"`
		Counters map[string]string `json:"counters"`
		Events   int64             `json:"events"`
	}
	jsonPasses struct {
		Written int `json:"written"`
		Lost    int `json:"lost"`
	}
	jsonDoubling struct {
		jsonGroup
		From int `json:"from"`
		To   int `json:"to"`
	}
	jsonRaise struct {
		jsonGroup
		Shard int `json:"shard"`
		To    int `json:"to"`
	}
	jsonCreation struct {
		jsonGroup
		Shard   int           `json:"shard"`
		Count   int           `json:"count"`
		Funding []jsonFunding `json:"funding"`
	}
	jsonFunding struct {
		Limit       string       `json:"limit"`
		Source      quota.Source `json:"source"`
		Donor       *int         `json:"donor"` // null but for a move
		Millitokens int64        `json:"millitokens"`
	}
	jsonDecline struct {
		jsonGroup
		Shard  int              `json:"shard"`
		Reason sharding.Refusal `json:"reason"`
	}
	jsonLedgerRow struct {
		jsonGroup
		quota.Row
	}
	jsonDivision struct {
		jsonGroup
		quota.DivisionSummary
	}
)

// WriteJSON writes the report as one JSON object.
func (r *Report) WriteJSON(w io.Writer, name Naming) error {
	out := jsonReport{
		Records:    r.Records,
		Rejected:   each(r.Rejected, jsonReject),
		Batches:    r.Batches,
		Usage:      each(r.usageKeys(), func(key table.UsageKey) jsonUsage { return r.jsonUsage(key, name) }),
		Duplicates: r.Duplicates,
		Passes:     jsonPasses{r.Written, r.Lost},
		Doublings: each(r.Doublings, func(x aggregator.Doubling) jsonDoubling {
			return jsonDoubling{groupOf(x.Group, name), x.From, x.To}
		}),
		Raised: each(r.Raised, func(x aggregator.Raise) jsonRaise {
			return jsonRaise{groupOf(x.Key.Group, name), x.Key.Shard, x.To}
		}),
		Created: each(r.Created, func(x aggregator.Creation) jsonCreation {
			return jsonCreation{groupOf(x.Key.Group, name), x.Key.Shard, x.Count, each(x.Funding, jsonFund)}
		}),
		Declined: each(r.Declined, func(x aggregator.Decline) jsonDecline {
			return jsonDecline{groupOf(x.Key.Group, name), x.Key.Shard, x.Reason}
		}),
		Ledger: each(r.Ledger, func(x LedgerRow) jsonLedgerRow {
			return jsonLedgerRow{groupOf(x.Group, name), x.Row}
		}),
		Divisions: each(r.Divisions, func(x DivisionRow) jsonDivision {
			return jsonDivision{groupOf(x.Group, name), x.DivisionSummary}
		}),
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(out)
}

func groupOf(group table.Group, name Naming) jsonGroup {
	return jsonGroup{group.Namespace, name(group), group.Resource}
}

func (r *Report) jsonUsage(key table.UsageKey, name Naming) jsonUsage {
	total := r.Usage[key]
	counters := make(map[string]string, len(total.Counters))
	for limit, amount := range total.Counters {
		counters[limit] = table.Tokens(amount)
	}
	return jsonUsage{groupOf(key.Group, name), key.Window, key.Start, counters, total.Events}
}

func jsonReject(x aggregator.Rejection) jsonRejection {
	return jsonRejection{x.Position.String(), x.Sequence, x.Err.Error()}
}

func jsonFund(x quota.Funding) jsonFunding {
	f := jsonFunding{Limit: x.Limit, Source: x.Source, Millitokens: x.Amount}
	if x.Source == quota.Move {
		f.Donor = &x.Donor
	}
	return f
}

// each maps a list. An empty list becomes an empty one, so that JSON has [] and
// not null.
func each[A, B any](list []A, f func(A) B) []B {
	out := make([]B, 0, len(list))
	for _, x := range list {
		out = append(out, f(x))
	}
	return out
}
