package proof_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/shardquota/shardquota/internal/explore"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// requests is a table.Client on which every request to the service is a step of
// its actor: raising siblings is a read, and then an update for each. Without
// an actor requests are just made.
type requests struct {
	w    *world
	a    *explore.Actor
	name string // without an actor: who asks
	user *user  // whose requests these are; nil where it takes no tokens with a Limiter
}

var _ table.Client = (*requests)(nil)

func (r *requests) request(do func() explore.Digest) error {
	if r.a == nil {
		do()
		return nil
	}
	if err := r.a.Request(do); err != nil {
		return fmt.Errorf("%w: %w", table.ErrRetry, err)
	}
	return nil
}

func (r *requests) say(format string, args ...any) {
	if r.a != nil {
		r.a.Say(format, args...)
	} else if r.w.tell != nil {
		r.w.tell(r.name + " " + fmt.Sprintf(format, args...))
	}
}

// told reports whether anybody reads what is said.
func (r *requests) told() bool { return r.a != nil && r.a.Told() || r.w.tell != nil }

func (r *requests) Read(_ context.Context, key table.Key) (*table.Bucket, error) {
	var b *table.Bucket
	err := r.request(func() (digest explore.Digest) {
		b, digest = r.w.of(key.Group).read(key.Shard)
		r.say("reads %s%s", shardName(key), brief{b})
		return digest
	})
	return pick(b, nil, err)
}

// look is a read by which the reader notes the time, too.
func (r *requests) look(shard int, skew int64) (b *table.Bucket, now int64) {
	_ = r.request(func() explore.Digest {
		var digest explore.Digest
		b, digest = r.w.read(shard)
		now = r.w.now + skew
		r.say("reads shard %d%s at %s", shard, brief{b}, moment(now))
		return digest.Add(uint64(now))
	})
	return b, now
}

// pick returns a request's result, or why it failed.
func pick[T any](result T, own, fault error) (T, error) {
	if fault != nil {
		var none T
		return none, fault
	}
	return result, own
}

func (r *requests) AddUsage(_ context.Context, usage table.Usage) (table.UsageResult, error) {
	var result table.UsageResult
	var own error
	err := r.request(func() explore.Digest {
		result, own = r.w.addUsage(usage)
		if r.told() {
			r.say("counts %s in %d writes, %s", counters(usage), usage.Events, outcome(result.Applied))
		}
		d := explore.Digest(0).Add(flag(result.Applied))
		for shard, counted := range result.Seen {
			mark, runs := counted.Texts()
			d += explore.Digest(0).Add(uint64(shard)).Text(mark).Text(runs)
		}
		return d
	})
	return pick(result, own, err)
}

func (r *requests) Pass(_ context.Context, b *table.Bucket, pass *quota.Pass) (table.PassResult, error) {
	var result table.PassResult
	var own error
	err := r.request(func() explore.Digest {
		result, own = r.w.pass(b, pass)
		if r.told() {
			r.say("passes shard %d at %d (%s, rf %s), %s", b.Shard, pass.ShardCount, changes(pass), clock(pass.RefilledAt), outcome(result.Applied))
		}
		return r.w.shards[b.Shard].digest.Add(flag(result.Applied))
	})
	return pick(result, own, err)
}

func (r *requests) Double(ctx context.Context, group table.Group, from int) (table.DoubleResult, error) {
	var result table.DoubleResult
	var own error
	err := r.request(func() explore.Digest {
		result, own = r.w.table.Double(ctx, group, from)
		r.w.of(group).wrote(0)
		r.say("doubles from %d, %s", from, outcome(result.Applied))
		return explore.Digest(0).Add(flag(result.Applied), uint64(result.Count))
	})
	return pick(result, own, err)
}

func (r *requests) Freeze(ctx context.Context, key table.Key, freezes []quota.Freeze) error {
	var own error
	err := r.request(func() explore.Digest {
		own = r.w.table.Freeze(ctx, key, freezes)
		r.w.of(key.Group).wrote(key.Shard)
		r.say("freezes the grant of shard %d at %d", key.Shard, freezes[0].Grant)
		return 0
	})
	_, err = pick(0, own, err)
	return err
}

func (r *requests) Create(_ context.Context, c table.Creation) (table.CreationOutcome, error) {
	var result table.CreationOutcome
	var own error
	err := r.request(func() explore.Digest {
		w := r.w.of(c.Bucket.Key.Group)
		result, own = w.create(c)
		if r.user != nil && result == table.Created {
			w.books.whole(c)
		}
		if r.told() {
			r.say("creates shard %d at %d (%s), %s", c.Bucket.Shard, c.Bucket.ShardCount, funding(c), outcomes[result])
		}
		return explore.Digest(result)
	})
	return pick(result, own, err)
}

