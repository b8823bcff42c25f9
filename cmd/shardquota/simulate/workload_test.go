package simulate

import (
	"reflect"
	"slices"
	"testing"
)

func TestGenerators(t *testing.T) {
	for name, c := range map[string]struct{ got, want []Ask }{
		"bursts": {bursts(5000, 7, 2, 4), []Ask{
			{5000, 7}, {5500, 7}, {10_000, 7}, {10_250, 7}, {10_500, 7}, {10_750, 7},
		}},
		"every": {every(2000, 10_000, 4000, 9), []Ask{{2000, 9}, {6000, 9}}},
		"tenths": {tenths(50, 5, 40, 90), []Ask{
			{0, 5}, {50, 5}, {100, 5}, {150, 5}, {200, 5}, {250, 5}, {300, 5}, {350, 5}, {400, 5}, {450, 40}, {500, 5},
		}},
		"merged": {merged([]Ask{{1, 1}, {3, 1}}, []Ask{{0, 2}, {3, 2}, {4, 2}}), []Ask{{0, 2}, {1, 1}, {3, 1}, {3, 2}, {4, 2}}},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("%s:\n got %v\nwant %v", name, c.got, c.want)
		}
	}
}

// TestArrivals come in order within their time, about as often as is said: a
// thousand are within four deviations of 1,000, which is 126.
func TestArrivals(t *testing.T) {
	asks := arrivals(source(1, "test"), 10*second, 110*second, 10, 3)
	if !slices.IsSortedFunc(asks, func(a, b Ask) int { return int(a.At - b.At) }) {
		t.Error("out of order")
	}
	if n := len(asks); n < 874 || n > 1126 || asks[0].At < 10*second || asks[n-1].At >= 110*second || asks[n-1].Amount != 3 {
		t.Errorf("%d asks, from %v to %v", n, asks[0], asks[n-1])
	}
	if again := arrivals(source(1, "test"), 10*second, 110*second, 10, 3); !reflect.DeepEqual(again, asks) {
		t.Error("the same seed gives others")
	}
	if other := arrivals(source(2, "test"), 10*second, 110*second, 10, 3); reflect.DeepEqual(other, asks) {
		t.Error("another seed gives the same")
	}
	if other := arrivals(source(1, "te", "st"), 10*second, 110*second, 10, 3); reflect.DeepEqual(other, asks) {
		t.Error("another purpose gives the same")
	}
}

// TestWorkloads has each be what it says, in tokens and asks.
func TestWorkloads(t *testing.T) {
	type total struct {
		asks         int
		tokens       int64
		large        int
		first, final int64
	}
	want := map[string]total{
		"bursty":     {asks: 90*3 + 300, tokens: 5700, first: 20 * second, final: 80*second + 996},
		"last tenth": {asks: 320, tokens: 288*5 + 32*50, first: 0, final: 319 * 50},
	}
	for _, w := range Workloads() {
		asks := w.Asks(1)
		got := total{asks: len(asks), first: asks[0].At, final: asks[len(asks)-1].At}
		for _, ask := range asks {
			got.tokens += ask.Amount
			if ask.Amount > w.Largest || ask.At < 0 || ask.At >= w.Length {
				t.Errorf("%s: %v", w.Name, ask)
			}
			if w.Large(ask.Amount) {
				got.large++
			}
		}
		if known, ok := want[w.Name]; ok && got != known {
			t.Errorf("%s: %+v, not %+v", w.Name, got, known)
		}
		if w.Name == "large" && got.large != 15 || w.Name != "large" && got.large != 0 {
			t.Errorf("%s: %d are large", w.Name, got.large)
		}
	}
}

// TestMost is the largest count that an option comes to.
func TestMost(t *testing.T) {
	counts := map[string]map[string]int{}
	for _, o := range Options() {
		counts[o.Name] = map[string]int{}
		for _, w := range Workloads() {
			counts[o.Name][w.Name] = o.most(&w)
		}
	}
	for option, want := range map[string]map[string]int{
		"undivided": {"steady": 1, "bursty": 1, "hot": 1, "large": 1, "last tenth": 1},
		"capped":    {"steady": 32, "bursty": 32, "hot": 32, "large": 8, "last tenth": 32}, // 1,000 is 10 times 100: 8 shards of 125
		"divided":   {"steady": 32, "bursty": 32, "hot": 32, "large": 32, "last tenth": 32},
	} {
		if !reflect.DeepEqual(counts[option], want) {
			t.Errorf("%s: %v", option, counts[option])
		}
	}
}
