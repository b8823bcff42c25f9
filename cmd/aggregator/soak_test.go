package main_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shardquota/shardquota/internal/dynoxide"
	"github.com/shardquota/shardquota/internal/faultproxy"
)

var (
	soakFor  = flag.Duration("soak", 5*time.Second, "how long TestSoak goes on; the round under way then is finished")
	soakSeed = flag.Uint64("soak.seed", 0, "seed of TestSoak's first round; 0 takes the time")
)

// soakActions is how much each of a round's clients does: dynoxide slows down
// as a table's stream grows, so that each round has a fresh one.
const soakActions = 250

// soakTotals is what a soak has seen.
type soakTotals struct {
	Rounds, Writes, Deliveries int
	Failed, Again              int // deliveries that failed in part, and those of what was done
	Faults, Restarts           int // requests that were spoilt, and functions that were killed
	Shards, Most               int // at the end of all rounds, and of one customer
}

// TestSoak lets clients, operators and the built function work on one table at
// the same time, while the way from the function to the table is spoilt by
// chance, the function is killed in mid-batch, and batches come twice. Round by
// round, with another table each, it ends in an audit of everything.
func TestSoak(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds, which -short leaves out")
	}
	seed := *soakSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("repeat with -soak.seed=%d", seed)
	var totals soakTotals
	for began := time.Now(); totals.Rounds == 0 || time.Since(began) < *soakFor; totals.Rounds++ {
		if !t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { newSoak(t, seed, &totals).run() }) {
			break
		}
		seed++
	}
	t.Logf("%+v", totals)
}

// soak is one round.
type soak struct {
	*world
	proxy     *faultproxy.Proxy
	settings  settings
	rng       *rand.Rand // of the delivery; each client has its own
	seed      uint64
	totals    *soakTotals
	customers []*customer
	queue     []record // not delivered with success yet
	killed    atomic.Bool
}

func newSoak(t *testing.T, seed uint64, totals *soakTotals) *soak {
	client, proxy := dynoxide.Client(t), faultproxy.Start(t, dynoxide.Start(t))
	s := &soak{
		world: &world{T: t, client: client, table: dynoxide.NewTable(t, client)},
		proxy: proxy, settings: settings{"AWS_MAX_ATTEMPTS": "1", "SHARDQUOTA_RESERVE": "1s"},
		rng: rand.New(rand.NewPCG(seed, 1)), seed: seed, totals: totals,
	}
	if seed%4 == 0 {
		s.settings["AWS_MAX_ATTEMPTS"] = "2"
	}
	s.stream = openStream(t, client, s.table)
	s.restart()
	s.customers = newCustomers(s)
	return s
}

// restart starts the function anew.
func (s *soak) restart() {
	s.killed.Store(false)
	s.function = startFunction(mortal{s.T}, s.table, s.proxy.URL, s.settings)
}

