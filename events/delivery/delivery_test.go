package delivery_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/events/delivery"
	"github.com/shardquota/shardquota/internal/traffic"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/memory"
)

func number(v types.AttributeValue) int64 {
	n, _ := v.(*types.AttributeValueMemberN)
	value, _ := strconv.ParseInt(n.Value, 10, 64)
	return value
}

// allRaised checks that every shard has the shard count of the last doubling.
func (s *simulation) allRaised() {
	for _, group := range groups {
		shards := s.table.Shards(group)
		for _, b := range shards {
			if b.ShardCount != shards[0].ShardCount {
				s.fail("%s: shard %d has count %d of %d", group.Resource, b.Shard, b.ShardCount, shards[0].ShardCount)
			}
		}
	}
}

// conserved lets a client draw every shard, and looks at the ledgers.
func (s *simulation) conserved() []quota.Row {
	var rows []quota.Row
	for _, group := range groups {
		c := traffic.Client{Table: s.table, Now: s.table.Now + 10*second}
		for shard := range s.table.At(group.At(0)).ShardCount {
			c.Create(group.At(shard))
			c.Refresh(group.At(shard))
		}
		var shards []*quota.Bucket
		for _, b := range s.table.Shards(group) {
			shards = append(shards, &b.Bucket)
		}
		row, err := quota.Audit("day", shards, c.Now)
		if err != nil || !row.Conserved || row.Grantable != 0 || len(shards) != shards[0].ShardCount {
			s.fail("%s: ledger %+v, %v", group.Resource, row, err)
		}
		rows = append(rows, row)
	}
	return rows
}

// delivered runs a simulation and returns it with what is wrong in the end.
func delivered(seed uint64, m mutant) *simulation {
	s := newSimulation(seed, m)
	s.live(steps)
	s.drain()
	s.counted()
	s.allRaised()
	s.conserved()
	s.again()
	return s
}

// again delivers everything once more, which changes no usage.
func (s *simulation) again() {
	before := s.usageText()
	for batch := range slices.Chunk(s.table.Records, 1+s.r.IntN(200)) {
		_ = s.invoke(batch)
	}
	if s.usageText() != before {
		s.fail("another delivery changed usage")
	}
}

// Whatever is delivered how, usage is what clients consumed, every shard is told
// of doublings, and quotas are conserved.
func TestDelivery(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds, which -short leaves out")
	}
	seen := map[string]int{}
	for seed := range uint64(corpus) {
		s := delivered(seed, mutant{})
		if len(s.wrong) > 0 {
			t.Fatalf("seed %d: %s", seed, strings.Join(s.wrong[:min(5, len(s.wrong))], "\n"))
		}
		for what, n := range s.seen {
			seen[what] += n
		}
		seen["records"] += len(s.table.Records)
	}
	t.Log(seen)
	for _, what := range []string{"rolls", "restarts", "streams", "RetryAttemptsExhausted", "RecordAgeExceeded"} {
		if seen[what] == 0 {
			t.Errorf("no %s: too tame to show anything", what)
		}
	}
}

// clientsAlone is a table and its stream after clients used it, with no
// aggregator and no time left to wait.
func clientsAlone(seed uint64) *simulation {
	s := newSimulation(seed, mutant{})
	s.still, s.config.Window, s.config.Backoff = true, 0, 0
	s.restart()
	for range steps / 2 {
		s.use()
		switch n := s.r.IntN(100); {
		case n < 30:
			s.table.Now += s.r.Int64N(second)
		case n < 32:
			s.stream.roll(s.r.IntN(8), s.chance(50))
		}
	}
	s.restart()
	return s
}

