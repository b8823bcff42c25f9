package infra

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// module is the one that holds the function.
const module = "github.com/shardquota/shardquota"

// Build compiles the function for a processor, arm64 or amd64, into a new
// directory, which is the caller's to remove. It builds in the function's own
// module, so that the versions are those that were tested, whatever else the
// caller's module asks for.
func Build(goarch string) (dir string, err error) {
	source, err := output(exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module))
	if err != nil {
		return "", fmt.Errorf("find the function's source: %w", err)
	}
	dir, err = os.MkdirTemp("", "shardquota-function-")
	if err != nil {
		return "", fmt.Errorf("build the function: %w", err)
	}
	if err := build(source, goarch, filepath.Join(dir, "bootstrap")); err != nil {
		_ = os.RemoveAll(dir)
		return "", fmt.Errorf("build the function: %w", err)
	}
	return dir, nil
}

// build compiles the function so that the same source and Go version give the
// same bytes, wherever they are built: deploying what did not change changes
// nothing. Nothing of the caller's own Go settings but its caches and proxies
// gets in.
func build(source, goarch, file string) error {
	cmd := exec.Command("go", "build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags=-s -w",
		"-tags=lambda.norpc", "-o", file, "./cmd/aggregator")
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+goarch, "CGO_ENABLED=0",
		"GOFLAGS=", "GOWORK=off", "GOEXPERIMENT=", "GOAMD64=v1", "GOARM64=v8.0")
	_, err := output(cmd)
	return err
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
