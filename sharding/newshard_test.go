package sharding_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/sharding"
	"github.com/shardquota/shardquota/table"
)

// Times of these tests: now, and a reset at noon before it.
const (
	planNow  = int64(1_796_130_000_000) // 2026-12-01T13:00:00Z
	planNoon = planNow - 3_600_000
)

// shardOf is a shard of a group with a daily quota of 1,000 tokens, reset at
// noon, a session quota of 80 whose windows are two hours long, a dripping limit
// of 100, and the write meter. Its grants are of this period, sized at grant.
func shardOf(shard, count, grant int, daily int64, change ...func(*table.Bucket)) table.Sibling {
	resets, err := quota.ParseResets("1m0h12", "")
	if err != nil {
		panic(err)
	}
	start := planNow - 1_000_000
	b := &table.Bucket{
		Key:  table.Group{Namespace: "ns", Entity: "acme", Resource: "api"}.At(shard),
		Item: table.Item{},
		Bucket: quota.Bucket{Shard: shard, ShardCount: count, RefilledAt: planNow - 2000, Limits: []quota.Limit{
			{Name: "daily", Balance: daily, Base: quota.Params{Capacity: 1_000_000}, Resets: resets, Grant: new(grant)},
			{Name: "drip", Balance: 5000, Base: quota.Params{Capacity: 100_000, Refill: 100_000, Period: 60_000}},
			{Name: "session", Balance: 1500, Base: quota.Params{Capacity: 80_000}, Grant: new(grant),
				Window: quota.Window{Length: 7_200_000, Start: &start, Applied: &start}},
			{Name: quota.WriteMeter, Base: quota.Params{Capacity: 1_000_000, Refill: 1_000_000, Period: 1000}},
		}},
	}
	for _, c := range change {
		c(b)
	}
	b.Fill()
	return table.Sibling{Bucket: b}
}

