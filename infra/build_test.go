package infra_test

import (
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"

	"github.com/shardquota/shardquota/infra"
)

// A function is a static binary for the right processor, without what would
// differ from one checkout to the next.
func TestBuild(t *testing.T) {
	for _, c := range []struct {
		program, goarch string
		machine         elf.Machine
	}{
		{infra.Aggregator, "arm64", elf.EM_AARCH64}, {infra.Aggregator, "amd64", elf.EM_X86_64}, {infra.LimitsKeeper, "arm64", elf.EM_AARCH64},
	} {
		goarch, machine := c.goarch, c.machine
		t.Run(c.program+"/"+goarch, func(t *testing.T) {
			binary := buildFunction(t, c.program, goarch)
			file, err := elf.NewFile(bytes.NewReader(binary))
			if err != nil {
				t.Fatal(err)
			}
			if file.Machine != machine {
				t.Errorf("made for %v", file.Machine)
			}
			if libraries, err := file.ImportedLibraries(); err != nil || len(libraries) != 0 {
				t.Errorf("not static: %v, %v", libraries, err)
			}
			settings := buildSettings(t, binary)
			for key, want := range map[string]string{"CGO_ENABLED": "0", "-trimpath": "true", "-tags": "lambda.norpc", "GOOS": "linux", "GOARCH": goarch} {
				if settings[key] != want {
					t.Errorf("built with %s=%s", key, settings[key])
				}
			}
			if path := mainPackage(t, binary); path != "github.com/shardquota/shardquota/cmd/"+c.program {
				t.Errorf("it is %s", path)
			}
			for key := range settings {
				if strings.HasPrefix(key, "vcs") {
					t.Errorf("built with %s", key)
				}
			}
		})
	}
}

func buildSettings(t *testing.T, binary []byte) map[string]string {
	t.Helper()
	info, err := buildinfo.Read(bytes.NewReader(binary))
	if err != nil {
		t.Fatal(err)
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	return settings
}

func mainPackage(t *testing.T, binary []byte) string {
	t.Helper()
	info, err := buildinfo.Read(bytes.NewReader(binary))
	if err != nil {
		t.Fatal(err)
	}
	return info.Path
}

func buildFunction(t *testing.T, program, goarch string) []byte {
	t.Helper()
	dir, err := infra.Build(program, goarch)
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "bootstrap")
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o755 {
		t.Fatalf("the function's mode: %v, %v", info.Mode(), err)
	}
	binary, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// What is deployed is made for the processor that it is deployed to.
func TestCodeFitsTheProcessor(t *testing.T) {
	for x86, want := range map[bool]elf.Machine{false: elf.EM_AARCH64, true: elf.EM_X86_64} {
		app := newApp()
		stack, _ := deploy(app, func(_ awscdk.Stack, p *infra.Props) {
			p.Function.Code, p.Function.X86, p.Limits = nil, x86, &infra.Limits{File: limitsFile}
		})
		dir := *app.Synth(nil).Directory()
		assets, err := filepath.Glob(filepath.Join(dir, "asset.*", "bootstrap"))
		if err != nil || len(assets) != 2 {
			t.Fatalf("%s: %v, %v", *stack.StackName(), assets, err)
		}
		for _, asset := range assets {
			file, err := elf.Open(asset)
			if err != nil {
				t.Fatal(err)
			}
			if file.Machine != want {
				t.Errorf("x86 %v: made for %v", x86, file.Machine)
			}
			_ = file.Close()
		}
	}
}

// Another checkout, elsewhere and under other Go settings, makes the same
// bytes, as does `make build`.
func TestBuildIsReproducible(t *testing.T) {
	here := buildFunction(t, infra.Aggregator, "arm64")
	elsewhere := filepath.Join(t.TempDir(), "another checkout")
	copySource(t, "..", elsewhere)
	settings := filepath.Join(t.TempDir(), "settings") // as `go env -w` stores them
	if err := os.WriteFile(settings, []byte("GOFLAGS=-gcflags=-N\nGOFIPS140=v1.0.0\nGOARM64=v9.0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOENV", settings)
	t.Chdir(filepath.Join(elsewhere, "infra"))
	if !bytes.Equal(here, buildFunction(t, infra.Aggregator, "arm64")) {
		t.Error("two checkouts make two functions")
	}
	if out, err := exec.Command("make", "-C", elsewhere, "dist/aggregator-arm64/bootstrap").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	made, err := os.ReadFile(filepath.Join(elsewhere, "dist", "aggregator-arm64", "bootstrap"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(here, made) {
		t.Error("make build makes another function than the deployment")
	}
}

// copySource copies what the function is built from.
func copySource(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(from, path)
		switch name := entry.Name(); {
		case entry.IsDir() && (name == "node_modules" || name == "dist" || name == "testdata" || name == "cdk.out" || rel != "." && strings.HasPrefix(name, ".")):
			return filepath.SkipDir
		case entry.IsDir():
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		case strings.HasSuffix(name, "_test.go"), !strings.HasSuffix(name, ".go") && !strings.HasPrefix(name, "go.") && name != "Makefile":
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), text, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
}
