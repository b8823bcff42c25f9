package page_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/shardquota/shardquota/cmd/shardquota/page"
	"github.com/shardquota/shardquota/internal/fixture"
)

var update = flag.Bool("update", false, "write the golden pages anew; review every line that changes")

var (
	drawing = regexp.MustCompile(`(?s)<svg.*?</svg>`)
	style   = regexp.MustCompile(`(?s)<style>.*?</style>`)
)

// Everything on a page but the drawings and the style sheet, as it was reviewed.
func TestStructure(t *testing.T) {
	for name, p := range map[string]page.Page{"quota-walk": recorded(t, "quota-walk"), "session": recorded(t, "session"), "hostile": hostile(t)} {
		t.Run(name, func(t *testing.T) {
			got := drawing.ReplaceAllString(style.ReplaceAllString(html(t, p), ""), "<svg>")
			path := filepath.Join("testdata", name+".html")
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("the page differs from %s:\n%s", path, difference(string(want), got))
			}
		})
	}
}

func html(t testing.TB, p page.Page) string {
	t.Helper()
	var text bytes.Buffer
	if err := page.Write(&text, p); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// difference is the first line in which two texts differ.
func difference(want, got string) string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return "want " + a[i] + "\n got " + b[i]
		}
	}
	return "one is longer than the other"
}

// The same history makes the same page, to the byte.
func TestTheSamePageTwice(t *testing.T) {
	if first, second := html(t, replayed(t, "session")), html(t, replayed(t, "session")); first != second {
		t.Error("two pages of one recording differ")
	}
}

// A page is itself alone: it names no address but that of the SVG language, and
// nothing on it runs.
func TestSelfContained(t *testing.T) {
	for name, p := range map[string]page.Page{"session": recorded(t, "session"), "doublings": doublings(t)} {
		text := html(t, p)
		text = strings.NewReplacer("http://www.w3.org/2000/svg", "", "http://www.w3.org/1999/xlink", "").Replace(text)
		for _, not := range []string{"http:", "https:", "//", "<script", "@import", "url(", "src=", "javascript:"} {
			if strings.Contains(text, not) {
				t.Errorf("the page of %s holds %q", name, not)
			}
		}
		if size := len(text); size > 1<<20 {
			t.Errorf("the page of %s has %d bytes", name, size)
		}
	}
}

// A page with nothing to draw is a page nevertheless.
func TestEmptyPages(t *testing.T) {
	for _, p := range []page.Page{{}, {Title: "nothing"}, {Groups: []page.Group{{Name: "entity-1"}}}} {
		if text := html(t, p); !strings.Contains(text, "</html>") {
			t.Errorf("cut short: %q", text)
		}
	}
}

// What is written of one slot only is a whole chart, too.
func TestOneWrite(t *testing.T) {
	w := &walk{t: t}
	w.builder.Observe(fixture.Noon, nil, w0(t).Image())
	text := html(t, page.Page{Groups: []page.Group{{Name: "entity-1", History: w.builder.Histories()[0]}}})
	if want := "3200000 at 12:00:00, 3200000 at 12:00:00, on 1 shard at the end"; !strings.Contains(text, want) {
		t.Errorf("does not hold %q", want)
	}
	if strings.Contains(text, "NaN") || strings.Contains(text, "-2147483648") {
		t.Error("a coordinate is no number")
	}
}
