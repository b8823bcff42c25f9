package interop

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"

	"github.com/shardquota/shardquota/internal/dynoxide"
)

// envPython names an interpreter that has zae-limiter.
const envPython = "SHARDQUOTA_PYTHON"

// args are the arguments of a command.
type args map[string]any

// zae is a client of zae-limiter's, in a process of its own. It does one thing
// at a time and is safe for concurrent use.
type zae struct {
	testing.TB

	mu     sync.Mutex
	stdin  io.Writer
	stdout *bufio.Scanner
	stderr bytes.Buffer
}

// raised is an exception of the client's.
type raised struct{ class, message string }

func (r *raised) Error() string { return r.class + ": " + r.message }

// python is the interpreter. Where there is none the test is skipped.
func python(t testing.TB) string {
	t.Helper()
	python := os.Getenv(envPython)
	if python == "" {
		t.Skip(envPython + " names no interpreter that has zae-limiter; `make test` sees to one where pip reaches an index")
	}
	return python
}

// startZae starts a client on a table and a namespace, by their names, that keeps
// limits so many seconds. It ends with the test.
func startZae(t testing.TB, table, namespace string, cache int) *zae {
	t.Helper()
	z := &zae{TB: t}
	process := exec.Command(python(t), "testdata/driver.py", dynoxide.Start(t), table, namespace, strconv.Itoa(cache))
	process.Stderr = &z.stderr
	stdin, err := process.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	z.stdin, z.stdout = stdin, bufio.NewScanner(stdout)
	t.Cleanup(func() {
		stdin.Close()
		if err := process.Wait(); err != nil {
			t.Errorf("zae-limiter's client: %v\n%s", err, z.stderr.String())
		}
	})
	return z
}

// try gives a command, and puts what it answers to into, nil for nothing. An
// exception is a *raised.
func (z *zae) try(do string, a args, into any) error {
	a = maps.Clone(a)
	if a == nil {
		a = args{}
	}
	a["do"] = do
	line, err := json.Marshal(a)
	if err != nil {
		return err
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	if _, err := z.stdin.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("%s: %w\n%s", do, err, z.stderr.String())
	}
	if !z.stdout.Scan() {
		return fmt.Errorf("%s: no answer: %v", do, z.stdout.Err())
	}
	var answer struct {
		OK              json.RawMessage
		Raised, Message string
	}
	if err := json.Unmarshal(z.stdout.Bytes(), &answer); err != nil {
		return fmt.Errorf("%s: %w", do, err)
	}
	if answer.Raised != "" {
		return fmt.Errorf("%s: %w", do, &raised{answer.Raised, answer.Message})
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(answer.OK, into)
}

// ask is try where nothing may fail.
func ask[T any](z *zae, do string, a args) T {
	z.Helper()
	var answer T
	if err := z.try(do, a, &answer); err != nil {
		z.Fatal(err)
	}
	return answer
}

func (z *zae) do(do string, a args) {
	z.Helper()
	if err := z.try(do, a, nil); err != nil {
		z.Fatal(err)
	}
}
