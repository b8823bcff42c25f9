package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/cfn"

	"github.com/shardquota/shardquota/cmd/limits/resource"
	"github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/limits/manifest"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/dynamo"
)

// handler does what CloudFormation asks of the resource. The same request twice
// does no more than once.
type handler struct {
	open    func(tableName string) table.Client
	now     func() time.Time
	reserve time.Duration // of the function's time, kept for the answer
	log     *slog.Logger
}

// handle does one request and returns the resource's physical id. It is to be
// wrapped by cfn.LambdaWrap, which answers CloudFormation with what it returns.
// It returns no id with an error: the wrapper then keeps the id that there is, and
// a resource that could not be created gets one whose deletion does nothing. The
// error's text fits into an answer and names no entity.
func (h handler) handle(ctx context.Context, event cfn.Event) (id string, data map[string]any, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			h.logPanic(cause)
			id, err = "", errors.New("the function panicked: see its log")
		}
	}()
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-h.reserve))
		defer cancel()
	}
	id, err = h.do(ctx, event)
	if err == nil {
		return id, nil, nil
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("the function's time is over: what is stored stays, and doing the same again goes on from there: %w", err)
	}
	return "", nil, errors.New(fitting(err.Error()))
}

// logPanic logs where it was. What the panic says may hold anything, unless the
// Go runtime says it.
func (h handler) logPanic(cause any) {
	reason := fmt.Sprintf("%T", cause)
	if err, ok := cause.(runtime.Error); ok {
		reason = err.Error()
	}
	h.log.Error("panic", "reason", reason, "stack", string(debug.Stack()))
}

func (h handler) do(ctx context.Context, event cfn.Event) (id string, err error) {
	p, err := resource.Decode(event.ResourceProperties)
	switch event.RequestType {
	case cfn.RequestDelete:
		if err != nil || event.PhysicalResourceID != p.ID() {
			return event.PhysicalResourceID, nil // could not be created
		}
		return p.ID(), h.remove(ctx, event, p)
	case cfn.RequestCreate, cfn.RequestUpdate:
		if err != nil {
			return "", err
		}
		m, err := p.Check()
		if err != nil {
			return "", err
		}
		return p.ID(), h.apply(ctx, event, p, m, earlier(event, p))
	}
	return "", fmt.Errorf("a request of type %.20q is none", event.RequestType)
}

// earlier is the manifest that an update takes the place of; nil where there is
// none, or where it cannot be read: then nothing of it was stored. Of another
// table or namespace CloudFormation has the old resource deleted.
func earlier(event cfn.Event, p resource.Properties) *manifest.Manifest {
	if event.RequestType != cfn.RequestUpdate {
		return nil
	}
	old, err := resource.Decode(event.OldResourceProperties)
	if err != nil || old.ID() != p.ID() {
		return nil
	}
	m, _ := old.Check()
	return m
}

// remove takes away the levels that the resource declares and no other owner does.
// There is nothing to do where the table or the namespace is gone, nor where the
// manifest cannot be read: a stack has to be able to go.
func (h handler) remove(ctx context.Context, event cfn.Event, p resource.Properties) error {
	was, err := p.Check()
	if err != nil {
		h.log.Warn("nothing is removed", "table", p.Table, "namespace", p.Namespace, "reason", fitting(err.Error()))
		return nil
	}
	err = h.apply(ctx, event, p, &manifest.Manifest{Namespace: was.Namespace}, was)
	failed := new(dynamo.Error)
	if errors.Is(err, limits.ErrName) || errors.As(err, &failed) && failed.Code == noTable {
		h.log.Info("nothing is left to remove", "table", p.Table, "namespace", p.Namespace, "reason", err.Error())
		return nil
	}
	return err
}

// noTable is DynamoDB's error code for a table that does not exist.
const noTable = "ResourceNotFoundException"

// attempts is how often the limits are compared with a table in which others
// change the same levels meanwhile.
const attempts = 5

// apply makes the table say what a manifest declares, with the resource among the
// owners, in place of an earlier manifest. Buckets that cannot be read are logged,
// and fail nothing: neither could what is done be rolled back there, nor a stack go.
func (h handler) apply(ctx context.Context, event cfn.Event, p resource.Properties, m, was *manifest.Manifest) error {
	store, err := limits.Open(ctx, h.open(p.Table), limits.Namespace(p.Namespace), limits.Clock(h.now))
	if err != nil {
		return err
	}
	owner := event.StackID + "/" + event.LogicalResourceID
	for range attempts {
		var plan *manifest.Plan
		if plan, err = manifest.Compare(ctx, store, m, manifest.Was(was), manifest.Owner(owner)); err != nil {
			return err
		}
		err = plan.Apply(ctx)
		if unread := errors.Is(err, limits.ErrUnreadable); unread || err == nil {
			h.logStored(event, p, plan, err)
			return nil
		}
		if !errors.Is(err, limits.ErrStale) {
			return err
		}
	}
	return err
}

// logStored logs what was stored, but for what err says of buckets that cannot be
// read; nil for none.
func (h handler) logStored(event cfn.Event, p resource.Properties, plan *manifest.Plan, err error) {
	if err != nil {
		h.log.Warn("some buckets cannot be read, and keep the limits that they have", "table", p.Table, "namespace", p.Namespace, "reason", fitting(err.Error()))
	}
	h.log.Info("limits stored", "request", string(event.RequestType), "table", p.Table, "namespace", p.Namespace,
		"added", plan.Count(manifest.Added), "changed", plan.Count(manifest.Changed),
		"removed", plan.Count(manifest.Removed), "unchanged", plan.Count(manifest.Unchanged))
}

// maxReason is how long the reason in an answer may be, in bytes as JSON writes
// it: of the 4096 bytes of an answer the ids take the rest.
const maxReason = 2500

// fitting cuts a reason so that it fits into an answer.
func fitting(reason string) string {
	reason = strings.ToValidUTF8(reason, "?")
	size := 0
	for i, r := range reason {
		encoded, _ := json.Marshal(string(r)) // cannot fail: a text
		if size += len(encoded) - len(`""`); size > maxReason {
			return reason[:i] + "…"
		}
	}
	return reason
}
