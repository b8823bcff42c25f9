package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/shardquota/shardquota/cmd/shardquota/history"
	"github.com/shardquota/shardquota/cmd/shardquota/survey"
	"github.com/shardquota/shardquota/cmd/shardquota/terminal"
	"github.com/shardquota/shardquota/quota"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/dynamo"
)

// inspectFlags are the flags of the inspect command.
type inspectFlags struct {
	table       string
	endpoint    string
	namespace   string
	namespaceID string
	format      string
	html        string
	history     time.Duration
	now         string
	ids         bool
}

func inspectCommand() *cobra.Command {
	var f inspectFlags
	cmd := &cobra.Command{
		Use:   "inspect --table NAME ENTITY RESOURCE",
		Short: "Show the shards, grants, coverage and ledger of one entity",
		Long: `Show how one entity's use of one resource stands: every shard, who was granted
what of each quota and whether that adds up, session windows, schedules, usage.

It reads consistently and writes nothing.

Exit status: 0; 1 when a ledger is not conserved or an item cannot be read; 2 on
bad usage, where there is no bucket, or where the table cannot be read.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return errors.New("inspect: name an ENTITY and a RESOURCE")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(args); err != nil {
				return err
			}
			return f.run(cmd.Context(), args[0], args[1], cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.table, "table", "", "the `table`")
	flags.StringVar(&f.endpoint, "endpoint-url", "", "DynamoDB `endpoint`")
	flags.StringVar(&f.namespace, "namespace", "default", "the entity's namespace by `name`")
	flags.StringVar(&f.namespaceID, "namespace-id", "", "the namespace by `id`, instead of looking its name up")
	flags.StringVar(&f.format, "format", "text", "how it is written: `text|json`")
	flags.StringVar(&f.html, "html", "", "write a page with charts to this `file` too")
	flags.DurationVar(&f.history, "history", time.Hour, "how far back --html reads the table's stream, at most 24h; 0 for not at all")
	flags.StringVar(&f.now, "now", "", "how it stands at this `time` (RFC 3339) by what is stored now")
	flags.BoolVar(&f.ids, "ids", false, "show the entity id, which is often a secret; otherwise the pseudonym of SHARDQUOTA_HASH_KEY, or a number")
	return cmd
}

// maxHistory is how long a stream keeps its records.
const maxHistory = 24 * time.Hour

func (f *inspectFlags) check(args []string) error {
	switch {
	case f.table == "":
		return errors.New("inspect: --table is not given")
	case args[0] == "" || strings.Contains(args[0], "#"):
		return errors.New("inspect: ENTITY is empty or holds a #")
	case args[1] == "" || strings.Contains(args[1], "#"):
		return errors.New("inspect: RESOURCE is empty or holds a #")
	case f.format != "text" && f.format != "json":
		return fmt.Errorf("--format: %q is neither text nor json", f.format)
	case strings.ContainsAny(f.namespaceID, "/#"):
		return errors.New("--namespace-id: an id holds no / and no #")
	case f.history < 0 || f.history > maxHistory:
		return fmt.Errorf("--history: %v is not within 0 and %v", f.history, maxHistory)
	case f.html != "" && !writable(f.html):
		return fmt.Errorf("--html: %s cannot be written as a file", f.html)
	}
	return nil
}

func (f *inspectFlags) run(ctx context.Context, entity, resource string, stdout, stderr io.Writer) error {
	now, err := f.at(time.Now())
	if err != nil {
		return err
	}
	service, err := connect(ctx, f.endpoint)
	if err != nil {
		return err
	}
	store := dynamo.New(service.table, f.table)
	group, err := f.group(ctx, store, entity, resource)
	if err != nil {
		return err
	}
	found, err := find(ctx, store, group)
	if err != nil {
		return err
	}
	seen := survey.Take(found, now.UnixMilli())
	if seen.Empty() {
		return fmt.Errorf("inspect: no bucket of that entity on %q in namespace %s", resource, f.namespaceNamed())
	}
	name := naming(f.ids)(group)
	if f.html != "" {
		drawn := inspectPage(f.table, name+" "+resource, seen)
		drawn.Groups[0].History, drawn.Notes = f.past(ctx, service, group, found, now)
		for _, note := range drawn.Notes {
			fmt.Fprintf(stderr, "shardquota: %s\n", note)
		}
		if err := writePage(f.html, drawn); err != nil {
			return err
		}
	}
	if err := f.write(stdout, group, name, seen); err != nil {
		return err
	}
	return finding(seen)
}

// at returns the time to inspect at: now, unless --now gives another.
func (f *inspectFlags) at(now time.Time) (time.Time, error) {
	if f.now == "" {
		return now, nil
	}
	t, err := time.Parse(time.RFC3339Nano, f.now)
	if err != nil {
		return t, fmt.Errorf("--now: %q is not a time such as 2026-11-30T10:00:00Z", f.now)
	}
	return t, nil
}

func (f *inspectFlags) namespaceNamed() string {
	if f.namespaceID != "" {
		return "of that id"
	}
	return fmt.Sprintf("%q", f.namespace)
}

// group returns the group to inspect. It looks the namespace's id up where only its
// name is given.
func (f *inspectFlags) group(ctx context.Context, store *dynamo.Store, entity, resource string) (table.Group, error) {
	group := table.Group{Namespace: f.namespaceID, Entity: entity, Resource: resource}
	if group.Namespace != "" {
		return group, nil
	}
	item, err := store.Get(ctx, "_/SYSTEM#", "#NAMESPACE#"+f.namespace)
	if err != nil {
		return group, fmt.Errorf("look up the namespace: %w", err)
	}
	if group.Namespace = item.Text("namespace_id"); group.Namespace == "" {
		return group, fmt.Errorf("inspect: there is no namespace %q: see --namespace and --namespace-id", f.namespace)
	}
	return group, nil
}

// recentUsage is how many usage items to read: those of four days of hours.
const recentUsage = 100

func find(ctx context.Context, store *dynamo.Store, group table.Group) (survey.Found, error) {
	shards, err := store.Shards(ctx, group, quota.MaxShards)
	if err != nil {
		return survey.Found{}, err
	}
	usage, err := store.Latest(ctx, table.UsageKey{Group: group}.PK(), table.UsageSK+group.Resource+"#", recentUsage)
	return survey.Found{Shards: shards, Usage: usage}, err
}

// past returns the group's history from its table's stream, nil where there is
// none. The notes say why it is not complete.
func (f *inspectFlags) past(ctx context.Context, service connection, group table.Group, found survey.Found, now time.Time) (past *history.Group, notes []string) {
	if f.history == 0 {
		return nil, nil
	}
	builder := &history.Builder{Groups: 1}
	if err := readHistory(ctx, service, f.table, group, now.Add(-f.history), builder); err != nil {
		notes = append(notes, fmt.Sprintf("history: %v", err))
	}
	if len(builder.Histories()) == 0 {
		return nil, append(notes, fmt.Sprintf("history: the stream holds no writes of it within %v", f.history))
	}
	for _, b := range found.Shards {
		if b.Bucket != nil {
			builder.Observe(now.UnixMilli(), b.Bucket.Image(), b.Bucket.Image()) // so that the history ends with the present state
		}
	}
	return builder.Histories()[0], notes
}

// inspection is a survey and its subject, as JSON.
type inspection struct {
	Namespace string `json:"namespace"`
	Entity    string `json:"entity"`
	Resource  string `json:"resource"`
	*survey.Survey
	Sound bool `json:"sound"`
}

func (f *inspectFlags) write(w io.Writer, group table.Group, name string, seen *survey.Survey) error {
	if f.format == "text" {
		return terminal.Draw(w, name+" "+group.Resource, seen)
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(inspection{group.Namespace, name, group.Resource, seen, seen.Sound()})
}

// finding returns an error that says what an inspection found wrong, or nil.
func finding(seen *survey.Survey) error {
	if seen.Sound() {
		return nil
	}
	broken := 0
	for _, q := range seen.Quotas {
		if !q.Conserved {
			broken++
		}
	}
	return unsoundFinding(fmt.Sprintf("inspect: %d of %d ledgers not conserved, %d items cannot be read", broken, len(seen.Quotas), len(seen.Faults)))
}

// unsoundFinding is an errUnsound with its own text.
type unsoundFinding string

func (u unsoundFinding) Error() string { return string(u) }

// Is reports whether target is errUnsound.
func (u unsoundFinding) Is(target error) bool { return target == errUnsound }
