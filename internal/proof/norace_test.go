//go:build !race

package proof_test

const (
	states = 0    // that TestSearch goes into of each scenario: all
	walks  = 1200 // of TestNobodySpends
	cuts   = 25   // of TestCutsLeaveTheSameTable
)
