package table

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// decode is one way to read an image.
type decode func(text []byte) error

func byReference(text []byte) error {
	_, err := (&Image{text: text}).DecodeFull()
	return err
}

// gate is an error where a way to read images is not well faster than the
// reference. Both are timed in turn, so that what else the machine does meets
// both, and of each the best round counts, which it met least.
func gate(fast decode, texts [][]byte) error {
	const rounds = 25
	best := [2]time.Duration{math.MaxInt64, math.MaxInt64}
	for range rounds {
		for i, read := range []decode{fast, byReference} {
			began := time.Now()
			for range 20 { // long enough for the clock, and short enough to be left alone once
				for _, text := range texts {
					if err := read(text); err != nil {
						return err
					}
				}
			}
			best[i] = min(best[i], time.Since(began))
		}
	}
	if speedup := float64(best[1]) / float64(best[0]); speedup < leastSpeedup {
		return fmt.Errorf("%.2f times as fast as the reference, want %g times", speedup, float64(leastSpeedup))
	}
	return nil
}

// Images are read well faster than the reference reads them.
func TestGateOfSpeed(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds, which -short leaves out")
	}
	d := NewImages()
	fast := func(text []byte) error {
		_, err := d.Decode(text)
		return err
	}
	if err := gate(fast, bucketLines(t)); err != nil {
		t.Error(err)
	}
}

// What is no faster than the reference does not pass the gate: the reference itself.
func TestGateOfSpeedCanFail(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds, which -short leaves out")
	}
	if err := gate(byReference, bucketLines(t)); err == nil {
		t.Error("the reference passes for well faster than itself")
	} else {
		t.Log(err)
	}
}
