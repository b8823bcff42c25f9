// Package simulate measures how a limit may be divided among shards. Each way
// meets the same workloads, in virtual time: the clients (package limiter), the
// aggregator and the rules are the real ones, over the memory store and its
// account of units; what is no part of the product is a variant of the table on
// the way. One seed gives one result.
package simulate
