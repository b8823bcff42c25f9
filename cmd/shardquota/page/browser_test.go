package page_test

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	protocol "github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	cdp "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/shardquota/shardquota/cmd/shardquota/page"
)

// Environment variables that steer these tests.
const (
	envChromium = "SHARDQUOTA_CHROMIUM"         // the browser's path
	envRequire  = "SHARDQUOTA_REQUIRE_CHROMIUM" // a missing browser fails the tests
)

// browser starts Chromium, or skips the test where there is none.
func browser(t *testing.T) context.Context {
	t.Helper()
	if testing.Short() {
		t.Skip("it needs Chromium, which -short leaves out")
	}
	path, err := chromium()
	if err != nil && os.Getenv(envRequire) == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		chromedp.WSURLReadTimeout(time.Minute))
	allocated, stop := chromedp.NewExecAllocator(t.Context(), options...)
	ctx, quit := chromedp.NewContext(allocated)
	t.Cleanup(func() {
		quit()
		stop()
	})
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start %s: %v", path, err)
	}
	return ctx
}

func chromium() (string, error) {
	if path := os.Getenv(envChromium); path != "" {
		return path, nil
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("there is no Chromium: install one (apt-get install chromium), or name it by " + envChromium)
}

// setting is how a page is looked at.
type setting struct {
	scheme string
	width  int64
	media  string
	shown  string // the variant of charts that is to be seen
}

var settings = []setting{
	{"light", 1100, "screen", "light wide"},
	{"dark", 1100, "screen", "dark wide"},
	{"light", 360, "screen", "light narrow"},
	{"dark", 360, "screen", "dark narrow"},
	{"dark", 1100, "print", "light wide"}, // paper is white
}

// seen is what look.js finds on a page.
type seen struct {
	Overflow int // pixels by which the page is wider than the screen
	Faint    []string
	Texts    int // text nodes whose contrast was looked at
	Charts   []struct {
		Name, Shown   string
		Visible       int
		Width, Height float64
	}
	Tables   map[string][]string // rows as text, by caption
	Unnamed  []string            // what a screen reader has no name for
	Actives  []string            // elements and attributes that could run something
	Tiny     []string            // text of less than 9 pixels
	Focus    int                 // elements that the keyboard reaches
	Title    string
	Headings []string
	Images   []string `json:"-"` // names, as a screen reader is told them

	Incidents []string `json:"-"` // what it fetched, ran or had the browser complain about
}

//go:embed testdata/look.js
var look string

// Every page, in both schemes and on a wide and a narrow screen: nothing is
// fetched, nothing runs, nothing is wider than the screen, all text can be read
// and every chart is seen in its right variant and has a name.
func TestInABrowser(t *testing.T) {
	ctx := browser(t)
	for name, p := range map[string]page.Page{
		"quota-walk": recorded(t, "quota-walk"), "session": recorded(t, "session"), "doublings": doublings(t), "hostile": hostile(t),
	} {
		url := written(t, p)
		for _, s := range settings {
			t.Run(fmt.Sprintf("%s %s %d %s", name, s.scheme, s.width, s.media), func(t *testing.T) {
				found := visit(t, ctx, url, s)
				s.check(t, found)
				if found.Title != p.Title || found.Headings[1] == "" {
					t.Errorf("title %q, headings %q", found.Title, found.Headings)
				}
				if want := expected[name]; want.caption != "" && !contains(found.Tables[want.caption], want.row) {
					t.Errorf("table %q does not hold %q: %q", want.caption, want.row, found.Tables[want.caption])
				}
			})
		}
	}
}

// expected is a row of figures that a page must hold.
var expected = map[string]struct{ caption, row string }{
	"quota-walk": {"Ledger of quotas, this period, in tokens", "calls|40000|40000|0|35113|0|conserved"},
	"session":    {"Ledger of quotas, this period, in tokens", "sess|4000|4000|0|3635|0|conserved"},
	"doublings":  {"What happened", "12:04:10|doubled from 16 shards to 32|0"},
	"hostile":    {"Ledger of quotas, this period, in tokens", hostileLimit},
}

func contains(rows []string, part string) bool {
	return strings.Contains(strings.Join(rows, "\n"), part)
}

func written(t *testing.T, p page.Page) (url string) {
	t.Helper()
	var text bytes.Buffer
	if err := page.Write(&text, p); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(file, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return "file://" + file
}

// visit opens a page in a tab of its own and looks at it.
func visit(t *testing.T, browser context.Context, url string, s setting) seen {
	t.Helper()
	ctx, leave := chromedp.NewContext(browser)
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var incidents incidents
	if err := errors.Join(s.prepare(ctx), chromedp.Listen(ctx, incidents.note(url)), chromedp.Do(ctx, chromedp.Navigate(url))); err != nil {
		t.Fatal(err)
	}
	found, err := chromedp.Run(ctx, chromedp.Evaluate[seen](look))
	if err != nil {
		t.Fatal(err)
	}
	if s == settings[0] { // it takes long, and is the same in all of them
		if found.Images, err = images(ctx); err != nil {
			t.Fatal(err)
		}
	}
	found.Incidents = incidents.all()
	return found
}

// prepare makes the browser's window what the setting says.
func (s setting) prepare(ctx context.Context) error {
	_, size := chromedp.Call(ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: s.width, Height: 900, DeviceScaleFactor: 1,
	})
	_, scheme := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Media:    s.media,
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: s.scheme}},
	})
	_, net := chromedp.Call(ctx, network.Enable, network.EnableParams{})
	_, logs := chromedp.Call(ctx, log.Enable, protocol.Empty{})
	return errors.Join(size, scheme, net, logs)
}

