// Package house holds the tests of the structure that docs/architecture.md
// describes: who may import whom, how large a package may be, and that each has
// a comment.
package house

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	root   = "../.."
	module = "github.com/shardquota/shardquota/"

	largest = 12 // % of all lines that a package may have
)

// source is a package as its files have it.
type source struct {
	name    string // its path below the module's
	imports map[string]bool
	lines   int // of files that are not tests
	comment bool
}

// sources reads all packages of the repository, those of infra included.
func sources(t *testing.T) map[string]*source {
	t.Helper()
	found := map[string]*source{}
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := entry.Name()
		if entry.IsDir() && file != root && (base == "node_modules" || base == "testdata" || base == "cdk.out" || strings.HasPrefix(base, ".")) {
			return fs.SkipDir
		}
		if !entry.IsDir() && strings.HasSuffix(base, ".go") {
			return add(found, file)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func add(found map[string]*source, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	parsed, err := parser.ParseFile(token.NewFileSet(), file, text, parser.ImportsOnly|parser.ParseComments)
	if err != nil {
		return err
	}
	dir, err := filepath.Rel(root, filepath.Dir(file))
	if err != nil {
		return err
	}
	name := filepath.ToSlash(dir)
	p := found[name]
	if p == nil {
		p = &source{name: name, imports: map[string]bool{}}
		found[name] = p
	}
	p.comment = p.comment || described(parsed)
	if strings.HasSuffix(file, "_test.go") {
		return nil
	}
	p.lines += bytes.Count(text, []byte("\n"))
	for _, spec := range parsed.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return err
		}
		p.imports[imported] = true
	}
	return nil
}

// described reports whether a file has its package's comment.
func described(file *ast.File) bool {
	text := file.Doc.Text()
	return strings.HasPrefix(text, "Package "+file.Name.Name+" ") || file.Name.Name == "main" && strings.HasPrefix(text, "Command ")
}

// row matches a row of the document's table: a package, what it holds, and what it
// may import.
var (
	row    = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| [^|]* \\|([^|]*)\\|$")
	quoted = regexp.MustCompile("`([^`]+)`")
)

// rules reads from the document what each package may import: patterns by pattern.
func rules(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	allowed := map[string][]string{}
	for _, match := range row.FindAllStringSubmatch(string(text), -1) {
		allowed[match[1]] = []string{}
		for _, name := range quoted.FindAllStringSubmatch(match[2], -1) {
			allowed[match[1]] = append(allowed[match[1]], name[1])
		}
	}
	return allowed
}

// ruleOf returns what a package may import; ok is false where no row is about it.
func ruleOf(allowed map[string][]string, name string) (patterns []string, ok bool) {
	if patterns, ok = allowed[name]; ok {
		return patterns, true
	}
	for about, patterns := range allowed {
		if matches(about, name) {
			return patterns, true
		}
	}
	return nil, false
}

func matches(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return ok && err == nil || pattern == "*"
}

// broken returns how imports break the rules, sorted.
func broken(allowed map[string][]string, packages map[string]*source) []string {
	var wrong []string
	for _, p := range packages {
		patterns, ok := ruleOf(allowed, p.name)
		if !ok {
			wrong = append(wrong, p.name+" has no row in docs/architecture.md")
			continue
		}
		for imported := range p.imports {
			ours, isOurs := strings.CutPrefix(imported, module)
			if isOurs && !slices.ContainsFunc(patterns, func(pattern string) bool { return matches(pattern, ours) }) {
				wrong = append(wrong, p.name+" must not import "+ours)
			}
			if imported == sdkTypes && !matches("internal/*", p.name) && p.name != "table" && path.Dir(p.name) != "table" {
				wrong = append(wrong, p.name+" must not import "+sdkTypes)
			}
		}
	}
	slices.Sort(wrong)
	return wrong
}

const sdkTypes = "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

func TestImports(t *testing.T) {
	allowed, packages := rules(t), sources(t)
	if len(allowed) < 20 || len(packages) < 30 {
		t.Fatalf("only %d rules, %d packages", len(allowed), len(packages))
	}
	for _, wrong := range broken(allowed, packages) {
		t.Error(wrong)
	}
	for about := range allowed {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(packages)), func(name string) bool { return matches(about, name) }) {
			t.Errorf("docs/architecture.md has a row about %s, which is no package", about)
		}
	}
}

// The rules find what breaks them.
func TestImportsThatBreakTheRules(t *testing.T) {
	allowed := map[string][]string{"quota": {}, "table": {"quota"}, "cmd/tool": {"table", "cmd/tool/*"}, "internal/*": {"*"}}
	packages := map[string]*source{}
	for name, imports := range map[string][]string{
		"quota":         {"fmt", module + "table"},
		"table":         {module + "quota", sdkTypes},
		"cmd/tool":      {module + "cmd/tool/page", module + "internal/kit", sdkTypes},
		"internal/kit":  {module + "cmd/tool", sdkTypes},
		"cmd/tool/page": nil,
	} {
		packages[name] = &source{name: name, imports: map[string]bool{}}
		for _, imported := range imports {
			packages[name].imports[imported] = true
		}
	}
	want := []string{
		"cmd/tool must not import " + sdkTypes,
		"cmd/tool must not import internal/kit",
		"cmd/tool/page has no row in docs/architecture.md",
		"quota must not import table",
	}
	if got := broken(allowed, packages); !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}

// No package is so large that nobody knows where in it to look.
func TestSizes(t *testing.T) {
	packages, all := sources(t), 0
	for _, p := range packages {
		all += p.lines
	}
	for _, p := range packages {
		if 100*p.lines > largest*all {
			t.Errorf("%s has %d of %d lines, more than %d %%", p.name, p.lines, all, largest)
		}
	}
}

func TestEveryPackageHasAComment(t *testing.T) {
	for _, p := range sources(t) {
		if !p.comment {
			t.Errorf("%s has no comment that begins with its name", p.name)
		}
	}
}

// list is a variable of the Makefile that names tests, and run the command that
// runs them.
var (
	list  = regexp.MustCompile(`(?m)^SERIAL := \^\(((?:.*\$\\\n\t)*.*)\)\$\$$`)
	where = regexp.MustCompile(`(?m)^SERIAL_IN := (.*)$`)
)

// Each test that the Makefile runs without the race detector is there: under
// another name it would run with it, and its pattern run nothing.
func TestSerialTestsExist(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	names, dirs := list.FindSubmatch(text), where.FindSubmatch(text)
	if names == nil || dirs == nil {
		t.Fatal("the Makefile has no SERIAL and SERIAL_IN")
	}
	var tests bytes.Buffer
	for _, dir := range strings.Fields(string(dirs[1])) {
		files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
		if err != nil || len(files) == 0 {
			t.Errorf("SERIAL_IN: %s has no tests (%v)", dir, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			tests.Write(text)
		}
	}
	for _, name := range strings.Split(strings.NewReplacer("$\\\n\t", "").Replace(string(names[1])), "|") {
		if !bytes.Contains(tests.Bytes(), fmt.Appendf(nil, "\nfunc %s(t *testing.T)", name)) {
			t.Errorf("SERIAL names %q, which is no test of SERIAL_IN", name)
		}
	}
}
