package main_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"testing"

	"github.com/shardquota/shardquota/internal/faultproxy"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
)

// operationOf is what the service calls a request of parts.
func operationOf(label string) string {
	var kind string
	_, _ = fmt.Sscan(label, &kind)
	switch kind {
	case "siblings":
		return "BatchGetItem"
	case "create":
		return "TransactWriteItems"
	}
	return "UpdateItem"
}

var everyFault = flag.Bool("faults.every", false, "let every fault befall every update of a batch, and not a third of them")

// TestFaultsAtEveryRequestOfABatch lets faults that may pass befall every
// request of a batch in turn. The batch is asked for again from the record that
// is written down for the request; after that delivery the table is as without
// faults. Every fault befalls every kind of request; that each is the same to
// whoever calls the store is TestEveryFaultAtEverySite in package dynamo.
func TestFaultsAtEveryRequestOfABatch(t *testing.T) {
	s := newScene()
	want := undisturbed(t, s)
	nth := 0
	for at, p := range parts {
		for _, request := range p.requests {
			faults := sample(request, nth)
			nth++
			t.Run(request, func(t *testing.T) {
				t.Parallel()
				for _, fault := range faults {
					for _, wrong := range suffer(t, s, want, at, request, fault, nil) {
						t.Errorf("%s: %s", fault, wrong)
					}
				}
			})
		}
	}
}

// sample is the faults that the nth request is to suffer: of updates, which there
// are many of, a third, and one that lands.
func sample(request string, nth int) []faultproxy.Fault {
	var some []faultproxy.Fault
	operation := operationOf(request)
	for i, fault := range faultproxy.Befalling(operation) {
		if *everyFault || operation != "UpdateItem" || i%3 == nth%3 || fault.Is(faultproxy.Lost) {
			some = append(some, fault)
		}
	}
	return some
}

// suffer delivers the batch with a fault at a request, and then without. The
// client makes one attempt: what it does by itself is tested with the store.
func suffer(t *testing.T, s *scene, want []string, at int, request string, fault faultproxy.Fault, mutate func(table.Store) table.Store) []string {
	t.Helper()
	r := newRig(t, s, 1, mutate)
	r.Spoil(func(asked faultproxy.Request) faultproxy.Fault {
		if label(asked) == request {
			return fault
		}
		return faultproxy.None
	})
	failed := r.deliver(t.Context(), 4, 0)
	if expected := parts[at].due(0); failed != expected {
		r.complain("delivered again from record %d, want %d", failed, expected)
	}
	r.countRequests(at, request)
	if failed < len(s.records) {
		r.Spoil(faultproxy.Nothing)
		if again := r.deliver(t.Context(), 4, failed); again != len(s.records) {
			r.complain("without faults it fails at record %d", again)
		}
	}
	r.compare("delivered again", want)
	return r.wrong
}

// countRequests: those that follow the failing one in its part were not made,
// and all others once.
func (r *rig) countRequests(at int, request string) {
	want := map[string]int{}
	for i, p := range parts {
		for _, each := range p.requests {
			want[each] = 1
			if i == at && each == request {
				break
			}
		}
	}
	if got := r.asked(); !maps.Equal(got, want) {
		r.complain("requests: %v, want %v", got, want)
	}
}

// TestDeadlineAtEveryRequest lets the time run out at every request of the batch
// in turn, before it is carried out or after: nothing more is asked for, all
// that was not done is handed back, and done once when it comes again.
func TestDeadlineAtEveryRequest(t *testing.T) {
	s := newScene()
	want := undisturbed(t, s)
	for _, late := range []faultproxy.Fault{faultproxy.Hang, faultproxy.TooLate} {
		t.Run(late.Name, func(t *testing.T) {
			t.Parallel()
			for nth, request := range labels() {
				for _, wrong := range runOut(t, s, want, nth, late) {
					t.Errorf("at %s: %s", request, wrong)
				}
			}
		})
	}
}

func runOut(t *testing.T, s *scene, want []string, nth int, late faultproxy.Fault) []string {
	t.Helper()
	r := newRig(t, s, 3, nil)
	deadline := faultproxy.NewDeadline(t.Context())
	asked := 0
	r.Spoil(func(faultproxy.Request) faultproxy.Fault {
		if asked++; asked <= nth {
			return faultproxy.None
		}
		return late.Meanwhile(deadline.Pass)
	})
	failed := r.deliver(deadline, 1, 0)
	if want := unfinished(nth); failed != want {
		r.complain("handed back from record %d, want %d", failed, want)
	}
	if asked != nth+1 {
		r.complain("%d requests, %d of them after the time was over", asked, asked-nth-1)
	}
	r.Spoil(faultproxy.Nothing)
	if again := r.deliver(t.Context(), 1, failed); again != len(s.records) {
		r.complain("with time it fails at record %d", again)
	}
	r.compare("delivered again", want)
	return r.wrong
}

// unfinished is the lowest record of the parts that are not done where the nth
// request and all after it fail.
func unfinished(nth int) int {
	lowest := 1 << 30
	for _, p := range parts {
		if nth -= len(p.requests); nth < 0 {
			lowest = min(lowest, p.due(0))
		}
	}
	return lowest
}

// mixes is how many random mixes of faults a test goes through.
const mixes = 16

// TestRandomMixesOfFaults spoils each attempt of each request by chance, until
// the batch gets through. Each time it is asked for again from the lowest record
// of what failed, and in the end the table is as without faults.
func TestRandomMixesOfFaults(t *testing.T) {
	s := newScene()
	want := undisturbed(t, s)
	for lane := range 4 {
		t.Run(fmt.Sprint("lane ", lane), func(t *testing.T) {
			t.Parallel()
			for seed := lane; seed < mixes; seed += 4 {
				for _, wrong := range mix(t, s, want, seed, nil) {
					t.Errorf("seed %d: %s", seed, wrong)
				}
			}
		})
	}
}

