package simulate

import "github.com/shardquota/shardquota/table/memory"

// Step is how far the points of a series are apart, ms.
const Step = 500

// Class is what became of a use, as far as its price depends on it.
type Class int

// The classes of uses.
const (
	Hit     Class = iota // admitted by its first request
	Miss                 // admitted by a later one
	Refused              // not admitted
	Large                // of more than a 32nd of the capacity, admitted or not
	Growth               // shards were made or doubled on the way
	classes
)

func (c Class) String() string {
	return [classes]string{"hit", "miss", "refused", "oversized", "growth"}[c]
}

// Cost is what uses of one class, or one process, have consumed.
type Cost struct {
	N        int     `json:"n"` // how many there were
	Requests int     `json:"requests"`
	Trips    int     `json:"roundTrips"`
	Read     float64 `json:"readUnits"`
	Write    float64 `json:"writeUnits"` // of the table, what refused requests are charged included
	Index    float64 `json:"indexUnits"` // of GSI2 with every attribute
}

func (c *Cost) add(u memory.Units) {
	c.N++
	c.Requests += u.Sum()
	c.Trips += u.Trips
	c.Read += u.Read
	c.Write += u.Write + u.Charged
	c.Index += u.Indexes["GSI2"]
}

func (c *Cost) sum(other Cost) {
	c.N += other.N
	c.Requests += other.Requests
	c.Trips += other.Trips
	c.Read += other.Read
	c.Write += other.Write
	c.Index += other.Index
}

// Result is what an option made of a workload. Amounts are in tokens.
type Result struct {
	Workload      string        `json:"workload"`
	Option        string        `json:"option"`
	Asked         int           `json:"asked"`
	Admitted      int           `json:"admitted"`
	Wait          int           `json:"refusedToWait"`
	Never         int           `json:"refusedForEver"`
	Needless      int           `json:"refusedNeedlessly"` // though one undivided bucket that had admitted the same had enough
	LargeAsked    int           `json:"oversizedAsked"`
	LargeAdmitted int           `json:"oversizedAdmitted"`
	Tokens        int64         `json:"tokens"`         // that were admitted
	Held          float64       `json:"heldOfCapacity"` // the most at once
	Over          int64         `json:"over"`           // the most that was admitted beyond one undivided bucket
	Rate          float64       `json:"rateOfRefill"`   // while it was measured, less what was taken off a stock; 0 where it is not
	Busiest       float64       `json:"busiestItem"`    // writes of one item in that time, of what it takes
	Shards        int           `json:"shards"`         // at the end
	Classes       [classes]Cost `json:"-"`
	Costs         []ClassCost   `json:"costs"`
	Aggregator    Cost          `json:"aggregator"`
	Evening       Cost          `json:"evening"`
	Series        []int64       `json:"series"` // tokens admitted by each step
	Ideal         []int64       `json:"ideal"`  // by one undivided bucket of the same asks

	held   int64 // millitokens
	steady int64 // tokens that were admitted while the rate was measured
	stock  int64 // what was held when that began and no more when it ended, millitokens
}

// ClassCost is the cost of a class by its name.
type ClassCost struct {
	Class string `json:"class"`
	Cost
}

// clear forgets what was counted before the beginning.
func (r *Result) clear() { *r = Result{Workload: r.Workload, Option: r.Option} }

// Sum is what all of a workload has consumed.
func (r *Result) Sum() Cost {
	sum := r.Aggregator
	sum.sum(r.Evening)
	for _, c := range r.Classes {
		sum.sum(c)
	}
	return sum
}
