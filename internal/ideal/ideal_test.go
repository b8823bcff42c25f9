package ideal

import (
	"os"
	"strconv"
	"testing"
)

// kinds are the families of workloads.
var kinds = []kind{
	{name: "steady and careful", steady: true, careful: true},
	{name: "steady", steady: true},
	{name: "steady, clocks differ", steady: true, skew: 2 * second, operated: true},
	{name: "careful", careful: true, skew: 2 * second, operated: true},
	{name: "true clocks"},
	{name: "clocks differ", skew: 2 * second},
	{name: "clocks jump", skew: 2 * second, jumps: true, operated: true},
	{name: "operated", operated: true},
	{name: "session", session: true},
	{name: "session, clocks differ", session: true, skew: 2 * second, operated: true},
	{name: "limiter", limited: true},
	{name: "limiter, steady", limited: true, steady: true},
	{name: "limiter, clocks differ", limited: true, skew: 2 * second, operated: true},
	{name: "limiter, clocks jump", limited: true, skew: 2 * second, jumps: true, operated: true},
	{name: "limiter, gathered", limited: true, gathered: true, operated: true},
	{name: "limiter, session", limited: true, session: true},
	{name: "limiter, session, gathered", limited: true, session: true, gathered: true},
	{name: "limiter, session, clocks differ", limited: true, session: true, skew: 2 * second, operated: true},
}

// seeds is how many workloads of a kind are run, and how long they are.
func seeds(t *testing.T) (seeds uint64, steps int) {
	text := os.Getenv("SHARDQUOTA_SEEDS")
	if text == "" {
		return corpus, 1500
	}
	seeds, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return seeds, 4000
}

// find runs a workload and, where it fails, returns it cut down.
func find(k kind, m mutant, seed uint64, n int) (steps []step, wrong string) {
	steps = k.workload(seed, n)
	fails := func(steps []step) bool {
		wrong = newSystem(k, seed, m).run(steps)
		return wrong != ""
	}
	if !fails(steps) {
		return nil, ""
	}
	steps = shrink(steps, fails)
	_ = fails(steps)
	return steps, wrong
}

func TestModel(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds, which -short leaves out")
	}
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			seeds, n := seeds(t)
			gathered := 0
			for seed := range seeds {
				s := newSystem(k, seed, mutant{})
				if s.run(k.workload(seed, n)) != "" {
					steps, wrong := find(k, mutant{}, seed, n)
					t.Fatalf("seed %d: %s\n%s", seed, wrong, text(steps))
				}
				t.Logf("seed %d: %d admitted, %d refused, %d shards, %d records, %d periods, %d beyond the tank of %d allowed", seed,
					s.admitted, s.refused, s.table.At(acme.At(0)).ShardCount, len(s.table.Records), len(s.periods), s.debt, s.allowed())
				gathered += s.gathered
			}
			if k.gathered && gathered < 10 {
				t.Errorf("%d uses were gathered: the workload tests too little", gathered)
			}
		})
	}
}
