package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/cfn"

	"github.com/shardquota/shardquota/limiter"
	"github.com/shardquota/shardquota/limits"
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
	if err := w.limits("default").SetAccess(w.t.Context(), limits.ForEntity(entity), limits.Disabled); err != nil {
		w.t.Fatal(err)
	}
}

// deploys creates the resource.
func (w *world) deploys(properties map[string]any) {
	w.t.Helper()
	w.succeeds(w.ask(cfn.RequestCreate, "", properties, nil), id)
}

// as has CloudFormation ask for the resource of a logical id.
func (w *world) as(logical string) *world {
	w.answers.logical = logical
	return w
}

// renamed is the logical id of a resource that comes beside the one of logicalID, of
// the same physical id.
const renamed = "RenamedLimits5678"

// Under another logical id it is another resource of the same physical id:
// CloudFormation creates the new one, and then deletes the old one, or, where
// something else fails, the new one again. The levels stay with the one that stays.
func TestRenamed(t *testing.T) {
	for name, goes := range map[string][2]string{
		"done":        {logicalID, renamed},
		"rolled back": {renamed, logicalID},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			old, now := properties(declared(t)), properties(declared(t))
			w.deploys(old)
			w.as(renamed).deploys(now)
			for range 2 {
				w.as(goes[0]).succeeds(w.ask(cfn.RequestDelete, id, old, nil), id)
				w.stores("default", declared(t))
			}
			w.as(goes[1]).succeeds(w.ask(cfn.RequestDelete, id, now, nil), id)
			w.stores("default", "")
		})
	}
}

// A new name and a new manifest at once, rolled back: what both declare stays, in
// the words that were stored last, and what only the new one declared goes.
func TestRenamedAndChangedRolledBack(t *testing.T) {
	w := newWorld(t)
	w.deploys(properties(seven))
	w.as(renamed).deploys(properties(eight + disabled))
	w.succeeds(w.ask(cfn.RequestDelete, id, properties(eight+disabled), nil), id)
	w.stores("default", eight)
	w.as(logicalID).succeeds(w.ask(cfn.RequestDelete, id, properties(seven), nil), id)
	w.stores("default", "")
}

// A level that two stacks declare is there, in the words that were stored last, until
// neither does: not gone with the first deployment of one that is rolled back, nor
// with an update that leaves it out.
func TestSecondStack(t *testing.T) {
	w := newWorld(t)
	w.deploys(properties(seven))
	w.as("Second").deploys(properties(eight))
	w.succeeds(w.ask(cfn.RequestDelete, id, properties(eight), nil), id)
	w.stores("default", eight)
	w.deploys(properties(eight + disabled))
	w.as(logicalID).succeeds(w.ask(cfn.RequestUpdate, id, properties(disabled), properties(seven)), id)
	w.stores("default", eight+disabled)
	w.as("Second").succeeds(w.ask(cfn.RequestDelete, id, properties(eight+disabled), nil), id)
	w.stores("default", disabled)
}

// An operator's level in the words of a manifest outlasts its resource, also one
// whose creation is rolled back. What the resource overwrites is its own.
func TestCreatedBesideAnOperator(t *testing.T) {
	for operators, left := range map[int64]string{7: seven + disabled, 6: disabled} {
		w := newWorld(t)
		if err := w.limits("default").SetLimits(t.Context(), limits.ForAll(), limits.PerSecond("requests", operators)); err != nil {
			t.Fatal(err)
		}
		w.disable("sk-live-acme")
		w.deploys(properties(seven + disabled))
		w.stores("default", seven+disabled)
		w.succeeds(w.ask(cfn.RequestDelete, id, properties(seven+disabled), nil), id)
		w.stores("default", left)
	}
}

// throttled fails to change levels, or to insert that of an entity.
type throttled struct {
	table.Client
	amend, insert bool
}

func (f throttled) Amend(ctx context.Context, pk, sk string, amendment table.Amendment) (table.WriteResult, error) {
	if f.amend && strings.HasPrefix(sk, "#CONFIG") {
		return table.WriteResult{}, errors.New("throttled")
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
	l := w.limits("default")
	gpt4, search := limits.ForResource("gpt-4"), limits.ForResource("search")
	for _, err := range []error{
		l.SetLimits(t.Context(), gpt4, limits.PerSecond("requests", 4)),
		l.SetAccess(t.Context(), search, limits.Inherit),
		l.SetAccess(t.Context(), search, limits.Disabled),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	w.succeeds(w.ask(cfn.RequestUpdate, id, properties(seven), properties(one)), id)
	w.stores("default", seven+"resources:\n  search:\n    access: disabled\n")
}

// An owner is a resource of a stack.
func TestOwner(t *testing.T) {
	w := newWorld(t)
	w.deploys(properties(seven))
	stored, err := w.limits("default").Levels(t.Context())
	if err != nil || len(stored) != 1 {
		t.Fatal(stored, err)
	}
	if want := "arn:aws:cloudformation:eu-west-1:111122223333:stack/ShardQuota/c0ffee/" + logicalID; !slices.Equal(stored[0].Owners, []string{want}) {
		t.Errorf("it is of %q, not of %q", stored[0].Owners, want)
	}
}

// A bucket that cannot be read wedges no stack: not an update, nor one that is
// rolled back, nor that the stack goes. It is logged.
func TestBucketThatCannotBeRead(t *testing.T) {
	w := newWorld(t)
	two := eight + "resources:\n  gpt-4:\n    access: disabled\n"
	w.deploys(properties(seven))
	for _, entity := range []string{"sk-live-a", "sk-live-b"} {
		if _, err := limiter.New(w.limits("default")).Acquire(t.Context(), entity, "gpt-4", limiter.Amounts{"requests": 1}); err != nil {
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
		if capacity, _ := items[0].Int("b_requests_cp"); capacity != step.capacity || items[0].Flag(table.AttrDisabled) != (step.stored == two) {
			t.Errorf("%s: the other bucket is %v", step.kind, items[0])
		}
	}
	if stored, err := w.limits("default").Levels(t.Context()); err != nil || len(stored) != 0 {
		t.Errorf("left: %+v, %v", stored, err)
	}
}
