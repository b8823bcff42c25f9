//go:build !race

package mapping_test

const (
	corpus = 20  // simulations
	steps  = 800 // of each
)
