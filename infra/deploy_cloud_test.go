package infra_test

import (
	"archive/zip"
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/shardquota/shardquota/internal/lambdatest"
)

// Environment variables that steer TestDeploy.
const (
	envMoto        = "SHARDQUOTA_MOTO"         // the path of moto_server, as testdata/requirements.txt installs it
	envRequireMoto = "SHARDQUOTA_REQUIRE_MOTO" // 1: what is missing fails the test
)

// Where moto says that everything is.
const (
	account = "123456789012"
	region  = "us-east-1"
)

// cloud is an AWS on this machine, and the CDK's command line to deploy to it.
type cloud struct {
	endpoint string
	environ  []string // of the command line
	command  string
	calls    <-chan call
}

// call is a call of a function that the cloud has the test make.
type call struct {
	Code        string // its path in S3
	Environment map[string]string
	Event       json.RawMessage
}

// newCloud starts moto. It skips the test where a tool is missing.
func newCloud(t *testing.T) *cloud {
	t.Helper()
	python, command, err := deployTools()
	if err != nil && os.Getenv(envRequireMoto) != "1" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	endpoint, calls := startMoto(t, python)
	return &cloud{endpoint, cdkEnviron(t, endpoint), command, calls}
}

// deployTools finds the interpreter that has moto, and the CDK's command line.
func deployTools() (python, cdk string, err error) {
	server := os.Getenv(envMoto)
	if server == "" {
		return "", "", fmt.Errorf("%s names no moto_server; `make test` sees to one where pip reaches an index", envMoto)
	}
	if server, err = filepath.EvalSymlinks(server); err != nil {
		return "", "", fmt.Errorf("%s: %w", envMoto, err)
	}
	if cdk, err = filepath.Abs("../node_modules/.bin/cdk"); err == nil {
		_, err = exec.LookPath(cdk)
	}
	if err != nil {
		return "", "", fmt.Errorf("the CDK's command line is not installed, run `npm ci` at the root of the repository: %w", err)
	}
	return filepath.Join(filepath.Dir(server), "python"), cdk, nil
}

// startMoto returns the endpoint of a moto that ends with the test, even if the
// test is killed: it lives by its standard input. Then come its calls.
func startMoto(t *testing.T, python string) (string, <-chan call) {
	t.Helper()
	process := exec.Command(python, "testdata/deploy_moto.py")
	log, err := os.Create(filepath.Join(t.TempDir(), "moto.log"))
	if err != nil {
		t.Fatal(err)
	}
	process.Stderr = log
	life, err := process.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	printed, err := process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		life.Close()
		_ = process.Wait()
		if t.Failed() {
			t.Logf("moto:\n%s", errorsOf(t, log))
		}
		log.Close()
	})
	late := time.AfterFunc(time.Minute, func() { _ = process.Process.Kill() })
	defer late.Stop()
	output := bufio.NewReader(printed)
	endpoint, err := output.ReadString('\n')
	if err != nil {
		t.Fatalf("moto does not start: %v", err)
	}
	return strings.TrimSpace(endpoint), readCalls(output)
}

// readCalls reads the calls until moto ends.
func readCalls(from io.Reader) <-chan call {
	calls := make(chan call, 16) // more than a test has
	go func() {
		decoder := json.NewDecoder(from)
		for {
			var c call
			if decoder.Decode(&c) != nil {
				return
			}
			calls <- c
		}
	}()
	return calls
}

