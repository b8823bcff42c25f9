package proof_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/shardquota/shardquota/internal/explore"
	"github.com/shardquota/shardquota/limiter"
	"github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/memory"
)

// user is a program that takes tokens with a Limiter, the real one.
type user struct {
	program
	w       *world
	name    string
	store   *requests
	limits  *limits.Store
	limiter *limiter.Limiter
	leases  []*limiter.Lease // that it got, the last one last
	drawn   int              // shards
	warm    bool             // what it does is of before
	ended   bool             // it has done all that it does
	claims  *claims
}

// program is what a user is like.
type program struct {
	skew    int64 // what its clock is ahead by, milliseconds
	count   int   // the shard count that it remembers from before; 0 where it met nobody yet
	picks   []int // which of the shards it may draw it does draw, one after the other; nothing is the first
	crashes int
	faults  int
	options []limiter.Option
}

// limiter is an actor that does one thing after another with a Limiter.
func (w *world) limiter(name string, p program, do ...func(u *user)) explore.Spec {
	kept := &user{name: name, claims: &claims{}}
	w.users = append(w.users, kept)
	return explore.Spec{Name: name, Crashes: p.crashes, Faults: p.faults, Run: func(a *explore.Actor) {
		u := &user{program: p, w: w, name: name, claims: kept.claims}
		u.claims.begun = false // what was under way when it crashed may have been done
		u.start(w.requests(a, name, u))
		for _, op := range do {
			op(u)
		}
		kept.ended = true
	}}
}

// switched is a table that is another one later.
type switched struct{ table.Client }

// start makes the Limiter, and has it remember what it is to.
func (u *user) start(store *requests) {
	u.store = store
	t := &switched{memory.New().Client()}
	var err error
	if u.limits, err = limits.Open(context.Background(), t, limits.NamespaceID(acme.Namespace), limits.Clock(u.clock), limits.Sequential()); err != nil {
		panic(err)
	}
	u.limiter = limiter.New(u.limits, append([]limiter.Option{limiter.Deterministic(u.pick)}, u.options...)...)
	if u.count > 0 {
		u.remember(t)
	}
	t.Client = store
}

// remember has the Limiter meet acme at a shard count, elsewhere.
func (u *user) remember(t *switched) {
	before := memory.New()
	before.Put(q(0, u.count, million, 1))
	t.Client, u.warm = before.Client(), true
	if _, err := u.limiter.Acquire(context.Background(), acme.Entity, acme.Resource, limiter.Amounts{"q": 0}); err != nil {
		panic(err)
	}
	u.warm = false
}

func (u *user) pick(n int) int {
	if len(u.picks) == 0 || u.warm {
		return 0
	}
	u.drawn++
	return u.picks[(u.drawn-1)%len(u.picks)] % n
}

// clock is what the Limiter takes for the time. Where time moves, looking is a
// step.
func (u *user) clock() time.Time {
	now := u.w.now + u.skew
	if a := u.store.db.a; u.w.ticks && !u.warm && a != nil {
		a.Do(func() explore.Digest {
			now = u.w.now + u.skew
			a.Say("looks at the clock: %s", moment(now))
			return explore.Digest(now)
		})
	}
	return time.UnixMilli(now)
}

// Operations of users, to be given to an actor.

// acquires takes so many tokens.
func acquires(amount int64) func(*user) {
	return func(u *user) {
		u.claims.begin(0, 1000*amount)
		lease, err := u.limiter.Acquire(context.Background(), acme.Entity, acme.Resource, limiter.Amounts{"q": amount})
		u.expect(err)
		said := int64(0)
		if err == nil {
			u.leases = append(u.leases, lease)
			said = 1000 * lease.Taken()["q"]
		}
		u.claims.end(0, 1000*amount, !errors.Is(err, table.ErrRetry), said)
	}
}

// adjusts settles the last lease, if there is one.
func adjusts(amount int64) func(*user) {
	return func(u *user) {
		if len(u.leases) == 0 {
			return
		}
		last := u.leases[len(u.leases)-1]
		amount := max(amount, -last.Taken()["q"])
		low, high := min(0, 1000*amount), max(0, 1000*amount)
		u.claims.begin(low, high)
		err := last.Adjust(context.Background(), limiter.Amounts{"q": amount})
		u.expect(err)
		said := int64(0)
		if err == nil {
			said = 1000 * amount
		}
		u.claims.end(low, high, !errors.Is(err, table.ErrRetry), said)
	}
}

