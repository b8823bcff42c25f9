package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	. "github.com/shardquota/shardquota/limiter"
	. "github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/memory"
)

// sold is what a quota of shards gave and holds, tokens.
func (w *world) sold(limit string) string {
	w.Helper()
	var buckets []*quota.Bucket
	var consumed int64
	for shard := range quota.MaxShards {
		b, err := w.Client.Read(w.Context(), group(acme).At(shard))
		w.noError(err)
		if b != nil {
			buckets = append(buckets, &b.Bucket)
			consumed += b.Limit(limit).Consumed
		}
	}
	row, err := quota.Audit(limit, buckets, w.now.UnixMilli())
	w.noError(err)
	return fmt.Sprintf("%s used, %s held, %s to grant, %v", table.Tokens(consumed), table.Tokens(row.Held), table.Tokens(row.Grantable), row.Conserved)
}

// A shard that is drawn and missing is made with what is its own, and takes from
// no other.
func TestADrawnShardIsMade(t *testing.T) {
	everywhere(t, func(w *world) {
		l := w.limiter(Default("", Quota("calls", 1001, "0 0 * * *"), PerMinute("rpm", 90)), ShardAttempts(32))
		w.admit(l, acme, Amounts{"calls": 1})
		w.double(acme)
		for w.bucketOrNil(acme, 1) == nil {
			w.admit(l, acme, Amounts{"calls": 1, "rpm": 1})
		}
		shard := w.bucket(acme, 1)
		eq(w, "granted at", *shard.Limit("calls").Grant, 2)
		eq(w, "rpm", table.Tokens(shard.Limit("rpm").Balance), "44")
		// 500.5 is the part, half a token of it stays where it is of use.
		eq(w, "moved", table.Tokens(shard.Limit("calls").Balance+shard.Limit("calls").Consumed), "500")
		eq(w, "expires", shard.Item[table.AttrTTL] != nil, true)
		if sold := w.sold("calls"); !strings.HasSuffix(sold, " 0 to grant, true") {
			w.Error(sold)
		}
	})
}

func (w *world) bucketOrNil(entity string, shard int) *table.Bucket {
	w.Helper()
	b, err := w.Client.Read(w.Context(), group(entity).At(shard))
	w.noError(err)
	return b
}

// Where a donor spends between being read and being debited, twice, the shard is
// made with nothing (G10): less than its part, never more.
func TestADonorThatKeepsChanging(t *testing.T) {
	w := newWorld(t)
	quota := Default("", Quota("calls", 100, "0 0 * * *"))
	l, other := w.limiter(quota, Deterministic(func(n int) int { return n - 1 })), w.limiter(quota, Deterministic(func(int) int { return 0 }))
	w.admit(l, acme, Amounts{"calls": 0})
	w.double(acme)
	w.admit(l, acme, Amounts{"calls": 0}) // and learns of it
	spends := []int64{60, 30}             // leaves 40, then 10
	w.fail = func(request string) error {
		if strings.HasPrefix(request, "create") && len(spends) > 0 {
			amount := spends[0]
			spends = spends[1:]
			w.mu.Unlock()
			defer w.mu.Lock()
			w.admit(other, acme, Amounts{"calls": amount})
		}
		return nil
	}
	w.reject(l, acme, Amounts{"calls": 5})
	w.holds(acme, 0, "calls", "10", "90")
	w.holds(acme, 1, "calls", "0", "0")
}

// A rejection keeps the move that made the shard (G9).
func TestARejectionKeepsTheMove(t *testing.T) {
	w := newWorld(t)
	l := w.limiter(Default("", Quota("calls", 100, "0 0 * * *")))
	w.admit(l, acme, Amounts{"calls": 1})
	w.double(acme)
	w.admit(l, acme, Amounts{"calls": 0}) // and learns of it
	for w.bucketOrNil(acme, 1) == nil {
		w.reject(l, acme, Amounts{"calls": 100})
	}
	w.holds(acme, 0, "calls", "49", "1")
	w.holds(acme, 1, "calls", "50", "0")
	eq(w, "sold", w.sold("calls"), "1 used, 99 held, 0 to grant, true")
}

// 100 clients use a quota up while its shards double. They are admitted exactly
// what was sold. On DynamoDB most is taken ten at a time, which takes a tenth of
// the writes; the rest, as in memory all, one by one.
func TestExactlyWhatWasSold(t *testing.T) {
	everywhere(t, func(w *world) {
		const sold, clients = 10_000, 100
		sizes := []int64{10, 1}
		if _, inMemory := w.Client.(*memory.Client); inMemory {
			sizes = sizes[1:]
		}
		l := w.limiter(Default("", Quota("calls", sold, "0 0 * * *")), ShardAttempts(32))
		w.admit(l, acme, Amounts{"calls": 0})
		var admitted atomic.Int64
		use := func(ctx context.Context, size int64) error {
			for admitted.Load() < sold {
				_, err := l.Acquire(ctx, acme, model, Amounts{"calls": size})
				var rejection *Rejection
				if errors.As(err, &rejection) {
					return nil
				}
				if err != nil {
					return err
				}
				if n := admitted.Add(size); n%1_500 < size {
					if _, err := w.Client.Double(ctx, groupOf(acme), 1<<(n/1_500-1)); err != nil {
						return err
					}
				}
			}
			return nil
		}
		group, ctx := errgroup.WithContext(t.Context())
		for range clients {
			group.Go(func() error {
				for _, size := range sizes {
					if err := use(ctx, size); err != nil {
						return err
					}
				}
				return nil
			})
		}
		w.noError(group.Wait())
		eq(w, "admitted", admitted.Load(), sold)
		eq(w, "admitted afterwards", w.drain(l, "calls"), 0)
		eq(w, "sold", w.sold("calls"), "10000 used, 0 held, 0 to grant, true")
		if count := w.bucket(acme, 0).ShardCount; count < 8 {
			t.Errorf("%d shards: it did not double", count)
		}
	})
}

