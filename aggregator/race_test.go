//go:build race

package aggregator_test

const walks = 160 // of TestNobodySpends; the race detector is slow

const cuts = 4 // of TestCutsLeaveTheSameTable
