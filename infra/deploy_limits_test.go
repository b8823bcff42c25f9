package infra_test

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/limits/manifest"
	"github.com/shardquota/shardquota/table/dynamo"
)

// checkLimits looks for the declared limits in the table: the function that stores
// them was called as the stack was made. Then CloudFormation changes what is
// declared, and changes it back.
func (d *deployment) checkLimits(t *testing.T) {
	if !functionsRun {
		t.Skip("functions run on Linux alone")
	}
	declared, template := manifestText(t), d.template(t)
	d.checkStored(t, declared)

	team := strings.Index(declared, "  sk-live-team:")
	changed := strings.Replace(declared[:team], "1_000 per minute", "2_000 per minute", 1)
	d.update(t, strings.Replace(template, asJSON(t, declared), asJSON(t, changed), 1))
	d.checkStored(t, changed)
	d.update(t, template)
	d.checkStored(t, declared)
}

// checkStored checks that the limits in the table are those of a manifest.
func (d *deployment) checkStored(t *testing.T, text string) {
	t.Helper()
	l, err := limits.Open(t.Context(), dynamo.New(d.db(), d.output(t, "TableName")))
	if err != nil {
		t.Fatal(err)
	}
	stored, err := manifest.Export(t.Context(), l, "")
	if err != nil {
		t.Fatal(err)
	}
	declared, err := manifest.Read(strings.NewReader(text), limitsFile)
	if err != nil {
		t.Fatal(err)
	}
	if !stored.Equal(declared) {
		t.Fatalf("stored: %v", asJSON(t, stored))
	}
}

// template is that of the stack, as it was synthesised.
func (d *deployment) template(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(d.assembly, "ShardQuota.template.json"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// update has CloudFormation change the stack, which calls for one function. The
// CDK would take longer to ask for it.
func (d *deployment) update(t *testing.T, template string) {
	t.Helper()
	form := url.Values{"Action": {"UpdateStack"}, "Version": {"2010-05-15"}, "StackName": {"ShardQuota"}, "TemplateBody": {template}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.endpoint, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if status, body := d.send(t, "cloudformation", request); status != http.StatusOK {
		t.Fatalf("update: status %d: %s", status, body)
	}
	select {
	case call := <-d.calls:
		d.make(t, call)
	case <-time.After(time.Minute):
		t.Fatal("CloudFormation calls for no function")
	}
}