// What a new shard is funded with, and by whom.
func TestPlanFunds(t *testing.T) {
	missing := table.Sibling{}
	passed := func(at int64) func(*table.Bucket) { return func(b *table.Bucket) { b.RefilledAt = at } }
	noWindow := func(b *table.Bucket) { b.Limits[2].Window.Start, b.Limits[2].Window.Applied = nil, nil }
	client := sharding.May{OpenWindows: true, WholeTokens: true}
	for _, c := range []struct {
		name     string
		siblings []table.Sibling
		shard    int
		may      sharding.May
		want     string
	}{
		{"a quota is moved off the sibling whose grant covers the slot, at most a share; what drips begins with a share, the write meter full",
			[]table.Sibling{shardOf(0, 2, 1, 900_700), missing}, 1, sharding.May{},
			"shard 1 of 2 at 0: daily: 500000 moved off shard 0, drip: 50000 (share), session: 1500 moved off shard 0, wcu: 1000000 (share)"},
		{"the closest fit gives",
			[]table.Sibling{shardOf(0, 4, 1, 900_000), shardOf(1, 4, 2, 100_000), missing, missing}, 3, sharding.May{},
			"shard 3 of 4 at 0: daily: 100000 moved off shard 1, drip: 25000 (share), session: 1500 moved off shard 1, wcu: 1000000 (share)"},
		{"a client moves whole tokens, and leaves the fraction where it can be whole",
			[]table.Sibling{shardOf(0, 2, 1, 100_700), missing}, 1, client,
			"shard 1 of 2 at 0: daily: 100000 moved off shard 0, drip: 50000 (share), session: 1000 moved off shard 0, wcu: 1000000 (share)"},
		{"a client whose donors changed twice goes without, and says so of every quota",
			[]table.Sibling{shardOf(0, 2, 1, 100_700), missing}, 1, sharding.May{OpenWindows: true, MoveNothing: true},
			"shard 1 of 2 at 0: daily: 0 moved off shard 0, drip: 50000 (share), session: 0 moved off shard 0, wcu: 1000000 (share)"},
		{"a sibling of the last period covers nothing: its share is granted afresh, also to a client whose donors changed twice",
			[]table.Sibling{shardOf(0, 2, 1, 900_000, passed(planNoon-1)), missing}, 1, sharding.May{MoveNothing: true},
			"shard 1 of 2 at 0: daily: 500000 (mint), drip: 50000 (share), session: 0 moved off shard 0, wcu: 1000000 (share)"},
		{"no shard is made before a sibling's last pass, which may be after a reset that the creator's time is not",
			[]table.Sibling{shardOf(0, 2, 1, 900_000), shardOf(1, 2, 2, 0, passed(planNow+500)), missing, missing}, 2, sharding.May{Recorded: true},
			"shard 2 of 4 at 500: daily: 250000 moved off shard 0, drip: 25000 (share), session: 1500 moved off shard 0, wcu: 1000000 (share)"},
		{"a client opens the window that nobody is in",
			[]table.Sibling{shardOf(0, 2, 1, 0, noWindow), missing}, 1, client,
			"shard 1 of 2 at 0: daily: 0 moved off shard 0, drip: 50000 (share), session: 40000 (mint), wcu: 1000000 (share)"},
		{"a new shard 0 gets of a quota what no sibling was granted",
			[]table.Sibling{missing, shardOf(1, 2, 2, 77)}, 0, sharding.May{},
			"shard 0 of 2 at 0: daily: 500000 (mint), drip: 50000 (share), session: 40000 (mint), wcu: 1000000 (share)"},
		{"and nothing where one was granted its slot: there is no shard 0 that a move could check",
			[]table.Sibling{missing, shardOf(1, 2, 1, 800_000)}, 0, sharding.May{},
			"shard 0 of 2 at 0: daily: 0 moved off shard 1, drip: 50000 (share), session: 0 moved off shard 1, wcu: 1000000 (share)"},
		{"the first shard of a group is its template",
			[]table.Sibling{missing}, 0, sharding.May{},
			"shard 0 of 1 at 0: "},
	} {
		r := sharding.Request{Siblings: c.siblings, Shard: c.shard, Count: len(c.siblings), Now: planNow, May: c.may}
		if c.shard == 0 {
			r.Template = shardOf(0, r.Count, r.Count, 33, noWindow).Bucket
		}
		plan := r.Plan()
		if got := relative(plan); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.name, got, c.want)
		}
		if moves := quota.Moves(plan.Fundings); fmt.Sprint(moves) != fmt.Sprint(plan.Creation.Moves) {
			t.Errorf("%s: moves %v, want %v", c.name, plan.Creation.Moves, moves)
		}
	}
}

// relative renders a plan with the time as milliseconds after planNow.
func relative(plan sharding.Plan) string {
	if plan.Refused == "" {
		shifted := new(*plan.Creation.Bucket)
		shifted.RefilledAt -= planNow
		plan.Creation.Bucket = shifted
	}
	return plan.String()
}

// What a new shard carries: the template's item and configuration, grants of its
// own count, and windows that its balances reflect.
func TestPlanCarries(t *testing.T) {
	zero := shardOf(0, 2, 1, 900_000, func(b *table.Bucket) {
		b.Item["unknown"] = table.S("kept")
		b.Limits[0].TopUp, b.Limits[0].Consumed = 7, 8
		b.Limits[2].Window.ConsumedAtOpen = new(int64(9))
		b.ValidUntil = new(planNow)
	})
	plan := sharding.Request{Siblings: []table.Sibling{zero, {}}, Shard: 1, Count: 2, Now: planNow}.Plan()
	shard, daily, session := plan.Creation.Bucket, plan.Creation.Bucket.Limit("daily"), plan.Creation.Bucket.Limit("session")
	windowEnd := planNow - 1_000_000 + 7_200_000
	got := fmt.Sprint(shard.Key.PK(), " ", shard.Item.Text("unknown"), " ", *shard.ValidUntil-windowEnd, " daily ", *daily.Grant, daily.TopUp, daily.Consumed,
		" session ", *session.Grant, *session.Window.Start-planNow, *session.Window.Applied-planNow, *session.Window.ConsumedAtOpen, " opened ", len(plan.Opened))
	if want := "ns/BUCKET#acme#api#1 kept 0 daily 2 0 0 session 2 -1000000 -1000000 0 opened 0"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if len(plan.Creation.ConfigAttrs) == 0 {
		t.Error("shard 0's configuration is not pinned")
	}
}

