package simulate

// Verdict is what an option's results say together. Shares are of 1.
type Verdict struct {
	Option  string  `json:"option"`
	Resting float64 `json:"heldOfCapacity"`   // the most at once, of the capacity, where shards neither double nor are made
	Growing float64 `json:"heldWhileGrowing"` // and where they do
	Rate    float64 `json:"rateOfRefill"`
	Over    int64   `json:"over"` // the most of any workload, tokens
	Large   float64 `json:"oversizedAdmitted"`
	Burst   float64 `json:"ofIdealBursty"`   // tokens admitted, of what one bucket admits
	Tenth   float64 `json:"soldOfLastTenth"` // 0 where the option is for limits that drip alone
	Writes  float64 `json:"hotWriteUnits"`   // for a use, all that is done for it included
	Reads   float64 `json:"hotReadUnits"`

	KeepsCeiling bool `json:"keepsCeiling"` // at rest
	KeepsRate    bool `json:"keepsRate"`
	KeepsTotal   bool `json:"keepsTotal"`  // no workload admits more beyond one bucket than the undivided option does
	AdmitsLarge  bool `json:"admitsLarge"` // all
}

// What is within the randomness of arrivals and draws: of the ceiling and the
// rate a fiftieth, and of the amounts admitted a twentieth of the capacity.
const (
	closeTo   = 1.02
	closeOver = 20
)

// Verdicts are those of all options that have met all workloads, in order.
func Verdicts(results []Result) []Verdict {
	var verdicts []Verdict
	for _, option := range Options() {
		if v, ok := verdict(option, results); ok {
			verdicts = append(verdicts, v)
		}
	}
	return verdicts
}

func verdict(option Option, results []Result) (v Verdict, ok bool) {
	v = Verdict{Option: option.Name, KeepsTotal: true}
	met := 0
	for _, workload := range Workloads() {
		r, reference := find(results, workload.Name, option.Name), find(results, workload.Name, Options()[0].Name)
		if option.Drips && workload.Refill == 0 {
			continue
		}
		if r == nil || reference == nil {
			return Verdict{}, false
		}
		met++
		v.Over = max(v.Over, r.Over)
		v.KeepsTotal = v.KeepsTotal && r.Over <= reference.Over+workload.Capacity/closeOver
		v.weigh(&workload, r)
	}
	v.KeepsCeiling, v.KeepsRate, v.AdmitsLarge = v.Resting <= closeTo, v.Rate <= closeTo, v.Large == 1
	return v, met > 0
}

// weigh takes from the result of one workload what it is there to show.
func (v *Verdict) weigh(w *Workload, r *Result) {
	if w.Meter > 0 {
		sum := r.Sum()
		v.Growing, v.Rate = r.Held, r.Rate
		v.Writes, v.Reads = sum.Write/float64(r.Asked), sum.Read/float64(r.Asked)
	} else if w.Refill > 0 {
		v.Resting = max(v.Resting, r.Held)
	} else {
		v.Resting, v.Tenth = max(v.Resting, r.Held+float64(w.Used)/float64(w.Capacity)), r.OfIdeal()
	}
	if r.LargeAsked > 0 {
		v.Large = float64(r.LargeAdmitted) / float64(r.LargeAsked)
	}
	if w.Name == "bursty" {
		v.Burst = r.OfIdeal()
	}
}

func find(results []Result, workload, option string) *Result {
	for i := range results {
		if r := &results[i]; r.Workload == workload && r.Option == option {
			return r
		}
	}
	return nil
}

// OfIdeal is what was admitted, of what one undivided bucket admits.
func (r *Result) OfIdeal() float64 { return float64(r.Tokens) / float64(r.Ideal[len(r.Ideal)-1]) }
