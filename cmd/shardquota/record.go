package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/smithy-go/logging"
	"github.com/spf13/cobra"
)

// recordFlags are the flags of the record command.
type recordFlags struct {
	table    string
	endpoint string
	output   string
	from     string
	length   time.Duration
	current  bool
	buckets  bool
	redact   bool
}

func recordCommand() *cobra.Command {
	var f recordFlags
	cmd := &cobra.Command{
		Use:   "record --table NAME -o FILE",
		Short: "Write a table's live stream to a file",
		Long: `Write a table's live stream to a file that "shardquota replay" reads: a record a
line, gzipped if FILE ends in .gz. It goes on until it is interrupted; started
again with the same FILE it goes on where it ended, and nothing is lost or comes
twice, whatever ended it. FILE.position remembers where that is. The stream
itself forgets after 24 hours.

A recording holds ids, which are often secrets, unless --redact replaces them.

Exit status: 0, also when interrupted; 1 when records were lost; 2 on bad usage,
or on a table or a file that cannot be read or written.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			service, err := connect(cmd.Context(), f.endpoint, awsconfig.WithLogger(logging.Nop{}))
			if err != nil {
				return err
			}
			r := f.recorder(service, wallClock, cmd.OutOrStdout(), cmd.ErrOrStderr())
			return f.run(cmd.Context(), r, cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.table, "table", "", "record the stream of this `table`")
	flags.StringVar(&f.endpoint, "endpoint-url", "", "`endpoint` of DynamoDB and of its streams")
	flags.StringVarP(&f.output, "output", "o", "", "write to this `file`, - for standard output")
	flags.StringVar(&f.from, "from", fromBeginning, "begin at the stream's `beginning|now`; a FILE that was begun goes on where it ended")
	flags.DurationVar(&f.length, "for", 0, "end after this `time`, such as 10m")
	flags.BoolVar(&f.current, "until-caught-up", false, "end when everything is recorded that was written before the start")
	flags.BoolVar(&f.buckets, "buckets", false, "leave out what is no bucket; a replay passes over it anyway")
	flags.BoolVar(&f.redact, "redact", false, "replace entity ids by pseudonyms, under SHARDQUOTA_HASH_KEY or a random key in FILE.position")
	return cmd
}

func (f *recordFlags) check() error {
	switch {
	case f.table == "":
		return errors.New("record: name a --table")
	case f.output == "":
		return errors.New("record: name a file to write to by -o, or - for standard output")
	case f.length < 0:
		return fmt.Errorf("--for: %v is negative", f.length)
	case f.output != "-" && !writable(f.output):
		return fmt.Errorf("--output: %s cannot be written as a file", f.output)
	}
	return checkFrom(f.from)
}

// recorder returns a recorder that has read nothing yet.
func (f *recordFlags) recorder(service connection, c clock, out, stderr io.Writer) *recorder {
	r := &recorder{out: out, buckets: f.buckets, current: f.current, end: never}
	r.live = live{
		place: place{Table: f.table}, tables: service.table, streams: service.streams, clock: c,
		notice: func(err error) { say(stderr, "%v", err) },
	}
	if f.length > 0 {
		r.end = c.ms() + f.length.Milliseconds()
	}
	return r
}

// run records, and writes a summary.
func (f *recordFlags) run(ctx context.Context, r *recorder, stderr io.Writer) error {
	goesOn, err := f.open(ctx, r)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	say(stderr, "recording the stream of %s, %s", f.table, goesOn)
	err = r.run(ctx)
	if r.file != nil {
		err = errors.Join(err, r.file.Close())
	}
	r.summary(stderr)
	if err == nil && r.lost > 0 {
		return errLost
	}
	return err
}

// open finds the stream and opens the file. It returns where the reading begins, in
// words.
func (f *recordFlags) open(ctx context.Context, r *recorder) (string, error) {
	at, goesOn := recorded{Buckets: f.buckets}, "from its beginning"
	if f.from == fromNow {
		goesOn = "from now"
	}
	saved, err := f.saved()
	if err != nil {
		return "", err
	}
	var from *place
	if saved != nil {
		at, from, goesOn = *saved, &saved.place, "from where "+f.output+" ends"
	} else if f.redact {
		at.Redact = newRedacted(hashKey())
	}
	if at.Redact != nil {
		names, err := at.Redact.names(hashKey())
		if err != nil {
			return "", err
		}
		r.hide = &redactor{names}
	}
	if err := r.begin(ctx, from, f.from); err != nil {
		return "", err
	}
	if f.output == "-" {
		return goesOn, nil
	}
	if r.file, err = openRecordFile(f.output, at); err != nil || saved != nil {
		return goesOn, err
	}
	// However this recording ends, the next one goes on from here.
	return goesOn, r.file.commit(r.at(nil))
}

// saved returns the position file of a recording that goes on, nil for a new one.
// The flags must be those it began with, so that the file can be read as one.
func (f *recordFlags) saved() (*recorded, error) {
	if f.output == "-" {
		return nil, nil
	}
	saved, err := loadRecorded(f.output)
	if saved == nil || err != nil {
		return nil, err
	}
	for flag, differs := range map[string]bool{
		"--table": saved.Table != f.table, "--redact": (saved.Redact != nil) != f.redact, "--buckets": saved.Buckets != f.buckets,
	} {
		if differs {
			return nil, fmt.Errorf("%s: %s was recorded otherwise; give another file", flag, f.output)
		}
	}
	return saved, nil
}
