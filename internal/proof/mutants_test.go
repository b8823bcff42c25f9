package proof_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/internal/explore"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// mutant is a rule left out, or nothing.
type mutant struct {
	name string
	in   string // the scenario that finds it
	says string // part of what is found wrong

	write     func(w *table.Write, stored table.Item) // changes a write, just before it is made
	piecemeal bool                                    // a transaction is made write by write

	// Each changes a plan, before the writes are built from it.
	pass     func(pass *quota.Pass)
	creation func(c *table.Creation)
	adjust   func(adjustments []quota.Adjustment)
	usage    func(usage *table.Usage)

	raise       func(t *table.Table, group table.Group, count int, now int64) ([]table.Sibling, error) // stands for RaiseAndRead
	mark        func(label, sequence string) (string, error)
	lastFailure bool // a batch is delivered again from its last failure
}

// on changes the writes of an operation.
func on(operation string, change func(w *table.Write, stored table.Item)) func(*table.Write, table.Item) {
	return func(w *table.Write, stored table.Item) {
		if kindOf(w) == operation {
			change(w, stored)
		}
	}
}

// dropping drops conditions of an operation that mention one of the attributes,
// or one of the fields of any limit but the write meter.
func dropping(operation string, names ...string) func(*table.Write, table.Item) {
	return on(operation, func(w *table.Write, _ table.Item) {
		w.Require = slices.DeleteFunc(w.Require, func(c table.Condition) bool { return mentions(c, names) })
	})
}

func mentions(c table.Condition, names []string) bool {
	limit, field, ok := table.SplitAttr(c.Name)
	return slices.Contains(names, c.Name) || ok && limit != quota.WriteMeter && slices.Contains(names, string(field)) ||
		slices.ContainsFunc(c.Of, func(of table.Condition) bool { return mentions(of, names) })
}

// keeping drops all conditions of an operation but those that mention one of the
// attributes or fields.
func keeping(operation string, names ...string) func(*table.Write, table.Item) {
	return on(operation, func(w *table.Write, _ table.Item) {
		w.Require = slices.DeleteFunc(w.Require, func(c table.Condition) bool { return !mentions(c, append(names, table.AttrPK)) })
	})
}

// unset drops what the writes of an operation set, as far as it is told.
func unset(operation string, drops func(name string) bool) func(*table.Write, table.Item) {
	return on(operation, func(w *table.Write, _ table.Item) {
		w.Set = slices.DeleteFunc(w.Set, func(set table.Assignment) bool { return drops(set.Name) })
	})
}

// each makes several changes of one write.
func each(changes ...func(*table.Write, table.Item)) func(*table.Write, table.Item) {
	return func(w *table.Write, stored table.Item) {
		for _, change := range changes {
			change(w, stored)
		}
	}
}

// risingTime is that a pass whose condition on rf is gone still moves it forward.
func risingTime(w *table.Write, stored table.Item) {
	rf, _ := stored.Int(table.AttrRefilledAt)
	for i, set := range w.Set {
		if n, _ := (table.Item{"n": set.Value}).Int("n"); set.Name == table.AttrRefilledAt && n <= rf {
			w.Set[i].Value = table.Int(rf + 1)
		}
	}
}

// onZero has the write that a creation pins shard 0 by set another attribute.
func onZero(set func(stored table.Item) table.Assignment) func(*table.Write, table.Item) {
	change := func(w *table.Write, stored table.Item) {
		if w.Key == acme.At(0).State() {
			w.Set = append(w.Set, set(stored))
		}
	}
	return each(on("pin", change), on("debit", change))
}

var bg = context.Background()

// Changes that several mutants make.
var (
	unpinned = each(dropping("pin", table.AttrShardCount), on("debit", func(w *table.Write, _ table.Item) {
		w.Require = slices.DeleteFunc(w.Require, func(c table.Condition) bool { return c.Name == table.AttrShardCount })
	}))
	unbound  = func(c *table.Creation) { c.ConfigAttrs = nil }
	unfrozen = unset("freeze", func(string) bool { return true })
	anyGrant = dropping("debit", string(table.FieldGrant))

	neverRaised = func(t *table.Table, group table.Group, count int, _ int64) ([]table.Sibling, error) {
		return t.Shards(bg, group, count)
	}
	raisedLate = func(t *table.Table, group table.Group, count int, now int64) ([]table.Sibling, error) {
		siblings, err := t.Shards(bg, group, count)
		if err == nil {
			_, err = t.RaiseAndRead(bg, group, count, now)
		}
		return siblings, err
	}
)

