package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/cfn"

	"github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/limits/manifest"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/memory"
)

// secretMark is in every entity id of these tests, so that one look at what was
// answered and logged tells whether an id got out.
const secretMark = "sk-live-"

// now is the time in these tests.
func now() time.Time { return time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC) }

// world is a table, the function, and CloudFormation.
type world struct {
	t       *testing.T
	table   table.Client
	handler handler
	answers *answers
	log     *bytes.Buffer
}

// answers are what CloudFormation is told, in a bucket of S3.
type answers struct {
	*httptest.Server
	last    chan []byte
	logical string // the resource's logical id
}

const logicalID = "LimitsLimits1234"

func newAnswers(t *testing.T) *answers {
	t.Helper()
	a := &answers{last: make(chan []byte, 1), logical: logicalID}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Method != http.MethodPut || r.Header.Get("Content-Type") != "" { // that is what the URL is signed for
			w.WriteHeader(http.StatusForbidden)
			return
		}
		a.last <- body
	}))
	t.Cleanup(a.Close)
	return a
}

func newWorld(t *testing.T) *world { return worldOn(t, memory.New().Client()) }

func worldOn(t *testing.T, client table.Client) *world {
	t.Helper()
	w := &world{t: t, table: client, answers: newAnswers(t), log: new(bytes.Buffer)}
	w.handler = handler{
		open: func(string) table.Client { return w.table },
		now:  now, reserve: time.Second,
		log: slog.New(slog.NewJSONHandler(w.log, nil)),
	}
	t.Cleanup(func() {
		if strings.Contains(w.log.String(), secretMark) {
			t.Errorf("an entity is named in the log: %s", w.log)
		}
	})
	return w
}

// properties are those of the resource for a manifest.
func properties(text string) map[string]any {
	return map[string]any{
		"ServiceToken": "arn:aws:lambda:eu-west-1:111122223333:function:limits", "ServiceTimeout": "1500",
		"Table": "limits", "Namespace": "default", "File": "limits.yaml", "Manifest": text,
	}
}

// with returns properties of which one is another.
func with(properties map[string]any, name, value string) map[string]any {
	other := maps.Clone(properties)
	other[name] = value
	return other
}

// request is an event as CloudFormation sends it.
func (a *answers) request(kind cfn.RequestType, id string, now, old map[string]any) cfn.Event {
	return cfn.Event{
		RequestType: kind, RequestID: "a1b2c3", ResponseURL: a.URL + "/answer?signed=1", ResourceType: "Custom::ShardQuotaLimits",
		PhysicalResourceID: id, LogicalResourceID: a.logical,
		StackID:            "arn:aws:cloudformation:eu-west-1:111122223333:stack/ShardQuota/c0ffee",
		ResourceProperties: now, OldResourceProperties: old,
	}
}

// answer is what CloudFormation was told. It has been told once.
func (a *answers) answer(t *testing.T) cfn.Response {
	t.Helper()
	select {
	case body := <-a.last:
		if len(body) > 4096 {
			t.Errorf("the answer has %d bytes", len(body))
		}
		if bytes.Contains(body, []byte(secretMark)) {
			t.Errorf("the answer names an entity: %s", body)
		}
		var response cfn.Response
		if err := json.Unmarshal(body, &response); err != nil {
			t.Fatal(err)
		}
		if response.RequestID != "a1b2c3" || response.LogicalResourceID != a.logical || !strings.HasSuffix(response.StackID, "c0ffee") {
			t.Errorf("the answer is to another request: %s", body)
		}
		return response
	default:
		t.Fatal("no answer")
		panic("unreachable")
	}
}

// ask has the function do a request, within a time, and returns the answer.
func (w *world) ask(kind cfn.RequestType, id string, now, old map[string]any) cfn.Response {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	return w.askIn(ctx, kind, id, now, old)
}

func (w *world) askIn(ctx context.Context, kind cfn.RequestType, id string, now, old map[string]any) cfn.Response {
	w.t.Helper()
	if _, err := cfn.LambdaWrap(w.handler.handle)(ctx, w.answers.request(kind, id, now, old)); err != nil {
		w.t.Fatal(err)
	}
	return w.answers.answer(w.t)
}

// succeeds checks that a request was done, for the resource of that id.
func (w *world) succeeds(answer cfn.Response, id string) {
	w.t.Helper()
	if answer.Status != cfn.StatusSuccess || answer.PhysicalResourceID != id {
		w.t.Fatalf("%s of %q, not success of %q: %s", answer.Status, answer.PhysicalResourceID, id, answer.Reason)
	}
}

// fails checks that a request failed for a reason, and that the id is this.
func (w *world) fails(answer cfn.Response, id string, reasons ...string) {
	w.t.Helper()
	if answer.Status != cfn.StatusFailed || answer.PhysicalResourceID != id {
		w.t.Errorf("%s of %q, not failure of %q", answer.Status, answer.PhysicalResourceID, id)
	}
	for _, reason := range reasons {
		if !strings.Contains(answer.Reason, reason) {
			w.t.Errorf("the reason is %q, without %q", answer.Reason, reason)
		}
	}
}

// limits works on the table as an operator does.
func (w *world) limits(namespace string) *limits.Store {
	w.t.Helper()
	store, err := limits.Open(w.t.Context(), w.table, limits.Namespace(namespace), limits.Clock(now))
	if err != nil {
		w.t.Fatal(err)
	}
	return store
}

// stores checks that a namespace's limits are those that a manifest declares, and
// that they are written down as a manifest that says the same.
func (w *world) stores(namespace, text string) {
	w.t.Helper()
	stored, err := manifest.Export(w.t.Context(), w.limits(namespace), "")
	if err != nil {
		w.t.Fatal(err)
	}
	want := &manifest.Manifest{}
	if text != "" {
		want = read(w.t, text)
	}
	var written bytes.Buffer
	if err := stored.Write(&written); err != nil {
		w.t.Fatal(err)
	}
	if !stored.Equal(want) {
		w.t.Fatalf("stored:\n%s\nnot\n%s", &written, text)
	}
	if text == "" {
		return
	}
	if again := read(w.t, written.String()); !again.Equal(want) {
		w.t.Fatalf("written down it is another:\n%s", &written)
	}
}

func read(t *testing.T, text string) *manifest.Manifest {
	t.Helper()
	m, err := manifest.Read(strings.NewReader(text), "limits.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// declared is a manifest with a limit of every kind.
func declared(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("testdata/limits.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
