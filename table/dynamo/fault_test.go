package dynamo_test

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/dynamo"
)

// What the service says, and whether it may pass.
func TestServiceErrors(t *testing.T) {
	for code, retry := range map[string]bool{
		"ProvisionedThroughputExceededException": true,
		"ThrottlingException":                    true,
		"Throttling":                             true,
		"ThrottlingError":                        true,
		"RequestLimitExceeded":                   true,
		"LimitExceededException":                 true,
		"TooManyRequestsException":               true,
		"InternalServerError":                    true,
		"InternalFailure":                        true,
		"ServiceUnavailable":                     true,
		"TransactionInProgressException":         true,
		"TransactionConflictException":           true,
		"ReplicatedWriteConflictException":       true,
		"RequestTimeoutException":                true,

		"ValidationException":                      false,
		"ResourceNotFoundException":                false,
		"AccessDeniedException":                    false,
		"UnrecognizedClientException":              false,
		"ItemCollectionSizeLimitExceededException": false,
		"IdempotentParameterMismatchException":     false,
		"SerializationException":                   false,
	} {
		store := dynamo.New(answering(http.StatusBadRequest, service(code, "no")), "t")
		for _, call := range calls {
			if call.name == "use several" && strings.Contains(code, "Conflict") {
				continue // an answer: TestAConflictIsAnAnswer
			}
			_, err := call.do(t.Context(), store)
			if err == nil || errors.Is(err, table.ErrRetry) != retry {
				t.Errorf("%s: %s: %v; retry should be %t", call.name, code, err, retry)
			}
			var failed *dynamo.Error
			if !errors.As(err, &failed) || failed.Code != code || failed.Operation != call.name {
				t.Errorf("%s: %s: %#v", call.name, code, failed)
			}
		}
	}
}

// Of what may pass, some says that too much came at once, and that the service
// is there.
func TestThrottling(t *testing.T) {
	for code, throttled := range map[string]bool{
		"ProvisionedThroughputExceededException": true,
		"ThrottlingException":                    true,
		"RequestLimitExceeded":                   true,
		"TransactionConflictException":           true,
		"ReplicatedWriteConflictException":       true,
		"TransactionInProgressException":         true,

		"InternalServerError":     false,
		"ServiceUnavailable":      false,
		"RequestTimeoutException": false,
		"ValidationException":     false,
	} {
		store := dynamo.New(answering(http.StatusBadRequest, service(code, "no")), "t")
		for _, call := range calls {
			if call.name == "use several" && strings.Contains(code, "Conflict") {
				continue // an answer: TestAConflictIsAnAnswer
			}
			if _, err := call.do(t.Context(), store); errors.Is(err, table.ErrThrottled) != throttled {
				t.Errorf("%s: %s: %v; throttled should be %t", call.name, code, err, throttled)
			}
		}
	}
	for reason, throttled := range map[string]bool{
		"TransactionConflict": true, "ThrottlingError": true, "ProvisionedThroughputExceeded": true, "ValidationError": false,
	} {
		client := fake{transact: func(*dynamodb.TransactWriteItemsInput) (*dynamodb.TransactWriteItemsOutput, error) {
			return nil, &types.TransactionCanceledException{CancellationReasons: reasons(reason, nil, "None", nil)}
		}}
		if _, err := dynamo.New(client, "t").Create(t.Context(), creation()); errors.Is(err, table.ErrThrottled) != throttled {
			t.Errorf("%s: %v; throttled should be %t", reason, err, throttled)
		}
	}
	if !errors.Is(table.ErrThrottled, table.ErrRetry) {
		t.Error("what is throttled may pass")
	}
}

// An answer that is none of the service's own.
func TestBrokenAnswers(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		body   string
		retry  bool
	}{
		{"500", 500, "", true},
		{"502 of a proxy", 502, "<html>bad gateway</html>", true},
		{"503", 503, service("ServiceUnavailableException", "later"), true},
		{"504", 504, "", true},
		{"429", 429, "{}", true},
		{"403", 403, service("AccessDeniedException", "no"), false},
	} {
		store := dynamo.New(answering(c.status, c.body), "t")
		for _, call := range calls {
			if _, err := call.do(t.Context(), store); err == nil || errors.Is(err, table.ErrRetry) != c.retry {
				t.Errorf("%s: %s: %v", call.name, c.name, err)
			}
		}
	}
}

// A deadline that passes while the service is silent.
func TestDeadline(t *testing.T) {
	for _, call := range calls {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			silent := roundTrip(func(request *http.Request) (*http.Response, error) {
				<-request.Context().Done()
				return nil, request.Context().Err()
			})
			_, err := call.do(ctx, dynamo.New(over("http://dynamodb.test", 3, silent), "t"))
			if !errors.Is(err, table.ErrRetry) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", call.name, err)
			}
		})
	}
}

