//go:build race

package proof_test

// The race detector is slow, and in a search one goroutine moves at a time.
const (
	states = 500 // that TestSearch goes into of each scenario
	walks  = 160 // of TestNobodySpends
	cuts   = 4   // of TestCutsLeaveTheSameTable
)
