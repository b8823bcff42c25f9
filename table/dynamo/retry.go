package dynamo

import (
	"context"
	"errors"
	"maps"
	"net"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/shardquota/shardquota/table"
)

var (
	always   = []func(*dynamodb.Options){intact}
	onlyOnce = []func(*dynamodb.Options){once, intact}
)

// options are those of a write's request.
func options(w *table.Write) []func(*dynamodb.Options) {
	if w.Once {
		return onlyOnce
	}
	return always
}

// once has a request sent again only where the service refused the one before, or
// was not reached. Everything else about retries stays as the program chose it:
// how often, how long, and the adaptive mode's own limit on its rate.
func once(o *dynamodb.Options) {
	if retryer, ok := o.Retryer.(aws.RetryerV2); ok {
		o.Retryer = certain{retryer}
	} else {
		o.Retryer = certain{firstVersion{o.Retryer}}
	}
}

// certain is a retryer that repeats nothing that may have been done.
type certain struct{ aws.RetryerV2 }

// IsErrorRetryable reports whether the service, or the way to it, refused the
// request before anything was done.
func (certain) IsErrorRetryable(err error) bool {
	var dial *net.OpError
	return throttles.IsErrorThrottle(err) == aws.TrueTernary || errors.As(err, &dial) && dial.Op == "dial"
}

// firstVersion makes an older retryer one of today's, as the SDK does.
type firstVersion struct{ aws.Retryer }

// GetAttemptToken lets every attempt go, at no cost.
func (r firstVersion) GetAttemptToken(context.Context) (func(error) error, error) {
	return r.GetInitialToken(), nil
}

var throttles = retry.ThrottleErrorCode{Codes: throttleCodes()}

// throttleCodes are the names under which the service refuses a request for now.
// Another write that holds the item refuses a single one so.
func throttleCodes() map[string]struct{} {
	codes := maps.Clone(retry.DefaultThrottleErrorCodes)
	for _, code := range conflicts {
		codes[code] = struct{}{}
	}
	return codes
}