// Windows that a creation opens or joins, and the valid-until that follows.
func TestPlanWindows(t *testing.T) {
	ended := func(b *table.Bucket) { b.Limits[2].Window.Start = new(planNow - 7_200_000) }
	asked := func(b *table.Bucket) { b.ValidUntil = new(int64(0)) }
	for _, c := range []struct {
		name    string
		request sharding.Request
		want    string
	}{
		{"a client's shard opens its own where shard 0's has ended",
			sharding.Request{Siblings: []table.Sibling{shardOf(0, 2, 1, 0, ended), {}}, Shard: 1, Count: 2, May: sharding.May{OpenWindows: true}},
			"start 0 applied 0 opened [session] valid until the window's end"},
		{"where an operator asked for a client's pass, that comes first",
			sharding.Request{Siblings: []table.Sibling{shardOf(0, 2, 1, 0, asked), {}}, Shard: 1, Count: 2},
			"start -1000000 applied -1000000 opened [] valid until a pass"},
		{"a new shard 0 joins a sibling's",
			sharding.Request{Siblings: []table.Sibling{{}, shardOf(1, 2, 2, 0)}, Count: 2, Template: shardOf(0, 2, 2, 0, ended, asked).Bucket},
			"start -1000000 applied -1000000 opened [] valid until the window's end"},
		{"a new shard 0 that finds none waits for a use to open it",
			sharding.Request{Siblings: []table.Sibling{{}, shardOf(1, 2, 2, 0, ended)}, Count: 2, Template: shardOf(0, 2, 2, 0, ended, asked).Bucket},
			"start -7200000 applied -7200000 opened [] valid until a pass"},
	} {
		c.request.Now = planNow
		plan := c.request.Plan()
		if plan.Refused != "" {
			t.Errorf("%s: %v", c.name, plan)
			continue
		}
		b, names := plan.Creation.Bucket, []string{}
		for _, w := range plan.Opened {
			names = append(names, w.Limit)
		}
		window, until := b.Limit("session").Window, "something else"
		switch *b.ValidUntil {
		case 0:
			until = "a pass"
		case *window.Start + window.Length:
			until = "the window's end"
		}
		got := fmt.Sprintf("start %d applied %d opened %v valid until %s", *window.Start-planNow, *window.Applied-planNow, names, until)
		if got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.name, got, c.want)
		}
	}
}

