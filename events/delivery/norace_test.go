//go:build !race

package delivery_test

const (
	corpus = 20  // simulations
	steps  = 800 // of each
)