// errorsOf is what moto logged besides each request.
func errorsOf(t *testing.T, log *os.File) string {
	text, err := os.ReadFile(log.Name())
	if err != nil {
		t.Error(err)
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "127.0.0.1 ") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// cdkEnviron is an environment in which the command line can reach moto alone,
// whatever accounts the developer has.
func cdkEnviron(t *testing.T, endpoint string) []string {
	t.Helper()
	environ := slices.DeleteFunc(os.Environ(), func(pair string) bool {
		return strings.HasPrefix(pair, "AWS_") || strings.HasPrefix(pair, "CDK_")
	})
	return append(environ,
		"AWS_ENDPOINT_URL="+endpoint,
		// moto finds the bucket of a template's address only where that has
		// the bucket in its host, or names this one.
		"AWS_ENDPOINT_URL_S3_FOR_CLOUDFORMATION="+strings.Replace(endpoint, "127.0.0.1", "localhost", 1),
		"AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test", "AWS_REGION="+region,
		"AWS_CONFIG_FILE="+os.DevNull, "AWS_SHARED_CREDENTIALS_FILE="+os.DevNull, "AWS_EC2_METADATA_DISABLED=true",
		"CDK_HOME="+t.TempDir(), "CDK_DISABLE_CLI_TELEMETRY=true",
		"JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION=20", "NODE_NO_WARNINGS=1",
	)
}

// bootstrap prepares the account for deployments. It does so in a directory that
// has no app, which would be synthesised for nothing.
func (c *cloud) bootstrap(t *testing.T) {
	t.Helper()
	c.cdk(t, t.TempDir(), "bootstrap", "aws://"+account+"/"+region)
}

// cdk runs the command line in a directory and returns what it printed. It must
// succeed.
func (c *cloud) cdk(t *testing.T, dir string, args ...string) string {
	t.Helper()
	began := time.Now()
	command := exec.CommandContext(t.Context(), c.command, append(args, "--ci", "--no-notices")...)
	command.Dir, command.Env = dir, c.environ
	var printed bytes.Buffer
	command.Stdout, command.Stderr = &printed, &printed
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	for {
		select {
		case call := <-c.calls:
			c.make(t, call)
			continue
		case err := <-ended:
			if err != nil {
				t.Fatalf("cdk %s: %v\n%s", strings.Join(args, " "), err, printed.String())
			}
		}
		t.Logf("cdk %s: %v", args[0], time.Since(began).Round(100*time.Millisecond))
		return printed.String()
	}
}

// make makes a call, of the deployed code.
func (c *cloud) make(t *testing.T, call call) {
	t.Helper()
	environment := map[string]string{"AWS_ENDPOINT_URL": c.endpoint}
	maps.Copy(environment, call.Environment)
	f := lambdatest.Start(t, unzip(t, c.code(t, call.Code)), environment)
	defer f.Stop()
	if a := f.Invoke(call.Event, time.Minute); a.Failed {
		t.Errorf("answer %s\n%s", a.Body, f.Stderr())
	}
}

// code is a function's archive in S3.
func (c *cloud) code(t *testing.T, path string) []byte {
	t.Helper()
	status, archive := c.s3(t, path)
	if status != http.StatusOK {
		t.Fatalf("the code: status %d", status)
	}
	return archive
}

// unzip returns the path of the binary in a function's archive.
func unzip(t *testing.T, archive []byte) string {
	t.Helper()
	files, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, files); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "bootstrap")
}

// sdk is the configuration of clients of AWS.
func (c *cloud) sdk() aws.Config {
	return aws.Config{
		Region:       region,
		BaseEndpoint: &c.endpoint,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil
		}),
	}
}

// ask calls an operation of a service that speaks JSON. The SDK would do so
// too, but takes records of a stream apart, and calls CloudWatch in a way that
// moto does not know.
func (c *cloud) ask(t *testing.T, service, operation string, input map[string]string, output any) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.endpoint, strings.NewReader(asJSON(t, input)))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-Amz-Target", operation)
	request.Header.Set("Content-Type", "application/x-amz-json-1.0")
	status, body := c.send(t, service, request)
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	if err := decoder.Decode(output); err != nil || status != http.StatusOK {
		t.Fatalf("%s: status %d: %v: %s", operation, status, err, body)
	}
}

// s3 reads a path of S3.
func (c *cloud) s3(t *testing.T, path string) (status int, body []byte) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.endpoint+"/"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c.send(t, "s3", request)
}

// send sends a request as if it were signed: moto tells services apart by the
// signature, and does not verify it.
func (c *cloud) send(t *testing.T, service string, request *http.Request) (status int, body []byte) {
	t.Helper()
	request.Header.Set("Authorization",
		"AWS4-HMAC-SHA256 Credential=test/20260101/"+region+"/"+service+"/aws4_request, SignedHeaders=host, Signature=0")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err = io.ReadAll(response.Body); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, body
}
