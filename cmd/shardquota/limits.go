package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/shardquota/shardquota/limits"
	"github.com/shardquota/shardquota/limits/manifest"
	"github.com/shardquota/shardquota/table"
	"github.com/shardquota/shardquota/table/dynamo"
)

// limitsFlags are the flags of the limits commands, each of which has some.
type limitsFlags struct {
	file      string
	output    string
	table     string
	endpoint  string
	namespace string
	format    string
	prune     bool
	ids       bool
	yes       bool
	detailed  bool
}

func limitsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "limits",
		Short: "Declare limits in a file, and store what it declares",
		Long: `Declare the limits of a namespace in a YAML file, see what would change in the
table, and change it. What the file does not name is left alone.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(limitsPlanCommand(), limitsApplyCommand(), limitsExportCommand())
	return cmd
}

// fileBy refuses arguments beside the flags, and says which flag they belong to.
func fileBy(flag string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return fmt.Errorf("limits %s: %s", cmd.Name(), flag)
		}
		return nil
	}
}

func limitsPlanCommand() *cobra.Command {
	var f limitsFlags
	cmd := &cobra.Command{
		Use:   "plan -f FILE --table NAME",
		Short: "Show what storing a manifest would change",
		Long: `Show what has to change in the table so that the limits, access and cascade are
stored as FILE declares them. It writes nothing.

Exit status: 0; 2 on bad usage, a malformed FILE, or a table that cannot be read.
With --detailed-exitcode: 0 when nothing changes, 2 when something does, 1 where
it fails.`,
		Args: fileBy("give the file by -f"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.exit(f.plan(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout()))
		},
	}
	f.planFlags(cmd)
	cmd.Flags().BoolVar(&f.detailed, "detailed-exitcode", false, "exit with 2 when something changes, and with 1 on failure")
	return cmd
}

func limitsApplyCommand() *cobra.Command {
	var f limitsFlags
	cmd := &cobra.Command{
		Use:   "apply -f FILE --table NAME",
		Short: "Store a manifest, and bring it to live buckets",
		Long: `Show what has to change in the table so that limits, access and cascade are stored
as FILE declares them, and after a confirmation change it, level by level, on the
live buckets too. A level that someone else changes meanwhile is left alone, and
it ends there. Applied again, it writes nothing.

Exit status: 0, also when it is declined; 2 on bad usage, a malformed FILE, or a
table that cannot be read or written, after saying which levels were changed.`,
		Args: fileBy("give the file by -f"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.apply(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f.planFlags(cmd)
	cmd.Flags().BoolVar(&f.yes, "yes", false, "do not ask, as it has to be where there is no terminal")
	return cmd
}

func limitsExportCommand() *cobra.Command {
	var f limitsFlags
	cmd := &cobra.Command{
		Use:   "export --table NAME",
		Short: "Write what is stored as a manifest",
		Long: `Write the limits, access and cascade that are stored in a namespace as a manifest,
which changes nothing when it is applied. It holds entity ids by its nature, which
are often secrets.

