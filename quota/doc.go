// Package quota holds the rules of sharded rate limits. They say how a limit is
// divided among shards, which shard was granted what, what a pass does to a
// bucket, and when a bucket is hot.
//
// The package is pure. It does no I/O, reads no clock and knows nothing of AWS:
// now is a parameter, in epoch milliseconds. A decision is a function that returns
// a plan, a struct to print and compare. A store applies the plan.
//
// Amounts are integers of millitokens (1/1000 token). Capacities and refills are
// those of the whole limit; each function computes a shard's part itself.
package quota