// mutants are the rules that the search has to miss when they are left out.
var mutants = []mutant{
	{
		name: "no pin on shard 0's count", in: "a shard is created at 2 while the count doubles to 4", says: "was granted slot",
		write: unpinned,
	},
	{
		name: "no pin on shard 0's terms", in: "an operator lowers the limit while shards are created", says: "other terms",
		creation: unbound,
	},
	{
		name: "expiries are left as they are", in: "shards that expire today are doubled, passed and used", says: "expires while it owes",
		write: unset("outlive", func(string) bool { return true }),
	},
	{
		name: "shard 0 does not outlive the others", in: "shards that expire today are doubled, passed and used", says: "does not outlive shard",
		write: on("outlive", func(w *table.Write, _ table.Item) {
			if w.Key == acme.At(0).State() {
				w.Set[0].Value = table.Int((midnight + 2*day) / 1000)
			}
		}),
	},
	{
		name: "no raise", in: "a sibling is restored while its slot is created", says: "was granted slot",
		raise: neverRaised,
	},
	{
		name: "siblings read before they are raised", in: "a sibling is restored while its slot is created", says: "was granted slot",
		raise: raisedLate,
	},
	{
		name: "legacy grants not frozen by a raise", in: "legacy siblings are raised", says: "was granted slot",
		write: unset("raise", func(name string) bool { return name != table.AttrShardCount }),
	},
	{
		name: "shard 0's legacy grant not frozen", in: "a legacy shard 0, half spent, is doubled", says: "was granted slot",
		write: unfrozen,
	},
	{
		name: "a pass without a condition on rf", in: "midnight passes while shards are created and used", says: "was granted slot",
		write: each(dropping("write pass", table.AttrRefilledAt), on("write pass", risingTime)),
	},
	{
		name: "a reset without its count condition", in: "a sibling is restored while its slot is created", says: "was granted slot",
		write: dropping("write pass", table.AttrShardCount),
	},
	{
		name: "a pass without a condition on the balance", in: "refunds and spending on both sides of midnight", says: "without a restore",
		write: dropping("write pass", string(table.FieldBalance), string(table.FieldConsumed)),
	},
	{
		name: "a pass without a condition on vu and terms", in: "an operator changes the limit twice", says: "its ceiling",
		write: keeping("write pass", table.AttrRefilledAt, table.AttrShardCount, string(table.FieldBalance)),
	},
	{
		name: "rf moved without materialising all limits", in: "a dripping limit beside a quota that is restored", says: "of what rpm had gained",
		pass: func(pass *quota.Pass) {
			pass.Changes = slices.DeleteFunc(pass.Changes, func(c quota.Change) bool { return !c.Restore })
		},
	},
	{
		name: "a stale donor", in: "midnight passes while shards are created and used", says: "another period",
		raise: func(t *table.Table, group table.Group, count int, now int64) ([]table.Sibling, error) {
			siblings, err := t.RaiseAndRead(bg, group, count, now)
			for _, s := range siblings {
				if s.Bucket != nil {
					s.Bucket.RefilledAt = max(s.Bucket.RefilledAt, now)
				}
			}
			return siblings, err
		},
		write: dropping("debit", table.AttrRefilledAt),
	},
	{
		name: "a donor's grant not compared", in: "a batch from before the edge and a client after it", says: "another period",
		write: anyGrant,
	},
	{
		name: "a mint beside a donor", in: "the aggregator and a client create the same shards", says: "was granted slot",
		creation: func(c *table.Creation) { c.Moves = nil },
	},
	{
		name: "a restore of half", in: "a sibling is restored while its slot is created", says: "was restored to",
		pass: func(pass *quota.Pass) {
			for i := range pass.Changes {
				if pass.Changes[i].Restore {
					pass.Changes[i].Delta /= 2
				}
			}
		},
	},
	{
		name: "a new shard with a token too much", in: "a shard is created at 2 while the count doubles to 4", says: "of nothing",
		creation: func(c *table.Creation) {
			c.Bucket.Limit("q").Balance += 1000
			c.Bucket.Fill()
		},
	},
	{
		name: "rf put back by a creation", in: "a shard is created at 2 while the count doubles to 4", says: "rf of shard 0 fell",
		write: onZero(func(stored table.Item) table.Assignment {
			rf, _ := stored.Int(table.AttrRefilledAt)
			return table.Assignment{Name: table.AttrRefilledAt, Value: table.Int(rf - 1)}
		}),
	},
	{
		name: "a count put down by a creation", in: "a shard is created at 2 while the count doubles to 4", says: "the count of shard 0 fell",
		write: onZero(func(table.Item) table.Assignment {
			return table.Assignment{Name: table.AttrShardCount, Value: table.Int(1)}
		}),
	},
	{
		name: "no mark set", in: "a batch is delivered again, in halves", says: "is counted",
		write: unset("add usage", func(name string) bool { return generic(name) != name }),
	},
	{
		name: "a mark without the stream, a number", in: "the stream is made anew", says: "is counted",
		mark: func(_, sequence string) (string, error) { return events.StreamPosition("", sequence) },
	},
	{
		name: "a mark that is not padded", in: "a batch is discarded and driven again later", says: "is counted",
		mark: func(label, sequence string) (string, error) { return label + "/" + sequence, nil },
	},
	{
		name: "the lowest failure not reported", in: "an hour ends while the table is down", says: "is counted",
		lastFailure: true,
	},
	{
		name: "the gap of a discarded batch not kept", in: "a batch is discarded and driven again later", says: "is counted",
		usage: func(usage *table.Usage) {
			for i := range usage.Sources {
				next := usage.Sources[i].Next
				usage.Sources[i].Next = table.SeenRecords{{First: next[0].First, Last: next[len(next)-1].Last}}
			}
		},
	},
}

// Each rule is needed: without it some order is found to be wrong.
func TestMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds, which -short leaves out")
	}
	table, stories := "", ""
	for _, m := range slices.Concat(mutants, limiterMutants, gatherMutants) {
		r := scenarioOf(t, m.in).search(m, explore.Options{})
		if r.Wrong == "" || !strings.Contains(r.Wrong, m.says) {
			t.Errorf("%s: not found in %d schedules: %s", m.name, r.Schedules, story(r))
			continue
		}
		table += fmt.Sprintf("\n%-50s found after %4d schedules, by %2d lines in: %s", m.name, r.Schedules, len(r.Schedule), m.in)
		stories += fmt.Sprintf("\n\n%s: %s", m.name, story(r))
	}
	t.Log(table + stories)
}