Exit status: 0; 2 on bad usage, a table that cannot be read, or limits in it that
no manifest can declare.`,
		Args: fileBy("give the file to write to by -o"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.export(cmd.Context(), cmd.OutOrStdout())
		},
	}
	f.tableFlags(cmd)
	cmd.Flags().StringVar(&f.namespace, "namespace", "", "the namespace by `name`; \"default\" if not given")
	cmd.Flags().StringVarP(&f.output, "output", "o", "-", "write to this `file`, - for standard output")
	return cmd
}

func (f *limitsFlags) tableFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.table, "table", "", "the `table`")
	flags.StringVar(&f.endpoint, "endpoint-url", "", "DynamoDB `endpoint`")
}

func (f *limitsFlags) planFlags(cmd *cobra.Command) {
	f.tableFlags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.namespace, "namespace", "", "the namespace by `name`; the manifest's if not given, or \"default\"")
	flags.StringVarP(&f.file, "file", "f", "", "the manifest, a `file` or - for standard input")
	flags.BoolVar(&f.prune, "prune", false, "remove what is stored in the namespace and not named in the manifest")
	flags.BoolVar(&f.ids, "ids", false, "show entity ids, which are often secrets; otherwise the pseudonyms of SHARDQUOTA_HASH_KEY, or numbers")
	flags.StringVar(&f.format, "format", "text", "how it is written: `text|json`")
}

func (f *limitsFlags) check() error {
	switch {
	case f.table == "":
		return errors.New("limits: --table is not given")
	case f.file == "":
		return errors.New("limits: -f FILE is not given, - for standard input")
	case f.format != "text" && f.format != "json":
		return fmt.Errorf("--format: %q is neither text nor json", f.format)
	}
	return nil
}

// limitsTable is one namespace of a table.
type limitsTable struct {
	client    table.Client
	namespace string // by name
	id        string // of the namespace, "" where it is not there yet
	store     *limits.Store
}

// absentNamespace is the id of a namespace in which there is nothing.
const absentNamespace = "-"

// open looks a namespace up, and registers none.
func (f *limitsFlags) open(ctx context.Context, namespace string) (*limitsTable, error) {
	service, err := connect(ctx, f.endpoint)
	if err != nil {
		return nil, err
	}
	t := &limitsTable{client: dynamo.New(service.table, f.table), namespace: namespace}
	found, err := t.client.Items(ctx, []table.ItemKey{limits.NamespaceKey(namespace)})
	if err != nil {
		return nil, fmt.Errorf("look up the namespace: %w", err)
	}
	of := limits.NamespaceID(absentNamespace)
	if found[0] != nil {
		t.id, of = found[0].Text(limits.AttrNamespaceID), limits.Namespace(namespace)
	}
	t.store, err = limits.Open(ctx, t.client, of)
	return t, err
}

// register registers the namespace where it is missing.
func (t *limitsTable) register(ctx context.Context) (err error) {
	if t.id == "" {
		t.store, err = limits.Open(ctx, t.client, limits.Namespace(t.namespace))
	}
	return err
}

// compared is a plan, and what it is of.
type compared struct {
	*limitsTable
	manifest *manifest.Manifest
	plan     *manifest.Plan
	names    manifest.Names
	ids      bool // the names are entities' ids
}

// compare reads the manifest and compares it with the table.
func (f *limitsFlags) compare(ctx context.Context, stdin io.Reader) (*compared, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	m, err := f.read(stdin)
	if err != nil {
		return nil, err
	}
	namespace, err := f.namespaceOf(m)
	if err != nil {
		return nil, err
	}
	t, err := f.open(ctx, namespace)
	if err != nil {
		return nil, err
	}
	name := naming(f.ids)
	c := &compared{limitsTable: t, manifest: m, ids: f.ids, names: func(entity string) string {
		return name(table.Group{Namespace: t.id, Entity: entity})
	}}
	c.plan, err = manifest.Compare(ctx, t.store, m, f.options()...)
	return c, err
}

func (f *limitsFlags) options() []manifest.Option {
	if f.prune {
		return []manifest.Option{manifest.Prune()}
	}
	return nil
}

func (f *limitsFlags) read(stdin io.Reader) (*manifest.Manifest, error) {
	if f.file == "-" {
		return manifest.Read(stdin, "standard input")
	}
	file, err := os.Open(f.file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return manifest.Read(file, f.file)
}

// namespaceOf returns the name of the namespace that a manifest is for.
func (f *limitsFlags) namespaceOf(m *manifest.Manifest) (string, error) {
	switch {
	case f.namespace != "" && m.Namespace != "" && f.namespace != m.Namespace:
		return "", fmt.Errorf("--namespace: %q is not that of the manifest, %q", f.namespace, m.Namespace)
	case f.namespace != "":
		return f.namespace, nil
	case m.Namespace != "":
		return m.Namespace, nil
	}
	return limits.DefaultNamespace, nil
}

func (f *limitsFlags) export(ctx context.Context, stdout io.Writer) error {
	if f.table == "" {
		return errors.New("limits: --table is not given")
	}
	namespace := f.namespace
	if namespace == "" {
		namespace = limits.DefaultNamespace
	}
	t, err := f.open(ctx, namespace)
	if err != nil {
		return err
	}
	if t.id == "" {
		return fmt.Errorf("limits: there is no namespace %q: see --namespace", namespace)
	}
	m, err := manifest.Export(ctx, t.store, namespace)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := m.Write(&text); err != nil {
		return err
	}
	if f.output == "-" {
		_, err = stdout.Write(text.Bytes())
		return err
	}
	return replaceFile(f.output, text.Bytes())
}
