package dynamo

import (
	"maps"
	"sync"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// Units is what a Store has consumed so far. The service reports no capacity
// for a condition that failed, though it charges for it: those requests count
// under Refused, and their units are missing here.
type Units struct {
	Read     float64        // read units; half ones exist
	Write    float64        // write units
	Requests map[string]int // answered requests by operation, the refused ones included
	Refused  int            // requests whose condition did not hold
}

// Units returns what was consumed since the Store was made.
func (s *Store) Units() Units {
	s.meter.mu.Lock()
	defer s.meter.mu.Unlock()
	units := s.meter.units
	units.Requests = maps.Clone(units.Requests)
	return units
}

// meter adds up what requests consumed. The zero value is ready.
type meter struct {
	mu    sync.Mutex
	units Units
}

func (m *meter) read(operation string, consumed *types.ConsumedCapacity) {
	m.count(operation, func(u *Units) { u.Read += capacity(consumed) })
}

func (m *meter) write(operation string, consumed *types.ConsumedCapacity) {
	m.count(operation, func(u *Units) { u.Write += capacity(consumed) })
}

func (m *meter) refused(operation string) { m.count(operation, func(u *Units) { u.Refused++ }) }

func (m *meter) count(operation string, consume func(*Units)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.units.Requests == nil {
		m.units.Requests = map[string]int{}
	}
	m.units.Requests[operation]++
	consume(&m.units)
}

func capacity(consumed *types.ConsumedCapacity) float64 {
	if consumed == nil || consumed.CapacityUnits == nil {
		return 0
	}
	return *consumed.CapacityUnits
}
