package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/shardquota/shardquota/limiter"
	"github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/table/memory"
)

func Example() {
	ctx := context.Background()
	// On DynamoDB: dynamo.New(dynamodb.NewFromConfig(config), "limits").
	store, err := limits.Open(ctx, memory.New().Client(), limits.Default("gpt-4",
		limits.PerMinute("requests", 60), limits.Quota("tokens", 1_000, "0 0 1 * *")))
	if err != nil {
		log.Fatal(err)
	}
	take := limiter.New(store)
	for prompt := range 3 {
		lease, err := take.Acquire(ctx, "acme", "gpt-4", limiter.Amounts{"requests": 1, "tokens": 400})
		var rejection *limiter.Rejection
		if errors.As(err, &rejection) { // answer 429: rejection.WriteHTTP(w)
			fmt.Println(prompt, "rejected:", rejection.Of("tokens").Available, "tokens left, 400 asked for")
			continue
		} else if err != nil {
			log.Fatal(err)
		}
		used := int64(450) // as the model says
		if err := lease.Adjust(ctx, limiter.Amounts{"tokens": used - 400}); err != nil {
			log.Print(err)
		}
		fmt.Println(prompt, "admitted:", lease.Taken()["tokens"], "tokens used")
	}
	// Output:
	// 0 admitted: 450 tokens used
	// 1 admitted: 450 tokens used
	// 2 rejected: 100 tokens left, 400 asked for
}
