// Package limiter takes tokens of sharded rate limits and quotas.
//
// A use is one conditional update of one shard, drawn at random: no read and
// one write unit of the table for an item of up to 1 KB. Only where that is
// refused, because the shard is missing, its terms have to be looked at again,
// or it has too little, is more done. A Limiter creates shards that it draws,
// opens and tells of session windows, doubles shards that run hot, and runs
// beside other programs of the layout and the aggregator, which does the same
// ahead of use.
//
// Amounts are whole tokens. What happens if DynamoDB cannot be reached is the
// caller's choice (OnUnavailable). No error of this package holds an entity id.
package limiter
