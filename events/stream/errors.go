package stream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/shardquota/shardquota/table"
)

// errHollow is of an answer that came without its contents: taken at its word, it
// would end a shard that goes on.
var errHollow = errors.New("an answer without contents")

// failure says what failed and why. It wraps table.ErrRetry where the same
// request may succeed later. No request here holds anything of the data, so
// that the service can quote nothing of it.
func failure(operation string, err error) error {
	cause := err.Error()
	var api smithy.APIError
	if errors.As(err, &api) {
		cause = api.ErrorCode() + ": " + api.ErrorMessage()
	}
	failed := fmt.Errorf("%s: %s", operation, cause)
	if mayPass(err) {
		return passes{failed}
	}
	return failed
}

// passes is a failure that may pass: errors.Is finds table.ErrRetry in it.
type passes struct{ error }

// Is implements what errors.Is asks for.
func (passes) Is(target error) bool { return target == table.ErrRetry }

// retryable is what the service's own client tries again.
var retryable = retry.IsErrorRetryables(retry.DefaultRetryables)

// passing are further names of failures that may pass.
var passing = []string{
	"InternalFailure",
	"InternalServerError",
	"LimitExceededException",
	"ServiceUnavailable",
	"ServiceUnavailableException",
}

// mayPass reports whether the same request may succeed later.
func mayPass(err error) bool {
	var (
		api      smithy.APIError
		response *smithyhttp.ResponseError
		network  net.Error
	)
	switch {
	case errors.As(err, &api) && slices.Contains(passing, api.ErrorCode()):
		return true
	case errors.As(err, &response) && passingStatus(response.HTTPStatusCode()):
		return true
	case errors.As(err, &network), errors.Is(err, context.DeadlineExceeded), errors.Is(err, errHollow):
		return true
	}
	return retryable.IsErrorRetryable(err) == aws.TrueTernary
}

// passingStatus is also that of a success: then its answer could not be read.
func passingStatus(status int) bool {
	return status < http.StatusMultipleChoices || status >= http.StatusInternalServerError || status == http.StatusTooManyRequests
}

func isGone(err error) bool {
	var gone *types.ResourceNotFoundException
	return errors.As(err, &gone)
}

func isExpired(err error) bool {
	var expired *types.ExpiredIteratorException
	return errors.As(err, &expired)
}

func isTrimmed(err error) bool {
	var trimmed *types.TrimmedDataAccessException
	return errors.As(err, &trimmed)
}
