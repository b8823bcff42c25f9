package main_test

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shardquota/shardquota/internal/dynoxide"
	"github.com/shardquota/shardquota/internal/lambdatest"
)

// secretMark is in every entity id of these tests, so that one look at what the
// function printed tells whether an id got out.
const secretMark = "sk-live-"

// built is where TestMain lets binaries be built.
var built string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "aggregator-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	built = dir
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// build builds the function as it is deployed: see `make build`.
func build(goarch, path string) error { return buildPackage(goarch, path, ".") }

func buildPackage(goarch, path, name string) error {
	command := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-tags", "lambda.norpc", "-ldflags", "-s -w", "-o", path, name)
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+goarch)
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("go build for %s: %w\n%s", goarch, err, output)
	}
	return nil
}

var bootstrap = sync.OnceValues(func() (string, error) {
	path := filepath.Join(built, "bootstrap")
	return path, build(runtime.GOARCH, path)
})

// binary is the function built for this machine.
func binary(t testing.TB) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the function runs on Linux alone")
	}
	if testing.Short() {
		t.Skip("it builds the function, which -short leaves out")
	}
	path, err := bootstrap()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// function is the built binary, and what it has measured.
type function struct {
	*lambdatest.Function
	t    testing.TB
	read int // of what it measured, by metrics
}

// settings are the environment of the function, over and above what Lambda
// sets.
type settings map[string]string

// startFunction starts the binary with nothing in its environment but what
// Lambda and a deployment set. It ends with the test, and what it printed is
// checked then.
func startFunction(t testing.TB, tableName, endpoint string, more settings) *function {
	t.Helper()
	environment := map[string]string{
		"AWS_ENDPOINT_URL_DYNAMODB": endpoint,
		"SHARDQUOTA_TABLE":          tableName,
		"SHARDQUOTA_WINDOWS":        "hourly,daily,monthly",
	}
	maps.Copy(environment, more)
	f := &function{Function: lambdatest.Start(t, binary(t), environment), t: t}
	t.Cleanup(func() {
		f.Stop()
		f.checkOutput()
	})
	return f
}

// metrics returns what the function has measured since the last call, summed by
// the metric's name. Those by reason of a decline are named "reason: ...".
func (f *function) metrics() map[string]float64 {
	f.t.Helper()
	printed := f.Stdout()[f.read:]
	f.read += len(printed)
	sums := map[string]float64{}
	for line := range bytes.Lines(printed) {
		object, names := parseEMF(f.t, line)
		for _, name := range names {
			sum := name
			if reason, ok := object["Reason"].(string); ok {
				sum = "reason: " + reason
			}
			sums[sum] += object[name].(float64)
		}
	}
	return sums
}

// parseEMF checks that a line is one object of CloudWatch's embedded metric
// format, and returns it with the names of its metrics.
func parseEMF(t testing.TB, line []byte) (object map[string]any, names []string) {
	t.Helper()
	var header struct {
		AWS struct {
			Timestamp         int64
			CloudWatchMetrics []struct {
				Namespace  string
				Dimensions [][]string
				Metrics    []struct{ Name, Unit string }
			}
		} `json:"_aws"`
	}
	if err := json.Unmarshal(line, &header); err != nil {
		t.Fatalf("standard output: %v: %s", err, line)
	}
	if err := json.Unmarshal(line, &object); err != nil {
		t.Fatalf("standard output: %v: %s", err, line)
	}
	if len(header.AWS.CloudWatchMetrics) != 1 {
		t.Fatalf("%d directives, want 1: %s", len(header.AWS.CloudWatchMetrics), line)
	}
	directive := header.AWS.CloudWatchMetrics[0]
	if age := time.Since(time.UnixMilli(header.AWS.Timestamp)); age < 0 || age > 10*time.Minute {
		t.Errorf("timestamp %d is %v old: %s", header.AWS.Timestamp, age, line)
	}
	if directive.Namespace != "shardquota" || len(directive.Dimensions) != 1 || len(directive.Dimensions[0]) == 0 {
		t.Errorf("namespace or dimensions are missing: %s", line)
	}
	for _, dimension := range directive.Dimensions[0] {
		if value, ok := object[dimension].(string); !ok || value == "" {
			t.Errorf("dimension %s has no text: %s", dimension, line)
		}
	}
	if len(directive.Metrics) == 0 {
		t.Errorf("no metrics: %s", line)
	}
	for _, metric := range directive.Metrics {
		if _, ok := object[metric.Name].(float64); !ok {
			t.Errorf("metric %s has no number: %s", metric.Name, line)
		}
		if metric.Unit != "Count" && metric.Unit != "Milliseconds" {
			t.Errorf("metric %s is in %q: %s", metric.Name, metric.Unit, line)
		}
		names = append(names, metric.Name)
	}
	return object, names
}

// logged returns the records on standard error that bear a message.
func (f *function) logged(message string) []map[string]any {
	f.t.Helper()
	var found []map[string]any
	for line := range bytes.Lines(f.Stderr()) {
		var record map[string]any
		if json.Unmarshal(line, &record) == nil && record["msg"] == message {
			found = append(found, record)
		}
	}
	return found
}

