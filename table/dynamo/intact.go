package dynamo

import (
	"bytes"
	"context"
	"errors"
	"hash/crc32"
	"io"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// intact makes a client take no answer that did not arrive whole. By itself it
// only logs that the checksum is another one, and takes an empty body for an
// empty answer: an update that was never made would be taken for done, and
// siblings that could not be read for shards that do not exist.
func intact(o *dynamodb.Options) {
	o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
		return stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc("shardquota:Intact", whole), middleware.After)
	})
}

func whole(ctx context.Context, input middleware.DeserializeInput, next middleware.DeserializeHandler) (middleware.DeserializeOutput, middleware.Metadata, error) {
	output, metadata, err := next.HandleDeserialize(ctx, input)
	response, ok := output.RawResponse.(*smithyhttp.Response)
	if err != nil || !ok {
		return output, metadata, err
	}
	body, err := io.ReadAll(response.Body)
	response.Body.Close()
	response.Body = io.NopCloser(bytes.NewReader(body))
	if err == nil {
		err = check(body, response)
	}
	if err != nil {
		err = &brokenAnswer{err}
	}
	return output, metadata, err
}

var (
	errEmpty    = errors.New("the body is empty")
	errChecksum = errors.New("the checksum is not that of the header X-Amz-Crc32")
)

// check refuses what is not the body that was sent. A failure's body may be
// empty: its status says what matters.
func check(body []byte, response *smithyhttp.Response) error {
	if len(body) == 0 && response.StatusCode < 300 {
		return errEmpty
	}
	sum, err := strconv.ParseUint(response.Header.Get("X-Amz-Crc32"), 10, 32)
	if response.StatusCode < 300 && err == nil && uint32(sum) != crc32.ChecksumIEEE(body) {
		return errChecksum
	}
	return nil
}

// brokenAnswer is an answer that did not arrive whole. What was asked may have
// been done; the client tries again.
type brokenAnswer struct{ cause error }

func (e *brokenAnswer) Error() string        { return "broken answer: " + e.cause.Error() }
func (e *brokenAnswer) Unwrap() error        { return e.cause }
func (e *brokenAnswer) RetryableError() bool { return true }
