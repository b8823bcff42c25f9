package proof_test

import (
	"context"
	"fmt"

	"github.com/shardquota/shardquota/internal/explore"
	"github.com/shardquota/shardquota/table"
)

// steps is a table.DB over the world's table in which every request is a step of
// its actor. Without an actor it just makes the requests.
type steps struct {
	w    *world
	a    *explore.Actor
	name string // without an actor: who asks
	book func(changes []change)
}

// change is a bucket before and after a write, nil where there is none. It is
// zero for an item of another kind, and for a check.
type change struct{ before, after *table.Bucket }

var _ table.DB = (*steps)(nil)

func (s *steps) request(ctx context.Context, do func() explore.Digest) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", table.ErrRetry, err)
	}
	if s.a == nil {
		do()
		return nil
	}
	if err := s.a.Request(do); err != nil {
		return fmt.Errorf("%w: %w", table.ErrRetry, err)
	}
	return nil
}

func (s *steps) say(format string, args ...any) {
	if s.a != nil {
		s.a.Say(format, args...)
	} else if s.w.tell != nil {
		s.w.tell(s.name + ": " + fmt.Sprintf(format, args...))
	}
}

// told reports whether anybody reads what is said.
func (s *steps) told() bool { return s.a != nil && s.a.Told() || s.w.tell != nil }

// pick returns a request's result, or why it failed.
func pick[T any](result T, own, fault error) (T, error) {
	if fault != nil {
		var none T
		return none, fault
	}
	return result, own
}

// noted is what the books are to be told of the next write if it is applied. It
// holds for one write.
func (s *steps) noted() func(changes []change) {
	book := s.book
	if s.book = nil; book == nil {
		return func([]change) {}
	}
	return book
}

// Do implements table.DB.
func (s *steps) Do(ctx context.Context, write *table.Write) (table.WriteResult, error) {
	var result table.WriteResult
	var own error
	book := s.noted()
	err := s.request(ctx, func() explore.Digest {
		s.w.mutate(write)
		var text func() string
		if s.told() {
			text = s.w.text(write)
		}
		if result, own = s.w.mem.Do(ctx, write); result.Applied && write.Changes() {
			book([]change{s.w.wrote(write)})
		}
		if text != nil {
			s.say("%s", text())
		}
		d := explore.Digest(flag(result.Applied))
		if result.Item != nil {
			d = d.Add(uint64(s.w.digestAt(write.Key)))
		}
		return d
	})
	return pick(result, own, err)
}

// Transact implements table.DB.
func (s *steps) Transact(ctx context.Context, t *table.Transaction) (table.TransactResult, error) {
	var result table.TransactResult
	var own error
	book := s.noted()
	err := s.request(ctx, func() explore.Digest {
		var texts []func() string
		for _, write := range t.Writes {
			s.w.mutate(write)
			if s.told() {
				texts = append(texts, s.w.text(write))
			}
		}
		transact := s.w.mem.Transact
		if s.w.mutant.piecemeal {
			transact = s.w.piecemeal
		}
		if result, own = transact(ctx, t); own == nil && len(result.Refused) == 0 {
			changes := make([]change, len(t.Writes))
			for i, write := range t.Writes {
				changes[i] = s.w.wrote(write)
			}
			book(changes)
		}
		said := t.Operation + ", all or none:"
		for _, text := range texts {
			said += "\n  " + text()
		}
		s.say("%s", said)
		d := explore.Digest(0)
		for i := range result.Refused {
			d += explore.Digest(1).Add(uint64(i), uint64(s.w.digestAt(t.Writes[i].Key)))
		}
		return d
	})
	return pick(result, own, err)
}

// piecemeal makes the writes of a transaction one by one, until one is refused.
func (w *world) piecemeal(ctx context.Context, t *table.Transaction) (table.TransactResult, error) {
	for i, write := range t.Writes {
		result, err := w.mem.Do(ctx, write)
		if err == nil && result.Applied {
			continue
		}
		for _, made := range t.Writes[:i] {
			w.wrote(made)
		}
		return table.TransactResult{Refused: map[int]table.Item{i: result.Item}}, err
	}
	return table.TransactResult{}, nil
}

// Load implements table.DB. A batch read of shards is a step for each of them,
// unless the world reads them at once: DynamoDB's is no snapshot.
func (s *steps) Load(ctx context.Context, lookup *table.Lookup) (table.LoadResult, error) {
	if n := len(lookup.Keys); n > 1 && s.w.reads != atOnce && lookup.Operation == "read siblings" {
		result := table.LoadResult{Items: make([]table.Item, n)}
		for i := range n {
			if s.w.reads == lastFirst {
				i = n - 1 - i
			}
			one, err := s.Load(ctx, &table.Lookup{Operation: lookup.Operation, Keys: lookup.Keys[i : i+1]})
			if err != nil {
				return table.LoadResult{}, err
			}
			result.Items[i] = one.Items[0]
		}
		return result, nil
	}
	var result table.LoadResult
	var own error
	err := s.request(ctx, func() explore.Digest {
		result, own = s.w.mem.Load(ctx, lookup)
		if s.told() {
			s.say("reads%s", briefs(lookup.Keys, result.Items))
		}
		var d explore.Digest
		for _, key := range lookup.Keys {
			d = d.Add(uint64(s.w.digestAt(key)))
		}
		return d
	})
	return pick(result, own, err)
}

// Query implements table.DB.
func (s *steps) Query(ctx context.Context, query *table.Query) (table.QueryResult, error) {
	var result table.QueryResult
	var own error
	err := s.request(ctx, func() explore.Digest {
		result, own = s.w.mem.Query(ctx, query)
		s.say("finds %d items by %s", len(result.Keys), query.Index)
		var d explore.Digest
		for _, key := range result.Keys {
			d = d.Text(key.PK).Text(key.SK)
		}
		return d
	})
	return pick(result, own, err)
}

// mutate changes a write as the world's mutant does.
func (w *world) mutate(write *table.Write) {
	if w.mutant.write != nil {
		w.mutant.write(write, w.mem.Get(write.Key.PK, write.Key.SK))
	}
}

// wrote looks at an item after a write of it.
func (w *world) wrote(write *table.Write) change {
	if !write.Changes() {
		return change{}
	}
	at := write.Key
	if key, err := table.ParseKey(at.PK); err == nil && at.SK == table.StateSK {
		return w.of(key.Group).wroteShard(key.Shard)
	}
	w.others[at] = digestOf(w.mem.Get(at.PK, at.SK))
	return change{}
}

// digestAt digests what is stored at a key.
func (w *world) digestAt(at table.ItemKey) explore.Digest {
	key, err := table.ParseKey(at.PK)
	if err != nil || at.SK != table.StateSK {
		return w.others[at]
	}
	if s := w.of(key.Group).shards[key.Shard]; s != nil {
		return s.digest
	}
	return 0
}

func flag(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}
