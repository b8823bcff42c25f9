package main

import (
	"fmt"
	"os"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/aggregator/replay"
	"github.com/shardquota/shardquota/table"
)

// naming returns how to name entities: by id if ids is set, else by the pseudonyms
// of the logs if the environment has their key, else by number.
func naming(ids bool) replay.Naming {
	if ids {
		return func(group table.Group) string { return group.Entity }
	}
	if key := os.Getenv("SHARDQUOTA_HASH_KEY"); key != "" {
		return aggregator.NewPseudonyms(key).Of
	}
	numbers := map[string]int{}
	return func(group table.Group) string {
		id := group.Namespace + "/" + group.Entity
		if numbers[id] == 0 {
			numbers[id] = len(numbers) + 1
		}
		return fmt.Sprintf("entity-%d", numbers[id])
	}
}
