package infra

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssecretsmanager"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/events"
)

// Props are the choices of a deployment. The zero value is a sound first one:
// a new table that survives the stack, and a function that reads its stream.
type Props struct {
	// Existing is a table that is there already. Then no table is made, and
	// the properties of Table are not used.
	Existing *ExistingTable
	Table    TableProps
	Function FunctionProps
	Mapping  MappingProps

	// Limits are declared with the deployment; nil declares none, and leaves
	// all limits to the table's clients and operators.
	Limits *Limits

	// AlarmTopic is told when an alarm goes off and when it is over; nil makes
	// alarms that only show.
	AlarmTopic awssns.ITopic
	// ExpectTraffic says that the table is never without a write for an hour.
	// The function's silence is then an alarm too.
	ExpectTraffic bool
	// NamespaceTag is the tag of an IAM principal that holds the id of the one
	// namespace it may use, for the policies scoped by namespace;
	// DefaultNamespaceTag if empty.
	NamespaceTag string
}

// DefaultNamespaceTag is the principal tag that policies scoped by namespace
// look at.
const DefaultNamespaceTag = "shardquota-namespace-id"

// ExistingTable names a table of the layout in the stack's own account and
// region, whose stream carries new and old images.
type ExistingTable struct {
	Arn       string
	StreamArn string
	Key       awskms.IKey // the key the table is encrypted with; nil for one of AWS
}

// Projection is which attributes GSI2, the index by resource, repeats.
type Projection string

const (
	// All repeats every attribute, as zae-limiter's reads by resource expect.
	// Each write of a bucket then costs a second write unit.
	All Projection = "ALL"
	// KeysOnly repeats the keys alone, which no use of a bucket changes: half the
	// cost of a write. A reader by resource has to fetch the items by their keys.
	KeysOnly Projection = "KEYS_ONLY"
)

// Encryption is who holds the key of the table and of the failed batches.
type Encryption string

const (
	AWSOwned        Encryption = "AWS_OWNED"        // free; not seen in the account
	AWSManaged      Encryption = "AWS_MANAGED"      // in the account, its use logged and charged
	CustomerManaged Encryption = "CUSTOMER_MANAGED" // TableProps.Key, or a new one that rotates
)

// TableProps are the choices of a new table.
type TableProps struct {
	Name string // made up by CloudFormation if empty
	// Projection of GSI2; All if empty.
	Projection Projection
	// MaxReadUnits and MaxWriteUnits cap what the table is billed for, in units
	// a second, the indexes each by themselves; 0 for no cap. A cap throttles.
	MaxReadUnits, MaxWriteUnits int
	// NoRecovery switches point-in-time recovery off.
	NoRecovery bool
	// Disposable makes a table for a trial: it is not protected, and removed
	// with the stack, as are the logs and, if it is empty, the bucket of failed
	// batches.
	Disposable bool
	Encryption Encryption // AWSOwned if empty
	Key        awskms.IKey
}

// FunctionProps are the choices of the function.
type FunctionProps struct {
	// Code is the function's; nil builds it from the source of this module,
	// with the Go command at hand.
	Code awslambda.Code
	// X86 runs it on x86-64; arm64 does the same work for less.
	X86 bool
	// MemoryMB is the memory, and with it the share of a processor; 512 if 0.
	MemoryMB int
	// TimeoutSeconds is how long a batch may take, 10 or more; 60 if 0. The
	// function hands the rest of a batch back 2 s before.
	TimeoutSeconds int
	// ReservedConcurrency sets this much of the account's concurrency apart for
	// it, and is the most it can use; 0 shares.
	ReservedConcurrency int
	Tracing             bool                  // by X-Ray
	LogRetention        awslogs.RetentionDays // a month if empty
	LogLevel            string                // DEBUG, INFO (if empty), WARN or ERROR

	// Windows that usage is counted in, of hourly, daily and monthly; hourly
	// and daily if empty. Each is a write a batch for each entity and resource.
	Windows []string
	// UsageDays is how long a usage item outlives its window; 90 if 0, and for
	// ever if below 0.
	UsageDays int
	// Concurrency bounds the function's requests at once; 16 if 0.
	Concurrency int
	// HashKey holds, as its whole text, the key of the pseudonyms that stand
	// for entities in the logs. Without one a pseudonym lives only as long as
	// one instance of the function.
	HashKey awssecretsmanager.ISecret
}

