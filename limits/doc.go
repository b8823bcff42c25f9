// Package limits declares rate limits and quotas, stores them, and rolls changes
// out to live buckets.
//
// A Limit is one rule, such as 60 requests a minute. A Level is where limits are
// stored: for everything in a namespace, for a resource, for an entity, or for an
// entity on a resource. The most specific level that defines limits decides, whole.
// A Store holds the levels of one namespace; Store.SetLimits is what most programs
// need of it. Package limiter takes tokens by what a Store says, and package
// limits/manifest keeps levels in a file.
//
// Read limit.go first, then level.go and store.go. write.go stores a level,
// effective.go works out what a bucket should say, and rollout.go brings it there.
//
// No error of this package holds an entity id.
package limits
