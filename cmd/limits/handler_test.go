package main

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/cfn"

	"github.com/shardquota/shardquota/internal/dynoxide"
	"github.com/shardquota/shardquota/internal/fixture"
	"github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/dynamo"
)

const id = "limits/default"

// A resource is created, changed and deleted, each request delivered twice. The
// table follows; what a later manifest leaves out goes.
func TestLifeOfAResource(t *testing.T) {
	w := newWorld(t)
	first, second := declared(t), "resources:\n  gpt-4:\n    limits:\n      requests: 7 per second\n"
	for _, step := range []struct {
		kind     cfn.RequestType
		now, old map[string]any
		stored   string
	}{
		{cfn.RequestCreate, properties(first), nil, first},
		{cfn.RequestUpdate, properties(second), properties(first), second},
		{cfn.RequestUpdate, properties(first), properties(second), first}, // rolled back
		{cfn.RequestDelete, properties(first), nil, ""},
	} {
		existing := id
		if step.kind == cfn.RequestCreate {
			existing = ""
		}
		for range 2 {
			w.succeeds(w.ask(step.kind, existing, step.now, step.old), id)
			w.stores("default", step.stored)
		}
	}
}

// A level that no manifest of the resource has named is none of its business.
func TestOtherLevelsStay(t *testing.T) {
	w := newWorld(t)
	operators := limits.For("sk-live-other", "gpt-4")
	if err := w.limits("default").SetLimits(t.Context(), operators, limits.PerMinute("requests", 3)); err != nil {
		t.Fatal(err)
	}
	less := "system:\n  limits:\n    requests: 7 per second\n"
	w.succeeds(w.ask(cfn.RequestCreate, "", properties(declared(t)), nil), id)
	w.succeeds(w.ask(cfn.RequestUpdate, id, properties(less), properties(declared(t))), id)
	w.succeeds(w.ask(cfn.RequestDelete, id, properties(less), nil), id)
	w.stores("default", "entities:\n  sk-live-other:\n    resources:\n      gpt-4:\n        limits:\n          requests: 3 per minute\n")
}

// For another namespace it is another resource: CloudFormation has the old one
// deleted once all else is done. What only the old manifest named is an operator's
// in the new namespace.
func TestReplacement(t *testing.T) {
	w := newWorld(t)
	first, second := declared(t), "system:\n  limits:\n    requests: 7 per second\n"
	here, there := properties(first), with(properties(second), "Namespace", "team")
	w.succeeds(w.ask(cfn.RequestCreate, "", here, nil), id)
	if err := w.limits("team").SetAccess(t.Context(), limits.ForResource("search"), limits.Disabled); err != nil {
		t.Fatal(err)
	}
	w.succeeds(w.ask(cfn.RequestUpdate, id, there, here), "limits/team")
	w.stores("default", first)
	w.succeeds(w.ask(cfn.RequestDelete, id, here, nil), id)
	w.stores("default", "")
	w.stores("team", second+"resources:\n  search:\n    access: disabled\n")
}

// A stack can go though its manifest cannot be read any more.
func TestManifestThatCannotBeReadAnyMore(t *testing.T) {
	w := newWorld(t)
	w.succeeds(w.ask(cfn.RequestCreate, "", properties(declared(t)), nil), id)
	w.succeeds(w.ask(cfn.RequestDelete, id, properties("system: ["), nil), id)
	w.stores("default", declared(t))
	if !strings.Contains(w.log.String(), `"msg":"nothing is removed"`) {
		t.Errorf("the log is %s", w.log)
	}
}

// What cannot be created gets an id whose deletion does nothing: limits that were
// there before stay.
func TestCreationThatFails(t *testing.T) {
	w := newWorld(t)
	w.succeeds(w.ask(cfn.RequestCreate, "", properties(declared(t)), nil), id)
	for name, c := range map[string]struct {
		properties map[string]any
		reason     string
	}{
		"malformed":         {properties("system:\n  limits:\n    requests: 7 per fortnight\n"), "limits.yaml:3:15: "},
		"unknown key":       {properties("entities:\n  sk-live-acme:\n    limit: {}\n"), "limits.yaml:3:5: "},
		"another namespace": {with(properties("namespace: one\nsystem:\n  limits:\n    requests: 7 per day\n"), "Namespace", "two"), `limits.yaml: it is for the namespace "one", not for "two"`},
		"bad namespace":     {with(properties(declared(t)), "Namespace", "a b"), `limits.yaml: the namespace "a b" is none`},
		"too large":         {properties("# " + strings.Repeat("x", 120_000)), "limits.yaml: as JSON it has 120004 bytes"},
		"no table":          {with(properties(declared(t)), "Table", ""), "property Table: it is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			answer := w.ask(cfn.RequestCreate, "", c.properties, nil)
			w.fails(answer, "a1b2c3", c.reason)
			w.succeeds(w.ask(cfn.RequestDelete, answer.PhysicalResourceID, c.properties, nil), answer.PhysicalResourceID)
			w.stores("default", declared(t))
		})
	}
}

// An update that fails keeps the id, so that nothing is deleted for it, and what
// it is rolled back from need not be readable.
func TestUpdateThatFails(t *testing.T) {
	w := newWorld(t)
	good, bad := properties(declared(t)), properties("system: [")
	w.succeeds(w.ask(cfn.RequestCreate, "", good, nil), id)
	w.fails(w.ask(cfn.RequestUpdate, id, bad, good), id, "limits.yaml:2:1: ")
	w.succeeds(w.ask(cfn.RequestUpdate, id, good, bad), id)
	w.stores("default", declared(t))
}

