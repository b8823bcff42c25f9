// Package quota holds the rules of sharded rate limits: how a limit is divided
// among shards, who was granted what, what a materialising pass does to a
// bucket, and when a bucket is hot.
//
// Everything here is pure: no I/O, no clock (now is a parameter, epoch
// milliseconds) and no AWS. A decision is a function that returns a plan, a
// struct that can be printed and compared; a store applies it.
//
// Amounts are integers of millitokens (1/1000 token). Capacities and refills
// are those of the whole limit; a shard's part is computed where it is needed.
package quota
