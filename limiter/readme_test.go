package limiter_test

import (
	"os"
	"strings"
	"testing"
)

// The example in README is the one that is compiled and run here.
func TestReadmeHasTheExample(t *testing.T) {
	code, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(code), "func Example() {\n")
	body, _, found := strings.Cut(body, "\t// Output:")
	var want strings.Builder
	for line := range strings.Lines(body) {
		want.WriteString("    " + strings.ReplaceAll(strings.TrimPrefix(line, "\t"), "\t", "    "))
	}
	if !found || !strings.Contains(string(readme), want.String()) {
		t.Errorf("README does not have\n%s", want.String())
	}
	if lines := strings.Count(want.String(), "\n"); lines > 25 {
		t.Errorf("the example has %d lines", lines)
	}
}
