// Command aggregator is the AWS Lambda function that consumes the stream of a
// shardquota table. Everything it needs comes from its environment; see
// README.md for the variables.
package main

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/table/dynamo"
)

func main() {
	h, err := newHandler(context.Background(), environment())
	if err != nil {
		slog.New(slog.NewJSONHandler(os.Stderr, nil)).Error("cannot start", "reason", err.Error())
		os.Exit(1)
	}
	lambda.Start(h.handle)
}

func environment() map[string]string {
	variables := map[string]string{}
	for _, pair := range os.Environ() {
		name, value, _ := strings.Cut(pair, "=")
		variables[name] = value
	}
	return variables
}

func newHandler(ctx context.Context, environment map[string]string) (*handler, error) {
	c, err := loadConfig(environment)
	if err != nil {
		return nil, err
	}
	aws, err := awsconfig.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, err
	}
	return &handler{
		aggregator: &aggregator.Aggregator{
			Store:       dynamo.New(dynamodb.NewFromConfig(aws), c.Table),
			Windows:     c.windows,
			Retention:   time.Duration(c.UsageDays) * 24 * time.Hour,
			Concurrency: c.Concurrency,
		},
		table:   c.Table,
		reserve: c.Reserve,
		names:   aggregator.NewPseudonyms(c.HashKey),
		log:     slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: c.LogLevel})),
		metrics: os.Stdout,
		now:     time.Now,
	}, nil
}
