//go:build race

package delivery_test

// The race detector is slow.
const (
	corpus = 6   // simulations
	steps  = 500 // of each
)
