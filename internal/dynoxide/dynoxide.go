// Package dynoxide runs dynoxide, a local DynamoDB, for tests. npm installs its
// binary. Each test binary starts one process.
package dynoxide

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/shardquota/shardquota/table/dynamo"
)

// Environment variables.
const (
	envBinary  = "SHARDQUOTA_DYNOXIDE"         // the binary's path
	envRequire = "SHARDQUOTA_REQUIRE_DYNOXIDE" // a missing binary fails the test, as it does where CI is set
)

// Region is the region of every client.
const Region = "us-east-1"

// errMissing: the binary is not installed.
var errMissing = errors.New("dynoxide is not installed: run `npm ci` at the root of the repository, or set " + envBinary + " to its path")

// server starts the process at its first call.
var server = sync.OnceValues(start)

// Start starts the process, unless it runs already, and returns its endpoint, such
// as http://127.0.0.1:8000. It skips the test under -short, or if dynoxide is not
// installed; where CI or SHARDQUOTA_REQUIRE_DYNOXIDE is set, a missing binary fails
// the test. The process ends with the test binary, however that ends.
func Start(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("it needs dynoxide, which -short leaves out")
	}
	endpoint, err := server()
	switch {
	case errors.Is(err, errMissing) && os.Getenv("CI") == "" && os.Getenv(envRequire) == "":
		t.Skip(err)
	case err != nil:
		t.Fatal(err)
	}
	return endpoint
}

// Client returns a client of the process.
func Client(t testing.TB, options ...func(*dynamodb.Options)) *dynamodb.Client {
	t.Helper()
	return dynamodb.New(dynamodb.Options{
		BaseEndpoint: new(Start(t)),
		Region:       Region,
		Credentials:  Credentials(),
	}, options...)
}

// Credentials returns made-up credentials: the process accepts any.
func Credentials() aws.CredentialsProvider {
	return aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: "local", SecretAccessKey: "local"}, nil
	})
}

// Name returns a table name that no other test has. In dynoxide a deleted table's
// stream stays, and the next table of that name would take it over.
func Name() string { return "t-" + strings.ToLower(rand.Text()) }

// NewTable creates a table of the layout and returns its name.
func NewTable(t testing.TB, client *dynamodb.Client, options ...dynamo.TableOption) string {
	t.Helper()
	name := Name()
	if _, err := client.CreateTable(t.Context(), dynamo.CreateTableInput(name, options...)); err != nil {
		t.Fatalf("create table: %v", err)
	}
	return name
}

// watch runs the binary until standard input ends: that happens when the test
// process ends, even if it is killed.
const watch = `"$0" --host 127.0.0.1 --port "$1" & pid=$!; read -r _; kill "$pid"; wait "$pid"`

// start starts the process. Another program may take the free port before dynoxide
// does: then start tries another port.
func start() (string, error) {
	binary, err := find()
	if err != nil {
		return "", err
	}
	for range 3 {
		var endpoint string
		if endpoint, err = launch(binary); err == nil {
			return endpoint, nil
		}
	}
	return "", err
}

func launch(binary string) (string, error) {
	port, err := freePort()
	if err != nil {
		return "", fmt.Errorf("find a port: %w", err)
	}
	process := exec.Command("sh", "-c", watch, binary, strconv.Itoa(port))
	life, err := process.StdinPipe()
	if err != nil {
		return "", fmt.Errorf("start dynoxide: %w", err)
	}
	if err := process.Start(); err != nil {
		return "", fmt.Errorf("start dynoxide: %w", err)
	}
	endpoint := fmt.Sprintf("http://127.0.0.1:%d", port)
	if err := awaitReady(endpoint, 10*time.Second); err != nil {
		life.Close()
		return "", errors.Join(err, process.Wait())
	}
	keepAlive.Store(&life)
	return endpoint, nil
}

// keepAlive holds our end of the pipe that keeps the process running. The garbage
// collector would close a pipe that nothing refers to.
var keepAlive atomic.Pointer[io.WriteCloser]

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

// awaitReady polls until the process answers.
func awaitReady(endpoint string, limit time.Duration) error {
	deadline := time.After(limit)
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	client := http.Client{Timeout: time.Second}
	for {
		response, err := client.Get(endpoint)
		if err == nil {
			return response.Body.Close()
		}
		select {
		case <-deadline:
			return fmt.Errorf("dynoxide does not answer: %w", err)
		case <-poll.C:
		}
	}
}

// find returns the binary's path: from the environment, or where npm installed it
// in this directory or one above.
func find() (string, error) {
	if path := os.Getenv(envBinary); path != "" {
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("%s: %w", envBinary, err)
		}
		return path, nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		path := filepath.Join(dir, "node_modules", "@dynoxide", current, "dynoxide")
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errMissing
		}
		dir = parent
	}
}

// current is this machine's platform.
var current = platform(runtime.GOOS, runtime.GOARCH)

// platform returns npm's name of a platform.
func platform(goos, goarch string) string {
	oses := map[string]string{"windows": "win32"}
	arches := map[string]string{"amd64": "x64", "386": "ia32"}
	return cmp.Or(oses[goos], goos) + "-" + cmp.Or(arches[goarch], goarch)
}