// Why a shard is not created. Where several reasons hold, the first is given.
func TestPlanRefuses(t *testing.T) {
	malformed := errors.New("malformed")
	missing, unreadable := table.Sibling{}, table.Sibling{Broken: malformed}
	disabled := func(b *table.Bucket) { b.Disabled = true }
	unscheduled := func(b *table.Bucket) { b.Broken = quota.ErrSchedule }
	ended := func(b *table.Bucket) { b.Limits[2].Window.Start = new(planNow - 7_200_000) }
	family := func(siblings ...table.Sibling) []table.Sibling { return siblings }
	first := shardOf(0, 2, 2, 0).Bucket
	for _, c := range []struct {
		name    string
		request sharding.Request
		want    sharding.Refusal
		err     error
	}{
		{"the count is none", sharding.Request{Siblings: family(shardOf(0, 3, 1, 0), missing, missing), Shard: 1, Count: 3}, sharding.BadCount, nil},
		{"the count is none, which a client takes as it is", sharding.Request{
			Siblings: family(shardOf(0, 3, 1, 0, disabled), missing, missing), Shard: 1, Count: 3, May: sharding.May{AnyCount: true},
		}, sharding.GroupDisabled, nil},
		{"shard 0 is gone", sharding.Request{Siblings: family(missing, missing), Shard: 1, Count: 2}, sharding.NoShardZero, nil},
		{"shard 0 is gone, for a replay", sharding.Request{Siblings: family(missing, missing), Shard: 1, Count: 2, May: sharding.May{Recorded: true}}, sharding.NoShardZero, nil},
		{"shard 0 cannot be read", sharding.Request{Siblings: family(unreadable, missing), Shard: 1, Count: 2}, sharding.NoShardZero, nil},
		{"shard 0's count rose", sharding.Request{Siblings: family(shardOf(0, 4, 1, 0, disabled), missing), Shard: 1, Count: 2}, sharding.Overtaken, nil},
		{"shard 0's count is lower", sharding.Request{Siblings: family(shardOf(0, 1, 1, 0, disabled), missing), Shard: 1, Count: 2}, sharding.CountChanged, nil},
		{"a sibling cannot be read", sharding.Request{Siblings: family(shardOf(0, 4, 1, 0, disabled), unreadable, missing, missing), Shard: 3, Count: 4},
			sharding.Unreadable, malformed},
		{"disabled", sharding.Request{Siblings: family(shardOf(0, 2, 1, 0, disabled, unscheduled), missing), Shard: 1, Count: 2}, sharding.GroupDisabled, nil},
		{"shard 0's schedule cannot be read", sharding.Request{Siblings: family(shardOf(0, 2, 1, 0, unscheduled, ended), missing), Shard: 1, Count: 2},
			sharding.BadSchedule, quota.ErrSchedule},
		{"a sibling's schedule cannot be read: whether its grant covers the slot is unknown",
			sharding.Request{Siblings: family(shardOf(0, 4, 1, 0), shardOf(1, 4, 1, 0, unscheduled), missing, missing), Shard: 3, Count: 4},
			sharding.BadSchedule, quota.ErrSchedule},
		{"nobody may open a window", sharding.Request{Siblings: family(shardOf(0, 2, 1, 0, ended), shardOf(1, 2, 2, 0)), Shard: 1, Count: 2}, sharding.NoWindow, nil},
		{"it is there", sharding.Request{Siblings: family(shardOf(0, 2, 1, 0), shardOf(1, 2, 2, 0)), Shard: 1, Count: 2}, sharding.ShardExists, nil},
		{"shard 0 came back", sharding.Request{Siblings: family(shardOf(0, 2, 2, 0), missing), Count: 2, Template: first}, sharding.ShardExists, nil},
		{"an orphan knows a higher count", sharding.Request{Siblings: family(missing, shardOf(1, 4, 2, 0)), Count: 2, Template: first}, sharding.Overtaken, nil},
		{"an orphan cannot be read", sharding.Request{Siblings: family(missing, unreadable), Count: 2, Template: first}, sharding.Unreadable, malformed},
		{"a replay makes what somebody made, disabled or not, in whatever window",
			sharding.Request{Siblings: family(shardOf(0, 1, 1, 0, disabled, ended), missing), Shard: 1, Count: 2, May: sharding.May{Recorded: true}}, "", nil},
	} {
		c.request.Now = planNow
		plan := c.request.Plan()
		if plan.Refused != c.want || !errors.Is(plan.Err, c.err) || (plan.Refused != "") != (plan.Creation.Bucket == nil) {
			t.Errorf("%s: %v, %v, want %q, %v", c.name, plan, plan.Err, c.want, c.err)
		}
	}
}

// A creation that did not come about has a reason of the same set.
func TestOutcomeRefusals(t *testing.T) {
	for outcome, want := range map[table.CreationOutcome]sharding.Refusal{
		table.Created: "", table.Exists: sharding.ShardExists, table.PinMoved: sharding.CountChanged, table.DonorChanged: sharding.DonorLost,
	} {
		if got := sharding.RefusalOf(outcome); got != want {
			t.Errorf("outcome %d: %q, want %q", outcome, got, want)
		}
	}
}
