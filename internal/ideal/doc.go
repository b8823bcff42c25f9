// Package ideal compares what the sharded system admits with one undivided
// bucket of the same limit: never more than that could have admitted, but for
// what docs/guarantees.md allows, and never less than division explains.
//
// It holds tests only. Workloads are random lists of steps: clients by the rules
// that spend, refund, plan passes and write them late, double and create, with
// clocks that differ and jump; an operator who changes limits and tops up; an
// aggregator that gets the stream of it all, repeated and late. A fixed corpus of
// them runs always. For a long search, of so many more workloads of 4,000 steps
// each:
//
//	SHARDQUOTA_SEEDS=10000 go test ./internal/ideal -run TestModel -timeout 0
//
// A workload that fails is cut down to the steps that it takes, and printed.
package ideal