// One stream leaves the same table however it is delivered: usage items to the
// byte, the runs of counted records included, and the same ledgers once every
// shard is drawn.
func TestSameTable(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds, which -short leaves out")
	}
	for seed := range uint64(corpus / 2) {
		inOrder, other := clientsAlone(2*seed), clientsAlone(2*seed)
		inOrder.faults.percent = 0
		for i := range inOrder.table.Records {
			_ = inOrder.invoke(inOrder.table.Records[i : i+1])
		}
		for range steps / 4 {
			other.turn()
			if other.chance(20) {
				other.redrive()
			}
		}
		other.drain()
		for _, s := range []*simulation{inOrder, other} {
			s.counted()
			s.allRaised()
		}
		eq(t, fmt.Sprintf("seed %d: usage", seed), other.usageText(), inOrder.usageText())
		eq(t, fmt.Sprintf("seed %d: ledgers", seed), other.conserved(), inOrder.conserved())
		eq(t, fmt.Sprintf("seed %d: wrong", seed), append(inOrder.wrong, other.wrong...), "[]")
	}
}

// usageText renders the usage items, sorted by key.
func (s *simulation) usageText() string {
	items, text := s.usage(), ""
	for _, at := range slices.Sorted(maps.Keys(items)) {
		line, _ := table.FormatItem(items[at])
		text += string(line) + "\n"
	}
	return text
}

// belowMark is a table that says of every record before the last one counted
// that it is counted, and is content with that.
type belowMark struct {
	table.Store
	memory *memory.Store
}

func (m belowMark) AddUsage(ctx context.Context, u table.Usage) (table.UsageResult, error) {
	counted, _ := m.memory.Get(u.Key.PK(), u.Key.SK()).SeenRecords()
	for i, source := range u.Sources {
		if runs := counted[source.Shard]; len(source.Found) > 0 && len(runs) > 0 {
			u.Sources[i].Found = runs
			u.Sources[i].Next = table.SeenRecords{{First: runs[0].First, Last: source.Next[len(source.Next)-1].Last}}
		}
	}
	result, err := m.Store.AddUsage(ctx, u)
	for shard, runs := range result.Seen {
		last := runs[len(runs)-1].Last
		result.Seen[shard] = table.SeenRecords{{First: last, Last: last}}
		for _, source := range u.Sources {
			if source.Shard == shard && source.Next[0].First.Position < last.Position {
				result.Seen[shard][0].First.Position = source.Next[0].First.Position
			}
		}
	}
	return result, err
}

// oneSide takes what a donor's balance falls by for consumption.
func oneSide(batch []aggregator.Delivery) {
	for _, d := range batch {
		if d.Change == nil || d.Change.Old == nil || d.Change.Old.RefilledAt != d.Change.New.RefilledAt {
			continue
		}
		old, now := d.Change.Old.Limit("day"), d.Change.New.Limit("day")
		if fall := old.Balance - now.Balance; fall > 0 && old.Consumed == now.Consumed {
			now.Consumed += fall
		}
	}
}

// mutants are functions and tables that are wrong about deliveries.
var mutants = []struct {
	name, found string
	mutant
}{
	{"the highest failure is reported", ", not ", mutant{answer: func(_ *aggregator.Report, a delivery.Answer) delivery.Answer {
		a.Failures = a.Failures[:min(1, len(a.Failures))] // which are in descending order
		return a
	}}},
	{"a failed usage write is not reported", ", not ", mutant{answer: func(r *aggregator.Report, a delivery.Answer) delivery.Answer {
		a.Failures = slices.Clone(a.Failures)
		for i, failure := range slices.Backward(r.Failures) {
			if failure.Step == aggregator.StepUsage {
				at := len(a.Failures) - 1 - i
				a.Failures = slices.Delete(a.Failures, at, at+1)
			}
		}
		return a
	}}},
	{"an error is taken for success", ", not ", mutant{answer: func(_ *aggregator.Report, a delivery.Answer) delivery.Answer {
		a.Failed = false
		return a
	}}},
	{"one side of a move is taken for consumption", ", not ", mutant{batch: oneSide}},
	{"records before the mark are dropped", ", not ", mutant{store: func(s table.Store, m *memory.Store) table.Store { return belowMark{s, m} }}},
}

func TestDeliveryMutantsAreCaught(t *testing.T) {
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(10) {
				wrong := strings.Join(delivered(seed, m.mutant).wrong, "\n")
				if strings.Contains(wrong, m.found) {
					t.Logf("seed %d: %.200s", seed, wrong)
					return
				}
			}
			t.Error("not caught")
		})
	}
}
