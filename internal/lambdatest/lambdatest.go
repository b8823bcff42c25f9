// Package lambdatest runs a Lambda function's binary in tests.
package lambdatest

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Function is a binary that runs under a Lambda runtime of the test's own: the
// part of the runtime API that hands out invocations and takes answers. The
// emulator that AWS offers has no say over an invocation's deadline.
type Function struct {
	Started time.Time

	t           testing.TB
	process     *exec.Cmd
	invocations chan invocation
	answers     chan Answer
	exited      chan struct{} // closed when the process is gone
	stdout      *os.File      // a file and no pipe: what an invocation printed is there when its answer is
	stderr      *os.File
	count       int
}

type invocation struct {
	id       string
	deadline time.Time
	event    []byte
}

// Answer is how an invocation ended.
type Answer struct {
	Failed bool
	Body   string

	id string
}

// patience is how long the function may leave the test waiting.
const patience = time.Minute

// Start starts the binary with nothing in its environment but what Lambda sets
// and what is given, which goes before. It ends with the test.
func Start(t testing.TB, binary string, environment map[string]string) *Function {
	t.Helper()
	f := &Function{
		t:           t,
		invocations: make(chan invocation),
		answers:     make(chan Answer, 1),
		exited:      make(chan struct{}),
		stdout:      temporary(t, "stdout"),
		stderr:      temporary(t, "stderr"),
	}
	api := httptest.NewServer(f.runtimeAPI())
	t.Cleanup(api.Close) // after the process, which waits for an invocation

	f.process = exec.Command(binary)
	f.process.Dir = t.TempDir()
	f.process.Stdout, f.process.Stderr = f.stdout, f.stderr
	f.process.Env = Environ(map[string]string{
		"AWS_LAMBDA_RUNTIME_API": strings.TrimPrefix(api.URL, "http://"),
		"AWS_REGION":             "us-east-1",
		"AWS_ACCESS_KEY_ID":      "local",
		"AWS_SECRET_ACCESS_KEY":  "local",
	}, environment)
	f.Started = time.Now()
	if err := f.process.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = f.process.Wait()
		close(f.exited)
	}()
	t.Cleanup(f.Stop)
	return f
}

// Environ is an environment as a process takes it; of sets that name the same
// variable the last one counts.
func Environ(sets ...map[string]string) []string {
	merged := map[string]string{}
	for _, set := range sets {
		maps.Copy(merged, set)
	}
	var pairs []string
	for name, value := range merged {
		pairs = append(pairs, name+"="+value)
	}
	return pairs
}

func temporary(t testing.TB, name string) *os.File {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file
}

func (f *Function) runtimeAPI() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /2018-06-01/runtime/invocation/next", func(w http.ResponseWriter, r *http.Request) {
		select {
		case i := <-f.invocations:
			w.Header().Set("Lambda-Runtime-Aws-Request-Id", i.id)
			w.Header().Set("Lambda-Runtime-Deadline-Ms", strconv.FormatInt(i.deadline.UnixMilli(), 10))
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(i.event)
		case <-r.Context().Done():
		}
	})
	take := func(failed bool) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			w.WriteHeader(http.StatusAccepted)
			f.answers <- Answer{id: r.PathValue("id"), Failed: failed, Body: string(body)}
		}
	}
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/response", take(false))
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/error", take(true))
	return mux
}

// Invoke delivers an event and waits for the answer. The function is told that
// it has so much time.
func (f *Function) Invoke(event []byte, remaining time.Duration) Answer {
	f.t.Helper()
	f.count++
	id := fmt.Sprintf("00000000-0000-0000-0000-%012d", f.count)
	late := time.After(patience)
	select {
	case f.invocations <- invocation{id, time.Now().Add(remaining), event}:
	case <-f.exited:
		f.t.Fatalf("the function has ended:\n%s", f.Stderr())
	case <-late:
		f.t.Fatalf("the function asks for no event:\n%s", f.Stderr())
	}
	select {
	case a := <-f.answers:
		if a.id != id {
			f.t.Fatalf("answer to %s, want one to %s", a.id, id)
		}
		return a
	case <-f.exited:
		f.t.Fatalf("the function has ended without an answer:\n%s", f.Stderr())
	case <-late:
		f.t.Fatalf("the function does not answer:\n%s", f.Stderr())
	}
	panic("unreachable")
}

// Stop ends the process. What it printed can still be read.
func (f *Function) Stop() {
	_ = f.process.Process.Kill()
	<-f.exited
}

// PeakMemory is the most memory that the process has had at once, in bytes.
func (f *Function) PeakMemory() int64 {
	f.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", f.process.Process.Pid))
	if err != nil {
		f.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	var kilobytes int64
	if _, err := fmt.Sscanf(rest, "%d kB", &kilobytes); err != nil {
		f.t.Fatalf("peak memory: %v", err)
	}
	return kilobytes << 10
}

// Stdout is what the function has printed so far, its metrics.
func (f *Function) Stdout() []byte { return f.printed(f.stdout) }

// Stderr is what the function has printed so far, its logs.
func (f *Function) Stderr() []byte { return f.printed(f.stderr) }

func (f *Function) printed(file *os.File) []byte {
	f.t.Helper()
	text, err := os.ReadFile(file.Name())
	if err != nil {
		f.t.Fatal(err)
	}
	return text
}
