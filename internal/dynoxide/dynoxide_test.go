package dynoxide

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

func TestStartServes(t *testing.T) {
	client := Client(t)
	name := NewTable(t, client)
	output, err := client.DescribeTable(t.Context(), &dynamodb.DescribeTableInput{TableName: &name})
	if err != nil || *output.Table.TableName != name {
		t.Errorf("got %v, %v", output, err)
	}
	if again := Start(t); again != Start(t) {
		t.Errorf("another endpoint: %s", again)
	}
}

func TestNamesAreUnique(t *testing.T) {
	if a, b := Name(), Name(); a == b {
		t.Errorf("%s twice", a)
	}
}

func TestPlatform(t *testing.T) {
	for want, at := range map[string][2]string{
		"linux-x64": {"linux", "amd64"}, "linux-arm64": {"linux", "arm64"}, "darwin-arm64": {"darwin", "arm64"}, "win32-x64": {"windows", "amd64"},
	} {
		if got := platform(at[0], at[1]); got != want {
			t.Errorf("%v is %s, not %s", at, got, want)
		}
	}
}

func TestFind(t *testing.T) {
	root := t.TempDir()
	deep := filepath.Join(root, "a", "b")
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Chdir(deep)
	t.Setenv(envBinary, "")
	if path, err := find(); !errors.Is(err, errMissing) {
		t.Errorf("found %s, %v where nothing is installed", path, err)
	}
	installed := filepath.Join(root, "node_modules", "@dynoxide", current, "dynoxide")
	if err := os.MkdirAll(filepath.Dir(installed), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(installed, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if path, err := find(); err != nil || !sameFile(t, path, installed) {
		t.Errorf("found %s, %v", path, err)
	}
	t.Setenv(envBinary, filepath.Join(root, "nowhere"))
	if path, err := find(); err == nil || errors.Is(err, errMissing) {
		t.Errorf("found %s, %v where the variable is wrong", path, err)
	}
}

func sameFile(t *testing.T, a, b string) bool {
	t.Helper()
	first, err := os.Stat(a)
	if err != nil {
		t.Fatal(err)
	}
	second, err := os.Stat(b)
	if err != nil {
		t.Fatal(err)
	}
	return os.SameFile(first, second)
}
