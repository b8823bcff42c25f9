package quota

import (
	"errors"
	"math"
	"strings"
	"testing"
)

// maxError is how long an error about a schedule may get, in bytes, however long the schedule is: it is logged.
const maxError = 1000

func FuzzParseSchedule(f *testing.F) {
	for _, seed := range []string{
		"1h9-17w1-5s500;h0-6c2000", "1m0h0", "1", "", "-", "2m0", "1;m0", "1m0h0D29M2", "1c1a2p3", "1r5", "1D30M2s1", "1m5-5/10w*/2s1",
	} {
		f.Add(seed, "Europe/Berlin", int64(1767225600000))
	}
	f.Fuzz(func(t *testing.T, compact, zone string, now int64) {
		s, err := ParseSchedule(compact, zone)
		if fuzzRefused(t, compact, err); err == nil {
			fuzzSchedule(t, s, compact, now)
		}
		r, err := ParseResets(compact, zone)
		if fuzzRefused(t, compact, err); err == nil {
			fuzzResets(t, r, compact, now)
		}
	})
}

func fuzzRefused(t *testing.T, text string, err error) {
	t.Helper()
	if err == nil {
		return
	}
	known := errors.Is(err, ErrVersion) || errors.Is(err, ErrEntry) || errors.Is(err, ErrCron) || errors.Is(err, ErrZone)
	if !known || len(err.Error()) > maxError {
		t.Fatalf("%q is refused by %v", text, err)
	}
}

func fuzzSchedule(t *testing.T, s Schedule, compact string, now int64) {
	t.Helper()
	if s.Compact() != compact || s.Empty() != (compact == "") {
		t.Fatalf("%q is kept as %q", compact, s.Compact())
	}
	again, err := NewSchedule(s.Zone(), s.Entries()...)
	if err != nil {
		t.Fatalf("%q can't be written: %v", compact, err)
	}
	same, err := NewSchedule(again.Zone(), again.Entries()...)
	if err != nil || same.Compact() != again.Compact() {
		t.Fatalf("%q is written as %q, then as %q (%v)", compact, again.Compact(), same.Compact(), err)
	}
	base := Params{Capacity: 1e6, Refill: 1e6, Period: 1000}
	a, errA := s.Effective(base, now)
	b, errB := again.Effective(base, now)
	if a != b || errA != nil || errB != nil {
		t.Fatalf("%q gives %v (%v), rewritten %v (%v)", compact, a, errA, b, errB)
	}
	fuzzChanges(t, s, now)
}

// fuzzChanges follows a schedule from change to change: each is later than the one before, and there another entry comes
// into force than a minute earlier.
func fuzzChanges(t *testing.T, s Schedule, now int64) {
	t.Helper()
	for range 5 {
		next, ok := s.NextChange(now)
		if !ok || tooFar(next) {
			return
		}
		if next <= now || next%millisPerMinute != 0 {
			t.Fatalf("%q: NextChange(%d) = %d", s.Compact(), now, next)
		}
		minute := minuteOf(next)
		if before, after := naiveActive(s.entries, minute-1), naiveActive(s.entries, minute); before == after || before != naiveActive(s.entries, minuteOf(now)) {
			t.Fatalf("%q: NextChange(%d) = %d, where entry %d gives way to %d", s.Compact(), now, next, before, after)
		}
		if again, ok := s.NextChange(next - 1); !ok || again != next {
			t.Fatalf("%q: NextChange(%d) = %d, %v", s.Compact(), next-1, again, ok)
		}
		now = next
	}
}

func fuzzResets(t *testing.T, r Resets, compact string, now int64) {
	t.Helper()
	if r.Compact() != compact || r.Empty() != (compact == "") {
		t.Fatalf("%q is kept as %q", compact, r.Compact())
	}
	if prev, ok := r.Prev(now); ok && !tooFar(prev) {
		fuzzEdge(t, r, prev)
		if prev > now {
			t.Fatalf("%q: Prev(%d) = %d", compact, now, prev)
		}
		if next, ok := r.Next(prev); ok && next <= now {
			t.Fatalf("%q: Prev(%d) = %d, but %d lies between", compact, now, prev, next)
		}
	}
	for range 5 {
		next, ok := r.Next(now)
		if !ok || tooFar(next) {
			return
		}
		if next <= now {
			t.Fatalf("%q: Next(%d) = %d", compact, now, next)
		}
		fuzzEdge(t, r, next)
		now = next
	}
}

// fuzzEdge holds an instant to being an edge: it is its own latest, and some entry begins to match there.
func fuzzEdge(t *testing.T, r Resets, edge int64) {
	t.Helper()
	if prev, ok := r.Prev(edge); !ok || prev != edge {
		t.Fatalf("%q: Prev(%d) = %d, %v, but it is an edge", r.Compact(), edge, prev, ok)
	}
	if edge%millisPerMinute != 0 || !naiveEdge(r.entries, minuteOf(edge)) {
		t.Fatalf("%q: %d is taken for an edge", r.Compact(), edge)
	}
	if next, ok := r.Next(edge - decades); !ok || next > edge {
		t.Fatalf("%q: the edge %d is not found from afar: %d, %v", r.Compact(), edge, next, ok)
	}
	if prev, ok := r.Prev(edge + decades); !ok || prev < edge {
		t.Fatalf("%q: the edge %d is not found from afar: %d, %v", r.Compact(), edge, prev, ok)
	}
}

// decades is as long as the rarest dates may be apart, in milliseconds: a 29 February on a given weekday, over the end of a
// century that has none.
const decades = 40 * 365 * 24 * 3600 * 1000

// tooFar tells instants near the ends of time, of which the tests' own clock knows nothing.
func tooFar(ms int64) bool { return ms > math.MaxInt64/4 || ms < math.MinInt64/4 }

// FuzzCron writes cron expressions in the compact form and reads them back.
func FuzzCron(f *testing.F) {
	for _, seed := range []string{"0 0 * * *", "*/5 9-17 * * MON-FRI", "0 0 1 JAN,JUL SUN", "59 23 31 12 7", "0 0 29 2 *", "1,,2 * * * *", "5/10 * * * SUN/2"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, cron string) {
		r, err := NewResets("", cron)
		if fuzzRefused(t, cron, err); err != nil {
			return
		}
		read, err := ParseResets(r.Compact(), "")
		if err != nil || read.entries[0].cronPattern != r.entries[0].cronPattern {
			t.Fatalf("%q is written as %q and read as %v, %v", cron, r.Compact(), read.entries, err)
		}
		crons := r.Crons()
		again, err := NewResets("", crons...)
		if err != nil || len(crons) != 1 || again.Compact() != r.Compact() {
			t.Fatalf("%q is written as %q, read as %q, and written as %q (%v)", cron, r.Compact(), crons, again.Compact(), err)
		}
		fields, err := compactCron(cron)
		if err != nil {
			t.Fatal(err)
		}
		if pattern, err := newCronPattern(fields.cron()); err != nil || pattern != r.entries[0].cronPattern || strings.Contains(r.Compact(), " ") {
			t.Fatalf("%q is written as %q: %v", cron, r.Compact(), err)
		}
	})
}
