//go:build !race

package ideal

const corpus = 4 // workloads of a kind
