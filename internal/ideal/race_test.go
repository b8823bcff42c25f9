//go:build race

package ideal

const corpus = 1 // workloads of a kind; the race detector is slow