func groupOf(entity string) table.Group { return group(entity) }

// A shard 0 that runs hot is doubled by the client, and the others are told.
func TestAHotShardIsDoubled(t *testing.T) {
	w := newWorld(t)
	l := w.limiter(Default("", Quota("calls", 100_000, "0 0 * * *")))
	for range 1000 { // in no time, as the clock stands
		w.admit(l, acme, Amounts{"calls": 1})
	}
	eq(w, "shards", w.bucket(acme, 0).ShardCount, 1)
	w.since()
	w.now = noon.Add(100 * time.Millisecond)
	w.admit(l, acme, Amounts{"calls": 1})
	w.asks("take sk-live-acme 0", "use sk-live-acme 0", "double sk-live-acme from 1", "raise sk-live-acme to 2")
	eq(w, "shards", w.bucket(acme, 0).ShardCount, 2)
}

// Slow steady traffic never doubles anything, though the meter as stored falls.
func TestSlowTrafficDoublesNothing(t *testing.T) {
	w := newWorld(t)
	l := w.limiter(Default("", Quota("calls", 100_000, "0 0 * * *")))
	for range 3000 {
		w.now = w.now.Add(2 * time.Millisecond)
		w.admit(l, acme, Amounts{"calls": 1})
	}
	eq(w, "shards", w.bucket(acme, 0).ShardCount, 1)
}

// The first use opens a session's window and tells the other shards, which roll
// into it by themselves.
func TestASessionIsSharedByItsShards(t *testing.T) {
	everywhere(t, func(w *world) {
		l := w.limiter(Default("", Session("calls", 80, time.Hour)), ShardAttempts(32))
		w.admit(l, acme, Amounts{"calls": 10})
		w.double(acme)
		w.admit(l, acme, Amounts{"calls": 0})
		w.drain(l, "calls")
		eq(w, "sold", w.sold("calls"), "80 used, 0 held, 0 to grant, true")
		first := *w.bucket(acme, 0).Limit("calls").Window.Start
		eq(w, "the shard joined", *w.bucket(acme, 1).Limit("calls").Window.Start, first)

		w.now = noon.Add(90 * time.Minute)
		w.since()
		w.admit(l, acme, Amounts{"calls": 1})
		eq(w, "told", slices.ContainsFunc(w.since(), func(s string) bool { return strings.HasPrefix(s, "tell") }), true)
		for shard := range 2 {
			eq(w, "start", *w.bucket(acme, shard).Limit("calls").Window.Start, w.now.UnixMilli())
		}
		w.drain(l, "calls")
		eq(w, "sold", w.sold("calls"), "160 used, 0 held, 0 to grant, true")
	})
}

// drain uses a limit up, one token each time.
func (w *world) drain(l *program, limit string) (admitted int) {
	w.Helper()
	for {
		_, err := l.Acquire(w.Context(), acme, model, Amounts{limit: 1})
		var rejection *Rejection
		if errors.As(err, &rejection) {
			return admitted
		}
		w.noError(err)
		admitted++
	}
}

// A shard that is made after the window has ended opens its own and tells the
// others.
func TestAShardMadeAfterTheWindow(t *testing.T) {
	w := newWorld(t)
	l := w.limiter(Default("", Session("calls", 80, time.Hour)))
	w.admit(l, acme, Amounts{"calls": 40})
	w.double(acme)
	w.admit(l, acme, Amounts{"calls": 0}) // and learns of it
	w.now = noon.Add(2 * time.Hour)
	for w.bucketOrNil(acme, 1) == nil {
		w.admit(l, acme, Amounts{"calls": 1})
	}
	a, b := w.bucket(acme, 0).Limit("calls"), w.bucket(acme, 1).Limit("calls")
	eq(w, "one window", *a.Window.Start, *b.Window.Start)
	used := w.drain(w.limiter(Default("", Session("calls", 80, time.Hour)), ShardAttempts(32)), "calls")
	used += w.drain(l, "calls")
	eq(w, "net", a.Consumed+b.Consumed-40_000 <= 80_000, true)
	if used > 80 {
		t.Errorf("%d used of 80", used)
	}
}

// A client that was away learns of a lower count from shard 0, and draws again.
func TestAGroupThatWasMadeAnew(t *testing.T) {
	w := newWorld(t)
	l := w.limiter(Default("", Quota("calls", 100, "0 0 * * *")), ShardAttempts(32))
	w.admit(l, acme, Amounts{"calls": 1})
	for range 3 {
		w.double(acme)
	}
	w.admit(l, acme, Amounts{"calls": 0})
	for shard := range 8 {
		w.remove(acme, shard)
	}
	eq(w, "used", w.drain(l, "calls"), 100)
	eq(w, "shards", w.bucket(acme, 0).ShardCount, 1)
}

// Where shard 0 expired before the others, what they hold is not granted again.
// What shard 0 held is: nothing is left that tells of it.
func TestShardsThatOutliveShardZero(t *testing.T) {
	everywhere(t, func(w *world) {
		options := []any{Default("", Quota("calls", 100, "0 0 * * *")), ShardAttempts(32)}
		l := w.limiter(options...)
		w.admit(l, acme, Amounts{"calls": 1})
		w.double(acme)
		for w.bucketOrNil(acme, 1) == nil {
			w.admit(l, acme, Amounts{"calls": 0})
		}
		w.remove(acme, 0)
		again := w.limiter(options...)
		eq(w, "used", w.drain(again, "calls"), 100)
		eq(w, "shards", w.bucket(acme, 0).ShardCount, 2)
	})
}