// checkOutput holds for all that a function ever prints: metrics on standard
// output, one object a line on standard error, and no entity's id on either.
func (f *function) checkOutput() {
	f.t.Helper()
	stdout, stderr := f.Stdout(), f.Stderr()
	for line := range bytes.Lines(stdout) {
		parseEMF(f.t, line)
	}
	for line := range bytes.Lines(stderr) {
		if !json.Valid(line) {
			f.t.Errorf("standard error holds a line that is no JSON: %s", line)
		}
	}
	for name, text := range map[string][]byte{"standard output": stdout, "standard error": stderr} {
		if at := bytes.Index(text, []byte(secretMark)); at >= 0 {
			f.t.Errorf("%s holds an entity id: …%s…", name, text[max(0, at-80):min(len(text), at+80)])
		}
	}
}

// TestStaticBinaries builds the function for both of Lambda's processors: what
// is deployed must need no loader and no library, and be the same bytes
// whoever builds it.
func TestStaticBinaries(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds, which -short leaves out")
	}
	for goarch, machine := range map[string]elf.Machine{"arm64": elf.EM_AARCH64, "amd64": elf.EM_X86_64} {
		t.Run(goarch, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "bootstrap")
			if err := build(goarch, path); err != nil {
				t.Fatal(err)
			}
			file, err := elf.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			if file.Machine != machine || file.Type != elf.ET_EXEC {
				t.Errorf("%v %v, want %v %v", file.Machine, file.Type, machine, elf.ET_EXEC)
			}
			for _, program := range file.Progs {
				if program.Type == elf.PT_INTERP || program.Type == elf.PT_DYNAMIC {
					t.Errorf("it has a %v segment: it is not static", program.Type)
				}
			}
			if section := file.Section(".dynamic"); section != nil {
				t.Error("it has a dynamic section: it is not static")
			}

			again := filepath.Join(t.TempDir(), "other", "bootstrap")
			if err := build(goarch, again); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(contents(t, path), contents(t, again)) {
				t.Error("two builds differ")
			}
		})
	}
}

func contents(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestRefusesToStart runs the binary with an environment that it cannot work
// with: it must say which variable is wrong, on one line, and end with 1.
func TestRefusesToStart(t *testing.T) {
	for _, test := range []struct {
		name string
		set  settings
		want string // in the reason
	}{
		{"no table", settings{"SHARDQUOTA_WINDOWS": "daily"}, "SHARDQUOTA_TABLE"},
		{"empty table", settings{"SHARDQUOTA_TABLE": ""}, "SHARDQUOTA_TABLE"},
		{"unknown window", settings{"SHARDQUOTA_TABLE": "t", "SHARDQUOTA_WINDOWS": "hourly,weekly"}, `SHARDQUOTA_WINDOWS: windows "hourly,weekly": "weekly" is none of hourly, daily, monthly`},
		{"no number", settings{"SHARDQUOTA_TABLE": "t", "SHARDQUOTA_USAGE_DAYS": "ninety"}, `SHARDQUOTA_USAGE_DAYS: `},
		{"out of range", settings{"SHARDQUOTA_TABLE": "t", "SHARDQUOTA_CONCURRENCY": "0"}, "SHARDQUOTA_CONCURRENCY: 0 is not within 1 and 256"},
		{"no duration", settings{"SHARDQUOTA_TABLE": "t", "SHARDQUOTA_RESERVE": "2"}, `SHARDQUOTA_RESERVE: `},
		{"no level", settings{"SHARDQUOTA_TABLE": "t", "SHARDQUOTA_LOG_LEVEL": "LOUD"}, `SHARDQUOTA_LOG_LEVEL: `},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := runToEnd(t, test.set)
			if code != 1 || stdout != "" {
				t.Errorf("exit status %d, standard output %q, want 1 and nothing", code, stdout)
			}
			var line struct{ Level, Msg, Reason string }
			if err := json.Unmarshal([]byte(stderr), &line); err != nil {
				t.Fatalf("standard error: %v: %s", err, stderr)
			}
			if line.Level != "ERROR" || line.Msg != "cannot start" || !strings.Contains(line.Reason, test.want) {
				t.Errorf("standard error: %s, want a reason with %q", stderr, test.want)
			}
		})
	}
}

// TestNeedsLambda: with a good environment but outside of Lambda it ends too,
// instead of waiting for nobody.
func TestNeedsLambda(t *testing.T) {
	code, stdout, stderr := runToEnd(t, settings{"SHARDQUOTA_TABLE": "t", "AWS_REGION": dynoxide.Region})
	if code != 1 || stdout != "" || !strings.Contains(stderr, "AWS_LAMBDA_RUNTIME_API") {
		t.Errorf("exit status %d, standard output %q, standard error %q", code, stdout, stderr)
	}
}

// runToEnd runs the binary, which must end by itself.
func runToEnd(t *testing.T, set settings) (code int, stdout, stderr string) {
	t.Helper()
	process := exec.CommandContext(t.Context(), binary(t))
	process.Env = lambdatest.Environ(set)
	var out, errs bytes.Buffer
	process.Stdout, process.Stderr = &out, &errs
	if err := process.Run(); err != nil && process.ProcessState == nil {
		t.Fatal(err)
	}
	return process.ProcessState.ExitCode(), out.String(), errs.String()
}

// closedPort is an address that nobody listens on.
func closedPort(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return "http://" + listener.Addr().String()
}
