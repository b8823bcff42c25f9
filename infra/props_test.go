package infra_test

import (
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/jsii-runtime-go"

	"github.com/shardquota/shardquota/infra"
)

func TestCheck(t *testing.T) {
	stack := awscdk.NewStack(newApp(), jsii.String("Test"), nil)
	key := awskms.Key_FromKeyArn(stack, jsii.String("Key"), jsii.String("arn:aws:kms:eu-west-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"))
	for name, c := range map[string]struct {
		props infra.Props
		want  string // of the error
	}{
		"nothing chosen":            {infra.Props{}, ""},
		"projection":                {infra.Props{Table: infra.TableProps{Projection: "SOME"}}, `Table.Projection is "SOME", none of ["ALL" "KEYS_ONLY"]`},
		"encryption":                {infra.Props{Table: infra.TableProps{Encryption: "NONE"}}, `Table.Encryption is "NONE"`},
		"key without its kind":      {infra.Props{Table: infra.TableProps{Key: key}}, "Table.Key does not go with Table.Encryption AWS_OWNED"},
		"cap below 0":               {infra.Props{Table: infra.TableProps{MaxWriteUnits: -1}}, "Table.MaxWriteUnits is -1"},
		"memory":                    {infra.Props{Function: infra.FunctionProps{MemoryMB: 64}}, "Function.MemoryMB is 64, not within 128 and 10240"},
		"timeout":                   {infra.Props{Function: infra.FunctionProps{TimeoutSeconds: 901}}, "Function.TimeoutSeconds is 901"},
		"timeout of mostly reserve": {infra.Props{Function: infra.FunctionProps{TimeoutSeconds: 9}}, "Function.TimeoutSeconds is 9, not within 10 and 900"},
		"window":                    {infra.Props{Function: infra.FunctionProps{Windows: []string{"hourly", "weekly"}}}, "Function.Windows"},
		"window twice":              {infra.Props{Function: infra.FunctionProps{Windows: []string{"hourly", "hourly"}}}, "Function.Windows: windows \"hourly,hourly\": hourly comes twice"},
		"concurrency":               {infra.Props{Function: infra.FunctionProps{Concurrency: 257}}, "Function.Concurrency is 257, not within 1 and 256"},
		"reserved concurrency":      {infra.Props{Function: infra.FunctionProps{ReservedConcurrency: -1}}, "Function.ReservedConcurrency is -1"},
		"days to keep":              {infra.Props{Mapping: infra.MappingProps{KeepDays: -1}}, "Mapping.KeepDays is -1"},
		"cap of reads":              {infra.Props{Table: infra.TableProps{MaxReadUnits: -1}}, "Table.MaxReadUnits is -1"},
		"name":                      {infra.Props{Table: infra.TableProps{Name: "a b"}}, `Table.Name is "a b"`},
		"tag":                       {infra.Props{NamespaceTag: "a}/*"}, `NamespaceTag is "a}/*"`},
		"usage days":                {infra.Props{Function: infra.FunctionProps{UsageDays: 36501}}, "Function.UsageDays is 36501"},
		"log level":                 {infra.Props{Function: infra.FunctionProps{LogLevel: "info"}}, `Function.LogLevel is "info"`},
		"log retention":             {infra.Props{Function: infra.FunctionProps{LogRetention: "AGES"}}, `Function.LogRetention is "AGES"`},
		"batch size":                {infra.Props{Mapping: infra.MappingProps{BatchSize: 10001}}, "Mapping.BatchSize is 10001"},
		"batch window":              {infra.Props{Mapping: infra.MappingProps{WindowSeconds: 301}}, "Mapping.WindowSeconds is 301"},
		"parallel":                  {infra.Props{Mapping: infra.MappingProps{Parallel: 11}}, "Mapping.Parallel is 11"},
		"retries":                   {infra.Props{Mapping: infra.MappingProps{Retries: -1}}, "Mapping.Retries is -1"},
		"age beyond the stream":     {infra.Props{Mapping: infra.MappingProps{MaxAgeHours: 24}}, "Mapping.MaxAgeHours is 24"},
		"two at once":               {infra.Props{Mapping: infra.MappingProps{Retries: -1, Parallel: 11}}, "Mapping.Parallel is 11, not within 1 and 10\nMapping.Retries"},
		"existing":                  {infra.Props{Existing: &infra.ExistingTable{Arn: existingArn, StreamArn: existingStream}}, ""},
		"existing, with a choice for a new one": {infra.Props{
			Existing: &infra.ExistingTable{Arn: existingArn, StreamArn: existingStream}, Table: infra.TableProps{Projection: infra.KeysOnly},
		}, "the properties of Table have no effect"},
		"existing, without a stream":      {infra.Props{Existing: &infra.ExistingTable{Arn: existingArn}}, `Existing.StreamArn, after that of the table and /stream/, is ""`},
		"existing, with another's stream": {infra.Props{Existing: &infra.ExistingTable{Arn: existingArn[:len(existingArn)-1], StreamArn: existingStream}}, "Existing.StreamArn, after"},
		"existing, with no stream's ARN":  {infra.Props{Existing: &infra.ExistingTable{Arn: existingArn, StreamArn: existingArn}}, "Existing.StreamArn, after"},
		"existing, with an index's ARN":   {infra.Props{Existing: &infra.ExistingTable{Arn: existingArn + "/index/GSI1", StreamArn: existingStream}}, "Existing.Arn is"},
	} {
		err := c.props.Check()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A table that the same program deploys is known by its attributes only.
func TestExistingTableOfAnotherStack(t *testing.T) {
	_, made := deploy(newApp(), nil)
	props := infra.Props{Existing: &infra.ExistingTable{Arn: *made.Table.TableArn(), StreamArn: *made.Table.TableStreamArn()}}
	if err := props.Check(); err != nil {
		t.Error(err)
	}
}

func TestWrongPropsPanic(t *testing.T) {
	defer func() {
		if got, _ := recover().(string); !strings.HasPrefix(got, "infra: Mapping.Parallel is 11") {
			t.Errorf("panic: %q", got)
		}
	}()
	deploy(newApp(), func(_ awscdk.Stack, p *infra.Props) { p.Mapping.Parallel = 11 })
}