// mix delivers the batch until nothing fails; after some deliveries there are no
// more faults.
func mix(t *testing.T, s *scene, want []string, seed int, mutate func(table.Store) table.Store) []string {
	t.Helper()
	const attempts, faulty = 2, 12
	r := newRig(t, s, attempts, mutate)
	from, spoilt := 0, 0
	for delivery := 0; from < len(s.records); delivery++ {
		r.Spoil(byChance(seed, delivery, delivery < faulty))
		failed := r.deliver(t.Context(), 4, from)
		if expected := r.lowestFailure(from); failed != expected {
			r.complain("delivery %d from record %d: again from %d, want %d", delivery, from, failed, expected)
		}
		for request, n := range r.asked() {
			if most := attempts * 2; n > most {
				r.complain("delivery %d: %s was asked for %d times, more than %d", delivery, request, n, most)
			}
		}
		spoilt += r.Spoilt()
		if delivery == faulty+1 {
			r.complain("it does not get through")
			break
		}
		from = failed
	}
	if spoilt == 0 {
		r.complain("nothing was spoilt")
	}
	r.compare("in the end", want)
	return r.wrong
}

// byChance spoils two attempts of five, by no more than the seed, the delivery
// and which attempt of which request it is.
func byChance(seed, delivery int, faulty bool) faultproxy.Judge {
	attempt := map[string]int{}
	return func(request faultproxy.Request) faultproxy.Fault {
		name := label(request)
		attempt[name]++
		hash := fnv.New64a()
		fmt.Fprintln(hash, seed, delivery, name, attempt[name])
		n := int(hash.Sum64() >> 33)
		if !faulty || n%5 >= 2 {
			return faultproxy.None
		}
		all := faultproxy.Befalling(request.Operation)
		return all[n/5%len(all)]
	}
}

// lowestFailure works out from the proxy's log where a batch that was delivered
// from a record on failed first: at the first part one of whose requests was
// spoilt the last time that it was made.
func (r *rig) lowestFailure(from int) int {
	failed := map[string]bool{}
	for _, passed := range r.Seen() {
		wholly := passed.Fault.Is(faultproxy.Partly) && len(passed.Keys) == 1
		failed[label(passed.Request)] = !passed.Fault.Is(faultproxy.None) && !wholly
	}
	lowest := len(r.records)
	for _, p := range parts {
		if slices.ContainsFunc(p.requests, func(request string) bool { return failed[request] }) {
			lowest = min(lowest, p.due(from))
		}
	}
	return lowest
}

// Stores that are wrong about faults in a way that is known.
type (
	// swallowing takes an update of usage that failed for done.
	swallowing struct{ table.Store }
	// insistent makes a pass again for as long as it fails.
	insistent struct{ table.Store }
	// recounting adds what is counted once more, as one that takes a lost answer
	// for nothing done.
	recounting struct{ table.Store }
	// hopeful takes a creation whose answer was lost for done.
	hopeful struct{ table.Store }
)

func (s swallowing) AddUsage(ctx context.Context, usage table.Usage) (table.UsageResult, error) {
	result, err := s.Store.AddUsage(ctx, usage)
	if err != nil {
		return table.UsageResult{Applied: true}, nil
	}
	return result, nil
}

func (s insistent) Pass(ctx context.Context, bucket *table.Bucket, pass *quota.Pass) (result table.PassResult, err error) {
	for range 10 { // as good as for ever
		if result, err = s.Store.Pass(ctx, bucket, pass); !errors.Is(err, table.ErrRetry) {
			break
		}
	}
	return result, err
}

func (s recounting) AddUsage(ctx context.Context, usage table.Usage) (table.UsageResult, error) {
	result, err := s.Store.AddUsage(ctx, usage)
	if err != nil || result.Applied {
		return result, err
	}
	for i := range usage.Sources {
		source := &usage.Sources[i]
		source.Found = result.Seen[source.Shard]
		source.Next = source.Found.With(source.Next...)
	}
	return s.Store.AddUsage(ctx, usage)
}

func (s hopeful) Create(ctx context.Context, creation table.Creation) (table.CreationOutcome, error) {
	outcome, err := s.Store.Create(ctx, creation)
	if err != nil {
		return table.Created, nil
	}
	return outcome, nil
}

// TestMutantsOfFaultHandlingAreCaught: the checks above find each of these wrong
// at some fault of some request.
func TestMutantsOfFaultHandlingAreCaught(t *testing.T) {
	s := newScene()
	want := undisturbed(t, s)
	for _, m := range []struct {
		name    string
		at      int
		request string
		fault   faultproxy.Fault
		mutate  func(table.Store) table.Store
	}{
		{"a failed update of usage is taken for done", 3, "usage grown", faultproxy.Throttled, func(s table.Store) table.Store { return swallowing{s} }},
		{"retries without end", 6, "pass short/0", faultproxy.ServerError, func(s table.Store) table.Store { return insistent{s} }},
		{"a lost answer is counted again", 1, "usage use", faultproxy.Lost, func(s table.Store) table.Store { return recounting{s} }},
		{"a lost creation is taken for done", 0, "create grown/2", faultproxy.Reset, func(s table.Store) table.Store { return hopeful{s} }},
	} {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			if wrong := suffer(t, s, want, m.at, m.request, m.fault, nil); len(wrong) != 0 {
				t.Fatalf("without the mutant: %v", wrong)
			}
			wrong := suffer(t, s, want, m.at, m.request, m.fault, m.mutate)
			if len(wrong) == 0 {
				t.Error("not caught")
			}
			t.Logf("%.1000s", wrong)
		})
	}
}
