package main

import (
	"fmt"
	"os"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/aggregator/replay"
	"github.com/shardquota/shardquota/table"
)

// naming hides ids unless they are asked for: behind the pseudonyms that the
// logs use where their key is at hand, otherwise behind a number.
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
