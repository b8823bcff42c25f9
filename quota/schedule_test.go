package quota

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"
)

func at(t testing.TB, text string) int64 {
	t.Helper()
	when, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return when.UnixMilli()
}

func clock(ms int64, ok bool) string {
	if !ok {
		return "never"
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04Z")
}

func mustSchedule(t testing.TB, compact, zone string) Schedule {
	t.Helper()
	s, err := ParseSchedule(compact, zone)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustResets(t testing.TB, compact, zone string) Resets {
	t.Helper()
	r, err := ParseResets(compact, zone)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestResetEdges(t *testing.T) {
	for _, c := range []struct {
		why, compact, zone, now, prev, next string
	}{
		{"an edge counts as past from its own instant on", "1m0h0", "", "2026-06-10T00:00:00Z", "2026-06-10T00:00Z", "2026-06-11T00:00Z"},
		{"a moment before the edge", "1m0h0", "", "2026-06-09T23:59:59Z", "2026-06-09T00:00Z", "2026-06-10T00:00Z"},
		{"midnight in New York is 04:00 in summer", "1m0h0", "America/New_York", "2026-07-01T12:00:00Z", "2026-07-01T04:00Z", "2026-07-02T04:00Z"},
		{"the day of 23 hours", "1m0h0", "America/New_York", "2026-03-08T05:00:00Z", "2026-03-08T05:00Z", "2026-03-09T04:00Z"},
		{"the day of 25 hours", "1m0h0", "America/New_York", "2026-11-01T04:00:00Z", "2026-11-01T04:00Z", "2026-11-02T05:00Z"},
		{"02:30 doesn't exist on 8 March", "1m30h2", "America/New_York", "2026-03-07T07:30:00Z", "2026-03-07T07:30Z", "2026-03-09T06:30Z"},
		{"01:30 exists twice on 1 November", "1m30h1", "America/New_York", "2026-11-01T05:30:00Z", "2026-11-01T05:30Z", "2026-11-01T06:30Z"},
		{"the hour from 1 repeats without a gap: one edge", "1h1", "America/New_York", "2026-11-01T05:00:00Z", "2026-11-01T05:00Z", "2026-11-02T06:00Z"},
		{"a window that opens in the skipped hour opens after it", "1h2-4", "Europe/Berlin", "2026-03-29T00:59:00Z", "2026-03-28T01:00Z", "2026-03-29T01:00Z"},
		{"Lord Howe repeats only half an hour", "1m45h1", "Australia/Lord_Howe", "2026-04-04T14:45:00Z", "2026-04-04T14:45Z", "2026-04-04T15:15Z"},
		{"Lord Howe skips only half an hour", "1m15h2", "Australia/Lord_Howe", "2026-10-02T15:45:00Z", "2026-10-02T15:45Z", "2026-10-04T15:15Z"},
		{"Santiago has no midnight on 6 September", "1m0h0", "America/Santiago", "2026-09-05T04:00:00Z", "2026-09-05T04:00Z", "2026-09-07T03:00Z"},
		{"a monthly reset over 31 days and an hour", "1m0h0D1", "Europe/Berlin", "2026-09-30T22:00:00Z", "2026-09-30T22:00Z", "2026-10-31T23:00Z"},
		{"months that are too short are passed over", "1m0h0D31", "", "2026-04-15T00:00:00Z", "2026-03-31T00:00Z", "2026-05-31T00:00Z"},
		{"either the 13th or a Friday", "1m0h0D13w5", "", "2026-01-09T00:00:00Z", "2026-01-09T00:00Z", "2026-01-13T00:00Z"},
		{"a star in front restricts: Sundays in the first week", "1m0h0D1-7w*/7", "", "2026-01-05T00:00:00Z", "2026-01-04T00:00Z", "2026-02-01T00:00Z"},
		{"leap days lie eight years apart around 2100", "1m0h0D29M2", "", "2097-01-01T00:00:00Z", "2096-02-29T00:00Z", "2104-02-29T00:00Z"},
		{"a leap day on a Sunday", "1m0h0D29M2w*/7", "", "2026-01-01T00:00:00Z", "2004-02-29T00:00Z", "2032-02-29T00:00Z"},
		{"and forty years apart", "1m0h0D29M2w*/7", "", "2100-01-01T00:00:00Z", "2088-02-29T00:00Z", "2128-02-29T00:00Z"},
		{"no Apian remembers 30 December 2011", "1m0h0D30M12", "Pacific/Apia", "2011-06-01T00:00:00Z", "2010-12-30T10:00Z", "2012-12-29T10:00Z"},
		{"of several entries the nearest", "1m0h0D1;m0h0w1", "", "2026-06-05T00:00:00Z", "2026-06-01T00:00Z", "2026-06-08T00:00Z"},
		{"an entry that always matches has no edge", "1;m0h0", "", "2026-06-05T12:00:00Z", "2026-06-05T00:00Z", "2026-06-06T00:00Z"},
		{"nor have two that do", "1;", "", "2026-06-05T12:00:00Z", "never", "never"},
		{"nor a pattern that names everything", "1D1-31w1", "", "2026-06-05T12:00:00Z", "never", "never"},
		{"02:30 on the last Sunday of March, if the 29th, never comes in Berlin", "1m30h2D29M3w*/7", "Europe/Berlin", "2026-06-05T12:00:00Z", "never", "never"},
		{"Monrovia gave up 44 minutes and a half inside a minute", "1m0h12D7M1", "Africa/Monrovia", "1972-01-06T00:00:00Z", "1971-01-07T12:45Z", "1972-01-07T12:00Z"},
		{"before the epoch", "1m0h0", "", "1969-12-31T23:59:59Z", "1969-12-31T00:00Z", "1970-01-01T00:00Z"},
	} {
		t.Run(c.why, func(t *testing.T) {
			r := mustResets(t, c.compact, c.zone)
			now := at(t, c.now)
			if got := clock(r.Prev(now)); got != c.prev {
				t.Errorf("Prev = %s, want %s", got, c.prev)
			}
			if got := clock(r.Next(now)); got != c.next {
				t.Errorf("Next = %s, want %s", got, c.next)
			}
		})
	}
}

func TestNextChange(t *testing.T) {
	for _, c := range []struct {
		why, compact, zone string
		now                string
		changes            []string
	}{
		{"a window opens and closes", "1h9-17w1-5s500", "", "2026-06-05T00:00:00Z",
			[]string{"2026-06-05T09:00Z", "2026-06-05T18:00Z", "2026-06-08T09:00Z"}},
		{"one that is hidden by an earlier one changes nothing", "1h8-18s500;h9-17s100", "", "2026-06-05T00:00:00Z",
			[]string{"2026-06-05T08:00Z", "2026-06-05T19:00Z", "2026-06-06T08:00Z"}},
		{"an earlier one cuts into a later one", "1h12s500;h9-17s100", "", "2026-06-05T00:00:00Z",
			[]string{"2026-06-05T09:00Z", "2026-06-05T12:00Z", "2026-06-05T13:00Z", "2026-06-05T18:00Z"}},
		{"one follows the other without a gap", "1h0-11s500;h12-23s100", "", "2026-06-05T00:00:00Z",
			[]string{"2026-06-05T12:00Z", "2026-06-06T00:00Z"}},
		{"always", "1s500", "", "2026-06-05T00:00:00Z", []string{"never"}},
		{"always, and nothing after it", "1s500;h9s100", "", "2026-06-05T00:00:00Z", []string{"never"}},
		{"a fallback that always matches", "1h9s100;c5", "", "2026-06-05T00:00:00Z",
			[]string{"2026-06-05T09:00Z", "2026-06-05T10:00Z", "2026-06-06T09:00Z"}},
		{"the skipped hour: closing right where it would have opened", "1h2s500", "America/New_York", "2026-03-07T12:00:00Z",
			[]string{"2026-03-09T06:00Z", "2026-03-09T07:00Z"}},
		{"the repeated hour is two hours long", "1h1s500", "America/New_York", "2026-10-31T12:00:00Z",
			[]string{"2026-11-01T05:00Z", "2026-11-01T07:00Z", "2026-11-02T06:00Z"}},
		{"the first half of a repeated hour comes twice", "1m0-29h1s500", "America/New_York", "2026-10-31T12:00:00Z",
			[]string{"2026-11-01T05:00Z", "2026-11-01T05:30Z", "2026-11-01T06:00Z", "2026-11-01T06:30Z"}},
		{"half an hour more in Lord Howe", "1h1s500", "Australia/Lord_Howe", "2026-04-04T13:00:00Z",
			[]string{"2026-04-04T14:00Z", "2026-04-04T15:30Z"}},
	} {
		t.Run(c.why, func(t *testing.T) {
			s := mustSchedule(t, c.compact, c.zone)
			now := at(t, c.now)
			for _, want := range c.changes {
				next, ok := s.NextChange(now)
				if got := clock(next, ok); got != want {
					t.Fatalf("NextChange(%s) = %s, want %s", clock(now, true), got, want)
				}
				now = next
			}
		})
	}
}

func TestEffective(t *testing.T) {
	base := Params{Capacity: 100_000, Refill: 10_000, Period: 60_000}
	quota := Params{Capacity: 7, Period: 1000}
	noon := "2026-06-05T12:00:00Z" // a Friday
	for _, c := range []struct {
		why, compact, zone, now string
		base, want              Params
	}{
		{"no entry matches", "1h9s500", "", noon, base, base},
		{"half", "1h12s500", "", noon, base, Params{50_000, 5_000, 60_000}},
		{"the last millisecond of a window", "1h12s500", "", "2026-06-05T12:59:59.999Z", base, Params{50_000, 5_000, 60_000}},
		{"and the first after it", "1h12s500", "", "2026-06-05T13:00:00Z", base, base},
		{"rounded down", "1s333", "", noon, quota, Params{2, 0, 1000}},
		{"to no less than one", "1s1", "", noon, Params{7, 3, 1000}, Params{1, 1, 1000}},
		{"a quota doesn't begin to drip", "1s5000", "", noon, quota, Params{35, 0, 1000}},
		{"exact where a float isn't", "1s290", "", noon, Params{100, 100, 1}, Params{29, 29, 1}},
		{"capacity alone, in tokens", "1c5", "", noon, base, Params{5_000, 10_000, 60_000}},
		{"refill alone", "1a5", "", noon, base, Params{100_000, 5_000, 60_000}},
		{"refill by its other name", "1r5", "", noon, base, Params{100_000, 5_000, 60_000}},
		{"period alone, in seconds", "1p5", "", noon, base, Params{100_000, 10_000, 5_000}},
		{"the largest values", "1c1000000000000000a1000000000000000p1000000000", "", noon, base, Params{1e18, 1e18, 1e12}},
		{"the first of two that match", "1h12s500;w5s100", "", noon, base, Params{50_000, 5_000, 60_000}},
		{"the second if the first doesn't", "1h13s500;w5s100", "", noon, base, Params{10_000, 1_000, 60_000}},
		{"on the wall clock of the zone", "1h8s500", "America/New_York", noon, base, Params{50_000, 5_000, 60_000}},
		{"a product beyond 64 bits whose quotient fits", "1s999", "", noon, Params{math.MaxInt64, 0, 1}, Params{9214148664817921031, 0, 1}},
	} {
		t.Run(c.why, func(t *testing.T) {
			got, err := mustSchedule(t, c.compact, c.zone).Effective(c.base, at(t, c.now))
			if err != nil || got != c.want {
				t.Errorf("got %v, %v; want %v", got, err, c.want)
			}
		})
	}
}

func TestEffectiveOverflow(t *testing.T) {
	s := mustSchedule(t, "1s1001", "")
	huge := mustSchedule(t, "1s1000000000", "")
	for _, c := range []struct {
		s    Schedule
		base Params
	}{
		{s, Params{Capacity: math.MaxInt64, Period: 1}},
		{s, Params{Capacity: 1, Refill: math.MaxInt64, Period: 1}},
		{mustSchedule(t, "1s3000", ""), Params{Capacity: math.MaxInt64, Period: 1}},
		{huge, Params{Capacity: math.MaxInt64, Period: 1}},
		{huge, Params{Capacity: math.MaxInt64/1_000_000 + 1, Period: 1}},
		{s, Params{Capacity: -1, Period: 1}},
		{s, Params{Capacity: 1, Refill: -1, Period: 1}},
	} {
		if got, err := c.s.Effective(c.base, 0); !errors.Is(err, ErrOverflow) || got != (Params{}) {
			t.Errorf("%v of %v: got %v, %v; want ErrOverflow", c.s, c.base, got, err)
		}
	}
	got, err := huge.Effective(Params{Capacity: math.MaxInt64 / 1_000_000, Period: 1}, 0)
	if want := int64(9223372036854000000); err != nil || got.Capacity != want {
		t.Errorf("the largest that fits: got %v, %v; want %d", got, err, want)
	}
}

func TestZeroValues(t *testing.T) {
	for _, s := range []Schedule{{}, mustSchedule(t, "", "Europe/Berlin")} {
		base := Params{1, 2, 3}
		got, err := s.Effective(base, 0)
		_, changes := s.NextChange(0)
		if !s.Empty() || s.String() != "" || err != nil || got != base || changes || len(s.Entries()) != 0 {
			t.Errorf("the empty schedule acts: %v %v %v", got, err, changes)
		}
	}
	for _, r := range []Resets{{}, mustResets(t, "", "Europe/Berlin")} {
		_, before := r.Prev(0)
		_, after := r.Next(0)
		if !r.Empty() || r.String() != "" || before || after || len(r.Crons()) != 0 {
			t.Errorf("the empty calendar acts: %v %v", before, after)
		}
	}
	if s, err := NewSchedule("nowhere"); err != nil || !s.Empty() {
		t.Errorf("NewSchedule of nothing = %v, %v", s, err)
	}
	if r, err := NewResets("nowhere"); err != nil || !r.Empty() {
		t.Errorf("NewResets of nothing = %v, %v", r, err)
	}
}

func TestExtremeInstants(t *testing.T) {
	r, s := mustResets(t, "1m0h0", "Europe/Berlin"), mustSchedule(t, "1h9s500", "Europe/Berlin")
	for _, now := range []int64{math.MinInt64, math.MinInt64 + 1, math.MaxInt64 - 1, math.MaxInt64} {
		if next, ok := r.Next(now); ok && next <= now {
			t.Errorf("Next(%d) = %d", now, next)
		}
		if prev, ok := r.Prev(now); ok && prev > now {
			t.Errorf("Prev(%d) = %d", now, prev)
		}
		if next, ok := s.NextChange(now); ok && next <= now {
			t.Errorf("NextChange(%d) = %d", now, next)
		}
		if _, err := s.Effective(Params{1, 1, 1}, now); err != nil {
			t.Errorf("Effective(%d): %v", now, err)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	for _, compact := range []string{"1h9-17w1-5s500", "1h9-17w1-5s500;h0-6c2000", "1m*/15h0D1,15M*/3w0-4s1", "1c1a2p3"} {
		s := mustSchedule(t, compact, "Asia/Kolkata")
		again, err := NewSchedule(s.Zone(), s.Entries()...)
		if err != nil || again.Compact() != compact || s.Compact() != compact || s.String() != compact+" Asia/Kolkata" {
			t.Errorf("%q came back as %q (%v), kept as %v", compact, again.Compact(), err, s)
		}
	}
	for _, compact := range []string{"1m0h0", "1m0h0;m30h12", "1m0h0w7;", "1;m0"} {
		r := mustResets(t, compact, "")
		again, err := NewResets(r.Zone(), r.Crons()...)
		if err != nil || again.Compact() != compact || r.Compact() != compact || r.String() != compact {
			t.Errorf("%q came back as %q (%v), kept as %v", compact, again.Compact(), err, r)
		}
	}
}

// What is not in the canonical spelling is kept as read and corrected when written.
func TestOtherSpellings(t *testing.T) {
	for compact, want := range map[string]string{"1s5h9": "1h9s5", "1h9r5": "1h9a5", "1m*D*w0s5": "1w7s5"} {
		s := mustSchedule(t, compact, "")
		again, err := NewSchedule("", s.Entries()...)
		if err != nil || s.Compact() != compact || again.Compact() != want {
			t.Errorf("%q is kept as %q and written as %q (%v), want %q", compact, s.Compact(), again.Compact(), err, want)
		}
	}
}

func TestCanonicalSpelling(t *testing.T) {
	for cron, want := range map[string]string{
		"0 0 * * sun": "1m0h0w7", "0 0 * * 0": "1m0h0w7", "0 0 * * 7": "1m0h0w7", "0 0 * * SAT,SUN": "1m0h0w6,7",
		"0 0 * * SUN-TUE": "1m0h0w0-2", "0 0 * * SUN/2": "1m0h0w0/2", "0 0 * dec,Jan *": "1m0h0M12,1", " 0\t0 * * * ": "1m0h0",
		"*/1 0 * * *": "1m*/1h0",
	} {
		r, err := NewResets("", cron)
		if err != nil || r.Compact() != want {
			t.Errorf("%q: %q, %v; want %q", cron, r.Compact(), err, want)
		}
	}
	s, err := NewSchedule("", Entry{Cron: "* 9 * * *", Refill: 3, Capacity: 2, Period: 4})
	if want := "1h9c2a3p4"; err != nil || s.Compact() != want {
		t.Errorf("%q, %v; want %q", s.Compact(), err, want)
	}
	if got := mustSchedule(t, "1r3h9", "").Entries(); !slices.Equal(got, []Entry{{Cron: "* 9 * * *", Refill: 3}}) {
		t.Errorf("Entries = %v", got)
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct {
		compact, zone string
		want          error
	}{
		{"-", "", ErrVersion}, {"m0s5", "", ErrVersion}, {"2m0s5", "", ErrVersion}, {"0m0s5", "", ErrVersion},
		{"12m0s5", "", ErrVersion}, {"01m0s5", "", ErrVersion}, {" 1m0s5", "", ErrVersion}, {"-1m0s5", "", ErrVersion},
		{"1", "", ErrEntry}, {"1 m0s5", "", ErrEntry}, {"1m0", "", ErrEntry}, {"1;s5", "", ErrEntry}, {"1s5;", "", ErrEntry},
		{"1m0s5x", "", ErrEntry}, {"1m0s5 ", "", ErrEntry}, {"1y5s5", "", ErrEntry}, {"1m0m1s5", "", ErrEntry}, {"1s5s5", "", ErrEntry},
		{"1a5r5", "", ErrEntry}, {"1ms5", "", ErrEntry}, {"1m0s", "", ErrEntry}, {"1s5c5", "", ErrEntry}, {"1s5p5", "", ErrEntry},
		{"1s0", "", ErrEntry}, {"1c0", "", ErrEntry}, {"1a0", "", ErrEntry}, {"1p0", "", ErrEntry}, {"1c-5", "", ErrEntry},
		{"1s1000000001", "", ErrEntry}, {"1c1000000000000001", "", ErrEntry}, {"1a1000000000000001", "", ErrEntry},
		{"1p1000000001", "", ErrEntry}, {"1s99999999999999999999", "", ErrEntry}, {"1s1,5", "", ErrEntry}, {"1s*", "", ErrEntry},
		{"1m60s5", "", ErrCron}, {"1h24s5", "", ErrCron}, {"1D0s5", "", ErrCron}, {"1D32s5", "", ErrCron}, {"1M0s5", "", ErrCron},
		{"1M13s5", "", ErrCron}, {"1w8s5", "", ErrCron}, {"1m5-s5", "", ErrCron}, {"1m5-1s5", "", ErrCron}, {"1m*/0s5", "", ErrCron},
		{"1m1,,2s5", "", ErrCron}, {"1D30M2s5", "", ErrCron}, {"1D31M4,6,9,11s5", "", ErrCron},
		{"1m0s5", "Local", ErrZone}, {"1m0s5", "localtime", ErrZone}, {"1m0s5", "Mars/Olympus", ErrZone}, {"1m0s5", "../UTC", ErrZone},
		{"1m0s5", "europe/", ErrZone},
	} {
		if s, err := ParseSchedule(c.compact, c.zone); !errors.Is(err, c.want) || !s.Empty() {
			t.Errorf("%q in %q: %v, want %v", c.compact, c.zone, err, c.want)
		}
	}
	for compact, want := range map[string]error{"-": ErrVersion, "1": ErrEntry, "1m0s5": ErrEntry, "1m0a5": ErrEntry, "1D30M2": ErrCron} {
		if r, err := ParseResets(compact, ""); !errors.Is(err, want) || !r.Empty() {
			t.Errorf("resets %q: %v, want %v", compact, err, want)
		}
	}
	if _, err := ParseResets("1m0", "Local"); !errors.Is(err, ErrZone) {
		t.Errorf("resets in Local: %v, want ErrZone", err)
	}
}

func TestRefusedCron(t *testing.T) {
	for _, cron := range []string{
		"", "0 0 * *", "0 0 0 * * *", "@daily", "0 0 L * *", "0 0 LW * *", "0 0 15W * *", "0 0 * * 5L", "0 0 * * FRI#2", "0 0 ? * *",
		"0 0 30 2 *", "0 0 * JANFEB *", "0 0 * * SAT-SUN", "0 0 * * MONDAY", "MON 0 * * *", "0 0 * * 5s5", "0;0 0 * * *",
	} {
		if r, err := NewResets("", cron); !errors.Is(err, ErrCron) {
			t.Errorf("%q: %q, %v; want ErrCron", cron, r.Compact(), err)
		}
		if s, err := NewSchedule("", Entry{Cron: cron, Scale: 1}); !errors.Is(err, ErrCron) {
			t.Errorf("%q: %q, %v; want ErrCron", cron, s.Compact(), err)
		}
	}
	for _, e := range []Entry{{}, {Scale: -1}, {Capacity: -1}, {Scale: 1, Period: 1}, {Scale: maxScale + 1}, {Period: maxSeconds + 1}} {
		e.Cron = "0 0 * * *"
		if s, err := NewSchedule("", e); !errors.Is(err, ErrEntry) {
			t.Errorf("%+v: %q, %v; want ErrEntry", e, s.Compact(), err)
		}
	}
	if _, err := NewResets("", "* * * * *"); !errors.Is(err, ErrEntry) {
		t.Errorf("a lone entry without an edge: %v, want ErrEntry", err)
	}
}

// A calendar far away must not cost a scan of every minute up to it.
func TestSearchIsShort(t *testing.T) {
	for _, c := range []struct {
		compact string
		most    int
	}{
		{"1m0h0", 60}, {"1m59h23D31M12", 120}, {"1m0h0D29M2", 500}, {"1m30h2D29M3w*/7", 2000},
	} {
		r := mustResets(t, c.compact, "Europe/Berlin")
		now := minuteOf(at(t, "2025-01-01T00:00:00Z"))
		steps := 0
		for local := now; local < now+horizon; steps++ {
			_, hi, match := r.entries[0].block(local)
			if match {
				break
			}
			local = hi
		}
		if steps > c.most {
			t.Errorf("%s took %d steps, want at most %d", c.compact, steps, c.most)
		}
	}
}

func TestZoneCacheIsBounded(t *testing.T) {
	c := zoneCache{zones: map[string]*time.Location{}}
	for i := range maxZones {
		c.zones[fmt.Sprint(i)] = time.UTC
	}
	zone, err := c.load("Europe/Berlin")
	if err != nil || zone.String() != "Europe/Berlin" || len(c.zones) != maxZones {
		t.Errorf("loaded %v, %v with %d zones kept", zone, err, len(c.zones))
	}
}

func BenchmarkParseSchedule(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseSchedule("1h9-17w1-5s500;h0-6c2000", "America/New_York"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLoadZone(b *testing.B) {
	for b.Loop() {
		if _, err := time.LoadLocation("America/New_York"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEffective(b *testing.B) {
	s := mustSchedule(b, "1h9-17w1-5s500;h0-6c2000", "America/New_York")
	for b.Loop() {
		if _, err := s.Effective(Params{1000, 1000, 1000}, 1780000000000); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNext(b *testing.B) {
	for _, compact := range []string{"1m0h0", "1m0h0D1M1", "1m0h0D29M2", "1m30h2D29M3w*/7"} {
		r := mustResets(b, compact, "Europe/Berlin")
		b.Run(compact, func(b *testing.B) {
			for b.Loop() {
				r.Next(1767225600000)
			}
		})
		b.Run(compact+" backward", func(b *testing.B) {
			for b.Loop() {
				r.Prev(1767225600000)
			}
		})
	}
}
