//go:build !race

package aggregator_test

const walks = 2000 // of TestNobodySpends
