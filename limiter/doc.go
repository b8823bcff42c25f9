// Package limiter takes tokens of sharded rate limits and quotas.
//
// A program opens the limits of a namespace (package limits), makes a Limiter over
// them, and calls Acquire before each use and Lease.Adjust after it:
//
//	store, err := limits.Open(ctx, dynamo.New(client, "limits"))
//	...
//	take := limiter.New(store)
//	lease, err := take.Acquire(ctx, "acme", "gpt-4", limiter.Amounts{"requests": 1, "tokens": 400})
//
// A use is one conditional update of one shard, drawn at random. It reads nothing,
// and costs one write unit of the table for an item of up to 1 KB. The Limiter does
// more only where DynamoDB refuses the update: the shard is missing, its limits have
// to be looked at again, or it has too little. A Limiter creates the shards that it
// draws, opens session windows and propagates them, and doubles shards that run hot.
// It runs beside other programs of the layout, and beside the aggregator, which does
// the same ahead of use.
//
// Amounts are whole tokens. OnUnavailable says what happens while DynamoDB cannot be
// reached. No error of this package holds an entity id.
//
// Read step.go first: next decides each step of a use, and its test is the
// specification. attempt.go makes the steps, draw.go picks the shard, and lease.go
// reconciles a use.
package limiter
