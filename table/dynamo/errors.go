package dynamo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/shardquota/shardquota/table"
)

// Error is a request that failed. It wraps table.ErrRetry if the same request
// may succeed later, and the context's error if that is what ended it; not the
// client's own error, which may hold what was sent.
type Error struct {
	Operation string // what the Store was doing
	Code      string // the service's name for the failure; empty where it gave no answer
	Message   string // what the service or the connection said, what was sent struck out
	causes    []error
}

func (e *Error) Error() string {
	parts := slices.DeleteFunc([]string{e.Operation, e.Code, e.Message}, func(s string) bool { return s == "" })
	return strings.Join(parts, ": ")
}

// Unwrap returns table.ErrRetry or table.ErrThrottled and a context's error, as
// far as they apply.
func (e *Error) Unwrap() []error { return e.causes }

// failure turns the client's error into one that may be shown.
func failure(operation string, err error, hidden secrets) error {
	e := &Error{Operation: operation, Message: err.Error()}
	var api smithy.APIError
	if errors.As(err, &api) {
		e.Code, e.Message = api.ErrorCode(), api.ErrorMessage()
	}
	var cancelled *types.TransactionCanceledException
	if errors.As(err, &cancelled) {
		e.Message = fmt.Sprintf("%q", reasonCodes(cancelled))
	}
	e.Message = hidden.strike(e.Message)
	switch {
	case cancelled != nil && onlyConflicts(cancelled), slices.Contains(conflicts, e.Code):
		e.causes = append(e.causes, table.ErrConflict)
	case mayPass(err) && (cancelled != nil || throttles.IsErrorThrottle(err) == aws.TrueTernary):
		e.causes = append(e.causes, table.ErrThrottled)
	case mayPass(err):
		e.causes = append(e.causes, table.ErrRetry)
	}
	for _, cause := range []error{context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, cause) {
			e.causes = append(e.causes, cause)
		}
	}
	return e
}

// conflicts are the service's names for a single write that met another one.
var conflicts = []string{"TransactionConflictException", "ReplicatedWriteConflictException"}

// onlyConflicts reports whether a transaction was cancelled because another one
// holds an item, and for nothing else.
func onlyConflicts(cancelled *types.TransactionCanceledException) bool {
	const conflict = "TransactionConflict"
	codes := reasonCodes(cancelled)
	return slices.Contains(codes, conflict) && !slices.ContainsFunc(codes, func(code string) bool {
		return code != "" && code != "None" && code != conflict
	})
}

// failedAt is when the service answered with an error, epoch ms, 0 where it does
// not say.
func failedAt(err error) int64 {
	var response *smithyhttp.ResponseError
	if !errors.As(err, &response) || response.Response == nil {
		return 0
	}
	answered, err := http.ParseTime(response.Response.Header.Get("Date"))
	if err != nil {
		return 0
	}
	return answered.UnixMilli()
}

// passing are the service's names for failures that may pass, over and above
// those that its client retries.
var passing = []string{
	"InternalFailure",
	"InternalServerError",
	"InternalServerErrorException",
	"ReplicatedWriteConflictException",
	"ServiceUnavailable",
	"ServiceUnavailableException",
	"ThrottlingError",
	"TransactionConflict",
	"TransactionConflictException",
	"TransactionInProgressException",
}

// passingReasons are the reasons of a cancelled transaction that may pass.
var passingReasons = []string{"ProvisionedThroughputExceeded", "ThrottlingError", "TransactionConflict"}

// retryable is what the client itself would retry: throttling in all its
// names, dropped connections, some of the server's errors.
var retryable = retry.IsErrorRetryables(retry.DefaultRetryables)

// mayPass reports whether the same request may succeed later. That the caller's
// time was up says nothing against the request.
func mayPass(err error) bool {
	var (
		cancelled *types.TransactionCanceledException
		api       smithy.APIError
		response  *smithyhttp.ResponseError
		send      *smithyhttp.RequestSendError
		network   net.Error
	)
	switch {
	case errors.As(err, &cancelled):
		return slices.ContainsFunc(reasonCodes(cancelled), func(code string) bool {
			return slices.Contains(passingReasons, code)
		})
	case errors.As(err, &api) && slices.Contains(passing, api.ErrorCode()):
		return true
	case errors.As(err, &response) && passingStatus(response.HTTPStatusCode()):
		return true
	case errors.As(err, &send), errors.As(err, &network):
		return true
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return true
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return true
	}
	return retryable.IsErrorRetryable(err) == aws.TrueTernary
}

// passingStatus is also that of a success: then the answer could not be read.
func passingStatus(status int) bool {
	return status < http.StatusMultipleChoices || status >= http.StatusInternalServerError || status == http.StatusTooManyRequests
}

func reasonCodes(cancelled *types.TransactionCanceledException) []string {
	codes := make([]string, len(cancelled.CancellationReasons))
	for i, reason := range cancelled.CancellationReasons {
		codes[i] = deref(reason.Code)
	}
	return codes
}

// secrets are the texts that a request held. The service may quote what it was
// sent, and ids are often credentials, so they are struck out of its messages.
type secrets []string

// of adds the strings in an item, and the id in its partition key.
func (s secrets) of(item table.Item) secrets {
	for _, value := range item {
		if text, ok := value.(*types.AttributeValueMemberS); ok {
			s = append(s, text.Value)
		}
	}
	pk, _ := item.Key()
	_, rest, _ := strings.Cut(pk, "#")
	id, _, _ := strings.Cut(rest, "#")
	return append(s, id)
}

// strike replaces every secret in a text, longer ones first.
func (s secrets) strike(text string) string {
	sorted := slices.Clone(s)
	slices.SortFunc(sorted, func(a, b string) int { return len(b) - len(a) })
	for _, secret := range sorted {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "***")
		}
	}
	return text
}
