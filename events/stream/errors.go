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

// errEmptyAnswer: an answer came without its contents. Believing it would end a
// shard that goes on.
var errEmptyAnswer = errors.New("an answer without contents")

// failure returns an error that says which operation failed and why. It wraps
// table.ErrRetry where the same request may succeed later. The service's words
// are safe to show: no request here holds anything of the data.
func failure(operation string, err error) error {
	cause := err.Error()
	var api smithy.APIError
	if errors.As(err, &api) {
		cause = api.ErrorCode() + ": " + api.ErrorMessage()
	}
	failed := fmt.Errorf("%s: %s", operation, cause)
	if mayPass(err) {
		return transient{failed}
	}
	return failed
}

// transient is a failure that may pass: errors.Is finds table.ErrRetry in it.
type transient struct{ error }

// Is reports whether target is table.ErrRetry.
func (transient) Is(target error) bool { return target == table.ErrRetry }

// retryable knows the failures that the service's own client retries.
var retryable = retry.IsErrorRetryables(retry.DefaultRetryables)

// transientCodes are further codes of failures that may pass.
var transientCodes = []string{
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
	case errors.As(err, &api) && slices.Contains(transientCodes, api.ErrorCode()):
		return true
	case errors.As(err, &response) && transientStatus(response.HTTPStatusCode()):
		return true
	case errors.As(err, &network), errors.Is(err, context.DeadlineExceeded), errors.Is(err, errEmptyAnswer):
		return true
	}
	return retryable.IsErrorRetryable(err) == aws.TrueTernary
}

// transientStatus reports whether a failure with this HTTP status may pass. One
// with the status of a success does: its answer could not be read.
func transientStatus(status int) bool {
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
