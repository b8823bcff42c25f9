// Package page writes a history and a survey as one page that needs no network
// and no script: charts in SVG, and everything they show in tables too.
package page

import (
	"bytes"
	_ "embed"
	"html/template"
	"io"

	"github.com/shardquota/shardquota/cmd/shardquota/history"
	"github.com/shardquota/shardquota/cmd/shardquota/survey"
)

// Page is what a page shows. All text is taken for what it is, however hostile.
type Page struct {
	Title  string
	Facts  []Fact
	Groups []Group
	Notes  []string // what a reader should know of what is not shown
}

// Fact is one figure at the top of the page.
type Fact struct {
	Label, Value string
	Bad          bool // it is something to be looked at
}

// Group is one entity's use of one resource.
type Group struct {
	Name    string         // as it may be shown
	History *history.Group // nil where nothing is known
	Survey  *survey.Survey // nil where nothing is known
}

//go:embed page.gohtml
var markup string

//go:embed page.css
var sheet string

var layout = template.Must(template.New("page").Parse(markup))

// Write writes the page. Nothing is written where it cannot be made.
func Write(w io.Writer, p Page) error {
	view, err := viewOf(p)
	if err != nil {
		return err
	}
	var whole bytes.Buffer
	if err := layout.Execute(&whole, view); err != nil {
		return err
	}
	_, err = w.Write(whole.Bytes())
	return err
}
