package simulate

import (
	"math/rand/v2"
	"time"

	"github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/quota"
)

// Ask is one use that a customer asks for.
type Ask struct {
	At     int64 // ms after the beginning
	Amount int64 // tokens
}

// Workload is what a customer asks of one limit.
type Workload struct {
	Name     string
	Says     string
	Capacity int64 // tokens
	Refill   int64 // tokens a second; 0 for a quota
	Shards   int   // at the beginning, at which they stay unless Meter says otherwise
	Meter    int64 // writes a second at which an item counts as hot; 0 for what the product has
	Largest  int64 // that is asked for at once, tokens
	Used     int64 // of a quota before the beginning, tokens
	Length   int64 // ms
	Steady   int64 // from when on the rate is measured, ms; 0 for never
	asks     func(*rand.Rand) []Ask
}

// Asks are what is asked for, in order. A seed has its own.
func (w *Workload) Asks(seed uint64) []Ask { return w.asks(source(seed, w.Name, "asks")) }

// Large reports whether an amount is more than a 32nd of the capacity: than a
// shard's part where there are as many as there can be.
func (w *Workload) Large(amount int64) bool { return amount > w.Capacity/quota.MaxShards }

// limit is the limit as a program declares it.
func (w *Workload) limit(division quota.Division) limits.Limit {
	l := limits.Limit{Name: limitName, Capacity: w.Capacity, Division: division}
	if l.Refill, l.Period = w.Refill, time.Second; w.Refill == 0 {
		l.Period, l.Resets = 0, []string{"0 0 1 * *"}
	}
	return l
}

// source is the random numbers of one purpose.
func source(seed uint64, names ...string) *rand.Rand {
	hash := uint64(14695981039346656037) // FNV-1a
	for _, name := range names {
		for _, b := range []byte(name + "\x00") {
			hash = (hash ^ uint64(b)) * 1099511628211
		}
	}
	return rand.New(rand.NewPCG(seed, hash))
}

// Times in ms.
const (
	second = 1000
	minute = 60 * second
)

// Workloads are those that each way of dividing meets.
func Workloads() []Workload {
	return []Workload{
		{
			Name: "steady", Says: "5 tokens at a time, 80 a second in the mean of the 100 that drip; 32 shards",
			Capacity: 1000, Refill: 100, Shards: 32, Largest: 5, Length: minute,
			asks: func(r *rand.Rand) []Ask { return arrivals(r, 0, minute, 16, 5) },
		},
		{
			Name: "bursty", Says: "20 s idle, then 900 tokens within a second, 10 at a time; the fourth time 3,000; 100 a second drip; 32 shards",
			Capacity: 1000, Refill: 100, Shards: 32, Largest: 10, Length: 82 * second,
			asks: func(*rand.Rand) []Ask { return bursts(20*second, 10, 90, 90, 90, 300) },
		},
		{
			Name: "hot", Says: "one token at a time, 480 times a second where 240 drip; from 1 shard to 32, each good for 10 writes a second instead of 1,000",
			Capacity: 1000, Refill: 240, Shards: 1, Meter: 10, Largest: 1, Length: 12 * second, Steady: 6 * second,
			asks: func(r *rand.Rand) []Ask { return arrivals(r, 0, 12*second, 480, 1) },
		},
		{
			Name: "large", Says: "one token at a time, 30 times a second, and every 4 s 100 at once; 100 a second drip; 32 shards",
			Capacity: 1000, Refill: 100, Shards: 32, Largest: 100, Length: minute,
			asks: func(r *rand.Rand) []Ask {
				return merged(arrivals(r, 0, minute, 30, 1), every(2*second, minute, 4*second, 100))
			},
		},
		{
			Name: "last tenth", Says: "a quota of 10,000, of which 9,000 are used; 5 tokens at a time, every tenth time 50, 20 times a second until 3,000 were asked for; 32 shards",
			Capacity: 10_000, Shards: 32, Largest: 50, Used: 9000, Length: 17 * second,
			asks: func(*rand.Rand) []Ask { return tenths(50, 5, 50, 3000) },
		},
	}
}

// arrivals are asks of one amount that come at random, so many a second in the
// mean.
func arrivals(r *rand.Rand, from, to int64, rate float64, amount int64) []Ask {
	var asks []Ask
	at := float64(from)
	for {
		if at += r.ExpFloat64() * second / rate; int64(at) >= to {
			return asks
		}
		asks = append(asks, Ask{int64(at), amount})
	}
}

// bursts are asks of one amount: after each pause so many, spread over a second.
func bursts(pause, amount int64, sizes ...int64) []Ask {
	var asks []Ask
	at := int64(0)
	for _, size := range sizes {
		at += pause
		for i := range size {
			asks = append(asks, Ask{at + i*second/size, amount})
		}
	}
	return asks
}

// every is an ask of one amount each step.
func every(from, to, step, amount int64) []Ask {
	var asks []Ask
	for at := from; at < to; at += step {
		asks = append(asks, Ask{at, amount})
	}
	return asks
}

// tenths are asks each step, nine of a small amount and then one of a large one,
// until a total is asked for.
func tenths(step, small, large, total int64) []Ask {
	var asks []Ask
	for sum := int64(0); sum < total; {
		ask := Ask{int64(len(asks)) * step, small}
		if len(asks)%10 == 9 {
			ask.Amount = large
		}
		asks = append(asks, ask)
		sum += ask.Amount
	}
	return asks
}

// merged are two lists of asks in the order of their times, the first list's
// first.
func merged(a, b []Ask) []Ask {
	var asks []Ask
	for len(a) > 0 || len(b) > 0 {
		if len(b) == 0 || len(a) > 0 && a[0].At <= b[0].At {
			asks, a = append(asks, a[0]), a[1:]
		} else {
			asks, b = append(asks, b[0]), b[1:]
		}
	}
	return asks
}
