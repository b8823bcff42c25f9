//go:build race

package aggregator_test

const walks = 200 // of TestNobodySpends; the race detector is slow

const cuts = 10 // of TestCutsLeaveTheSameTable
