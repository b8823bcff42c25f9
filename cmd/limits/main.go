// Command limits is the AWS Lambda function behind the custom resource that
// stores the limits of a manifest. All that it is told is in the resource's
// properties.
package main

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/aws/aws-lambda-go/cfn"
	"github.com/aws/aws-lambda-go/lambda"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/dynamo"
)

// requestTimeout ends one attempt of a request, so that a connection that hangs
// costs an attempt and not the time of all.
const requestTimeout = 5 * time.Second

// reserve is kept of the function's time for the answer.
const reserve = 10 * time.Second

func main() {
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	slog.SetDefault(log) // package log's output, which the Lambda library uses, becomes JSON too
	config, err := awsconfig.LoadDefaultConfig(context.Background(), awsconfig.WithHTTPClient(awshttp.NewBuildableClient().WithTimeout(requestTimeout)))
	if err != nil {
		log.Error("cannot start", "reason", err.Error())
		os.Exit(1)
	}
	client := dynamodb.NewFromConfig(config)
	h := handler{
		open:    func(name string) table.Client { return dynamo.New(client, name) },
		now:     time.Now,
		reserve: reserve,
		log:     log,
	}
	lambda.Start(cfn.LambdaWrap(h.handle))
}
