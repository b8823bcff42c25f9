package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/cfn"

	"github.com/shardquota/shardquota/limiter"
	"github.com/shardquota/shardquota/limiter/manifest"
	"github.com/shardquota/shardquota/table"
)

const (
	seven    = "system:\n  limits:\n    requests: 7 per second\n"
	eight    = "system:\n  limits:\n    requests: 8 per second\n"
	disabled = "entities:\n  sk-live-acme:\n    access: disabled\n"
)

// disable is what an operator does about an abuser.
func (w *world) disable(entity string) {
	w.t.Helper()
	if err := w.limiter("default").SetAccess(w.t.Context(), limiter.ForEntity(entity), limiter.Disabled); err != nil {
		w.t.Fatal(err)
	}
}

// Under another logical id it is another resource of the same physical id:
// CloudFormation creates the new one, and then deletes the old one, which takes
// nothing away that is the new one's.
func TestRenamed(t *testing.T) {
	for name, old := range map[string]map[string]any{
		"marked":             properties(declared(t)),
		"stored before that": unmarked(declared(t)),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.deploys(old)
			w.answers.logical = "RenamedLimits5678"
			w.succeeds(w.ask(cfn.RequestCreate, "", properties(declared(t)), nil), id)
			w.answers.logical = logicalID
			w.succeeds(w.ask(cfn.RequestDelete, id, old, nil), id)
			w.stores("default", declared(t))
			w.answers.logical = "RenamedLimits5678"
			w.succeeds(w.ask(cfn.RequestDelete, id, properties(declared(t)), nil), id)
			w.stores("default", "")
		})
	}
}

// unmarked are properties as they were before there were marks.
func unmarked(text string) map[string]any {
	return without(properties(text), "Marked")
}

// deploys creates a resource. One without marks leaves its levels as the function
// did at that time.
func (w *world) deploys(properties map[string]any) {
	w.t.Helper()
	if properties["Marked"] != nil {
		w.succeeds(w.ask(cfn.RequestCreate, "", properties, nil), id)
		return
	}
	plan, err := manifest.Compare(w.t.Context(), w.limiter("default"), read(w.t, properties["Manifest"].(string)))
	if err == nil {
		err = plan.Apply(w.t.Context())
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// throttled fails to change levels, or to insert that of an entity.
type throttled struct {
	table.Client
	amend, insert bool
}

func (f throttled) Amend(ctx context.Context, pk, sk string, amendment table.Amendment) (table.Taken, error) {
	if f.amend && strings.HasPrefix(sk, "#CONFIG") {
		return table.Taken{}, errors.New("throttled")
	}
	return f.Client.Amend(ctx, pk, sk, amendment)
}

func (f throttled) Insert(ctx context.Context, item table.Item) (bool, error) {
	if f.insert && strings.HasPrefix(item.Text(table.AttrSK), "#CONFIG") {
		return false, errors.New("throttled")
	}
	return f.Client.Insert(ctx, item)
}

// An update that is rolled back leaves a level that an operator had stored as it
// declares it, whether it came so far or not. What it has stored itself goes.
func TestRolledBackBesideAnOperator(t *testing.T) {
	two := eight + disabled + "  sk-live-beta:\n    access: bypass\n"
	for name, fault := range map[string]throttled{
		"at the first write":                    {amend: true, insert: true},
		"after levels that came":                {amend: true},
		"where it was done, and another failed": {},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.deploys(properties(seven))
			w.disable("sk-live-acme")
			good := w.table
			if fault.amend {
				fault.Client = good
				w.table = fault
				w.fails(w.ask(cfn.RequestUpdate, id, properties(two), properties(seven)), id, "throttled")
			} else {
				w.succeeds(w.ask(cfn.RequestUpdate, id, properties(two), properties(seven)), id)
				w.stores("default", two)
			}
			w.table = good
			w.succeeds(w.ask(cfn.RequestUpdate, id, properties(seven), properties(two)), id)
			w.stores("default", seven+disabled)
			w.succeeds(w.ask(cfn.RequestUpdate, id, properties(two), properties(seven)), id)
			w.succeeds(w.ask(cfn.RequestDelete, id, properties(two), nil), id)
			w.stores("default", disabled)
		})
	}
}

