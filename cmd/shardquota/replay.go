package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/aggregator/replay"
	"github.com/shardquota/shardquota/cmd/shardquota/history"
	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/table/dynamo"
	"github.com/shardquota/shardquota/table/memory"
)

// replayFlags are the flags of the replay command.
type replayFlags struct {
	table     string
	endpoint  string
	streamARN string
	dryRun    bool
	preload   string
	dump      string
	now       string
	batchSize int
	redeliver bool
	ids       bool
	format    string
	windows   string
	usageDays int
	html      string
}

func replayCommand() *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay FILE...",
		Short: "Run the aggregator over recorded streams",
		Long: `Run the aggregator over recorded streams and report what it did.

A FILE (- for standard input) holds Lambda events, one event or record a line,
the output of "aws dynamodbstreams get-records", or what Lambda's on-failure S3
destination stores; each may be gzipped. They are told apart by content.

Without --table the table is in memory and the recording drives it. With it the
recording is processed again against a real table, which is safe to do twice.

Exit status: 0; 1 when a record was rejected or a ledger is not conserved; 2 on
bad usage or on input or a table that cannot be read or written.`,
		Args: func(_ *cobra.Command, files []string) error {
			if len(files) == 0 {
				return errors.New("replay: name a FILE, or - for standard input")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, files []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return f.run(cmd.Context(), files, cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.table, "table", "", "process the recording again against this `table`")
	flags.StringVar(&f.endpoint, "endpoint-url", "", "DynamoDB `endpoint` of --table")
	flags.StringVar(&f.streamARN, "stream-arn", "", "the stream (`ARN`) of records that name none, as the output of get-records does")
	flags.BoolVar(&f.dryRun, "dry-run", false, "print what would be done and write nothing")
	flags.StringVar(&f.preload, "preload", "", "put the items of this `file` first: DynamoDB JSON, one a line")
	flags.StringVar(&f.dump, "dump", "", "write the table at the end to this `file`: DynamoDB JSON, one a line, sorted by key")
	flags.StringVar(&f.now, "now", "", "fix the clock at this `time` (RFC 3339)")
	flags.IntVar(&f.batchSize, "batch-size", replay.DefaultBatchSize, "records delivered at once")
	flags.BoolVar(&f.redeliver, "redeliver", false, "deliver each batch twice")
	flags.BoolVar(&f.ids, "ids", false, "show entity ids, which are often secrets; otherwise the pseudonyms of SHARDQUOTA_HASH_KEY, or numbers")
	flags.StringVar(&f.format, "format", "text", "how it is written: `text|json`")
	flags.StringVar(&f.windows, "windows", "hourly,daily", "`list` of windows that usage is counted in: hourly, daily, monthly")
	flags.StringVar(&f.html, "html", "", "write a page with charts to this `file` too")
	flags.IntVar(&f.usageDays, "usage-days", 90, "days that usage outlives its window, 0 for ever")
	return cmd
}

// check returns what is wrong with the flags, before anything is read.
func (f *replayFlags) check() error {
	inMemory := f.table == ""
	switch {
	case f.format != "text" && f.format != "json":
		return fmt.Errorf("--format: %q is neither text nor json", f.format)
	case f.batchSize < 1 || f.batchSize > 10_000:
		return fmt.Errorf("--batch-size: %d is not within 1 and 10000", f.batchSize)
	case f.usageDays < 0 || f.usageDays > aggregator.MaxUsageDays:
		return fmt.Errorf("--usage-days: %d is not within 0 and %d", f.usageDays, aggregator.MaxUsageDays)
	case !inMemory && f.preload != "":
		return errors.New("--preload puts items into a table in memory and does not go with --table")
	case !inMemory && f.dump != "":
		return errors.New("--dump writes a table in memory and does not go with --table")
	case f.dump != "" && !writable(f.dump):
		return fmt.Errorf("--dump: %s cannot be written as a file", f.dump)
	case f.html != "" && !writable(f.html):
		return fmt.Errorf("--html: %s cannot be written as a file", f.html)
	case inMemory && f.endpoint != "":
		return errors.New("--endpoint-url is the endpoint of --table, which is not given")
	}
	return nil
}

// writable reports whether a file of that name can be created or replaced.
func writable(name string) bool {
	info, err := os.Stat(name)
	if err == nil {
		return info.Mode().IsRegular()
	}
	dir, err := os.Stat(filepath.Dir(name))
	return err == nil && dir.IsDir()
}

func (f *replayFlags) run(ctx context.Context, files []string, stdin io.Reader, stdout, stderr io.Writer) error {
	run, err := f.replay(ctx)
	if err != nil {
		return err
	}
	if f.html != "" {
		run.Observe = run.past.Observe
	}
	input := newInput(files, stdin, stderr)
	defer input.Close()
	if f.streamARN != "" {
		if input.stream, err = events.StreamLabel(f.streamARN); err != nil {
			return fmt.Errorf("--stream-arn: %w", err)
		}
	}
	run.Progress = input.show

	report, err := run.Run(ctx, input)
	input.hide()
	if err != nil {
		return f.explain(err, report)
	}
	if f.dump != "" {
		if err := dumpTable(f.dump, run.store.Items()); err != nil {
			return err
		}
	}
	name := naming(f.ids)
	if err := f.write(stdout, report, name); err != nil {
		return err
	}
	if f.html != "" {
		if err := run.draw(ctx, f.html, files, report, name); err != nil {
			return err
		}
	}
	return unsound(report)
}

// unsound returns an error that says what a report found wrong, or nil.
func unsound(report *replay.Report) error {
	broken := report.NotConserved()
	switch rejected := len(report.Rejected); {
	case rejected == 0 && broken == 0:
		return nil
	case broken == 0:
		return fmt.Errorf("%w: %d rejected", errUnsound, rejected)
	default:
		return fmt.Errorf("%w: %d rejected, %d ledgers not conserved", errUnsound, rejected, broken)
	}
}

// replayRun is a replay and its table.
type replayRun struct {
	*replay.Replay
	store  *memory.Store // nil where the table is not in memory
	shards shardsOf
	past   history.Builder
}

// replay returns a run that has read nothing yet.
func (f *replayFlags) replay(ctx context.Context) (*replayRun, error) {
	windows, err := events.ParseWindows(f.windows)
	if err != nil {
		return nil, fmt.Errorf("--windows: %w", err)
	}
	run, err := f.open(ctx)
	if err != nil {
		return nil, err
	}
	if run.Clock, err = f.clock(); err != nil {
		return nil, err
	}
	run.Aggregator.Windows = windows
	run.Aggregator.Retention = time.Duration(f.usageDays) * 24 * time.Hour
	run.BatchSize, run.Redeliver, run.DryRun = f.batchSize, f.redeliver, f.dryRun
	run.Backoff = 200 * time.Millisecond
	return run, nil
}

func (f *replayFlags) open(ctx context.Context) (*replayRun, error) {
	if f.table == "" {
		store := memory.New()
		if f.preload != "" {
			if err := loadItems(f.preload, store.Put); err != nil {
				return nil, err
			}
		}
		return &replayRun{Replay: replay.InMemory(store), store: store, shards: shardsInMemory(store)}, nil
	}
	service, err := connect(ctx, f.endpoint)
	if err != nil {
		return nil, err
	}
	store := dynamo.New(service.table, f.table)
	return &replayRun{Replay: replay.Again(store, store.Get), shards: shardsOnTable(store)}, nil
}

// clock returns the time of batches: that of --now, or the wall clock's with
// --table, or nil for the recording's own.
func (f *replayFlags) clock() (aggregator.Clock, error) {
	switch {
	case f.now != "":
		t, err := time.Parse(time.RFC3339Nano, f.now)
		if err != nil {
			return nil, fmt.Errorf("--now: %q is not a time such as 2026-11-30T10:00:00Z", f.now)
		}
		return func(int64) int64 { return t.UnixMilli() }, nil
	case f.table != "":
		return func(int64) int64 { return time.Now().UnixMilli() }, nil
	}
	return nil, nil
}

// explain adds to an error what the run has already written.
func (f *replayFlags) explain(err error, report *replay.Report) error {
	if f.table != "" && !f.dryRun {
		return fmt.Errorf("%w (the %d records of earlier batches are applied, this batch perhaps in part; it is safe to run this again)",
			err, report.Records)
	}
	return err
}

func (f *replayFlags) write(w io.Writer, report *replay.Report, name replay.Naming) error {
	if f.format == "json" {
		return report.WriteJSON(w, name)
	}
	return report.WriteText(w, name)
}
