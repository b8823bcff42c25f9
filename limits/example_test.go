package limits_test

import (
	"context"
	"fmt"
	"log"

	"github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/table/memory"
)

// An operator sets limits for everybody on a resource, and gives one entity more.
func ExampleStore_SetLimits() {
	ctx := context.Background()
	store, err := limits.Open(ctx, memory.New().Client(), limits.Namespace("prod"))
	if err != nil {
		log.Fatal(err)
	}
	everybody, acme := limits.ForResource("gpt-4"), limits.For("acme", "gpt-4")
	if err := store.SetLimits(ctx, everybody, limits.PerMinute("requests", 60)); err != nil {
		log.Fatal(err)
	}
	if err := store.SetLimits(ctx, acme, limits.PerMinute("requests", 600)); err != nil {
		log.Fatal(err)
	}
	levels, err := store.Levels(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, level := range levels {
		fmt.Printf("%q on %s: %d a minute\n", level.At.Entity(), level.At.Resource(), level.Limits[0].Refill)
	}
	// Output:
	// "" on gpt-4: 60 a minute
	// "acme" on gpt-4: 600 a minute
}

// A quota of a million tokens a month, restored at midnight in Berlin.
func ExampleQuota() {
	limit := limits.Quota("tokens", 1_000_000, "0 0 1 * *")
	limit.Zone = "Europe/Berlin"
	normal, err := limits.Normal(limit)
	fmt.Println(normal[0].Name, normal[0].Resets, normal[0].Zone, err)

	limit.Refill = 5
	_, err = limits.Normal(limit)
	fmt.Println(err)
	// Output:
	// tokens [0 0 1 * *] Europe/Berlin <nil>
	// malformed limit "tokens": a quota is restored and has no Refill
}
