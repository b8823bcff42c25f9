package main

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssecretsmanager"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssnssubscriptions"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"github.com/shardquota/shardquota/infra"
)

// prefix is what every context key of ours begins with. The CDK has keys of
// its own in the same place.
const prefix = "shardquota:"

// choices are what the context says. What the construct takes as an object
// stands here as the text that names it.
type choices struct {
	infra.Props
	stackName                  string
	tableArn, streamArn        string
	key, hashKey, topic, email string
	tags                       map[string]string
	limits                     infra.Limits
}

// setting is one context key: what it sets, from its text.
type setting struct {
	key string
	set func(text string) error
}

// settings are all context keys, in the order in which README tells of them.
func (c *choices) settings() []setting {
	t, f, m := &c.Table, &c.Function, &c.Mapping
	return []setting{
		{"stackName", text(&c.stackName)},
		{"tags", c.setTags},
		{"alarmEmail", text(&c.email)},
		{"alarmTopicArn", text(&c.topic)},
		{"expectTraffic", yesNo(&c.ExpectTraffic)},
		{"namespaceTag", text(&c.NamespaceTag)},
		{"limits", text(&c.limits.File)},
		{"limitsNamespace", text(&c.limits.Namespace)},
		{"limitsRetain", yesNo(&c.limits.Retain)},
		{"tableArn", text(&c.tableArn)},
		{"streamArn", text(&c.streamArn)},
		{"tableName", text(&t.Name)},
		{"projection", text(&t.Projection)},
		{"maxReadUnits", number(&t.MaxReadUnits)},
		{"maxWriteUnits", number(&t.MaxWriteUnits)},
		{"noRecovery", yesNo(&t.NoRecovery)},
		{"disposable", yesNo(&t.Disposable)},
		{"encryption", text(&t.Encryption)},
		{"keyArn", text(&c.key)},
		{"x86", yesNo(&f.X86)},
		{"memoryMB", number(&f.MemoryMB)},
		{"timeoutSeconds", number(&f.TimeoutSeconds)},
		{"reservedConcurrency", number(&f.ReservedConcurrency)},
		{"tracing", yesNo(&f.Tracing)},
		{"logRetention", text(&f.LogRetention)},
		{"logLevel", text(&f.LogLevel)},
		{"windows", func(text string) error { f.Windows = strings.Split(text, ","); return nil }},
		{"usageDays", number(&f.UsageDays, "; -1 stands for ever")},
		{"concurrency", number(&f.Concurrency)},
		{"hashKeySecretArn", text(&c.hashKey)},
		{"paused", yesNo(&m.Paused)},
		{"batchSize", number(&m.BatchSize)},
		{"windowSeconds", number(&m.WindowSeconds, "; -1 stands for none")},
		{"parallel", number(&m.Parallel)},
		{"retries", number(&m.Retries)},
		{"maxAgeHours", number(&m.MaxAgeHours)},
		{"keepDays", number(&m.KeepDays)},
	}
}

