//go:build !race

package table

// leastSpeedup is how many times as fast as the reference the fast decoder must
// be. It is six times as fast: half of that is far from what a busy machine does
// to the ratio, and from what a slower decoder would be let off with.
const leastSpeedup = 3
