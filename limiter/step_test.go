package limiter

import (
	"errors"
	"testing"
	"time"

	"github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

var stepNoon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// declared are the limits of the bucket in these tests: 60 requests a minute, and 100
// calls a day, which are pooled.
func declared() limits.EffectiveConfig {
	calls := limits.Quota("calls", 100, "0 0 * * *")
	calls.Division = quota.Pooled
	return limits.EffectiveConfig{Limits: []limits.Limit{limits.PerMinute("rpm", 60), calls}}
}

// known is a state in which the drawn bucket has just refused a fast charge.
func known(change func(s *state)) *state {
	s := &state{
		key:    table.Group{Namespace: "ns1", Entity: "acme", Resource: "gpt-4"}.At(0),
		demand: quota.Demand{"rpm": 1000}, now: stepNoon, progress: refused,
	}
	if change != nil {
		change(s)
	}
	return s
}

// drawn is the bucket of acme's shard 0, full and passed at noon, with some
// attributes set or, where nil, removed.
func drawn(t *testing.T, attrs table.Item) *table.Bucket {
	t.Helper()
	item, err := declared().ApplyTo(table.EmptyBucket(known(nil).key, 1, stepNoon.UnixMilli()), stepNoon)
	if err != nil {
		t.Fatal(err)
	}
	item.Set(table.Item{table.AttrValidUntil: table.Int(stepNoon.Add(12 * time.Hour).UnixMilli())})
	item.Set(attrs)
	b, err := table.DecodeBucket(item)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The steps of a use, one rule a row.
func TestNext(t *testing.T) {
	later := table.Int(stepNoon.Add(time.Minute).UnixMilli())
	past := table.Int(stepNoon.Add(-time.Minute).UnixMilli())
	asks := func(demand quota.Demand) func(*state) { return func(s *state) { s.demand = demand } }
	of := func(limit string, field table.Field) string { return table.Attr(limit, field) }
	reads := func(config limits.EffectiveConfig, err error, more func(*state)) func(*state) {
		return func(s *state) {
			s.progress, s.config, s.configErr = configRead, &config, err
			more(s)
		}
	}
	with := func(attrs table.Item, name string, value table.Value) table.Item {
		changed := attrs.Clone()
		changed[name] = value
		return changed
	}
	// One of two shards, with half of the calls, and the other, with three left.
	half := table.Item{table.AttrShardCount: table.Int(2), of("calls", table.FieldBalance): table.Int(50_000), of("calls", table.FieldGrant): table.Int(2)}
	other := with(with(half, of("calls", table.FieldBalance), table.Int(3000)), table.AttrPK, table.S(known(nil).key.At(1).PK()))
	// Rows with nil attributes have no bucket.
	for _, row := range []struct {
		rule  string
		attrs table.Item
		state func(s *state)
		want  string
	}{
		// How a use begins, and goes on after others' writes.
		{"a use begins without looking at the bucket", nil, func(s *state) { s.progress = begun }, "charge fast"},
		{"a group that was last seen bypassed is metered at once", nil, func(s *state) {
			s.progress, s.freeUntil = begun, stepNoon.UnixMilli()+1
		}, "charge free"},
		{"not once that has run out", nil, func(s *state) { s.progress, s.freeUntil = begun, stepNoon.UnixMilli() }, "charge fast"},
		{"what was made or changed is charged", table.Item{}, func(s *state) { s.progress = prepared }, "charge fast"},
		{"who wrote the bucket meanwhile looks after its heat", table.Item{}, func(s *state) { s.progress = overtaken }, "charge hot"},

		// What the bucket says.
		{"a missing shard is created", nil, nil, "create shard"},
		{"a disabled bucket admits nothing", table.Item{table.AttrDisabled: table.Bool(true)}, nil, "fail: disabled by an operator"},
		{"also where it is bypassed", table.Item{table.AttrDisabled: table.Bool(true), table.AttrBypass: later}, nil, "fail: disabled by an operator"},
		{"a bypassed bucket meters", table.Item{table.AttrBypass: later}, nil, "charge free"},
		{"one that refused to is passed first", table.Item{table.AttrBypass: later, table.AttrTTL: table.Int(1)},
			func(s *state) { s.triedFree = true }, "write use: rpm -0, wcu -1"},
		{"a schedule that does not parse makes it untouchable", table.Item{of("rpm", table.FieldSchedule): table.S("7nonsense")}, nil,
			`fail: shard 0: undecodable schedule: schedule of limit rpm: parse schedule: unknown schedule version "7" of "7nonsense"`},

		// What it has.
		{"a bucket that has enough is passed and charged in one write", table.Item{of("rpm", table.FieldBalance): table.Int(5000)},
			func(s *state) { s.now = s.now.Add(time.Second) }, "write use: rpm -1, wcu -1, rpm +1"},
		{"a quota is restored by the same write", table.Item{of("calls", table.FieldBalance): table.Int(0)}, func(s *state) {
			s.now, s.demand = s.now.Add(24*time.Hour), quota.Demand{"calls": 7000}
		}, "write use: calls -7, wcu -1, calls +100"},
		{"one that has too little rejects, and says when it has", table.Item{of("rpm", table.FieldBalance): table.Int(0)}, nil,
			"reject: over limits of gpt-4: rpm: 0 of 60 left, 1 asked for, again in 1s"},
		{"more than it can ever hold is impossible", table.Item{}, asks(quota.Demand{"rpm": 61_000}),
			"reject: over limits of gpt-4: rpm: 61 is more than this shard, of 1, can ever hold: 60 now"},
		{"a soft limit is metered, into debt", table.Item{of("rpm", table.FieldBalance): table.Int(0), of("rpm", table.FieldSoft): later}, nil,
			"write use: rpm -1, wcu -1, rpm +0.001"},

		// Stamps that have run out.
		{"a soft stamp that has run out has the levels read", table.Item{of("rpm", table.FieldBalance): table.Int(0), of("rpm", table.FieldSoft): past}, nil,
			"read config"},
		{"so does a bypass", table.Item{of("rpm", table.FieldBalance): table.Int(0), table.AttrBypass: past}, nil, "read config"},
		{"it is renewed where the levels still say so", table.Item{of("rpm", table.FieldBalance): table.Int(0), table.AttrBypass: past},
			reads(limits.EffectiveConfig{Access: limits.Bypass}, nil, func(*state) {}), "renew stamps: [bypass]"},
		{"else the use is rejected", table.Item{of("rpm", table.FieldBalance): table.Int(0), table.AttrBypass: past},
			reads(declared(), nil, func(*state) {}), "reject: over limits of gpt-4: rpm: 0 of 60 left, 1 asked for, again in 1s"},
		{"and where someone else wrote the bucket meanwhile", table.Item{of("rpm", table.FieldBalance): table.Int(0), table.AttrBypass: past},
			reads(limits.EffectiveConfig{Access: limits.Bypass}, nil, func(s *state) { s.progress = notRenewed }),
			"reject: over limits of gpt-4: rpm: 0 of 60 left, 1 asked for, again in 1s"},
		{"levels that cannot be read renew nothing", table.Item{of("rpm", table.FieldBalance): table.Int(0), table.AttrBypass: past},
			reads(limits.EffectiveConfig{}, limits.ErrLimit, func(*state) {}), "fail: malformed limit"},

		// Limits that the bucket lacks.
		{"a missing limit has the levels read", table.Item{}, asks(quota.Demand{"rpm": 0, "tpm": 1000}), "read config"},
		{"also where the bucket is bypassed", table.Item{table.AttrBypass: later}, asks(quota.Demand{"tpm": 1000}), "read config"},
		{"it is rolled out where the levels define it", table.Item{},
			reads(limits.EffectiveConfig{Limits: []limits.Limit{limits.PerMinute("tpm", 5)}}, nil, asks(quota.Demand{"tpm": 1000})), "add limits"},
		{"else it is undefined", table.Item{}, reads(declared(), nil, asks(quota.Demand{"rpm": 0, "tpm": 1000})),
			"fail: no such limit is defined: tpm on gpt-4"},
		{"levels without limits define none", table.Item{}, reads(limits.EffectiveConfig{}, limits.ErrUndefined, asks(quota.Demand{"tpm": 1000})),
			"fail: no such limit is defined: tpm on gpt-4"},
		{"levels that cannot be read fail the use", table.Item{}, reads(limits.EffectiveConfig{}, limits.ErrLimit, asks(quota.Demand{"tpm": 1000})),
			"fail: malformed limit"},
		{"a parent gives without it", table.Item{}, reads(declared(), nil, func(s *state) {
			s.parent, s.demand = true, quota.Demand{"rpm": 1000, "tpm": 1000}
		}), "restrict to [rpm]"},

		// Pooled limits.
		{"of several shards, all are asked for a pooled quota", half, asks(quota.Demand{"calls": 60_000}), "read shards"},
		{"not where all had too little a moment ago", half, func(s *state) {
			s.demand, s.recent.shards = quota.Demand{"calls": 60_000}, []*table.Bucket{drawn(t, half), drawn(t, other)}
		}, "reject: over limits of gpt-4: calls: 53 of 100 left, 60 asked for, again in 12h0m0s"},
		{"which ends when an operator changes the limit", half, func(s *state) {
			s.demand = quota.Demand{"calls": 60_000}
			s.recent.shards = []*table.Bucket{drawn(t, half), drawn(t, with(other, of("calls", table.FieldCapacity), table.Int(90_000)))}
		}, "read shards"},
		{"of limits that are not pooled, one shard decides", with(half, of("rpm", table.FieldBalance), table.Int(0)), nil,
			"reject: over limits of gpt-4: rpm: 0 of 30 left, 1 asked for, again in 2s"},
		{"a lone shard has none to ask", table.Item{}, asks(quota.Demand{"calls": 101_000}),
			"reject: over limits of gpt-4: calls: 101 is more than all 1 shards can ever hold: 100 now"},
	} {
		var b *table.Bucket
		if row.attrs != nil {
			b = drawn(t, row.attrs)
		}
		s := known(row.state)
		before := *s
		if got := next(b, s).String(); got != row.want {
			t.Errorf("%s:\n got %s\nwant %s", row.rule, got, row.want)
		}
		if before.progress != s.progress || before.config != s.config || before.triedFree != s.triedFree {
			t.Errorf("%s: next changed the state", row.rule)
		}
	}
}

// The steps of a use that is taken off all shards together, one rule a row.
func TestNextPooled(t *testing.T) {
	of := func(shard int, balance int64, attrs table.Item) table.Sibling {
		b := drawn(t, table.Item{
			table.AttrPK: table.S(known(nil).key.At(shard).PK()), table.AttrShardCount: table.Int(2),
			table.Attr("calls", table.FieldBalance): table.Int(1000 * balance), table.Attr("calls", table.FieldGrant): table.Int(2),
			table.Attr("rpm", table.FieldBalance): table.Int(30_000),
		})
		b.Item.Set(attrs)
		b, err := table.DecodeBucket(b.Item)
		return table.Sibling{Bucket: b, Broken: err}
	}
	broken := table.Sibling{Broken: errors.New("malformed item")}
	later := table.Int(stepNoon.Add(time.Minute).UnixMilli())
	for _, row := range []struct {
		rule   string
		shards []table.Sibling
		calls  int64
		want   string
	}{
		{"a use of one shard comes off the one that has it", []table.Sibling{of(0, 10, nil), of(1, 50, nil)}, 40, "write pieces; shard 1: calls -40, wcu -1"},
		{"else off several, in one transaction", []table.Sibling{of(0, 10, nil), of(1, 50, nil)}, 60,
			"write pieces; shard 0: calls -10, wcu -2; shard 1: calls -50, wcu -2"},
		{"all together have too little", []table.Sibling{of(0, 10, nil), of(1, 50, nil)}, 61,
			"reject: over limits of gpt-4: calls: 60 of 100 left, 61 asked for, again in 12h0m0s"},
		{"a missing shard is created first: it has a share", []table.Sibling{of(0, 10, nil), {}}, 60, "create shards [1]"},
		{"not for what all can never hold", []table.Sibling{of(0, 10, nil), {}}, 101,
			"reject: over limits of gpt-4: calls: 101 is more than all 2 shards can ever hold: 100 now"},
		{"nor beside a shard that cannot be read, which may soon be mended", []table.Sibling{of(0, 10, nil), broken}, 60,
			"reject: over limits of gpt-4: calls: 10 of 100 left, 60 asked for, again in 1s"},
		{"the drawn shard has to be read", []table.Sibling{broken, of(1, 50, nil)}, 60, "fail: shard 0: malformed item"},
		{"one that is gone is asked again, and so created", []table.Sibling{{}, of(1, 50, nil)}, 60, "ask again"},
		{"one that was disabled is asked again", []table.Sibling{of(0, 10, table.Item{table.AttrDisabled: table.Bool(true)}), of(1, 50, nil)}, 60, "ask again"},
		{"so is one that was bypassed", []table.Sibling{of(0, 10, table.Item{table.AttrBypass: later}), of(1, 50, nil)}, 60, "ask again"},
	} {
		s := known(func(s *state) { s.demand = quota.Demand{"calls": 1000 * row.calls} })
		if got := nextPooled(row.shards, s).String(); got != row.want {
			t.Errorf("%s:\n got %s\nwant %s", row.rule, got, row.want)
		}
	}
}