func (r *requests) RaiseAndRead(_ context.Context, group table.Group, n int, now int64) ([]table.Sibling, error) {
	siblings, err := r.family(group, n)
	for shard, sibling := range siblings {
		if b := sibling.Bucket; r.w.mutant.raise == neverRaised || b == nil || shard == 0 || b.ShardCount >= n {
			continue
		}
		raised, err := r.raise(sibling.Bucket, n, now)
		if err != nil {
			return nil, err
		}
		if r.w.mutant.raise != raisedLate {
			siblings[shard] = raised
		}
	}
	if err == nil && r.w.mutant.siblings != nil {
		r.w.mutant.siblings(siblings, now)
	}
	return siblings, err
}

// family reads shards 0 to n-1: at once, or, as DynamoDB's batch read may, one
// by one.
func (r *requests) family(group table.Group, n int) ([]table.Sibling, error) {
	siblings := make([]table.Sibling, n)
	if r.w.reads != atOnce {
		for i := range siblings {
			if r.w.reads == lastFirst {
				i = n - 1 - i
			}
			b, err := r.Read(context.Background(), group.At(i))
			if err != nil {
				return nil, err
			}
			siblings[i].Bucket = b
		}
		return siblings, nil
	}
	err := r.request(func() explore.Digest {
		var d explore.Digest
		for shard := range siblings {
			b, digest := r.w.of(group).read(shard)
			siblings[shard].Bucket = b
			d = d.Add(uint64(digest))
		}
		r.say("reads shards 0 to %d", n-1)
		return d
	})
	return pick(siblings, nil, err)
}

// raise is the update of one sibling, planned from an image.
func (r *requests) raise(b *table.Bucket, n int, now int64) (table.Sibling, error) {
	var sibling table.Sibling
	err := r.request(func() explore.Digest {
		w := r.w.of(b.Key.Group)
		stored := w.at(b.Shard)
		if sibling.Raised = stored.ShardCount < n; sibling.Raised {
			item := stored.Item.Clone()
			for _, freeze := range r.freezes(b, now) {
				if name := table.Attr(freeze.Limit, table.FieldGrant); item[name] == nil {
					item[name] = table.N(strconv.Itoa(freeze.Grant))
				}
			}
			w.put(build(item, count(n)), b.Shard)
		}
		var digest explore.Digest
		sibling.Bucket, digest = w.read(b.Shard)
		r.say("raises shard %d to %d, %s", b.Shard, n, outcome(sibling.Raised))
		return digest.Add(flag(sibling.Raised))
	})
	return pick(sibling, nil, err)
}

func flag(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

func outcome(applied bool) string {
	if applied {
		return "done"
	}
	return "refused"
}

var outcomes = map[table.CreationOutcome]string{
	table.Created: "done", table.Exists: "refused: it is there", table.PinMoved: "refused: the count is another",
	table.DonorChanged: "refused: a donor or the terms changed",
}

// brief says what a bucket holds, when it is printed.
type brief struct{ *table.Bucket }

func (b brief) String() string {
	if b.Bucket == nil {
		return " (none)"
	}
	return fmt.Sprintf(" (count %d, q %s)", b.ShardCount, tokens(b.Limit("q").Balance))
}

func changes(pass *quota.Pass) string {
	var texts []string
	for _, c := range pass.Changes {
		sign := "+"
		if c.Delta < 0 {
			sign = ""
		}
		texts = append(texts, c.Limit+" "+sign+tokens(c.Delta))
	}
	return strings.Join(texts, ", ")
}

func counters(usage table.Usage) string {
	var texts []string
	for _, limit := range []string{"q", "rpm"} {
		if amount, ok := usage.Counters[limit]; ok {
			texts = append(texts, limit+" "+tokens(amount))
		}
	}
	return strings.Join(texts, ", ")
}

func funding(c table.Creation) string {
	text := "q " + tokens(c.Bucket.Limit("q").Balance)
	for _, move := range c.Moves {
		text += fmt.Sprintf(" off shard %d", move.Donor)
	}
	return text
}

func (r *requests) freezes(b *table.Bucket, now int64) []quota.Freeze {
	if r.w.mutant.raise == notFrozen {
		return nil
	}
	return quota.FrozenGrants(&b.Bucket, now)
}
