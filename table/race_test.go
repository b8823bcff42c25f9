//go:build race

package table

// leastSpeedup is less under the race detector, which watches each byte that the
// fast decoder looks at: that makes it about twice as fast as the reference.
// `make test` runs the gate without the detector too.
const leastSpeedup = 1.25
