package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/shardquota/shardquota/aggregator"
	"github.com/shardquota/shardquota/events"
	"github.com/shardquota/shardquota/events/delivery"
	"github.com/shardquota/shardquota/table/dynamo"
)

// runFlags are the flags of the run command. The defaults are those of the deployed
// function and its mapping.
type runFlags struct {
	table       string
	endpoint    string
	from        string
	batchSize   int
	window      time.Duration
	attempts    int
	bisect      bool
	maxAge      time.Duration
	parallel    int
	windows     string
	usageDays   int
	concurrency int
	checkpoint  string
	onFailure   string
}

func runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run --table NAME",
		Short: "Run the aggregator on this machine against a live stream",
		Long: `Run the aggregator on this machine against a table's live stream, as Lambda would:
batches of bucket writes, each delivered again from its lowest failure until it
is done with. It goes on until it is interrupted, and then finishes what it has
in hand.

With --checkpoint it goes on where it ended. Without, it begins at --from each
time: what was delivered before comes again, which counts no usage twice. With
--on-failure a batch is given up after --attempts or at --max-age, and kept as a
file that "shardquota replay --table" takes; without, it is tried for ever.

Logs go to standard error, as JSON or, on a terminal, as text; entities appear by
pseudonyms, under SHARDQUOTA_HASH_KEY.

Exit status: 0 when interrupted; 1 when records were lost; 2 on bad usage, or on
a table, a stream or a file that cannot be read or written.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(cmd.Flags().Changed); err != nil {
				return err
			}
			log := slog.New(logHandler(cmd.ErrOrStderr()))
			service, err := connect(cmd.Context(), f.endpoint, awsconfig.WithLogger(dynamo.SDKLog(log)))
			if err != nil {
				return err
			}
			r, err := f.runner(service, wallClock, log)
			if err != nil {
				return err
			}
			return f.run(cmd.Context(), r)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.table, "table", "", "the `table` to tend to")
	flags.StringVar(&f.endpoint, "endpoint-url", "", "`endpoint` of DynamoDB and of its streams")
	flags.StringVar(&f.from, "from", fromBeginning, "begin at the stream's `beginning|now`, where no checkpoint says otherwise")
	flags.IntVar(&f.batchSize, "batch-size", 1000, "records of a batch at most, up to 10000")
	flags.DurationVar(&f.window, "window", 5*time.Second, "`time` that a batch which is not full is gathered for, up to 5m")
	flags.IntVar(&f.attempts, "attempts", 101, "attempts at a batch before it is given up; needs --on-failure")
	flags.BoolVar(&f.bisect, "bisect", true, "halve a batch whose first record fails and goes on to")
	flags.DurationVar(&f.maxAge, "max-age", 12*time.Hour, "`age` at which records are given up; needs --on-failure")
	flags.IntVar(&f.parallel, "parallel", 1, "batches of one stream shard at once, up to 10; one bucket's records stay in order")
	flags.StringVar(&f.windows, "windows", "hourly,daily", "`list` of windows that usage is counted in: hourly, daily, monthly")
	flags.IntVar(&f.usageDays, "usage-days", 90, "days that usage outlives its window, 0 for ever")
	flags.IntVar(&f.concurrency, "concurrency", aggregator.DefaultConcurrency, "requests of a batch at once, up to 256")
	flags.StringVar(&f.checkpoint, "checkpoint", "", "keep in this `file` how far the stream is done, and go on from there")
	flags.StringVar(&f.onFailure, "on-failure", "", "keep batches that are given up in this `directory`")
	return cmd
}

// check returns what is wrong with the flags, before anything is read.
func (f *runFlags) check(given func(flag string) bool) error {
	if f.table == "" {
		return errors.New("run: name a --table")
	}
	if f.onFailure == "" {
		for _, flag := range []string{"attempts", "max-age"} {
			if given(flag) {
				return fmt.Errorf("--%s needs --on-failure, since a batch that is given up would be lost", flag)
			}
		}
		f.attempts, f.maxAge = 0, 0
	} else if f.attempts < 1 || f.maxAge <= 0 {
		return errors.New("--attempts and --max-age: not above 0; leave --on-failure out to try for ever")
	}
	if f.window < 0 || f.window > 5*time.Minute {
		return fmt.Errorf("--window: %v is not within 0s and 5m", f.window)
	}
	if f.checkpoint != "" && !writable(f.checkpoint) {
		return fmt.Errorf("--checkpoint: %s cannot be written as a file", f.checkpoint)
	}
	return errors.Join(
		within("batch-size", f.batchSize, 1, 10_000),
		within("parallel", f.parallel, 1, 10),
		within("concurrency", f.concurrency, 1, 256),
		within("usage-days", f.usageDays, 0, aggregator.MaxUsageDays),
		checkFrom(f.from))
}

func within(flag string, value, low, high int) error {
	if value < low || value > high {
		return fmt.Errorf("--%s: %d is not within %d and %d", flag, value, low, high)
	}
	return nil
}

// runner returns a run that has read nothing yet.
func (f *runFlags) runner(service connection, c clock, log *slog.Logger) (*runner, error) {
	windows, err := events.ParseWindows(f.windows)
	if err != nil {
		return nil, fmt.Errorf("--windows: %w", err)
	}
	r := &runner{checkpoint: f.checkpoint, onFailure: f.onFailure}
	r.live = live{
		place: place{Table: f.table}, tables: service.table, streams: service.streams, clock: c,
		notice: func(err error) { log.Warn("reading the stream", "reason", err.Error()) },
	}
	r.function = aggregator.Function{
		Aggregator: &aggregator.Aggregator{
			Store: dynamo.New(service.table, f.table), Windows: windows,
			Retention: time.Duration(f.usageDays) * 24 * time.Hour, Concurrency: f.concurrency,
		},
		Table: f.table, Names: aggregator.NewPseudonyms(hashKey()), Log: log, Now: c.now,
	}
	r.config = delivery.Config{
		BatchSize: f.batchSize, Window: f.window, Parallel: f.parallel, Bisect: f.bisect, Attempts: f.attempts, MaxAge: f.maxAge,
		Backoff: time.Second, Filter: isBucketWrite,
	}
	return r, nil
}

// isBucketWrite is the filter of the deployed mapping: the aggregator reads nothing
// else. It also passes a malformed record, which the aggregator rejects by name.
func isBucketWrite(record events.Record) bool {
	return record.Err != nil || record.EventName != events.Remove && events.OfBucket(record)
}

// logHandler logs JSON as the function does, or text on a terminal.
func logHandler(w io.Writer) slog.Handler {
	if file, ok := w.(*os.File); !ok || !term.IsTerminal(int(file.Fd())) {
		return slog.NewJSONHandler(w, nil)
	}
	return slog.NewTextHandler(w, &slog.HandlerOptions{ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && a.Key == slog.TimeKey {
			return slog.String(slog.TimeKey, a.Value.Time().Format(time.TimeOnly))
		}
		return a
	}})
}

// run delivers the stream until it ends, and logs a summary.
func (f *runFlags) run(ctx context.Context, r *runner) error {
	err := f.open(ctx, r)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	r.function.Log.Info("running", "table", f.table, "stream", r.Stream)
	err = r.run(ctx)
	r.function.Log.Info("ended", "records", r.records, "keptAside", r.setAside, "checkpoint", f.checkpoint)
	if err == nil && r.lost > 0 {
		return errLost
	}
	return err
}

func (f *runFlags) open(ctx context.Context, r *runner) error {
	var saved *place
	if f.checkpoint != "" {
		var err error
		if saved, err = loadJSON[place](f.checkpoint); err != nil {
			return fmt.Errorf("--checkpoint: %w", err)
		}
	}
	if saved != nil && saved.Table != f.table {
		return fmt.Errorf("--checkpoint: %s is of another table", f.checkpoint)
	}
	if f.onFailure != "" {
		if err := os.MkdirAll(f.onFailure, 0o700); err != nil {
			return fmt.Errorf("--on-failure: %w", err)
		}
	}
	return r.begin(ctx, saved, f.from)
}
