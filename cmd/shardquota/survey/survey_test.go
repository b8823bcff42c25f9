package survey_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/shardquota/shardquota/cmd/shardquota/survey"
	"github.com/shardquota/shardquota/internal/fixture"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

func bucket(t testing.TB, shard int, more ...fixture.Attrs) table.Sibling {
	t.Helper()
	b, err := table.DecodeBucket(fixture.Bucket(fixture.Acme.At(shard), more...))
	return table.Sibling{Bucket: b, Broken: err}
}

func take(siblings ...table.Sibling) *survey.Survey {
	return survey.Take(survey.Found{Shards: siblings}, fixture.Noon+60_000)
}

func daily(grant int) fixture.Attrs { return fixture.Daily("calls", 500_000, 8_000_000, grant) }

// The slots that were moved off a wide grant belong to whoever they were moved
// to; the wide one lies beneath.
func TestCoverage(t *testing.T) {
	four := fixture.Count(4)
	s := take(bucket(t, 0, four, daily(1)), bucket(t, 1, four, daily(2)), table.Sibling{}, bucket(t, 3, four, daily(4)))
	q := s.Quotas[0]
	fixture.Eq(t, "slots", q.Slots, "[{0 [0] []} {1 [1] [0]} {2 [0] []} {3 [3] [0 1]}]")
	fixture.Eq(t, "grants", q.Grants, "[{0 1 true [0 1 2 3] [0 2]} {1 2 true [1 3] [1]} {3 4 true [3] [3]}]")
	fixture.Eq(t, "ledger", []int64{q.Capacity, q.Granted, q.Grantable, q.Held}, "[8000000 8000000 0 1500000]")
	fixture.Eq(t, "verdicts", []bool{q.Conserved, s.Sound(), s.Empty()}, "[true true false]")
	fixture.Eq(t, "shard 2", s.Shards[2].Presence, survey.Missing)
}

// Two grants of the same slots are an overlap, and a stale grant covers nothing.
func TestOverlapAndStale(t *testing.T) {
	four, old := fixture.Count(4), fixture.Refilled(fixture.Midnight-1)
	s := take(bucket(t, 0, four, daily(2)), bucket(t, 1, four, daily(4), old), bucket(t, 2, four, daily(2)), table.Sibling{})
	q := s.Quotas[0]
	fixture.Eq(t, "slots", q.Slots, "[{0 [0 2] []} {1 [] []} {2 [0 2] []} {3 [] []}]")
	fixture.Eq(t, "overlaps", []bool{q.Slots[0].Overlaps(), q.Slots[1].Overlaps()}, "[true false]")
	fixture.Eq(t, "shard 1", q.Grants[1], "{1 4 false [] []}")
	fixture.Eq(t, "verdicts", []bool{q.Conserved, s.Sound()}, "[false false]")
}

// What cannot be read is named and costs nothing else: an item, a schedule, a
// usage item.
func TestFaults(t *testing.T) {
	badUsage := table.Item{table.AttrPK: table.S("ns1/ENTITY"), table.AttrSK: table.S("#USAGE#")}
	s := survey.Take(survey.Found{
		Shards: []table.Sibling{
			bucket(t, 0, fixture.Count(2), daily(1), fixture.Attrs{"b_calls_sched": "9z"}),
			{Broken: fmt.Errorf("%w: rf: not a number", table.ErrItem)},
		},
		Usage: []table.Item{badUsage},
	}, fixture.Noon)
	var items []string
	for _, fault := range s.Faults {
		items = append(items, fault.Item)
	}
	fixture.Eq(t, "faults", items, "[shard 0 shard 1 usage item 1]")
	fixture.Eq(t, "presence", []survey.Presence{s.Shards[0].Presence, s.Shards[1].Presence}, "[there undecodable]")
	fixture.Eq(t, "base capacity stands in", s.Shards[0].Limits[0].Ceiling, 8_000_000)
	if s.Quotas[0].Broken == "" || s.Limits[0].Broken == "" || s.Sound() {
		t.Errorf("a schedule that cannot be read is passed over: %+v", s)
	}
}

