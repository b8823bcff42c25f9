package dynamo_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/shardquota/shardquota/internal/dynoxide"
	"github.com/shardquota/shardquota/table/dynamo"
)

// paced is a retryer that holds requests back, as the SDK's adaptive mode does
// while a table throttles.
type paced struct {
	aws.RetryerV2
	attempts int
}

func (p *paced) GetAttemptToken(ctx context.Context) (func(error) error, error) {
	p.attempts++
	return p.RetryerV2.GetAttemptToken(ctx)
}

// old is a retryer of the SDK's first interface.
type old struct{ aws.Retryer }

// The retry mode that a program chose holds for every request, also for those that
// must not be sent twice.
func TestEveryRequestKeepsTheRetryMode(t *testing.T) {
	for _, call := range calls {
		mode := &paced{RetryerV2: impatient()}
		_, _ = call.do(t.Context(), dynamo.New(throttling(mode), "t"))
		if got := mode.attempts; got != retry.DefaultMaxAttempts {
			t.Errorf("%s: the mode was asked for %d attempts, not %d", call.name, got, retry.DefaultMaxAttempts)
		}
	}
	// Also a retryer that knows nothing of attempts goes on as it did.
	if _, err := clientCall("charge")(t.Context(), dynamo.New(throttling(old{impatient()}), "t")); err == nil {
		t.Error("a table that throttles admitted a use")
	}
}

// impatient is the SDK's standard mode without its waits.
func impatient() aws.RetryerV2 {
	return retry.NewStandard(func(o *retry.StandardOptions) {
		o.Backoff = retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) { return 0, nil })
	})
}

// throttling is a client of a table that throttles.
func throttling(retryer aws.Retryer) *dynamodb.Client {
	return dynamodb.New(dynamodb.Options{
		BaseEndpoint: aws.String("http://dynamodb.test"), Region: dynoxide.Region, Credentials: dynoxide.Credentials(),
		Retryer: retryer,
		HTTPClient: roundTrip(func(request *http.Request) (*http.Response, error) {
			return &http.Response{
				StatusCode: http.StatusBadRequest, Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}},
				Body: io.NopCloser(strings.NewReader(service("ThrottlingException", "slow down"))), Request: request,
			}, nil
		}),
	})
}
