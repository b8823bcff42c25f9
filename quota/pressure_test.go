package quota

import "testing"

// A write meter of 1,000 writes a second; a fifth of it is 200,000.
func TestPressed(t *testing.T) {
	small := with(meter(0), func(l *Limit) { l.Base = Params{Capacity: 9, Refill: 9, Period: 1000} })
	at := func(l Limit, balance int64) Limit { return with(l, func(l *Limit) { l.Balance = balance }) }
	for _, c := range []struct {
		name    string
		limit   Limit
		written int64
		want    bool
	}{
		{"just under a fifth", meter(199_999), day, true},
		{"a fifth", meter(200_000), day, false},
		{"full", meter(1000_000), day, false},
		{"nothing left", meter(0), day, true},
		{"overdrawn", meter(-5000), day, true},
		{"dripped forward to a fifth", meter(0), day + 200, false},
		{"a millisecond less", meter(0), day + 199, true},
		{"overdrawn by a second", meter(-1000_000), day + 1199, true},
		{"and paid off", meter(-1000_000), day + 1200, false},
		{"written before the last pass, as whole seconds are", meter(200_000), day - 999, false},
		{"which drips nothing", meter(199_999), day - 999, true},
		{"a threshold that is no whole number is rounded down", at(small, 0), day, true},
		{"9 // 5 is 1", at(small, 1), day, false},
		{"other limits have no say", dripping("rpm", 0, 1000_000), day, false},
		{"no capacity", Limit{Name: WriteMeter}, day, false},
		{"no refill", Limit{Name: WriteMeter, Base: Params{Capacity: 1000}}, day + hour, true},
	} {
		if got := Pressed(shardOf(0, 1, day, c.limit), c.written); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}

func TestDoubles(t *testing.T) {
	hot := func(shard, count int) *Bucket { return shardOf(shard, count, day, meter(0)) }
	for _, c := range []struct {
		name   string
		bucket *Bucket
		want   bool
	}{
		{"1 to 2", hot(0, 1), true},
		{"16 to 32", hot(0, 16), true},
		{"32 is the most", hot(0, 32), false},
		{"more than that", hot(0, 64), false},
		{"not to 34", hot(0, 17), false},
		{"only shard 0 decides", hot(1, 2), false},
		{"disabled", &Bucket{Disabled: true, ShardCount: 1, RefilledAt: day, Limits: []Limit{meter(0)}}, false},
		{"not hot", shardOf(0, 1, day, meter(900_000)), false},
	} {
		if got := Doubles(c.bucket, day); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}

// firstPressed runs steady traffic with no pass in between and returns after
// how many milliseconds the bucket is first seen as hot, or -1. The times of
// writes are known to the second, rounded down.
func firstPressed(perSecond, phase, duration int64) int64 {
	b := shardOf(0, 1, day+phase, meter(1000_000))
	for n := int64(1); ; n++ {
		elapsed := n * 1000 / perSecond
		if elapsed > duration {
			return -1
		}
		b.Limits[0].Balance -= 1000
		written := day + phase + elapsed
		if Doubles(b, written-written%second) {
			return elapsed
		}
	}
}

func TestSteadyTraffic(t *testing.T) {
	for phase := int64(0); phase < 1000; phase += 37 {
		for _, slow := range []int64{1, 10, 100} {
			if at := firstPressed(slow, phase, hour); at >= 0 {
				t.Errorf("%d writes a second, the pass %d ms into one: hot after %d ms", slow, phase, at)
			}
		}
		if at := firstPressed(1500, phase, 2*second); at < 0 {
			t.Errorf("1500 writes a second, the pass %d ms into one: never hot", phase)
		}
	}
}

// As far as 400 writes a second go whole seconds cannot mislead: at most two of
// them go undripped.
func TestTrafficWithinTheMeterIsNotPressure(t *testing.T) {
	for phase := int64(0); phase < 1000; phase += 111 {
		if at := firstPressed(400, phase, 60*second); at >= 0 {
			t.Errorf("the pass %d ms into a second: hot after %d ms", phase, at)
		}
	}
}
