package infra

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"github.com/shardquota/shardquota/cmd/limits/resource"
)

// Limits are declared by a manifest, in the form that `shardquota limits` reads.
// Deploying stores them in the table, and takes away the levels that the
// deployment before declared and this one does not. What the manifest says is in
// the template for all to read who may see the stack, the ids of entities too.
type Limits struct {
	// File is the path of the manifest. Manifest is its text instead.
	File, Manifest string
	// Namespace is the one that the limits are for, by name; the manifest's own
	// if empty, or the default one. Another one later makes the deployment take
	// the limits away from the first.
	Namespace string
	// Retain leaves the limits in the table when the stack, or its declaration of
	// limits, goes.
	Retain bool
	// Code is that of the function that stores them; nil builds it as
	// FunctionProps.Code.
	Code awslambda.Code
}

// How long the function may take, in seconds, which is as long as any can, and
// when CloudFormation gives up on it: later, since Lambda makes a call that
// crashed again.
const (
	storingTimeout = 900
	answerTimeout  = 1500
)

// check returns what is wrong with the declaration.
func (l *Limits) check() error {
	if l == nil {
		return nil
	}
	_, err := l.properties()
	return err
}

// properties are those of the resource, but for the table.
func (l *Limits) properties() (resource.Properties, error) {
	text, name := l.Manifest, "the text Limits.Manifest"
	switch {
	case (l.File == "") == (l.Manifest == ""):
		return resource.Properties{}, errors.New("either Limits.File or Limits.Manifest is to be given")
	case l.File != "":
		read, err := os.ReadFile(l.File)
		if err != nil {
			return resource.Properties{}, fmt.Errorf("the file Limits.File: %w", err)
		}
		text, name = string(read), filepath.Base(l.File)
	}
	return resource.New(text, name, l.Namespace)
}

// addLimits has the deployment store the declared limits, by a function of its
// own.
func (q *ShardQuota) addLimits() {
	l := q.props.Limits
	if l == nil {
		return
	}
	properties, err := l.properties()
	if err != nil {
		panic("infra: " + err.Error())
	}
	scope := constructs.NewConstruct(q.Construct, jsii.String("Declared"))
	function := q.addKeeper(scope)
	q.Limits = awscdk.NewCustomResource(scope, jsii.String("Resource"), &awscdk.CustomResourceProps{
		ServiceToken:   function.FunctionArn(),
		ServiceTimeout: awscdk.Duration_Seconds(jsii.Number(answerTimeout)),
		ResourceType:   jsii.String(resource.Type),
		RemovalPolicy:  l.removal(),
		Properties: &map[string]any{
			"Table":     q.Table.TableName(),
			"Namespace": properties.Namespace,
			"File":      properties.File,
			"Manifest":  properties.Manifest,
		},
	})
	// What it takes is there before it, and until after it.
	q.Limits.Node().AddDependency(q.Table, function)
}

func (l *Limits) removal() awscdk.RemovalPolicy {
	if l.Retain {
		return awscdk.RemovalPolicy_RETAIN
	}
	return awscdk.RemovalPolicy_DESTROY
}

// addKeeper makes the function that stores the limits, and what it runs as.
func (q *ShardQuota) addKeeper(scope constructs.Construct) awslambda.Function {
	logs := q.logs(scope)
	indexes := []*string{}
	for _, name := range resource.Indexes {
		indexes = append(indexes, jsii.String(*q.Table.TableArn()+"/index/"+name))
	}
	role := q.roleOf(scope, "What storing the declared limits of shardquota may do", logs,
		allow(resource.Operations, q.Table.TableArn()), allow(resource.IndexOperations, indexes...))
	code, architecture, discard := q.code(LimitsKeeper, q.props.Limits.Code)
	defer discard()
	return awslambda.NewFunction(scope, jsii.String("Function"), &awslambda.FunctionProps{
		Description:  jsii.String("shardquota: stores the limits that the stack declares"),
		Runtime:      awslambda.Runtime_PROVIDED_AL2023(),
		Architecture: architecture,
		Handler:      jsii.String("bootstrap"),
		Code:         code,
		Role:         role,
		LogGroup:     logs,
		MemorySize:   jsii.Number(512),
		Timeout:      awscdk.Duration_Seconds(jsii.Number(storingTimeout)),
	})
}
