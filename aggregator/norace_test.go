//go:build !race

package aggregator_test

const walks = 1500 // of TestNobodySpends

const cuts = 60 // of TestCutsLeaveTheSameTable
