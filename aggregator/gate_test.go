package aggregator_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/internal/fixture"
)

// What a record may allocate from its text to its plan: where each is of a bucket
// of its own, and where most go on from the record before. It is a little more
// than they do, so that what makes it less can be kept.
var allowed = []struct {
	records, buckets int
	allocations      float64 // of each record
}{
	{1000, 10_000, 25},
	{1000, 100, 11},
	{1000, 1, 8},
}

// gateOfAllocations is an error where a batch allocates more of each record than
// is allowed.
func gateOfAllocations(batch []events.Record, allowed float64) error {
	a := planner()
	perRecord := testing.AllocsPerRun(3, func() {
		a.Process(context.Background(), batch, noon+hour/2)
	}) / float64(len(batch))
	if perRecord > allowed {
		return fmt.Errorf("%.1f allocations a record, want at most %g", perRecord, allowed)
	}
	return nil
}

func planner() *aggregator.Aggregator {
	return &aggregator.Aggregator{Store: discarded{}, Windows: []events.Window{events.Hourly, events.Daily}}
}

func TestGateOfAllocations(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds, which -short leaves out")
	}
	for _, test := range allowed {
		if err := gateOfAllocations(fixture.Uses(test.records, test.buckets), test.allocations); err != nil {
			t.Errorf("%d records of %d buckets: %v", test.records, test.buckets, err)
		}
	}
}

// Images that the fast decoder leaves to the reference, here for a blank that
// DynamoDB does not write, do not pass the gate.
func TestGateOfAllocationsCanFail(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds, which -short leaves out")
	}
	for _, test := range allowed {
		batch := fixture.Uses(test.records, test.buckets)
		for i := range batch {
			batch[i].Old, batch[i].New = blank(batch[i].Old), blank(batch[i].New)
		}
		if err := gateOfAllocations(batch, test.allocations); err == nil {
			t.Errorf("%d records of %d buckets pass by way of the reference", test.records, test.buckets)
		} else {
			t.Log(err)
		}
	}
}

func blank(text json.RawMessage) json.RawMessage { return append(json.RawMessage(" "), text...) }