// The service quotes what it was sent. None of it may be seen.
func TestErrorsHoldNothingThatWasSent(t *testing.T) {
	keys := map[string]string{"find buckets": "n5/ENTITY#" + entity} // others are shard 0's
	for name, shard := range map[string]int{"reconcile": 1, "propagate window": 1, "insert": 3, "remove": 1} {
		keys[name] = group.At(shard).PK()
	}
	for _, call := range calls {
		if call.name == "find levels" { // which sends an id from its second page on: TestFindLevelsHidesIDs
			continue
		}
		quoting := "1 validation error detected: Value '{PK=" + cmp.Or(keys[call.name], group.At(0).PK()) + ", parent_id=" + parent +
			"}' at 'key' of " + entity + " failed to satisfy constraint"
		store := dynamo.New(answering(http.StatusBadRequest, service("ValidationException", quoting)), "t")
		_, err := call.do(t.Context(), store)
		if err == nil || strings.Contains(err.Error(), entity) || strings.Contains(err.Error(), "n5/") {
			t.Errorf("%s: %v", call.name, err)
		}
		if slices.Contains([]string{"create shard 2", "insert"}, call.name) && strings.Contains(err.Error(), parent) {
			t.Errorf("%s: %v", call.name, err)
		}
		var api smithy.APIError
		if errors.As(err, &api) {
			t.Errorf("%s: the client's own error can be reached: %v", call.name, api)
		}
		if !strings.Contains(err.Error(), "failed to satisfy constraint") {
			t.Errorf("%s: nothing is left of the message: %v", call.name, err)
		}
	}
}

// numbers fails the test unless a stored item has the numbers.
func numbers(t *testing.T, items raw, pk, sk string, want map[string]string) {
	t.Helper()
	item := items.Get(t, pk, sk)
	for name, text := range want {
		number, _ := item[name].(*types.AttributeValueMemberN)
		if number == nil || number.Value != text {
			t.Errorf("%s is %v, not %s", name, item[name], text)
		}
	}
}

// A raise that fails says which shard it was.
func TestRaiseError(t *testing.T) {
	client := fake{
		batchGet: func(input *dynamodb.BatchGetItemInput) (*dynamodb.BatchGetItemOutput, error) {
			return found(bucket(0, 4, "1"), bucket(1, 4, "1"), bucket(3, 2, "1")), nil
		},
		updateItem: func(context.Context, *dynamodb.UpdateItemInput) (*dynamodb.UpdateItemOutput, error) {
			return nil, &types.ThrottlingException{Message: new("too much of " + group.At(3).PK())}
		},
	}
	_, err := dynamo.New(client, "t").RaiseAndRead(t.Context(), group, 4, now)
	if !errors.Is(err, table.ErrRetry) || err.Error() != "raise shard 3: ThrottlingException: too much of ***" {
		t.Errorf("got %v", err)
	}
}

// A shard that goes between being read and being raised is one that is not
// there.
func TestRaiseOfShardThatWent(t *testing.T) {
	client := fake{
		batchGet: func(*dynamodb.BatchGetItemInput) (*dynamodb.BatchGetItemOutput, error) {
			return found(bucket(0, 2, "1"), bucket(1, 1, "1")), nil
		},
		updateItem: func(context.Context, *dynamodb.UpdateItemInput) (*dynamodb.UpdateItemOutput, error) {
			return nil, &types.ConditionalCheckFailedException{}
		},
	}
	siblings, err := dynamo.New(client, "t").RaiseAndRead(t.Context(), group, 2, now)
	if err != nil || siblings[0].Bucket == nil || siblings[1] != (table.Sibling{}) {
		t.Errorf("got %+v, %v", siblings, err)
	}
}

func found(items ...table.Item) *dynamodb.BatchGetItemOutput {
	output := &dynamodb.BatchGetItemOutput{Responses: map[string][]map[string]types.AttributeValue{}}
	for _, item := range items {
		output.Responses["t"] = append(output.Responses["t"], item)
	}
	return output
}

// trickle answers a batch read with at most so many items a request, and
// leaves the rest unprocessed.
func trickle(items map[string]table.Item, atOnce int, requests *int) fake {
	return fake{batchGet: func(input *dynamodb.BatchGetItemInput) (*dynamodb.BatchGetItemOutput, error) {
		*requests++
		keys := input.RequestItems["t"].Keys
		n := min(atOnce, len(keys))
		var batch []table.Item
		for _, key := range keys[:n] {
			if item := items[table.Item(key)["PK"].(*types.AttributeValueMemberS).Value]; item != nil {
				batch = append(batch, item)
			}
		}
		output := found(batch...)
		if n < len(keys) {
			left := types.KeysAndAttributes{Keys: keys[n:], ConsistentRead: new(true)}
			output.UnprocessedKeys = map[string]types.KeysAndAttributes{"t": left}
		}
		return output, nil
	}}
}

func TestUnprocessedKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		items, requests := map[string]table.Item{}, 0
		for shard := range 8 {
			if shard != 5 {
				items[group.At(shard).PK()] = bucket(shard, 8, "1")
			}
		}
		began := time.Now()
		siblings, err := dynamo.New(trickle(items, 3, &requests), "t").RaiseAndRead(t.Context(), group, 8, now)
		if err != nil {
			t.Fatal(err)
		}
		for shard, sibling := range siblings {
			if exists := sibling.Bucket != nil; exists != (shard != 5) || exists && sibling.Bucket.Shard != shard {
				t.Errorf("shard %d: %+v", shard, sibling)
			}
		}
		if waited := time.Since(began); requests != 3 || waited != 150*time.Millisecond {
			t.Errorf("%d requests in %v", requests, waited)
		}
	})
}

func TestUnprocessedKeysAreNotAskedForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := 0
		_, err := dynamo.New(trickle(nil, 0, &requests), "t").RaiseAndRead(t.Context(), group, 8, now)
		if !errors.Is(err, table.ErrRetry) || requests != 6 {
			t.Errorf("%d requests: %v", requests, err)
		}
	})
}

func TestUnprocessedKeysUntilDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		requests := 0
		wait := dynamo.Backoff(100, func(int) time.Duration { return 50 * time.Second })
		_, err := dynamo.New(trickle(nil, 0, &requests), "t", wait).RaiseAndRead(ctx, group, 8, now)
		if !errors.Is(err, table.ErrRetry) || !errors.Is(err, context.DeadlineExceeded) || requests != 2 {
			t.Errorf("%d requests: %v", requests, err)
		}
	})
}

// What the reasons of a cancelled transaction mean, in the order of its items:
// the new shard, its donor (shard 0 or another), the pin where it stands alone.
func TestCancellationReasons(t *testing.T) {
	const failed, fine = "ConditionalCheckFailed", "None"
	moved, held := bucket(0, 8, "1"), bucket(0, 4, "1")
	landed := creation().Complete()
	for _, c := range []struct {
		name    string
		donor   int
		reasons []types.CancellationReason
		want    table.CreationOutcome
		retry   bool
	}{
		{"exists", 0, reasons(failed, held, fine, nil), table.Exists, false},
		{"landed", 0, reasons(failed, landed, failed, moved), table.Created, false},
		{"exists before all", 1, reasons(failed, held, failed, nil, failed, nil), table.Exists, false},
		{"pin before donor", 1, reasons(fine, nil, failed, nil, failed, nil), table.PinMoved, false},
		{"pin", 1, reasons(fine, nil, fine, nil, failed, nil), table.PinMoved, false},
		{"donor", 1, reasons(fine, nil, failed, held, fine, nil), table.DonorChanged, false},
		{"pin on donor 0", 0, reasons(fine, nil, failed, moved), table.PinMoved, false},
		{"donor 0 gone", 0, reasons(fine, nil, failed, nil), table.PinMoved, false},
		{"donor 0", 0, reasons(fine, nil, failed, held), table.DonorChanged, false},
		{"conflict", 0, reasons("TransactionConflict", nil, fine, nil), 0, true},
		{"throttled", 0, reasons(fine, nil, "ThrottlingError", nil), 0, true},
		{"throughput", 1, reasons(fine, nil, fine, nil, "ProvisionedThroughputExceeded", nil), 0, true},
		{"condition beside conflict", 1, reasons("TransactionConflict", nil, failed, held, fine, nil), table.DonorChanged, false},
		{"malformed", 0, reasons("ValidationError", nil, fine, nil), 0, false},
		{"no reasons", 0, nil, 0, false},
	} {
		made := creation()
		made.Moves[0].Donor = c.donor
		client := fake{transact: func(*dynamodb.TransactWriteItemsInput) (*dynamodb.TransactWriteItemsOutput, error) {
			return nil, &types.TransactionCanceledException{Message: new(entity), CancellationReasons: c.reasons}
		}}
		outcome, err := dynamo.New(client, "t").Create(t.Context(), made)
		if outcome != c.want || (err == nil) != (c.want != 0) || errors.Is(err, table.ErrRetry) != c.retry {
			t.Errorf("%s: %v, %v", c.name, outcome, err)
		}
		if err != nil && strings.Contains(err.Error(), entity) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// reasons makes cancellation reasons of pairs of a code and an item.
func reasons(pairs ...any) []types.CancellationReason {
	var all []types.CancellationReason
	for i := 0; i < len(pairs); i += 2 {
		reason := types.CancellationReason{Code: new(pairs[i].(string)), Message: new("of " + entity)}
		if item, ok := pairs[i+1].(table.Item); ok {
			reason.Item = item
		}
		all = append(all, reason)
	}
	return all
}
