//go:build !race

package events

import (
	"bytes"
	"fmt"
	"math"
	"testing"
	"time"
)

// leastSpeedup is how many times as fast as by way of the reference an event must
// be read. It is 2.2 times as fast, on a busy machine too. The race detector would
// take ten seconds for the same.
const leastSpeedup = 1.5

// gate is an error where an event is not read well faster than one that is left
// to the reference. Both are timed in turn, so that what else the machine does
// meets both, and of each the best round counts, which it met least.
func gate(event, left []byte) error {
	const rounds = 50
	best := [2]time.Duration{math.MaxInt64, math.MaxInt64}
	for range rounds {
		for i, text := range [][]byte{event, left} {
			began := time.Now()
			if _, err := DecodeEvent(text); err != nil {
				return err
			}
			best[i] = min(best[i], time.Since(began))
		}
	}
	if speedup := float64(best[1]) / float64(best[0]); speedup < leastSpeedup {
		return fmt.Errorf("%.2f times as fast as the reference, want %g times", speedup, leastSpeedup)
	}
	return nil
}

// recordedEvents are one event twice, of records from all over each recording: as
// they were recorded, and with a blank in each that frame does not take and the
// reference does not mind.
func recordedEvents(t *testing.T) (event, left []byte) {
	t.Helper()
	var records, blank [][]byte
	for _, name := range recordingNames(t) {
		lines := recordedLines(t, name)
		for i := 0; i < len(lines); i += len(lines) / 20 {
			records = append(records, lines[i])
			blank = append(blank, append([]byte("{ "), lines[i][1:]...))
		}
	}
	return eventOf(t, records), eventOf(t, blank)
}

// eventOf is the event of records, all of which are good.
func eventOf(t *testing.T, records [][]byte) []byte {
	t.Helper()
	event := fmt.Appendf(nil, `{"Records":[%s]}`, bytes.Join(records, []byte(",")))
	decoded, err := DecodeEvent(event)
	if err != nil || len(decoded) != len(records) {
		t.Fatalf("%d records of %d, %v", len(decoded), len(records), err)
	}
	for _, record := range decoded {
		if record.Err != nil {
			t.Fatalf("%v: %v", record.Position, record.Err)
		}
	}
	return event
}

// Recorded events are read well faster than by way of the reference: the reader
// goes by frame, which takes them.
func TestGateOfSpeed(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds, which -short leaves out")
	}
	event, left := recordedEvents(t)
	if err := gate(event, left); err != nil {
		t.Error(err)
	}
}

// What frame leaves to the reference does not pass the gate.
func TestGateOfSpeedCanFail(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds, which -short leaves out")
	}
	_, left := recordedEvents(t)
	if err := gate(left, left); err == nil {
		t.Error("the reference passes for well faster than itself")
	} else {
		t.Log(err)
	}
}