// A level of the resource that an operator changes stays the resource's. Once he
// takes it away what he stores there is his own.
func TestOwnAgain(t *testing.T) {
	w := newWorld(t)
	one := seven + "resources:\n  gpt-4:\n    limits:\n      requests: 5 per second\n  search:\n    access: bypass\n"
	w.deploys(properties(one))
	l := w.limiter("default")
	gpt4, search := limiter.ForResource("gpt-4"), limiter.ForResource("search")
	for _, err := range []error{
		l.SetLimits(t.Context(), gpt4, limiter.PerSecond("requests", 4)),
		l.SetAccess(t.Context(), search, limiter.Inherit),
		l.SetAccess(t.Context(), search, limiter.Disabled),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	w.succeeds(w.ask(cfn.RequestUpdate, id, properties(seven), properties(one)), id)
	w.stores("default", seven+"resources:\n  search:\n    access: disabled\n")
}

// What was stored without marks is the resource's as long as it is as declared.
func TestUpgradeToMarks(t *testing.T) {
	one := seven + disabled + "resources:\n  gpt-4:\n    limits:\n      requests: 5 per second\n  search:\n    access: bypass\n"
	drifted := "resources:\n  gpt-4:\n    limits:\n      requests: 4 per second\n"
	deployed := func(t *testing.T) *world {
		w := newWorld(t)
		w.deploys(unmarked(one))
		if err := w.limiter("default").SetLimits(t.Context(), limiter.ForResource("gpt-4"), limiter.PerSecond("requests", 4)); err != nil {
			t.Fatal(err)
		}
		return w
	}
	t.Run("deleted", func(t *testing.T) {
		w := deployed(t)
		w.succeeds(w.ask(cfn.RequestDelete, id, unmarked(one), nil), id)
		w.stores("default", drifted)
	})
	t.Run("updated", func(t *testing.T) {
		w := deployed(t)
		w.succeeds(w.ask(cfn.RequestUpdate, id, properties(seven+disabled), unmarked(one)), id)
		w.stores("default", seven+disabled+drifted)
		w.succeeds(w.ask(cfn.RequestDelete, id, properties(seven+disabled), nil), id)
		w.stores("default", drifted)
	})
}

// The mark says which resource of which stack it is.
func TestMark(t *testing.T) {
	w := newWorld(t)
	w.deploys(properties(seven))
	stored, err := w.limiter("default").Levels(t.Context())
	if err != nil || len(stored) != 1 {
		t.Fatal(stored, err)
	}
	if want := "arn:aws:cloudformation:eu-west-1:111122223333:stack/ShardQuota/c0ffee/" + logicalID; stored[0].Owner != want {
		t.Errorf("the mark is %q, not %q", stored[0].Owner, want)
	}
}

// A bucket that cannot be read wedges no stack: not an update, nor one that is
// rolled back, nor that the stack goes. It is logged.
func TestBucketThatCannotBeRead(t *testing.T) {
	w := newWorld(t)
	two := eight + "resources:\n  gpt-4:\n    access: disabled\n"
	w.deploys(properties(seven))
	for _, entity := range []string{"sk-live-a", "sk-live-b"} {
		if _, err := w.limiter("default").Acquire(t.Context(), entity, "gpt-4", limiter.Amounts{"requests": 1}); err != nil {
			t.Fatal(err)
		}
	}
	bucket := func(entity string) string {
		return table.Group{Namespace: w.namespace(), Entity: entity, Resource: "gpt-4"}.At(0).PK()
	}
	spoilt := table.Amendment{Set: table.Item{"b_requests_tk": table.N("1.5")}}
	if _, err := w.table.Amend(t.Context(), bucket("sk-live-a"), table.StateSK, spoilt); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		kind     cfn.RequestType
		now, old map[string]any
		stored   string
		capacity int64 // of the bucket that can be read
	}{
		{cfn.RequestUpdate, properties(two), properties(seven), two, 8000},
		{cfn.RequestUpdate, properties(seven), properties(two), seven, 7000},
		{cfn.RequestDelete, properties(seven), nil, "", 7000},
	} {
		w.log.Reset()
		w.succeeds(w.ask(step.kind, id, step.now, step.old), id)
		w.stores("default", step.stored)
		if !strings.Contains(w.log.String(), `"level":"WARN","msg":"some buckets cannot be read`) || !strings.Contains(w.log.String(), "1 of 2 groups: shard 0: ") {
			t.Errorf("%s: the log is %s", step.kind, w.log)
		}
		items, err := w.table.Items(t.Context(), []table.ItemKey{{PK: bucket("sk-live-b"), SK: table.StateSK}})
		if err != nil {
			t.Fatal(err)
		}
		if capacity, _ := items[0].Whole("b_requests_cp"); capacity != step.capacity || items[0].Flag(table.AttrDisabled) != (step.stored == two) {
			t.Errorf("%s: the other bucket is %v", step.kind, items[0])
		}
	}
	if stored, err := w.limiter("default").Levels(t.Context()); err != nil || len(stored) != 0 {
		t.Errorf("left: %+v, %v", stored, err)
	}
}
