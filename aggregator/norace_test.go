//go:build !race

package aggregator_test

const walks = 1200 // of TestNobodySpends

const cuts = 25 // of TestCutsLeaveTheSameTable
