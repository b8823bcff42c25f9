package manifest

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/shardquota/shardquota/limits"
)

// maxBytes is how long a manifest may be.
const maxBytes = 16 << 20

// Read reads a manifest in YAML, or in JSON, which is YAML, strictly: an unknown or
// repeated key, a value of another type and a limit that package limits would refuse are
// errors. These begin with name:line:column, hold no entity's id, and wrap
// ErrManifest; those that a limit is the cause of wrap limits.ErrLimit too.
func Read(r io.Reader, name string) (*Manifest, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	file := reader{name: name, manifest: &Manifest{Name: name}, left: len(text) + maxAliased}
	if len(text) > maxBytes {
		return nil, file.fault(1, 1, fmt.Errorf("it is longer than %d MiB", maxBytes>>20))
	}
	root, err := file.parse(text)
	if err != nil {
		return nil, err
	}
	if err := file.root(root); err != nil {
		return nil, err
	}
	slices.SortFunc(file.manifest.Levels, func(a, b Level) int { return limits.CompareLevels(a.At, b.At) })
	return file.manifest, nil
}

// reader reads the nodes of one file to a manifest.
type reader struct {
	name     string
	manifest *Manifest
	left     int // keys and values that may still come
}

// maxAliased bounds how many keys and values aliases add to a file, which holds
// no more than its bytes without them.
const maxAliased = 100_000

// open counts what a mapping or list holds.
func (r *reader) open(n *yaml.Node) error {
	if r.left -= len(n.Content); r.left < 0 {
		return r.at(n, "aliases add more than %d keys and values", maxAliased)
	}
	return nil
}

// fault is an error at a place of a manifest.
type fault struct {
	where string
	cause error
}

func (f *fault) Error() string { return f.where + ": " + f.cause.Error() }

func (f *fault) Unwrap() []error { return []error{ErrManifest, f.cause} }

func (r *reader) fault(line, column int, cause error) error {
	return &fault{fmt.Sprintf("%s:%d:%d", r.name, line, column), cause}
}

// at is an error at a node. What is said must not quote what may be an id.
func (r *reader) at(n *yaml.Node, format string, args ...any) error {
	return r.fault(n.Line, n.Column, fmt.Errorf(format, args...))
}

// parse returns the one document of a file.
func (r *reader) parse(text []byte) (*yaml.Node, error) {
	loader, err := yaml.NewLoader(strings.NewReader(string(text)))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", r.name, err)
	}
	var document, next yaml.Node
	switch err := loader.Load(&document); {
	case errors.Is(err, io.EOF):
		return nil, r.fault(1, 1, errors.New("it is empty"))
	case err != nil:
		return nil, r.syntax(err, text)
	}
	switch err := loader.Load(&next); {
	case err == nil:
		return nil, r.at(&next, "a second document begins")
	case !errors.Is(err, io.EOF):
		return nil, r.syntax(err, text)
	}
	if document.Kind != yaml.DocumentNode || len(document.Content) != 1 {
		return nil, r.at(&document, "it is no document")
	}
	return document.Content[0], nil
}

// quotedText is what an error of the library quotes of the file.
var quotedText = regexp.MustCompile(`["'` + "`" + `].*["'` + "`" + `]`)

// unquotedNick is a nickname of a cron expression, which YAML does not take
// unquoted.
var unquotedNick = regexp.MustCompile(`^@[a-z]+`)

// syntax is an error of the library in a text, without what it quotes.
func (r *reader) syntax(err error, file []byte) error {
	var load *yaml.LoadError
	if !errors.As(err, &load) {
		return r.fault(1, 1, errors.New("it cannot be read as YAML"))
	}
	text := quotedText.ReplaceAllString(load.Message, "…")
	line, column := max(load.Mark.Line, 1), max(load.Mark.Column, 1)
	if lines := strings.Split(string(file), "\n"); line <= len(lines) && column <= len(lines[line-1]) {
		nick := nicknames[unquotedNick.FindString(lines[line-1][column-1:])]
		if nick.cron != "" {
			text += quotaHint(nick.period, "1000000", nick.cron)
		}
	}
	return r.fault(line, column, fmt.Errorf("it is no YAML: %s", text))
}

// pair is a key of a mapping and its value.
type pair struct {
	key   *yaml.Node
	value *yaml.Node
}

// mapping returns what a mapping holds, with known keys only where any are given.
// An unknown one may be an entity's id in the wrong place: it is repeated where it
// is a word of manifests, or nearly one.
func (r *reader) mapping(n *yaml.Node, known ...string) ([]pair, error) {
	return r.keyed(n, nearly, known)
}

// words is a mapping within a limit, where no entity's id belongs: an unknown key
// that is a word is repeated.
func (r *reader) words(n *yaml.Node, known ...string) ([]pair, error) {
	return r.keyed(n, func(key string) bool { return word.MatchString(key) || nearly(key) }, known)
}

var word = regexp.MustCompile(`^[A-Za-z_]{1,20}$`)

// vocabulary are the words of manifests.
var vocabulary = []string{
	"namespace", "system", "resources", "entities", "limits", "access", "cascade", "enabled", "disabled", "bypass",
	"capacity", "refill", "period", "resets", "window", "schedule", "zone", "soft", "division", "cron", "scale",
}

