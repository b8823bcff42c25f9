//go:build race

package simulate

// raced has the long tests be left out: under the race detector they take ten
// times as long. `make test` runs them without it.
const raced = true