// releases gives the last lease back, if there is one; where that fails, again.
func releases(u *user) {
	if len(u.leases) == 0 {
		return
	}
	last := u.leases[len(u.leases)-1]
	taken := 1000 * last.Taken()["q"]
	u.claims.begin(-taken, 0)
	err := last.Release(context.Background())
	known := !errors.Is(err, table.ErrRetry)
	if !known {
		u.store.db.a.Recovered()
		err = last.Release(context.Background())
	}
	u.expect(err)
	said := int64(0)
	if known && err == nil {
		said = -taken
	}
	u.leases = u.leases[:len(u.leases)-1]
	u.claims.end(-taken, 0, known, said)
}

// sets stores other limits for acme, as an operator does.
func sets(declared ...limits.Limit) func(*user) {
	return func(u *user) {
		u.operates(u.limits.SetLimits(context.Background(), limits.For(acme.Entity, acme.Resource), declared...))
	}
}

// stores stores another capacity for acme, and brings it to no bucket yet.
func stores(capacity int64) func(*user) {
	return func(u *user) {
		u.store.step(func() explore.Digest {
			u.w.putOther(build(ownLimits, attrs{"l_q_cp": capacity}))
			u.store.db.say("stores a limit of %d", capacity)
			return 0
		})
	}
}

// access sets acme's access, as an operator does.
func access(access limits.Access) func(*user) {
	return func(u *user) {
		u.operates(u.limits.SetAccess(context.Background(), limits.For(acme.Entity, acme.Resource), access))
	}
}

// expect notes an error that no use may end in.
func (u *user) expect(err error) {
	var rejection *limiter.Rejection
	if err != nil && !errors.As(err, &rejection) && !errors.Is(err, limiter.ErrDisabled) &&
		!errors.Is(err, limits.ErrContended) && !errors.Is(err, table.ErrRetry) {
		u.w.books.note("%s fails: %v", u.name, err)
	}
}

// operates notes an error that no operator may end in.
func (u *user) operates(err error) {
	if err != nil && !errors.Is(err, table.ErrRetry) {
		u.w.books.note("%s fails: %v", u.name, err)
	}
}

// drawnByLimiter returns what has a Limiter draw a shard.
func (w *world) drawnByLimiter() func(shard int) {
	u := &user{w: w, name: "in the end a limiter", claims: &claims{}}
	u.options = w.users[0].options
	u.start(w.requests(nil, u.name, u))
	amounts := limiter.Amounts{"q": 0}
	if w.mem.Get(configPK, configSK)["l_come_cp"] != nil {
		amounts["come"] = 0
	}
	return func(shard int) {
		u.picks = []int{shard}
		_, err := u.limiter.Acquire(context.Background(), acme.Entity, acme.Resource, amounts)
		u.expect(err)
	}
}

// operated says what is wrong once operators are done, and every shard is drawn:
// a shard that has not the limits that are stored for acme, or holds too much or
// too little of one that came meanwhile, and that nobody uses.
func (w *world) operated() string {
	stored := w.mem.Get(configPK, configSK)
	if stored == nil || slices.ContainsFunc(w.users, func(u *user) bool { return !u.ended }) {
		return ""
	}
	shards := make([]*quota.Bucket, 0, maxShards)
	for _, b := range w.all() {
		shards = append(shards, &b.Bucket)
		for _, name := range []string{"q", "come"} {
			capacity, ok := stored.Int("l_" + name + "_cp")
			if l := b.Limit(name); ok && (l == nil || l.Base.Capacity != 1000*capacity) {
				return fmt.Sprintf("shard %d has not the limit %s that is stored", b.Shard, name)
			}
		}
	}
	if w.at(0).Limit("come") == nil {
		return ""
	}
	row, err := quota.Audit("come", shards, w.now)
	if held := row.Held + row.Grantable; err != nil || held > row.Capacity || held < row.Capacity-maxShards {
		return fmt.Sprintf("of the limit that came %s is held, %s can be granted", tokens(row.Held), tokens(row.Grantable))
	}
	return ""
}

// Where limits are stored for acme.
const (
	configPK = "ns1/ENTITY#sk-live-acme"
	configSK = "#CONFIG#gpt-4"
)