// run lets the clients work while their stream is delivered, and looks at what
// came of it.
func (s *soak) run() {
	began := time.Now()
	var clients sync.WaitGroup
	defer clients.Wait() // also where the test ends early
	for nth := range uint64(2) {
		clients.Go(func() { s.work(rand.New(rand.NewPCG(s.seed, 2+nth))) })
	}
	done := make(chan struct{})
	go func() {
		clients.Wait()
		close(done)
	}()
	for working := true; working || len(s.queue) > 0; {
		select {
		case <-done:
			working = false
		default:
		}
		s.step()
	}
	worked := time.Since(began)
	s.settle()
	s.audit()
	s.Logf("%d writes in %v, audited after %v", len(s.delivered), worked.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
}

// work is what one client does.
func (s *soak) work(rng *rand.Rand) {
	for range soakActions {
		if err := s.customers[rng.IntN(len(s.customers))].act(s.Context(), rng); err != nil {
			s.Errorf("a client: %v", err)
			return
		}
	}
}

// step delivers a part of what was written, and now and then something again.
func (s *soak) step() {
	s.read()
	if len(s.queue) > 0 {
		size := min(len(s.queue), 1+s.rng.IntN(80))
		s.queue = s.queue[s.attempt(s.queue[:size]):]
	}
	if n := len(s.delivered) - len(s.queue); n > 0 && s.rng.IntN(8) == 0 {
		from := s.rng.IntN(n)
		s.totals.Again++
		s.attempt(s.delivered[from : from+1+s.rng.IntN(n-from)])
	}
}

// read takes what is new off the stream.
func (s *soak) read() {
	records := s.stream.next(s)
	s.totals.Writes += len(records)
	s.delivered = append(s.delivered, records...) // or about to be
	s.queue = append(s.queue, records...)
}

// attempt delivers a batch while things go wrong, and returns how much of it is
// done: all before the record that is asked for, nothing where the function was
// killed.
func (s *soak) attempt(batch []record) int {
	s.totals.Deliveries++
	s.proxy.Spoil(s.trouble())
	answer, killed := s.invoke(batch)
	s.totals.Faults += s.proxy.Spoilt()
	if killed {
		s.totals.Restarts++
		s.restart()
		return 0
	}
	return s.doneOf(answer, batch)
}

// doneOf is how many records of a batch an answer says are done.
func (s *soak) doneOf(answer string, batch []record) int {
	var a struct {
		BatchItemFailures []struct{ ItemIdentifier string }
	}
	if err := json.Unmarshal([]byte(answer), &a); err != nil || len(a.BatchItemFailures) > 1 {
		s.Fatalf("answer %s: %v", answer, err)
	}
	if len(a.BatchItemFailures) == 0 {
		return len(batch)
	}
	s.totals.Failed++
	at := slices.IndexFunc(batch, func(r record) bool { return r.sequence == a.BatchItemFailures[0].ItemIdentifier })
	if at < 0 {
		s.Fatalf("answer %s names no record of the batch", answer)
	}
	return at
}

// trouble spoils one request of twenty by chance, and kills the function in the
// middle of one delivery of twelve. Silence costs the time of a whole batch and
// is rare.
func (s *soak) trouble() faultproxy.Judge {
	rng, kill, function := rand.New(rand.NewPCG(s.rng.Uint64(), 3)), -1, s.function
	if s.rng.IntN(12) == 0 {
		kill = s.rng.IntN(12)
	}
	return func(request faultproxy.Request) faultproxy.Fault {
		if kill--; kill == -1 {
			s.killed.Store(true)
			function.Stop()
			return []faultproxy.Fault{faultproxy.Hang, faultproxy.TooLate}[rng.IntN(2)]
		}
		all := faultproxy.Befalling(request.Operation)
		fault := all[rng.IntN(len(all))]
		if rng.IntN(20) > 0 || fault.Silent && rng.IntN(8) > 0 {
			return faultproxy.None
		}
		return fault
	}
}

// invoke delivers a batch to a function that may be killed.
func (s *soak) invoke(batch []record) (body string, killed bool) {
	defer func() {
		reason := recover()
		if _, died := reason.(death); died && s.killed.Load() {
			killed = true
		} else if reason != nil {
			s.Fatal(reason)
		}
	}()
	a := s.function.Invoke(event(s, batch), 3*time.Second)
	if a.Failed {
		s.Fatalf("answer %s", a.Body)
	}
	return a.Body, false
}

// mortal is a test whose function may be killed: where it ends without an
// answer that is what was meant.
type mortal struct{ testing.TB }

type death string

func (m mortal) Fatalf(format string, values ...any) { panic(death(fmt.Sprintf(format, values...))) }

// settle ends all trouble and delivers until nothing more is written.
func (s *soak) settle() {
	s.proxy.Spoil(faultproxy.Nothing)
	for range 20 {
		s.read()
		if len(s.queue) == 0 {
			return
		}
		s.mustAnswer(event(s, s.queue), enough, fine)
		s.queue = nil
	}
	s.Fatal("the function answers its own writes without end")
}

// consumedBy adds up what all customers know they consumed.
func (s *soak) consumedBy() map[string]map[string]int64 {
	all := map[string]map[string]int64{}
	for _, c := range s.customers {
		all[c.entity] = maps.Clone(c.consumed)
		maps.DeleteFunc(all[c.entity], func(_ string, amount int64) bool { return amount == 0 })
	}
	return all
}