// nearly reports whether a text is a word of manifests but for a letter that is
// missing, that is too much or that is another, and case.
func nearly(text string) bool {
	return slices.ContainsFunc(vocabulary, func(word string) bool {
		a, b := strings.ToLower(text), word
		for a != "" && b != "" && a[0] == b[0] {
			a, b = a[1:], b[1:]
		}
		for a != "" && b != "" && a[len(a)-1] == b[len(b)-1] {
			a, b = a[:len(a)-1], b[:len(b)-1]
		}
		return len(a) <= 1 && len(b) <= 1
	})
}

// keyed is a mapping of whose unknown keys those that are safe are repeated.
func (r *reader) keyed(n *yaml.Node, safe func(key string) bool, known []string) ([]pair, error) {
	if n = resolved(n); n.Kind != yaml.MappingNode {
		return nil, r.at(n, "a mapping belongs here, not %s", kindOf(n))
	}
	if err := r.open(n); err != nil {
		return nil, err
	}
	var pairs []pair
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := resolved(n.Content[i]), n.Content[i+1]
		switch line, twice := seen[key.Value]; {
		case key.Kind != yaml.ScalarNode || key.ShortTag() == "!!null" || key.Style&yaml.TaggedStyle != 0:
			return nil, r.at(n.Content[i], "a key is a text, not %s", kindOf(key))
		case twice:
			return nil, r.at(n.Content[i], "the key is there twice, first on line %d", line)
		case len(known) > 0 && !slices.Contains(known, key.Value):
			name := ""
			if safe(key.Value) {
				name = fmt.Sprintf(" %q", key.Value)
			}
			return nil, r.at(n.Content[i], "unknown key%s; there may be %s", name, strings.Join(known, ", "))
		}
		seen[key.Value] = n.Content[i].Line
		pairs = append(pairs, pair{&yaml.Node{Value: key.Value, Line: n.Content[i].Line, Column: n.Content[i].Column}, value})
	}
	return pairs, nil
}

// resolved is what a node stands for.
func resolved(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode && n.Alias != nil {
		n = n.Alias
	}
	return n
}

// kindOf says what a node is.
func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.ShortTag() {
	case "!!null":
		return "nothing"
	case "!!str":
		return "a text"
	case "!!int", "!!float":
		return "a number"
	case "!!bool":
		return "true or false"
	}
	return "a value of another type"
}

func (r *reader) root(n *yaml.Node) error {
	pairs, err := r.mapping(n, "namespace", "system", "resources", "entities")
	if err != nil {
		return err
	}
	for _, p := range pairs {
		switch p.key.Value {
		case "namespace":
			r.manifest.Namespace, err = r.text(p.value)
		case "system":
			err = r.level(p.key, limits.ForAll(), p.value, "limits")
		case "resources":
			err = r.resources(p.value, limits.ForResource)
		case "entities":
			err = r.entities(p.value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// resources reads the levels of resources.
func (r *reader) resources(n *yaml.Node, level func(resource string) limits.Level) error {
	pairs, err := r.mapping(n)
	if err != nil {
		return err
	}
	for _, p := range pairs {
		if limits.ForResource(p.key.Value).Check() != nil {
			return r.at(p.key, "a resource has up to 64 letters, digits and _ . - / : with a letter first")
		}
		if err := r.level(p.key, level(p.key.Value), p.value, levelKeys...); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) entities(n *yaml.Node) error {
	pairs, err := r.mapping(n)
	if err != nil {
		return err
	}
	for _, p := range pairs {
		if limits.ForEntity(p.key.Value).Check() != nil {
			return r.at(p.key, "an entity's id has up to 256 letters, digits and _ . - : @, a letter or digit first")
		}
		if err := r.entity(p.key, p.value); err != nil {
			return err
		}
	}
	return nil
}

// entity reads the levels of an entity: its own, where it says anything, and those
// of its resources.
func (r *reader) entity(id, n *yaml.Node) error {
	pairs, err := r.mapping(n, append(slices.Clone(levelKeys), "resources")...)
	if err != nil {
		return err
	}
	own := slices.IndexFunc(pairs, func(p pair) bool { return p.key.Value == "resources" })
	if own < 0 {
		return r.level(id, limits.ForEntity(id.Value), n, levelKeys...)
	}
	if err := r.resources(pairs[own].value, func(resource string) limits.Level { return limits.For(id.Value, resource) }); err != nil {
		return err
	}
	if len(pairs) == 1 {
		return nil
	}
	return r.rules(id, limits.ForEntity(id.Value), slices.Delete(pairs, own, own+1))
}

// levelKeys are what a level may say.
var levelKeys = []string{"limits", "access", "cascade"}

func (r *reader) level(key *yaml.Node, at limits.Level, n *yaml.Node, known ...string) error {
	pairs, err := r.mapping(n, known...)
	if err != nil {
		return err
	}
	return r.rules(key, at, pairs)
}

var accesses = map[string]limits.Access{"enabled": limits.Enabled, "disabled": limits.Disabled, "bypass": limits.Bypass}

// rules reads what a level says.
func (r *reader) rules(key *yaml.Node, at limits.Level, pairs []pair) error {
	if len(pairs) == 0 {
		return r.at(key, "it says nothing: leave it out")
	}
	level := Level{At: at, Line: key.Line}
	for _, p := range pairs {
		var err error
		switch p.key.Value {
		case "limits":
			level.Limits, err = r.limits(p.value)
		case "access":
			level.Access, err = choice(r, p.value, accesses)
		case "cascade":
			var cascade bool
			cascade, err = r.flag(p.value)
			level.Cascade = &cascade
		}
		if err != nil {
			return err
		}
	}
	r.manifest.Levels = append(r.manifest.Levels, level)
	return nil
}
