package interop

import (
	"time"

	"github.com/shardquota/shardquota/limits"
)

// wire is a limit as the driver takes and gives it: in tokens and seconds, 0
// and "" for what it does not have.
type wire struct {
	Name     string   `json:"name"`
	Capacity int64    `json:"capacity"`
	Refill   int64    `json:"refill"`
	Period   int64    `json:"period"` // of the refill; 0 for a quota
	Soft     bool     `json:"soft"`
	Window   int64    `json:"window"`
	Resets   []string `json:"resets"`
	Schedule []entry  `json:"schedule"`
	Zone     string   `json:"zone"` // "" where there is neither of the two
}

// entry is a quota.Entry, by its names on the wire.
type entry struct {
	Cron     string `json:"cron"`
	Scale    int64  `json:"scale"` // thousandths
	Capacity int64  `json:"capacity"`
	Refill   int64  `json:"refill"`
	Period   int64  `json:"period"`
}

func wireOf(l limits.Limit) wire {
	w := wire{
		Name: l.Name, Capacity: l.Capacity, Refill: l.Refill, Period: int64(l.Period / time.Second),
		Soft: l.Soft, Window: int64(l.Window / time.Second), Resets: append([]string{}, l.Resets...), Schedule: []entry{},
	}
	for _, e := range l.Schedule {
		w.Schedule = append(w.Schedule, entry(e))
	}
	if len(l.Resets)+len(l.Schedule) > 0 {
		if w.Zone = l.Zone; w.Zone == "" {
			w.Zone = "UTC"
		}
	}
	return w
}

func wires(limits []limits.Limit) []wire {
	all := []wire{}
	for _, l := range limits {
		all = append(all, wireOf(l))
	}
	return all
}