// Shards beyond the count, which no program of ours makes, are shown; where
// shard 0 is unreadable the others tell the count.
func TestCount(t *testing.T) {
	s := take(bucket(t, 0, fixture.Count(1), daily(1)), table.Sibling{}, bucket(t, 2, fixture.Count(4), daily(4)))
	fixture.Eq(t, "beyond the count", []int{s.Count, len(s.Shards)}, "[1 3]")
	s = take(table.Sibling{Broken: errors.New("unreadable")}, bucket(t, 1, fixture.Count(4), daily(4)), table.Sibling{}, table.Sibling{})
	fixture.Eq(t, "without shard 0", []int{s.Count, len(s.Shards)}, "[4 4]")
	s = take(make([]table.Sibling, quota.MaxShards)...)
	fixture.Eq(t, "nothing at all", s.Empty(), true)
	s = take(bucket(t, 0, fixture.Count(1<<16), daily(1)))
	fixture.Eq(t, "slots of an absurd count", len(s.Quotas[0].Slots), 64)
}

// A session window is unopened, applied, pending or ended.
func TestWindows(t *testing.T) {
	start := fixture.Noon
	hourly := func(at int64) fixture.Attrs { return fixture.Hourly("sess", 1, 1000, 4, at) }
	s := take(
		bucket(t, 0, fixture.Count(4), hourly(start)),
		bucket(t, 1, fixture.Count(4), hourly(start-2*fixture.Hour), fixture.Attrs{"b_sess_ws": start}),
		bucket(t, 2, fixture.Count(4), hourly(start-2*fixture.Hour)),
		bucket(t, 3, fixture.Count(4), hourly(0)))
	var states []survey.WindowState
	for _, shard := range s.Shards {
		states = append(states, shard.Limits[0].Window.State)
	}
	fixture.Eq(t, "states", states, "[applied pending ended unopened]")
	fixture.Eq(t, "ends", *s.Shards[1].Limits[0].Window.End, start+fixture.Hour)
	fixture.Eq(t, "boundary", *s.Boundary, start+fixture.Hour)
}

// A schedule in force changes capacity and ceiling, and says until when.
func TestSchedule(t *testing.T) {
	s := take(bucket(t, 0, fixture.Drips("rpm", 400_000, 1_000_000), fixture.Attrs{"b_rpm_sched": "1h12s500"}))
	terms := s.Limits[0]
	fixture.Eq(t, "capacity", []int64{terms.Capacity, terms.Base, s.Shards[0].Limits[0].Ceiling}, "[500000 1000000 500000]")
	fixture.Eq(t, "next", *terms.Next, fixture.Noon+fixture.Hour)
	fixture.Eq(t, "in words", terms.Schedule, "* 12 * * * scale 0.5 UTC")
	fixture.Eq(t, "a quota's", take(bucket(t, 0, daily(1))).Limits[0].Resets, "0 0 * * * UTC")
}

// A division is named where it is not the default, and where it is ignored.
func TestDivision(t *testing.T) {
	says := fixture.Attrs{"b_calls_div": "replicated", "b_rpm_div": "replicated", "b_tpm_div": "divided"}
	s := take(bucket(t, 0, fixture.Count(4), daily(1), fixture.Drips("rpm", 0, 1_000_000), fixture.Drips("tpm", 0, 1_000_000), says))
	var got []string
	for i, terms := range s.Limits {
		got = append(got, fmt.Sprint(terms.Name, " ", terms.Division, " ", terms.Ignored, " ", s.Shards[0].Limits[i].Ceiling))
	}
	fixture.Eq(t, "divisions", strings.Join(got, ", "), "calls replicated true 8000000, rpm replicated false 1000000, tpm  false 250000")
}

// The write meter is at the level of the moment.
func TestMeter(t *testing.T) {
	s := take(bucket(t, 0, daily(1), fixture.Refilled(fixture.Noon+59_900), fixture.Attrs{"b_wcu_tk": 100_000}))
	fixture.Eq(t, "level", *s.Shards[0].Meter, survey.Meter{Level: 200_000, Capacity: 1_000_000})
}

// As JSON, lists are lists however empty.
func TestJSON(t *testing.T) {
	text, err := json.Marshal(take(bucket(t, 0, fixture.Drips("rpm", 1, 2))))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"quotas":[]`, `"usage":[]`, `"faults":[]`, `"next_boundary":null`, `"presence":"there"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s does not hold %s", text, want)
		}
	}
}