// MappingProps are the choices of the event source mapping.
type MappingProps struct {
	// Paused makes the mapping but does not start it.
	Paused bool
	// BatchSize is the most records at once, up to 10,000; 1,000 if 0.
	BatchSize int
	// WindowSeconds is how long the mapping gathers a batch, up to 300; 5 if 0,
	// and not at all if below 0. Usage is written once for each batch, so that
	// waiting saves writes. A hot bucket fills a batch sooner.
	WindowSeconds int
	// Parallel is how many batches of one stream shard are worked on at once,
	// up to 10; 1 if 0. The records of one bucket stay in order.
	Parallel int
	// Retries is how often a failed batch is tried again before it is kept
	// aside, up to 10,000; 100 if 0. Halving a batch does not count.
	Retries int
	// MaxAgeHours keeps records aside that have waited this long, up to 23;
	// 12 if 0. The stream itself forgets them after 24.
	MaxAgeHours int
	// KeepDays is how long the batches kept aside stay; 90 if 0.
	KeepDays int
}

// withDefaults returns the properties with every default filled in.
func (p Props) withDefaults() Props {
	set(&p.NamespaceTag, DefaultNamespaceTag)
	set(&p.Table.Projection, All)
	set(&p.Table.Encryption, AWSOwned)
	set(&p.Function.MemoryMB, 512)
	set(&p.Function.TimeoutSeconds, 60)
	set(&p.Function.LogRetention, awslogs.RetentionDays_ONE_MONTH)
	set(&p.Function.LogLevel, "INFO")
	set(&p.Function.UsageDays, 90)
	set(&p.Function.Concurrency, 16)
	if len(p.Function.Windows) == 0 {
		p.Function.Windows = []string{"hourly", "daily"}
	}
	set(&p.Mapping.BatchSize, 1000)
	set(&p.Mapping.WindowSeconds, 5)
	set(&p.Mapping.Parallel, 1)
	set(&p.Mapping.Retries, 100)
	set(&p.Mapping.MaxAgeHours, 12)
	set(&p.Mapping.KeepDays, 90)
	return p
}

// set gives a property that was left out its default.
func set[T comparable](property *T, otherwise T) {
	var zero T
	if *property == zero {
		*property = otherwise
	}
}