// readContext reads the choices. Its error names every key that is wrong, and
// every key of ours that there is not: a mistyped choice must not be dropped.
func readContext(node constructs.Node) (*choices, error) {
	c := &choices{stackName: "ShardQuota"}
	given := map[string]string{}
	var wrong []error
	for key, value := range ownContext(node) {
		var ok bool
		if given[key], ok = asText(value); !ok {
			wrong = append(wrong, fmt.Errorf("context %s%s: give it as a text, a number, true or false", prefix, key))
		}
	}
	for _, s := range c.settings() {
		text, ok := given[s.key]
		delete(given, s.key)
		if !ok {
			continue
		}
		if text == "" {
			wrong = append(wrong, fmt.Errorf("context %s%s: it is empty", prefix, s.key))
			continue
		}
		if err := s.set(text); err != nil {
			wrong = append(wrong, fmt.Errorf("context %s%s: %w", prefix, s.key, err))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(given)) {
		wrong = append(wrong, fmt.Errorf("context %s%s: there is no such choice", prefix, key))
	}
	return c, errors.Join(wrong...)
}

func ownContext(node constructs.Node) map[string]any {
	own := map[string]any{}
	all, _ := node.GetAllContext(nil).(map[string]any)
	for key, value := range all {
		if name, ok := strings.CutPrefix(key, prefix); ok {
			own[name] = value
		}
	}
	return own
}

// asText is a context value as it would stand on the command line. cdk.json may
// hold others than texts.
func asText(value any) (text string, ok bool) {
	switch value := value.(type) {
	case string:
		return value, true
	case bool:
		return strconv.FormatBool(value), true
	case float64:
		return strconv.FormatFloat(value, 'f', -1, 64), true
	}
	return "", false
}

// props returns the construct's properties, importing into the stack what the
// choices name.
func (c *choices) props(stack awscdk.Stack) (*infra.Props, error) {
	props := c.Props
	if c.key != "" {
		props.Table.Key = awskms.Key_FromKeyArn(stack, jsii.String("ImportedKey"), &c.key)
		if props.Table.Encryption == "" {
			props.Table.Encryption = infra.CustomerManaged
		}
	}
	switch {
	case (c.tableArn == "") != (c.streamArn == ""):
		return nil, fmt.Errorf("context %stableArn and %sstreamArn go together", prefix, prefix)
	case c.tableArn != "":
		props.Existing = &infra.ExistingTable{Arn: c.tableArn, StreamArn: c.streamArn, Key: props.Table.Key}
		if c.key != "" && props.Table.Encryption == infra.CustomerManaged {
			props.Table.Key, props.Table.Encryption = nil, "" // are the existing table's
		}
	}
	switch {
	case c.limits.File != "":
		props.Limits = &c.limits
	case c.limits.Namespace != "" || c.limits.Retain:
		return nil, fmt.Errorf("context %slimitsNamespace and %slimitsRetain are nothing without %slimits", prefix, prefix, prefix)
	}
	if c.hashKey != "" {
		props.Function.HashKey = awssecretsmanager.Secret_FromSecretCompleteArn(stack, jsii.String("HashKey"), &c.hashKey)
	}
	if err := c.addTopic(stack, &props); err != nil {
		return nil, err
	}
	for _, key := range slices.Sorted(maps.Keys(c.tags)) {
		awscdk.Tags_Of(stack).Add(&key, jsii.String(c.tags[key]), nil)
	}
	return &props, asTyped(props.Check())
}

// property is how the construct names one of its properties in an error.
var property = regexp.MustCompile(`\b(?:(?:Table|Function|Mapping|Existing|Limits)\.[A-Z]\w*|NamespaceTag\b)`)

// keysOf are the keys of properties that are not named like them.
var keysOf = map[string]string{
	"Table.Name": "tableName", "Table.Key": "keyArn", "Existing.Arn": "tableArn", "Function.HashKey": "hashKeySecretArn",
	"Limits.File": "limits", "Limits.Namespace": "limitsNamespace",
}

// asTyped names the context keys in the errors of a check, which names properties.
func asTyped(err error) error {
	if err == nil {
		return nil
	}
	var lines []string
	for line := range strings.SplitSeq(err.Error(), "\n") {
		named := property.ReplaceAllStringFunc(line, func(name string) string {
			if key := keysOf[name]; key != "" {
				return prefix + key
			}
			name = name[strings.LastIndexByte(name, '.')+1:]
			return prefix + strings.ToLower(name[:1]) + name[1:]
		})
		if strings.HasPrefix(named, prefix) {
			named = "context " + named
		}
		lines = append(lines, named)
	}
	return errors.New(strings.Join(lines, "\n"))
}

// addTopic has alarms told to a topic that there is, or to an address by a new
// one.
func (c *choices) addTopic(stack awscdk.Stack, props *infra.Props) error {
	switch {
	case c.email != "" && c.topic != "":
		return fmt.Errorf("context %salarmEmail and %salarmTopicArn exclude each other", prefix, prefix)
	case c.topic != "":
		props.AlarmTopic = awssns.Topic_FromTopicArn(stack, jsii.String("Alarms"), &c.topic)
	case c.email != "":
		topic := awssns.NewTopic(stack, jsii.String("Alarms"), &awssns.TopicProps{EnforceSSL: jsii.Bool(true)})
		topic.AddSubscription(awssnssubscriptions.NewEmailSubscription(&c.email, nil))
		props.AlarmTopic = topic
	}
	return nil
}

// setTags reads "team=billing,stage=test".
func (c *choices) setTags(text string) error {
	c.tags = map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return fmt.Errorf("%q is not name=value", pair)
		}
		c.tags[name] = value
	}
	return nil
}

func text[T ~string](to *T) func(string) error {
	return func(text string) error {
		*to = T(text)
		return nil
	}
}

// number reads a whole number. below is what is said of those below 0.
func number(to *int, below ...string) func(string) error {
	return func(text string) (err error) {
		if *to, err = strconv.Atoi(text); err != nil {
			return fmt.Errorf("%q is not a whole number", text)
		}
		if *to == 0 {
			return errors.New("0 would mean the default, for which the key is left out" + strings.Join(below, ""))
		}
		return nil
	}
}

func yesNo(to *bool) func(string) error {
	return func(text string) (err error) {
		if *to, err = strconv.ParseBool(text); err != nil {
			return fmt.Errorf("%q is neither true nor false", text)
		}
		return nil
	}
}
