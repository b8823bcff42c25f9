package quota

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
)

// golden is testdata/schedules.json: what the clients' own code says about
// schedules. testdata/schedules.py wrote it and explains it.
type golden struct {
	Crons []struct {
		Cron    string
		Sets    []uint64 // absent where the clients refuse the expression
		Both    bool
		Compact string
	}
	Bases  [][3]int64
	Resets []struct {
		Crons         []string
		Zone, Compact string
		Begin, End    int64
		Count         int
		Edges         []int64 // the first of them, in epoch minutes
		SHA256        string  // of all of them
		Prev          [][2]int64
	}
	Schedules []struct {
		Entries       []Entry
		Zone, Compact string
		Changes       [][2]int64
		Effective     [][]json.RawMessage // an instant, then the parameters on each base
	}
}

func readGolden(t *testing.T) golden {
	t.Helper()
	data, err := os.ReadFile("testdata/schedules.json")
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err := json.Unmarshal(data, &g); err != nil {
		t.Fatal(err)
	}
	if len(g.Crons) < 500 || len(g.Resets) < 100 || len(g.Schedules) < 100 {
		t.Fatalf("golden data is thin: %d crons, %d resets, %d schedules", len(g.Crons), len(g.Resets), len(g.Schedules))
	}
	return g
}

func TestGoldenCrons(t *testing.T) {
	accepted := 0
	for _, c := range readGolden(t).Crons {
		s, err := NewSchedule("UTC", Entry{Cron: c.Cron, Scale: 500})
		if c.Sets == nil {
			if err == nil {
				t.Errorf("%q: accepted as %q, the clients refuse it", c.Cron, s.Compact())
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", c.Cron, err)
			continue
		}
		accepted++
		if s.Compact() != c.Compact {
			t.Errorf("%q: compact %q, want %q", c.Cron, s.Compact(), c.Compact)
		}
		p := s.entries[0].cronPattern
		got := fmt.Sprint([]uint64{p.minutes, p.hours, p.days, p.months, p.weekdays}, p.bothDays)
		if want := fmt.Sprint(c.Sets, c.Both); got != want {
			t.Errorf("%q: sets %v, want %v", c.Cron, got, want)
		}
	}
	if accepted < 300 {
		t.Errorf("only %d expressions were accepted by both", accepted)
	}
}

func TestGoldenResets(t *testing.T) {
	for _, c := range readGolden(t).Resets {
		t.Run(strings.Join(c.Crons, "; ")+" "+c.Zone, func(t *testing.T) {
			t.Parallel()
			built, err := NewResets(c.Zone, c.Crons...)
			if err != nil || built.Compact() != c.Compact {
				t.Fatalf("built %q, %v; want %q", built.Compact(), err, c.Compact)
			}
			r, err := ParseResets(c.Compact, c.Zone)
			if err != nil {
				t.Fatal(err)
			}
			all := edgesBetween(r, c.Begin, c.End)
			for i, want := range c.Edges {
				if i >= len(all) || all[i] != want {
					t.Fatalf("edge %d: got %v, want minute %d", i, all[i:min(i+1, len(all))], want)
				}
			}
			sum := sha256.New()
			for _, edge := range all {
				fmt.Fprintln(sum, edge)
			}
			if got := hex.EncodeToString(sum.Sum(nil)); len(all) != c.Count || got != c.SHA256 {
				t.Errorf("%d edges with sum %s, want %d with %s", len(all), got, c.Count, c.SHA256)
			}
			for _, p := range c.Prev {
				if got, ok := r.Prev(p[0]); !ok || got != p[1]*millisPerMinute {
					t.Errorf("Prev(%d) = %d, %v; want %d", p[0], got, ok, p[1]*millisPerMinute)
				}
			}
		})
	}
}

// edgesBetween lists the edges in (begin, end) in epoch minutes.
func edgesBetween(r Resets, begin, end int64) []int64 {
	var all []int64
	for now, ok := r.Next(begin); ok && now < end; now, ok = r.Next(now) {
		all = append(all, now/millisPerMinute)
	}
	return all
}

func TestGoldenSchedules(t *testing.T) {
	g := readGolden(t)
	for _, c := range g.Schedules {
		t.Run(c.Compact+" "+c.Zone, func(t *testing.T) {
			t.Parallel()
			built, err := NewSchedule(c.Zone, c.Entries...)
			if err != nil || built.Compact() != c.Compact {
				t.Fatalf("built %q, %v; want %q", built.Compact(), err, c.Compact)
			}
			s, err := ParseSchedule(c.Compact, c.Zone)
			if err != nil {
				t.Fatal(err)
			}
			for _, change := range c.Changes {
				if got, ok := s.NextChange(change[0]); !ok || got != change[1] {
					t.Errorf("NextChange(%d) = %d, %v; want %d", change[0], got, ok, change[1])
				}
			}
			for _, row := range c.Effective {
				checkEffective(t, s, g.Bases, row)
			}
		})
	}
}

func checkEffective(t *testing.T, s Schedule, bases [][3]int64, row []json.RawMessage) {
	t.Helper()
	var now int64
	if err := json.Unmarshal(row[0], &now); err != nil {
		t.Fatal(err)
	}
	for i, b := range bases {
		var want [3]int64
		if err := json.Unmarshal(row[i+1], &want); err != nil {
			t.Fatal(err)
		}
		got, err := s.Effective(Params{Capacity: b[0], Refill: b[1], Period: b[2]}, now)
		if err != nil {
			t.Fatal(err)
		}
		// The clients scale in floating point and may be one millitoken short.
		short := func(got, want int64) bool { return got != want && got != want+1 }
		if short(got.Capacity, want[0]) || short(got.Refill, want[1]) || got.Period != want[2] {
			t.Errorf("Effective(%v, %d) = %v, want %v", b, now, got, want)
		}
	}
}
