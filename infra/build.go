package infra

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// module is the one that holds the functions.
const module = "github.com/shardquota/shardquota"

// The programs that are deployed as functions.
const (
	Aggregator   = "aggregator" // consumes the stream
	LimitsKeeper = "limits"     // stores the limits of a manifest
)

// Build compiles one of the programs for a processor, arm64 or amd64, into a new
// directory, which is the caller's to remove. It builds in the programs' own
// module, so that the versions are those that were tested, whatever else the
// caller's module asks for.
func Build(program, goarch string) (dir string, err error) {
	// A vendor directory does not have the function: it is a program.
	source, err := output(exec.Command("go", "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", module))
	if err == nil && source == "" {
		err = fmt.Errorf("module %s is not downloaded: run go mod download", module)
	}
	if err != nil {
		return "", fmt.Errorf("find the function's source: %w", err)
	}
	dir, err = os.MkdirTemp("", "shardquota-function-")
	if err != nil {
		return "", fmt.Errorf("build the function: %w", err)
	}
	if err := build(source, program, goarch, filepath.Join(dir, "bootstrap")); err != nil {
		_ = os.RemoveAll(dir)
		return "", fmt.Errorf("build the function: %w", err)
	}
	return dir, nil
}

// build compiles a function so that the same source and Go version give the
// same bytes, wherever they are built: deploying what did not change changes
// nothing. It sets every Go setting that would get in; an empty one would let
// in what `go env -w` has stored. Lambda runs what everybody may read, whatever
// the caller's umask says.
func build(source, program, goarch, file string) error {
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w",
		"-tags=lambda.norpc", "-o", file, "./cmd/"+program)
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+goarch, "CGO_ENABLED=0",
		"GOFLAGS=-mod=readonly", "GOWORK=off", "GOFIPS140=off", "GOAMD64=v1", "GOARM64=v8.0")
	if _, err := output(cmd); err != nil {
		return err
	}
	return os.Chmod(file, 0o755)
}

// output runs a Go command and returns what it printed; the error holds what
// it complained of.
func output(cmd *exec.Cmd) (string, error) {
	printed, err := cmd.Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(failed.Stderr)))
	}
	return strings.TrimSpace(string(printed)), err
}
