package page

import (
	"math"
	"strconv"
	"time"
)

// axis maps values onto pixels of one plot.
type axis struct {
	top   float64 // the value at its end
	ticks []float64
}

// newAxis reaches from 0 to a round number that is not below most.
func newAxis(most float64, ticks int) axis {
	if most <= 0 {
		most = 1
	}
	step := roundUp(most / float64(ticks))
	a := axis{top: step * math.Ceil(most/step)}
	for tick := 0.0; tick <= a.top+step/2; tick += step {
		a.ticks = append(a.ticks, tick)
	}
	return a
}

// roundUp is the next of 1, 2, 2.5, 5 or 10 times a power of ten.
func roundUp(x float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(x)))
	for _, digit := range []float64{1, 2, 2.5, 5} {
		if x <= digit*power*(1+1e-9) {
			return digit * power
		}
	}
	return 10 * power
}

// short renders a number in few characters: 40k, 1.5M.
func short(x float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e15, "P"}, {1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if x >= 10*unit.size || x >= unit.size && unit.size > 1e3 {
			return strconv.FormatFloat(x/unit.size, 'g', 4, 64) + unit.name
		}
	}
	return strconv.FormatFloat(x, 'g', 4, 64)
}

// tickSteps are the distances of ticks on the time axis.
var tickSteps = []time.Duration{
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour,
}

// timeTicks are instants between from and to, epoch ms, at round times of day,
// at most so many, with their labels.
func timeTicks(from, to int64, most int) (at []int64, labels []string) {
	step := tickSteps[len(tickSteps)-1]
	for _, candidate := range tickSteps {
		if (to-from)/candidate.Milliseconds() < int64(most) {
			step = candidate
			break
		}
	}
	for (to-from)/step.Milliseconds() >= int64(most) {
		step *= 2
	}
	layout := "15:04:05"
	switch {
	case step >= 24*time.Hour:
		layout = "Jan 2"
	case step >= time.Minute:
		layout = "15:04"
	}
	ms := step.Milliseconds()
	for t := (from + ms - 1) / ms * ms; t <= to; t += ms {
		at = append(at, t)
		labels = append(labels, time.UnixMilli(t).UTC().Format(layout))
	}
	return at, labels
}

func timeOf(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02 15:04:05") }
