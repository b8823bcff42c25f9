package dynamo_test

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/shardquota/shardquota/internal/dynoxide"
	"github.com/shardquota/shardquota/internal/storetest"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/dynamo"
	"github.com/shardquota/shardquota/table/memory"
)

var (
	differentialSeed  = flag.Uint64("differential.seed", 0, "seed of the first random walk; 0 takes the time")
	differentialSteps = flag.Int("differential.steps", 4000, "steps of all random walks together")
)

// stepsPerTable keeps a table's stream short: dynoxide slows down as it grows.
const stepsPerTable = 500

// TestSameAsMemory makes random steps on DynamoDB and in memory: both must
// answer alike and hold equal items.
func TestSameAsMemory(t *testing.T) {
	client := dynoxide.Client(t)
	seed, steps := *differentialSeed, *differentialSteps
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	if testing.Short() {
		steps = 3 * stepsPerTable
	}
	answers := storetest.Answers{}
	for walk := range uint64((steps + stepsPerTable - 1) / stepsPerTable) {
		t.Run(fmt.Sprintf("seed=%d", seed+walk), func(t *testing.T) {
			t.Logf("repeat with -differential.seed=%d", seed+walk)
			given := storetest.Differential(t, seed+walk, min(steps, stepsPerTable), inMemory, unrecognised(client))
			for answer, times := range given {
				answers[answer] += times
			}
		})
	}
	answers.Check(t)
}

// unrecognised opens tables whose transactions the service never takes for
// retries.
func unrecognised(client *dynamodb.Client) storetest.OpenClient {
	return func(t testing.TB) (table.Client, storetest.Raw) {
		name := dynoxide.NewTable(t, client, streamless)
		return dynamo.New(tokenless{client}, name), raw{client, name}
	}
}

// tokenless gives every transaction a token of its own, so that the service
// does not recognise an equal one.
type tokenless struct{ *dynamodb.Client }

func (c tokenless) TransactWriteItems(ctx context.Context, input *dynamodb.TransactWriteItemsInput, options ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error) {
	other := *input
	other.ClientRequestToken = new(rand.Text())
	return c.Client.TransactWriteItems(ctx, &other, options...)
}

func inMemory(testing.TB) (table.Client, storetest.Raw) {
	store := memory.New()
	return store.Client(), memoryRaw{store}
}

type memoryRaw struct{ store *memory.Store }

func (r memoryRaw) Put(_ testing.TB, item table.Item)          { r.store.Put(item) }
func (r memoryRaw) Delete(_ testing.TB, pk, sk string)         { r.store.Delete(pk, sk) }
func (r memoryRaw) Get(_ testing.TB, pk, sk string) table.Item { return r.store.Get(pk, sk) }
func (r memoryRaw) Items(testing.TB) []table.Item              { return r.store.Items() }

// An equal transaction that the service does not recognise any more, as after
// ten minutes, is refused by the shard that it made, which says as much.
func TestCreateRecognisesItselfWithoutToken(t *testing.T) {
	open := unrecognised(dynoxide.Client(t))
	storetest.RunCreate(t, func(t testing.TB) (table.Store, storetest.Raw) { return open(t) })
}