// Check returns everything that is wrong with the properties, each error named
// after the property.
func (p Props) Check() error {
	p = p.withDefaults()
	f, m := p.Function, p.Mapping
	wrong := []error{
		p.checkExisting(),
		p.Limits.check(),
		like("Table.Name", p.Table.Name, `|[A-Za-z0-9_.-]{3,255}`),
		like("NamespaceTag", p.NamespaceTag, `[\w.:/=+@-]{1,128}`),
		oneOf("Table.Projection", p.Table.Projection, All, KeysOnly),
		oneOf("Table.Encryption", p.Table.Encryption, AWSOwned, AWSManaged, CustomerManaged),
		within("Table.MaxReadUnits", p.Table.MaxReadUnits, 0, math.MaxInt32),
		within("Table.MaxWriteUnits", p.Table.MaxWriteUnits, 0, math.MaxInt32),
		within("Function.MemoryMB", f.MemoryMB, 128, 10240),
		within("Function.TimeoutSeconds", f.TimeoutSeconds, 10, 900),
		within("Function.ReservedConcurrency", f.ReservedConcurrency, 0, math.MaxInt32),
		within("Function.Concurrency", f.Concurrency, 1, 256),
		within("Function.UsageDays", f.UsageDays, math.MinInt32, aggregator.MaxUsageDays),
		oneOf("Function.LogRetention", f.LogRetention, retentions...),
		oneOf("Function.LogLevel", f.LogLevel, "DEBUG", "INFO", "WARN", "ERROR"),
		within("Mapping.BatchSize", m.BatchSize, 1, 10000),
		within("Mapping.WindowSeconds", m.WindowSeconds, math.MinInt32, 300),
		within("Mapping.Parallel", m.Parallel, 1, 10),
		within("Mapping.Retries", m.Retries, 1, 10000),
		within("Mapping.MaxAgeHours", m.MaxAgeHours, 1, 23),
		within("Mapping.KeepDays", m.KeepDays, 1, 36500),
	}
	if _, err := events.ParseWindows(strings.Join(f.Windows, ",")); err != nil {
		wrong = append(wrong, fmt.Errorf("the list Function.Windows: %w", err))
	}
	if p.Table.Key != nil && p.Table.Encryption != CustomerManaged {
		wrong = append(wrong, fmt.Errorf("the key Table.Key does not go with Table.Encryption %s", p.Table.Encryption))
	}
	return errors.Join(wrong...)
}

// retentions are those that CloudWatch knows, by the CDK's names.
var retentions = []awslogs.RetentionDays{
	awslogs.RetentionDays_ONE_DAY, awslogs.RetentionDays_THREE_DAYS, awslogs.RetentionDays_FIVE_DAYS, awslogs.RetentionDays_ONE_WEEK,
	awslogs.RetentionDays_TWO_WEEKS, awslogs.RetentionDays_ONE_MONTH, awslogs.RetentionDays_TWO_MONTHS, awslogs.RetentionDays_THREE_MONTHS,
	awslogs.RetentionDays_FOUR_MONTHS, awslogs.RetentionDays_FIVE_MONTHS, awslogs.RetentionDays_SIX_MONTHS, awslogs.RetentionDays_ONE_YEAR,
	awslogs.RetentionDays_THIRTEEN_MONTHS, awslogs.RetentionDays_EIGHTEEN_MONTHS, awslogs.RetentionDays_TWO_YEARS,
	awslogs.RetentionDays_THREE_YEARS, awslogs.RetentionDays_FIVE_YEARS, awslogs.RetentionDays_TEN_YEARS, awslogs.RetentionDays_INFINITE,
}

func (p Props) checkExisting() error {
	switch {
	case p.Existing == nil:
		return nil
	case p.Table != (TableProps{Projection: All, Encryption: AWSOwned}):
		return errors.New("the properties of Table have no effect beside Existing")
	case *awscdk.Token_IsUnresolved(p.Existing.StreamArn), *awscdk.Token_IsUnresolved(p.Existing.Arn):
		return nil // known when it is deployed
	}
	label, _ := strings.CutPrefix(p.Existing.StreamArn, p.Existing.Arn+"/stream/")
	return errors.Join(
		like("Existing.Arn", p.Existing.Arn, `arn:[^:]+:dynamodb:[^:]+:[^:]+:table/[A-Za-z0-9_.-]+`),
		like("Existing.StreamArn, after that of the table and /stream/,", label, `[0-9T:.-]+`),
	)
}

func within(name string, value, least, most int) error {
	if value < least || value > most {
		return fmt.Errorf("%s is %d, not within %d and %d", name, value, least, most)
	}
	return nil
}

func like(name, value, pattern string) error {
	if !regexp.MustCompile("^(?:" + pattern + ")$").MatchString(value) {
		return fmt.Errorf("%s is %q, not as %s", name, value, pattern)
	}
	return nil
}

func oneOf[T ~string](name string, value T, values ...T) error {
	if !slices.Contains(values, value) {
		return fmt.Errorf("%s is %q, none of %q", name, value, values)
	}
	return nil
}
