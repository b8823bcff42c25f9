// Package resource is the CloudFormation custom resource that stores the limits
// of a manifest in a table, as a template and the function behind it know it.
package resource

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/limits/manifest"
)

// Type is the resource's type in a template.
const Type = "Custom::ShardQuotaLimits"

// Operations and IndexOperations are the IAM actions that storing limits needs on
// the table, and on its Indexes.
var (
	Operations = []string{
		"dynamodb:BatchGetItem",
		"dynamodb:DeleteItem",
		"dynamodb:GetItem",
		"dynamodb:PutItem",
		"dynamodb:UpdateItem",
	}
	IndexOperations = []string{"dynamodb:Query"}
	Indexes         = []string{"GSI2", "GSI3", "GSI4"}
)

// Properties are those of the resource, by the names that they have in a template.
type Properties struct {
	Table     string // its name
	Namespace string // by name
	Manifest  string // the text
	File      string // what errors call the manifest
}

// MaxManifest is how long a manifest may be, in bytes as JSON writes it. The
// request for an update holds two, and CloudFormation has to fit it into the
// 256 KiB that Lambda takes of an event that nobody waits for.
const MaxManifest = 120_000

// New returns the properties for a manifest, given its text and what errors are to
// call it, but for the table. If no namespace is given it is the manifest's own,
// or else the default one. The error is that of Check.
func New(text, file, namespace string) (Properties, error) {
	p := Properties{Namespace: namespace, Manifest: text, File: file}
	m, err := p.read()
	if err != nil {
		return p, err
	}
	if p.Namespace == "" {
		p.Namespace = m.Namespace
	}
	if p.Namespace == "" {
		p.Namespace = limits.DefaultNamespace
	}
	return p, p.suits(m)
}

// Check returns the manifest, or what is wrong with it. The error names the file,
// where it can the line and column, and no entity.
func (p Properties) Check() (*manifest.Manifest, error) {
	m, err := p.read()
	if err != nil {
		return nil, err
	}
	return m, p.suits(m)
}

func (p Properties) read() (*manifest.Manifest, error) {
	text, err := json.Marshal(p.Manifest)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.File, err)
	}
	if len(text) > MaxManifest {
		return nil, fmt.Errorf("%s: as JSON it has %d bytes, more than the %d that a custom resource can be sent", p.File, len(text), MaxManifest)
	}
	return manifest.Read(strings.NewReader(p.Manifest), p.File)
}

var namespaceName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.\-]{0,63}$`)

// suits reports a namespace that is none, or not the manifest's.
func (p Properties) suits(m *manifest.Manifest) error {
	if !namespaceName.MatchString(p.Namespace) {
		return fmt.Errorf("%s: the namespace %.80q is none: a name is a letter and up to 63 letters, digits and _ . -", p.File, p.Namespace)
	}
	if m.Namespace != "" && m.Namespace != p.Namespace {
		return fmt.Errorf("%s: it is for the namespace %.80q, not for %.80q", p.File, m.Namespace, p.Namespace)
	}
	return nil
}

// ID is the resource's physical id. It says which table and namespace it is
// about: another one makes it another resource, which CloudFormation removes the
// old one for.
func (p Properties) ID() string { return p.Table + "/" + p.Namespace }

// Decode takes the properties from a request. What else it holds, such as the
// function's name, is CloudFormation's.
func Decode(properties map[string]any) (Properties, error) {
	var p Properties
	for name, to := range map[string]*string{"Table": &p.Table, "Namespace": &p.Namespace, "Manifest": &p.Manifest, "File": &p.File} {
		text, ok := properties[name].(string)
		if !ok || text == "" {
			return Properties{}, fmt.Errorf("property %s: it is missing, or no text", name)
		}
		*to = text
	}
	return p, nil
}
