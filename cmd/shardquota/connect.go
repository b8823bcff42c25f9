package main

import (
	"context"

	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
)

// connection holds the clients of DynamoDB and its streams. They are configured as
// the AWS command line is, but for the endpoint where one is given.
type connection struct {
	table   *dynamodb.Client
	streams *dynamodbstreams.Client
}

func connect(ctx context.Context, endpoint string, options ...func(*awsconfig.LoadOptions) error) (connection, error) {
	config, err := awsconfig.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return connection{}, err
	}
	if endpoint != "" {
		config.BaseEndpoint = &endpoint
	}
	return connection{dynamodb.NewFromConfig(config), dynamodbstreams.NewFromConfig(config)}, nil
}