func TestUnknownRequest(t *testing.T) {
	w := newWorld(t)
	w.fails(w.ask("Read", id, properties(declared(t)), nil), id, `a request of type "Read" is none`)
}

// Where the table is gone its limits are too. They cannot be stored there.
func TestTableThatIsGone(t *testing.T) {
	w := worldOn(t, dynamo.New(dynoxide.Client(t), dynoxide.Name()))
	w.succeeds(w.ask(cfn.RequestDelete, id, properties(declared(t)), nil), id)
	w.fails(w.ask(cfn.RequestCreate, "", properties(declared(t)), nil), "a1b2c3", "ResourceNotFoundException")
}

// Of a namespace that zae-limiter has deleted the limits are gone.
func TestNamespaceThatIsGone(t *testing.T) {
	w := newWorld(t)
	deleted := table.Item{
		table.AttrPK: table.S("_/SYSTEM#"), table.AttrSK: table.S("#NAMESPACE#default"),
		"namespace_id": table.S("n1"), "status": table.S("deleted"),
	}
	fixture.Replace(t, w.table, deleted)
	w.succeeds(w.ask(cfn.RequestDelete, id, properties(declared(t)), nil), id)
	w.fails(w.ask(cfn.RequestCreate, "", properties(declared(t)), nil), "a1b2c3", `the namespace is "deleted"`)
}

// meddler changes the table once, before the first insertion.
type meddler struct {
	table.Client
	meddle func()
}

func (m *meddler) Insert(ctx context.Context, item table.Item) (bool, error) {
	if meddle := m.meddle; meddle != nil && strings.HasSuffix(item.Text(table.AttrSK), "#CONFIG") {
		m.meddle = nil
		meddle()
	}
	return m.Client.Insert(ctx, item)
}

// Where someone else stores a level meanwhile the limits are compared again.
func TestLevelThatChangesMeanwhile(t *testing.T) {
	w := newWorld(t)
	operator, meddled := w.limits("default"), false
	w.table = &meddler{w.table, func() {
		meddled = true
		if err := operator.SetLimits(t.Context(), limits.ForAll(), limits.PerMinute("requests", 3)); err != nil {
			t.Error(err)
		}
	}}
	w.succeeds(w.ask(cfn.RequestCreate, "", properties(declared(t)), nil), id)
	if !meddled {
		t.Error("nobody changed anything meanwhile")
	}
	w.stores("default", declared(t))
}

// failing fails to insert the configuration of all, or of a resource for all.
type failing struct {
	table.Client
	with func() error
}

func (f failing) Insert(ctx context.Context, item table.Item) (bool, error) {
	if item.Text(table.AttrSK) == "#CONFIG" {
		return false, f.with()
	}
	return f.Client.Insert(ctx, item)
}

// The answer says which line failed, and why, and how far the rest is. What is
// stored by then stays when CloudFormation deletes what it could not create.
func TestLevelThatFails(t *testing.T) {
	w := newWorld(t)
	w.table = failing{w.table, func() error { return errors.New("throttled") }}
	answer := w.ask(cfn.RequestCreate, "", properties(declared(t)), nil)
	w.fails(answer, "a1b2c3", "limits.yaml:7: resource gpt-4: ", "throttled (3 made before it, 2 left)")
	w.succeeds(w.ask(cfn.RequestDelete, answer.PhysicalResourceID, properties(declared(t)), nil), "a1b2c3")
	if stored, err := w.limits("default").Levels(t.Context()); err != nil || len(stored) != 3 {
		t.Errorf("%d levels are stored, %v", len(stored), err)
	}
}

// CloudFormation is answered whatever happens. What a panic says may hold
// anything, and is not told.
func TestPanic(t *testing.T) {
	w := newWorld(t)
	w.table = failing{w.table, func() error { panic("sk-live-acme") }}
	w.fails(w.ask(cfn.RequestCreate, "", properties(declared(t)), nil), "a1b2c3", "panicked: see its log")
	if log := w.log.String(); !strings.Contains(log, `"msg":"panic","reason":"string"`) || !strings.Contains(log, "handler_test.go") {
		t.Errorf("the log is %s", log)
	}
}

// stuck does not come back before its context ends.
type stuck struct{ table.Client }

func (stuck) Items(ctx context.Context, _ []table.ItemKey) ([]table.Item, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// The answer is sent before the function's own time is over.
func TestTimeIsOver(t *testing.T) {
	w := newWorld(t)
	w.table = stuck{w.table}
	w.handler.reserve = time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	w.fails(w.askIn(ctx, cfn.RequestUpdate, id, properties(declared(t)), properties(declared(t))), id, "the function's time is over")
}

// Any reason fits into an answer with ids as long as there are.
func TestReasonFits(t *testing.T) {
	for _, text := range []string{"short", strings.Repeat("<", 9000), strings.Repeat("ü", 9000), strings.Repeat("\x00", 9000), strings.Repeat("a\xff", 9000)} {
		got := fitting(text)
		answer, err := json.Marshal(cfn.Response{
			Status: cfn.StatusFailed, RequestID: strings.Repeat("r", 36), LogicalResourceID: strings.Repeat("l", 255),
			StackID: strings.Repeat("s", 256), PhysicalResourceID: strings.Repeat("p", 512), Reason: got,
		})
		if err != nil || len(answer) > 4096 {
			t.Errorf("an answer of %d bytes (%v)", len(answer), err)
		}
		if whole := len(text) < 100; whole != (got == text) || !whole && len(answer) < 3500 {
			t.Errorf("%d bytes of %d are told: %.20q", len(got), len(text), got)
		}
	}
}
