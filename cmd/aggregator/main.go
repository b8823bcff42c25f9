// Command aggregator is the AWS Lambda function that consumes the stream of a
// shardquota table. Everything it needs comes from its environment; see
// README.md for the variables.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go/logging"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/table/dynamo"
)

func main() {
	level := new(slog.LevelVar)
	log := slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	slog.SetDefault(log) // package log's output, which the Lambda library uses, becomes JSON too
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
	aws, err := awsconfig.LoadDefaultConfig(ctx, awsconfig.WithHTTPClient(httpClient(c.Concurrency)), awsconfig.WithLogger(sdkLog(log)))
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

// requestTimeout ends one attempt of a request, so that a connection that hangs
// costs the batch an attempt and not its time.
const requestTimeout = 5 * time.Second

// httpClient keeps as many connections open as there are requests at once.
func httpClient(concurrency int) *awshttp.BuildableClient {
	return awshttp.NewBuildableClient().WithTimeout(requestTimeout).WithTransportOptions(func(t *http.Transport) {
		t.MaxIdleConnsPerHost = concurrency
	})
}

// sdkLog sends what the SDK logs to log.
func sdkLog(log *slog.Logger) logging.Logger {
	return logging.LoggerFunc(func(class logging.Classification, format string, values ...any) {
		level := slog.LevelDebug
		if class == logging.Warn {
			level = slog.LevelWarn
		}
		log.Log(context.Background(), level, fmt.Sprintf(format, values...))
	})
}