// images are the names of what the browser tells a screen reader is an image.
func images(ctx context.Context) ([]string, error) {
	tree, err := chromedp.Call(ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	var names []string
	for _, node := range tree.Nodes {
		if node.Ignored || node.Role == nil || string(node.Role.Value) != `"image"` {
			continue
		}
		var name string
		if node.Name != nil {
			err = errors.Join(err, json.Unmarshal(node.Name.Value, &name))
		}
		names = append(names, name)
	}
	return names, err
}

// incidents are what a page did that none is to do.
type incidents struct {
	mu    sync.Mutex
	found []string
}

func (i *incidents) note(url string) func(any) {
	return func(event any) {
		i.mu.Lock()
		defer i.mu.Unlock()
		switch e := event.(type) {
		case *network.EventRequestWillBeSent:
			if e.Request.URL != url {
				i.found = append(i.found, "the page requested "+e.Request.URL)
			}
		case *runtime.EventConsoleAPICalled:
			i.found = append(i.found, "the page wrote to the console")
		case *runtime.EventExceptionThrown:
			i.found = append(i.found, "the page threw "+e.ExceptionDetails.Text)
		case *log.EventEntryAdded:
			i.found = append(i.found, "the browser complains: "+e.Entry.Text)
		case *cdp.EventJavascriptDialogOpening:
			i.found = append(i.found, "the page opened a dialog")
		}
	}
}

func (i *incidents) all() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.found
}

func (s setting) check(t *testing.T, found seen) {
	t.Helper()
	if found.Overflow > 0 {
		t.Errorf("the page is %d pixels wider than the screen", found.Overflow)
	}
	for what, list := range map[string][]string{
		"contrast below 4.5": found.Faint, "no accessible name": found.Unnamed, "could run": found.Actives, "text too small": found.Tiny, "incidents": found.Incidents,
	} {
		if len(list) > 0 {
			t.Errorf("%s: %q", what, list[:min(len(list), 5)])
		}
	}
	if found.Texts < 40 || len(found.Charts) == 0 || found.Focus == 0 {
		t.Errorf("%d texts, %d charts and %d stops for the keyboard: too few to say anything", found.Texts, len(found.Charts), found.Focus)
	}
	if s == settings[0] && (len(found.Images) != len(found.Charts) || slices.Contains(found.Images, "")) {
		t.Errorf("a screen reader is told of the images %q; there are %d charts", found.Images, len(found.Charts))
	}
	for _, chart := range found.Charts {
		scheme, _, _ := strings.Cut(s.shown, " ")
		if chart.Visible != 1 || chart.Shown != s.shown && chart.Shown != scheme+" tiny" {
			t.Errorf("of chart %q %d variants are visible, %q; want %q or tiny", chart.Name, chart.Visible, chart.Shown, s.shown)
		}
		if chart.Width < 100 || chart.Height < 25 {
			t.Errorf("chart %q is %v by %v", chart.Name, chart.Width, chart.Height)
		}
	}
}

// A page that does what none may do is found out: the checks are no good if they
// cannot fail.
func TestTheChecksFindFault(t *testing.T) {
	ctx := browser(t)
	var text bytes.Buffer
	if err := page.Write(&text, recorded(t, "session")); err != nil {
		t.Fatal(err)
	}
	bad := strings.Replace(text.String(), "<main>", `<main><p style="color:#999">faint</p><p style="width:2000px">wide</p>`+
		`<div class="chart" role="img"></div><p style="font-size:6px">small</p><b onclick="y">z</b>`, 1)
	file := filepath.Join(t.TempDir(), "bad.html")
	if err := os.WriteFile(file, []byte(bad), 0o600); err != nil {
		t.Fatal(err)
	}
	found := visit(t, ctx, "file://"+file, settings[0])
	if len(found.Incidents) != 1 || !strings.Contains(found.Incidents[0], "inline event handler") {
		t.Errorf("incidents %q, want that the handler was blocked", found.Incidents)
	}
	if found.Overflow == 0 || len(found.Faint) != 1 || len(found.Unnamed) != 1 || len(found.Tiny) != 1 || len(found.Actives) != 1 {
		t.Errorf("overflow %d, faint %q, unnamed %q, tiny %q, active %q; want one of each",
			found.Overflow, found.Faint, found.Unnamed, found.Tiny, found.Actives)
	}
}
