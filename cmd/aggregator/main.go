// Command aggregator is the AWS Lambda function that consumes the stream of a
// shardquota table. Its environment configures it; see README.md for the
// variables.
package main

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/table/dynamo"
)

func main() {
	level := new(slog.LevelVar)
	log := slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	slog.SetDefault(log) // makes the output of package log JSON too: the Lambda library uses it
	h, err := newHandler(context.Background(), environment(), log, level)
	if err != nil {
		log.Error("cannot start", "reason", err.Error())
		os.Exit(1)
	}
	lambda.Start(h)
}

func environment() map[string]string {
	variables := map[string]string{}
	for _, pair := range os.Environ() {
		name, value, _ := strings.Cut(pair, "=")
		variables[name] = value
	}
	return variables
}

func newHandler(ctx context.Context, environment map[string]string, log *slog.Logger, level *slog.LevelVar) (*handler, error) {
	c, err := loadConfig(environment)
	if err != nil {
		return nil, err
	}
	level.Set(c.LogLevel)
	aws, err := awsconfig.LoadDefaultConfig(ctx, awsconfig.WithHTTPClient(httpClient(c.Concurrency)), awsconfig.WithLogger(dynamo.SDKLog(log)))
	if err != nil {
		return nil, err
	}
	function := aggregator.Function{
		Aggregator: &aggregator.Aggregator{
			Store:       dynamo.New(dynamodb.NewFromConfig(aws), c.Table),
			Windows:     c.windows,
			Retention:   time.Duration(c.UsageDays) * 24 * time.Hour,
			Concurrency: c.Concurrency,
		},
		Table:   c.Table,
		Names:   aggregator.NewPseudonyms(c.HashKey),
		Log:     log,
		Metrics: os.Stdout,
		Now:     time.Now,
	}
	return &handler{function, c.Reserve}, nil
}

// requestTimeout ends one attempt of a request. A connection that hangs then costs
// the batch one attempt, not all its time.
const requestTimeout = 5 * time.Second

// httpClient returns a client that keeps one open connection for each concurrent
// request.
func httpClient(concurrency int) *awshttp.BuildableClient {
	return awshttp.NewBuildableClient().WithTimeout(requestTimeout).WithTransportOptions(func(t *http.Transport) {
		t.MaxIdleConnsPerHost = concurrency
	})
}
